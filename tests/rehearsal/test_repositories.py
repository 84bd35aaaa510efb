from __future__ import annotations

import pytest
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError


def test_whoami_names_the_user_and_the_organizations(api):
    me = api.whoami()
    assert (me["name"], [organization["name"] for organization in me["orgs"]]) == ("rehearsal", ["lab"])


def test_an_unknown_token_is_refused(hub, api):
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        api.whoami(token="hf_forged")


def test_a_new_repository_holds_what_the_hub_puts_there(api):
    api.create_repo("rehearsal/model")
    (file,) = api.list_repo_tree("rehearsal/model")
    # The blob id and size that the same file has in every repository of the real Hub.
    assert (file.path, file.size, file.blob_id) == (
        ".gitattributes",
        1519,
        "a6344aac8c09253b3b630fb776ae94478aa0275b",
    )


def test_a_name_without_a_namespace_is_the_users_own(api):
    assert api.create_repo("model").repo_id == "rehearsal/model"


def test_a_repository_of_an_organization(api):
    assert api.create_repo("lab/model").repo_id == "lab/model"


def test_a_repository_is_not_created_twice(api, repo):
    with pytest.raises(HfHubHTTPError, match="already created") as refused:
        api.create_repo(repo)
    assert refused.value.response.status_code == 409


def test_exist_ok_gives_the_address_of_what_is_there(api, hub, repo):
    assert api.create_repo(repo, exist_ok=True) == f"{hub.endpoint}/{repo}"


def test_a_namespace_of_others_is_refused(api):
    with pytest.raises(HfHubHTTPError, match="don't have the rights") as refused:
        api.create_repo("stranger/model")
    assert refused.value.response.status_code == 403


def test_a_token_that_only_reads_is_refused(api):
    with pytest.raises(HfHubHTTPError, match="write access"):
        api.create_repo("rehearsal/model", token="hf_reader")


def test_a_name_that_the_hub_does_not_take(api, hub):
    response = _post(api, f"{hub.endpoint}/api/repos/create", {"name": "a--b", "organization": None})
    assert response.status_code == 400


def test_data_sets_and_models_of_one_name_are_two(api, repo):
    api.create_repo(repo, repo_type="dataset")
    assert len(list(api.list_repo_tree(repo, repo_type="dataset"))) == 1


def test_a_deleted_repository_is_gone(api, repo):
    api.delete_repo(repo)
    assert not api.repo_exists(repo)


def test_a_stranger_deletes_nothing(api, stranger, repo):
    with pytest.raises(HfHubHTTPError):
        stranger.delete_repo(repo)
    assert api.repo_exists(repo)


def test_repo_info_lists_the_files(api, repo):
    info = api.repo_info(repo)
    assert [sibling.rfilename for sibling in info.siblings] == [".gitattributes", "config.json", "model.safetensors"]


def test_repo_info_tells_sizes_and_hashes_when_asked(api, repo, weights):
    sibling = api.repo_info(repo, files_metadata=True).siblings[-1]
    assert (sibling.size, sibling.lfs.size, len(sibling.lfs.sha256)) == (len(weights), len(weights), 64)


def test_an_absent_repository_is_not_found(api):
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("rehearsal/absent")


def test_a_name_that_leaves_the_folder_is_not_found(api, hub):
    response = _get(api, f"{hub.endpoint}/api/models/..%2F..%2F..%2Fetc/passwd")
    assert response.status_code == 404


def test_an_unknown_revision_is_not_found(api, repo):
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(repo, revision="mian")


@pytest.mark.parametrize("length", [5, 40])
def test_a_commit_id_is_a_revision_and_may_be_short(api, repo, length):
    head = api.repo_info(repo).sha
    assert api.repo_info(repo, revision=head[:length]).sha == head


def test_a_private_repository_does_not_exist_for_a_visitor(api, visitor):
    api.create_repo("rehearsal/secret", private=True)
    with pytest.raises(RepositoryNotFoundError) as refused:
        visitor.repo_info("rehearsal/secret")
    assert refused.value.response.status_code == 401


def test_a_private_repository_does_not_exist_for_another_user(api, stranger):
    api.create_repo("rehearsal/secret", private=True)
    with pytest.raises(RepositoryNotFoundError) as refused:
        stranger.repo_info("rehearsal/secret")
    assert refused.value.response.status_code == 404


def test_a_private_repository_is_seen_by_its_owner(api):
    api.create_repo("rehearsal/secret", private=True)
    assert api.repo_info("rehearsal/secret").private


def test_a_public_repository_is_seen_by_everyone(visitor, repo):
    assert not visitor.repo_info(repo).private


def test_a_repository_turns_private(api, visitor, repo):
    api.update_repo_settings(repo, visibility="private")
    assert not visitor.repo_exists(repo)


def test_refs_lists_branches_and_tags(api, repo):
    api.create_branch(repo, branch="release/v1")
    api.create_tag(repo, tag="v1.0")
    refs = api.list_repo_refs(repo)
    head = api.repo_info(repo).sha
    assert [(ref.ref, ref.target_commit) for ref in [*refs.branches, *refs.tags]] == [
        ("refs/heads/main", head),
        ("refs/heads/release/v1", head),
        ("refs/tags/v1.0", head),
    ]


def test_a_branch_with_a_slash_is_a_revision(api, repo):
    api.create_branch(repo, branch="release/v1")
    assert api.repo_info(repo, revision="release/v1").sha == api.repo_info(repo).sha


def test_a_branch_starts_where_it_is_told_to(api, repo):
    first = api.list_repo_commits(repo)[-1].commit_id
    api.create_branch(repo, branch="old", revision=first)
    assert api.repo_info(repo, revision="old").sha == first


def test_a_branch_from_an_unknown_revision(api, repo):
    with pytest.raises(RevisionNotFoundError):
        api.create_branch(repo, branch="new", revision="mian")


def test_a_branch_is_not_created_twice(api, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_branch(repo, branch="main")
    assert refused.value.response.status_code == 409


def test_exist_ok_leaves_a_branch_alone(api, repo):
    api.create_branch(repo, branch="main", exist_ok=True)


def test_a_deleted_branch_is_gone(api, repo):
    api.create_branch(repo, branch="old")
    api.delete_branch(repo, branch="old")
    assert not api.revision_exists(repo, "old")


def test_the_default_branch_stays(api, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        api.delete_branch(repo, branch="main")
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("name", ["a..b", "a b", "-a", "a.lock", "a/", "refs%2Fpr%2F7"])
def test_a_name_that_git_does_not_take(api, hub, repo, name):
    response = _post(api, f"{hub.endpoint}/api/models/{repo}/branch/{name.replace('/', '%2F').replace(' ', '%20')}", {})
    assert response.status_code == 400


def test_a_tag_names_a_commit(api, repo):
    head = api.repo_info(repo).sha
    api.create_tag(repo, tag="v1.0", revision=head, tag_message="the first")
    assert api.repo_info(repo, revision="v1.0").sha == head


def test_a_tag_is_never_moved(api, repo):
    first = api.list_repo_commits(repo)[-1].commit_id
    api.create_tag(repo, tag="v1.0")
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_tag(repo, tag="v1.0", revision=first)
    assert refused.value.response.status_code == 409
    assert api.repo_info(repo, revision="v1.0").sha != first


def test_a_deleted_tag_is_gone(api, repo):
    api.create_tag(repo, tag="v1.0")
    api.delete_tag(repo, tag="v1.0")
    assert not api.revision_exists(repo, "v1.0")


def test_an_absent_tag_cannot_be_deleted(api, repo):
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(repo, tag="v1.0")


def test_a_squashed_branch_has_one_commit_and_the_same_files(api, repo):
    before = api.repo_info(repo, files_metadata=True).siblings
    api.super_squash_history(repo)
    assert len(api.list_repo_commits(repo)) == 1
    assert api.repo_info(repo, files_metadata=True).siblings == before


def test_a_stranger_changes_nothing(stranger, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        stranger.create_tag(repo, tag="v1.0")
    assert refused.value.response.status_code == 403


def _post(api, url, body):
    import huggingface_hub

    return huggingface_hub.get_session().post(url, json=body, headers={"Authorization": f"Bearer {api.token}"})


def _get(api, url):
    import huggingface_hub

    return huggingface_hub.get_session().get(url, headers={"Authorization": f"Bearer {api.token}"})
