"""Files: what a tool can write again is deleted, what is spelled otherwise than readers take it is respelled."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError
from repokit.linter.fix import DeleteFile, Fix, SetJson, WriteFile
from repokit.linter.fixes import json_text
from repokit.linter.rules.git_files import ATTRIBUTES
from repokit.linter.rules.names import is_ignored
from repokit.printable import count, printable, some
from repokit.repo.card import README
from repokit.schema.document import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel

    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository


def deleted(paths: Sequence[str]) -> Fix | None:
    """Without these files."""
    title = f"delete {some(tuple(printable(path, 80) for path in paths))}"
    return Fix(title, tuple(DeleteFile(path) for path in paths)) if paths else None


def without_named(_repository: Repository, finding: Finding) -> Fix | None:
    """Without every file that a finding names."""
    return deleted(finding.names)


# Compiled from the source beside it, and what a download that begins again does not need.
_COMPILED: Final = re.compile(r"(?:(?P<folder>.*/)?__pycache__/(?P<cached>[^/.]+)\.[^/]*|(?P<beside>.+))\.pyc")
_UNFINISHED: Final = (".incomplete", ".crdownload")


def without_junk(repository: Repository, finding: Finding) -> Fix | None:
    """Without compiled code whose source is there, and without half a download. Credentials are a person's."""
    compiled = _COMPILED.fullmatch(finding.path)
    if compiled is not None:
        source = compiled["beside"] or f"{compiled['folder'] or ''}{compiled['cached']}"
        return deleted([finding.path]) if repository.has(f"{source}.py") else None
    return deleted([finding.path]) if finding.path.endswith(_UNFINISHED) else None


def without_system_files(_repository: Repository, finding: Finding) -> Fix | None:
    """Without what a system writes again; a core dump is none of that."""
    paths = [path for path in finding.names if path.endswith((".DS_Store", "Thumbs.db"))]
    return deleted(paths) if len(paths) == len(finding.names) else None


def without_pickled_copies(repository: Repository, finding: Finding) -> Fix | None:
    """Without pickles that hold the tensors of the safetensors files, alike in name, dtype and shape."""
    copies = repository.pickles.copies()
    for pickled, safe in copies.items():
        ours = {one.name: (one.dtype, one.shape) for path in safe for one in repository.header(path).tensors}
        tables = [repository.pickles.table(path) for path in pickled]
        theirs = {name: (one.dtype, one.shape) for table in tables for name, one in table.tensors.items()}
        if ours != theirs:
            return None
    known = {path for pickled in copies for path in pickled}
    return deleted(finding.names) if known == set(finding.names) else None


def without_ignoring(repository: Repository, _finding: Finding) -> Fix | None:
    """.gitignore without the lines that leave out files of the repository."""
    path = ".gitignore"
    lines = (repository.content(path) or b"").decode(errors="surrogateescape").splitlines(keepends=True)
    kept = [line for line in lines if not _leaves_out(line, list(repository.files))]
    if len(kept) == len(lines):
        return None
    if not any(line.strip() and not line.startswith("#") for line in kept):
        return deleted([path])
    title = f"remove {count(len(lines) - len(kept), 'line')} from {path}"
    return Fix(title, (WriteFile(path, "".join(kept).encode(errors="surrogateescape")),))


def _leaves_out(line: str, paths: list[str]) -> bool:
    pattern = line.strip()
    if not pattern or line.startswith(("#", "!")):
        return False
    return any(is_ignored(path, [pattern]) for path in paths)


# ---------------------------------------------------------------- files of Git


def without_filter(repository: Repository, finding: Finding) -> Fix | None:
    """.gitattributes without the line, or where it says more, without the filter."""
    text = (repository.content(ATTRIBUTES) or b"").decode(errors="surrogateescape")
    lines = text.splitlines(keepends=True)
    number = int((finding.place or "line 0").rpartition(" ")[2])
    if not 0 < number <= len(lines):
        return None
    line = lines[number - 1]
    rest = re.sub(r"[ \t]+filter=(?!lfs(?:\s|$))\S+", "", line)
    lines[number - 1] = "" if len(rest.split()) < 2 else rest
    title = f"remove the filter from line {number}"
    return Fix(title, (WriteFile(ATTRIBUTES, "".join(lines).encode(errors="surrogateescape")),))


def with_tracking(repository: Repository, finding: Finding) -> Fix | None:
    """.gitattributes with a line for each ending that no line speaks of."""
    content = repository.content(ATTRIBUTES) or b""
    endings = list(dict.fromkeys(path.rpartition(".")[2] for path in finding.names))
    if re.search(rb"(?:^|\s)[-!]filter(?:\s|$)", content):
        return None  # somebody took files back
    break_ = b"\r\n" if b"\r\n" in content else b"\n"
    before = content + (break_ if content and not content.endswith(b"\n") else b"")
    added = b"".join(f"*.{ending} filter=lfs diff=lfs merge=lfs -text".encode() + break_ for ending in endings)
    return Fix(f"track {some(tuple(f'*.{ending}' for ending in endings))}", (WriteFile(ATTRIBUTES, before + added),))


# ---------------------------------------------------------------- text that does not parse


def readable(repository: Repository, finding: Finding) -> Fix | None:
    """A text file as its readers take it, where there is one way to read it."""
    path = finding.path
    content = repository.content(path) if path.endswith((".json", ".jinja")) or path == README else None
    if content is None:
        return None
    if path == README:
        from repokit.linter.fixes.card import readable as card

        found = card(content)
    elif path.endswith(".json"):
        found = json_text.readable(content, path)
    else:
        found = json_text.utf8(content)
    if found is None or found[0] == content:
        return None
    return Fix(found[1], (WriteFile(path, found[0]),))


def with_finite_numbers(repository: Repository, finding: Finding) -> Fix | None:
    """Infinity as transformers 5 writes it, in the files that transformers reads."""
    from repokit.formats.strict_json import loads

    content = repository.content(finding.path)
    if content is None or finding.path not in {"config.json", "generation_config.json"}:
        return None
    new = json_text.finite(content)
    try:
        loads(new, finding.path)
    except InputError:
        return None
    return Fix('write Infinity as {"__float__": "Infinity"}', (WriteFile(finding.path, new),))


# ---------------------------------------------------------------- types


def with_types(repository: Repository, finding: Finding) -> Fix | None:
    """Numbers and switches that stand there as text, and single values where a list is due: the same, as its type."""
    from repokit.linter.rules.files import document_in, schemas
    from repokit.schema.document import problems

    model = next((model for path, model in schemas(repository) if path == finding.path), None)
    if model is None or not finding.path.endswith(".json") or not finding.place:
        return None
    if repository.files[finding.path].size > _LARGEST:
        return None
    places = finding.names or (finding.place,)
    document = document_in(repository, finding.path)
    edits: list[SetJson] = []
    for place in places:
        edit = _converted(model, document, finding.path, place)
        if edit is None:
            return None
        edits.append(edit)
        document = _with(document, place, edit.value)
    before = {problem.pointer for problem in problems(model, document_in(repository, finding.path))}
    if {problem.pointer for problem in problems(model, document)} - before:
        return None
    told = ", ".join(f"{steps(edit.pointer)[-1]} as {printable(edit.value, 40)}" for edit in edits[:3])
    return Fix(f"write {told}" + (", and so on" if len(edits) > 3 else ""), tuple(edits))


def _converted(model: type[BaseModel], document: object, path: str, place: str) -> SetJson | None:
    """The edit after which nothing is wrong at a place any more."""
    from repokit.schema.document import problems

    for value in _readings(_at(document, place)):
        after = problems(model, _with(document, place, value))
        if not any(problem.pointer == place or problem.pointer.startswith(f"{place}/") for problem in after):
            return SetJson(path, place, value)
    return None


_LARGEST: Final = 1024 * 1024  # bytes; each value is tried on a copy of the document, and configs are small
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}")


def _readings(value: object) -> Iterator[Any]:
    """What a value may be as another type; never with another meaning."""
    match value:
        case bool():
            return
        case 0 | 1:
            yield bool(value)
        case str(text) if _INTEGER.fullmatch(text):
            yield int(text)
        case str(text) if _FLOAT.fullmatch(text):
            yield float(text)
        case "true" | "True":
            yield True
        case "false" | "False":
            yield False
        case float() if value.is_integer() and abs(value) < 2**53:
            yield int(value)
    if type(value) is int and abs(value) < 2**53:
        yield float(value)
    if isinstance(value, str) and value:
        yield [value]


def _at(document: Any, place: str) -> object:  # noqa: ANN401 - any JSON document
    for step in steps(place):
        if isinstance(document, list):
            document = document[int(step)]
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def _with(document: Any, place: str, value: object) -> Any:  # noqa: ANN401 - any JSON document
    changed = copy.deepcopy(document)
    *parents, last = steps(place)
    inner = changed
    for step in parents:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    if isinstance(inner, list):
        inner[int(last)] = value
    else:
        inner[last] = value
    return changed
