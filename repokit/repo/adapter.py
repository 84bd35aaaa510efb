"""Adapters: adapter_config.json and the weights beside it. A repository holds one, or one in each of its folders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

ADAPTER_CONFIG: Final = "adapter_config.json"

# The two factors of LoRA and its kin (peft 0.21 tuners/lora/layer.py; AdaLoRA has no `.weight`, embeddings neither).
_FACTOR: Final = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<side>[AB])(?:\.weight)?")

_PLAIN: Final = re.compile(r"[\w.-]+")


class Pair(NamedTuple):
    """The two factors of one module; None where one is not in the file."""

    a: TensorInfo | None
    b: TensorInfo | None
    embedding: bool

    @property
    def rank(self) -> int | None:
        """Rows of A; None where it is not there, is no matrix or is empty."""
        return self.a.shape[0] if self.a is not None and len(self.a.shape) > 1 and self.a.size else None

    @property
    def fits(self) -> bool:
        """Whether the columns of B are the rows of A, where both are matrices."""
        matrices = self.rank is not None and self.b is not None and len(self.b.shape) == 2
        return not matrices or (self.b is not None and self.b.shape[1] == self.rank)


def pairs_of(tensors: Iterable[TensorInfo]) -> dict[str, Pair]:
    """The factors of LoRA by module, under the names that a saved adapter has."""
    found: dict[str, Pair] = {}
    for tensor in tensors:
        if (match := _FACTOR.fullmatch(tensor.name)) is None:
            continue
        pair = found.get(match["module"], Pair(None, None, match["embedding"] is not None))
        found[match["module"]] = pair._replace(a=tensor) if match["side"] == "A" else pair._replace(b=tensor)
    return found


@dataclass(frozen=True)
class Adapter:
    """One adapter.

    Attributes:
        config: Its adapter_config.json.
        weights: Its weight file in safetensors, by path; None where there is none.
        repository: Where both lie.
    """

    config: Document
    weights: str | None
    repository: Repository

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """What its weight file holds; () where there is none.

        Raises:
            MalformedFile: The file has no valid header.
        """
        return () if self.weights is None else self.repository.header(self.weights).tensors

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def pairs(self) -> Mapping[str, Pair]:
        """The factors of LoRA by module, `base_model.model.` included."""
        return pairs_of(self.tensors)

    def rank_of(self, module: str) -> int | None:
        """The rank that the config gives a module; None where it cannot be told.

        `r`, or what `rank_pattern` says: its keys are regular expressions for the end of a path (peft 0.21
        utils/other.py get_pattern_key). One out of a file may take for ever, so only plain ones are compared.
        AdaLoRA begins with `init_r`, and writes for every module which of its values it kept.
        """
        ada = self.config.string("peft_type") == "ADALORA"
        patterns = self.config.mapping("rank_pattern")
        for pattern in () if patterns is None else patterns.raw:
            plain = plain_pattern(pattern.partition(".lora_E")[0] if ada else pattern)
            if plain is None:
                return None
            if f".{module}".endswith("." + plain) and patterns is not None:
                return _rank(patterns.raw[pattern])
        return self.config.integer("init_r") if ada else self.config.integer("r")


def plain_pattern(pattern: str) -> str | None:
    """The module path that a pattern stands for, or None for an expression that is more than one."""
    plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
    return plain if _PLAIN.fullmatch(plain) else None


def _rank(value: object) -> int | None:
    """A rank, or the number of values that were kept."""
    if isinstance(value, list) and all(isinstance(kept, bool) for kept in value):
        return sum(value)
    return value if type(value) is int else None


def adapters(repository: Repository) -> tuple[Adapter, ...]:
    """Every adapter of a repository.

    Raises:
        MalformedFile: A config does not parse.
    """
    return repository.remember(("adapters", ""), lambda: tuple(_adapters(repository)))


def _adapters(repository: Repository) -> Iterator[Adapter]:
    for path in repository.files:
        folder, slash, name = path.rpartition("/")
        config = repository.document(path) if name == ADAPTER_CONFIG else None
        if config is None:
            continue
        weights = f"{folder}{slash}{ADAPTER}"
        yield Adapter(config, weights if repository.has(weights) else None, repository)
