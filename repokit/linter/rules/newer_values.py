"""CFG: values that a later version of a library may know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import TORCH_NAMES
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.config import OTHER_DTYPES, is_torch_dtype
from repokit.printable import printable
from repokit.repo.config import CONFIG

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class NewerDtype(Rule):
    """The dtype in config.json is not one that this version knows.

    A later torch may have it; the one of today stops with AttributeError before a weight is read.
    """

    code = "CFG350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a type of a later torch", {CONFIG: {"dtype": "float6_e3m2fn"}}),)
    good = (Example("a type that torch has"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            for key in ("dtype", "torch_dtype"):
                name = level.string(key)
                if name is not None and is_torch_dtype(name) and name not in {*TORCH_NAMES, *OTHER_DTYPES}:
                    message = f"is {printable(name, 40)!r}, not known to this version"
                    yield self.finding(CONFIG, message, place=level.at(key))


RULES: Final = (NewerDtype(),)
