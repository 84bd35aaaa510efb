"""GEN: ids that stand only where `generate` does not look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.generation import GENERATION, TOKEN_IDS
from repokit.printable import printable
from repokit.repo.config import CONFIG

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class IdOnlyInConfig(Rule):
    """generation_config.json lacks an id that config.json has.

    `generate` reads generation_config.json alone where there is one: without an end it goes on to the length limit,
    without a start it stops or begins with another token, and a batch is padded with the end of text.
    """

    code = "GEN231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("the end of text", {GENERATION: {"eos_token_id": DELETE}}),
        Example("nothing", {GENERATION: {"eos_token_id": None}}),
        Example("none in the list", {GENERATION: {"eos_token_id": []}}),
    )
    good = (
        Example("no generation_config.json", {GENERATION: None}),
        Example("in both", {GENERATION: {"decoder_start_token_id": 1}, CONFIG: {"decoder_start_token_id": 1}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, generation = repository.config, repository.generation_config
        if config is None or generation is None or not any(map(GENERATES.search, config.architectures)):
            return
        for key in TOKEN_IDS:
            ids = config.integers(key) or config.text.integers(key)
            if ids and min(ids) >= 0 and generation.raw.get(key) in (None, []):
                message = f"has no {key}; {CONFIG} has {printable(list(ids) if ids[1:] else ids[0], 40)}"
                yield self.finding(GENERATION, message, place=generation.at(key), hint=f"copy {key} from {CONFIG}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import from_config

        return from_config(repository, finding)


class DisagreeingStart(Rule):
    """generation_config.json and config.json disagree about the id with which a decoder begins or must end.

    Training shifts its labels by the one, `generate` begins with the other: the first token is one that the model has
    not seen there.
    """

    code = "GEN232"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("another start", {GENERATION: {"decoder_start_token_id": 2}, CONFIG: {"decoder_start_token_id": 1}}),
    )
    good = (
        Example("one start", {GENERATION: {"decoder_start_token_id": 2}, CONFIG: {"decoder_start_token_id": 2}}),
        Example("a start of generation alone", {GENERATION: {"decoder_start_token_id": 2}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, generation = repository.config, repository.generation_config
        for key in () if config is None or generation is None else ("decoder_start_token_id", "forced_eos_token_id"):
            trained, begun = config.integer(key) if config else None, generation.integer(key) if generation else None
            if trained is not None and begun is not None and trained != begun:
                message = f"is {begun}; {CONFIG} has {trained}"
                yield self.finding(GENERATION, message, place=generation.at(key) if generation else None)


RULES: Final[tuple[Rule, ...]] = (IdOnlyInConfig(), DisagreeingStart())
GENERATES: Final = re.compile("For|LMHead")  # the body of a model alone does not generate
