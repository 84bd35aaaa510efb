"""Every public module, class and function says what its name and signature do not.

Methods and properties of rules are left to their base class, whose contract they fulfil; the docstring of a rule class
is judged by tests/linter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "repokit"

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[Path]:
    return (path for path in sorted(PACKAGE.rglob("*.py")) if "data" not in path.parts)


def public(path: Path) -> Iterator[tuple[str, Definition]]:
    """The public classes and functions at the top of a module."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield f"{path.relative_to(PACKAGE)}: {node.name}", node


def test_every_module_has_a_docstring() -> None:
    bare = [str(path.relative_to(PACKAGE)) for path in modules() if not ast.get_docstring(ast.parse(path.read_bytes()))]
    assert bare == []


def test_every_public_name_has_a_docstring() -> None:
    bare = [name for path in modules() for name, node in public(path) if not ast.get_docstring(node)]
    assert bare == []


def test_every_summary_is_a_sentence() -> None:
    summaries = {
        name: (ast.get_docstring(node) or "").partition("\n")[0] for path in modules() for name, node in public(path)
    }
    assert [name for name, summary in summaries.items() if summary and not summary.endswith((".", "?", ":"))] == []
