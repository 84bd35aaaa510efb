"""What a rule is.

One class, readable from top to bottom: what is wrong, why it bites, identity, examples, logic. The docstring's first
line is the summary, its second paragraph the reason; both reach the user. The name follows from the class name:
`MissingShard` is `missing-shard`, which reads well after "ignore".
"""

from __future__ import annotations

import inspect
import re
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from repokit.linter.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repokit.linter.examples import Example
    from repokit.linter.fix import Fix, Safety
    from repokit.repo.repository import Repository


class Reads(IntEnum):
    """How much of a repository a rule reads. A test counts it."""

    LISTING = 1  # names and sizes of files
    TEXT = 2  # whole small files, and the first bytes of any
    HEADERS = 3  # headers of weight files
    TENSORS = 4  # tensor values: `--deep` only


class Rule:
    """Base of every rule."""

    code: ClassVar[str]
    severity: ClassVar[Severity]
    since: ClassVar[str]
    reads: ClassVar[Reads]
    bad: ClassVar[tuple[Example, ...]]
    good: ClassVar[tuple[Example, ...]] = ()
    fixes: ClassVar[Safety | None] = None  # None: only a person can
    preview: ClassVar[bool] = False  # not yet sure of itself: runs only when selected by its code

    def check(self, repository: Repository) -> Iterable[Finding]:
        """Yields what is wrong. Never catches MalformedFile: the engine then lists the rule as not checked."""
        raise NotImplementedError

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:  # noqa: ARG002 - for those that can
        """What takes this finding away; None where this one is not to be repaired without an invented fact."""
        return None

    @property
    def name(self) -> str:
        """The class name as words: `missing-shard`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    @property
    def summary(self) -> str:
        """The first line of the docstring, which says what is wrong."""
        return self._documentation()[0]

    @property
    def why(self) -> str:
        """The second paragraph of the docstring, which says who is bitten, on one line."""
        return self._documentation()[1]

    def _documentation(self) -> tuple[str, str]:
        paragraphs = inspect.cleandoc(type(self).__doc__ or "").split("\n\n")
        lines = [" ".join(paragraph.split()) for paragraph in (*paragraphs, "", "")]
        return lines[0], lines[1]

    def finding(
        self,
        path: str,
        message: str,
        *,
        place: str | None = None,
        names: Sequence[str] = (),
        hint: str | None = None,
        why: str | None = None,
    ) -> Finding:
        """A finding of this rule; `why` only where this case bites differently from what the docstring says."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=self.severity,
            path=path,
            message=message,
            place=place,
            why=why or self.why,
            names=tuple(names),
            hint=hint,
        )
