"""Addresses of files that are not on this machine's disks: `s3://bucket/run/checkpoint-500`.

A Url does what a Path does where both can stand for a place: `/`, `name`, `parent`. What is secret in an address, a
password or the signature of a link, never is in its text: `***` stands for it, in messages and in plans alike, and
only what opens the address asks for what that stands for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias
from urllib.parse import quote, unquote

from repokit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|://)")
_PORT: Final = re.compile(r"[^:@]*:\d{1,5}")
_HIDDEN: Final = re.compile(r"\*{3}\d*")
_SIGNED: Final = frozenset({"http", "https"})  # whose user names are tokens, and whose queries are signatures
_LEAST_SECRET: Final = 4  # characters; a shorter part of a secret is in too many words
# Whose addresses have no place for a password: their packages would take it for the name of a bucket.
_WITHOUT_USERS: Final = frozenset({"s3", "gs", "az", "abfs", "oss", "oci", "hf"})
_TOLD: Final = frozenset({"versionid", "generation", "revision", "download"})  # what a query may say in messages
_PLAIN: Final = re.compile(r"[\w.\-]+", re.ASCII)
# Two words of fsspec for one place: what is compared must not differ in them.
_SAME: Final = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "ssh": "sftp", "local": "file"}
_OF_THE_DISK: Final = frozenset({"file"})
# Where the word before an @ is a container, a part of a name, or whom to log in as. Elsewhere it may be a token.
_NAMED: Final = _WITHOUT_USERS | _OF_THE_DISK | {"memory", "sftp", "ftp", "smb", "hdfs", "arrow_hdfs", "webhdfs"}
# Where a file may be called anything.
_OF_NAMES: Final = _WITHOUT_USERS | _OF_THE_DISK | {"memory"}
_PARAMETER: Final = re.compile(r"(;[^/;=]*=)([^/;]+)")  # RFC 3986, 3.3


def is_url(text: str) -> bool:
    """Whether this is an address and no path: `s3://...`, and what fsspec chains, `zip://...::s3://...`."""
    return _URL.match(text) is not None


class Found(NamedTuple):
    """A file as a listing has it.

    Attributes:
        size: Bytes; None where the server does not tell.
        version: Another one where the content is another: `etag:...`, or a time; None where nothing tells.
        modified: When it was written, in seconds since 1970; None where nothing tells.
    """

    size: int | None
    version: str | None = None
    modified: float | None = None

    def differs(self, size: int, version: str | None) -> bool:
        """Whether it is certainly not what it was. A listing and a question may be answered in other terms."""
        if self.size != size:
            return True
        kind, _, value = (self.version or "").partition(":")
        known_kind, _, known = (version or "").partition(":")
        return kind == known_kind and value != known


@dataclass(frozen=True)
class Url:
    """A place that fsspec opens.

    Attributes:
        protocol: `s3`.
        path: `bucket/run/checkpoint-500`; nothing in it is secret.
        query: Of a link: `X-Amz-Signature=***`; "" where there is none.
        listing: What a listing said of the files below, by their path; shared with every place below.
    """

    protocol: str
    path: str
    query: str = ""
    listing: Mapping[str, Found] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """An address as a person writes it, or one that was written with `***`.

        Raises:
            UsageError: It is chained, or leads nowhere.
        """
        protocol, _, rest = text.partition("://")
        if "::" in text:
            what = f"{shown(text.partition('::')[0])}::... is a chain of file systems, which repokit does not follow"
            raise UsageError(what, hint="name the files themselves: s3://bucket/path")
        path, _, query = rest.partition("?")
        path = path.rstrip("/")
        if not path:
            raise UsageError(f"{protocol}:// names no place", hint=f"name one: {protocol.lower()}://bucket/path")
        protocol = _SAME.get(protocol.lower(), protocol.lower())
        if protocol == "memory":
            path = path.lstrip("/")
        if protocol in _SIGNED and "#" in rest:
            what = "has a fragment (#...), which is asked for nowhere and may be secret"
            raise UsageError(what, path=f"{protocol}://...", hint="leave it out")
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise UsageError("has a part that leads elsewhere: . or ..", path=f"{protocol}://...", hint="leave it out")
        path = _without_user(path, protocol)
        return cls(protocol, path if protocol in _OF_NAMES else _without_parameters(path), _without_values(query))

    def __str__(self) -> str:
        """The address with `***` in place of what is secret."""
        return f"{self.protocol}://{self.path}" + (f"?{self.query}" if self.query else "")

    @property
    def address(self) -> str:
        """The whole address, for whoever opens it and nobody else.

        Raises:
            UsageError: It was written with `***`, by a process that is gone.
        """
        return _SECRETS.revealed(str(self))

    def __truediv__(self, path: str) -> Url:
        """The place below; of the place itself where the path is empty."""
        below = f"{self.path.rstrip('/')}/{path}" if path else self.path
        return Url(self.protocol, below, self.query, self.listing)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The place above; of a bucket, itself."""
        above = self.path.rpartition("/")[0].rstrip("/")
        return Url(self.protocol, above, self.query, self.listing) if above else self

    @property
    def parents(self) -> Sequence[Url]:
        """Every place above, the nearest first."""
        found: list[Url] = []
        place = self
        while (above := place.parent) != place:
            found.append(above)
            place = above
        return found

    def resolve(self) -> Self:
        """Itself: nothing links to it."""
        return self

    @property
    def lists_nothing(self) -> bool:
        """Whether only single files can be asked for there: a web server's listings are pages for people."""
        return self.protocol in _SIGNED

    @property
    def on_disk(self) -> Path | None:
        """The path that a `file://` stands for; None of every other address."""
        return Path(self.path) if self.protocol in _OF_THE_DISK else None

    def with_listing(self, listing: Mapping[str, Found]) -> Url:
        """The same place, and those below it, with what a listing says, or will say, of them."""
        return Url(self.protocol, self.path, self.query, listing)

    @property
    def found(self) -> Found | None:
        """What the listing said of it."""
        return self.listing.get(self.path)


Place: TypeAlias = Path | Url


def place(folder: Path, text: str) -> Place:
    """Where a word of a recipe leads: an address, or a path that is relative to the recipe's folder.

    Raises:
        UsageError: It is an address that leads nowhere.
    """
    return Url.parse(text) if is_url(text) else folder / text


def shown(text: str) -> str:
    """A path or an address as it may be shown and stored: with `***` in place of what is secret.

    Raises:
        UsageError: It is an address that leads nowhere.
    """
    return str(Url.parse(text)) if is_url(text) and "::" not in text else text


def scrubbed(text: str) -> str:
    """A message of a library, without any secret of an address that was parsed in this process."""
    return _SECRETS.scrubbed(text)


# ---------------------------------------------------------------- what is secret


def _without_user(path: str, protocol: str) -> str:
    """A path whose `user:password@` is hidden. A container is no user: abfs://container@account.dfs.core.windows.net."""
    host = path.partition("/")[0]
    if "@" in host:
        user, _, host = host.rpartition("@")
    elif ":" in host and "@" in path and not _PORT.fullmatch(host):  # a password with a slash in it
        user = path.rpartition("@")[0]
    else:
        return path
    if ":" not in user and protocol in _NAMED:
        return path
    if protocol in _WITHOUT_USERS:
        what = f"an address of {protocol}:// has no place for a password"
        hint = "credentials come from the environment or from fsspec's configuration (~/.config/fsspec/*.json)"
        raise UsageError(what, why="whoever reads the recipe would have it", hint=hint)
    return _SECRETS.hide(user) + path[len(user) :]


def _without_parameters(path: str) -> str:
    return _PARAMETER.sub(lambda found: found[1] + _SECRETS.hide(found[2]), path)


def _without_values(query: str) -> str:
    def hidden(pair: re.Match[str]) -> str:
        name, sign, value = pair[0].partition("=")
        if not sign:
            return _SECRETS.hide(name)
        told = name.lower() in _TOLD and _PLAIN.fullmatch(value)
        return f"{name}={value if told else _SECRETS.hide(value)}"

    return re.sub(r"[^&;]+", hidden, query)


class _Secrets:
    """What `***`, `***2`, ... stand for. Kept by the process alone: a plan that is read elsewhere has them not."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_mark: dict[str, str] = {}

    def hide(self, secret: str) -> str:
        """The mark of a secret: the same for the same one."""
        if not secret or _HIDDEN.fullmatch(secret):
            return secret
        with self._lock:
            for mark, known in self._by_mark.items():
                if known == secret:
                    return mark
            number = len(self._by_mark) + 1
            mark = "***" if number == 1 else f"***{number}"
            self._by_mark[mark] = secret
            return mark

    def revealed(self, text: str) -> str:
        def secret(mark: re.Match[str]) -> str:
            if mark[0] not in self._by_mark:
                what = "was written without its credentials, which repokit never stores"
                hint = "give them in the environment, or in fsspec's own configuration (~/.config/fsspec/*.json)"
                raise UsageError(what, hint=hint, path=text)
            return self._by_mark[mark[0]]

        return _HIDDEN.sub(secret, text)

    def scrubbed(self, text: str) -> str:
        with self._lock:
            known = list(self._by_mark.items())
        for mark, secret in known:
            # A library may cut it where it is none of its own: at the slash of a password.
            parts = {part for part in re.split(r"[:/@]", secret) if len(part) >= _LEAST_SECRET}
            whole = {secret, secret.rpartition(":")[2]} - {""}
            spelled = {form for part in whole | parts for form in (part, unquote(part), quote(part, safe=""))}
            for form in sorted(spelled, key=len, reverse=True):
                text = text.replace(form, mark)
        return text


_SECRETS: Final = _Secrets()
