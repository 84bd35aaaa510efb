"""A directory becomes one commit on a revision, checked before and after.

    gate -> hash -> resolve -> card -> changes -> (create) -> upload -> one commit -> verify -> tag

Until the commit nothing is visible on the Hub but a repository or branch that was asked for; the commit is made whole
or not at all, and only on top of the commit that the changes were worked out against. Where the answer to it is lost,
the head of the branch tells what happened, or the list of open pull requests. So a push that was stopped anywhere is
taken up by running it again: bytes that arrived are not sent twice, a commit that was made is recognised by its tree.
That is why there is no journal.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repokit.errors import NotAuthorized, ParentMoved, PublishError, RevisionNotFound, UsageError
from repokit.hub.errors import LOGIN_HINT, Unanswered
from repokit.printable import count, printable
from repokit.publisher.changes import Changes, changes
from repokit.publisher.hub_client import Committed, HubClient
from repokit.publisher.local_tree import has_changed, hashed, listed, refuse_changed
from repokit.publisher.pull_requests import Proposals, PullRequest, check_flags
from repokit.publisher.retrying import Patience
from repokit.publisher.target import Permissions, Target, create as create_target, resolve
from repokit.publisher.verify import check_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from huggingface_hub import CommitOperationAdd

    from repokit.publisher.changes import LocalFile
    from repokit.publisher.local_tree import ListedFile

    Listener = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did, or with `dry_run` would do.

    Attributes:
        revision: The branch or pull request.
        commit: The commit whose tree was verified; None in a dry run.
        parent: The head before; None where there was none.
        url: Of what was published, pinned to the tag or commit; of the page of the pull request, if there is one.
        creates: `repository`, `branch`, `pull request`: what was, or would be, created for it.
        tag: The tag that names `commit` now, or would.
        verified_files: How many files of the commit were compared with the directory.
        notes: What the Hub and this module remark.
        pull_request: The one that the commit is part of; None in a dry run that would open one.
    """

    repo_id: str
    revision: str
    commit: str | None
    parent: str | None
    url: str
    changes: Changes
    tag: str | None
    verified_files: int
    dry_run: bool = False
    creates: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    pull_request: PullRequest | None = None


def push(
    directory: Path,
    repo_id: str,
    *,
    revision: str = "main",
    endpoint: str | None = None,
    token: str | None = None,
    create: bool = False,
    create_branch: bool = False,
    create_pr: bool = False,
    private: bool | None = None,
    tag: str | None = None,
    commit_message: str | None = None,
    commit_description: str | None = None,
    dry_run: bool = False,
    publish_manifest: bool = False,
    gate: Callable[[Path], None] | None = None,
    announce: Callable[[str], None] | None = None,
    approve: Callable[[Changes], None] | None = None,
    listener: Listener | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> PushResult:
    """Makes the tree of `revision` equal `directory`, in one commit, and tags it.

    Args:
        directory: A finished repository. `.git`, `.cache`, `*.repokit*` and repokit's manifest stay here.
        repo_id: `org/name`.
        revision: A branch, or the `refs/pr/N` of a pull request.
        endpoint: Of the Hub; None: HF_ENDPOINT, or the Hub of Hugging Face.
        token: None: HF_TOKEN or a login.
        create: Create the repository if it is absent.
        create_branch: Create the branch if it is absent, at the head of main.
        create_pr: Propose the commit in a new pull request against main. One that is open and proposes the same under
            the same title is taken for it.
        private: Of a repository that is created. True refuses one that is there and public.
        tag: Name the commit. A tag that exists elsewhere is refused before anything is uploaded, and never moved.
        commit_message: Title of the commit; None: what changed, counted.
        commit_description: What follows the title.
        dry_run: Stop after the changes are worked out; nothing on the Hub is touched.
        publish_manifest: Publish repokit's manifest too.
        gate: Looks at the directory and raises `Stopped` if it is not fit to be published.
        announce: Told in a sentence what is going to be created, before anything is.
        approve: Looks at the changes before anything on the Hub is touched, and raises to stop.
        listener: Called with a stage (`hash`, `upload`, `commit`, `verify`, `tag`), what of it is done, of how much.
        sleep: Waits between tries.

    Raises:
        Stopped: By the gate.
        RevisionNotFound: The repository or branch is absent; the hint names the flag that creates it.
        NotAuthorized: No token, a wrong one, or one without the right.
        ParentMoved: Someone else committed meanwhile. Nothing of theirs is overwritten.
        HubUnreachable: The Hub did not answer for a quarter of an hour, or answered nonsense.
        VerificationFailed: The commit is there and is not the directory.
        PublishError: Anything else that the Hub refuses, or a directory that changed meanwhile.
    """
    check_flags(revision=revision, create=create, create_branch=create_branch, tag=tag, create_pr=create_pr)
    work = _Work(HubClient(repo_id, endpoint=endpoint, token=token), Patience(sleep), listener or (lambda *_: None))
    if not dry_run and not work.client.has_token():
        raise NotAuthorized("not logged in", why="only members may write to a repository", hint=LOGIN_HINT)
    files = listed(directory, with_manifest=publish_manifest)
    if gate is not None:
        gate(directory)
    local = hashed(files, lambda done, total: work.report("hash", done, total))
    if any(file.path == ".gitignore" for file in local):
        work.notes.append(".gitignore is published like any other file, and so is what it names")
    allowed = Permissions(create, create_branch, private, create_pr)
    target = resolve(work.client, revision, allowed, work.patience, directory=shlex.quote(printable(directory)))
    found = work.compare(target, local)
    proposals = Proposals(work.client, work.patience, local)
    if target.proposes:
        target, found = work.proposed(target, found, proposals, commit_message or _title(found))
    work.refuse_taken(tag, target, found)
    work.check_card(directory, found)
    if announce is not None:
        for sentence in target.announcements(repo_id, private=private):
            announce(sentence)
    if approve is not None:
        approve(found)
    if not dry_run:
        create_target(work.client, target, allowed, work.patience)
        if target.head is None:
            found = work.compare_with_new(target, local)
    title = commit_message or _title(found)
    plan = _Plan(directory.resolve(), files, target, local, found, tag, title, commit_description, proposals)
    return work.planned(plan) if dry_run else work.publish(plan)


@dataclass(frozen=True, slots=True)
class _Plan:
    directory: Path
    files: list[ListedFile]
    target: Target
    local: list[LocalFile]
    changes: Changes
    tag: str | None
    title: str
    description: str | None
    proposals: Proposals


@dataclass
class _Work:
    """One push under way."""

    client: HubClient
    patience: Patience
    report: Listener
    notes: list[str] = field(default_factory=list)

    def compare(self, target: Target, local: Sequence[LocalFile]) -> Changes:
        head = target.head
        remote = [] if head is None else self.patience.persist(lambda: self.client.tree(head))
        return changes(local, remote, parent=head)

    def compare_with_new(self, target: Target, local: list[LocalFile]) -> Changes:
        """A repository that was just created is not empty: the Hub has put .gitattributes there."""
        try:
            head = self.patience.persist(lambda: self.client.head(target.revision))
        except RevisionNotFound:
            head = None  # no commit yet: this one will be the first
        found = self.compare(replace(target, head=head), local)
        if found.deleted and head is not None:  # someone else was faster, and nobody has approved of this
            raise _moved(self.client.repo_id, target.revision, None, head)
        return found

    def proposed(self, target: Target, found: Changes, proposals: Proposals, title: str) -> tuple[Target, Changes]:
        """Where the proposal goes: into a new pull request, or nowhere, or it stands in one that is open."""
        if found.is_empty:
            return replace(target, creates=frozenset()), found
        standing = proposals.standing(title) if self.client.has_token() else None
        if standing is None:
            return target, found
        request, head = standing
        target = replace(target, revision=request.revision, head=head, creates=frozenset(), pull_request=request)
        return target, self.compare(target, proposals.local)

    def refuse_taken(self, tag: str | None, target: Target, found: Changes) -> None:
        """A tag stays where it is, so it may only exist if this push commits nothing and it names the head already."""
        if tag is None:
            return
        target.check_tag(tag)
        at = target.references.tags.get(tag)
        if at is not None and found.is_empty:
            at = self.patience.persist(lambda: self.client.head(tag))  # an annotated tag has an id of its own
        if at is not None and not (found.is_empty and at == target.head):
            raise UsageError(
                f"tag {printable(tag)} exists at {at[:7]}",
                why="tags are not moved: people have pinned it",
                hint="use another name: --tag",
            )

    def check_card(self, directory: Path, found: Changes) -> None:
        """Before any byte is sent: the Hub refuses the commit for a bad card, hours of upload later."""
        if not any(file.path == "README.md" for file in found.uploads):
            return
        try:
            content = (directory / "README.md").read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise PublishError("is not UTF-8", path="README.md", why="the Hub cannot read the card") from None
        remarks = self.patience.persist(lambda: self.client.check_card(content))
        self.notes.extend(f"README.md: {remark}" for remark in remarks)

    def planned(self, plan: _Plan) -> PushResult:
        return self._result(plan, None, 0, plan.target.pull_request)

    def publish(self, plan: _Plan) -> PushResult:
        commit, request = plan.changes.parent, plan.target.pull_request
        if commit is None or not plan.changes.is_empty:
            made = self._commit(plan, self._upload(plan))
            commit, request = made.oid, made.pull_request or request
        self._verify(plan, commit)
        self._tag(plan, commit)
        return self._result(plan, commit, len(plan.local), request)

    def _upload(self, plan: _Plan) -> list[CommitOperationAdd]:
        uploads, size = plan.changes.uploads, plan.changes.upload_size
        self.report("upload", 0, size)
        revision, proposes = plan.target.revision, plan.target.proposes
        if uploads:
            self.patience.persist(lambda: self.client.check_xet_token(revision, create_pr=proposes))
        try:
            additions = self.client.upload(revision, plan.directory, uploads, create_pr=proposes)
        except PublishError:
            refuse_changed([file.path for file in plan.files if has_changed(file)])  # which explains the error better
            raise
        self.report("upload", size, size)
        return additions

    def _commit(self, plan: _Plan, additions: list[CommitOperationAdd]) -> Committed:
        """Makes the commit, or finds out that it was made, or that it cannot be."""
        deletions = [file.path for file in plan.changes.deleted]
        revision, parent = plan.target.revision, plan.changes.parent
        tries = 0
        while True:
            self.report("commit", 0, 1)
            try:
                return self.client.commit(
                    revision,
                    additions,
                    deletions,
                    plan.title,
                    parent,
                    description=plan.description,
                    create_pr=plan.target.proposes,
                )
            except (Unanswered, ParentMoved) as error:
                if made := self._made(plan):
                    return made
                if isinstance(error, ParentMoved):
                    raise
                tries += 1
                self.patience.wait(tries, error)
                # Once more: on a branch a late commit is in the way of the next one, a late pull request is not.
                if plan.target.proposes and (made := self._made(plan)):
                    return made

    def _made(self, plan: _Plan) -> Committed | None:
        """The commit, if it is there in spite of what was answered; None if the branch has not moved.

        Raises:
            ParentMoved: The branch has moved, and what follows its old head is not this push.
        """
        revision, parent = plan.target.revision, plan.changes.parent
        if plan.target.proposes and (opened := plan.proposals.opened()):
            return Committed(opened[1], opened[0])
        head = self.patience.persist(lambda: self.client.head(revision))
        if head == parent:
            return None
        later = self.patience.persist(lambda: self.client.commits_after(parent, revision)) if parent else []
        first = later[0] if later else head
        remote = self.patience.persist(lambda: self.client.tree(first))
        if changes(plan.local, remote, parent=None).is_empty and not plan.target.proposes:
            return Committed(first)
        raise _moved(self.client.repo_id, revision, parent, head)

    def _verify(self, plan: _Plan, commit: str) -> None:
        total = len(plan.local)
        self.report("verify", 0, total)
        remote = self.patience.persist(lambda: self.client.tree(commit))
        check_tree(f"{self.client.repo_id}@{commit[:7]}", plan.local, remote)
        self.report("verify", total, total)

    def _tag(self, plan: _Plan, commit: str) -> None:
        tag = plan.tag
        if tag is None:
            return
        self.report("tag", 0, 1)
        at = self.patience.persist(lambda: self._tagged(tag, commit))
        if at != commit:
            raise PublishError(
                f"{commit[:7]} is published; the tag {printable(tag)} names {at[:7]}",
                why="someone else took the name meanwhile, and tags are not moved",
                hint="run the same command again with another --tag",
            )
        self.report("tag", 1, 1)

    def _tagged(self, tag: str, commit: str) -> str:
        """Creates the tag unless it is there, and looks where it is, whatever the Hub answered."""
        self.client.create_tag(tag, commit)
        try:
            return self.client.head(tag)
        except RevisionNotFound as error:
            raise Unanswered(f"{commit[:7]} is published, and not yet tagged", why=error.what) from error

    def _result(self, plan: _Plan, commit: str | None, verified: int, request: PullRequest | None) -> PushResult:
        pinned = plan.tag or commit or plan.target.revision
        tree = f"{self.client.pages}/{self.client.repo_id}/tree/{printable(pinned)}"
        return PushResult(
            repo_id=self.client.repo_id,
            revision=request.revision if request else plan.target.revision,
            commit=commit,
            parent=plan.changes.parent,
            url=request.url if request else tree,
            changes=plan.changes,
            tag=plan.tag,
            verified_files=verified,
            dry_run=commit is None,
            creates=plan.target.creates,
            notes=tuple(dict.fromkeys(self.notes)),
            pull_request=request,
        )


def _title(found: Changes) -> str:
    parts = [(found.added, "added"), (found.changed, "changed"), (found.deleted, "deleted")]
    counted = ", ".join(f"{len(files):,} {word}" for files, word in parts if files)
    return f"Publish {count(len(found.uploads) + len(found.unchanged), 'file')}: {counted or 'nothing changed'}"


def _moved(repo_id: str, revision: str, parent: str | None, head: str) -> ParentMoved:
    before = parent[:7] if parent else "nothing"
    return ParentMoved(
        f"{repo_id}@{printable(revision)} moved from {before} to {head[:7]} during this push",
        why="someone else committed; this push would undo their work, and did nothing",
        hint=f"look at what {head[:7]} changed since {before}, then run the same command again",
    )
