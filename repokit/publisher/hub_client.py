"""The Hub, as the publisher speaks to it: huggingface_hub, with a time limit and with repokit's errors.

huggingface_hub is imported here, inside functions, and nowhere else in this package.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from repokit.errors import PublishError, UsageError
from repokit.hub.address import without_password
from repokit.hub.errors import safe
from repokit.hub.session import asking
from repokit.printable import printable, some
from repokit.publisher.changes import RemoteFile
from repokit.publisher.local_tree import refuse_changed
from repokit.publisher.pull_requests import PullRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, Discussion, HfApi

    from repokit.publisher.changes import LocalFile

# The Hub gives a commit up to 60 seconds (hub-docs, repositories-recommendations).
COMMIT_TIMEOUT: Final = 90.0

# Sent as the ignore file, so that neither one in the directory nor one on the Hub drops files without a word.
_IGNORE_NOTHING: Final = "# repokit publishes every file of the directory\n"


@dataclass(frozen=True, slots=True)
class References:
    """The commit ids of a repository by the short names of its branches and tags."""

    branches: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made.

    Attributes:
        pull_request: The one that was opened with it, if that was asked for.
    """

    oid: str
    pull_request: PullRequest | None = None


class HubClient:
    """One repository on one Hub.

    Attributes:
        endpoint: Where it is asked.
        pages: Where people look at it.
    """

    def __init__(self, repo_id: str, *, endpoint: str | None, token: str | None) -> None:
        """Asks nothing of the network yet. Where `endpoint` or `token` is None, HF_ENDPOINT and HF_TOKEN decide."""
        from huggingface_hub import HfApi

        if repo_id.count("/") != 1:
            raise UsageError(f"{printable(repo_id)} is not the name of a repository", hint="write ORG/NAME")
        self._api: HfApi = HfApi(endpoint=endpoint, token=token, library_name="repokit")
        self.repo_id = repo_id
        self.endpoint = self._api.endpoint
        self.pages = without_password(self.endpoint)

    def has_token(self) -> bool:
        from huggingface_hub import get_token

        return bool(self._api.token or get_token())

    def references(self) -> References:
        """Raises RevisionNotFound where there is no such repository."""
        with self._asking("read the branches"):
            found = self._api.list_repo_refs(self.repo_id)
            return References(
                {reference.name: reference.target_commit for reference in found.branches},
                {reference.name: reference.target_commit for reference in found.tags},
            )

    def head(self, revision: str) -> str:
        """The commit id of a branch, tag, `refs/...` or short commit id."""
        with self._asking("read the head", revision):
            sha = self._api.repo_info(self.repo_id, revision=revision).sha
        if sha is None:
            raise PublishError(f"{self.repo_id}@{revision} has no commit")
        return sha

    def is_private(self) -> bool:
        with self._asking("read the settings"):
            return bool(self._api.repo_info(self.repo_id).private)

    def tree(self, revision: str) -> list[RemoteFile]:
        """Every file of a revision."""
        from huggingface_hub.hf_api import RepoFile

        with self._asking("list the files", revision):
            entries = list(self._api.list_repo_tree(self.repo_id, revision=revision, recursive=True))
            return [
                RemoteFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
                for entry in entries
                if isinstance(entry, RepoFile)  # and not a folder
            ]

    def commits_after(self, parent: str, revision: str) -> list[str]:
        """The ids of the commits on a branch since `parent`, the oldest first."""
        with self._asking("read the history", revision):
            ids = [commit.commit_id for commit in self._api.list_repo_commits(self.repo_id, revision=revision)]
        return ids[: ids.index(parent)][::-1] if parent in ids else []

    def user(self) -> str:
        """The name of whoever is logged in."""
        with self._asking("read the account"):
            return str(self._api.whoami()["name"])

    def open_pull_requests(self, author: str) -> list[PullRequest]:
        """The latest first."""
        with self._asking("list the pull requests"):
            found = self._api.get_repo_discussions(
                self.repo_id, author=author, discussion_type="pull_request", discussion_status="open"
            )
            # Asked for, and looked at again: not every Hub narrows a list down.
            return [self._described(item) for item in found if item.is_pull_request and item.author == author]

    def pull_request(self, number: int) -> PullRequest:
        with self._asking("read the pull request", f"refs/pr/{number}"):
            return self._described(self._api.get_discussion_details(self.repo_id, number))

    def _described(self, found: Discussion) -> PullRequest:
        return PullRequest(found.num, self._page(found.num), found.title, found.status)

    def _page(self, number: int) -> str:
        return f"{self.pages}/{self.repo_id}/discussions/{number}"

    def create_repository(self, *, private: bool | None) -> None:
        with self._asking("create the repository"):
            self._api.create_repo(self.repo_id, private=private, exist_ok=True)

    def create_branch(self, branch: str, start: str) -> None:
        with self._asking("create the branch", branch):
            self._api.create_branch(self.repo_id, branch=branch, revision=start, exist_ok=True)

    def create_tag(self, tag: str, commit: str) -> None:
        """Leaves a tag of this name where it is; whoever cares looks at the references afterwards."""
        with self._asking("create the tag", tag):
            self._api.create_tag(self.repo_id, tag=tag, revision=commit, exist_ok=True)

    def check_card(self, content: str) -> list[str]:
        """What the Hub remarks on a README.md.

        Raises:
            PublishError: It would refuse the commit for it.
        """
        from huggingface_hub import get_session, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, and not seen by mypy

        with self._asking("check the card"):
            headers = build_hf_headers(token=self._api.token, library_name="repokit")
            body = {"repoType": "model", "content": content}
            response = get_session().post(f"{self.endpoint}/api/validate-yaml", json=body, headers=headers)
            report = response.json()
            errors = [safe(error["message"]) for error in report.get("errors", [])]
            if response.status_code == 400 and errors:
                why = "the Hub refuses every commit with this card"
                hint = "correct the block between the --- lines, then run the same command again"
                raise PublishError("; ".join(errors), why=why, hint=hint, path="README.md")
            hf_raise_for_status(response)
            return [safe(warning["message"]) for warning in report.get("warnings", [])]

    def check_xet_token(self, revision: str, *, create_pr: bool = False) -> None:
        """Passes unless something else than a token comes where the Hub gives out those for its xet storage.

        hf_xet would ask for it for four minutes; what is refused it understands at once.

        Raises:
            Unanswered: It came.
        """
        from huggingface_hub import get_session
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, and not seen by mypy
        from huggingface_hub.utils._runtime import is_xet_available

        if not is_xet_available():
            return
        # As huggingface_hub asks: a pull request has no revision yet.
        at = "None?create_pr=1" if create_pr else quote(revision, safe="")
        with self._asking("ask for xet storage", revision):
            headers = build_hf_headers(token=self._api.token, library_name="repokit")
            url = f"{self.endpoint}/api/models/{self.repo_id}/xet-write-token/{at}"
            response = get_session().get(url, headers=headers)
            if response.status_code == 200 and not _is_xet_token(response.json()):
                raise TypeError("no token for xet storage")  # which says of an answer that it is not the Hub's

    def upload(
        self, revision: str, directory: Path, files: Sequence[LocalFile], *, create_pr: bool = False
    ) -> list[CommitOperationAdd]:
        """Sends the bytes of large files and prepares a commit. Nothing is visible yet; what the Hub has is not sent.

        Raises:
            PublishError: A file is no longer the one that was hashed, or the Hub would leave it out.
        """
        from huggingface_hub import CommitOperationAdd

        with self._asking("upload the files", revision):
            additions = [CommitOperationAdd(file.path, str(directory / file.path)) for file in files]
            with _without_bars():
                self._api.preupload_lfs_files(
                    self.repo_id,
                    additions,
                    revision=revision,
                    create_pr=create_pr,
                    free_memory=False,
                    gitignore_content=_IGNORE_NOTHING,
                )
        _refuse_ignored([addition.path_in_repo for addition in additions if addition._should_ignore])  # noqa: SLF001 - what the Hub answered is told nowhere else
        pairs = zip(additions, files, strict=True)
        refuse_changed([file.path for addition, file in pairs if not _is_as_hashed(addition, file)])
        return additions

    def commit(
        self,
        revision: str,
        additions: Sequence[CommitOperationAdd],
        deletions: Sequence[str],
        message: str,
        parent: str | None,
        *,
        description: str | None = None,
        create_pr: bool = False,
    ) -> Committed:
        """One commit on top of `parent`, whole or not at all; with `create_pr`, in a new pull request.

        Raises:
            Unanswered: It may have been made, or not.
            ParentMoved: The head is another commit.
        """
        from huggingface_hub import CommitOperationDelete

        with self._asking("commit", revision, COMMIT_TIMEOUT):
            # Deletions first: a file may have to go for a folder of its name.
            operations: list[CommitOperationAdd | CommitOperationDelete] = [
                *(CommitOperationDelete(path, is_folder=False) for path in deletions),
                *additions,
            ]
            done = self._api.create_commit(
                self.repo_id,
                operations,
                commit_message=message,
                commit_description=description,
                revision=revision,
                parent_commit=parent,
                create_pr=create_pr,
            )
            if not create_pr:
                return Committed(str(done.oid))
            number = int(done.pr_num or 0)  # not a number: an answer that is not the Hub's
            return Committed(str(done.oid), PullRequest(number, self._page(number), message, "open"))

    def _asking(
        self, doing: str, revision: str | None = None, timeout: float | None = None
    ) -> AbstractContextManager[None]:
        return asking(doing, self.repo_id, revision, timeout)


def _is_xet_token(answer: object) -> bool:
    match answer:
        case {"accessToken": str(), "casUrl": str(), "exp": int()}:
            return True
    return False


def _is_as_hashed(addition: CommitOperationAdd, file: LocalFile) -> bool:
    """Whether what goes into the commit is what was hashed.

    A large file was hashed again by the upload. A regular one would be read once more while the commit is written: it
    is read here instead, and handed over as the bytes that were compared.
    """
    if addition._upload_mode == "lfs":  # noqa: SLF001 - as above
        return addition.upload_info.sha256.hex() == file.sha256
    try:
        content = Path(str(addition.path_or_fileobj)).read_bytes()
    except OSError:
        return False
    addition.path_or_fileobj = content
    return hashlib.sha256(content).hexdigest() == file.sha256


def _refuse_ignored(paths: Sequence[str]) -> None:
    if paths:
        raise PublishError(
            f"the Hub would leave out {some(list(paths))}",
            why="an ignore file in the repository names them; they would be missing without a word",
            hint="delete .gitignore from the repository on the Hub",
        )


@contextmanager
def _without_bars() -> Iterator[None]:
    """The client's own progress bars go to stderr whatever it is; the console has a display of its own."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
