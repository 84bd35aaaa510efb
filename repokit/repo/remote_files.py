"""Files behind an address, through fsspec: listed, and read in ranges.

This module alone imports fsspec. Credentials are its business, and that of the packages that speak each protocol: they
come from the environment or from their own configuration. What these packages raise is anything at all; here it
becomes what a person can act on, without what is secret in an address.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import BuildError, MissingInput, PlanError, RepokitError, UsageError
from repokit.formats.urls import Found, Url, scrubbed
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fsspec import AbstractFileSystem

    from repokit.formats.urls import Place

# What has to be installed, where it is not the protocol's one fsspec-compatible package as fsspec's registry names it.
_PACKAGES: Final = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "oss": "ossfs",
    "oci": "ocifs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "webdav": "webdav4",
    "hdfs": "pyarrow",
    "webhdfs": "requests",
    "lakefs": "lakefs-spec",
}
# Which of them repokit was written for; the others that fsspec knows work as far as their packages do.
_USUAL: Final = ("s3", "gs", "az", "abfs", "hf", "http", "https", "file", "memory", "sftp")
# That know folders, which have to be made before a file can lie in them. Object stores have none, and s3fs would make
# a bucket.
WITH_FOLDERS: Final = frozenset(
    {"file", "local", "sftp", "ssh", "ftp", "smb", "hdfs", "arrow_hdfs", "webhdfs", "webdav", "dbfs"}
)
# What tells one content from another, the surest first: as s3fs, gcsfs, adlfs, huggingface_hub and fsspec call it.
_CONTENT_IDS: Final = (
    "ETag",
    "etag",
    "md5Hash",
    "crc32c",
    "content_md5",
    "Content-MD5",
    "blob_id",
    "xet_hash",
    "checksum",
)
_TIMES: Final = ("LastModified", "last_modified", "updated", "mtime", "modified", "Last-Modified", "created")
_CREDENTIALS: Final = "credentials come from the environment or from fsspec's configuration (~/.config/fsspec/*.json)"


def opened(url: Url) -> tuple[AbstractFileSystem, str]:
    """The file system of an address, and the path in it.

    fsspec has one for each thread. Those that work in a loop of their own are used by all of them: to make another
    client takes s3fs a third of a second.

    Raises:
        UsageError: Nothing here speaks its protocol.
    """
    from fsspec.core import url_to_fs

    address = url.address
    key = (os.getpid(), url.protocol, address.partition("://")[2].partition("/")[0], url.query)
    if (shared := _SHARED.get(key)) is not None:
        return shared, str(shared._strip_protocol(address))  # noqa: SLF001 - what url_to_fs does
    _check_protocol(url)
    try:
        system, path = url_to_fs(address)
    except ImportError as error:
        raise _not_installed(url, error) from None
    except Exception as error:  # noqa: BLE001 - see the head of the module
        raise _refused(MissingInput, "opened", error, url) from None
    if getattr(system, "async_impl", False):
        _SHARED[key] = system
    return system, str(path)


# By process, which a fork makes another one, and by what may decide how a client is made.
_SHARED: Final[dict[tuple[int, str, str, str], AbstractFileSystem]] = {}


def _check_protocol(url: Url) -> None:
    from fsspec import available_protocols, registry

    if url.protocol not in available_protocols() and url.protocol not in registry:
        known = ", ".join(f"{name}://" for name in _USUAL)
        what = f"{printable(url.protocol, 40)}:// is no protocol that fsspec knows"
        raise UsageError(what, path=str(url), hint=f"one of {known}, or the path of a directory")


def _not_installed(url: Url, error: ImportError) -> UsageError:
    package = _PACKAGES.get(url.protocol)
    what = f"{url.protocol}:// needs a package that is not installed"
    if package is None:
        what = f"{what}: {printable(error, 120)}"
    hint = f"pip install {package}" if package else "install it; fsspec's documentation names it"
    return UsageError(what, path=str(url), hint=hint)


def _refused(kind: type[RepokitError], doing: str, error: Exception, url: Url) -> RepokitError:
    """What an error of a file system means for a person."""
    place = str(url)
    match error:
        case RepokitError():
            return error
        case FileNotFoundError() | NotADirectoryError():
            if url.lists_nothing:  # fsspec says so of whatever a web server refuses
                hint = "check the link; one that is signed ends with its time"
                return kind("is not there, or not given out", path=place, hint=hint)
            hint = "check the address: the bucket, and every part of the path"
            return kind("does not exist", path=place, hint=hint)
        case PermissionError():
            return kind(f"may not be {doing}: {_words(error)}", path=place, hint=_CREDENTIALS)
        case TimeoutError():
            return kind(f"could not be {doing}: no answer in time", path=place, hint="try again: see the network")
        case NotImplementedError():
            return kind(f"cannot be {doing}: {url.protocol}:// does not offer that", path=place)
    return kind(f"could not be {doing}: {_words(error)}", path=place, hint=f"see the network; {_CREDENTIALS}")


def _words(error: Exception) -> str:
    """An error of a library in one line, without what is secret in an address."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    return printable(scrubbed(text) or type(error).__name__, 200)


def reading(url: Url, doing: str = "read") -> contextlib.AbstractContextManager[None]:
    """Errors of reading, in words.

    Raises:
        MissingInput: Whatever a file system raised.
    """
    return _in_words(MissingInput, url, doing)


def writing(url: Url, doing: str = "written") -> contextlib.AbstractContextManager[None]:
    """Errors of writing, in words.

    Raises:
        BuildError: Whatever a file system raised.
    """
    return _in_words(BuildError, url, doing)


@contextlib.contextmanager
def _in_words(kind: type[MissingInput | BuildError], url: Url, doing: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - see the head of the module
        raise _refused(kind, doing, error, url) from None


# ---------------------------------------------------------------- listing


def is_file(url: Url) -> bool:
    """Whether there is a file at an address; else there is a folder, or what will be listed as nothing.

    Raises:
        MissingInput: The file system refused.
    """
    system, path = opened(url)
    system.invalidate_cache()
    with reading(url):
        try:
            return bool(system.info(path)["type"] == "file")
        except FileNotFoundError:
            return False


def listed(url: Url) -> Mapping[str, Mapping[str, Any]]:
    """Every file below an address, by its path there, as fsspec describes it. Of an object store, one call: `find`.

    Raises:
        MissingInput: The file system refused. A folder that is not there has no files: object stores know none.
    """
    system, path = opened(url)
    system.invalidate_cache()
    with reading(url, "listed"):
        with_folders = url.protocol in WITH_FOLDERS
        found = dict(_walked(system, path)) if with_folders else system.find(path, detail=True)
    prefix = path.rstrip("/") + "/"
    return {name.removeprefix(prefix): info for name, info in found.items() if name.startswith(prefix)}


def _walked(system: AbstractFileSystem, root: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What `find` gives, without passing over folders that may not be listed: fsspec's own walk does, in silence."""
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            listing = system.ls(folder, detail=True)
        except FileNotFoundError:  # the root is not there, or a folder went while we looked
            continue
        for info in listing:
            name = str(info["name"]).rstrip("/")
            if info["type"] == "directory" and name != folder:
                pending.append(name)
            elif info["type"] != "directory":
                yield name, info


def told(info: Mapping[str, Any]) -> Found:
    """What matters of fsspec's description of a file."""
    size = info.get("size")
    version = next((f"{key}:{_plain(info[key])}" for key in _CONTENT_IDS if info.get(key)), None)
    modified = next((seconds for key in _TIMES if (seconds := _seconds(info.get(key))) is not None), None)
    if version is None and modified is not None:
        version = f"time:{modified:.6f}"
    return Found(size if isinstance(size, int) and size >= 0 else None, version, modified)


def _plain(value: object) -> str:
    return str(value).strip('"')


def _seconds(value: object) -> float | None:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return _seconds(datetime.fromisoformat(value))
    return None


def looked_up(url: Url) -> Found:
    """One file, asked for anew.

    Raises:
        MissingInput: It is not there, is a folder, or the file system refused.
    """
    system, path = opened(url)
    system.invalidate_cache()
    with reading(url):
        info = system.info(path)
    if info.get("type") != "file":
        raise MissingInput("is not a file", path=str(url))
    return told(info)


def looked_up_again(urls: Iterable[Url]) -> dict[Url, Found]:
    """What is now said of files, those of one folder with one listing.

    Raises:
        MissingInput: One is gone, or the file system refused.
    """
    folders: dict[Url, list[Url]] = {}
    for url in urls:
        folders.setdefault(url.parent, []).append(url)
    found: dict[Url, Found] = {}
    for folder, files in folders.items():
        if len(files) <= 2:  # a folder may hold a hundred thousand
            found.update((url, looked_up(url)) for url in files)
            continue
        listing = listed(folder)
        for url in files:
            if url.name not in listing:
                raise MissingInput("does not exist", path=str(url))
            found[url] = told(listing[url.name])
    return found


# ---------------------------------------------------------------- reading


def read(url: Url, offset: int = 0, length: int | None = None) -> bytes:
    """Bytes of one file: one request.

    Raises:
        MissingInput: It is not there, or the file system refused.
    """
    if length == 0:
        return b""
    system, path = opened(url)
    end = None if length is None else offset + length
    with reading(url):
        content = bytes(system.cat_file(path, start=offset or None, end=end))
    if length is not None and len(content) > length:  # a server that knows no ranges sends the whole file
        if offset:
            what = "is on a server that gives no ranges of it"
            raise MissingInput(what, path=str(url), hint="download it, and name the file")
        content = content[:length]
    return content


def content(place: Place) -> bytes:
    """The whole of a small file, here or elsewhere.

    Raises:
        MissingInput: It is not there, or cannot be read.
    """
    if isinstance(place, Url):
        return read(place)
    try:
        return place.read_bytes()
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=str(place)) from None


class Ranges:
    """Reads one file from one end to the other, many small pieces with one request.

    Not for several threads at once.
    """

    # A request takes 20 to 100 ms before its first byte, and a connection carries 50 to 100 MB/s: at 8 MiB waiting
    # is a small part. The same again is what each of `--jobs` holds in memory.
    BLOCK: Final = 8 * 1024 * 1024
    # Read at least, where nothing says that the bytes behind are wanted too.
    LEAST: Final = 1024 * 1024

    def __init__(self, url: Url, fetch: Callable[[Url, int, int], bytes] = read) -> None:
        """`fetch`: bytes at an offset, as `read` gives them."""
        self.url = url
        self._fetch = fetch
        # A web server that knows no ranges sends the whole file instead, which is told by its length alone: none may be
        # asked for beyond the end.
        self._size = looked_up(url).size if url.lists_nothing else None
        self._start = 0
        self._block = memoryview(b"")

    def fill(self, buffer: memoryview, position: int, ahead: int) -> None:
        """Reads as many bytes as the buffer takes.

        Args:
            buffer: To fill.
            position: In the file.
            ahead: Bytes that are wanted from there on, by this call and those that follow.

        Raises:
            PlanError: The file ends before.
            MissingInput: The file system refused.
        """
        done = 0
        while done < len(buffer):
            at = position + done - self._start
            if not 0 <= at < len(self._block):
                self._load(position + done, max(len(buffer), ahead) - done)
                at = 0
                if not self._block:
                    raise self._shorter()
            part = self._block[at : at + len(buffer) - done]
            buffer[done : done + len(part)] = part
            done += len(part)

    def whole(self, buffer: memoryview, position: int) -> None:
        """Reads what stands in memory at once with one request. See fill."""
        content = self._fetch(self.url, position, len(buffer))
        if len(content) != len(buffer):
            raise self._shorter()
        buffer[:] = content

    def _shorter(self) -> PlanError:
        return PlanError("has become shorter since the plan was made", path=str(self.url))

    def _load(self, position: int, ahead: int) -> None:
        goes_on = bool(self._block) and position == self._start + len(self._block)
        length = self.BLOCK if goes_on else min(self.BLOCK, max(self.LEAST, ahead))
        length = length if self._size is None else min(length, max(0, self._size - position))
        self._block = memoryview(b"")  # not both at once
        self._block = memoryview(self._fetch(self.url, position, length))
        self._start = position
