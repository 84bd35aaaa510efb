"""What the verdicts come to: scores, and survivors by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verdicts import Verdict

# What is done to a value that leaves a value of the same sort.
OTHER_VALUES = frozenset(
    {
        *("number + 1", "number - 1", "number x 2", "zero", "minus one", "flip", "another known word", "alter text"),
        *("shorter list", "longer list", "text altered", "text removed", "statement removed", "expression removed"),
        *("vocabulary entry swapped", "vocabulary entry rescored", "vocabulary entry renamed", "merges swapped"),
        *("merge removed", "cast tensor", "cast all to BF16", "cast all to F16", "cast all to F32"),
    }
)


def is_other_model(verdict: Verdict) -> bool:
    """Whether a mutant is a repository that someone may have published on purpose.

    A value was replaced by one of the same sort, every library loads it, nothing raises that did not before, and no
    tensor is missing, unexpected or mismatched: a norm with another epsilon, a template with another wording. Whatever
    was deleted, renamed, set to null or given another type is never one.
    """
    operation = verdict.mutant.operation.removeprefix("first item: ").removeprefix("added token: other ")
    said = " ".join(verdict.seen)
    loads = not any(word in said for word in ("error", "raises", "missing", "unexpected", "mismatched", "gone"))
    return loads and (operation in OTHER_VALUES or verdict.mutant.operation.startswith("added token: other "))


@dataclass(frozen=True)
class Score:
    """Of some mutants.

    Attributes:
        counted: Mutants that users can tell from the original.
        flagged: Those of them with an error or warning.
        others: Survivors that are another legitimate model.
    """

    counted: int
    flagged: int
    others: int

    @property
    def plain(self) -> float:
        """Per cent of all that count."""
        return 100 * self.flagged / max(self.counted, 1)

    @property
    def of_defects(self) -> float:
        """Per cent, without the survivors that are another legitimate model."""
        return 100 * self.flagged / max(self.counted - self.others, 1)

    def __str__(self) -> str:
        return (
            f"{self.counted:,} mutants count, {self.flagged:,} flagged: {self.plain:.1f} %; "
            f"without {self.others:,} other legitimate models {self.of_defects:.1f} %"
        )


def score(verdicts: Sequence[Verdict]) -> Score:
    """The two scores of these mutants."""
    survivors = [verdict for verdict in verdicts if verdict.finding is None]
    return Score(len(verdicts), len(verdicts) - len(survivors), sum(map(is_other_model, survivors)))


def by_artifact(verdicts: Sequence[Verdict]) -> dict[str, Score]:
    """Kind of file to the scores of its mutants."""
    names = sorted({verdict.mutant.artifact for verdict in verdicts})
    return {name: score([verdict for verdict in verdicts if verdict.mutant.artifact == name]) for name in names}


def survivors(verdicts: Iterable[Verdict]) -> Counter[tuple[str, str, str, str]]:
    """How many survived: by class, file, key and operation."""
    return Counter(
        (
            "other model" if is_other_model(verdict) else "missed",
            verdict.mutant.artifact,
            shown_place(verdict.mutant.place),
            verdict.mutant.operation,
        )
        for verdict in verdicts
        if verdict.finding is None
    )


def shown_place(place: str) -> str:
    """The last part of a pointer or of a tensor's name, which tells the kind."""
    parts = [part for part in place.replace(".", "/").split("/") if part and not part.isdigit()]
    return parts[-1] if parts else ""


def report(verdicts: Sequence[Verdict]) -> str:
    """Scores and survivors as text."""
    lines = [str(score(verdicts)), ""]
    lines += [f"{name}: {found}" for name, found in by_artifact(verdicts).items()]
    for kind, number in sorted(survivors(verdicts).items(), key=lambda item: (item[0][:2], -item[1])):
        lines.append(f"{number:5} {': '.join(part for part in kind if part)}")
    return "\n".join(lines)
