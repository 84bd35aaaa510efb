from __future__ import annotations

import hashlib

import pytest
from huggingface_hub import CommitOperationAdd, constants, get_session, snapshot_download

from repokit.errors import MissingInput, NotAuthorized, PublishError, RevisionNotFound, Stopped, UsageError
from repokit.publisher.push import push
from repokit.rehearsal import Hub

REPO = "rehearsal/model"

both_ways = pytest.mark.parametrize("transfer", ["lfs", "xet"], indirect=True)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def paths(files):
    return [file.path for file in files]


def sent(hub):
    """What a push changed, or sent the bytes of."""
    calls = [(method, path) for method, path in hub.requests if method in {"PUT", "DELETE"}]
    marks = ("/commit/", "/branch/", "/tag/", "/repos/create", "/v1/xorbs/", "/v1/shards")
    return calls + [(method, path) for method, path in hub.requests if any(mark in path for mark in marks)]


def uploads(hub):
    """The requests by which the bytes of large files arrived."""
    return [path for method, path in hub.requests if method == "PUT" or "/v1/xorbs/" in path]


@both_ways
def test_what_is_downloaded_is_what_was_pushed(go, hub, directory, tmp_path):
    result = go(create=True)
    copy = tmp_path / "copy"
    snapshot_download(REPO, revision=result.commit, endpoint=hub.endpoint, local_dir=copy)
    downloaded = {path: data for path, data in contents(copy).items() if not path.startswith(".cache/")}
    assert downloaded.pop(".gitattributes")
    assert downloaded == contents(directory)


def test_the_result_names_what_was_done(go, api, hub):
    result = go(create=True, tag="v1.0")
    head = api.repo_info(REPO).sha
    assert (result.commit, result.revision, result.tag, result.verified_files) == (head, "main", "v1.0", 6)
    assert result.url == f"{hub.endpoint}/{REPO}/tree/v1.0"
    assert result.creates == {"repository"}
    assert len(result.changes.added) == 6


def test_a_push_is_one_commit(go, api):
    go(create=True)
    assert [commit.title for commit in api.list_repo_commits(REPO)] == ["Publish 6 files: 6 added", "initial commit"]


def test_the_parent_is_the_head_that_was_compared(go, api):
    result = go(create=True)
    assert result.parent == api.list_repo_commits(REPO)[1].commit_id


def test_a_commit_message_of_ones_own(go, api):
    go(create=True, commit_message="First release")
    assert api.list_repo_commits(REPO)[0].title == "First release"


@both_ways
def test_large_files_are_stored_as_large_files(go, api):
    go(create=True)
    assert {file.path for file in api.list_repo_tree(REPO, recursive=True) if getattr(file, "lfs", None)} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


@both_ways
def test_a_second_push_sends_what_changed(go, published, hub, directory):
    (directory / "config.json").write_bytes(b"{}")
    (directory / "new.txt").write_bytes(b"new")
    result = go()
    assert (paths(result.changes.added), paths(result.changes.changed)) == (["new.txt"], ["config.json"])
    assert len(result.changes.unchanged) == 5
    assert uploads(hub) == []


@both_ways
def test_a_push_of_what_is_there_makes_no_commit(go, published, hub):
    result = go()
    assert (result.commit, result.changes.is_empty, result.verified_files) == (published, True, 6)
    assert sent(hub) == []


def test_a_push_of_what_is_there_still_tags(go, published, api):
    go(tag="v1.0")
    assert api.repo_info(REPO, revision="v1.0").sha == published


def test_stale_files_are_deleted(go, published, api, directory):
    (directory / "model-00002-of-00002.safetensors").unlink()
    (directory / "assets" / "deep" / "note.txt").unlink()
    result = go()
    assert paths(result.changes.deleted) == ["assets/deep/note.txt", "model-00002-of-00002.safetensors"]
    assert api.list_repo_files(REPO) == [
        ".gitattributes",
        "README.md",
        "config.json",
        "empty.txt",
        "model-00001-of-00002.safetensors",
    ]


@both_ways
def test_a_file_takes_the_place_of_a_folder(go, published, api, directory):
    (directory / "assets" / "deep" / "note.txt").unlink()
    (directory / "assets" / "deep").rmdir()
    (directory / "assets" / "deep").write_bytes(b"now a file")
    go()
    assert "assets/deep" in api.list_repo_files(REPO)


def test_gitattributes_of_the_directory_is_pushed(go, api, directory):
    (directory / ".gitattributes").write_bytes(b"*.bin filter=lfs -text\n")
    go(create=True)
    (file,) = api.get_paths_info(REPO, ".gitattributes")
    assert file.size == 23


def test_ignore_files_hide_nothing(go, api, directory):
    (directory / ".gitignore").write_bytes(b"*.safetensors\n*.json\n")
    result = go(create=True)
    assert "config.json" in api.list_repo_files(REPO)
    assert any(".gitignore" in note for note in result.notes)


def test_an_ignore_file_on_the_hub_hides_nothing(go, published, api, directory):
    (directory / ".gitignore").write_bytes(b"*.txt\n")
    go()
    (directory / "new.txt").write_bytes(b"new")
    go()
    assert "new.txt" in api.list_repo_files(REPO)


def test_the_manifest_stays_here(go, api, directory):
    (directory / "repokit-manifest.json").write_bytes(b"{}")
    go(create=True)
    assert "repokit-manifest.json" not in api.list_repo_files(REPO)


def test_the_manifest_is_pushed_on_request(go, api, directory):
    (directory / "repokit-manifest.json").write_bytes(b"{}")
    go(create=True, publish_manifest=True)
    assert "repokit-manifest.json" in api.list_repo_files(REPO)


@both_ways
def test_many_files_are_one_commit(go, api, directory):
    for number in range(600):  # more than the 256 that huggingface_hub asks about at once
        (directory / f"{number:03d}.txt").write_text(str(number))
    go(create=True)
    assert len(api.list_repo_commits(REPO)) == 2


BY_LFS = [
    ("POST", f"/{REPO}.git/info/lfs/objects/batch"),
    ("PUT", f"/objects/{hashlib.sha256(bytes(900)).hexdigest()}"),
    ("POST", f"/{REPO}.git/info/lfs/verify"),
]
# What hf_xet asks of the storage is its own affair. The token is asked for before, and then by hf_xet.
XET_TOKEN = [("GET", "xet-write-token/main")]


@pytest.mark.parametrize(("transfer", "upload"), [("lfs", BY_LFS), ("xet", XET_TOKEN)], indirect=["transfer"])
def test_a_push_asks_for_no_more_than_it_needs(go, published, hub, directory, upload):
    (directory / "README.md").write_bytes(b"---\nlicense: apache-2.0\n---\n")
    (directory / "model-00001-of-00002.safetensors").write_bytes(b"\0" * 900)
    go(tag="v1.0")
    asked = [(method, path.removeprefix(f"/api/models/{REPO}/")) for method, path in hub.requests]
    parent, commit = (path.removeprefix("tree/") for _, path in asked if path.startswith("tree/"))
    assert [(method, path) for method, path in asked if not path.startswith("/xet/")] == [
        ("GET", "refs"),
        ("GET", f"tree/{parent}"),
        ("POST", "/api/validate-yaml"),
        *(XET_TOKEN if upload is XET_TOKEN else ()),
        ("POST", "preupload/main"),
        *upload,
        ("POST", "/api/validate-yaml"),  # create_commit looks at the card once more
        ("POST", "commit/main"),
        ("GET", f"tree/{commit}"),
        ("POST", f"tag/{commit}"),
        ("GET", "revision/v1.0"),
    ]


def test_whoever_approves_sees_the_changes_and_may_stop(go, published, hub, directory):
    (directory / "empty.txt").unlink()
    seen = []

    def approve(changes):
        seen.extend(paths(changes.deleted))
        raise Stopped("no")

    with pytest.raises(Stopped):
        go(approve=approve)
    assert seen == ["empty.txt"]
    assert sent(hub) == []


@both_ways
def test_stages_are_told_in_order(go, directory):
    told = []
    go(create=True, tag="v1.0", listener=lambda *step: told.append(step))
    total = sum(len(data) for data in contents(directory).values())
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages == ["hash", "upload", "commit", "verify", "tag"]
    assert {step for step in told if step[0] != "hash" and step[1]} == {
        ("upload", total, total),
        ("verify", 6, 6),
        ("tag", 1, 1),
    }


# What the gate, the card and the names refuse


def test_the_gate_stops_before_the_network(go, hub):
    def gate(_):
        raise Stopped("2 errors")

    with pytest.raises(Stopped, match="2 errors"):
        go(create=True, gate=gate)
    assert hub.requests == []


def test_the_gate_sees_the_directory(go, directory):
    seen = []
    go(create=True, gate=seen.append)
    assert seen == [directory]


def test_a_card_that_the_hub_refuses_stops_before_any_byte(go, hub, directory):
    (directory / "README.md").write_bytes(b"---\nbase_model: /home/me/llama\n---\n")
    with pytest.raises(PublishError, match=r'README\.md: "base_model" with value'):
        go(create=True)
    assert not [path for _, path in hub.requests if "preupload" in path or "lfs" in path]
    assert sent(hub) == []


def test_a_card_without_metadata_is_remarked_on(go, directory):
    (directory / "README.md").write_bytes(b"# Model\n")
    assert go(create=True).notes == ("README.md: empty or missing yaml metadata in repo card",)


def test_a_card_that_is_not_text(go, directory):
    (directory / "README.md").write_bytes(b"\xff")
    with pytest.raises(PublishError, match="not UTF-8"):
        go(create=True)


def test_an_unchanged_card_is_not_checked_again(go, published, hub):
    go()
    assert ("POST", "/api/validate-yaml") not in hub.requests


def test_an_absent_directory(go, directory):
    with pytest.raises(MissingInput):
        push(directory / "absent", REPO, token="hf_rehearsal")


@pytest.mark.parametrize("name", ["model", "a/b/c", "", "org/a--b", "org/ä"])
def test_a_name_that_is_no_repository(directory, hub, name):
    with pytest.raises(UsageError):
        push(directory, name, endpoint=hub.endpoint, token=hub.token)


# Repositories and branches that are absent


def test_an_absent_repository_names_the_flag(go, hub):
    with pytest.raises(RevisionNotFound, match="repository not found") as refused:
        go()
    assert "--create" in refused.value.hint
    assert sent(hub) == []


@both_ways
def test_a_new_repository_is_private_on_request(go, api):
    go(create=True, private=True)
    assert api.repo_info(REPO).private


def test_a_private_push_into_a_public_repository_is_refused(go, published, hub):
    with pytest.raises(PublishError, match="is public"):
        go(private=True)
    assert sent(hub) == []


def test_a_push_into_a_private_repository(go, directory, api):
    go(create=True, private=True)
    (directory / "config.json").write_bytes(b"{}")
    assert go(private=True).verified_files == 6


def test_an_absent_branch_names_the_flag_and_the_likely_name(go, published, hub):
    with pytest.raises(RevisionNotFound, match="no branch mian") as refused:
        go(revision="mian")
    assert "did you mean --revision main?" in refused.value.hint
    assert "--create-branch" in refused.value.hint
    assert sent(hub) == []


def test_a_branch_is_created_on_request(go, published, api, directory):
    (directory / "config.json").write_bytes(b"{}")
    result = go(revision="release/v1", create_branch=True)
    assert api.repo_info(REPO, revision="release/v1").sha == result.commit
    assert api.repo_info(REPO).sha == published
    assert (result.parent, result.creates) == (published, {"branch"})


def test_a_branch_that_is_there_is_used(go, published, api):
    api.create_branch(REPO, branch="next")
    assert go(revision="next", create_branch=True).creates == frozenset()


def test_a_full_reference_is_a_branch(go, published):
    assert go(revision="refs/heads/main").revision == "main"


@both_ways
def test_a_branch_in_a_new_repository(go, api):
    result = go(create=True, create_branch=True, revision="next")
    assert api.repo_info(REPO, revision="next").sha == result.commit
    assert len(api.list_repo_files(REPO)) == 1


def test_a_branch_in_a_new_repository_needs_its_own_flag(go, hub):
    with pytest.raises(RevisionNotFound) as refused:
        go(create=True, revision="next")
    assert "--create-branch" in refused.value.hint
    assert sent(hub) == []


@both_ways
def test_a_pull_request_takes_a_push(go, published, api, directory):
    api.create_commit(REPO, [CommitOperationAdd("x", b"x")], commit_message="m", create_pr=True)
    (directory / "config.json").write_bytes(b"{}")
    result = go(revision="refs/pr/1")
    assert api.repo_info(REPO, revision="refs/pr/1").sha == result.commit
    assert api.repo_info(REPO).sha == published


def test_an_absent_pull_request(go, published):
    with pytest.raises(RevisionNotFound) as refused:
        go(revision="refs/pr/7", create_branch=True)
    assert "cannot be created as a branch" in refused.value.why


def test_a_tag_is_not_pushed_to(go, published, api, hub):
    api.create_tag(REPO, tag="v1.0")
    hub.requests.clear()
    with pytest.raises(UsageError, match=r"v1\.0 is a tag"):
        go(revision="v1.0", create_branch=True)
    assert sent(hub) == []


def test_a_commit_is_not_pushed_to(go, published):
    with pytest.raises(UsageError, match="is a commit"):
        go(revision=published)


# Tags


def test_a_tag_of_another_commit_is_refused_before_the_upload(go, published, api, hub, directory):
    api.create_tag(REPO, tag="v1.0")
    hub.requests.clear()
    (directory / "config.json").write_bytes(b"{}")
    with pytest.raises(UsageError, match=rf"tag v1\.0 exists at {published[:7]}"):
        go(tag="v1.0")
    assert sent(hub) == []


def test_a_tag_of_another_commit_is_refused_though_nothing_changed(go, published, api):
    first = api.list_repo_commits(REPO)[-1].commit_id
    api.create_tag(REPO, tag="v1.0", revision=first)
    with pytest.raises(UsageError, match=rf"exists at {first[:7]}"):
        go(tag="v1.0")


def test_a_tag_that_is_right_already(go, published, api):
    api.create_tag(REPO, tag="v1.0")
    assert go(tag="v1.0").commit == published


@pytest.mark.parametrize("name", ["main", "next"])
def test_a_tag_does_not_take_the_name_of_a_branch(go, published, name):
    with pytest.raises(UsageError, match="is a branch"):
        go(tag=name, revision="next", create_branch=True)


@pytest.mark.parametrize("name", ["", "a b", "v1..2", "refs/tags/v1", "-v", "v1.lock"])
def test_a_name_that_no_tag_has(go, hub, name):
    with pytest.raises(UsageError, match="not a name for a tag"):
        go(tag=name, create=True)
    assert sent(hub) == []


# A dry run


def test_a_dry_run_changes_nothing(go, published, hub, directory):
    (directory / "config.json").write_bytes(b"{}")
    (directory / "empty.txt").unlink()
    result = go(dry_run=True, tag="v1.0")
    assert (paths(result.changes.changed), paths(result.changes.deleted)) == (["config.json"], ["empty.txt"])
    assert (result.commit, result.dry_run) == (None, True)
    assert sent(hub) == []


def test_a_dry_run_for_a_repository_that_is_to_be_created(go, hub):
    result = go(dry_run=True, create=True)
    assert (len(result.changes.added), result.creates, result.parent) == (6, {"repository"}, None)
    assert sent(hub) == []


def test_a_dry_run_finds_what_a_push_would_trip_over(go, published, api):
    api.create_tag(REPO, tag="v1.0", revision=api.list_repo_commits(REPO)[-1].commit_id)
    with pytest.raises(UsageError):
        go(dry_run=True, tag="v1.0")


def test_a_dry_run_needs_no_token(go, published):
    assert go(dry_run=True, token=None).changes.is_empty


# Who may


def test_no_token_stops_before_anything_is_read(go, hub, directory):
    with pytest.raises(NotAuthorized, match="not logged in") as refused:
        go(token=None)
    assert "hf auth login" in refused.value.hint
    assert hub.requests == []


def test_a_token_out_of_the_environment(go, monkeypatch, hub):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert go(token=None, create=True).commit


def test_a_wrong_token(go, published):
    with pytest.raises(NotAuthorized) as refused:
        go(token="hf_forged")
    assert "hf_forged" not in str(refused.value)


@both_ways
def test_a_token_that_only_reads(go, published, hub, directory):
    (directory / "config.json").write_bytes(b"{}")
    with pytest.raises(NotAuthorized) as refused:
        go(token="hf_reader")
    assert "write access" in refused.value.hint


@both_ways
def test_a_repository_of_others(go, published, directory):
    (directory / "config.json").write_bytes(b"{}")
    with pytest.raises(NotAuthorized):
        go(token="hf_stranger")


def test_a_private_repository_of_others_does_not_exist(go):
    go(create=True, private=True)
    with pytest.raises(RevisionNotFound):
        go(token="hf_stranger")


def test_a_token_that_cannot_be_sent_is_not_shown(go, published):
    with pytest.raises(PublishError) as refused:
        go(token="hf_secret\n")
    assert "hf_secret" not in f"{refused.value} {refused.value.why} {refused.value.hint}"
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("transfer", ["xet"], indirect=True)
def test_equal_pushes_are_equal_commits_however_they_travelled(directory, tmp_path, transfer, monkeypatch):
    commits = set()
    for by_lfs in (False, True, True):
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", by_lfs)
        with Hub(tmp_path / f"hub-{len(commits)}-{by_lfs}") as hub:
            commits.add(push(directory, REPO, endpoint=hub.endpoint, token=hub.token, create=True).commit)
    assert len(commits) == 1


@both_ways
def test_the_client_is_left_as_it_was(go, published):
    get_session().timeout = 7
    go()
    assert get_session().timeout.read == 7
    assert get_session().event_hooks["response"] == []
