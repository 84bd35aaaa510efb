"""Where a push goes: a branch or pull request that exists, or one that may be made. Settled before any byte is sent.

Nothing is created because of a typing error: an absent repository or branch is refused, with the flag that creates it.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.errors import NotAuthorized, PublishError, RevisionNotFound, UsageError
from repokit.hub.errors import LOGIN_HINT
from repokit.hub.references import is_reference_name
from repokit.printable import printable
from repokit.publisher.hub_client import References
from repokit.publisher.pull_requests import PullRequest, check_open, number_of

if TYPE_CHECKING:
    from repokit.publisher.hub_client import HubClient
    from repokit.publisher.retrying import Patience

DEFAULT_BRANCH: Final = "main"
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")
_NOTHING: Final = References({}, {})
# What the Hub does where nobody decides: huggingface_hub, `create_repo`.
_VISIBILITY: Final = {
    True: "private",
    False: "public",
    None: "public, unless its organization makes new ones private",
}


@dataclass(frozen=True, slots=True)
class Permissions:
    """What may be created if it is absent.

    Attributes:
        private: Whether a new repository is private; None leaves it to the Hub.
        pull_request: The commit is to be proposed, in a new pull request.
    """

    repository: bool
    branch: bool
    private: bool | None
    pull_request: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Where the commit goes.

    Attributes:
        revision: A short branch name, or `refs/pr/N`.
        head: The commit to compare with: of the revision, or of the default branch where the branch is to be made;
            None where there is no commit at all.
        creates: What is made first, before the upload: `repository`, `branch`, both, or nothing; or what the commit
            makes: `pull request`.
        references: What is there.
        pull_request: The one whose `refs/pr/N` the revision is.
    """

    revision: str
    head: str | None
    creates: frozenset[str]
    references: References
    pull_request: PullRequest | None = None

    @property
    def proposes(self) -> bool:
        """Whether the commit opens a pull request."""
        return "pull request" in self.creates

    def announcements(self, repo_id: str, *, private: bool | None) -> list[str]:
        """What is going to be created, in sentences. Who will be able to read it is said before, and not after."""
        at = f" at {self.head[:7]}" if self.head else ""
        told = {
            "repository": f"creates the repository {repo_id}: {_VISIBILITY[private]}",
            "branch": f"creates the branch {printable(self.revision)}{at}",
            "pull request": f"opens a pull request against {printable(self.revision)}{at}",
        }
        return [sentence for kind, sentence in told.items() if kind in self.creates]

    def check_tag(self, tag: str) -> None:
        """Passes for a name that a tag can have.

        Raises:
            UsageError: Git takes no such name, or a branch has it.
        """
        if not is_reference_name(tag):
            raise UsageError(f"{printable(tag)} is not a name for a tag", hint="use a name like v1.0")
        if tag == self.revision or tag in self.references.branches:
            why = "nobody could tell which of the two a download means"
            raise UsageError(f"{printable(tag)} is a branch", why=why, hint="give the tag another name: --tag")


def resolve(
    client: HubClient, revision: str, allowed: Permissions, patience: Patience, *, directory: str = "DIR"
) -> Target:
    """Looks the repository and the revision up; creates nothing.

    Args:
        client: Of the repository.
        revision: As it was asked for.
        allowed: What may be created.
        patience: How often it is asked again.
        directory: What is pushed, for the command that a hint names.

    Raises:
        RevisionNotFound: The repository or branch is absent, and may not be created.
        UsageError: The revision is a tag or a commit, which do not move.
        PublishError: The repository is public and was to be private.
    """
    name = revision.removeprefix("refs/heads/")
    references = _references(client, allowed, patience, directory)
    if references is None:
        return _in_new_repository(name, allowed)
    _refuse_public(client, allowed, patience)
    if (number := number_of(name)) is not None:
        return _in_pull_request(client, number, references, patience)
    if name in references.branches:
        creates = frozenset({"pull request"} if allowed.pull_request else ())
        return Target(name, references.branches[name], creates, references)
    _refuse_fixed(name, references)
    if not allowed.branch and (name != DEFAULT_BRANCH or references.branches):
        raise _absent_branch(client.repo_id, name, references, directory)
    creates = frozenset({"branch"} if references.branches else ())
    return Target(name, references.branches.get(DEFAULT_BRANCH), creates, references)


def _refuse_public(client: HubClient, allowed: Permissions, patience: Patience) -> None:
    if allowed.private and not patience.persist(client.is_private):
        raise PublishError(
            f"{client.repo_id} is public",
            why="the push is to be private, and everyone could read it there",
            hint="make the repository private in its settings, or push without --private",
        )


def create(client: HubClient, target: Target, allowed: Permissions, patience: Patience) -> None:
    """Makes what is absent: the repository, the branch.

    Raises:
        PublishError: The repository is public and was to be private.
    """
    if "repository" in target.creates:
        patience.persist(lambda: client.create_repository(private=allowed.private))
        _refuse_public(client, allowed, patience)  # somebody else may have been faster
    if "branch" in target.creates:
        start = target.head or DEFAULT_BRANCH
        patience.persist(lambda: client.create_branch(target.revision, start))


def _references(client: HubClient, allowed: Permissions, patience: Patience, directory: str) -> References | None:
    """None where the repository is absent and may be created."""
    try:
        return patience.persist(client.references)
    except RevisionNotFound as error:
        if allowed.repository:
            return None
        if not client.has_token():
            raise NotAuthorized(
                error.what, why="it is absent, or private and nobody is logged in", hint=LOGIN_HINT
            ) from error
        error.hint = f"check the name, or create it: repokit push {directory} {client.repo_id} --create"
        raise


def _in_new_repository(name: str, allowed: Permissions) -> Target:
    _refuse_fixed(name, _NOTHING)
    if name == DEFAULT_BRANCH:
        return Target(name, None, frozenset({"repository"}), _NOTHING)
    if not allowed.branch:
        why = "the repository is created with the branch main only"
        raise RevisionNotFound(f"there is no branch {printable(name)}", why=why, hint="add --create-branch")
    return Target(name, None, frozenset({"repository", "branch"}), _NOTHING)


def _in_pull_request(client: HubClient, number: int, references: References, patience: Patience) -> Target:
    name = f"refs/pr/{number}"
    try:
        head = patience.persist(lambda: client.head(name))
    except RevisionNotFound as error:
        error.why = "a pull request cannot be created as a branch"
        error.hint = "open one: --create-pr without --revision"
        raise
    request = patience.persist(lambda: client.pull_request(number))
    check_open(request)
    return Target(name, head, frozenset(), references, request)


def _refuse_fixed(name: str, references: References) -> None:
    if name.removeprefix("refs/tags/") in references.tags:
        tag = printable(name.removeprefix("refs/tags/"))
        why = "a tag names one commit for ever; people have pinned it"
        raise UsageError(f"{tag} is a tag", why=why, hint="push to a branch, and give the new commit a new --tag")
    if _COMMIT_ID.fullmatch(name):
        raise UsageError(
            f"{name} is a commit", why="a commit does not change", hint="push to a branch: --revision main"
        )
    if name.startswith("refs/"):
        hint = "use a branch, or the refs/pr/N of a pull request"
        raise UsageError(f"{printable(name)} is not a branch", why="a push moves a branch or a pull request", hint=hint)


def _absent_branch(repo_id: str, name: str, references: References, directory: str) -> RevisionNotFound:
    near = difflib.get_close_matches(name, references.branches, n=1)
    meant = f"did you mean --revision {printable(near[0])}? " if near else ""
    hint = f"{meant}To create it: repokit push {directory} {repo_id} --revision {printable(name)} --create-branch"
    return RevisionNotFound(f"{repo_id} has no branch {printable(name)}", why="a push creates none unasked", hint=hint)
