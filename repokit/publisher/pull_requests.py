"""Pull requests: is this one open, and has this directory been proposed already?

The answer to the commit that opens a pull request may be lost, and the commit must not be sent again then: nobody wants
two equal proposals. So the Hub is asked for the open ones of whoever is logged in, before the commit and after a loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from repokit.errors import PublishError, UsageError
from repokit.publisher.changes import changes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from repokit.publisher.changes import LocalFile
    from repokit.publisher.hub_client import HubClient
    from repokit.publisher.retrying import Patience

_REVISION: Final = re.compile(r"refs/pr/([1-9]\d{0,9})")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request of the repository.

    Attributes:
        url: Of its page.
        status: `draft`, `open`, `closed`, `merged`.
    """

    number: int
    url: str
    title: str
    status: str

    @property
    def revision(self) -> str:
        return f"refs/pr/{self.number}"


def number_of(revision: str) -> int | None:
    """N of `refs/pr/N`; None where the revision is something else."""
    found = _REVISION.fullmatch(revision)
    return int(found[1]) if found else None


def check_flags(*, revision: str, create: bool, create_branch: bool, tag: str | None, create_pr: bool) -> None:
    """Passes what goes together with a pull request.

    Raises:
        UsageError: Something does not.
    """
    if tag is not None and (create_pr or number_of(revision)):
        why = "it is a proposal; what is merged is another commit"
        raise UsageError("a pull request is not tagged", why=why, hint="leave --tag out, and tag what was merged")
    if not create_pr:
        return
    if revision not in {"main", "refs/heads/main"}:
        hint = "leave --revision out; to add to a pull request that is open: --revision refs/pr/N without --create-pr"
        raise UsageError("a pull request is opened against main only", why="the Hub knows no other", hint=hint)
    if create or create_branch:
        why = "what is created is yours, and nobody has to be asked"
        hint = "leave --create-pr out, or --create and --create-branch"
        raise UsageError("a pull request changes a repository that exists", why=why, hint=hint)


def check_open(request: PullRequest) -> None:
    """Passes a pull request that somebody still looks at.

    Raises:
        PublishError: It is closed or merged.
    """
    if request.status in {"closed", "merged"}:
        raise PublishError(
            f"{request.revision} is {request.status}",
            why="a commit to it reaches nobody",
            hint="open a new one: --create-pr without --revision",
        )


@dataclass
class Proposals:
    """The open pull requests of whoever is logged in, for one push of `local`.

    Attributes:
        known: The numbers of those that were there before this push sent anything.
    """

    client: HubClient
    patience: Patience
    local: Sequence[LocalFile]
    known: Collection[int] = frozenset()

    def standing(self, title: str) -> tuple[PullRequest, str] | None:
        """The one that proposes this directory already under this title, and the commit at its head; None: none."""
        requests = self._open()
        self.known = {request.number for request in requests}
        return self._equal([request for request in requests if request.title.strip() == title.strip()])

    def opened(self) -> tuple[PullRequest, str] | None:
        """The one that this push opened in spite of what was answered, and its commit; None if it opened none."""
        return self._equal([request for request in self._open() if request.number not in self.known])

    def _open(self) -> list[PullRequest]:
        author = self.patience.persist(self.client.user)
        return self.patience.persist(lambda: self.client.open_pull_requests(author))

    def _equal(self, requests: Sequence[PullRequest]) -> tuple[PullRequest, str] | None:
        for request in requests:
            head = self.patience.persist(partial(self.client.head, request.revision))
            remote = self.patience.persist(partial(self.client.tree, head))
            if changes(self.local, remote, parent=None).is_empty:
                return request, head
        return None
