from __future__ import annotations

import base64
import hashlib
import json

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError

from repokit.rehearsal import Hub

BINARY = b"\0" * 600


def test_one_commit_holds_regular_and_large_files(api, repo, weights):
    before = len(api.list_repo_commits(repo))
    additions = [CommitOperationAdd("a.txt", b"a"), CommitOperationAdd("b.bin", weights), CommitOperationAdd("c", b"c")]
    api.create_commit(repo, additions, commit_message="more")
    assert len(api.list_repo_commits(repo)) == before + 1
    assert {"a.txt", "b.bin", "c"} < set(api.list_repo_files(repo))


def test_a_commit_goes_on_from_its_parent(api, repo):
    head = api.repo_info(repo).sha
    done = api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", parent_commit=head)
    assert [commit.commit_id for commit in api.list_repo_commits(repo)][:2] == [done.oid, head]


def test_a_stale_parent_is_refused(api, repo):
    head = api.repo_info(repo).sha
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="other")
    with pytest.raises(HfHubHTTPError, match="The branch was updated since") as refused:
        api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", parent_commit=head)
    assert refused.value.response.status_code == 412
    assert not api.file_exists(repo, "a")


def test_a_commit_goes_to_the_branch_that_is_named(api, repo):
    api.create_branch(repo, branch="release/v1")
    api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", revision="release/v1")
    assert api.file_exists(repo, "a", revision="release/v1")
    assert not api.file_exists(repo, "a")


@pytest.mark.parametrize("kind", ["absent", "tag", "commit"])
def test_a_commit_goes_to_branches_only(api, repo, kind):
    api.create_tag(repo, tag="v1.0")
    revision = {"absent": "mian", "tag": "v1.0", "commit": api.repo_info(repo).sha}[kind]
    with pytest.raises(RevisionNotFoundError):
        api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", revision=revision)


def test_a_deleted_file_is_gone_from_the_head_and_kept_in_the_history(api, repo):
    before = api.repo_info(repo).sha
    api.delete_file("config.json", repo)
    assert not api.file_exists(repo, "config.json")
    assert api.file_exists(repo, "config.json", revision=before)


def test_a_deleted_folder_takes_its_files_along(api, repo):
    for name in ("a/b", "a/c/d", "ab"):
        api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo=name)
    api.delete_folder("a", repo)
    assert [path for path in api.list_repo_files(repo) if path.startswith("a")] == ["ab"]


@pytest.mark.parametrize("folder", [False, True])
def test_what_is_not_there_cannot_be_deleted(api, repo, folder):
    with pytest.raises(EntryNotFoundError, match="A file with this name doesn't exist"):
        api.create_commit(repo, [CommitOperationDelete("absent", is_folder=folder)], commit_message="m")


def test_a_failed_commit_changes_nothing(api, repo):
    before = api.repo_info(repo).sha
    operations = [CommitOperationAdd("a", b"a"), CommitOperationDelete("absent")]
    with pytest.raises(EntryNotFoundError):
        api.create_commit(repo, operations, commit_message="m")
    assert api.repo_info(repo).sha == before


def test_a_large_file_is_copied_without_its_bytes(api, hub, repo, weights):
    hub.requests.clear()
    operations = [CommitOperationCopy("model.safetensors", "copy.safetensors")]
    api.create_commit(repo, operations, commit_message="copy")
    assert api.get_paths_info(repo, "copy.safetensors")[0].lfs.sha256 == hashlib.sha256(weights).hexdigest()
    assert not [path for _, path in hub.requests if "/objects/" in path]


def test_the_same_bytes_are_sent_once(api, hub, repo, weights):
    hub.requests.clear()
    api.upload_file(repo_id=repo, path_or_fileobj=weights, path_in_repo="again.safetensors")
    assert [method for method, _ in hub.requests if method == "PUT"] == []


def test_unchanged_files_make_no_commit(api, repo, weights):
    before = api.repo_info(repo).sha
    additions = [CommitOperationAdd("config.json", b"{}"), CommitOperationAdd("model.safetensors", weights)]
    assert api.create_commit(repo, additions, commit_message="again").oid == before


def test_an_upload_in_parts(tmp_path):
    with Hub(tmp_path / "hub", part_size=1000) as hub:
        api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("rehearsal/model")
        content = bytes(range(256)) * 10
        api.upload_file(repo_id="rehearsal/model", path_or_fileobj=content, path_in_repo="model.bin")
        assert len([path for method, path in hub.requests if method == "PUT"]) == 3
        assert hub.storage.objects.read(hashlib.sha256(content).hexdigest()) == content


@pytest.mark.parametrize(
    ("path", "content", "mode"),
    [
        ("notes.txt", b"text", "regular"),
        ("notes.txt", BINARY, "lfs"),
        ("model.safetensors", b"text", "lfs"),
        ("saved_model/a/b/c", b"text", "lfs"),
        ("model.gguf", b"GGUF", "regular"),
    ],
)
def test_how_a_file_is_sent_follows_its_name_and_its_bytes(api, repo, path, content, mode):
    addition = CommitOperationAdd(path, content)
    api.preupload_lfs_files(repo, [addition])
    assert addition._upload_mode == mode


def test_ten_megabytes_of_text_are_large(hub, repo):
    sizes = {"small": 10_000_000, "large": 10_000_001}
    files = [{"path": path, "size": size, "sample": ""} for path, size in sizes.items()]
    answer = _post(hub, f"/api/models/{repo}/preupload/main", {"files": files}).json()
    assert [file["uploadMode"] for file in answer["files"]] == ["regular", "lfs"]


def test_a_committed_gitattributes_decides(api, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"*.gguf filter=lfs -text\n", path_in_repo=".gitattributes")
    addition = CommitOperationAdd("model.gguf", b"GGUF")
    api.preupload_lfs_files(repo, [addition])
    assert addition._upload_mode == "lfs"


def test_a_gitignore_in_the_same_push_hides_files(api, repo):
    additions = [CommitOperationAdd(".gitignore", b"*.bin\n"), CommitOperationAdd("a.bin", BINARY)]
    api.create_commit(repo, additions, commit_message="m")
    assert not api.file_exists(repo, "a.bin")


def test_a_gitignore_on_the_hub_hides_files(api, repo):
    api.upload_file(repo_id=repo, path_or_fileobj=b"*.bin\n", path_in_repo=".gitignore")
    addition = CommitOperationAdd("a.bin", BINARY)
    api.preupload_lfs_files(repo, [addition])
    assert addition._should_ignore


def test_bytes_that_are_not_what_was_announced_are_refused(hub):
    url = f"{hub.bucket}/objects/{hashlib.sha256(b'one').hexdigest()}?size=3"
    assert huggingface_hub.get_session().put(url, content=b"two").status_code == 422
    assert huggingface_hub.get_session().get(url).status_code == 404


def test_fewer_bytes_than_announced_are_refused(hub):
    url = f"{hub.bucket}/objects/{hashlib.sha256(b'one').hexdigest()}?size=4"
    assert huggingface_hub.get_session().put(url, content=b"one").status_code == 422


def test_a_part_that_was_not_uploaded_cannot_be_joined(hub):
    sha256 = hashlib.sha256(b"one").hexdigest()
    url = f"{hub.endpoint}/api/complete_multipart/{sha256}?size=3"
    answer = huggingface_hub.get_session().post(url, json={"parts": [{"partNumber": 1, "etag": "x"}]})
    assert answer.status_code == 422


def test_an_object_without_a_hash_is_an_error_of_its_own(hub, repo):
    objects = [{"oid": "nonsense", "size": 1}, {"oid": "0" * 64, "size": 1}]
    answer = _post(hub, f"/{repo}.git/info/lfs/objects/batch", {"operation": "upload", "objects": objects}).json()
    assert [("error" in item, "actions" in item) for item in answer["objects"]] == [(True, False), (False, True)]


def test_verify_misses_an_object_that_did_not_arrive(hub, repo):
    assert _post(hub, f"/{repo}.git/info/lfs/verify", {"oid": "0" * 64, "size": 1}).status_code == 404


def test_a_commit_of_an_object_that_did_not_arrive(hub, repo):
    answer = _commit(hub, repo, {"key": "lfsFile", "value": {"path": "a", "oid": "0" * 64, "size": 1}})
    assert (answer.status_code, "LFS pointer" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a//b", "a/./b", ".git/config", "a\nb", "", "a\\b", "\ud800", "a" * 256]
)
def test_a_path_that_a_tree_cannot_hold(hub, repo, path):
    assert _commit(hub, repo, _file(path)).status_code == 422


def test_a_file_is_not_a_folder(hub, repo):
    answer = _commit(hub, repo, _file("config.json/x"))
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "'config.json' is a file and cannot be the folder of 'config.json/x'",
    )


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"key": "file"}',
        b'{"key": "header", "value": {}}',
        b'{"key": "header", "value": {"summary": ""}}',
        b'{"key": "header", "value": {"summary": "m"}}\n{"key": "moveFile", "value": {"path": "a"}}',
        b'{"key": "header", "value": {"summary": "m"}}\n{"key": "file", "value": {"path": "a", "content": 1}}',
        b'{"key": "header", "value": {"summary": "m"}}\n{"key": "file", "value": []}',
        b'{"key": "header", "value": {"summary": "m"}}\n{"key": "file", "value": {"path": "a", "content": "!", "encoding": "base64"}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_commit_that_makes_no_sense_is_a_bad_request(hub, repo, lines):
    answer = _send(hub, f"/api/models/{repo}/commit/main", lines)
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)


def test_a_regular_file_over_the_limit_is_refused(hub, repo):
    assert _commit(hub, repo, _file("a", b"x" * 10_000_001)).status_code == 400


def test_a_pull_request_leaves_the_branch_alone(api, repo):
    before = api.repo_info(repo).sha
    done = api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", create_pr=True)
    assert done.pr_revision == "refs/pr/1"
    assert api.repo_info(repo).sha == before
    assert api.file_exists(repo, "a", revision="refs/pr/1")


def test_a_pull_request_takes_further_commits(api, repo):
    api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", create_pr=True)
    api.create_commit(repo, [CommitOperationAdd("b", b"b")], commit_message="m", revision="refs/pr/1")
    assert api.file_exists(repo, "b", revision="refs/pr/1")


def test_a_stranger_proposes_and_does_not_commit(stranger, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        stranger.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m")
    assert refused.value.response.status_code == 403
    assert stranger.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", create_pr=True).pr_num == 1


def test_a_visitor_does_not_commit(hub, repo):
    answer = huggingface_hub.get_session().post(f"{hub.endpoint}/api/models/{repo}/commit/main", content=b"")
    assert answer.status_code == 401


def test_a_card_that_the_hub_refuses_stops_the_commit_before_any_byte(api, hub, repo, weights):
    additions = [
        CommitOperationAdd("new.safetensors", weights + b"x"),
        CommitOperationAdd("README.md", b"---\nbase_model: /home/me/llama\n---\n"),
    ]
    hub.requests.clear()
    with pytest.raises(ValueError, match="base_model"):
        api.create_commit(repo, additions, commit_message="m")
    assert hub.requests == [("POST", "/api/validate-yaml")]


def test_the_card_is_judged_again_at_the_commit(hub, repo):
    answer = _commit(hub, repo, _file("README.md", b"---\nlanguage: noinfo\n---\n"))
    assert (answer.status_code, "language" in answer.json()["error"]) == (400, True)


def test_a_folder_is_uploaded_in_one_commit(api, repo, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.bin").write_bytes(number.to_bytes(600, "little"))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    before = len(api.list_repo_commits(repo))
    api.upload_folder(repo_id=repo, folder_path=folder)
    assert len(api.list_repo_commits(repo)) == before + 1
    assert len(api.list_repo_files(repo)) == 3 + 31


def test_equal_histories_have_equal_commit_ids(tmp_path):
    assert _history(tmp_path / "one") == _history(tmp_path / "two")


def _history(folder):
    with Hub(folder) as hub:
        api = huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token)
        api.create_repo("rehearsal/model")
        return api.upload_file(repo_id="rehearsal/model", path_or_fileobj=BINARY, path_in_repo="a.bin").oid


def _file(path, content=b"x"):
    return {"key": "file", "value": {"path": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}}


def _commit(hub, repo, *lines):
    header = {"key": "header", "value": {"summary": "m", "description": ""}}
    content = "\n".join(json.dumps(line) for line in [header, *lines]).encode()
    return _send(hub, f"/api/models/{repo}/commit/main", content)


def _send(hub, path, content):
    headers = {"Authorization": f"Bearer {hub.token}"}
    return huggingface_hub.get_session().post(hub.endpoint + path, content=content, headers=headers)


def _post(hub, path, body):
    return _send(hub, path, json.dumps(body).encode())
