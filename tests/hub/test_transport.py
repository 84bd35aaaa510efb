"""One GET against servers that do not end: every limit is the client's own."""

from __future__ import annotations

import gzip
import threading
import tracemalloc

import pytest
from huggingface_hub.errors import HfHubHTTPError

from repokit.hub import transport
from repokit.hub.transport import Abandoned, NotAnAnswer, get
from repokit.rehearsal import Answer

ENDLESS = {"Content-Length": str(10**12)}


@pytest.fixture
def ask(hub):
    """What comes back from an address of the Hub."""
    return lambda path="/x", limit=1000, stopped=None: get(
        hub.endpoint + path, {"Authorization": "Bearer x"}, limit, stopped or threading.Event()
    )


@pytest.fixture
def silent(hub):
    """Lets no request be answered until it is set; false for those that nobody gave up in time."""
    released, given_up = threading.Event(), []

    def intercept(_):
        given_up.append(released.wait(20))

    hub.intercept = intercept
    yield released
    released.set()
    assert all(given_up)


def test_what_a_server_says_of_a_redirect_is_not_waited_for(hub, ask):
    there = Answer(302, bytes(200_000), {"Location": "/there", **ENDLESS})
    hub.intercept = lambda request: there if request.path == "/x" else Answer(200, b"found")
    assert ask().content == b"found"


def test_redirects_end(hub, ask):
    hub.intercept = lambda request: Answer(301, b"", {"Location": request.path + "x"})
    with pytest.raises(NotAnAnswer, match="redirects"):
        ask()
    assert len(hub.requests) == 6


def test_the_token_stays_at_the_origin(hub, ask):
    seen = {}

    def intercept(request):
        seen[request.path] = request.header("Authorization")
        if request.path == "/far":
            return Answer(200, b"")
        return Answer(302, b"", {"Location": "/near" if request.path == "/x" else f"{hub.bucket}/far"})

    hub.intercept = intercept
    ask()
    assert seen == {"/x": "Bearer x", "/near": "Bearer x", "/far": ""}


def test_what_a_server_says_of_a_refusal_is_not_waited_for(hub, ask):
    hub.intercept = lambda _: Answer(422, b'{"error": "said so"}' + b" " * 200_000, ENDLESS)
    with pytest.raises(HfHubHTTPError):
        ask()


def test_a_refusal_is_told(hub, ask):
    hub.intercept = lambda _: Answer(422, b'{"error": "said so"}')
    with pytest.raises(HfHubHTTPError) as refused:
        ask()
    assert refused.value.server_message == "said so"


def test_no_more_is_read_than_was_asked_for(hub, ask):
    hub.intercept = lambda _: Answer(200, bytes(500_000), ENDLESS)
    assert len(ask(limit=1000).content) == 1001


def test_what_was_packed_is_unpacked(hub, ask):
    hub.intercept = lambda _: Answer(200, gzip.compress(b"content"), {"Content-Encoding": "gzip"})
    assert ask().content == b"content"


def test_no_more_is_unpacked_than_was_asked_for(hub, ask):
    bomb = Answer(200, gzip.compress(bytes(100_000_000), 1), {"Content-Encoding": "gzip"})
    hub.intercept = lambda _: bomb
    tracemalloc.start()
    try:
        assert len(ask(limit=1000).content) == 1001
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("encoding", "words"), [("br", "nobody asked"), ("gzip", "is not")])
def test_what_cannot_be_unpacked_is_no_answer(hub, ask, encoding, words):
    hub.intercept = lambda _: Answer(200, b"content", {"Content-Encoding": encoding})
    with pytest.raises(NotAnAnswer, match=words):
        ask()


def test_headers_that_never_come_are_given_up(ask, silent, monkeypatch):
    monkeypatch.setattr(transport, "LONGEST", 0.05)
    with pytest.raises(TimeoutError):
        ask()
    silent.set()


def test_what_nobody_waits_for_any_more_is_given_up(ask, silent):
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Abandoned):
        ask(stopped=stopped)
    silent.set()
