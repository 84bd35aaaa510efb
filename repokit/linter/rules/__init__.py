"""The table of rules, in the order in which they run: cheap ones first.

Every family is a module of the same name as the artifact it is about. A rule that is not in this table does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.linter.rules import files, index, weights, weights_against_config

if TYPE_CHECKING:
    from repokit.linter.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *files.RULES,
    *weights.RULES,
    *weights_against_config.RULES,
    *index.RULES,
)
