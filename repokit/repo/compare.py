"""Two repositories side by side: what one of them lost or changed against the other, such as a model and its base.

compared_tensors has their tensors; here are their documents and tokenizers. Every function takes `ours` first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.repo.stopping import EOS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.config import Config
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.tokenizer import Tokenizer

# Keys that say how a file was written or how a model is to be run, and nothing of what it is.
_BESIDE: Final = frozenset(
    {"transformers_version", "_name_or_path", "name_or_path", "torch_dtype", "dtype", "use_cache", "auto_map"}
    | {"_attn_implementation", "attn_implementation", "_attn_implementation_autoset", "_commit_hash", "finetuning_task"}
    | {"quantization_config", "compression_config", "quantization", EOS, "bos_token_id", "pad_token_id"}
    | {"_experts_implementation", "unsloth_version", "unsloth_fixed", "return_dict", "output_attentions"}
)
# Where composed models keep the config of their text model: a text model has it at the top.
_OF_TEXT: Final = frozenset({"text_config", "llm_config", "language_config"})
# Both spellings of one thing (transformers 4 and 5): compared as one.
_ROPE: Final = ("rope_parameters", "rope_scaling", "rope_theta")
_SECTIONS: Final = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


class Changed(NamedTuple):
    """A value that is another one in both.

    Attributes:
        key: Where it stands: `text_config.num_hidden_layers`.
        theirs: What the other one has.
        ours: What this one has; None where it has nothing.
    """

    key: str
    theirs: Any
    ours: Any


def changed_config(ours: Config, theirs: Config) -> tuple[Changed, ...]:
    """Keys of config.json that both have with different values, and models inside the model that one has alone.

    A key that only one of them has says nothing: every version of transformers writes others.
    """
    return tuple(_changed(ours.raw, theirs.raw, ""))


def _changed(ours: Mapping[str, Any], theirs: Mapping[str, Any], above: str) -> Iterator[Changed]:
    for key, value in theirs.items():
        if key in _BESIDE or key in _ROPE:
            continue
        own = ours.get(key)
        match value, own:
            case dict(), dict():
                yield from _changed(own, value, f"{above}{key}.")
            case dict(), None if key.endswith("_config") and key not in _OF_TEXT:
                yield Changed(above + key, value, None)
            case _ if own is not None and value is not None and own != value:
                yield Changed(above + key, value, own)
    rope, other = _rope(ours), _rope(theirs)
    if rope and other and rope != other:
        yield Changed(f"{above}rope", other, rope)


def _rope(level: Mapping[str, Any]) -> dict[str, Any]:
    """How positions are embedded, in the newer spelling; {} where nothing says so."""
    found: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(block := level.get(key), dict):
            found |= block
    if "rope_theta" in level:
        found.setdefault("rope_theta", level["rope_theta"])
    if (kind := found.pop("type", None)) is not None:
        found.setdefault("rope_type", kind)
    if found.get("rope_type") == "default":
        del found["rope_type"]
    return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ComparedTokenizers:
    """Two vocabularies.

    Attributes:
        added: Tokens that only ours has.
        removed: Tokens that only theirs has.
        renumbered: Tokens of both with another id.
        merges: Whether the merges differ.
        sections: Parts of tokenizer.json beside the vocabulary that differ: `pre_tokenizer`.
        unread: Whether they are in a format that is not read, and their bytes differ.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renumbered: tuple[str, ...] = ()
    merges: bool = False
    sections: tuple[str, ...] = ()
    unread: bool = False


def compare_tokenizers(ours: Repository, theirs: Repository) -> ComparedTokenizers | None:
    """The tokenizers of both; None where one of them has none.

    Raises:
        MalformedFile: One of them does not parse.
    """
    if _same_files(ours, theirs):
        return ComparedTokenizers()
    mine, other = ours.tokenizer, theirs.tokenizer
    if mine is None or other is None:
        return None
    if not (mine.is_read and other.is_read):
        same = mine.path == other.path and ours.glance(mine.path) == theirs.glance(other.path)
        return ComparedTokenizers(unread=not same)
    ids, others = mine.ids, other.ids
    return ComparedTokenizers(
        added=tuple(token for token in ids if token not in others),
        removed=tuple(token for token in others if token not in ids),
        renumbered=tuple(token for token, number in ids.items() if others.get(token, number) != number),
        merges=_merges(mine) != _merges(other),
        sections=_other_sections(mine.document, other.document),
    )


def _same_files(ours: Repository, theirs: Repository) -> bool:
    """Whether both have a tokenizer.json and a tokenizer_config.json of the same bytes: then nothing is parsed."""
    for path in ("tokenizer.json", "tokenizer_config.json"):
        mine, other = ours.files.get(path), theirs.files.get(path)
        if mine is None or other is None or mine.size != other.size or ours.glance(path) != theirs.glance(path):
            return False
    return True


def _merges(tokenizer: Tokenizer) -> list[str]:
    """Merges in the older spelling: two parts with a blank between them."""
    model = None if tokenizer.document is None else tokenizer.document.mapping("model")
    merges = model.raw.get("merges") if model is not None else None
    found = merges if isinstance(merges, list) else []
    return [" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in found]


def _other_sections(ours: Document | None, theirs: Document | None) -> tuple[str, ...]:
    if ours is None or theirs is None:
        return ()
    return tuple(section for section in _SECTIONS if ours.raw.get(section) != theirs.raw.get(section))


def ending_ids(repository: Repository) -> frozenset[int]:
    """The ids that end a generation: those of generation_config.json, without it those of config.json.

    Raises:
        MalformedFile: One of them does not parse.
    """
    generation, config = repository.generation_config, repository.config
    for document in (generation, *(() if config is None else (config, config.text))):
        if document is not None and (ids := document.integers(EOS)):
            return frozenset(ids)
    return frozenset()
