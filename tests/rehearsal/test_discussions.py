from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.errors import HfHubHTTPError


@pytest.fixture
def proposed(api, repo):
    """A pull request that changes one file and adds another."""
    additions = [CommitOperationAdd("config.json", b'{"a": 1}'), CommitOperationAdd("new.txt", b"new")]
    api.create_commit(repo, additions, commit_message="Better", commit_description="Why.", create_pr=True)
    return 1


def test_a_pull_request_is_listed(api, repo, proposed):
    (found,) = api.get_repo_discussions(repo)
    assert (found.num, found.title, found.status, found.author) == (1, "Better", "open", "rehearsal")
    assert found.is_pull_request


def test_lists_are_narrowed_down(api, stranger, repo, proposed):
    stranger.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="Theirs", create_pr=True)
    api.change_discussion_status(repo, 1, "closed")
    listed = {
        author: [found.num for found in api.get_repo_discussions(repo, author=author, discussion_status="open")]
        for author in ("rehearsal", "stranger")
    }
    assert listed == {"rehearsal": [], "stranger": [2]}


def test_a_long_list_comes_in_pages(api, hub, repo):
    for number in range(11):
        api.create_pull_request(repo, title=str(number))
    hub.requests.clear()
    assert [found.num for found in api.get_repo_discussions(repo)] == list(range(11, 0, -1))
    assert len(hub.requests) == 2


def test_the_details_show_comment_and_commits(api, repo, proposed):
    api.create_commit(repo, [CommitOperationAdd("b", b"b")], commit_message="More", revision="refs/pr/1")
    details = api.get_discussion_details(repo, 1)
    assert [event.type for event in details.events] == ["comment", "commit", "commit"]
    assert (details.events[0].content, details.events[2].summary) == ("Why.", "More")
    assert (details.target_branch, details.conflicting_files) == ("refs/heads/main", [])


def test_references_name_pull_requests_when_asked(api, repo, proposed):
    assert api.list_repo_refs(repo).pull_requests is None
    (reference,) = api.list_repo_refs(repo, include_pull_requests=True).pull_requests
    assert reference.ref == "refs/pr/1"


def test_a_draft_starts_without_a_commit(api, repo):
    draft = api.create_pull_request(repo, title="Later")
    assert (draft.status, draft.num, len(draft.events)) == ("draft", 1, 1)
    assert api.repo_info(repo, revision="refs/pr/1").sha == api.repo_info(repo).sha


def test_merging_makes_one_commit_of_it(api, repo, proposed):
    api.merge_pull_request(repo, 1)
    head, *_ = api.list_repo_commits(repo)
    details = api.get_discussion_details(repo, 1)
    assert (head.title, details.status, details.merge_commit_oid) == ("Better (#1)", "merged", head.commit_id)
    assert {"config.json", "model.safetensors", "new.txt"} < set(api.list_repo_files(repo))


def test_merging_keeps_what_happened_meanwhile(api, repo, proposed):
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="meanwhile.txt")
    api.merge_pull_request(repo, 1)
    assert {"meanwhile.txt", "new.txt"} < set(api.list_repo_files(repo))


def test_merging_deletes_what_was_proposed_to_be_deleted(api, repo):
    api.create_commit(repo, [CommitOperationDelete("config.json")], commit_message="m", create_pr=True)
    api.merge_pull_request(repo, 1)
    assert not api.file_exists(repo, "config.json")


def test_a_file_that_both_sides_changed_is_a_conflict(api, repo, proposed):
    api.upload_file(repo_id=repo, path_or_fileobj=b"[]", path_in_repo="config.json")
    assert api.get_discussion_details(repo, 1).conflicting_files == ["config.json"]
    with pytest.raises(HfHubHTTPError, match="conflicts"):
        api.merge_pull_request(repo, 1)


@pytest.mark.parametrize("again", ["merge", "close"])
def test_what_is_merged_stays_merged(api, repo, proposed, again):
    api.merge_pull_request(repo, 1)
    with pytest.raises(HfHubHTTPError) as refused:
        api.merge_pull_request(repo, 1) if again == "merge" else api.change_discussion_status(repo, 1, "closed")
    assert refused.value.response.status_code == 400


def test_a_stranger_does_not_merge(stranger, repo, proposed):
    with pytest.raises(HfHubHTTPError) as refused:
        stranger.merge_pull_request(repo, 1)
    assert refused.value.response.status_code == 403


def test_a_stranger_does_not_close_what_others_opened(stranger, repo, proposed):
    with pytest.raises(HfHubHTTPError) as refused:
        stranger.change_discussion_status(repo, 1, "closed")
    assert refused.value.response.status_code == 403


def test_whoever_opened_may_close(api, stranger, repo):
    stranger.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", create_pr=True)
    stranger.change_discussion_status(repo, 1, "closed")
    assert api.get_discussion_details(repo, 1).status == "closed"


def test_whoever_opened_adds_commits_and_others_do_not(api, stranger, repo):
    stranger.create_commit(repo, [CommitOperationAdd("a.bin", bytes(600))], commit_message="m", create_pr=True)
    stranger.create_commit(repo, [CommitOperationAdd("b.bin", b"\0b")], commit_message="m", revision="refs/pr/1")
    assert api.file_exists(repo, "b.bin", revision="refs/pr/1")
    api.create_pull_request(repo, title="ours")
    with pytest.raises(HfHubHTTPError) as refused:
        stranger.create_commit(repo, [CommitOperationAdd("c", b"c")], commit_message="m", revision="refs/pr/2")
    assert refused.value.response.status_code == 403


def test_a_proposal_on_a_head_that_moved_is_refused(api, repo):
    head = api.repo_info(repo).sha
    api.upload_file(repo_id=repo, path_or_fileobj=b"x", path_in_repo="meanwhile.txt")
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_commit(repo, [CommitOperationAdd("a", b"a")], commit_message="m", create_pr=True, parent_commit=head)
    assert (refused.value.response.status_code, list(api.get_repo_discussions(repo))) == (412, [])


def test_a_pull_request_that_is_not_there(api, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        api.get_discussion_details(repo, 7)
    assert refused.value.response.status_code == 404


@pytest.mark.parametrize("query", ["?p=x", "?p=-1"])
def test_a_page_that_makes_no_sense(hub, repo, query):
    answer = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/{repo}/discussions{query}")
    assert answer.status_code == 400


def test_other_discussions_there_are_none(api, repo):
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_discussion(repo, title="A question")
    assert refused.value.response.status_code == 400
