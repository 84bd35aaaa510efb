"""Handlers: what a push calls, in its order: card, preupload, batch, bytes, verify, commit."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from repokit.rehearsal import xet
from repokit.rehearsal.accounts import check_login, check_write
from repokit.rehearsal.card_rules import CardReport, judged
from repokit.rehearsal.commits import Add, Delete, File, Message, checked_path, large_file, regular_file
from repokit.rehearsal.fields import natural, records, text, texts
from repokit.rehearsal.patterns import is_ignored, is_large
from repokit.rehearsal.refusals import HubError, Unprocessable
from repokit.rehearsal.wire import Answer, answer_json, parsed_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.rehearsal.call import Call
    from repokit.rehearsal.commits import Commit

# The Hub takes regular files up to 10 MB; larger ones, and binary ones, belong into large file storage.
_REGULAR_LIMIT = 10_000_000
_LFS_JSON = "application/vnd.git-lfs+json"


def validate_yaml(call: Call) -> Answer:
    report = judged(text(call.request.json(), "content"))
    return answer_json(_told(report), 400 if report.errors else 200)


def _told(report: CardReport) -> dict[str, object]:
    return {
        "errors": [{"message": message} for message in report.errors],
        "warnings": [{"message": message} for message in report.warnings],
    }


def preupload(call: Call) -> Answer:
    """How each file is to be sent, and under what name it is there already, if it is."""
    call.check_commits()
    body = call.request.json()
    oid, commit = call.head()
    gitignore = text(body, "gitIgnore", "") or _stored_text(call, commit, ".gitignore")
    gitattributes = _stored_text(call, commit, ".gitattributes")
    files = [_advice(record, commit, gitattributes, gitignore) for record in records(body, "files")]
    return answer_json({"files": files, "commitOid": oid})


def _advice(record: Mapping[str, object], commit: Commit, gitattributes: str, gitignore: str) -> dict[str, object]:
    path = checked_path(text(record, "path"))
    binary = b"\0" in _decoded(text(record, "sample", ""))
    large = natural(record, "size") > _REGULAR_LIMIT or binary or is_large(path, gitattributes)
    advice: dict[str, object] = {
        "path": path,
        "uploadMode": "lfs" if large else "regular",
        "shouldIgnore": is_ignored(path, gitignore),
    }
    if (there := commit.files.get(path)) is not None:
        advice["oid"] = there.etag
    return advice


def _stored_text(call: Call, commit: Commit, path: str) -> str:
    file = commit.files.get(path)
    return call.storage.objects.read(file.sha256).decode(errors="replace") if file and not file.large else ""


def lfs_batch(call: Call) -> Answer:
    """Where the bytes of each large file go; nothing for one that is here."""
    body = call.request.json()
    _check_may_upload(call, body)
    # The npm client spells it with an underscore.
    if text(body, "operation") != "upload" or text(body, "hash_algo", "sha256") not in {"sha256", "sha_256"}:
        raise Unprocessable("This Hub takes uploads, named by sha256")
    offered = texts(body, "transfers") if "transfers" in body else []
    transfer = next((known for known in ("xet", "multipart") if known in offered), "basic")
    objects = [_batch_object(call, record, transfer) for record in records(body, "objects")]
    answer = answer_json({"transfer": transfer, "objects": objects})
    return Answer(answer.status, answer.body, {"Content-Type": _LFS_JSON})


def _check_may_upload(call: Call, body: Mapping[str, object]) -> None:
    """Large files of a proposal are stored for anyone who is logged in; its client names no branch, or `refs/pr/N`."""
    ref = body.get("ref")
    author = call.state.proposed_by(text(ref, "name")) if isinstance(ref, dict) else call.user
    if author != call.user:
        check_write(call.account, call.key.namespace)


def _batch_object(call: Call, record: Mapping[str, object], transfer: str) -> dict[str, object]:
    sha256, size = text(record, "oid"), natural(record, "size")
    told: dict[str, object] = {"oid": sha256, "size": size}
    try:
        there = call.storage.objects.size(sha256)
    except Unprocessable as error:
        return {**told, "error": {"code": error.status, "message": error.message}}
    if there == size:
        return told
    verify = {"href": f"{call.web_address()}.git/info/lfs/verify"}
    return {**told, "actions": {"upload": _upload_action(call, sha256, size, transfer), "verify": verify}}


def _upload_action(call: Call, sha256: str, size: int, transfer: str) -> dict[str, object]:
    if transfer == "xet":
        href = f"{call.site.endpoint}/api/{call.key.kind}/{call.key.repo_id}/xet-write-token/main"
        return {"href": href, "header": xet.write_headers(call)}
    part_size = call.site.part_size
    if transfer != "multipart" or part_size is None or size <= part_size:
        return {"href": f"{call.site.bucket}/objects/{sha256}?size={size}"}
    numbers = range(1, -(-size // part_size) + 1)
    parts = {str(number): f"{call.site.bucket}/parts/{sha256}/{number}" for number in numbers}
    href = f"{call.site.endpoint}/api/complete_multipart/{sha256}?size={size}"
    return {"href": href, "header": {"chunk_size": str(part_size), **parts}}


def write_object(call: Call) -> Answer:
    """Of the other origin: the bytes of a large file. What is not what it was announced as is refused."""
    sha256 = call.values["sha256"]
    call.storage.objects.receive(sha256, _announced_size(call), call.request.chunks())
    return Answer(200, headers={"ETag": f'"{sha256}"'})


def write_part(call: Call) -> Answer:
    """Of the other origin: one part of a large file."""
    part = call.storage.objects.add(call.request.read())
    call.site.parts[call.values["sha256"], call.values["number"]] = part
    return Answer(200, headers={"ETag": f'"{part}"'})


def complete_multipart(call: Call) -> Answer:
    """Joins the parts, if they are the file that was announced."""
    sha256 = call.values["sha256"]
    parts = [_part(call, sha256, record) for record in records(call.request.json(), "parts")]
    objects = call.storage.objects
    objects.receive(sha256, _announced_size(call), (objects.read(part) for part in parts))
    return answer_json({"oid": sha256})


def _part(call: Call, sha256: str, record: Mapping[str, object]) -> str:
    number, etag = natural(record, "partNumber"), text(record, "etag").strip('"')
    if call.site.parts.get((sha256, str(number))) != etag:
        raise Unprocessable(f"Part {number} of {sha256} was not uploaded")
    return etag


def _announced_size(call: Call) -> int:
    size = call.request.option("size")
    if not (size.isascii() and size.isdigit() and len(size) < 19):
        raise HubError("The address lacks the size that the batch call gave it")
    return int(size)


def lfs_verify(call: Call) -> Answer:
    check_login(call.account)
    body = call.request.json()
    sha256, size = text(body, "oid"), natural(body, "size")
    there = call.storage.objects.size(sha256)
    if there is None:
        return answer_json({"error": f"There is no object {sha256}"}, 404)
    if there != size:
        raise Unprocessable(f"{sha256} has {there} bytes, not {size}")
    return answer_json({})


def commit(call: Call) -> Answer:
    """One commit out of one line a change, the first line being what is said about it."""
    author = call.check_commits()
    lines = [parsed_object(line) for line in call.request.read().split(b"\n") if line.strip()]
    if not lines or lines[0].get("key") != "header":
        raise HubError("The first line must be the header")
    header = _value(lines[0])
    operations = [operation for line in lines[1:] for operation in _operations(call, line)]
    if (refused := _refused_card(call, operations)) is not None:
        return refused
    summary = text(header, "summary")
    if not summary:
        raise HubError('"summary" must not be empty')
    message = Message(author, summary, text(header, "description", ""))
    parent = text(header, "parentCommit", "") or None
    if call.proposes:
        oid, number = call.storage.pull_request(call.key, call.revision, operations, message, parent)
        return _committed(call, oid, pullRequestUrl=f"{call.web_address()}/discussions/{number}")
    return _committed(call, call.storage.commit(call.key, call.revision, operations, message, parent))


def _committed(call: Call, oid: str, **more: str) -> Answer:
    url = f"{call.web_address()}/commit/{oid}"
    return answer_json({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": "", **more})


def _value(line: Mapping[str, object]) -> dict[str, object]:
    value = line.get("value")
    if not isinstance(value, dict):
        raise HubError('"value" must be an object')
    return value


def _operations(call: Call, line: Mapping[str, object]) -> Iterator[Add | Delete]:
    value = _value(line)
    path = text(value, "path")
    match line.get("key"):
        case "file":
            yield Add(path, _regular(call, path, value))
        case "lfsFile":
            yield Add(path, _large(call, value))
        case "deletedFile":
            yield Delete(path)
        case "deletedFolder":
            yield Delete(path, folder=True)
        case key:
            raise HubError(f"This Hub does not know the operation {key!r}")


def _regular(call: Call, path: str, value: Mapping[str, object]) -> File:
    content = text(value, "content")
    base64_encoded = text(value, "encoding", "utf-8") == "base64"
    data = _decoded(content) if base64_encoded else content.encode(errors="surrogatepass")
    if len(data) > _REGULAR_LIMIT:
        raise HubError(f"{path!r} is larger than 10 MB and must go to large file storage")
    return regular_file(data, call.storage.objects.add(data))


def _large(call: Call, value: Mapping[str, object]) -> File:
    sha256 = text(value, "oid")
    xet_hash = xet.receive(call, sha256, natural(value, "size") if "size" in value else None)
    there = call.storage.objects.size(sha256)
    if there is None:
        raise HubError("Your push was rejected because an LFS pointer pointed to a file that does not exist.")
    if "size" in value and natural(value, "size") != there:  # a copy inside the Hub comes without a size
        raise Unprocessable(f"{sha256} has {there} bytes")
    return large_file(sha256, there, xet_hash)


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise HubError("The content is not base64") from None


def _refused_card(call: Call, operations: list[Add | Delete]) -> Answer | None:
    """The Hub judges the card once more when it is committed."""
    for operation in operations:
        if isinstance(operation, Add) and operation.path == "README.md" and not operation.file.large:
            content = call.storage.objects.read(operation.file.sha256).decode(errors="replace")
            report = judged(content)
            if report.errors:
                message = "\n".join(["Invalid metadata in README.md.", *(f"- {error}" for error in report.errors)])
                return answer_json({"error": message, **_told(report)}, 400)
    return None
