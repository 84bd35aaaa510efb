"""Every module says what it is for; every public name, and every public method of one, says what its signature does not.

Other docstrings are left to people: one that repeats the name is worse than none.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import repokit

PACKAGE = Path(__file__).resolve().parent.parent / "repokit"
NAMES = [name for name in repokit.__all__ if not name.startswith("__")]


def documented(name: str) -> Iterator[tuple[str, Any]]:
    """A public name, and the public methods and properties that its class itself defines."""
    value = getattr(repokit, name)
    yield name, value
    for member, content in vars(value).items() if inspect.isclass(value) else ():
        if not member.startswith("_") and isinstance(content, FunctionType | property):
            yield f"{name}.{member}", content


def test_every_module_has_a_docstring() -> None:
    modules = (path for path in sorted(PACKAGE.rglob("*.py")) if "data" not in path.parts)
    bare = [str(path.relative_to(PACKAGE)) for path in modules if not ast.get_docstring(ast.parse(path.read_bytes()))]
    assert bare == []


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    assert [place for place, value in documented(name) if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_a_sentence(name: str) -> None:
    summaries = {place: (inspect.getdoc(value) or "").partition("\n")[0] for place, value in documented(name)}
    assert [place for place, summary in summaries.items() if summary and not summary.endswith((".", "?"))] == []


PACKAGES = ("builder", "formats", "linter", "publisher", "repo", "schema", "verifier")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_modules(checkout: Path, package: str) -> None:
    """Whoever opens a package finds every module in the first lines."""
    folder = checkout / "repokit" / package
    listed = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert sorted(module for module in modules if not re.search(rf"\b{module}\b", listed)) == []
