"""A repository or a checkpoint behind an address: `s3://bucket/run/checkpoint-500`. Nothing is downloaded.

Requests: one listing, the small files, and of each large one the 256 KiB with its header, several of them at a time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import LimitExceeded, MalformedFile, MissingInput
from repokit.formats.safetensors import FIRST_READ, MAX_HEADER
from repokit.repo import remote_files
from repokit.repo.directory import MAX_BELOW, MAX_DEPTH, MAX_FILES, OF_FILES
from repokit.repo.source import NOT_CONTENT, Entry, Kind
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.formats.urls import Found, Url

THREADS: Final = 12  # as for the Hub
_BLOCK: Final = FIRST_READ  # what is read at once of a file that is read here and there
_BLOCKS: Final = 64  # of those that are remembered: 16 MiB


class RemoteDirectory:
    """A Source over the files below an address, or over one file alone.

    Attributes:
        root: The place. Those below it know what the listing said of them, once entries are known.
        label: How the user calls it, without what is secret.
        unlisted: What was passed over, and why; known once entries are.
        outside: Nothing: no link leads out of a bucket. (directory.Directory has it.)
    """

    def __init__(self, root: Url, label: str | None = None, *, only: str | None = None, lenient: bool = False) -> None:
        """Asks for nothing yet.

        Args:
            root: Of the files.
            label: For people.
            only: The one file that is looked at, where nothing lists the others: a link.
            lenient: Pass over names that no repository can have, as a checkpoint may have them.
        """
        self._found: dict[str, Found] = {}
        self.root = root.with_listing(self._found)
        self.label = label or str(root)
        self.unlisted: dict[str, str] = {}
        self.outside: set[str] = set()
        self._only = only
        self._lenient = lenient
        self._lock = Lock()
        self._entries: dict[str, Entry] | None = None
        self._heads: dict[str, dict[str, bytes]] = {}  # by folder
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def entries(self) -> Mapping[str, Entry]:
        """Lists the files at the first call and keeps the answer.

        Raises:
            MissingInput: The file system refused.
            LimitExceeded: More files than the Hub takes, or deeper than any repository.
            MalformedFile: A name that no repository can have.
        """
        with self._lock:
            if self._entries is None:
                self._entries = dict(sorted(self._listed().items()))
            return self._entries

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        size = self._size(path)
        end = size if length is None else min(size, offset + length)
        if offset >= end:
            return b""
        head = self._head(path) if path.endswith(".safetensors") else b""
        if head and (offset, length) == (0, FIRST_READ):
            return head  # a guess at the length of a header is given the header alone
        if end <= len(head):
            return head[offset:end]
        if length is None or end - offset > _BLOCK:
            return self._asked(path, offset, end)
        first, last = offset // _BLOCK, (end - 1) // _BLOCK
        content = b"".join(self._block(path, number, size) for number in range(first, last + 1))
        return content[offset - first * _BLOCK : end - first * _BLOCK]

    def place(self, path: str) -> Url:
        """Where a file lies."""
        return self.root / path

    def described(self, path: str) -> str:
        """What an entry that is no file is: `is a folder`."""
        return f"is a {self.entries()[path].kind}"

    # ---------------------------------------------------------------- listing

    def _listed(self) -> dict[str, Entry]:
        if self._only is not None:
            self._remember(self._only, remote_files.looked_up(self.root / self._only))
            return {self._only: self._entry({}, self._only)}
        found = {path: info for path, info in remote_files.listed(self.root).items() if self._is_file(path, info)}
        for folder, files in Counter(path.partition("/")[0] for path in found if "/" in path).items():
            if self._lenient and files > MAX_BELOW:
                self.unlisted[f"{folder}/"] = f"has more than {MAX_BELOW:,} files"
                found = {path: info for path, info in found.items() if not path.startswith(f"{folder}/")}
        if len(found) > MAX_FILES:
            raise LimitExceeded(f"has more than {MAX_FILES:,} files, which the Hub does not take", path=self.label)
        for path, info in found.items():
            self._remember(path, remote_files.told(info))
        entries = {path: self._entry(info, path) for path, info in found.items()}
        return entries | _folders_like_files(entries)

    def _is_file(self, path: str, info: Mapping[str, Any]) -> bool:
        """Whether an object is a file of the repository: no folder, of no tool, and not passed over."""
        if path.endswith("/") or info.get("type") == "directory":
            return False
        if not NOT_CONTENT.isdisjoint(path.split("/")[:-1]):
            return False
        if reason := self._impossible(path):
            self.unlisted[path] = reason
        return reason is None

    def _remember(self, path: str, found: Found) -> None:
        self._found[(self.root / path).path] = found

    def _impossible(self, path: str) -> str | None:
        """Why an object is no file of a repository, where a checkpoint may have it all the same.

        Raises:
            MalformedFile, LimitExceeded: A repository may not.
        """
        reason = _no_path(path)
        if path.count("/") > MAX_DEPTH:
            reason = f"is nested deeper than {MAX_DEPTH} folders"
            if not self._lenient:
                raise LimitExceeded(reason, path=path)
        if reason and not self._lenient:
            raise MalformedFile(f"is the name of no file: it {reason}", path=path)
        return reason

    def _entry(self, info: Mapping[str, Any], path: str) -> Entry:
        size = self._found[(self.root / path).path].size
        if info.get("islink"):
            return Entry(size or 0, Kind.OUTSIDE_LINK)
        return Entry(size or 0, Kind.SPECIAL if size is None or info.get("type", "file") != "file" else Kind.FILE)

    # ---------------------------------------------------------------- reading

    def _size(self, path: str) -> int:
        entry = self.entries().get(path)
        if entry is None:
            raise MissingInput("is not in the repository", path=path)
        if entry.kind is not Kind.FILE:
            raise MissingInput(self.described(path), path=path)
        return entry.size

    def _head(self, path: str) -> bytes:
        """The header of a .safetensors file, or all of a small one; read with those of its folder, all at once."""
        folder = path.rpartition("/")[0]
        entries = self.entries()
        with self._lock:
            if folder not in self._heads:
                wanted = [
                    name
                    for name, entry in entries.items()
                    if name.endswith(".safetensors") and name.rpartition("/")[0] == folder and entry.kind is Kind.FILE
                ]
                with Threads(THREADS, thread_name_prefix="repokit-headers") as pool:
                    self._heads[folder] = dict(zip(wanted, pool.map(self._header, wanted), strict=True))
        return self._heads[folder].get(path, b"")

    def _header(self, path: str) -> bytes:
        size = self._found[(self.root / path).path].size or 0
        content = self._asked(path, 0, min(size, FIRST_READ))
        if size <= FIRST_READ:
            return content
        end = 8 + int.from_bytes(content[:8], "little")
        if end > min(size, 8 + MAX_HEADER):
            return content[:_START]  # no header, as its reader will say
        if end > len(content):
            content += self._asked(path, len(content), end)
        return content[: max(end, _START)]

    def _block(self, path: str, number: int, size: int) -> bytes:
        with self._lock:
            known = self._blocks.get((path, number))
            if known is not None:
                self._blocks.move_to_end((path, number))
                return known
        content = self._asked(path, number * _BLOCK, min(size, (number + 1) * _BLOCK))
        with self._lock:
            self._blocks[path, number] = content
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return content

    def _asked(self, path: str, begin: int, end: int) -> bytes:
        try:
            return remote_files.read(self.root / path, begin, end - begin)
        except MissingInput as error:
            error.path = path
            raise


_START: Final = 64  # bytes: what Repository.head looks at


def _no_path(name: str) -> str | None:
    """Why the name of an object cannot be that of a file; what else a name should not be is for rules to say."""
    if ".." in name.split("/"):
        return "leaves the repository"
    return "has an empty part" if not {"", "."}.isdisjoint(name.split("/")) else None


def _folders_like_files(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Folders whose name is that of a file, as a directory lists them."""
    found: dict[str, Entry] = {}
    for path in entries:
        parts = path.split("/")[:-1]
        for end, part in enumerate(parts):
            if part.endswith(OF_FILES):
                found["/".join(parts[: end + 1])] = Entry(0, Kind.FOLDER)
    return {path: entry for path, entry in found.items() if path not in entries}
