"""WGT: tensors that the config ties, and of which the weights hold both; their values compared, with --deep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited
from repokit.linter.examples_values import copied, one_after_another
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.composed import TIE
from repokit.linter.rules.expected_tensors import judgement
from repokit.linter.rules.weights_against_config import EMBEDDING, HEAD
from repokit.printable import count, printable, size
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.repository import Repository

BOTH: Final = edited(add={HEAD: ("BF16", (32, 16))})
_MATRIX: Final = 2  # dimensions; biases that are tied too are too small to speak of


class DifferingTiedCopy(Rule):
    """config.json ties two matrices, and the weights hold both, with different values.

    transformers 5 takes the two as they are; loaders that tie drop one of them: the same repository is two models. It
    is what a merge of an adapter leaves that trained the embedding or the head alone.
    """

    code = "WGT122"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    fixes = Safety.UNSAFE
    bad = (
        Example("a head that was trained apart", {SINGLE: BOTH}, "tied"),
        Example("the flag alone is wrong", {CONFIG: {TIE: True}}),
    )
    good = (
        Example("one matrix for both", base="tied"),
        Example("not tied, and not equal"),
        Example("a head of another dtype", {SINGLE: edited(add={HEAD: ("F32", (32, 16))})}, "tied"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        differing = [pair for pair, equal in _compared(repository).items() if not equal]
        if differing:
            copy, source = differing[0]
            message = f"is not {printable(source, 120)}, to which config.json ties it"
            hint = f'set "{TIE}": false if they were trained apart, else delete the copy that is old'
            path = repository.values.places[copy].path
            names = [copy for copy, _ in differing]
            yield self.finding(path, f"{printable(copy, 120)} {message}", names=names, place=copy, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import untied

        return untied(repository, finding)


class EqualTiedCopy(Rule):
    """The weights hold a second copy of a matrix that config.json ties.

    Everyone downloads it twice, and whoever trains on from here may untie the two without noticing.
    """

    code = "WGT221"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TENSORS
    fixes = Safety.SAFE
    bad = (
        Example("the head of a tied model", {SINGLE: one_after_another(BOTH, copied(EMBEDDING, HEAD))}, "tied"),
    )  # fmt: skip
    good = (
        Example("one matrix for both", base="tied"),
        Example("equal by chance, not tied", {SINGLE: copied(EMBEDDING, HEAD)}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        equal = [copy for (copy, _), equal in _compared(repository).items() if equal]
        if equal:
            places = repository.values.places
            wasted = size(sum(places[name].size for name in equal))
            message = f"holds {count(len(equal), 'tied matrix', 'tied matrices')} a second time: {wasted}"
            path = places[equal[0]].path
            yield self.finding(path, message, names=equal, place=equal[0], hint="save the weights again without it")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import without_tied_copies

        return without_tied_copies(repository, finding)


def tied_pairs(repository: Repository) -> Mapping[str, str]:
    """Every copy of a tied matrix to the matrix that it copies, where the weights hold both in one dtype and shape.

    Raises:
        MissingInput: The weights are not all there.
        MalformedFile: A file of them, or config.json, does not parse.
    """
    places = repository.values.places
    found = {}
    for copy, source in _declared(repository).items():
        one, other = places.get(copy), places.get(source)
        if one is None or other is None or len(one.shape) != _MATRIX:
            continue
        if (one.dtype, one.shape) == (other.dtype, other.shape):
            found[copy] = source
    return found


def _declared(repository: Repository) -> Mapping[str, str]:
    """By the architecture; where it is not known, by the flag and the names."""
    judged = judgement(repository)
    if judged is not None:
        return judged.rest.duplicates
    config, weights = repository.config, repository.weights
    if config is None or not config.tie_word_embeddings or weights.of_adapter or config.composed:
        return {}
    if "auto_map" in config:  # code of the repository need not tie what the flag says
        return {}
    if len(weights.heads) != 1 or len(weights.embeddings) != 1:
        return {}
    return {weights.heads[0].name: weights.embeddings[0].name}


def _compared(repository: Repository) -> Mapping[tuple[str, str], bool]:
    """Every copy with its source, and whether they are equal."""
    return repository.remember(("tied values", ""), lambda: _compare(repository))


def _compare(repository: Repository) -> Mapping[tuple[str, str], bool]:
    from repokit.repo.weight_values import differing

    source, places = repository.source, repository.values.places
    pairs = tied_pairs(repository)
    tensors = [((source, places[copy]), (source, places[other])) for copy, other in pairs.items()]
    answers = differing(tensors, jobs=repository.jobs, progress=repository.progress)
    return {pair: not differs for pair, differs in zip(pairs.items(), answers, strict=True)}


RULES: Final = (DifferingTiedCopy(), EqualTiedCopy())
