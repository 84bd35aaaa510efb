"""A Hub that lies, floods or stalls, and repositories that no one would make: bounded, and never a finding or a crash."""

from __future__ import annotations

import json
import re
import threading

import pytest

from repokit.errors import HubUnreachable, LimitExceeded, MissingInput, NotAuthorized, RepokitError, UsageError
from repokit.formats.safetensors import FIRST_READ, header_bytes
from repokit.formats.tensors import TensorInfo
from repokit.hub import revision_reader
from repokit.hub.address import Address
from repokit.linter import engine
from repokit.linter.examples import BASES, sharded, single
from repokit.linter.finding import Severity
from repokit.rehearsal import Answer
from repokit.repo import hub as hub_module
from repokit.repo.directory import Directory
from repokit.repo.hub import HubRevision
from repokit.repo.hub_cache import Cache
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.source import Kind

REPO = "rehearsal/model"
BLOB = "0" * 40


def report_of(source):
    with Repository(source) as repository:
        return engine.lint(repository)


def listing(*entries, **headers):
    return Answer(200, json.dumps(entries).encode(), {name.replace("_", "-"): text for name, text in headers.items()})


def line(path, size=0, blob_id=BLOB):
    return {"type": "file", "path": path, "size": size, "oid": blob_id}


@pytest.fixture
def lists(publish, hub):
    """Makes the Hub answer the listing with what a function of the request gives."""

    def lists(answer):
        publish(REPO, single())
        hub.intercept = lambda request: answer(request) if "/tree/" in request.path else None

    return lists


# ---------------------------------------------------------------- the commit


@pytest.mark.parametrize("name", ["../x", "..", "a/..", "a/b/c", "a b", "a?b", "a\0b", "\ud800", "\x1b[31m", 7, ["a"]])
def test_a_repository_that_has_no_such_name(name, publish, hub, open_revision):
    publish(REPO, single())
    body = json.dumps({"id": name, "sha": BLOB}).encode()
    hub.intercept = lambda request: Answer(200, body) if "/revision/" in request.path else None
    with pytest.raises(HubUnreachable, match="that of no repository"):
        open_revision()


def test_a_rename_that_leads_in_a_circle_is_not_tried_again(publish, hub, waits, open_revision):
    publish(REPO, single())
    hub.intercept = lambda request: Answer(301, b"", {"Location": request.path})
    with pytest.raises(HubUnreachable, match="redirects more than"):
        open_revision()
    assert waits == []


@pytest.mark.parametrize("body", [b"[" + b"{}," * 60 + b"{}]", b"[" + b"7," * 60 + b"7]"], ids=["objects", "numbers"])
def test_more_values_than_any_answer_has_are_not_parsed(body, publish, hub, monkeypatch, open_revision):
    publish(REPO, single())
    monkeypatch.setattr(revision_reader, "_MOST_VALUES", 50)
    hub.intercept = lambda _: Answer(200, body)
    with pytest.raises(LimitExceeded, match="more than 50 values"):
        open_revision()


# ---------------------------------------------------------------- the listing


@pytest.mark.parametrize("path", ["../../../api/whoami-v2", "a/../../b", "/etc/passwd", "a//b"])
def test_a_path_that_leads_out_of_the_repository_is_never_asked_for(path, lists, hub, open_revision):
    lists(lambda _: listing(line(path, 5)))
    with pytest.raises(HubUnreachable, match="no file"):
        open_revision()
    assert not [asked for _, asked in hub.requests if "whoami" in asked or "/resolve/" in asked]


def test_a_path_that_is_listed_twice(lists, open_revision):
    lists(lambda _: listing(line("a"), line("a")))
    with pytest.raises(HubUnreachable, match="listed twice"):
        open_revision()


def test_a_name_that_would_rewrite_the_screen_is_shown_harmless(lists, open_revision):
    lists(lambda _: listing(line("\x1b[2Jconfig.json", 5)))
    with pytest.raises(RepokitError) as failed:
        open_revision()
    assert str(failed.value).isprintable()


@pytest.mark.parametrize("target", ["http://[/?a=b c", "?a=\x7f", "?a=\xe9", f"?{'a' * 4500}"])
def test_a_next_page_that_is_no_address(target, lists, open_revision):
    lists(lambda _: listing(line("a"), Link=f'<{target}>; rel="next"'))
    with pytest.raises(HubUnreachable, match="next page"):
        open_revision()


def test_pages_that_come_again_have_an_end(lists, hub, open_revision):
    folder = {"type": "directory", "path": "a", "oid": BLOB}
    lists(lambda _: listing(folder, Link='<?recursive=true&cursor=1>; rel="next"'))
    with pytest.raises(HubUnreachable, match="no end"):
        open_revision()
    assert len([path for _, path in hub.requests if "/tree/" in path]) == 2


def test_pages_without_end_have_an_end(lists, monkeypatch, open_revision):
    monkeypatch.setattr(revision_reader, "_MOST_PAGES", 4)
    cursors = iter(range(10**9))
    folder = {"type": "directory", "path": "a", "oid": BLOB}
    lists(lambda _: listing(folder, Link=f'<?cursor={next(cursors)}>; rel="next"'))
    with pytest.raises(HubUnreachable, match="no end"):
        open_revision()
    assert next(cursors) == 4


def test_folders_deeper_than_in_any_repository(lists, open_revision):
    lists(lambda _: listing(line("a/" * 40 + "b")))
    with pytest.raises(LimitExceeded, match="nested deeper"):
        open_revision()


def test_a_folder_with_the_name_of_a_file_is_listed_as_in_a_directory(publish, open_revision, tmp_path):
    files = {**single(), "extra.json/readme.txt": b"a", "x/y.safetensors/z/w.txt": b"b"}
    publish(REPO, files)
    for path, content in files.items():
        (tmp_path / "dist" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dist" / path).write_bytes(content)
    remote, local = open_revision(), Directory(tmp_path / "dist")
    folders = {path: entry for path, entry in remote.entries().items() if entry.kind is Kind.FOLDER}
    assert folders == {path: entry for path, entry in local.entries().items() if entry.kind is Kind.FOLDER}
    assert report_of(remote).findings == report_of(local).findings


# ---------------------------------------------------------------- too much to read


def many():
    notes = {f"notes/{number}.txt": b"text %d" % number for number in range(20)}
    return {**sharded(), **notes}


def test_of_too_many_files_those_of_the_model_are_read_first(publish, hub, monkeypatch, open_revision):
    publish(REPO, many())
    monkeypatch.setattr(hub_module, "_MOST_BEGUN", 12)
    open_revision()
    read = {path.partition("/resolve/")[2].partition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert (len(read), {"config.json", "tokenizer.json", "model-00001-of-00003.safetensors"} - read) == (12, set())


def test_what_is_not_read_at_once_is_read_when_it_is_asked_for(publish, monkeypatch, open_revision):
    publish(REPO, many())
    monkeypatch.setattr(hub_module, "_MOST_BEGUN", 3)
    remote, local = report_of(open_revision()), report_of(Memory(many()))
    assert (remote.findings, remote.coverage) == (local.findings, local.coverage)


@pytest.mark.parametrize("room", [0, 2_000, 20_000])
@pytest.mark.parametrize("base", ["single", "sharded"])
def test_what_there_is_no_room_for_is_read_when_it_is_asked_for(room, base, publish, monkeypatch, open_revision):
    header = header_bytes([TensorInfo("a.weight", "U8", (399_936,), 0, 399_936)], {})
    files = {**BASES[base](), "extra/model.safetensors": (header + bytes(400_000))[: len(header) + 399_936]}
    publish(REPO, files)
    monkeypatch.setattr(hub_module, "_MOST_HELD", room)
    remote, local = report_of(open_revision()), report_of(Memory(files))
    assert (remote.findings, remote.coverage) == (local.findings, local.coverage)


def test_no_more_is_held_than_there_is_room_for(publish, monkeypatch, open_revision):
    publish(REPO, {**single(), **{f"{number}.json": b"%d" % number * 5_000 for number in range(10)}})
    monkeypatch.setattr(hub_module, "_MOST_HELD", 12_000)
    assert sum(map(len, open_revision()._begun.values())) <= 12_000


@pytest.mark.parametrize("limit", ["_MOST_LATER_IN_ALL", "_MOST_LATER_BYTES"])
def test_what_is_too_much_for_a_network_is_unread_and_never_clean(limit, publish, monkeypatch, open_revision):
    publish(REPO, many())
    monkeypatch.setattr(hub_module, "_MOST_BEGUN", 12)
    monkeypatch.setattr(hub_module, limit, 5)
    found = report_of(open_revision())
    assert any("more to look at" in what for what in found.coverage.unread)
    assert found.exit_code() == 2


# ---------------------------------------------------------------- what goes on meanwhile


def test_one_failure_ends_what_is_under_way(publish, hub, open_revision):
    publish(REPO, sharded())
    released, given_up = threading.Event(), []

    def intercept(request):
        if request.path.endswith("/config.json"):
            given_up.append(released.wait(20))
        return Answer(403, b"") if request.path.endswith("/tokenizer.json") else None

    hub.intercept = intercept
    with pytest.raises(NotAuthorized):
        open_revision()
    released.set()
    hub.intercept = None
    assert False not in given_up


def test_how_far_it_is_can_be_followed(publish, reader, tmp_path):
    publish(REPO, single())
    told = []
    HubRevision.open(Address(REPO), reader(), Cache(tmp_path), lambda *stage: told.append(stage))
    assert told[0] == ("list", 0, 1)
    assert {(stage, total) for stage, _, total in told[1:]} == {("files", len(single()) + 1)}


# ---------------------------------------------------------------- the cache


def test_a_listing_that_is_kept_and_is_none_is_asked_for_again(publish, hub, open_revision, tmp_path):
    commit = publish(REPO, single())
    for nonsense in (b"7", b"[7]", b'[["a"]]', b"{", b"[[1, 2, 3, 4, 5]]"):
        Cache(tmp_path / "cache").put(hub.endpoint, REPO, commit, "tree 1", content=nonsense)
        assert open_revision().entries().keys() >= single().keys()


def test_what_one_repository_says_is_not_believed_of_another(publish, hub, open_revision):
    """Ranges are taken on the word of the Hub: so they are kept for this repository only."""
    content = b"\x80\x02}q\x00." + bytes(400_000)
    for repo_id in (REPO, "rehearsal/other"):
        publish(repo_id, {"config.json": b"{}", "extra.bin": content})
    evil = Answer(206, b"x" * (FIRST_READ // 2), {"Content-Range": f"bytes 0-{FIRST_READ // 2 - 1}/{len(content)}"})
    hub.intercept = lambda request: evil if re.search(r"/other/resolve/.*extra\.bin", request.path) else None
    assert open_revision(repo_id="rehearsal/other").read("extra.bin", 0, 4) == b"xxxx"
    assert open_revision().read("extra.bin", 0, 4) == content[:4]


# ---------------------------------------------------------------- what is said


def test_a_password_in_the_address_of_the_hub_is_not_repeated(publish, hub, reader):
    publish(REPO, single())
    hub.intercept = lambda _: Answer(200, b"<html>")
    address = hub.endpoint.replace("//", "//user:secret@")
    with pytest.raises(HubUnreachable) as failed:
        reader(endpoint=address).commit(Address(REPO))
    assert (hub.endpoint in failed.value.hint, "secret" in f"{failed.value} {failed.value.hint}") == (True, False)


@pytest.mark.parametrize("token", ["", "hf_\n", "hf_\u20ac"], ids=ascii)
def test_a_token_that_cannot_be_sent(token, publish, waits, open_revision):
    publish(REPO, single())
    with pytest.raises(NotAuthorized, match="cannot be sent") as refused:
        open_revision(token=token)
    assert (waits, "hf_" in f"{refused.value}") == ([], False)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "ftp://127.0.0.1", "http://[::1"])
def test_an_address_that_is_none_is_not_tried_again(endpoint, reader, waits):
    with pytest.raises(UsageError) as failed:
        reader(endpoint=endpoint).commit(Address(REPO))
    assert ("HF_ENDPOINT" in failed.value.hint, waits) == (True, [])


def test_what_the_hub_does_not_give_while_rules_run_is_no_finding(publish, hub, monkeypatch, open_revision):
    publish(REPO, many())
    monkeypatch.setattr(hub_module, "_MOST_BEGUN", 12)
    remote = open_revision()
    hub.intercept = lambda _: Answer(403, b"")
    found = report_of(remote)
    said = found.at_least(Severity.WARNING)
    assert (list(said), bool(found.coverage.unread), found.exit_code()) == ([], True, 2)


def test_a_file_that_is_gone_from_the_hub_is_named(publish, hub, open_revision):
    publish(REPO, {**single(), "data.onnx": bytes(400_000)})
    remote = open_revision()
    hub.intercept = lambda _: Answer(301, b"", {"Location": "/round"})
    with pytest.raises(MissingInput) as failed:
        remote.read("data.onnx", 100_000, 10)
    assert failed.value.path == "data.onnx"
