"""Files of a tokenizer: what tokenizer.json proves, or what nothing reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.fix import DropJson, Edit, Fix, SetJson, WriteFile
from repokit.printable import count, printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import ADDED_TOKENS, TOKENIZER_CONFIG, VOCAB_JSON, VOCAB_TXT
from repokit.resources import data
from repokit.schema.document import steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository

# The arguments of AddedToken (tokenizers 0.23).
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")

_OLDER: Final = "additional_special_tokens"

# Position ids of these families begin behind the padding id (transformers 5.24 `create_position_ids`).
_BEHIND_PADDING: Final = frozenset(
    {
        *("camembert", "data2vec-text", "longformer", "mpnet", "roberta", "roberta-prelayernorm"),
        *("xlm-roberta", "xlm-roberta-xl"),
    }
)


def typed(repository: Repository, finding: Finding) -> Fix | None:
    """A token that says that it is one; as text alone where it has keys that a token does not take."""
    value: Any = None if repository.tokenizer_config is None else repository.tokenizer_config.raw
    for step in steps(finding.place or ""):
        value = value[int(step)] if isinstance(value, list) else value[step]
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not finding.place:
        return None
    if value.keys() <= {"content", *_FLAGS}:
        title = f"mark {printable(value['content'], 40)!r} as a token"
        return Fix(title, (SetJson(finding.path, f"{finding.place}/__type", "AddedToken"),))
    title = f"write the text of {printable(value['content'], 40)!r} alone"
    return Fix(title, (SetJson(finding.path, finding.place, value["content"]),))


def as_config(repository: Repository, finding: Finding) -> Fix | None:
    """The token of special_tokens_map.json as tokenizer_config.json has it."""
    from repokit.repo.special_tokens import conflicts

    config, special_map = repository.tokenizer_config, repository.special_tokens_map
    role = steps(finding.place or "/")[-1]
    pair = None if config is None or special_map is None else conflicts(config, special_map).get(role)
    if pair is None or special_map is None or role not in special_map:
        return None
    nested = special_map.mapping(role)
    place = special_map.at(role) if nested is None else nested.at("content")
    title = f"set {role} of {finding.path} to {printable(pair[0], 40)!r}, as {TOKENIZER_CONFIG} has it"
    return Fix(title, (SetJson(finding.path, place, pair[0]),))


def with_real_id(repository: Repository, finding: Finding) -> Fix | None:
    """The id in a file beside tokenizer.json as tokenizer.json gives it; an entry of a decoder is taken out."""
    tokenizer = repository.tokenizer
    if tokenizer is None or tokenizer.document is None or not finding.place:
        return None
    token = next((one for one in tokenizer.written_elsewhere if one.place == finding.place), None)
    if token is None:
        return None
    # What only this file names gets the next free id, which is no reason to write that down.
    real = None if any(one.content == token.content for one in tokenizer.appended) else tokenizer.ids.get(token.content)
    shown = repr(printable(token.content, 40))
    if finding.path == ADDED_TOKENS and real is not None:
        return Fix(f"set the id of {shown} to {real}", (SetJson(finding.path, finding.place, real),))
    if real is None:
        return None  # taking it out would take the token out
    return Fix(f"remove {shown} at the id {token.written}", (DropJson(finding.path, finding.place),))


def vocabulary_again(repository: Repository, finding: Finding) -> Fix | None:
    """vocab.json or vocab.txt as tokenizer.json has the model's own vocabulary."""
    from repokit.formats.strict_json import dumps

    tokenizer = repository.tokenizer
    if tokenizer is None or tokenizer.document is None:
        return None
    ordered = sorted(tokenizer.vocabulary.items(), key=lambda item: item[1])
    title = f"write {finding.path} from {TOKENIZER_JSON}"
    if finding.path == VOCAB_JSON:
        return Fix(title, (WriteFile(VOCAB_JSON, dumps(dict(ordered))),))
    in_lines = [number for _, number in ordered] == list(range(len(ordered))) and not any(
        "\n" in token or "\r" in token for token, _ in ordered
    )
    if finding.path != VOCAB_TXT or not in_lines:
        return None
    return Fix(title, (WriteFile(VOCAB_TXT, "".join(f"{token}\n" for token, _ in ordered).encode()),))


def with_all_extras(repository: Repository, finding: Finding) -> Fix | None:
    """One list with the tokens of both, under the name that both generations of transformers read."""
    config = repository.tokenizer_config
    extra = None if config is None else config.raw.get("extra_special_tokens")
    if config is None or not isinstance(extra, list):
        return None
    edits = (
        SetJson(config.path, config.at(_OLDER), [*extra, *finding.names]),
        DropJson(config.path, config.at("extra_special_tokens")),
    )
    return Fix(f"write {count(len(extra) + len(finding.names), 'token')} as {_OLDER}", edits)


def under_older_name(repository: Repository, finding: Finding) -> Fix | None:
    """A list of extra tokens as transformers 4 spells it; 5 takes both for the same (5.24, measured)."""
    config = repository.tokenizer_config
    extra = None if config is None else config.raw.get("extra_special_tokens")
    if config is None or not isinstance(extra, list) or _OLDER in config or not finding.place:
        return None
    edits = (SetJson(config.path, config.at(_OLDER), extra), DropJson(config.path, finding.place))
    return Fix(f"rename extra_special_tokens to {_OLDER}", edits)


def with_flags(repository: Repository, finding: Finding) -> Fix | None:
    """added_tokens_decoder with the flags of tokenizer.json."""
    config, tokenizer = repository.tokenizer_config, repository.tokenizer
    decoder = None if config is None else config.mapping("added_tokens_decoder")
    if decoder is None or tokenizer is None or tokenizer.document is None:
        return None
    known = {entry.raw.get("content"): entry for entry in tokenizer.document.objects("added_tokens")}
    edits: list[Edit] = []
    for number in decoder.raw:
        entry = decoder.mapping(number)
        if entry is None or entry.raw.get("content") not in finding.names:
            continue
        ours = known[entry.raw["content"]]
        flags = (flag for flag in _FLAGS if flag in ours and flag in entry and ours.raw[flag] != entry.raw[flag])
        edits += [SetJson(config.path, entry.at(flag), ours.raw[flag]) for flag in flags if config is not None]
    title = f"describe {count(len(finding.names), 'token')} as {TOKENIZER_JSON} does"
    return Fix(title, tuple(edits)) if edits else None


def unnormalized(repository: Repository, finding: Finding) -> Fix | None:
    """Special tokens that are matched before the text is changed."""
    document, wanted = repository.document(TOKENIZER_JSON), set(finding.names)
    entries = [] if document is None else list(document.objects("added_tokens"))
    edits = tuple(
        SetJson(TOKENIZER_JSON, entry.at("normalized"), False)
        for entry in entries
        if entry.raw.get("content") in wanted and entry.flag("normalized") is True
    )
    return Fix(f"match {count(len(edits), 'special token')} before normalization", edits) if edits else None


def with_length(repository: Repository, finding: Finding) -> Fix | None:
    """model_max_length by the table of positions."""
    from repokit.linter.rules.tokenizer import positions_of

    config = repository.config
    positions = None if config is None else positions_of(config)
    if config is None or positions is None or not finding.place:
        return None
    padding = config.integer("pad_token_id")
    if padding is None or config.model_type == "mpnet":  # the default of the others, and what MPNet always has
        padding = 1
    length = positions - (padding + 1 if config.model_type in _BEHIND_PADDING else 0)
    if length < 1:
        return None
    title = f"set model_max_length to {length:,}, which the table of positions has"
    return Fix(title, (SetJson(finding.path, finding.place, length),))


def within_positions(repository: Repository, finding: Finding) -> Fix | None:
    """max_seq_length of sentence-transformers by the table of positions."""
    fix = with_length(repository, finding)
    return None if fix is None else Fix(fix.title.replace("model_max_length", "max_seq_length"), fix.edits)


def known_class(repository: Repository, finding: Finding) -> Fix | None:
    """The class that is spelled so but for the case of letters."""
    config = repository.tokenizer_config
    name = None if config is None else config.string("tokenizer_class")
    if name is None or not finding.place:
        return None
    found = _alike(name, data("tokenizer_classes")["ids"])
    if found is None:
        return None
    return Fix(f"set tokenizer_class to {found}", (SetJson(finding.path, finding.place, found),))


def _alike(name: str, known: Iterable[str]) -> str | None:
    """The one name that differs in case and in marks between words alone."""
    bare = _bare(name)
    found = [one for one in known if _bare(one) == bare]
    return found[0] if len(found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def processor_class(repository: Repository, finding: Finding) -> Fix | None:
    """The class of a processor that is spelled so but for the case of letters."""
    place = finding.place or ""
    value: Any = repository.json(finding.path)
    for step in steps(place):
        value = value.get(step) if isinstance(value, dict) else None
    found = _alike(value, data("processor_classes")["ids"]) if isinstance(value, str) else None
    if found is None or not place:
        return None
    return Fix(f"set {steps(place)[-1]} to {found}", (SetJson(finding.path, place, found),))
