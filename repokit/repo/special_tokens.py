"""The special tokens of a tokenizer by their role, from two files that may contradict each other.

special_tokens_map.json wins over tokenizer_config.json wherever that has no `added_tokens_decoder`, which is the
ordinary state of what transformers 5 writes (tokenization_utils_base.py `_from_pretrained`, 5.24; measured).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.document import Document

# PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES, in its order, which is the one in which unknown tokens get ids.
STANDARD_ROLES: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_LISTS: Final = ("extra_special_tokens", "additional_special_tokens")


class SpecialToken(NamedTuple):
    """A token that a file names for a purpose.

    Attributes:
        content: Its text.
        role: `eos_token`, `image_token`; the name of the list for one without a role of its own.
        path: The file that decides.
        place: JSON Pointer in that file.
    """

    content: str
    role: str
    path: str
    place: str


def named_tokens(document: Document) -> dict[str, SpecialToken]:
    """Role to token, of one file: the standard roles first, then those of one model, such as `image_token`."""
    found = {role: token for role in STANDARD_ROLES if (token := _named(document, role, document.at(role)))}
    for key, value in document.raw.items():
        if key.endswith("_token") and key not in found and (content := _token(value)) is not None:
            found[key] = SpecialToken(content, key, document.path, document.at(key))
    if (extra := document.mapping("extra_special_tokens")) is not None:
        found |= {role: token for role in extra.raw if (token := _named(extra, role, extra.at(role)))}
    return found


def roles(config: Document | None, special_map: Document | None) -> dict[str, SpecialToken]:
    """Role to token, as transformers resolves the two files."""
    found = {} if config is None else named_tokens(config)
    if special_map is not None and (config is None or "added_tokens_decoder" not in config):
        for role in STANDARD_ROLES:
            if role in special_map:
                found.pop(role, None)  # `null` there takes the role away
        found |= named_tokens(special_map)
    return found


def extras(config: Document | None, special_map: Document | None) -> tuple[SpecialToken, ...]:
    """Special tokens without a role: those of the first list that has any."""
    for document in (config, special_map):
        for key in _LISTS if document is not None else ():
            if document is not None and (tokens := tuple(_listed(document, key))):
                return tokens
    return ()


def conflicts(config: Document, special_map: Document) -> Mapping[str, tuple[str, str]]:
    """Role to the two different tokens, for roles that both files name."""
    ours, theirs = named_tokens(config), named_tokens(special_map)
    both = {role: (ours[role].content, theirs[role].content) for role in ours if role in theirs}
    return {role: pair for role, pair in both.items() if pair[0] != pair[1]}


def untyped(config: Document) -> tuple[str, ...]:
    """JSON Pointers of tokens in tokenizer_config.json that are objects without the `__type` that makes them tokens."""
    places = [(role, config.raw.get(role), config.at(role)) for role in STANDARD_ROLES]
    for key in _LISTS:
        values = config.raw.get(key)
        items = values.items() if isinstance(values, dict) else enumerate(values if isinstance(values, list) else ())
        places.extend((key, value, config.at(key, step)) for step, value in items)
    return tuple(place for _, value, place in places if isinstance(value, dict) and value.get("__type") != "AddedToken")


def _named(document: Document, role: str, place: str) -> SpecialToken | None:
    token = _token(document.raw.get(role))
    return None if token is None else SpecialToken(token, role, document.path, place)


def _listed(document: Document, key: str) -> Iterator[SpecialToken]:
    values = document.raw.get(key)
    for index, value in enumerate(values if isinstance(values, list) else []):
        if (token := _token(value)) is not None:
            yield SpecialToken(token, key, document.path, document.at(key, index))


def _token(value: Any) -> str | None:  # noqa: ANN401 - what a file holds
    """A string, or an object with its text as `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
