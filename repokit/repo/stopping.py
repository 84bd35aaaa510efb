"""Which token ids end a generation, as the files of a repository say it, and whether it generates at all."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.resources import data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

EOS: Final = "eos_token_id"

# Architectures with `generate`; remote code that ends otherwise is known by its generation_config.json.
_GENERATING: Final = re.compile(
    r"(?:ForCausalLM|LMHeadModel|ForConditionalGeneration|ForSeq2SeqLM|ForSpeechSeq2Seq|ForVision2Seq|ForImageTextToText)$"
)


class Declared(NamedTuple):
    """What one object of one file says of a token id."""

    path: str
    place: str
    ids: tuple[int, ...]


class Stopping:
    """The ids that end a generation.

    Attributes:
        generates: Whether the repository is a model that generates token after token.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        config = repository.config
        architectures = () if config is None else config.architectures
        self.generates = (
            any(_GENERATING.search(name) for name in architectures) or repository.generation_config is not None
        )

    def declared(self, key: str) -> Iterator[Declared]:
        """Where config.json, its text model and generation_config.json give ids under a key. Negative ones are none."""
        for document in self._documents:
            if ids := tuple(number for number in document.integers(key) if number >= 0):
                yield Declared(document.path, document.at(key), ids)

    @cached_property
    def _documents(self) -> tuple[Document, ...]:
        config, generation = self._repository.config, self._repository.generation_config
        levels = () if config is None else (config,) if config.text is config else (config, config.text)
        return (*levels, *(() if generation is None else (generation,)))

    @cached_property
    def ids(self) -> frozenset[int] | None:
        """Every id that ends a generation; None where no file says, and the model_type's own default is not known."""
        found = frozenset(number for declared in self.declared(EOS) for number in declared.ids)
        return found or self._default

    @cached_property
    def _default(self) -> frozenset[int] | None:
        """What the config class gives where config.json is silent."""
        config = self._repository.config
        known: dict[str, list[int]] = data("default_eos")["ids"]
        if config is None or config.model_type not in known or "auto_map" in config:
            return None
        return frozenset(known[config.model_type])
