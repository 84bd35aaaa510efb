from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from repokit.errors import VerificationFailed
from repokit.publisher.hub_client import HubClient
from repokit.publisher.local_tree import hashed, listed
from repokit.publisher.verify import check_tree

REPO = "rehearsal/model"


@pytest.fixture
def check(hub, directory):
    """Compares the directory with the tree that the Hub lists now."""

    def compare():
        local = hashed(listed(directory), lambda _done, _total: None)
        check_tree(REPO, local, HubClient(REPO, endpoint=hub.endpoint, token=hub.token).tree("main"))

    return compare


def test_what_was_pushed_is_verified(check, published):
    check()


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        (CommitOperationAdd("config.json", b"{ }"), "other content: config.json"),
        (CommitOperationAdd("theirs.txt", b"x"), "too many: theirs.txt"),
        (CommitOperationDelete("empty.txt"), "missing: empty.txt"),
        (CommitOperationAdd("model-00001-of-00002.safetensors", b"\0" * 5136), "other content: model-00001"),
    ],
    ids=["content", "more", "less", "weights"],
)
def test_a_difference_is_named(check, published, api, operation, told):
    api.create_commit(REPO, [operation], commit_message="m")
    with pytest.raises(VerificationFailed, match=told):
        check()
