"""A Hub as `HubRevision` reads it: one reader for every call, without sleeping, and a cache of the test's own."""

from __future__ import annotations

import pytest

from repokit.hub.address import Address
from repokit.hub.revision_reader import RevisionReader
from repokit.repo.hub import HubRevision
from repokit.repo.hub_cache import Cache

REPO = "rehearsal/model"


@pytest.fixture
def waits():
    return []


@pytest.fixture
def reader(hub, waits):
    """A reader of its own for every call."""

    def make(target=f"{REPO}@main", token=hub.token, endpoint=hub.endpoint):
        return RevisionReader(target, endpoint=endpoint, token=token, sleep=waits.append)

    return make


@pytest.fixture
def open_revision(reader, tmp_path):
    """Opens a revision, with a cache that the test keeps."""

    def open_(revision="main", repo_id=REPO, **options):
        address = Address(repo_id, revision)
        return HubRevision.open(address, reader(str(address), **options), Cache(tmp_path / "cache"))

    return open_


@pytest.fixture
def asked(hub):
    """The addresses that were asked for since the last call, of the Hub itself and not of its storage."""

    def take():
        paths = [path for _, path in hub.requests if not path.startswith("/objects/")]
        hub.requests.clear()
        return paths

    return take
