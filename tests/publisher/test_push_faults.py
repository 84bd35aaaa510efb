"""A push in the face of what networks, busy servers and other people do. Only the commit is answered for by repokit
alone; the calls before it are retried by huggingface_hub itself, whose sleeping is switched off here.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import threading

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from repokit.errors import HubUnreachable, NotAuthorized, ParentMoved, PublishError, RepokitError, VerificationFailed
from repokit.hub import session
from repokit.publisher.retrying import WAITS
from repokit.rehearsal import Answer, Drop

REPO = "rehearsal/model"

both_ways = pytest.mark.parametrize("transfer", ["lfs", "xet"], indirect=True)
by_xet = pytest.mark.parametrize("transfer", ["xet"], indirect=True)


@pytest.fixture(autouse=True)
def client_waits(monkeypatch):
    """The seconds for which huggingface_hub itself would have slept."""
    waits = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    return waits


class Faults:
    """Gives each of `faults` once, to the requests whose path has the pattern `part` in it."""

    def __init__(self, part, *faults):
        self.part = re.compile(part)
        self.faults = list(faults)

    def __call__(self, request):
        return self.faults.pop(0) if self.faults and self.part.search(request.path) else None


@pytest.fixture
def changed(go, published, directory):
    """`go` has something to do: one small file, one large file, one deletion."""
    (directory / "config.json").write_bytes(b'{"model_type": "mistral"}')
    (directory / "model-00001-of-00002.safetensors").write_bytes(b"\0" * 900)
    (directory / "empty.txt").unlink()
    return go


BUSY = [Answer(status, b"busy") for status in (408, 429, 500, 502, 503, 504)]
LOST = [Drop(after=True), Drop(after=True, sent=0), Drop(after=True, sent=20)]
NOT_MADE = [*BUSY, Drop(), Answer(200, b"<html>"), Answer(200, b""), Answer(200, b"{}"), Answer(200, b"[]")]
MADE = [
    *LOST,
    *(Answer(status, b"busy", after=True) for status in (408, 429, 500, 502, 503, 504)),
    Answer(200, b"<html>", after=True),
    Answer(200, b"{}", after=True),
    Answer(200, b"[1]", after=True),
    Answer(200, b'{"commitOid": null, "commitUrl": null}', after=True),
    Answer(200, b'{"commitOid": "x", "commitUrl": "nonsense"}', after=True),
]


@pytest.mark.parametrize("fault", NOT_MADE, ids=str)
def test_a_commit_that_was_not_made_is_made_again(changed, hub, waits, fault):
    hub.intercept = Faults("/commit/", fault)
    assert changed().verified_files == 5
    assert (commits(hub), waits) == (3, [1])


@both_ways
@pytest.mark.parametrize("fault", MADE, ids=str)
def test_a_commit_that_was_made_is_not_made_again(changed, hub, waits, fault):
    hub.intercept = Faults("/commit/", fault)
    result = changed(tag="v1.0")
    assert (commits(hub), waits) == (3, [])
    assert hub.storage.resolve(_key(hub), "v1.0") == result.commit


def test_a_lost_answer_and_a_silence_after_it(changed, hub):
    silence = [Answer(503, b"")] * 3

    def intercept(request):
        if "/commit/" in request.path:
            return Drop(after=True)
        if request.path.endswith("/revision/main") and silence and commits_made():
            return silence.pop()
        return None

    def commits_made():
        return any("/commit/" in path for _, path in hub.requests)

    hub.intercept = intercept
    assert changed().verified_files == 5
    hub.intercept = None
    assert (commits(hub), silence) == (3, [])


def test_a_hub_that_stays_busy_is_given_up(changed, hub, waits):
    hub.intercept = Faults("/commit/", *[Answer(503, b"")] * 100)
    with pytest.raises(HubUnreachable) as failed:
        changed()
    hub.intercept = None
    assert "again" in failed.value.hint
    assert (commits(hub), waits) == (2, list(WAITS))


def test_a_hub_that_asks_for_a_pause_gets_it(changed, hub, waits):
    hub.intercept = Faults(
        "/commit/", Answer(429, b"", {"Retry-After": "70"}), Answer(429, b"", {"RateLimit": '"api";r=0;t=55'})
    )
    changed()
    assert waits == [60, 55]  # 60 is as long as any single pause may be


@pytest.mark.parametrize("headers", [{"Retry-After": "100000000"}, {"RateLimit": '"api";r=0;t=100000000'}], ids=str)
def test_a_hub_that_asks_for_three_years_gets_a_minute(changed, hub, client_waits, headers):
    hub.intercept = Faults("/preupload/", Answer(429, b"", headers))
    assert changed().verified_files == 5
    assert client_waits == [61]  # huggingface_hub adds a second


@both_ways
@pytest.mark.parametrize("stage", ["hash", "upload", "commit", "verify", "tag"])
def test_a_push_that_is_interrupted_is_taken_up_by_the_next(changed, hub, stage):
    def interrupt(reached, done, total):
        if reached == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        changed(tag="v1.0", listener=interrupt)
    result = changed(tag="v1.0")
    assert (commits(hub), result.verified_files) == (3, 5)
    assert hub.storage.resolve(_key(hub), "v1.0") == result.commit


@both_ways
def test_the_run_after_a_failure_sends_no_byte_again(changed, hub):
    hub.intercept = Faults("/commit/", *[Answer(503, b"")] * 100)
    with pytest.raises(HubUnreachable):
        changed()
    hub.intercept = None
    hub.requests.clear()
    changed()
    assert [path for method, path in hub.requests if method == "PUT" or "/v1/xorbs/" in path] == []
    assert commits(hub) == 3


@both_ways
def test_the_run_after_a_commit_that_nobody_heard_of_makes_no_second_one(changed, hub):
    made = threading.Event()

    def intercept(request):
        if "/commit/" in request.path:
            made.set()
            return Drop(after=True)
        return Drop() if made.is_set() else None

    hub.intercept = intercept
    with pytest.raises(HubUnreachable):
        changed()
    hub.intercept = None
    assert changed().changes.is_empty
    assert commits(hub) == 3


# Other people


@both_ways
def test_someone_commits_while_the_files_are_uploaded(changed, hub, api):
    others = Others(hub, "/lfs/verify|/v1/shards")
    hub.intercept = others
    with pytest.raises(ParentMoved) as failed:
        changed()
    hub.intercept = None
    assert others.commit[:7] in failed.value.what
    assert (commits(hub), api.file_exists(REPO, "theirs.txt")) == (3, True)


def test_someone_commits_while_this_commit_is_retried(changed, hub):
    others = Others(hub, "/commit/", Answer(503, b""))
    hub.intercept = others
    with pytest.raises(ParentMoved, match=r"moved from .{7} to"):
        changed()
    hub.intercept = None
    assert commits(hub) == 3


def test_someone_commits_right_after_a_commit_whose_answer_is_lost(changed, hub, api):
    class After(Others):
        def __call__(self, request):
            if "/commit/" in request.path and "theirs" not in request.read().decode():
                return Drop(after=True)
            lost = any("/commit/" in path for _, path in hub.requests)
            return super().__call__(request) if lost else None

    others = After(hub, "/revision/main")
    hub.intercept = others
    result = changed()
    hub.intercept = None
    assert api.list_repo_commits(REPO)[0].commit_id == others.commit
    assert api.list_repo_commits(REPO)[1].commit_id == result.commit


def test_someone_takes_the_tag_meanwhile(changed, hub, api, published):
    def intercept(request):
        if "/commit/" in request.path:
            hub.storage.create_reference(_key(hub), "refs/tags/", "v1.0", published)

    hub.intercept = intercept
    with pytest.raises(PublishError, match=r"is published; the tag v1\.0 names") as failed:
        changed(tag="v1.0")
    assert published[:7] in failed.value.what
    assert api.repo_info(REPO, revision="v1.0").sha == published


def test_someone_creates_the_repository_meanwhile_for_everyone_to_read(go, hub, api):
    def intercept(request):
        if "/repos/create" in request.path:
            hub.intercept = None
            api.create_repo(REPO, private=False)

    hub.intercept = intercept
    with pytest.raises(PublishError, match="is public"):
        go(create=True, private=True)
    assert [path for _, path in hub.requests if "/preupload/" in path or "/commit/" in path] == []


def test_someone_creates_the_repository_meanwhile_and_puts_files_there(go, hub, api):
    def intercept(request):
        if "/repos/create" in request.path:
            hub.intercept = None
            api.create_repo(REPO)
            api.create_commit(REPO, [CommitOperationAdd("theirs.txt", b"x")], commit_message="theirs")

    hub.intercept = intercept
    with pytest.raises(ParentMoved):
        go(create=True)
    assert api.file_exists(REPO, "theirs.txt")


# The directory


@both_ways
@pytest.mark.parametrize("path", ["config.json", "model-00001-of-00002.safetensors"])
def test_a_file_that_changes_in_the_gate(changed, hub, directory, path):
    def gate(_):
        (directory / path).write_bytes(b"edited meanwhile")

    with pytest.raises(PublishError, match="changed since the check"):
        changed(gate=gate)
    assert commits(hub) == 2


@both_ways
@pytest.mark.parametrize("path", ["config.json", "model-00001-of-00002.safetensors"])
@pytest.mark.parametrize("grown", [0, 1])
def test_a_file_that_changes_before_the_upload(changed, hub, directory, path, grown):
    def intercept(request):
        if "/preupload/" in request.path:
            (directory / path).write_bytes(b"x" * ((directory / path).stat().st_size + grown))

    hub.intercept = intercept
    with pytest.raises(PublishError, match=f"changed since the check: {path}"):
        changed()
    hub.intercept = None
    assert commits(hub) == 2


@both_ways
def test_a_file_that_goes_before_the_upload(changed, hub, directory):
    def intercept(request):
        if "/preupload/" in request.path:
            (directory / "config.json").unlink(missing_ok=True)

    hub.intercept = intercept
    with pytest.raises(PublishError, match=r"changed since the check: config\.json"):
        changed()
    hub.intercept = None
    assert commits(hub) == 2


@both_ways
def test_a_file_that_the_hub_would_leave_out(changed, hub):
    def intercept(request):
        if "/preupload/" in request.path:
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": True} for name in _paths(request)]
            return _json({"files": files})
        return None

    hub.intercept = intercept
    with pytest.raises(PublishError, match=r"would leave out config\.json"):
        changed()
    hub.intercept = None
    assert commits(hub) == 2


def test_a_tree_that_is_not_what_was_pushed(changed, hub, api):
    def intercept(request):
        # After the commit the listing lacks a file.
        if "/tree/" in request.path and any("/commit/" in path for _, path in hub.requests):
            return _json([])
        return None

    hub.intercept = intercept
    with pytest.raises(VerificationFailed, match=r"missing: README\.md"):
        changed(tag="v1.0")
    hub.intercept = None
    assert not api.revision_exists(REPO, "v1.0")


# Every call, every fault: a push ends complete and verified, or with one of repokit's errors and nothing half done


CALLS = [
    "/refs",
    "/validate-yaml",
    "/tree/",
    "/preupload/",
    "/objects/batch",
    "^/objects/",
    "/lfs/verify",
    "/commit/",
    "/tag/",
]
ONCE = [
    *BUSY,
    Answer(429, b"", {"Retry-After": "100000000"}),
    Answer(401, b'{"error": "expired"}'),
    Answer(403, b'{"error": "no"}'),
    Answer(404, b'{"error": "gone"}'),
    Answer(409, b'{"error": "conflict"}'),
    Answer(412, b'{"error": "updated"}'),
    Answer(413, b"too large"),
    Answer(200, b"<html>"),
    Answer(200, b"{}"),
    Answer(200, b"[]"),
    Drop(),
    Drop(after=True),
    Drop(after=True, sent=5),
]


# What goes by: a push ends well in spite of it.
PASSING = [*BUSY, *(fault for fault in ONCE if isinstance(fault, Drop) or "Retry-After" in fault.headers)]
LIES = [("/tree/", Answer, b"{}"), ("/tree/", Answer, b"[]")]
# A listing that is well-formed and wrong is not a fault of the network: no client can tell.
MATRIX = [
    (call, fault)
    for call in CALLS
    for fault in ONCE
    if (call, fault.__class__, getattr(fault, "body", b"")) not in LIES
]


# By xet only the calls differ that upload: hf_xet makes them, tries them again, and has its own words for failures.
XET_CALLS = ["/xet-write-token/", "/v1/xorbs/", "/v1/shards", "/commit/"]
CASES = [
    *(("lfs", call, fault) for call, fault in MATRIX),
    *(("xet", call, fault) for call in XET_CALLS for fault in ONCE),
]


# A seeded sample of them in every run, all of them under `-m full`.
SAMPLE = frozenset(random.Random(1).sample(range(len(CASES)), 60))
SAMPLED = [pytest.param(*case, marks=() if number in SAMPLE else pytest.mark.full) for number, case in enumerate(CASES)]


@pytest.mark.parametrize(("transfer", "call", "fault"), SAMPLED, ids=str, indirect=["transfer"])
def test_one_fault_anywhere(changed, hub, directory, call, fault):
    (directory / "README.md").write_bytes(b"---\nlicense: apache-2.0\n---\n")
    hub.intercept = Faults(call, fault)
    with contextlib.ExitStack() as failing:
        if fault not in PASSING:
            failing.enter_context(contextlib.suppress(RepokitError))
        assert changed(tag="v1.0").verified_files == 5
    hub.intercept = None
    assert commits(hub) in {2, 3}
    again = changed(tag="v1.0")
    assert (commits(hub), again.verified_files) == (3, 5)
    assert hub.storage.resolve(_key(hub), "v1.0") == again.commit


@pytest.mark.parametrize("seed", range(8))
def test_many_faults_at_once(changed, hub, seed):
    chance = random.Random(seed)
    faults = [Answer(503, b""), Answer(200, b"<html>"), Drop(), Drop(after=True), Answer(502, b"", after=True)]

    def intercept(request):
        if any(part in request.path for part in ("/commit/", "/refs", "/revision/", "/tag/")) and chance.random() < 0.3:
            return chance.choice(faults)
        return None

    hub.intercept = intercept
    assert changed(tag="v1.0").verified_files == 5
    hub.intercept = None
    assert commits(hub) == 3


def test_a_silent_hub_is_not_waited_for_longer_than_the_limit(changed, hub, monkeypatch, waits):
    monkeypatch.setattr(session, "TIMEOUT", 0.2)
    release = threading.Event()
    silent = [True]

    def intercept(request):
        if "/refs" in request.path and silent:
            silent.pop()
            release.wait(10)

    hub.intercept = intercept
    try:
        assert changed().verified_files == 5
    finally:
        release.set()
    assert waits == [1]


def test_a_hub_that_is_not_there(go, hub, waits):
    hub.close()
    with pytest.raises(HubUnreachable) as failed:
        go(endpoint="http://127.0.0.1:9")
    hub.start()
    assert "HF_ENDPOINT" in failed.value.hint
    assert waits == []


def test_an_offline_client_says_so(go, published, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnreachable, match="offline") as failed:
        go()
    assert failed.value.hint == "unset HF_HUB_OFFLINE"


@both_ways
def test_a_token_that_expires_during_the_upload(changed, hub):
    hub.intercept = Faults("/commit/", Answer(401, b'{"error": "expired"}'))
    with pytest.raises(NotAuthorized, match="expired"):
        changed()
    hub.intercept = None
    assert commits(hub) == 2


class Others:
    """Somebody else commits `theirs.txt` once, when a request for `part` arrives."""

    def __init__(self, hub, part, fault=None):
        self.api = HfApi(endpoint=hub.endpoint, token=hub.token)
        self.part = re.compile(part)
        self.fault = fault
        self.commit = None

    def __call__(self, request):
        if self.commit is not None or not self.part.search(request.path):
            return None
        self.commit = ""  # their own requests come through here too
        done = self.api.create_commit(REPO, [CommitOperationAdd("theirs.txt", b"x")], commit_message="theirs")
        self.commit = done.oid
        return self.fault


def commits(hub):
    """How many there are on main."""
    return len(list(hub.storage.history(hub.storage.resolve(_key(hub), "main"))))


def _paths(request):
    return [file["path"] for file in request.json()["files"]]


def _json(value):
    import json

    return Answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _key(hub):
    return next(iter(hub.storage.keys()))


# Xet storage


@by_xet
@pytest.mark.parametrize(
    ("call", "fault", "expected"),
    [
        ("/xet-write-token/", Answer(404, b"{}"), (PublishError, "HF_HUB_DISABLE_XET=1")),
        ("/xet-write-token/", Answer(401, b"{}"), (NotAuthorized, "hf auth login")),
        ("/xet-write-token/", Answer(403, b"{}"), (NotAuthorized, "write access")),
        ("/xet-write-token/", Answer(503, b"busy"), (HubUnreachable, "again")),
        ("/xet-write-token/", Answer(200, b"<html>"), (HubUnreachable, "again")),
        ("/xet-write-token/", Answer(200, b"{}"), (HubUnreachable, "again")),
        ("/xet-write-token/", Drop(), (HubUnreachable, "again")),
        ("/v1/xorbs/", Answer(503, b"busy"), (HubUnreachable, "again")),
        ("/v1/xorbs/", Answer(507, b"full"), (PublishError, "again")),
        ("/v1/shards", Answer(400, b"no"), (PublishError, "again")),
        ("/v1/xorbs/", Drop(), (HubUnreachable, "again")),
    ],
    ids=str,
)
def test_xet_storage_that_stays_broken_is_an_error_with_a_way_out(changed, hub, call, fault, expected):
    kind, hint = expected
    hub.intercept = Faults(call, *[fault] * 100)
    with pytest.raises(kind) as failed:
        changed()
    hub.intercept = None
    assert hint in failed.value.hint
    assert "\n" not in failed.value.what
    assert commits(hub) == 2


@by_xet
@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", b'{"accessToken": "x", "exp": "soon", "casUrl": 1}'])
def test_what_is_no_token_for_xet_storage_is_not_left_to_hf_xet(changed, hub, waits, answer):
    """It would ask for four minutes."""
    hub.intercept = Faults("/xet-write-token/", *[Answer(200, answer)] * 100)
    hub.requests.clear()
    with pytest.raises(HubUnreachable, match="not the Hub's"):
        changed()
    hub.intercept = None
    asked = [path for _, path in hub.requests if "/xet-write-token/" in path]
    assert (waits, len(asked)) == (list(WAITS), len(WAITS) + 1)


@by_xet
@pytest.mark.parametrize("place", ["/dev/null/none", "/proc/none"])
def test_xet_storage_that_cannot_be_written(changed, hub, place):
    body = {"accessToken": "x", "exp": 4_000_000_000, "casUrl": f"local://{place}"}
    hub.intercept = Faults("/xet-write-token/", *[_json(body)] * 2)  # for the check, and for hf_xet
    with pytest.raises(PublishError, match="could not upload the files") as failed:
        changed()
    hub.intercept = None
    assert "HF_HUB_DISABLE_XET=1" in failed.value.hint


@by_xet
def test_chunks_that_make_another_file_are_refused(changed, hub):
    """The Hub puts together what was uploaded, and hashes it."""

    def intercept(request):
        if request.path.endswith("/v1/shards"):
            shard = request.read()
            request._body = shard.replace(_words(SHA256_OF_900_ZEROS), _words("0" * 64))

    hub.intercept = intercept
    with pytest.raises(PublishError, match="does not exist"):
        changed()
    hub.intercept = None
    assert commits(hub) == 2


SHA256_OF_900_ZEROS = hashlib.sha256(bytes(900)).hexdigest()


def _words(sha256):
    """As xet writes a hash: the bytes of each 64-bit number in the order of this machine."""
    raw = bytes.fromhex(sha256)
    return b"".join(raw[at : at + 8][::-1] for at in range(0, 32, 8))
