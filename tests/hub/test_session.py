"""Limits on the client that all of huggingface_hub shares: there while repokit asks, and gone afterwards."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub import get_session
from huggingface_hub.utils import http_backoff

from repokit.errors import HubUnreachable
from repokit.hub.session import TIMEOUT, asking


def limits():
    return get_session().timeout.read, len(get_session().event_hooks["response"])


def test_there_is_a_limit_inside_and_none_outside():
    before = limits()
    with asking("read", "org/name"):
        assert limits() == (TIMEOUT, before[1] + 1)
    assert limits() == before


def test_one_inside_the_other_gives_back_what_was():
    with asking("read", "org/name", timeout=7.0):
        outer = limits()
        with asking("read", "org/name", timeout=9.0):
            assert limits()[0] == 9.0
        assert limits() == outer


def test_a_client_that_is_made_anew_is_limited_too(monkeypatch):
    """huggingface_hub throws its client away where nobody answers, and tries again with another."""
    seen = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: seen.append(limits()[0]))
    with pytest.raises(HubUnreachable), asking("read", "org/name"):
        http_backoff("GET", "http://127.0.0.1:9/x")
    assert set(seen) == {TIMEOUT}


def test_a_client_that_is_made_anew_is_given_back_as_it_was():
    before = limits()
    with asking("read", "org/name"):
        huggingface_hub.close_session()
        get_session()
    assert limits() == before
    huggingface_hub.close_session()
    assert limits() == before
