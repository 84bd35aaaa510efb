from __future__ import annotations

import hashlib
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, get_hf_file_metadata, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HfHubHTTPError, RevisionNotFoundError


def test_the_tree_names_git_and_lfs_hashes(api, repo, weights):
    files = {file.path: file for file in api.list_repo_tree(repo)}
    assert files["config.json"].blob_id == "9e26dfeeb6e641a33dae4961196235bdb965b21b"
    assert files["model.safetensors"].lfs.sha256 == hashlib.sha256(weights).hexdigest()


def test_a_tree_is_listed_folder_by_folder(api, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="a/b/c.txt")
    assert [entry.path for entry in api.list_repo_tree(repo, "a")] == ["a/b"]
    assert [entry.path for entry in api.list_repo_tree(repo, "a", recursive=True)] == ["a/b", "a/b/c.txt"]


def test_a_folder_that_is_not_there(api, repo):
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(repo, "absent"))


def test_a_long_tree_comes_in_pages(api, hub, repo):
    names = [f"part/{number:04d}.txt" for number in range(2100)]
    api.create_commit(repo, [CommitOperationAdd(name, b"x") for name in names], commit_message="many")
    hub.requests.clear()
    found = [entry.path for entry in api.list_repo_tree(repo, "part", recursive=True)]
    assert found == names
    assert len(hub.requests) == 3


def test_expanded_entries_name_their_last_commit(api, repo):
    second = api.upload_file(repo_id=repo, path_or_fileobj=b"{ }", path_in_repo="config.json").oid
    commits = {entry.path: entry.last_commit.oid for entry in api.list_repo_tree(repo, expand=True)}
    assert commits["config.json"] == second
    assert commits["model.safetensors"] != second


def test_paths_info_leaves_out_what_is_not_there(api, repo):
    assert [entry.path for entry in api.get_paths_info(repo, ["config.json", "absent"])] == ["config.json"]


def test_paths_info_knows_folders(api, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="a/b.txt")
    (folder,) = api.get_paths_info(repo, "a")
    assert len(folder.tree_id) == 40


def test_paths_info_takes_json_as_the_javascript_client_sends_it(hub, repo):
    url = f"{hub.endpoint}/api/models/{repo}/paths-info/main"
    answer = huggingface_hub.get_session().post(url, json={"paths": ["config.json"]})
    assert [entry["path"] for entry in answer.json()] == ["config.json"]


def test_the_history_starts_with_the_latest(api, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="a.txt", commit_message="second")
    assert [commit.title for commit in api.list_repo_commits(repo)] == ["second", "first", "initial commit"]


def test_a_long_history_comes_in_pages(api, hub, repo):
    for number in range(60):
        api.upload_file(repo_id=repo, path_or_fileobj=str(number).encode(), path_in_repo="a.txt")
    hub.requests.clear()
    assert len(api.list_repo_commits(repo)) == 62
    assert len(hub.requests) == 2


def test_a_regular_file_is_downloaded(hub, repo):
    assert _bytes(hf_hub_download(repo, "config.json", endpoint=hub.endpoint)) == b"{}"


def test_a_large_file_is_downloaded(hub, repo, weights):
    assert _bytes(hf_hub_download(repo, "model.safetensors", endpoint=hub.endpoint)) == weights


def test_an_empty_file_is_downloaded(api, hub, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"", path_in_repo="empty")
    assert _bytes(hf_hub_download(repo, "empty", endpoint=hub.endpoint)) == b""


def test_a_file_of_a_private_repository_is_downloaded_by_its_owner(api, hub, weights):
    api.create_repo("rehearsal/secret", private=True)
    api.upload_file(repo_id="rehearsal/secret", path_or_fileobj=weights, path_in_repo="model.safetensors")
    path = hf_hub_download("rehearsal/secret", "model.safetensors", endpoint=hub.endpoint, token=hub.token)
    assert _bytes(path) == weights


def test_a_file_of_an_earlier_commit_is_downloaded(api, hub, repo):
    first = api.repo_info(repo).sha
    api.upload_file(repo_id=repo, path_or_fileobj=b"[]", path_in_repo="config.json")
    assert _bytes(hf_hub_download(repo, "config.json", revision=first, endpoint=hub.endpoint)) == b"{}"


def test_a_snapshot_holds_every_file(hub, repo, weights, tmp_path):
    snapshot_download(repo, endpoint=hub.endpoint, local_dir=tmp_path / "copy")
    assert (tmp_path / "copy" / "config.json").read_bytes() == b"{}"
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "copy" / ".gitattributes").exists()


def test_metadata_of_a_large_file_comes_before_the_redirect(hub, repo, weights):
    metadata = get_hf_file_metadata(hf_hub_url(repo, "model.safetensors", endpoint=hub.endpoint))
    assert (metadata.etag, metadata.size) == (hashlib.sha256(weights).hexdigest(), len(weights))
    assert metadata.location.startswith(hub.bucket)


def test_a_head_request_has_no_body(hub, repo):
    answer = huggingface_hub.get_session().head(f"{hub.endpoint}/{repo}/resolve/main/config.json")
    assert (answer.headers["Content-Length"], answer.content) == ("2", b"")


@pytest.mark.parametrize(
    ("asked", "expected"), [("bytes=0-7", slice(0, 8)), ("bytes=100-", slice(100, None)), ("bytes=-4", slice(-4, None))]
)
def test_a_range_is_kept_through_the_redirect(hub, repo, weights, asked, expected):
    url = f"{hub.endpoint}/{repo}/resolve/main/model.safetensors"
    answer = huggingface_hub.get_session().get(url, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, weights[expected])


def test_a_range_past_the_end(hub, repo):
    url = f"{hub.endpoint}/{repo}/resolve/main/config.json"
    answer = huggingface_hub.get_session().get(url, headers={"Range": "bytes=2-"})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */2")


def test_raw_is_what_git_holds(hub, repo, weights):
    answer = huggingface_hub.get_session().get(f"{hub.endpoint}/{repo}/raw/main/model.safetensors")
    assert answer.text == (
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{hashlib.sha256(weights).hexdigest()}\nsize {len(weights)}\n"
    )


def test_the_safetensors_header_is_read_by_a_range(api, repo):
    metadata = api.get_safetensors_metadata(repo)
    assert metadata.parameter_count == {"F32": 4}


def test_an_absent_file(hub, repo):
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(repo, "absent", endpoint=hub.endpoint)


def test_what_is_absent_is_absent_at_a_commit(api, hub, repo):
    answer = huggingface_hub.get_session().head(f"{hub.endpoint}/{repo}/resolve/main/absent")
    assert (answer.status_code, answer.headers["X-Repo-Commit"]) == (404, api.repo_info(repo).sha)


def test_a_file_of_an_absent_revision(hub, repo):
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(repo, "config.json", revision="mian", endpoint=hub.endpoint)


def test_a_gated_file_is_kept_from_a_stranger(api, hub, repo):
    api.update_repo_settings(repo, gated="manual")
    with pytest.raises(GatedRepoError):
        hf_hub_download(repo, "config.json", endpoint=hub.endpoint, token="hf_stranger")


def test_a_gated_repository_shows_its_list(api, stranger, repo):
    api.update_repo_settings(repo, gated="manual")
    assert stranger.repo_info(repo).gated == "manual"


def test_an_unknown_object(hub):
    answer = huggingface_hub.get_session().get(f"{hub.bucket}/objects/{'0' * 64}")
    assert answer.status_code == 404


def test_an_object_is_named_by_a_hash_and_nothing_else(hub):
    answer = huggingface_hub.get_session().get(f"{hub.bucket}/objects/..%2F..%2Fetc%2Fpasswd")
    assert answer.status_code == 422


def test_bytes_that_went_out_are_counted(hub, repo, weights):
    before = hub.bytes_sent
    huggingface_hub.get_session().get(
        f"{hub.endpoint}/{repo}/resolve/main/model.safetensors", headers={"Range": "bytes=0-9"}
    )
    assert hub.bytes_sent - before == 10


def test_a_nonsense_cursor_is_a_bad_request(hub, repo):
    answer = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/{repo}/tree/main?cursor=x")
    assert answer.status_code == 400


def test_checksums_agree_with_the_client(api, hub, repo, tmp_path):
    snapshot_download(repo, endpoint=hub.endpoint, local_dir=tmp_path / "copy")
    verified = api.verify_repo_checksums(repo, local_dir=tmp_path / "copy")
    assert not verified.mismatches


def test_an_address_that_is_not_served(api):
    with pytest.raises(HfHubHTTPError, match="does not serve /api/collections"):
        next(iter(api.list_collections()))


def _bytes(path):
    return Path(path).read_bytes()
