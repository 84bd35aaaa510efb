"""Handlers: pull requests as the Hub shows them, among its discussions. Other discussions there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.rehearsal.accounts import check_login, check_write
from repokit.rehearsal.commits import Message
from repokit.rehearsal.fields import text
from repokit.rehearsal.proposals import Proposal
from repokit.rehearsal.refusals import EntryNotFound, HubError
from repokit.rehearsal.storage import DEFAULT_BRANCH, PULL_REQUESTS
from repokit.rehearsal.wire import Answer, answer_json

if TYPE_CHECKING:
    from repokit.rehearsal.call import Call

_PAGE = 10  # what the Hub sends in one answer


def listed(call: Call) -> Answer:
    """The latest first; `author`, `status` and `type` narrow it down."""
    option = call.request.option
    page = option("p") or "0"
    if not (page.isascii() and page.isdigit() and len(page) < 10):
        raise HubError("Invalid page")
    found = [
        _shown(call, number, proposal)
        for number, proposal in sorted(call.state.proposals.items(), key=lambda item: -int(item[0]))
        if option("type") in {"", "all", "pull_request"}
        and option("author") in {"", proposal.author}
        and _has_status(proposal, option("status"))
    ]
    start = int(page) * _PAGE
    return answer_json({"discussions": found[start : start + _PAGE], "count": len(found), "start": start})


def _has_status(proposal: Proposal, wanted: str) -> bool:
    """`open` takes in drafts, `closed` what was merged, as on the Hub's own page."""
    is_open = proposal.status in {"open", "draft"}
    return wanted in {"", "all"} or is_open == (wanted == "open")


def create(call: Call) -> Answer:
    body = call.request.json()
    author = check_login(call.account)
    if body.get("pullRequest") is not True:
        raise HubError("This Hub has pull requests, and no other discussions")
    message = Message(author.name, text(body, "title"), text(body, "description", ""))
    number = call.storage.draft(call.key, message)
    return answer_json({"num": int(number), "pullRequest": True, "url": _address(call, number)})


def details(call: Call) -> Answer:
    number, proposal = _found(call)
    answer = _shown(call, number, proposal)
    changes = {"base": f"refs/heads/{DEFAULT_BRANCH}", "mergeCommitId": proposal.merged}
    conflicting = [] if proposal.merged else call.storage.conflicts(call.key, number)
    more = {"changes": changes, "filesWithConflicts": conflicting, "events": _events(call, number, proposal)}
    return answer_json({**answer, **more, "diff": ""})


def set_status(call: Call) -> Answer:
    number, proposal = _found(call)
    status = text(call.request.json(), "status")
    if status not in {"open", "closed"}:
        raise HubError("A pull request is open or closed")
    _check_owns(call, proposal)
    call.storage.set_status(call.key, number, "open" if status == "open" else "closed")
    event = {**_event(call, proposal, "status"), "type": "status-change", "data": {"status": status}}
    return answer_json({"newStatus": event})


def merge(call: Call) -> Answer:
    number, _ = _found(call)
    call.storage.merge(call.key, number, call.user)
    return answer_json({})


def _check_owns(call: Call, proposal: Proposal) -> None:
    """Passes the author of the pull request, and who may write to the repository."""
    if check_login(call.account).name != proposal.author:
        check_write(call.account, call.key.namespace)


def _found(call: Call) -> tuple[str, Proposal]:
    number = call.values["number"]
    if number not in call.state.proposals:
        raise EntryNotFound(f"There is no discussion {number}")
    return number, call.state.proposals[number]


def _shown(call: Call, number: str, proposal: Proposal) -> dict[str, object]:
    return {
        "num": int(number),
        "title": proposal.title,
        "author": {"name": proposal.author, "type": "user"},
        "createdAt": call.storage.commits[proposal.base].date,
        "status": proposal.status,
        "isPullRequest": True,
        "repo": {"name": call.key.repo_id, "type": call.key.kind[:-1]},
        "url": _address(call, number),
    }


def _address(call: Call, number: str) -> str:
    return f"{call.web_address()}/discussions/{number}"


def _events(call: Call, number: str, proposal: Proposal) -> list[dict[str, object]]:
    """The first comment, then every commit, the oldest first."""
    comment = {"raw": proposal.description, "html": "", "updatedAt": call.storage.commits[proposal.base].date}
    data = {"edited": False, "hidden": False, "latest": comment, "history": []}
    events = [{**_event(call, proposal, "comment"), "type": "comment", "data": data}]
    history = list(call.storage.history(call.state.references[f"{PULL_REQUESTS}{number}"]))
    added = history[: [oid for oid, _ in history].index(proposal.base)]
    for oid, commit in reversed(added):
        event = {"type": "commit", "data": {"subject": commit.message.title, "oid": oid}}
        events.append({**_event(call, proposal, oid), **event, "createdAt": commit.date})
    return events


def _event(call: Call, proposal: Proposal, name: str) -> dict[str, object]:
    date = call.storage.commits[proposal.base].date
    return {"id": name, "createdAt": date, "author": {"name": proposal.author, "type": "user"}}
