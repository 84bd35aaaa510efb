"""init, build, lint, push and verify for Python: composes the packages below. The command line calls this.

reading    a target becomes a repository
inspecting what a repository is
linting    lint, and the gate of the others; fixing: what it changes in a directory
skeletons  the tensors of a class that the data does not cover, from the installed transformers
lint_settings  what files say of it; baselines: findings that are known
recipes    the recipe that is meant; identities: what it says of the model in words
building   init, plan, build, and a plan in tasks
pushing    push, demo
verifying  verify, the load check
"""

from __future__ import annotations

from repokit.api.baselines import new_baseline, read_baseline, without_known
from repokit.api.building import build, check_plan, finalize, init, plan, read_plan, write_task
from repokit.api.fixing import Fixes, Mended
from repokit.api.inspecting import Inspected, inspect, inspected
from repokit.api.lint_settings import LintSettings, selection_of, settings_for
from repokit.api.linting import Gate, Linted, lint
from repokit.api.pushing import PushRequest, demo, push, push_request
from repokit.api.reading import open_repository
from repokit.api.recipes import PYPROJECT, RECIPE, Wanted, chosen_recipes, read_recipe, read_recipes
from repokit.api.skeletons import live_skeleton
from repokit.api.verifying import LoadGate, check_load, verify
from repokit.errors import InternalError, Stopped
from repokit.linter.finding import Severity
from repokit.linter.selection import Ignore, Selection

__all__ = [
    "PYPROJECT",
    "RECIPE",
    "Fixes",
    "Gate",
    "Ignore",
    "Inspected",
    "InternalError",
    "LintSettings",
    "Linted",
    "LoadGate",
    "Mended",
    "PushRequest",
    "Selection",
    "Severity",
    "Stopped",
    "Wanted",
    "build",
    "check_load",
    "check_plan",
    "chosen_recipes",
    "demo",
    "finalize",
    "init",
    "inspect",
    "inspected",
    "lint",
    "live_skeleton",
    "new_baseline",
    "open_repository",
    "plan",
    "push",
    "push_request",
    "read_baseline",
    "read_plan",
    "read_recipe",
    "read_recipes",
    "selection_of",
    "settings_for",
    "verify",
    "without_known",
    "write_task",
]
