from __future__ import annotations

import http.client
import json
import socket
import threading
import warnings
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError

from repokit.rehearsal import Answer, Drop, Hub


def test_leaving_ends_every_thread_and_socket(tmp_path):
    before = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with Hub(tmp_path) as hub:
            idle = http.client.HTTPConnection("127.0.0.1", int(hub.endpoint.rpartition(":")[2]))
            idle.request("GET", "/api/agent-harnesses")
            idle.getresponse().read()
        assert set(threading.enumerate()) == before
        idle.close()
    with pytest.raises(ConnectionError):
        _talk(hub, b"GET / HTTP/1.1\r\n\r\n")


def test_nothing_is_printed(hub, capfd):
    _talk(hub, b"nonsense\r\n\r\n")
    _talk(hub, b"GET /absent HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"POST /api/validate-yaml HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/validate-yaml HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /api/validate-yaml HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_a_broken_request_is_answered_in_json(hub, sent):
    head, _, body = _talk(hub, sent).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 50"))
    assert isinstance(json.loads(body)["error"], str)


def test_a_chunked_body_is_put_together(hub):
    body = json.dumps({"content": "---\nlicense: mit\n---\n"}).encode()
    chunks = b"".join(b"%x;note=1\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
    head = b"POST /api/validate-yaml HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b'{"errors": [], "warnings": []}' in _talk(hub, head + chunks + b"0\r\nTrailer: x\r\n\r\n")


def test_a_body_that_nobody_read_is_not_taken_for_a_request(hub):
    unread = b"POST /absent HTTP/1.1\r\nContent-Length: 20\r\n\r\n" + b"GET /no HTTP/1.1\r\n\r\n"
    answers = _talk(hub, unread + b"GET /api/agent-harnesses HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 ") == 2


def test_equal_requests_have_equal_answers(hub):
    asked = b"GET /api/agent-harnesses HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert _talk(hub, asked) == _talk(hub, asked)


def test_a_method_that_an_address_does_not_know(hub):
    assert huggingface_hub.get_session().post(f"{hub.endpoint}/api/whoami-v2").status_code == 405


def test_a_fault_stands_in_for_the_answer(api, hub, repo):
    before = api.repo_info(repo).sha
    hub.intercept = _at("/commit/", Answer(500, b"<html>"))
    with pytest.raises(HfHubHTTPError) as failed:
        _commit(api, repo)
    hub.intercept = None
    assert failed.value.response.status_code == 500
    assert api.repo_info(repo).sha == before


def test_a_dropped_connection_changes_nothing(api, hub, repo):
    before = api.repo_info(repo).sha
    hub.intercept = _at("/commit/", Drop())
    with pytest.raises(Exception, match=r"disconnected|reset"):
        _commit(api, repo)
    hub.intercept = None
    assert api.repo_info(repo).sha == before


def test_a_lost_answer_leaves_the_commit(api, hub, repo):
    hub.intercept = _at("/commit/", Drop(after=True))
    with pytest.raises(Exception, match=r"disconnected|reset"):
        _commit(api, repo)
    hub.intercept = None
    assert api.file_exists(repo, "a")


def test_an_answer_that_breaks_off(api, hub, repo):
    hub.intercept = _at("/commit/", Drop(after=True, sent=10))
    with pytest.raises(Exception, match=r"closed|reset"):
        _commit(api, repo)
    hub.intercept = None
    assert api.file_exists(repo, "a")


def test_an_answer_in_place_of_the_true_one(api, hub, repo):
    hub.intercept = _at("/commit/", Answer(200, b"garbage", after=True))
    with pytest.raises(json.JSONDecodeError):
        _commit(api, repo)
    hub.intercept = None
    assert api.file_exists(repo, "a")


def test_a_download_that_breaks_off_is_resumed(api, hub, repo, weights, monkeypatch):
    breaks = [Drop(after=True, sent=30)]
    hub.intercept = lambda request: breaks.pop() if breaks and "/objects/" in request.path else None
    monkeypatch.setattr("time.sleep", lambda _: None)
    path = huggingface_hub.hf_hub_download(repo, "model.safetensors", endpoint=hub.endpoint)
    assert Path(path).read_bytes() == weights


def test_what_a_fault_looks_at(api, hub, repo):
    seen = []
    hub.intercept = lambda request: seen.append((request.method, request.path, request.option("recursive")))
    list(api.list_repo_tree(repo, recursive=True))
    assert seen == [("GET", f"/api/models/{repo}/tree/main", "true")]


def test_a_fault_may_read_the_body_and_the_hub_reads_it_too(api, hub, repo):
    lines = []
    hub.intercept = lambda request: lines.append(request.read()) if "/commit/" in request.path else None
    _commit(api, repo)
    assert b'"summary": "m"' in lines[0]
    assert api.file_exists(repo, "a")


def test_a_failure_inside_is_remembered_and_answered(tmp_path):
    with Hub(tmp_path) as hub:
        hub.storage.state = None
        answer = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/a/b")
        assert (answer.status_code, answer.json()) == (500, {"error": "Internal error"})
        assert len(hub.failures) == 1


def _at(part, fault):
    return lambda request: fault if part in request.path else None


def _commit(api, repo):
    api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m")


def _talk(hub, sent):
    """Sends bytes as they are and reads until the Hub hangs up."""
    with socket.create_connection(("127.0.0.1", int(hub.endpoint.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received
