"""The state of the Hub: repositories, their branches and tags, and the commits those point to. No HTTP here.

    objects/ab/abcdef...                    the bytes of every file, under their sha256
    commits/ab/abcdef....json               every commit with its tree, under its id
    repositories/models/org/name.json       who may see it, its branches, tags and pull requests
    xet/                                    what xet clients uploaded; committed files lie among the objects too

Objects and commits never change. What changes is one small JSON file a repository, replaced by a rename, so a Hub that
was killed is found again as it was after its last whole change. One process at a time may use a folder.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from threading import RLock
from typing import TYPE_CHECKING

from repokit.hub.references import is_reference_name
from repokit.rehearsal.commits import Add, Commit, Commits, Delete, Message, applied, regular_file
from repokit.rehearsal.objects import Objects, write_whole
from repokit.rehearsal.patterns import GITATTRIBUTES
from repokit.rehearsal.proposals import Proposal, conflicts, proposed
from repokit.rehearsal.refusals import (
    AlreadyExists,
    HubError,
    NotAllowed,
    RepositoryNotFound,
    RevisionNotFound,
    StaleParent,
)
from repokit.rehearsal.xet_storage import XetStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from repokit.rehearsal.commits import File
    from repokit.rehearsal.proposals import Status

DEFAULT_BRANCH = "main"
BRANCHES = "refs/heads/"
TAGS = "refs/tags/"
PULL_REQUESTS = "refs/pr/"
KINDS = ("models", "datasets", "spaces")

# huggingface_hub/utils/_validators.py and huggingface_hub/constants.py (REGEX_COMMIT_OID).
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_COMMIT_ID = re.compile(r"[0-9a-fA-F]{5,40}")


@dataclass(frozen=True, slots=True)
class Key:
    """Which repository: `models`, `org`, `name`."""

    kind: str
    namespace: str
    name: str

    @property
    def repo_id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class State:
    """All that changes about a repository.

    Attributes:
        references: Commit ids by full name: `refs/heads/main`, `refs/tags/v1.0`, `refs/pr/1`.
        commits: Every commit that was ever made here, in order.
        proposals: The pull requests by number.
    """

    private: bool
    gated: bool
    references: dict[str, str]
    commits: tuple[str, ...]
    proposals: dict[str, Proposal] = field(default_factory=dict)

    def proposed_by(self, revision: str) -> str | None:
        """Who opened the pull request `refs/pr/N`; None where it is something else."""
        proposal = (
            self.proposals.get(revision.removeprefix(PULL_REQUESTS)) if revision.startswith(PULL_REQUESTS) else None
        )
        return proposal.author if proposal else None

    def under(self, prefix: str) -> dict[str, str]:
        """The commit ids by short name, sorted: what stands under `refs/heads/`, `refs/tags/` or `refs/pr/`."""
        names = sorted(name for name in self.references if name.startswith(prefix))
        return {name.removeprefix(prefix): self.references[name] for name in names}


class Storage:
    """Repositories in a folder. Every method may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.objects = Objects(folder / "objects")
        self.commits = Commits(folder / "commits")
        self.xet = XetStorage(folder / "xet")
        self._folder = folder / "repositories"
        self._locks: defaultdict[Key, RLock] = defaultdict(RLock)

    def create(self, key: Key, *, author: str, private: bool) -> None:
        """A repository with the one commit that the Hub itself makes: `.gitattributes`.

        Raises:
            HubError: A name that the Hub does not take.
            AlreadyExists: It is there, and stays as it is.
        """
        _check_name(key)
        with self._locks[key]:
            if self._path(key).exists():
                raise AlreadyExists(f"You already created this {key.kind[:-1]} repo")
            content = GITATTRIBUTES.encode()
            attributes = regular_file(content, self.objects.add(content))
            first = Commit({".gitattributes": attributes}, None, 0, Message(author, "initial commit"))
            oid = self.commits.keep(first)
            self._write(key, State(private, False, {f"{BRANCHES}{DEFAULT_BRANCH}": oid}, (oid,)))

    def delete(self, key: Key) -> None:
        with self._locks[key]:
            self.state(key)
            self._path(key).unlink()

    def state(self, key: Key) -> State:
        """The repository as it is now.

        Raises:
            RepositoryNotFound: There is none of this name.
        """
        try:
            _check_name(key)
            fields = json.loads(self._path(key).read_bytes())
        except (HubError, FileNotFoundError):
            raise RepositoryNotFound from None
        proposals = {number: Proposal(**proposal) for number, proposal in fields["proposals"].items()}
        return State(**{**fields, "commits": tuple(fields["commits"]), "proposals": proposals})

    def keys(self) -> Iterator[Key]:
        for path in sorted(self._folder.glob("*/*/*.json")):
            yield Key(path.parent.parent.name, path.parent.name, path.name.removesuffix(".json"))

    def configure(self, key: Key, *, private: bool | None = None, gated: bool | None = None) -> None:
        """Sets what is not None."""
        with self._locks[key]:
            state = self.state(key)
            private = state.private if private is None else private
            gated = state.gated if gated is None else gated
            self._write(key, replace(state, private=private, gated=gated))

    def resolve(self, key: Key, revision: str) -> str:
        """The commit id behind a branch, a tag, `refs/...`, `HEAD` or the first digits of a commit id.

        Raises:
            RevisionNotFound: None of these.
        """
        state = self.state(key)
        name = DEFAULT_BRANCH if revision == "HEAD" else revision
        for reference in (f"{BRANCHES}{name}", f"{TAGS}{name}", name):
            if reference in state.references:
                return state.references[reference]
        if _COMMIT_ID.fullmatch(name):
            for oid in state.commits:
                if oid.startswith(name.lower()):
                    return oid
        raise RevisionNotFound(revision)

    def commit(
        self, key: Key, revision: str, operations: Iterable[Add | Delete], message: Message, parent: str | None = None
    ) -> str:
        """Adds one commit to a branch or pull request and returns its id. It happens whole or not at all.

        Args:
            key: The repository.
            revision: `main`, `refs/heads/main`, `refs/pr/1`.
            operations: Applied to the tree of the head, in their order.
            message: Who says what about it.
            parent: What the caller believes the head to be, at least five digits of it.

        Raises:
            RevisionNotFound: Not a branch or pull request; tags and commits do not move.
            StaleParent: The head is another commit.
        """
        with self._locks[key]:
            state = self.state(key)
            reference = _movable(state, revision)
            head = state.references[reference]
            if parent is not None and not head.startswith(parent.lower()):
                raise StaleParent
            return self._move(key, state, reference, self._on_top(head, operations, message))

    def pull_request(
        self, key: Key, revision: str, operations: Iterable[Add | Delete], message: Message, parent: str | None = None
    ) -> tuple[str, str]:
        """Opens a pull request with one commit on top of `revision`; returns the commit id and the number.

        Raises:
            StaleParent: `revision` is not at `parent`.
        """
        with self._locks[key]:
            head = self.resolve(key, revision)
            if parent is not None and not head.startswith(parent.lower()):
                raise StaleParent
            commit = self._on_top(head, operations, message)
            return self.commits.keep(commit), self._propose(key, head, commit, message, "open")

    def draft(self, key: Key, message: Message) -> str:
        """Opens a pull request without a commit of its own yet; returns its number."""
        with self._locks[key]:
            head = self.resolve(key, DEFAULT_BRANCH)
            return self._propose(key, head, self.commits[head], message, "draft")

    def _propose(self, key: Key, base: str, commit: Commit, message: Message, status: Status) -> str:
        state = self.state(key)
        number = str(len(state.proposals) + 1)
        proposal = Proposal(message.author, message.title, message.description, status, base)
        state = replace(state, proposals={**state.proposals, number: proposal})
        self._move(key, state, f"{PULL_REQUESTS}{number}", commit)
        return number

    def set_status(self, key: Key, number: str, status: Status, merged: str | None = None) -> None:
        """Opens or closes a pull request.

        Raises:
            HubError: It is merged, and stays so.
        """
        with self._locks[key]:
            state = self.state(key)
            proposal = state.proposals[number]
            if proposal.status == "merged":
                raise HubError("The pull request is merged")
            changed = {number: replace(proposal, status=status, merged=merged)}
            self._write(key, replace(state, proposals={**state.proposals, **changed}))

    def conflicts(self, key: Key, number: str) -> list[str]:
        """The files that keep a pull request from being merged."""
        return conflicts(*self._sides(key, number))

    def merge(self, key: Key, number: str, user: str) -> str:
        """Makes what a pull request proposes one commit of the default branch, and returns its id.

        Raises:
            HubError: The branch has changed the same files, or the pull request is closed.
        """
        with self._locks[key]:
            if self.state(key).proposals[number].status not in {"open", "draft"}:
                raise HubError("The pull request is not open")
            if conflicting := self.conflicts(key, number):
                raise HubError(f"The pull request has conflicts: {', '.join(conflicting)}")
            base, head, _ = self._sides(key, number)
            message = Message(user, f"{self.state(key).proposals[number].title} (#{number})")
            oid = self.commit(key, DEFAULT_BRANCH, proposed(base, head), message)
            self.set_status(key, number, "merged", oid)
            return oid

    def _sides(self, key: Key, number: str) -> tuple[Mapping[str, File], Mapping[str, File], Mapping[str, File]]:
        """The trees of where a pull request started, of the pull request, and of the branch."""
        oids = (
            self.state(key).proposals[number].base,
            self.resolve(key, f"{PULL_REQUESTS}{number}"),
            self.resolve(key, DEFAULT_BRANCH),
        )
        base, head, branch = (self.commits[oid].files for oid in oids)
        return base, head, branch

    def squash(self, key: Key, revision: str, message: Message) -> str:
        """Replaces the history of a branch by one commit with the same files."""
        with self._locks[key]:
            state = self.state(key)
            reference = _movable(state, revision)
            files = self.commits[state.references[reference]].files
            return self._move(key, state, reference, Commit(files, None, 0, message))

    def create_reference(self, key: Key, prefix: str, name: str, revision: str) -> None:
        """A branch or tag at `revision`; `prefix` is `BRANCHES` or `TAGS`.

        Raises:
            AlreadyExists: At whatever commit it is: tags are never moved.
            HubError: A name that git or the Hub does not take.
        """
        if not is_reference_name(name):
            raise HubError(f"Invalid reference name: {name!r}")
        reference = f"{prefix}{name}"
        with self._locks[key]:
            state = self.state(key)
            if reference in state.references:
                raise AlreadyExists(f"Reference {reference} exists already")
            self._move(key, state, reference, self.commits[self.resolve(key, revision)])

    def delete_reference(self, key: Key, prefix: str, name: str) -> None:
        """Forgets a branch or tag; its commits stay.

        Raises:
            NotAllowed: The default branch.
        """
        reference = f"{prefix}{name}"
        if reference == f"{BRANCHES}{DEFAULT_BRANCH}":
            raise NotAllowed("The default branch cannot be deleted")
        with self._locks[key]:
            state = self.state(key)
            if reference not in state.references:
                raise RevisionNotFound(name)
            kept = {known: oid for known, oid in state.references.items() if known != reference}
            self._write(key, replace(state, references=kept))

    def history(self, oid: str) -> Iterator[tuple[str, Commit]]:
        """A commit and all before it, the newest first."""
        following: str | None = oid
        while following is not None:
            commit = self.commits[following]
            yield following, commit
            following = commit.parent

    def _on_top(self, head: str, operations: Iterable[Add | Delete], message: Message) -> Commit:
        before = self.commits[head]
        return Commit(applied(before.files, operations), head, before.depth + 1, message)

    def _move(self, key: Key, state: State, reference: str, commit: Commit) -> str:
        oid = self.commits.keep(commit)
        commits = state.commits if oid in state.commits else (*state.commits, oid)
        self._write(key, replace(state, references={**state.references, reference: oid}, commits=commits))
        return oid

    def _write(self, key: Key, state: State) -> None:
        write_whole(self._path(key), [json.dumps(asdict(state), indent=1).encode()])

    def _path(self, key: Key) -> Path:
        return self._folder / key.kind / key.namespace / f"{key.name}.json"


def _movable(state: State, revision: str) -> str:
    """The full name of a branch or pull request.

    Raises:
        RevisionNotFound: Something else: tags and commits do not move.
    """
    name = DEFAULT_BRANCH if revision == "HEAD" else revision
    for reference in (f"{BRANCHES}{name}", name):
        if reference in state.references and not reference.startswith(TAGS):
            return reference
    raise RevisionNotFound(revision)


def _check_name(key: Key) -> None:
    whole = key.repo_id
    well_formed = key.kind in KINDS and all(_NAME.fullmatch(part) for part in (key.namespace, key.name))
    if not well_formed or "--" in whole or ".." in whole or whole.endswith(".git"):
        raise HubError(f"Invalid repo name: {whole!r}")
