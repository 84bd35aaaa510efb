"""A push that proposes: one pull request, whatever gets lost on the way."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from huggingface_hub import CommitOperationAdd, get_session

from repokit.errors import HubUnreachable, NotAuthorized, ParentMoved, PublishError, RepokitError, UsageError
from repokit.publisher.pull_requests import number_of
from repokit.publisher.retrying import WAITS
from repokit.rehearsal import Answer, Drop

REPO = "rehearsal/model"

both_ways = pytest.mark.parametrize("transfer", ["lfs", "xet"], indirect=True)


@pytest.fixture(autouse=True)
def client_waits(monkeypatch):
    """The seconds for which huggingface_hub itself would have slept."""
    waits = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    return waits


@pytest.fixture
def propose(go, published, directory):
    """A push to a new pull request, with something to propose: a small file, a large file, a deletion."""
    (directory / "config.json").write_bytes(b'{"model_type": "mistral"}')
    (directory / "model-00001-of-00002.safetensors").write_bytes(b"\0" * 900)
    (directory / "empty.txt").unlink()
    return partial(go, create_pr=True)


def pull_requests(hub):
    return hub.storage.state(_key(hub)).proposals


def commits(hub, revision="main"):
    return len(list(hub.storage.history(hub.storage.resolve(_key(hub), revision))))


def _key(hub):
    return next(iter(hub.storage.keys()))


@both_ways
def test_a_proposal_is_one_commit_in_one_pull_request(propose, published, hub, api):
    result = propose()
    assert (result.revision, result.pull_request.number, result.verified_files) == ("refs/pr/1", 1, 5)
    assert api.repo_info(REPO, revision="refs/pr/1").sha == result.commit
    assert (commits(hub), commits(hub, "refs/pr/1")) == (2, 3)
    assert result.parent == published


def test_the_page_of_the_pull_request_is_told(propose, hub):
    result = propose()
    assert result.url == result.pull_request.url == f"{hub.endpoint}/{REPO}/discussions/1"


def test_main_stays_as_it_is_until_the_pull_request_is_merged(propose, published, api):
    result = propose(commit_message="Newer weights")
    assert api.repo_info(REPO).sha == published
    api.merge_pull_request(REPO, 1)
    assert api.list_repo_commits(REPO)[0].title == "Newer weights (#1)"
    assert {file.path for file in result.changes.uploads} <= set(api.list_repo_files(REPO))


@both_ways
def test_whoever_sees_a_repository_may_propose(propose, hub):
    result = propose(token="hf_stranger")
    assert (pull_requests(hub)["1"].author, result.verified_files) == ("stranger", 5)


@both_ways
def test_whoever_proposed_may_add_to_it(propose, go, hub, directory):
    propose(token="hf_stranger")
    (directory / "model-00002-of-00002.safetensors").write_bytes(b"\0" * 700)
    result = go(token="hf_stranger", revision="refs/pr/1")
    assert (result.pull_request.number, commits(hub, "refs/pr/1")) == (1, 4)


def test_others_may_not_add_to_it(propose, go, directory):
    propose()
    (directory / "config.json").write_bytes(b"{}")
    with pytest.raises(NotAuthorized):
        go(token="hf_stranger", revision="refs/pr/1")


def test_a_token_that_only_reads_does_not_propose(propose, hub):
    with pytest.raises(NotAuthorized):
        propose(token="hf_reader")
    assert pull_requests(hub) == {}


def test_what_is_on_main_already_is_not_proposed(go, published, hub):
    result = go(create_pr=True)
    assert (result.commit, result.pull_request, result.creates) == (published, None, frozenset())
    assert pull_requests(hub) == {}


def test_what_is_proposed_already_is_not_proposed_again(propose, hub):
    first = propose()
    hub.requests.clear()
    second = propose()
    assert (second.pull_request, second.commit, second.creates) == (first.pull_request, first.commit, frozenset())
    assert len(pull_requests(hub)) == 1
    assert not [path for method, path in hub.requests if method != "GET"]


def test_the_same_under_another_title_is_another_proposal(propose, hub):
    propose()
    assert propose(commit_message="Once more").pull_request.number == 2


def test_the_same_of_somebody_else_is_another_proposal(propose, hub):
    propose(token="hf_stranger")
    assert propose().pull_request.number == 2


def test_something_else_under_the_same_title_is_another_proposal(propose, directory):
    propose(commit_message="Fix")
    (directory / "config.json").write_bytes(b"{}")
    assert propose(commit_message="Fix").pull_request.number == 2


def test_a_closed_proposal_is_made_again(propose, api):
    propose()
    api.change_discussion_status(REPO, 1, "closed")
    assert propose().pull_request.number == 2


def test_a_dry_run_opens_nothing(propose, hub):
    result = propose(dry_run=True)
    assert (result.creates, result.pull_request, result.commit) == ({"pull request"}, None, None)
    assert pull_requests(hub) == {}


def test_a_dry_run_without_a_token_shows_what_would_be_proposed(propose):
    assert propose(dry_run=True, token=None).creates == {"pull request"}


def test_what_is_going_to_be_opened_is_told_before(propose, published):
    told = []
    propose(announce=told.append, approve=lambda _: told.append("approve"))
    assert told == [f"opens a pull request against main at {published[:7]}", "approve"]


# What does not go together


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"create_pr": True, "revision": "next"}, "against main only"),
        ({"create_pr": True, "revision": "refs/pr/1"}, "against main only"),
        ({"create_pr": True, "tag": "v1.0"}, "is not tagged"),
        ({"revision": "refs/pr/1", "tag": "v1.0"}, "is not tagged"),
        ({"create_pr": True, "create": True}, "changes a repository that exists"),
        ({"create_pr": True, "create_branch": True}, "changes a repository that exists"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused_before_the_network(go, hub, flags, told):
    with pytest.raises(UsageError, match=told):
        go(**flags)
    assert hub.requests == []


@pytest.mark.parametrize(("revision", "number"), [("refs/pr/12", 12), ("refs/pr/0", None), ("main", None)])
def test_the_number_in_a_revision(revision, number):
    assert number_of(revision) == number


@pytest.mark.parametrize("status", ["closed", "merged"])
def test_a_commit_to_what_nobody_looks_at_any_more_is_refused(propose, go, api, directory, status):
    propose()
    if status == "merged":
        api.merge_pull_request(REPO, 1)
    else:
        api.change_discussion_status(REPO, 1, "closed")
    (directory / "config.json").write_bytes(b"{}")
    with pytest.raises(PublishError, match=rf"refs/pr/1 is {status}"):
        go(revision="refs/pr/1")


# Lost answers


LOST = [
    Drop(after=True),
    Drop(after=True, sent=20),
    Answer(503, b"busy", after=True),
    Answer(200, b"<html>", after=True),
    Answer(200, b"{}", after=True),
    Answer(200, b'{"commitOid": "x", "commitUrl": "http://127.0.0.1/a/b/commit/x"}', after=True),
    Answer(200, b'{"commitOid": "x", "commitUrl": "http://127.0.0.1/a/b/commit/x", "pullRequestUrl": "y"}', after=True),
]


@both_ways
@pytest.mark.parametrize("fault", LOST, ids=str)
def test_a_pull_request_that_was_opened_is_not_opened_again(propose, hub, waits, fault):
    hub.intercept = lambda request: fault if "/commit/" in request.path else None
    result = propose()
    assert (list(pull_requests(hub)), result.pull_request.number, waits) == (["1"], 1, [])
    assert result.commit == hub.storage.resolve(_key(hub), "refs/pr/1")


@pytest.mark.parametrize("fault", [Drop(), Answer(503, b"busy"), Answer(200, b"<html>")], ids=str)
def test_a_pull_request_that_was_not_opened_is_opened(propose, hub, waits, fault):
    faults = [fault]
    hub.intercept = lambda request: faults.pop() if faults and "/commit/" in request.path else None
    assert propose().pull_request.number == 1
    assert (len(pull_requests(hub)), waits) == (1, [1])


def test_a_pull_request_that_is_opened_after_the_gateway_gave_up_is_not_opened_again(propose, hub):
    """The Hub goes on for up to a minute where a gateway before it has stopped waiting."""
    late = []

    def intercept(request):
        if "/commit/" not in request.path or late:
            return None
        body = request.read()
        headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/x-ndjson"}
        late.append(
            partial(
                get_session().post,
                hub.endpoint + f"/api/models/{REPO}/commit/main?create_pr=1",
                content=body,
                headers=headers,
            )
        )
        return Answer(504, b"")

    hub.intercept = intercept
    result = propose(sleep=lambda _: late[0]())
    assert (list(pull_requests(hub)), result.pull_request.number) == (["1"], 1)


def test_an_equal_one_from_before_is_not_taken_for_the_one_that_was_lost(propose, hub):
    propose(commit_message="First try")
    faults = [Drop()]
    hub.intercept = lambda request: faults.pop() if faults and "/commit/" in request.path else None
    assert propose(commit_message="Second try").pull_request.number == 2


def test_the_run_after_one_that_nobody_heard_of_opens_no_second_one(propose, hub):
    made = []

    def intercept(request):
        if "/commit/" in request.path:
            made.append(request)
            return Drop(after=True)
        return Drop() if made else None

    hub.intercept = intercept
    with pytest.raises(HubUnreachable):
        propose()
    hub.intercept = None
    assert propose().pull_request.number == 1
    assert len(pull_requests(hub)) == 1


def test_a_hub_that_stays_busy_is_given_up(propose, hub, waits):
    hub.intercept = lambda request: Answer(503, b"") if "/commit/" in request.path else None
    with pytest.raises(HubUnreachable):
        propose()
    assert (pull_requests(hub), waits) == ({}, list(WAITS))


def test_someone_commits_to_main_meanwhile(propose, hub, api):
    def intercept(request):
        if "/commit/" in request.path:
            hub.intercept = None
            api.create_commit(REPO, [CommitOperationAdd("theirs.txt", b"x")], commit_message="theirs")

    hub.intercept = intercept
    with pytest.raises(ParentMoved):
        propose()
    assert pull_requests(hub) == {}


CALLS = ["/whoami-v2", "/discussions", "/revision/", "/commit/", "/tree/"]
FAULTS = [Answer(503, b""), Answer(403, b'{"error": "no"}'), Answer(200, b"<html>"), Answer(200, b"{}"), Drop()]
# A listing that is well-formed and wrong is not a fault of the network: no client can tell.
CASES = [(call, fault) for call in CALLS for fault in FAULTS if (call, fault) != ("/tree/", Answer(200, b"{}"))]


@pytest.mark.parametrize(("call", "fault"), CASES, ids=str)
def test_one_fault_anywhere_and_another_run_make_one_pull_request(propose, hub, call, fault):
    faults = [fault]
    hub.intercept = lambda request: faults.pop() if faults and call in request.path else None
    with contextlib.suppress(RepokitError):
        propose()
    hub.intercept = None
    assert propose().verified_files == 5
    assert (len(pull_requests(hub)), commits(hub)) == (1, 2)
