"""CRD: values in the front matter of README.md that the Hub refuses, or reads as something else.

The Hub checks the card at the commit, after everything was uploaded, and refuses the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import is_lookalike, with_lines
from repokit.printable import printable
from repokit.repo.card import README, flattened, is_path
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.card import ModelCard, Value
    from repokit.repo.repository import Repository

# Keys whose type the Hub asks for; it takes any other key as it comes.
CHECKED: Final = (
    *("language", "license", "license_name", "license_link", "library_name", "pipeline_tag", "tags", "datasets"),
    *("metrics", "base_model", "new_version"),
)
INDEX: Final = "model-index"
RESULTS: Final = """model-index:
- name: example
  results:
  - task: {type: text-generation}
    dataset: {name: d, type: d}
    metrics:
    - {type: accuracy, value: 0.5}
"""


class RefusedMetadata(Rule):
    """A value of the front matter has a type that its readers refuse.

    YAML 1.1 reads `no` as false, an empty value as null, 2024 as a number: huggingface_hub gets and writes those, and
    the Hub refuses the commit, after everything was uploaded.
    """

    code = "CRD102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("Norwegian without quotes", {README: with_lines("language: no\n", drop="language")}),
        Example("a key without a value", {README: with_lines("language:\n", drop="language")}),
        Example("an empty item", {README: with_lines("tags:\n- chat\n-\n")}),
        Example("a number for an id", {README: with_lines("base_model: 7\n", drop="base_model")}),
    )
    good = (Example("Norwegian with quotes", {README: with_lines('language: "no"\n', drop="language")}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        for problem in _problems(card):
            if card is not None and problem.key in CHECKED:
                hint = 'put it in quotes: "no"' if problem.message.startswith("is a boolean") else None
                yield self.finding(
                    README, f"{problem.name}: {problem.message}", place=card.place(problem.key), hint=hint
                )
        if card is not None and "language" in card and card.raw["language"] is None:
            yield self.finding(README, "language: has no value", place=card.place("language"), hint="delete the key")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import as_typed

        return as_typed(repository, finding)


class InvalidRepositoryId(Rule):
    """base_model, datasets or new_version is not the id of a repository.

    Training tools write the path they loaded from, people write prose: the Hub refuses the commit.
    """

    code = "CRD103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a folder of the training machine", {README: with_lines("base_model: /home/u/llama\n", drop="base_model")}
        ),
        Example("a dataset on a disk", {README: with_lines('datasets: ["/var/hf/images/"]\n')}),
        Example("prose", {README: with_lines('datasets: ["librispeech 960h"]\n')}),
        Example("nothing", {README: with_lines("base_model: ''\n", drop="base_model")}),
    )
    good = (
        Example("ids with and without an owner", {README: with_lines("datasets: [squad, example/data.v2]\n")}),
        Example("no base model", {README: with_lines(drop="base_model")}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        for value in card.not_ids if card is not None else ():
            if isinstance(value.value, str) and not is_lookalike(value.value):
                yield self.finding(
                    README, f"{value.key}: {_no_id(value)}", place=value.place, hint="owner/name on the Hub"
                )

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_id

        return with_id(repository, finding)


class UnknownLanguage(Rule):
    """A language is not an ISO 639 code.

    The Hub refuses the commit: "must be an ISO 639-1, 639-2 or 639-3 code".
    """

    code = "CRD104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a country's code", {README: with_lines("language: jp\n", drop="language")}),
        Example("a word", {README: with_lines("language: [en, noinfo]\n", drop="language")}),
        Example("a locale", {README: with_lines("language: zh-CN\n", drop="language")}),
    )
    good = (
        Example(
            "two letters, three, and two words",
            {README: with_lines("language: [en, yue, code, multilingual]\n", drop="language")},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        values = list(card.values("language")) if card is not None else []
        known = frozenset(data("languages")["ids"]) if values else frozenset()
        for value in values:
            if isinstance(value.value, str) and value.value.lower() not in known and value.value not in OLDER_CODES:
                message = f"{value.key}: {printable(value.value, 40)!r} is no ISO 639 code"
                hint = LANGUAGES.get(value.value.lower().partition("-")[0].partition("_")[0])
                yield self.finding(README, message, place=value.place, hint=hint and f"language: {hint}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_language_code

        return with_language_code(repository, finding)


class MalformedModelIndex(Rule):
    """The evaluation results in `model-index` do not have their form.

    huggingface_hub refuses to load the card, the Hub refuses the commit.
    """

    code = "CRD105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("metric for metrics", {README: with_lines(RESULTS.replace("metrics:", "metric:"))}),
        Example("an object for the list", {README: with_lines("model-index: {name: x}\n")}),
        Example("a number that is none", {README: with_lines(RESULTS.replace("0.5", ".nan"))}),
    )
    good = (Example("a result", {README: with_lines(RESULTS)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is None:
            return
        place = card.place(INDEX)
        for problem in _problems(card):
            if problem.key == INDEX:
                yield self.finding(README, f"{problem.name}: {problem.message}", place=place)
        for pointer, value in flattened(card.raw.get(INDEX)):
            if isinstance(value, float) and not isfinite(value):
                yield self.finding(README, f"{INDEX}{pointer}: is {value}, which JSON cannot hold", place=place)


class ImplicitType(Rule):
    """A value of the front matter is not the text that was typed.

    YAML 1.1 reads 2026-01-02 as a date and 1:30:00 as 5400 seconds; whoever reads the card gets those.
    """

    code = "CRD206"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a version that reads as a date", {README: with_lines("model_name: 2026-01-02\n")}),
        Example("a name that reads as a time", {README: with_lines("model_name: 1:30:00\n")}),
    )
    good = (
        Example("in quotes", {README: with_lines('model_name: "2026-01-02"\n')}),
        Example("a key of someone's own", {README: with_lines("released: 2026-01-02\n")}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        for problem in _problems(card):
            if card is not None and problem.key not in {*CHECKED, INDEX}:
                hint = "put it in quotes" if isinstance(problem.value, int | date) else None
                yield self.finding(
                    README, f"{problem.name}: {problem.message}", place=card.place(problem.key), hint=hint
                )

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import as_typed

        return as_typed(repository, finding)


# Codes that the table lacks and the Hub takes: 639-2's bibliographic ones (it says that it takes 639-2), and withdrawn
# ones of 639-1, as in the cards of Whisper.
OLDER_CODES: Final = frozenset(
    {
        *(
            "alb",
            "arm",
            "baq",
            "bur",
            "chi",
            "cze",
            "dut",
            "fre",
            "geo",
            "ger",
            "gre",
            "ice",
            "mac",
            "mao",
            "may",
            "per",
        ),
        *("rum", "slo", "tib", "wel", "in", "iw", "ji", "jw", "mo"),
    }
)

# What people write for the languages that cards are most often about.
LANGUAGES: Final = {
    "english": "en",
    "chinese": "zh",
    "japanese": "ja",
    "jp": "ja",
    "korean": "ko",
    "kr": "ko",
    "german": "de",
    "french": "fr",
    "spanish": "es",
    "portuguese": "pt",
    "russian": "ru",
    "arabic": "ar",
    "hindi": "hi",
    "italian": "it",
    "vietnamese": "vi",
    "turkish": "tr",
    "indonesian": "id",
    "dutch": "nl",
    "polish": "pl",
    "zh": "zh",
    "en": "en",
    "pt": "pt",
    "es": "es",
    "fr": "fr",
    "cn": "zh",
    "multi": "multilingual",
}

RULES: Final = (
    RefusedMetadata(),
    InvalidRepositoryId(),
    UnknownLanguage(),
    MalformedModelIndex(),
    ImplicitType(),
)


class _Problem(NamedTuple):
    """A value of a wrong type: the top-level key, `tags[1]` as the Hub spells it, what is wrong, the value."""

    key: str
    name: str
    message: str
    value: Any


def _problems(card: ModelCard | None) -> Iterator[_Problem]:
    if card is None:
        return
    from repokit.schema.card import Card
    from repokit.schema.document import problems

    for problem in problems(Card, dict(card.raw)):
        key, *rest = problem.pointer.split("/")[1:] or [""]
        name = key + "".join(f"[{step}]" if step.isdecimal() else f".{step}" for step in rest)
        yield _Problem(key, printable(name, 80), problem.message, card.raw.get(key))


def _no_id(value: Value) -> str:
    shown = printable(value.value, 80)
    if not value.value:
        return "is empty"
    if "://" in value.value:
        return f"{shown!r} is an address, not an id"
    return f"{shown!r} is a path, not an id" if is_path(value.value) else f"{shown!r} is not an id of the Hub"
