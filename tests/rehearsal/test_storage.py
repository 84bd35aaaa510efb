from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download

from repokit.rehearsal import Hub
from repokit.rehearsal.commits import Add, Message, regular_file
from repokit.rehearsal.objects import Objects
from repokit.rehearsal.refusals import HubError, Unprocessable
from repokit.rehearsal.storage import Key, Storage

KEY = Key("models", "rehearsal", "model")
SAID = Message("rehearsal", "title")


def test_a_second_start_finds_everything_again(tmp_path, weights):
    folder = tmp_path / "hub"
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("rehearsal/model", private=True)
        api.create_branch("rehearsal/model", branch="release/v1")
        additions = [CommitOperationAdd("model.safetensors", weights), CommitOperationAdd("config.json", b"{}")]
        head = api.create_commit("rehearsal/model", additions, commit_message="m", revision="release/v1").oid
        api.create_tag("rehearsal/model", tag="v1.0", revision="release/v1")
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        assert api.repo_info("rehearsal/model", revision="v1.0").sha == head
        assert api.repo_info("rehearsal/model").private
        path = hf_hub_download(
            "rehearsal/model", "model.safetensors", revision="v1.0", endpoint=hub.endpoint, token=hub.token
        )
        assert Path(path).read_bytes() == weights


def test_bytes_that_arrived_before_a_stop_need_not_be_sent_again(tmp_path, weights):
    folder = tmp_path / "hub"
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("rehearsal/model")
        api.preupload_lfs_files("rehearsal/model", [CommitOperationAdd("model.safetensors", weights)])
    with Hub(folder) as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.token)
        api.upload_file(repo_id="rehearsal/model", path_or_fileobj=weights, path_in_repo="model.safetensors")
        assert [path for method, path in hub.requests if method == "PUT"] == []


def test_commits_from_many_threads_follow_each_other(tmp_path):
    storage = Storage(tmp_path)
    storage.create(KEY, author="rehearsal", private=False)

    def commit(number):
        content = str(number).encode()
        file = regular_file(content, storage.objects.add(content))
        storage.commit(KEY, "main", [Add(f"{number}.txt", file)], SAID)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(commit, range(40)))
    history = list(storage.history(storage.resolve(KEY, "main")))
    assert len(history) == 41
    assert len(history[0][1].files) == 41


def test_an_upload_that_fails_leaves_no_file(tmp_path):
    objects = Objects(tmp_path)
    with pytest.raises(Unprocessable):
        objects.receive(hashlib.sha256(b"one").hexdigest(), 3, [b"two"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_keys_lists_what_is_there(tmp_path):
    storage = Storage(tmp_path)
    storage.create(KEY, author="rehearsal", private=False)
    assert list(storage.keys()) == [KEY]


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "a.git", "x" * 97, "a--b", "ends-"])
def test_a_name_that_is_no_name(tmp_path, name):
    with pytest.raises(HubError):
        Storage(tmp_path).create(Key("models", "rehearsal", name), author="rehearsal", private=False)
