"""Handlers: trees, histories and the bytes of files."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlencode

from repokit.rehearsal import xet
from repokit.rehearsal.fields import texts
from repokit.rehearsal.ranges import wanted_range
from repokit.rehearsal.refusals import EntryNotFound, HubError
from repokit.rehearsal.wire import Answer, Slice, answer_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from repokit.rehearsal.call import Call
    from repokit.rehearsal.commits import Commit, File

# What the Hub sends in one answer.
_PAGE = 1000
_EXPANDED_PAGE = 50


def list_tree(call: Call) -> Answer:
    oid, commit = call.head()
    folder = call.values["below"].strip("/")
    entries = _entries(commit, commit.tree_ids())
    if folder and not any(entry["path"] == folder and entry["type"] == "directory" for entry in entries):
        raise EntryNotFound(f"{folder} does not exist on {call.revision!r}", X_Repo_Commit=oid)
    start = f"{folder}/" if folder else ""
    recursive = call.request.option("recursive") == "true"
    inside = [entry for entry in entries if _is_below(str(entry["path"]), start, recursive=recursive)]
    inside.sort(key=lambda entry: str(entry["path"]))
    expanded = call.request.option("expand") == "true"
    return _page(call, oid, inside, expanded=expanded)


def _is_below(path: str, start: str, *, recursive: bool) -> bool:
    return path.startswith(start) and (recursive or "/" not in path[len(start) :])


def _page(call: Call, oid: str, entries: Sequence[dict[str, object]], *, expanded: bool) -> Answer:
    size = _EXPANDED_PAGE if expanded else _PAGE
    offset = _offset(call.request.option("cursor"))
    shown = list(entries[offset : offset + size])
    if expanded:
        _add_last_commits(call, oid, shown)
    more = offset + size < len(entries)
    headers = {"X-Repo-Commit": oid, **(_next_link(call, cursor=offset + size) if more else {})}
    return answer_json(shown, headers=headers)


def _offset(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HubError("Invalid cursor")
    return int(text or 0)


def _next_link(call: Call, **position: int) -> dict[str, str]:
    query = {name: values[0] for name, values in call.request.query.items()}
    following = urlencode({**query, **position})
    return {"Link": f'<{call.site.endpoint}{call.request.path}?{following}>; rel="next"'}


def paths_info(call: Call) -> Answer:
    """Of the paths that are there; the others are left out without a word, as on the Hub."""
    if call.request.header("Content-Type").startswith("application/json"):
        body = call.request.json()
        paths, expanded = texts(body, "paths"), body.get("expand") is True
    else:
        form = parse_qs(call.request.read().decode(errors="replace"))
        paths, expanded = form.get("paths", []), form.get("expand") == ["true"]
    oid, commit = call.head()
    wanted = {path.rstrip("/") for path in paths}
    found = [entry for entry in _entries(commit, commit.tree_ids()) if entry["path"] in wanted]
    if expanded:
        _add_last_commits(call, oid, found)
    return answer_json(found, headers={"X-Repo-Commit": oid})


def _entries(commit: Commit, folders: dict[str, str]) -> list[dict[str, object]]:
    """Every file, then every folder but the root."""
    files = [_entry(path, file) for path, file in commit.files.items()]
    return [
        *files,
        *({"type": "directory", "oid": oid, "size": 0, "path": path} for path, oid in folders.items() if path),
    ]


def _entry(path: str, file: File) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "oid": file.oid, "size": file.size, "path": path}
    if file.large:
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
    if file.xet is not None:
        entry["xetHash"] = file.xet
    return entry


def _add_last_commits(call: Call, oid: str, entries: Iterable[dict[str, object]]) -> None:
    """To each entry, the commit that gave it the id that it has."""
    missing = {str(entry["path"]): entry for entry in entries}
    for name, commit in call.storage.history(oid):
        before = {} if commit.parent is None else _ids(call.storage.commits[commit.parent])
        for path in [path for path, entry in missing.items() if before.get(path) != entry["oid"]]:
            missing.pop(path)["lastCommit"] = {"id": name, "title": commit.message.title, "date": commit.date}


def _ids(commit: Commit) -> dict[str, str]:
    return {**commit.tree_ids(), **{path: file.oid for path, file in commit.files.items()}}


def list_commits(call: Call) -> Answer:
    oid, _ = call.head()
    size = _EXPANDED_PAGE
    page = _offset(call.request.option("p"))
    history = list(call.storage.history(oid))
    shown = [
        {
            "id": name,
            "title": commit.message.title,
            "message": commit.message.description,
            "date": commit.date,
            "authors": [{"user": commit.message.author}],
        }
        for name, commit in history[page * size : (page + 1) * size]
    ]
    more = (page + 1) * size < len(history)
    headers = {"X-Total-Count": str(len(history)), **(_next_link(call, p=page + 1) if more else {})}
    return answer_json(shown, headers=headers)


def resolve(call: Call) -> Answer:
    """A file's bytes. Those of a large one lie elsewhere; what they are called is said here already."""
    oid, file = _found(call)
    headers = {"X-Repo-Commit": oid, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
    if not file.large:
        return _bytes(call, file.sha256, file.size, headers)
    linked = {"X-Linked-ETag": f'"{file.sha256}"', "X-Linked-Size": str(file.size), **xet.links(call, file, oid)}
    if file.xet is not None and xet.FILE_INFO in call.request.header("Accept"):
        return xet.file_info(file, {**headers, **linked})
    return Answer(302, headers={**headers, **linked, "Location": f"{call.site.bucket}/objects/{file.sha256}"})


def raw(call: Call) -> Answer:
    """What git holds: the content, or the pointer to it."""
    oid, file = _found(call)
    headers = {"X-Repo-Commit": oid, "ETag": f'"{file.oid}"', "Accept-Ranges": "bytes"}
    if not file.large:
        return _bytes(call, file.sha256, file.size, headers)
    headers["Content-Type"] = "text/plain; charset=utf-8"
    wanted = wanted_range(call.request.header("Range"), file.pointer_size)
    if wanted is None:
        return Answer(200, file.pointer, headers)
    offset, length = wanted
    span = f"bytes {offset}-{offset + length - 1}/{file.pointer_size}"
    return Answer(206, file.pointer[offset : offset + length], {**headers, "Content-Range": span})


def _found(call: Call) -> tuple[str, File]:
    call.check_gate()
    oid, commit = call.head()
    file = commit.files.get(call.values["below"].removeprefix("/"))
    if file is None:
        raise EntryNotFound("Entry not found", X_Repo_Commit=oid)
    return oid, file


def read_object(call: Call) -> Answer:
    """Of the other origin: the bytes of a large file, to whoever has the address."""
    sha256 = call.values["sha256"]
    size = call.storage.objects.size(sha256)
    if size is None:
        raise EntryNotFound(f"There is no object {quote(sha256)}")
    return _bytes(call, sha256, size, {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"})


def _bytes(call: Call, sha256: str, size: int, headers: dict[str, str]) -> Answer:
    path = call.storage.objects.path(sha256)
    named = {**headers, "Content-Type": "application/octet-stream"}
    wanted = wanted_range(call.request.header("Range"), size)
    if wanted is None:
        return Answer(200, Slice(path, 0, size), named)
    offset, length = wanted
    return Answer(206, Slice(path, *wanted), {**named, "Content-Range": f"bytes {offset}-{offset + length - 1}/{size}"})
