from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from repokit.errors import RevisionNotFound, VerificationFailed
from repokit.publisher.verify import verify

REPO = "rehearsal/model"


@pytest.fixture
def check(hub, directory):
    return lambda **options: verify(directory, REPO, endpoint=hub.endpoint, token=hub.token, **options)


def test_what_was_pushed_is_verified(check, published):
    found = check()
    assert (found.commit, found.files) == (published, 6)


def test_a_tag_is_verified(check, published, api):
    api.create_tag(REPO, tag="v1.0")
    api.upload_file(repo_id=REPO, path_or_fileobj=b"x", path_in_repo="later.txt")
    assert check(revision="v1.0").commit == published


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


def test_no_weights_are_downloaded(check, published, hub):
    check()
    assert [path for _, path in hub.requests] == [
        f"/api/models/{REPO}/revision/main",
        f"/api/models/{REPO}/tree/{published}",
    ]


def test_an_absent_revision(check, published):
    with pytest.raises(RevisionNotFound):
        check(revision="mian")


def test_progress_is_told(check, published):
    told = []
    check(listener=lambda *step: told.append(step))
    assert {stage for stage, _, _ in told} == {"hash"}
    assert told[-1][1] == told[-1][2]
