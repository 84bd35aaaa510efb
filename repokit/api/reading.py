"""A target on the command line becomes a repository."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from repokit.errors import MissingInput, RevisionNotFound, UsageError
from repokit.formats.urls import Place, Url, is_url
from repokit.printable import printable
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from repokit.hub.address import Address
    from repokit.repo.hub import HubRevision
    from repokit.repo.remote_directory import RemoteDirectory

    Progress = Callable[[str, int, int], object]


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of the Hub.

    Attributes:
        asked: The repository that was asked for.
        repo_id: Where it lies today: the new name of one that was renamed.
        commit: What the revision stood for.
        requests: To the Hub; redirects to its storage are parts of them.
        bytes: Bodies of answers.
    """

    asked: str
    repo_id: str
    commit: str
    requests: int
    bytes: int


def open_repository(target: str | Path, *, token: str | None = None, progress: Progress | None = None) -> Repository:
    """The repository in a directory, or at a revision on the Hub. Close it, or use it as a context manager.

    Args:
        target: What exists as a directory is one. Else `org/name`, `org/name@revision`, `hf://...` or the address of
            a page of the Hub: the small files and the beginnings of the large ones are read at once. Or an address
            that fsspec opens: `s3://bucket/models/name`.
        token: For the Hub, instead of HF_TOKEN or a login.
        progress: Told of stages (`list`, `files`), and how many of how many are done.

    Raises:
        MissingInput: There is no such directory.
        UsageError: The target is a file, or an address that leads elsewhere.
        RevisionNotFound, NotAuthorized, HubUnreachable: The Hub does not give it.
    """
    if (url := remote(target)) is not None:
        if (folder := url.on_disk) is not None:
            return Repository(Directory(folder, label=str(target)))
        return Repository(_opened_remotely(url))
    if not str(target):  # a variable that was not set; Path("") would be the current directory
        raise UsageError("the target is empty", hint="name a directory; . is the current one")
    path = Path(target)
    if _exists(path) and path.is_dir():
        return Repository(Directory(path, label=str(target)))
    if _exists(path):
        hint = f"name its directory: {path.parent}"
        raise UsageError(f"{printable(target)} is a file; a repository is a directory", hint=hint)
    address = address_of(target)
    if address is None:
        hint = "name a directory, or org/name or org/name@revision on the Hub"
        raise MissingInput("does not exist", path=str(target), hint=hint)
    return Repository(_opened(address, str(target), token, progress))


def address_of(target: str | Path) -> Address | None:
    """The address that a target is; None where it exists as a directory or a file, or can only be a path."""
    text = str(target)
    if remote(text) is not None or _exists(Path(target)) or _in_a_folder(text):
        return None
    from repokit.hub.address import parse

    return parse(text)


def remote(target: str | Path) -> Url | None:
    """The place that a target is which fsspec opens; None of the Hub's repositories, and of paths.

    Raises:
        UsageError: It leads nowhere.
    """
    text = str(target)
    if not is_url(text) or isinstance(target, Path):
        return None
    url = Url.parse(text)
    of_the_hub = url.lists_nothing or (url.protocol == "hf" and not url.path.startswith("buckets/"))
    return None if of_the_hub else url


def place_of(target: str | Path) -> Place:
    """A target as a place where a recipe may build: of a revision on the Hub, a path that does not exist."""
    url = remote(target)
    return Path(target) if url is None else url.on_disk or url


def _opened_remotely(url: Url) -> RemoteDirectory:
    from repokit.repo.remote_directory import RemoteDirectory

    found = RemoteDirectory(url)
    if not found.entries():
        hint = "check the address: the bucket, and every part of the path"
        raise MissingInput("does not exist, or is empty", path=str(url), hint=hint)
    return found


def _exists(path: Path) -> bool:
    """Whether there is something; a pasted address may be longer than a name can be."""
    try:
        return path.exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def _in_a_folder(text: str) -> bool:
    """Whether a target that looks like `org/name` begins with a folder that is here: a mistyped path."""
    first, slash, rest = text.partition("/")
    return bool(slash) and "@" not in text and "/" not in rest and Path(first).is_dir()


def _opened(address: Address, target: str, token: str | None, progress: Progress | None) -> HubRevision:
    from repokit.hub.revision_reader import RevisionReader
    from repokit.repo.hub import HubRevision

    try:
        return HubRevision.open(address, RevisionReader(str(address), token=token), listener=progress)
    except RevisionNotFound as error:
        if target == address.repo_id and error.hint:  # it may have been meant as a path
            error.hint = f"{error.hint}; there is no directory {printable(target)} either"
        raise


def read_of(repository: Repository) -> Read | None:
    """What was read of the Hub so far for this repository; None where it lies elsewhere."""
    source = repository.source
    if not hasattr(source, "reader"):  # by what it has, so that a directory needs no module of the Hub
        return None
    revision = cast("HubRevision", source)
    asked = revision.label.partition("@")[0]
    return Read(asked, *revision.commit, revision.reader.requests, revision.reader.bytes_read)
