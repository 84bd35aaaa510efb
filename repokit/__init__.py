"""repokit assembles, checks and publishes model repositories.

    import repokit

    plan = repokit.plan(repokit.read_recipe("repokit.yaml"))
    built = repokit.build(plan)
    report = repokit.lint(built.output).report

Names are loaded when they are first used: `import repokit` itself loads nothing but its version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from repokit.version import __version__

if TYPE_CHECKING:
    from repokit.api import (
        Fixes,
        Gate,
        Linted,
        Mended,
        PushRequest,
        build,
        check_load,
        check_plan,
        init,
        inspect,
        lint,
        open_repository,
        plan,
        push,
        push_request,
        read_plan,
        read_recipe,
        verify,
    )
    from repokit.builder.build import Built
    from repokit.builder.draft import Draft
    from repokit.builder.plan import Plan
    from repokit.errors import RepokitError
    from repokit.linter.finding import Coverage, Finding, Report, Severity
    from repokit.linter.rule import Rule
    from repokit.linter.selection import Ignore, Selection
    from repokit.publisher.push import PushResult
    from repokit.repo.inspection import Inspection
    from repokit.repo.repository import Repository
    from repokit.repo.source import Source
    from repokit.schema.recipe import Recipe
    from repokit.verifier.load_report import LoadReport
    from repokit.verifier.manifest import FilesReport

__all__ = [
    "Built",
    "Coverage",
    "Draft",
    "FilesReport",
    "Finding",
    "Fixes",
    "Gate",
    "Ignore",
    "Inspection",
    "Linted",
    "LoadReport",
    "Mended",
    "Plan",
    "PushRequest",
    "PushResult",
    "Recipe",
    "RepokitError",
    "Report",
    "Repository",
    "Rule",
    "Selection",
    "Severity",
    "Source",
    "__version__",
    "build",
    "check_load",
    "check_plan",
    "init",
    "inspect",
    "lint",
    "open_repository",
    "plan",
    "push",
    "push_request",
    "read_plan",
    "read_recipe",
    "verify",
]

_HOMES = {
    "Built": "repokit.builder.build",
    "Coverage": "repokit.linter.finding",
    "Draft": "repokit.builder.draft",
    "FilesReport": "repokit.verifier.manifest",
    "Finding": "repokit.linter.finding",
    "Ignore": "repokit.linter.selection",
    "Inspection": "repokit.repo.inspection",
    "LoadReport": "repokit.verifier.load_report",
    "Plan": "repokit.builder.plan",
    "PushResult": "repokit.publisher.push",
    "Recipe": "repokit.schema.recipe",
    "Report": "repokit.linter.finding",
    "Repository": "repokit.repo.repository",
    "RepokitError": "repokit.errors",
    "Rule": "repokit.linter.rule",
    "Selection": "repokit.linter.selection",
    "Severity": "repokit.linter.finding",
    "Source": "repokit.repo.source",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """Loads a public name when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'repokit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "repokit.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
