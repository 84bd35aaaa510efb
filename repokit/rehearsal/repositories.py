"""Handlers: repositories, branches and tags come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.rehearsal.accounts import check_login, check_write
from repokit.rehearsal.commits import Message
from repokit.rehearsal.fields import text
from repokit.rehearsal.refusals import AlreadyExists, HubError, InvalidToken
from repokit.rehearsal.storage import BRANCHES, DEFAULT_BRANCH, PULL_REQUESTS, TAGS, Key
from repokit.rehearsal.wire import Answer, answer_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.rehearsal.call import Call
    from repokit.rehearsal.commits import File
    from repokit.rehearsal.storage import State


def whoami(call: Call) -> Answer:
    if call.account is None:
        raise InvalidToken
    own, *organizations = call.account.namespaces
    role = "write" if call.account.may_write else "read"
    return answer_json(
        {
            "type": "user",
            "name": own,
            "fullname": own,
            "orgs": [{"type": "org", "name": name, "fullname": name} for name in organizations],
            "auth": {"type": "access_token", "accessToken": {"displayName": "rehearsal", "role": role}},
        }
    )


def agent_harnesses(_: Call) -> Answer:
    return answer_json({"standardEnvVars": [], "harnesses": {}})


def create(call: Call) -> Answer:
    body = call.request.json()
    key = _named(call, body)
    check_write(call.account, key.namespace)
    private = body.get("private") is True or body.get("visibility") == "private"
    try:
        call.storage.create(key, author=call.user, private=private)
    except AlreadyExists as error:
        # `exist_ok` reads the address out of the refusal.
        return answer_json({"error": error.message, "url": call.web_address(key)}, error.status)
    return answer_json({"url": call.web_address(key), "name": key.repo_id, "id": key.repo_id})


def delete(call: Call) -> Answer:
    key = _named(call, call.request.json())
    call.storage.state(key)
    check_write(call.account, key.namespace)
    call.storage.delete(key)
    return answer_json({})


def _named(call: Call, body: Mapping[str, object]) -> Key:
    """The repository that is named in the body; without an organization, one of the user's own."""
    namespace = text(body, "organization", "") or check_login(call.account).name
    kind = text(body, "type", "model") + "s"
    return Key(kind, namespace, text(body, "name"))


def configure(call: Call) -> Answer:
    body = call.request.json()
    if not body.keys() & {"visibility", "gated"}:
        raise HubError("No setting that this Hub knows: visibility, gated")
    private = text(body, "visibility") == "private" if "visibility" in body else None
    gated = body["gated"] in ("auto", "manual") if "gated" in body else None
    call.storage.configure(call.key, private=private, gated=gated)
    return answer_json({})


def info(call: Call) -> Answer:
    oid, commit = call.head()
    state = call.state
    with_blobs = call.request.option("blobs") == "true"
    first = call.storage.commits[state.commits[0]]
    return answer_json(
        {
            "id": call.key.repo_id,
            "modelId": call.key.repo_id,
            "author": call.key.namespace,
            "sha": oid,
            "private": state.private,
            "gated": "manual" if state.gated else False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "createdAt": first.date,
            "lastModified": commit.date,
            "siblings": [_sibling(path, file, with_blobs=with_blobs) for path, file in commit.files.items()],
        },
        headers={"X-Repo-Commit": oid},
    )


def _sibling(path: str, file: File, *, with_blobs: bool) -> dict[str, object]:
    if not with_blobs:
        return {"rfilename": path}
    sibling: dict[str, object] = {"rfilename": path, "size": file.size, "blobId": file.oid}
    if file.large:
        sibling["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": file.pointer_size}
    return sibling


def references(call: Call) -> Answer:
    state = call.state
    answer: dict[str, object] = {
        "branches": _listed(state, BRANCHES),
        "converts": [],
        "tags": _listed(state, TAGS),
    }
    if call.request.option("include_prs"):
        answer["pullRequests"] = _listed(state, PULL_REQUESTS)
    return answer_json(answer)


def _listed(state: State, prefix: str) -> list[dict[str, str]]:
    return [{"name": name, "ref": f"{prefix}{name}", "targetCommit": oid} for name, oid in state.under(prefix).items()]


def create_branch(call: Call) -> Answer:
    start = text(call.request.json(), "startingPoint", DEFAULT_BRANCH)
    return _create(call, BRANCHES, call.values["branch"], start)


def delete_branch(call: Call) -> Answer:
    call.storage.delete_reference(call.key, BRANCHES, call.values["branch"])
    return answer_json({})


def create_tag(call: Call) -> Answer:
    return _create(call, TAGS, text(call.request.json(), "tag"), call.revision)


def delete_tag(call: Call) -> Answer:
    call.storage.delete_reference(call.key, TAGS, call.values["tag"])
    return answer_json({})


def _create(call: Call, prefix: str, name: str, start: str) -> Answer:
    call.storage.create_reference(call.key, prefix, name, start)
    return answer_json({})


def squash(call: Call) -> Answer:
    title = text(call.request.json(), "message", "Super-squash branch")
    oid = call.storage.squash(call.key, call.values["branch"], Message(call.user, title))
    return answer_json({"commitOid": oid})
