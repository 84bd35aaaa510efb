"""Handlers: large files by the xet protocol. Tokens are given out by the Hub; the storage is the other origin.

    xet-write-token -> xorbs -> shard -> (the Hub) commit: what the shard says is put together and hashed
    xet-read-token  -> reconstruction -> ranges of xorbs

Protocol: xet-core, `openapi/cas.openapi.yaml`. Clients that speak it: hf_xet, and the npm package @huggingface/hub.
The files themselves are put together by hf_xet, the same program that takes them apart.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from repokit.rehearsal.ranges import wanted_range
from repokit.rehearsal.refusals import EntryNotFound, HubError, InvalidToken, Unprocessable
from repokit.rehearsal.wire import Answer, Slice, answer_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from repokit.rehearsal.call import Call, Site
    from repokit.rehearsal.commits import File
    from repokit.rehearsal.xet_formats import Term, XetFile

FILE_INFO: Final = "application/vnd.xet-fileinfo+json"
# Marks what the Hub asks of its own storage: nobody's request, to be neither counted nor broken on purpose.
OWN_REQUEST: Final = "X-Rehearsal-Own"
_LIFETIME: Final = 3600  # of a token, in seconds
_ENVIRONMENT: Final = Lock()


def read_token(call: Call) -> Answer:
    call.check_gate()
    call.head()
    return _token(call, "read")


def write_token(call: Call) -> Answer:
    call.check_commits()
    if not call.proposes:  # the revision of what is only being proposed is called `None`
        call.head()
    return _token(call, "write")


def _token(call: Call, scope: str) -> Answer:
    connection = write_headers(call) if scope == "write" else _headers(call.site, scope)
    body = {
        "accessToken": connection["X-Xet-Access-Token"],
        "casUrl": connection["X-Xet-Cas-Url"],
        "exp": int(connection["X-Xet-Token-Expiration"]),
    }
    return answer_json(body, headers=connection)


def write_headers(call: Call) -> dict[str, str]:
    """Where to upload to, and with what token."""
    return _headers(call.site, "write")


def _headers(site: Site, scope: str) -> dict[str, str]:
    return {
        "X-Xet-Cas-Url": address(site),
        "X-Xet-Access-Token": _access_token(site, scope),
        "X-Xet-Token-Expiration": str(int(time.time()) + _LIFETIME),
    }


def address(site: Site) -> str:
    """Of the xet storage."""
    return f"{site.bucket}/xet/{site.storage.xet.name}"


def _access_token(site: Site, scope: str) -> str:
    return f"xet-{scope}-{site.storage.xet.name}"


def _check_token(call: Call, *scopes: str) -> None:
    if call.values["storage"] != call.storage.xet.name:
        raise EntryNotFound("There is no such storage")
    if call.request.header("Authorization") not in {f"Bearer {_access_token(call.site, scope)}" for scope in scopes}:
        raise InvalidToken


def add_xorb(call: Call) -> Answer:
    _check_token(call, "write")
    return answer_json({"was_inserted": call.storage.xet.add_xorb(call.values["hash"], call.request.read())})


def add_shard(call: Call) -> Answer:
    _check_token(call, "write")
    call.storage.xet.add_shard(call.request.read())
    return answer_json({"result": 1})


def find_chunk(call: Call) -> Answer:
    """Whether a chunk is stored for somebody else. This Hub does not tell; the client sends its own."""
    _check_token(call, "read", "write")
    raise EntryNotFound("Chunk not tracked")


def telemetry(call: Call) -> Answer:
    _check_token(call, "read", "write")
    return answer_json({})


def reconstruction(call: Call) -> Answer:
    """Which chunks a file, or a range of it, is made of, and where they lie."""
    _check_token(call, "read", "write")
    file = call.storage.xet.file(call.values["hash"])
    if file is None:
        raise EntryNotFound("File not found")
    start, size = wanted_range(call.request.header("Range"), file.size) or (0, file.size)
    terms, before = _terms(file, start, start + size)
    xorbs = {
        xorb: [_place(call, xorb, *part) for part in _parts(terms, xorb)] for xorb in {term.xorb for term in terms}
    }
    shown = [
        {"hash": term.xorb, "unpacked_length": term.size, "range": {"start": term.first, "end": term.end}}
        for term in terms
    ]
    return answer_json({"offset_into_first_range": start - before, "terms": shown, "xorbs": xorbs})


def _terms(file: XetFile, start: int, end: int) -> tuple[list[Term], int]:
    """The terms that hold the bytes from `start` to `end`, and where the first of them starts in the file."""
    found: list[Term] = []
    first = at = 0
    for term in file.terms:
        if at < end and at + term.size > start:
            first = first if found else at
            found.append(term)
        at += term.size
    return found, first


def _parts(terms: Sequence[Term], xorb: str) -> list[tuple[int, int]]:
    """The chunks of one xorb that are needed, as ranges that do not overlap, each as large as it gets."""
    parts: list[tuple[int, int]] = []
    for first, end in sorted((term.first, term.end) for term in terms if term.xorb == xorb):
        if parts and first <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((first, end))
    return parts


def _place(call: Call, xorb: str, first: int, end: int) -> dict[str, object]:
    ends = call.storage.xet.chunk_ends(xorb)
    where = {
        "chunks": {"start": first, "end": end},
        "bytes": {"start": ends[first - 1] if first else 0, "end": ends[end - 1] - 1},
    }
    return {"url": f"{address(call.site)}/xorbs/{xorb}", "ranges": [where]}


def read_xorb(call: Call) -> Answer:
    """Of whoever was told the address: like addresses signed in advance, it needs no token."""
    path = call.storage.xet.xorb(call.values["hash"])
    if not path.exists():
        raise EntryNotFound("There is no such xorb")
    size = path.stat().st_size
    wanted = wanted_range(call.request.header("Range"), size)
    if wanted is None:
        return Answer(200, Slice(path, 0, size))
    offset, length = wanted
    return Answer(206, Slice(path, *wanted), {"Content-Range": f"bytes {offset}-{offset + length - 1}/{size}"})


def receive(call: Call, sha256: str, size: int | None) -> str | None:
    """The xet hash of a file that was uploaded by xet, whose bytes are among the objects from now on.

    Raises:
        Unprocessable: The chunks are not the file that the shard says they are.
    """
    file = call.storage.xet.file_of(sha256)
    if file is None:
        return None
    if size is not None and size != file.size:
        raise Unprocessable(f"{sha256} has {file.size} bytes, not {size}")
    if call.storage.objects.size(sha256) is None:
        call.storage.objects.receive(sha256, file.size, _content(call.site, file))
    return file.name


def _content(site: Site, file: XetFile) -> Iterator[bytes]:
    with _cache_in(site.storage.xet.cache):
        try:
            import hf_xet  # type: ignore[import-untyped]  # a compiled module without stubs
        except ImportError:  # huggingface_hub brings it on x86_64 and arm64
            raise HubError("This Hub cannot read xet uploads: hf_xet is not installed") from None

        group = hf_xet.XetSession().new_download_stream_group(
            endpoint=address(site),
            token=_access_token(site, "read"),
            token_expiry_unix_secs=int(time.time()) + _LIFETIME,
            custom_headers={OWN_REQUEST: "1"},
        )
    try:
        yield from group.download_stream(hf_xet.XetFileInfo(file.name, file.size))
    except (OSError, RuntimeError) as error:
        raise Unprocessable(f"The chunks of {file.sha256} make no file: {error}") from None


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Where hf_xet puts its log and its cache: with the Hub, and not into the home of whoever runs it.

    The environment is the only place where it can be told so; it looks there when it is imported and when it connects.
    """
    with _ENVIRONMENT:
        before = os.environ.get("HF_XET_CACHE")
        os.environ["HF_XET_CACHE"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["HF_XET_CACHE"]
            else:
                os.environ["HF_XET_CACHE"] = before


def links(call: Call, file: File, oid: str) -> dict[str, str]:
    """The headers by which a client of `resolve` learns that it can download by xet."""
    if file.xet is None:
        return {}
    prefix = f"{call.site.endpoint}/api/{call.key.kind}/{call.key.repo_id}"
    auth = f'<{prefix}/xet-read-token/{oid}>; rel="xet-auth"'
    info = f'<{address(call.site)}/v1/reconstructions/{file.xet}>; rel="xet-reconstruction-info"'
    return {"X-Xet-Hash": file.xet, "Link": f"{auth}, {info}"}


def file_info(file: File, headers: dict[str, str]) -> Answer:
    """What the npm client asks `resolve` for in place of a redirect."""
    body = json.dumps({"hash": file.xet, "size": file.size}).encode()
    return Answer(200, body, {**headers, "Content-Type": FILE_INFO})
