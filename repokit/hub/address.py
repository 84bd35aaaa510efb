"""Where a name leads: `org/name@revision`, `hf://...`, and addresses pasted from a browser.

huggingface_hub 2.4 parses `hf://` and some web addresses (`parse_hf_uri`); it refuses those of single files to
download, of discussions and of commits, which are what people have at hand, and takes 0.3 s to import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from repokit.errors import UsageError
from repokit.hub.errors import safe
from repokit.hub.references import is_reference_name
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_REVISION: Final = "main"

_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")
# huggingface_hub utils/_validators.py, which mirrors the Hub's own check.
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # no address can carry one
_SHORT: Final = re.compile(r"(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>.*))?|(?P<legacy>[^/@]+)@(?P<at>.*)", re.DOTALL)
# What else the Hub has, by the first word of its addresses.
_OTHER_KINDS: Final = frozenset({"datasets", "spaces", "kernels", "buckets", "collections", "papers"})
# Words after the repository, in web addresses, that a revision follows.
_ROUTES: Final = frozenset({"tree", "blob", "resolve", "raw", "blame", "edit", "commit", "commits", "revision"})
_DISCUSSIONS: Final = "discussions"


@dataclass(frozen=True, slots=True)
class Address:
    """A revision of a model repository on the Hub.

    Attributes:
        repo_id: `org/name`, or `name` for the few old ones without an owner.
        revision: A branch, a tag, a commit id or `refs/pr/N`; None for the default branch.
        path: What the address points to inside the repository; None for all of it.
    """

    repo_id: str
    revision: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.repo_id}@{self.revision or DEFAULT_REVISION}"

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a whole commit id, which always means the same files."""
        return self.revision is not None and _COMMIT_ID.fullmatch(self.revision) is not None


def parse(text: str) -> Address | None:
    """The address that a text is, or None where it is none, and rather a path.

    A single word is a path: `name@revision` or `hf://name` means an old repository without an owner.

    Raises:
        UsageError: It is an address, but not of a model repository, or of another Hub, or it cannot be right.
    """
    if text.startswith("hf://"):
        return _uri(text)
    if re.match(r"https?://", text, re.IGNORECASE):
        return _web(text)
    if re.fullmatch(r"(?:datasets|spaces)(?:/[^/]+){1,2}", text):
        raise _other_kind(text)
    found = _SHORT.fullmatch(text)
    if found is None or not all(_is_name(part) for part in (found["repo"] or found["legacy"]).split("/")):
        return None
    return _address(text, found["repo"] or found["legacy"], found["revision"] if found["repo"] else found["at"])


def _uri(text: str) -> Address:
    """`hf://[models/]org/name[@revision][/path]`, the revision quoted where it has a slash in it."""
    parts = text.removeprefix("hf://").rstrip("/").split("/")
    if parts[0] in _OTHER_KINDS:
        raise _other_kind(text)
    if parts[0] == "models":
        parts = parts[1:]
    words = 1 if len(parts) == 1 or "@" in (parts or [""])[0] else 2
    if not parts or not all(parts):
        raise _unreadable(text)
    repo_id, at, first = "/".join(parts[:words]).partition("@")
    if not at:
        return _address(text, repo_id, None, parts[words:])
    revision, rest = _revision([first, *parts[words:]])
    return _address(text, repo_id, revision, rest)


def _web(text: str) -> Address:
    """What the browser shows: pages of the repository, of a folder, a file, a commit, a pull request."""
    try:
        split = urlsplit(text)
    except ValueError:
        raise _unreadable(text) from None
    path = _below_endpoint(split.scheme, split.netloc.rpartition("@")[2].lower(), split.path)
    segments = [segment for segment in path.split("/") if segment]
    if segments[:2] == ["api", "models"]:
        segments = segments[2:]
    if not segments:
        raise UsageError(f"{_shown(text)} names no repository", hint="paste the address of its page")
    if segments[0] in _OTHER_KINDS:
        raise _other_kind(text)
    words = 1 if _is_legacy(segments) else 2
    repo_id, rest = unquote("/".join(segments[:words])), segments[words:]
    match rest:
        case [route, first, *more] if route in _ROUTES:
            revision, inside = _revision([first, *more])
            return _address(text, repo_id, revision, inside)
        case [word, number, *_] if word == _DISCUSSIONS and number.isascii() and number.isdigit():
            return _address(text, repo_id, f"refs/pr/{number}")
    return _address(text, repo_id, None)


def _is_legacy(segments: Sequence[str]) -> bool:
    """Whether the first word alone is the repository: `gpt2/tree/main`, and not `org/raw/tree/main`."""
    words = {*_ROUTES, _DISCUSSIONS}
    return len(segments) == 1 or (len(segments) > 2 and segments[1] in words and segments[2] not in words)


def _revision(segments: Sequence[str]) -> tuple[str, list[str]]:
    """A revision at the beginning of quoted segments, and what is left.

    It is one segment, except for `refs/pr/3` and `refs/convert/NAME`, which the Hub's own addresses do not quote.
    """
    if segments[0] == "refs" and len(segments) > 2:
        return unquote("/".join(segments[:3])), [*segments[3:]]
    return unquote(segments[0]), [*segments[1:]]


def _below_endpoint(scheme: str, host: str, path: str) -> str:
    """The path of a web address below that of the Hub.

    Raises:
        UsageError: It is on another host, or beside the Hub on its own.
    """
    from huggingface_hub import constants

    ours = urlsplit(constants.ENDPOINT)
    host = host.removesuffix(_PORTS.get(scheme.lower(), ""))
    place = ours.netloc.rpartition("@")[2].lower().removesuffix(_PORTS.get(ours.scheme, ""))
    if host == place and f"{path}/".startswith(f"{ours.path}/"):
        return path.removeprefix(ours.path)
    if host in constants.HF_URL_HOSTS:  # what was copied from the Hub works with a mirror of it too
        return path
    asked = printable(without_password(constants.ENDPOINT))
    what = f"{printable(host + path if host == place else host) or 'nothing'} is not the Hub that is asked, {asked}"
    raise UsageError(what, hint="set HF_ENDPOINT to ask another one, or download it and name the directory")


_PORTS: Final = {"http": ":80", "https": ":443"}


def without_password(address: str) -> str:
    """A web address, without a user and a password before its host."""
    return re.sub(r"(?<=//)[^/?#]*@", "", address, count=1)


def _shown(text: str) -> str:
    """What was typed, for a message: a pasted address may have a password or a token in it."""
    return safe(without_password(text))


def _address(text: str, repo_id: str, revision: str | None, path: Sequence[str] = ()) -> Address:
    names = repo_id.split("/")
    bad = "--" in repo_id or ".." in repo_id or repo_id.endswith(".git")
    if bad or len(names) > 2 or not all(_is_name(name) for name in names):
        raise UsageError(f"{_shown(text)}: {printable(repo_id)} is not the name of a repository", hint=_FORMS)
    if revision is not None and not _is_revision(revision):
        what = f"{_shown(text)}: {printable(revision) or 'nothing'} is not the name of a revision"
        raise UsageError(what, hint="name a branch, a tag, a commit or refs/pr/N after the @")
    return Address(repo_id, revision, unquote("/".join(path)) or None)


_FORMS: Final = "write org/name, org/name@revision or hf://org/name, or paste the address of its page"


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_revision(text: str) -> bool:
    """Whether it is the short name of a branch or a tag, a commit id, or `refs/...` of a pull request."""
    named = is_reference_name(text.removeprefix("refs/"))
    return named and len(text) <= LONGEST_REVISION and not _SURROGATE.search(text)


LONGEST_REVISION: Final = 250  # characters; git keeps a branch in a file of its name


def _unreadable(text: str) -> UsageError:
    return UsageError(f"{_shown(text)} is not an address of a repository", hint=_FORMS)


def _other_kind(text: str) -> UsageError:
    return UsageError(
        f"{_shown(text)} is not a model repository", why="repokit reads model repositories only", hint=_FORMS
    )
