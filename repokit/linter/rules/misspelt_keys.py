"""GEN: keys of generation_config.json that nobody reads, because they are spelled almost like one that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.generation import GENERATION
from repokit.linter.rules.slips import meant_by

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class MisspeltSetting(Rule):
    """A key of generation_config.json is nearly one that `generate` reads, and that one is not there.

    The class keeps what it does not know and writes it back: the setting never has an effect, and nothing says so.
    """

    code = "GEN211"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("two letters exchanged", {GENERATION: {"max_new_tokesn": 64}}),
        Example("the end of the word", {GENERATION: {"stop_string": "###"}}),
    )
    good = (
        Example("the key is there as well", {GENERATION: {"max_new_tokens": 64, "max_new_token": 64}}),
        Example("a key of someone's own", {GENERATION: {"max_thinking_tokens": 64}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.generation_config
        if config is None:
            return
        known = settings()
        absent = sorted(key for key in known - config.raw.keys() if len(key) >= SHORTEST)
        for key in config.raw:
            if key not in known and (meant := meant_by(key, absent)) is not None:
                yield self.finding(GENERATION, "is not read", place=config.at(key), hint=f"did you mean {meant}?")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import renamed

        return renamed(repository, finding)


RULES: Final = (MisspeltSetting(),)

# Shorter keys are one letter away from what other programs put here for themselves.
SHORTEST: Final = 8


def settings() -> frozenset[str]:
    """The keys that transformers reads, in its present and in older versions."""
    from repokit.schema.generation_config import GenerationConfig

    return frozenset(field.alias or name for name, field in GenerationConfig.model_fields.items())
