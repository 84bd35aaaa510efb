"""What a load check found: its steps, and the keys on which the model and the files do not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict

from repokit.printable import printable, some
from repokit.repo.tensor_names import group_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Outcome = Literal["passed", "failed", "unchecked", "skipped"]

_SHOWN: Final = 6  # patterns of names, of each kind: a wrapper's prefix on every tensor has a dozen


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Closed):
    """One step of a load.

    Attributes:
        name: `config`, `tokenizer`, `processor`, `weights`, `generation` or `forward`; `child` for the whole.
        outcome: `unchecked` is a step that should have been made and could not be on this machine; `skipped` one
            that the repository has nothing for.
        what: What was loaded, or what went wrong. Unescaped: it may quote the repository.
    """

    name: str
    outcome: Outcome
    what: str


class Keys(_Closed):
    """Names of weights that are not as they should be.

    Attributes:
        missing: The model has them and the files do not: they were made up. Tied ones are not among them.
        unexpected: The files have them and the model has no use for them.
        mismatched: Name, shape in the files, shape in the model.
        not_finite: They hold NaN or an infinity.
        unfilled: They were never filled.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    not_finite: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.missing, self.unexpected, self.mismatched, self.not_finite, self.unfilled))

    def lines(self) -> Iterator[str]:
        """`missing model.layers.*.mlp.up_proj.weight (2)`: a line for every pattern of names, a few of each kind."""
        shapes = {name: f": {list(ours)} in the files, {list(theirs)} here" for name, ours, theirs in self.mismatched}
        for kind, names in (
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("wrong shape", tuple(shapes)),
            ("not finite", self.not_finite),
            ("unfilled", self.unfilled),
        ):
            groups = group_names(names)
            for members in list(groups.values())[:_SHOWN]:
                yield f"{kind:<11} {_spelled(members)}{shapes.get(members[0], '')}"
            if len(groups) > _SHOWN:
                yield f"{kind:<11} and {len(groups) - _SHOWN:,} patterns more"

    @property
    def prefix(self) -> str | None:
        """What stands before most names in the files and in no name of the model: `_orig_mod.`."""
        unexpected = set(self.unexpected)
        for name in self.missing[:1]:
            for found in self.unexpected:
                prefix = found.removesuffix(name)
                if prefix.endswith(".") and sum(prefix + name in unexpected for name in self.missing) > 1:
                    return prefix
        return None

    def all(self) -> tuple[str, ...]:
        """Every name, each once, in the order of the kinds."""
        mismatched = tuple(name for name, *_ in self.mismatched)
        return tuple(dict.fromkeys((*self.missing, *self.unexpected, *mismatched, *self.not_finite, *self.unfilled)))


def _spelled(names: Sequence[str]) -> str:
    if len(names) == 1:
        return printable(names[0])
    return f"{printable(next(iter(group_names(names))))} ({len(names):,})"


class LoadReport(_Closed):
    """What became of one repository.

    Attributes:
        directory: As the user calls it.
        steps: In the order in which they were made.
        keys: Empty where the weights are whole.
        seconds: Without the import of the libraries.
        libraries: By name, the versions that loaded it.
    """

    directory: str
    steps: tuple[Step, ...]
    keys: Keys = Keys()
    seconds: float = 0.0
    libraries: dict[str, str] = {}

    @property
    def outcome(self) -> Literal["passed", "failed", "unchecked"]:
        """Of all the steps; what is known to fail weighs more than what could not be looked at."""
        outcomes = {step.outcome for step in self.steps}
        if "failed" in outcomes:
            return "failed"
        return "unchecked" if "unchecked" in outcomes or "passed" not in outcomes else "passed"

    @property
    def exit_code(self) -> int:
        """0 it loads, 1 it does not, 2 it could not be checked."""
        return {"passed": 0, "failed": 1, "unchecked": 2}[self.outcome]

    def of(self, outcome: Outcome) -> tuple[Step, ...]:
        """The steps that ended so."""
        return tuple(step for step in self.steps if step.outcome == outcome)

    @property
    def trouble(self) -> str | None:
        """What failed first, else what could not be checked, with the keys named; None if all is well."""
        steps = (*self.of("failed"), *self.of("unchecked"))
        if not steps:
            return None if self.outcome == "passed" else "nothing was loaded"
        named = f" ({some(self.keys.all())})" if self.keys else ""
        if prefix := self.keys.prefix:
            named = f": the names in the files begin with {printable(prefix)}"
        return f"{steps[0].name}: {printable(steps[0].what, 400)}{named}"
