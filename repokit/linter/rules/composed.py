"""CFG: what config.json says twice: at its top and in the config of the text model, by number and by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.weights_against_config import CLASSES, CLASSIFIER, CLASSIFIES, TWO_LABELS, classifier
from repokit.printable import count, printable
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

TIE: Final = "tie_word_embeddings"
TIED_INSIDE: Final = {TIE: DELETE, "text_config": {"vocab_size": 32, TIE: True}}


class ConflictingTieFlags(Rule):
    """config.json and its text model do not agree whether the output head is the embedding.

    Some versions of transformers ask the one, some the other: where there is no head in the file, the model gets a
    random one, and prints a report instead of an error.
    """

    code = "CFG110"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("two answers", {CONFIG: {TIE: False, "text_config": {TIE: True}}}),
        Example("only inside, and no head", {CONFIG: TIED_INSIDE, SINGLE: edited(drop=("lm_head.weight",))}),
    )
    good = (
        Example("one answer twice", {CONFIG: {TIE: False, "text_config": {TIE: False}}}),
        Example("at the top alone", {CONFIG: {"text_config": {"vocab_size": 32}}}, "tied"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, weights = repository.config, repository.weights
        if config is None or config.text is config or weights.of_adapter:
            return
        outside, inside = config.flag(TIE), config.text.flag(TIE)
        if outside is not None and inside is not None and outside != inside:
            message = f"is {printable(inside).lower()}, and {printable(outside).lower()} at the top of {CONFIG}"
            yield self.finding(CONFIG, message, place=config.text.at(TIE), hint="write what the weights are, at both")
        elif outside is None and inside and weights.embedding is not None and not weights.heads:
            message = f"is true here alone, and the weights have no head: the top of {CONFIG} says nothing"
            yield self.finding(CONFIG, message, place=config.text.at(TIE), hint=f'"{TIE}": true at the top as well')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_one_tie_flag

        return with_one_tie_flag(repository, finding)


class UnnamedLabels(Rule):
    """The labels of a classifier are LABEL_0, LABEL_1 and so on.

    Whoever uses the model gets a number for an answer, and has to guess what it means.
    """

    code = "CFG206"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "as transformers fills them in",
            {**CLASSIFIER, CONFIG: {**CLASSES, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}},
        ),
    )
    good = (
        Example("names", {**CLASSIFIER, CONFIG: TWO_LABELS}),
        Example(
            "the one label of a reward model, which is a score",
            {**CLASSIFIER, SINGLE: classifier(1), CONFIG: {**CLASSES, "id2label": {"0": "LABEL_0"}}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        names = labels(repository)
        called = [] if names is None else [str(name) for name in names.raw.values()]
        if names is not None and len(called) > 1 and all(map(PLACEHOLDER.fullmatch, called)):
            message = f"has {count(len(called), 'label')} without a name: {printable(called[0])}"
            yield self.finding(CONFIG, message, place=names.pointer, hint="write id2label and label2id")


class MismatchedLabels(Rule):
    """label2id is not the inverse of id2label.

    Training that goes by the one and answers that go by the other give classes each other's names.
    """

    code = "CFG207"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("one table was edited", {**CLASSIFIER, CONFIG: {**TWO_LABELS, "label2id": {"no": 1, "yes": 0}}}),)
    good = (
        Example("both tables", {**CLASSIFIER, CONFIG: TWO_LABELS}),
        Example("one table", {**CLASSIFIER, CONFIG: {**CLASSES, "id2label": {"0": "no", "1": "yes"}}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        names, config = labels(repository), repository.config
        ids = None if config is None else config.mapping("label2id")
        if names is None or ids is None:
            return
        if wrong := [label for label in ids.raw if names.raw.get(str(ids.raw[label]), label) != label]:
            first = wrong[0]
            message = f"gives {printable(first, 40)!r} the id {printable(ids.raw[first], 20)}, which id2label calls "
            message += repr(printable(names.raw[str(ids.raw[first])], 40))
            yield self.finding(CONFIG, message, place=ids.at(first), names=wrong)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_inverse_labels

        return with_inverse_labels(repository, finding)


RULES: Final = (ConflictingTieFlags(), UnnamedLabels(), MismatchedLabels())

PLACEHOLDER: Final = re.compile(r"LABEL_\d+")  # transformers 5.24 configuration_utils.py `num_labels`


def labels(repository: Repository) -> Document | None:
    """`id2label` of a classifier; None for other models, in which it is left over from a default."""
    config = repository.config
    if config is None or not any(CLASSIFIES(name) for name in config.architectures):
        return None
    return config.mapping("id2label")
