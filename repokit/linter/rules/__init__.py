"""The table of rules, in the order in which they run: cheap ones first.

Every family is a module of the same name as the artifact it is about. A rule that is not in this table does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.linter.rules import (
    adapter,
    config,
    files,
    generation,
    index,
    pickles,
    remote_code,
    security,
    weights,
    weights_against_config,
)

if TYPE_CHECKING:
    from repokit.linter.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *files.RULES,
    *pickles.RULES,
    *config.RULES,
    *remote_code.RULES,
    *generation.RULES,
    *weights.RULES,
    *weights_against_config.RULES,
    *index.RULES,
    *adapter.RULES,
    *security.RULES,
)
