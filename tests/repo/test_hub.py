"""A revision on the Hub is the same repository as the directory that was pushed, at the price that design allows.

The Hub is real HTTP on 127.0.0.1 with a storage at another origin, and the client is huggingface_hub's own.
"""

from __future__ import annotations

import functools
import json
import random
import re
import threading

import pytest
from huggingface_hub import constants

from repokit.errors import (
    HubUnreachable,
    LimitExceeded,
    MissingInput,
    NotAuthorized,
    RevisionNotFound,
    UnsupportedSource,
)
from repokit.formats.safetensors import FIRST_READ, MAX_HEADER, header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo
from repokit.hub import revision_reader, transport
from repokit.hub.address import Address
from repokit.hub.revision_reader import WAITS, RevisionReader
from repokit.linter import engine
from repokit.linter.examples import BASES, sharded, single
from repokit.linter.examples_torch import torch_file
from repokit.rehearsal import Answer, Drop
from repokit.rehearsal.commits import Add, Message, large_file
from repokit.rehearsal.storage import BRANCHES, TAGS, Key
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

REPO = "rehearsal/model"
KEY = Key("models", "rehearsal", "model")
ATTRIBUTES = 1  # the Hub's own .gitattributes


def report_of(source):
    with Repository(source) as repository:
        return engine.lint(repository)


# ---------------------------------------------------------------- the same answers


@pytest.mark.parametrize("base", BASES)
def test_findings_and_coverage_are_those_of_the_directory(base, publish, open_revision):
    files = BASES[base]()
    publish(REPO, files)
    remote, local = report_of(open_revision()), report_of(Memory(files))
    assert (remote.findings, remote.coverage) == (local.findings, local.coverage)


def broken():
    files = dict(sharded())
    files["config.json"] = files["config.json"].replace(b'"vocab_size":', b'"vocab_size": "x", "was":')
    files["model-00002-of-00003.safetensors"] = b"<!DOCTYPE html>" + bytes(300_000)
    files["model-00003-of-00003.safetensors"] = b"\x80\x02" + bytes(300_000)
    files["optimizer.pt"] = b"PK\x03\x04" + bytes(300_000)
    files["extra.bin"] = b"\x80\x02}q\x00." + bytes(300_000)
    files["data.onnx"] = b"\x80\x04" + bytes(300_000)
    files["notes.txt"] = b"token: hf_" + b"aBcDeFgHiJkLmNoPqRsTuVwXyZabcdefgh" + b"\n"
    return files


def test_defects_are_found_as_in_the_directory(publish, open_revision):
    publish(REPO, broken())
    remote, local = report_of(open_revision()), report_of(Memory(broken()))
    assert len(local.findings) > 5
    assert (remote.findings, remote.coverage) == (local.findings, local.coverage)


def test_every_range_is_that_of_the_file(publish, open_revision):
    source = random.Random(0)
    content = source.randbytes(700_000)
    files = {"whole.txt": content[:5000], "weights.bin": content, "data.onnx": content, "empty.txt": b""}
    publish(REPO, files)
    remote = open_revision()
    for _ in range(60):
        path = source.choice(list(files))
        offset, length = source.randrange(len(files[path]) + 9), source.choice([0, 1, 64, 300_000, None])
        end = None if length is None else offset + length
        assert remote.read(path, offset, length) == files[path][offset:end], (path, offset, length)


def test_entries_are_those_of_the_tree(publish, open_revision):
    publish(REPO, {"b/c.json": b"{}", "a.bin": bytes(9)})
    listed = open_revision().entries()
    assert [(path, entry.size) for path, entry in listed.items() if path != ".gitattributes"] == [
        ("a.bin", 9),
        ("b/c.json", 2),
    ]


def test_a_file_that_is_not_there_is_missing(publish, open_revision):
    publish(REPO, single())
    with pytest.raises(MissingInput, match="not in the repository"):
        open_revision().read("absent.json")


def test_the_label_is_what_was_asked_for(publish, open_revision):
    commit = publish(REPO, single())
    remote = open_revision()
    assert (remote.label, remote.commit.id) == (f"{REPO}@main", commit)


@pytest.mark.parametrize("revision", [None, "v1.0", "refs/pr/1", "release/one", "commit"])
def test_every_kind_of_revision_is_read(revision, publish, hub, open_revision):
    commit = publish(REPO, single())
    hub.storage.create_reference(KEY, TAGS, "v1.0", commit)
    hub.storage.create_reference(KEY, BRANCHES, "release/one", commit)
    hub.storage.pull_request(KEY, "main", [], Message("stranger", "a change"))
    found = open_revision(commit if revision == "commit" else revision)
    assert found.entries().keys() >= single().keys()


# ---------------------------------------------------------------- the price


@pytest.fixture
def shards(hub):
    """Publishes shards of a megabyte each, of holes, with headers of `tensors` tensors."""

    def publish_shards(number, tensors=2):
        hub.storage.create(KEY, author="rehearsal", private=False)
        additions, headers = [], 0
        for part in range(1, number + 1):
            path = f"model-{part:05}-of-{number:05}.safetensors"
            names = [f"model.layers.{part}.mlp.{step}.weight" for step in range(tensors)]
            placed = in_file_order(TensorInfo(name, "F32", (1024, max(1, 256 // tensors)), 0, 0) for name in names)
            header = header_bytes(placed, {"format": "pt"})
            headers += len(header)
            sha256 = f"{part:064x}"  # nobody reads the whole of it
            place = hub.storage.objects.path(sha256)
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as stream:
                stream.write(header)
                stream.truncate(len(header) + placed[-1].end)
            additions.append(Add(path, large_file(sha256, len(header) + placed[-1].end)))
        hub.storage.commit(KEY, "main", additions, Message("rehearsal", "shards"))
        return headers

    return publish_shards


def test_two_hundred_shards_cost_what_design_allows(shards, publish, hub, asked, open_revision):
    headers = shards(200)
    small = {path: content for path, content in single().items() if not path.endswith(".safetensors")}
    publish(REPO, small)
    before = hub.bytes_sent
    report_of(open_revision())
    listing = 2  # one page of the tree, and the commit that it is of
    assert len(asked()) <= listing + ATTRIBUTES + len(small) + 200
    texts = sum(map(len, small.values())) + 100_000  # and the listing itself
    assert hub.bytes_sent - before <= texts + headers + 200 * FIRST_READ


def test_a_second_look_asks_for_the_commit_alone(shards, publish, asked, open_revision):
    shards(20)
    publish(REPO, single())
    first = report_of(open_revision())
    asked()
    assert report_of(open_revision()) == first
    assert asked() == [f"/api/models/{REPO}/revision/main"]


def test_another_commit_costs_what_changed(publish, asked, open_revision):
    publish(REPO, single())
    open_revision()
    publish(REPO, {"README.md": b"---\nlicense: mit\n---\n"})
    asked()
    open_revision()
    read = [path for path in asked() if "/resolve/" in path]
    assert [path.rpartition("/")[2] for path in read] == ["README.md"]


def test_a_long_header_takes_one_more_request(shards, asked, open_revision):
    headers = shards(1, tensors=4000)
    assert headers > FIRST_READ
    remote = open_revision()
    asked_for = asked()
    with Repository(remote) as repository:
        assert len(repository.header("model-00001-of-00001.safetensors").tensors) == 4000
    assert (len([path for path in asked_for if "safetensors" in path]), asked()) == (2, [])


def test_the_over_read_is_not_kept(shards, tmp_path, open_revision):
    shards(5)
    open_revision()
    assert sum(path.stat().st_size for path in tmp_path.glob("cache/**/*") if path.is_file()) < 20_000


@pytest.mark.parametrize(
    "begin",
    [
        (MAX_HEADER + 1).to_bytes(8, "little") + b"{",
        (50_000_000).to_bytes(8, "little") + b"{",
        (200_000_000_000).to_bytes(8, "little") + b"{",
        (50_000).to_bytes(8, "little") + b"no JSON",
        b"\0" * 16,
    ],
    ids=["over the limit", "longer than the file", "longer than any file", "not JSON", "zeros"],
)
def test_a_header_that_lies_costs_no_more_than_a_true_one(begin, publish, hub, asked, open_revision):
    files = {"config.json": b"{}", "model.safetensors": begin.ljust(400_000, b"x")}
    publish(REPO, files)
    before = hub.bytes_sent
    remote = report_of(open_revision())
    assert len([path for path in asked() if path.endswith("model.safetensors")]) == 1
    assert hub.bytes_sent - before < FIRST_READ + 20_000
    assert remote.findings == report_of(Memory(files)).findings


def test_a_tree_of_two_pages_is_read_whole(publish, open_revision):
    publish(REPO, {**single(), **{f"empty/{number}.txt": b"" for number in range(1100)}})
    assert len(open_revision().entries()) == ATTRIBUTES + len(single()) + 1100


def test_a_torch_archive_is_read_at_both_ends(publish, hub, asked, open_revision):
    content = torch_file({"a.weight": ("F32", (600, 1000)), "b.weight": ("F32", (200, 1000))})
    publish(REPO, {"config.json": b"{}", "pytorch_model.bin": content})
    before = hub.bytes_sent
    with Repository(open_revision()) as repository:
        assert repository.pickles.globals("pytorch_model.bin")
        assert list(repository.pickles.table("pytorch_model.bin").tensors) == ["a.weight", "b.weight"]
    assert len([path for path in asked() if path.endswith("pytorch_model.bin")]) == 2
    assert hub.bytes_sent - before < FIRST_READ + 20_000


def test_a_file_that_is_read_all_over_is_for_whoever_has_it(publish, open_revision):
    publish(REPO, {"config.json": b"{}", "data.onnx": bytes(9_000_000)})
    remote = open_revision()
    for place in range(100_000, 100_000 + 40 * 200_000, 200_000):
        remote.read("data.onnx", place, 30)
    with pytest.raises(UnsupportedSource, match="more than 40 requests"):
        remote.read("data.onnx", 8_900_000, 30)


def test_what_no_rule_reads_is_begun_only(publish, hub, open_revision):
    publish(REPO, {"config.json": b"{}", "picture.png": bytes(3_000_000)})
    before = hub.bytes_sent
    assert open_revision().read("picture.png", 0, 64) == bytes(64)
    assert hub.bytes_sent - before < 20_000


# ---------------------------------------------------------------- who may read


def test_the_token_stays_with_the_hub(publish, hub, open_revision):
    publish(REPO, sharded(), private=True)
    seen = []
    hub.intercept = lambda request: seen.append((request.path, request.header("Authorization")))
    open_revision()
    hub.intercept = None
    stored = {sent for path, sent in seen if path.startswith("/objects/")}
    assert (stored, {sent for path, sent in seen if not path.startswith("/objects/")}) == (
        {""},
        {f"Bearer {hub.token}"},
    )


def test_the_address_of_the_next_page_is_not_trusted_with_the_token(publish, hub, open_revision):
    publish(REPO, {f"empty/{number}.txt": b"" for number in range(1100)})
    elsewhere = []

    def redirect(request):
        if "/tree/" not in request.path:
            return elsewhere.append(request.path) if request.path.startswith("/elsewhere") else None
        page = request.option("cursor")
        entry = {"type": "file", "path": f"page{page}.txt", "size": 0, "oid": "0" * 40}
        link = {} if page else {"Link": f'<{hub.bucket}/elsewhere?recursive=true&cursor=7>; rel="next"'}
        return Answer(200, json.dumps([entry]).encode(), link)

    hub.intercept = redirect
    assert (list(open_revision().entries()), elsewhere) == (["page.txt", "page7.txt"], [])


def test_a_private_repository_needs_a_token(publish, hub, open_revision):
    publish(REPO, single(), private=True)
    with pytest.raises(RevisionNotFound) as refused:
        open_revision(token=False)
    assert "private" in refused.value.why
    assert "HF_TOKEN" in refused.value.hint
    assert open_revision(token="hf_reader").entries()


def test_another_ones_private_repository_is_not_there(publish, open_revision):
    publish(REPO, single(), private=True)
    with pytest.raises(RevisionNotFound) as refused:
        open_revision(token="hf_stranger")
    assert "the token may not see it" in refused.value.why


def test_a_wrong_token_is_said_and_not_shown(publish, open_revision):
    publish(REPO, single())
    with pytest.raises(NotAuthorized) as refused:
        open_revision(token="hf_" + "wrong" * 7)
    assert "may read" in refused.value.hint
    assert "wrongwrong" not in f"{refused.value} {refused.value.why} {refused.value.hint}"


def test_a_gated_repository_says_where_to_accept(publish, hub, open_revision):
    publish(REPO, single())
    hub.storage.configure(KEY, gated=True)
    with pytest.raises(NotAuthorized) as refused:
        open_revision(token="hf_stranger")
    assert f"accept its conditions at {hub.endpoint}/{REPO}" in refused.value.hint


def test_a_repository_that_is_absent(open_revision):
    with pytest.raises(RevisionNotFound, match="repository not found") as refused:
        open_revision(repo_id="rehearsal/absent")
    assert "check the name" in refused.value.hint


def test_a_revision_that_is_absent_names_the_nearest(publish, hub, open_revision):
    commit = publish(REPO, single())
    hub.storage.create_reference(KEY, TAGS, "v1.0", commit)
    with pytest.raises(RevisionNotFound, match="revision not found") as refused:
        open_revision("v1.o")
    assert f"{REPO}@v1.0" in refused.value.hint


def test_a_repository_that_was_renamed_is_read_under_its_new_name(publish, hub, open_revision):
    commit = publish(REPO, single())

    def moved(request):
        if "/rehearsal/old" in request.path:
            return Answer(307, b"", {"Location": hub.endpoint + request.path.replace("/old", "/model")})
        return None

    hub.intercept = moved
    found = open_revision(repo_id="rehearsal/old")
    assert (found.commit, found.label) == ((REPO, commit), "rehearsal/old@main")


def test_a_repository_without_a_commit_is_empty(publish, hub, open_revision):
    hub.intercept = lambda _: Answer(200, b'{"id": "rehearsal/model", "sha": null}')
    with pytest.raises(RevisionNotFound, match="has no commit"):
        open_revision()


# ---------------------------------------------------------------- what is not the Hub's answer

PAGE = Answer(200, b"<!DOCTYPE html><html>Sign in</html>", {"Content-Type": "text/html"})
COMMIT = "/revision/"
TREE = "/tree/"
TEXT = "/resolve/[^/]*/config.json"
SHARD = "/objects/"

WRONG = [
    (COMMIT, PAGE),
    (COMMIT, Answer(200, b"")),
    (COMMIT, Answer(200, b"[]")),
    (COMMIT, Answer(200, b"[" * 100_000)),
    (COMMIT, Answer(200, b'{"sha": "main"}')),
    (COMMIT, Answer(200, b'{"sha": 7}')),
    (TREE, PAGE),
    (TREE, Answer(200, b"{}")),
    (TREE, Answer(200, b"[7]")),
    (TREE, Answer(200, b'[{"type": "file", "path": "a"}]')),
    (TREE, Answer(200, b'[{"type": "file", "path": "a", "size": -1, "oid": "b"}]')),
    (TREE, Answer(200, b'[{"type": "file", "path": "\\ud800", "size": 1, "oid": "b"}]')),
    (TREE, Answer(200, b"[]", {"X-Repo-Commit": "0" * 40})),
    (TEXT, PAGE),
    (TEXT, Answer(200, b"")),
    (TEXT, Answer(200, b"{}")),
    (TEXT, Answer(200, b"{}", {"X-Repo-Commit": "0" * 40})),
    (SHARD, PAGE),
    (SHARD, Answer(206, bytes(FIRST_READ), {"Content-Range": "bytes 0-262143/262144"})),
    (SHARD, Answer(206, bytes(FIRST_READ), {"Content-Range": "bytes 1-262144/400000"})),
    (SHARD, Answer(206, bytes(FIRST_READ))),
    (SHARD, Answer(206, bytes(10), {"Content-Range": "bytes 0-262143/400000"})),
    (SHARD, Answer(200, bytes(FIRST_READ))),
    ("/resolve/.*safetensors", Answer(200, bytes(FIRST_READ))),
    (
        "/resolve/.*safetensors",
        Answer(206, bytes(FIRST_READ), {"X-Linked-ETag": '"0"', "Content-Range": "bytes 0-262143/400000"}),
    ),
]


def large():
    """A repository whose weights are longer than what is read of them."""
    header = header_bytes([TensorInfo("a.weight", "U8", (399_936,), 0, 399_936)], {})
    return {**single(), "model.safetensors": (header + bytes(400_000))[: len(header) + 399_936]}


@functools.cache
def findings_of_large():
    return report_of(Memory(large())).findings


@pytest.fixture
def opened(publish, open_revision):
    """`open_revision`, once the files are there."""

    def make(files):
        publish(REPO, files)
        return open_revision

    return make


def faulty(part, fault):
    pattern = re.compile(part)
    return lambda request: fault if pattern.search(request.path) else None


@pytest.mark.parametrize(("part", "fault"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_not_the_hubs_answer_is_an_error_and_is_not_kept(part, fault, hub, waits, opened):
    open_revision = opened(large())
    hub.intercept = faulty(part, fault)
    with pytest.raises(HubUnreachable) as failed:
        open_revision()
    assert (failed.value.why is not None, failed.value.hint is not None, waits) == (True, True, [])
    hub.intercept = None
    assert report_of(open_revision()).findings == findings_of_large()


@pytest.mark.parametrize("part", [COMMIT, TREE, TEXT, SHARD])
@pytest.mark.parametrize("fault", [Drop(), Drop(after=True), Drop(after=True, sent=30), Answer(503, b"")], ids=str)
def test_a_hub_that_stays_broken_is_given_up(part, fault, hub, waits, opened):
    open_revision = opened(large())
    hub.intercept = faulty(part, fault)
    with pytest.raises(HubUnreachable) as failed:
        open_revision()
    assert waits == list(WAITS)
    assert "again" in failed.value.hint
    hub.intercept = None
    assert report_of(open_revision()).findings == findings_of_large()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_hub_that_is_busy_is_asked_again(status, publish, hub, waits, open_revision):
    publish(REPO, single())
    faults = [Answer(status, b"busy", {"Retry-After": "5000"})]
    hub.intercept = lambda request: faults.pop() if faults and TREE in request.path else None
    assert open_revision().entries()
    assert waits == [60]


def test_an_address_where_nobody_is_is_not_waited_for(waits, real_client):
    reader = RevisionReader(REPO, endpoint=constants.ENDPOINT, token=False, sleep=waits.append)
    with pytest.raises(HubUnreachable) as failed:
        reader.commit(Address(REPO))
    assert ("HF_ENDPOINT" in failed.value.hint, waits) == (True, [])


def test_an_answer_that_never_comes_is_given_up(publish, hub, waits, monkeypatch, open_revision):
    publish(REPO, single())
    over = threading.Event()
    monkeypatch.setattr(transport, "TIMEOUT", 0.05)
    monkeypatch.setattr(revision_reader, "_PATIENCE", 0.0)
    hub.intercept = lambda request: over.wait(20) and None if TREE in request.path else None
    try:
        with pytest.raises(HubUnreachable, match="list the files"):
            open_revision()
    finally:
        over.set()
        hub.intercept = None
    assert waits == []


def test_a_server_without_ranges_serves_the_beginning(publish, hub, open_revision):
    publish(REPO, large())

    def whole(request):
        del request.headers["Range"]

    hub.intercept = whole
    assert report_of(open_revision()).findings == findings_of_large()


def test_a_server_without_ranges_gives_no_second_part(shards, hub, open_revision):
    shards(1, tensors=4000)

    def whole(request):
        del request.headers["Range"]

    hub.intercept = whole
    with pytest.raises(HubUnreachable, match="sends no ranges"):
        open_revision()


def test_more_files_than_the_hub_takes(publish, monkeypatch, open_revision):
    publish(REPO, single())
    monkeypatch.setattr(revision_reader, "MAX_FILES", 3)
    with pytest.raises(LimitExceeded, match="more than 3 files"):
        open_revision()


def test_what_fails_while_rules_run_is_unread(publish, hub, open_revision):
    publish(REPO, {**single(), "data.onnx": bytes(400_000)})
    remote = open_revision()
    hub.intercept = lambda _: Answer(403, b"")
    with pytest.raises(MissingInput) as failed:
        remote.read("data.onnx", 100_000, 10)
    assert failed.value.path == "data.onnx"


# ---------------------------------------------------------------- offline


@pytest.fixture
def offline(monkeypatch):
    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_offline_a_commit_that_was_read_is_read_again(publish, asked, offline, open_revision):
    commit = publish(REPO, single())
    first = report_of(open_revision(commit))
    asked()
    offline()
    assert (report_of(open_revision(commit)), asked()) == (first, [])


@pytest.mark.parametrize("revision", ["main", "0" * 40])
def test_offline_anything_else_is_one_clear_error(revision, publish, asked, offline, open_revision):
    publish(REPO, single())
    open_revision()
    asked()
    offline()
    with pytest.raises(HubUnreachable, match="offline") as failed:
        open_revision(revision)
    assert ("HF_HUB_OFFLINE" in failed.value.hint, asked()) == (True, [])
