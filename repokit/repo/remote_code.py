"""Code that a repository brings: which files `auto_map` needs, found by parsing, never by importing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.repository import Repository

# Which files may carry an `auto_map` (transformers dynamic_module_utils.py).
_CARRIERS: Final = (
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)


@dataclass(frozen=True)
class RemoteCode:
    """What `auto_map` leads to.

    Attributes:
        files: Python files in the repository that loading imports, relative imports followed.
        missing: File to who asks for it, for files that are not there.
        foreign: References into other repositories: `org/base--modeling.Model`.
        unreadable: File to reason, for files that are not Python or import what cannot be followed.
    """

    files: tuple[str, ...]
    missing: Mapping[str, str]
    foreign: tuple[str, ...]
    unreadable: Mapping[str, str]


def remote_code(repository: Repository) -> RemoteCode:
    """Follows every auto_map of a repository.

    Raises:
        MalformedFile: A file that may carry an auto_map does not parse.
    """
    files: set[str] = set()
    missing: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    foreign: set[str] = set()
    pending: list[tuple[str, str]] = []
    for reference, carrier in references(repository):
        if "--" in reference:
            foreign.add(reference)
        else:
            pending.append((reference.rpartition(".")[0] + ".py", carrier))
    while pending:
        path, wanted_by = pending.pop()
        if path in files:
            continue
        if not repository.has(path):
            missing.setdefault(path, wanted_by)
            continue
        files.add(path)
        try:
            pending.extend((module, path) for module in _relative_imports(repository, path))
        except ValueError as error:
            unreadable[path] = str(error)
    ordered_missing = dict(sorted(missing.items()))
    return RemoteCode(tuple(sorted(files)), ordered_missing, tuple(sorted(foreign)), dict(sorted(unreadable.items())))


def references(repository: Repository) -> Iterator[tuple[str, str]]:
    """Every class that an auto_map names (`modeling_x.XModel`), with the file that names it."""
    for carrier in _CARRIERS:
        document = repository.document(carrier)
        mapped = None if document is None else document.mapping("auto_map")
        for value in () if mapped is None else mapped.raw.values():
            for reference in value if isinstance(value, list) else [value]:
                if isinstance(reference, str) and "." in reference:
                    yield reference, carrier


def _relative_imports(repository: Repository, path: str) -> Iterator[str]:
    """Files that `from .x import y` and `from . import x` in a module stand for.

    Raises:
        ValueError: The file is not Python, or an import leaves the folder, which transformers does not follow.
    """
    content = repository.content(path) or b""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"is not Python: {printable(error)}") from None
    folder = path.rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        if node.level > 1:
            raise ValueError(f"line {node.lineno} imports from outside of the repository")
        if node.module is not None and "." in node.module:
            # dynamic_module_utils.py of transformers 5.24 looks for `utils.pos.py`; measured
            raise ValueError(f"line {node.lineno} imports out of a folder, which transformers does not follow")
        names = [node.module] if node.module else [alias.name for alias in node.names]
        for name in names:
            yield prefix + name.replace(".", "/") + ".py"
