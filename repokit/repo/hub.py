"""A repository on the Hub, without its weights: one listing, the small files, and of large ones the beginning.

Requests: one for the commit, one a thousand files for the tree, one for each file that rules look at. Of weights that
is the first 256 KiB; a header that is longer takes one more. An archive of torch.save takes two of 128 KiB: its pickle
stands at the beginning, its directory at the end. All of them at once, and the next time none but the first: what a
commit holds does not change, so that it is kept (see hub_cache).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, wait
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

from repokit.errors import HubUnreachable, InputError, LimitExceeded, MissingInput, RepokitError, UnsupportedSource
from repokit.formats.safetensors import FIRST_READ, MAX_HEADER
from repokit.hub.remote_file import RemoteFile
from repokit.hub.revision_reader import Commit, RevisionReader
from repokit.repo.directory import MAX_DEPTH, OF_FILES
from repokit.repo.hub_cache import Cache, default_folder
from repokit.repo.repository import MAX_TEXT
from repokit.repo.source import Entry, Kind
from repokit.repo.tokenizer import UNREAD
from repokit.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from repokit.hub.address import Address

    Listener = Callable[[str, int, int], object]

THREADS: Final = 12
_HEAD: Final = 64  # bytes: what Repository.head looks at
_LARGEST_TEXT: Final = 16 * 1024 * 1024  # above, a text is a data set, which no rule reads
_SMALL: Final = 16 * 1024  # a binary file that is read whole rather than begun
# A range that is read later on, by whoever follows offsets through a file, is at least this long: the next may be near.
_BLOCK: Final = 64 * 1024
_LARGEST_BLOCK: Final = 1024 * 1024  # of those that are remembered
_MOST_LATER: Final = 40  # such ranges of one file: more are a walk through the weights
# Of a repository that holds more, what is asked for is read then, one file after the other, up to the limits below.
_MOST_BEGUN: Final = 3_000  # files that are read at once; the Hub lets an address ask for so many in five minutes
_MOST_HELD: Final = 128 * 1024 * 1024  # bytes of them; the largest tokenizer.json has 35 MB
_MOST_LATER_IN_ALL: Final = 1_000  # requests
_MOST_LATER_BYTES: Final = 1_000_000_000
_LOOK: Final = 0.2  # seconds between looks at how far the threads are
_HALF: Final = FIRST_READ // 2  # of an archive, at either end

# What is parsed whole, whatever its size.
_PARSED: Final = re.compile(rf"(?:.*/)?(?:[^/]*\.(?:json|jinja|py)|README\.md|vocab\.txt|merges\.txt|{UNREAD})")
_TORCH: Final = re.compile(r".*\.(?:bin|pt|pth|ckpt)")
_ARCHIVE: Final = b"PK\x03\x04"
# No text in it, so that its first bytes say all that is asked of it.
_BINARY: Final = re.compile(
    r".*\.(?:safetensors|bin|pt|pth|ckpt|pkl|gguf|onnx|onnx_data|h5|msgpack|npz|npy|model|parquet|arrow|zip|gz|png"
    r"|jpe?g|gif|webp|wav|mp3|flac|mp4|pdf|tflite|mlmodel|ot|keras|safetensors_rust|joblib|xz|tar|tgz|7z|webm|ogg)"
)


class HubRevision:
    """A Source over one commit of a model repository.

    Attributes:
        label: `org/name@revision`, as it was asked for.
        commit: What is read.
        reader: Knows how much was asked of the Hub.
    """

    def __init__(
        self, label: str, reader: RevisionReader, commit: Commit, files: Iterable[RemoteFile], cache: Cache
    ) -> None:
        """Use `open`, which asks the Hub for the commit and the files."""
        self.label = label
        self.commit = commit
        self.reader = reader
        self._files = {file.path: file for file in sorted(files)}
        self._entries = _entries(self._files.values())
        self._cache = cache
        self._lock = Lock()
        self._begun: dict[str, bytes] = {}  # the first bytes of files, or all of them
        self._headers: set[str] = set()  # files of which `_begun` holds the header and nothing more
        self._blocks: dict[str, list[tuple[int, bytes]]] = {}
        self._later_reads: Counter[str] = Counter()
        self._later_bytes = 0
        self._held = 0  # bytes in `_begun` and, for the ends of archives, in `_blocks`

    @classmethod
    def open(
        cls,
        address: Address,
        reader: RevisionReader | None = None,
        cache: Cache | None = None,
        listener: Listener | None = None,
    ) -> Self:
        """Looks up the commit, lists its files and reads those that rules look at.

        Args:
            address: The revision.
            reader: Of one Hub; of HF_ENDPOINT's by default, with the token of HF_TOKEN or a login.
            cache: See hub_cache for the default.
            listener: Called with a stage (`list`, `files`), what of it is done, of how much.

        Raises:
            RevisionNotFound, NotAuthorized, HubUnreachable: See their hints.
        """
        reader = reader or RevisionReader(str(address))
        cache = cache or Cache(default_folder())
        listener = listener or (lambda *_: None)
        listener("list", 0, 1)
        commit, files = _listed(address, reader, cache)
        found = cls(str(address), reader, commit, files, cache)
        found.prefetch(listener)
        cache.prune()
        return found

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Source. A read of FIRST_READ bytes is a guess at the length of a header: it is given the header alone.

        Raises:
            MissingInput: The file is not there, or the Hub does not give it.
            UnsupportedSource: It is read all over, which is for whoever has it on disk.
        """
        file = self._files.get(path)
        if file is None:
            raise MissingInput("is not in the repository", path=path)
        end = file.size if length is None else min(file.size, offset + length)
        if offset >= end:
            return b""
        if path in self._headers and (offset, length) == (0, FIRST_READ):
            return self._begun[path][:FIRST_READ]
        if (known := self._known(path, offset, end)) is not None:
            return known
        try:
            return self._later(file, offset, end)
        except InputError:
            raise
        except RepokitError as error:
            raise MissingInput(error.what, why=error.why, hint=error.hint, path=path) from error

    # ---------------------------------------------------------------- at once

    def prefetch(self, listener: Listener = lambda *_: None) -> None:
        """Reads what rules look at, several files at a time.

        Raises:
            RepokitError: One of them could not be read; the others were given up.
        """
        wanted = [file for file in self._files.values() if file.size and _begin_of(file)]
        wanted = sorted(wanted, key=lambda file: not _is_of_model(file))[:_MOST_BEGUN]
        pool = Threads(THREADS, thread_name_prefix="repokit-hub")
        try:
            # The largest first, so that the last thread to end is not the one with the most to do.
            _follow([pool.submit(self._begin, file) for file in sorted(wanted, key=_begin_of, reverse=True)], listener)
        except BaseException:
            self.reader.stop()  # nobody waits for what is under way
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _begin(self, file: RemoteFile) -> None:
        """Reads the first bytes of a file, if there is room for them."""
        if file.path.endswith(".safetensors") and file.size > FIRST_READ:
            if (header := self._header(file)) is not None:
                self._begun[file.path] = header
                self._headers.add(file.path)
        elif self._reserve(_begin_of(file)):
            begun = self._begun[file.path] = self._range(file, 0, _begin_of(file))
            if _TORCH.fullmatch(file.path) and begun.startswith(_ARCHIVE) and len(begun) < file.size:
                tail = max(len(begun), file.size - _HALF)
                if self._reserve(file.size - tail):
                    self._blocks[file.path] = [(tail, self._range(file, tail, file.size))]

    def _header(self, file: RemoteFile) -> bytes | None:
        """The length prefix and header of a large .safetensors file, or what is there instead of one.

        None where there is no room for it.
        """
        identity = (*self._identity(file), "header")
        if (kept := self._cache.get(*identity)) is not None:
            return kept if self._reserve(len(kept)) else None
        content = self._ask(file, 0, FIRST_READ)
        end = 8 + int.from_bytes(content[:8], "little")
        if end > min(file.size, 8 + MAX_HEADER) or content[8:9] not in _OPENING:
            end = _HEAD  # no header, as its reader will say: it looks at no more
        end = max(end, _HEAD)
        if not self._reserve(end):
            return None
        if end > len(content):
            content += self._ask(file, len(content), end)
        content = content[:end]  # the rest is weights
        self._cache.put(*identity, content=content)
        return content

    def _reserve(self, size: int) -> bool:
        """Whether there is room for so many bytes more of what is held until the end."""
        with self._lock:
            if self._held + size > _MOST_HELD:
                return False
            self._held += size
            return True

    # ---------------------------------------------------------------- later

    def _known(self, path: str, begin: int, end: int) -> bytes | None:
        """A range out of what was read already; None where it is not in one piece of it."""
        with self._lock:
            pieces = [(0, self._begun[path])] if path in self._begun else []
            pieces += self._blocks.get(path, ())
        for start, piece in pieces:
            if start <= begin and end <= start + len(piece):
                return piece[begin - start : end - start]
        return None

    def _later(self, file: RemoteFile, begin: int, end: int) -> bytes:
        end_of_block = min(file.size, max(end, begin + _BLOCK))
        self._count_later(file, end_of_block - begin)
        block = self._range(file, begin, end_of_block)
        if len(block) <= _LARGEST_BLOCK:
            with self._lock:
                self._blocks.setdefault(file.path, []).append((begin, block))
        return block[: end - begin]

    def _count_later(self, file: RemoteFile, size: int) -> None:
        with self._lock:
            self._later_reads[file.path] += 1
            self._later_bytes += size
            requests, in_all = self._later_reads[file.path], self._later_reads.total()
        hint = "hf download it, and name the directory"
        if requests > _MOST_LATER:
            what = f"would take more than {_MOST_LATER} requests to look through on the Hub"
            raise UnsupportedSource(what, hint=hint, path=file.path)
        if in_all > _MOST_LATER_IN_ALL or self._later_bytes > _MOST_LATER_BYTES:
            what = "is not read: the repository has more to look at than is read over a network"
            raise MissingInput(what, hint=hint, path=file.path)  # which is no fault of the file, and no finding

    def _range(self, file: RemoteFile, begin: int, end: int) -> bytes:
        identity = (*self._identity(file), f"{begin}-{end}")
        content = self._cache.get(*identity)
        if content is None or len(content) != end - begin:
            content = self._ask(file, begin, end)
            self._cache.put(*identity, content=content)
        return content

    def _ask(self, file: RemoteFile, begin: int, end: int) -> bytes:
        if self.reader.offline:
            raise _offline(f"read {file.path}", self.label)
        return self.reader.range(self.commit, file, begin, end)

    def _identity(self, file: RemoteFile) -> tuple[str, ...]:
        """What a content is kept under. The endpoint and the repository too: their own word is all that a range has."""
        content_id = file.sha256 or file.blob_id
        return self.reader.endpoint, self.commit.repo_id, content_id, str(file.size)


_OPENING: Final = frozenset({b"{", b" ", b"\t", b"\n", b"\r"})


def _entries(files: Iterable[RemoteFile]) -> dict[str, Entry]:
    """The files, and folders whose name is that of a file, as a directory lists them.

    Raises:
        LimitExceeded: Deeper than any repository.
    """
    entries = {file.path: Entry(file.size) for file in files}
    folders = {path.rpartition("/")[0] for path in entries}
    for folder in folders:
        parts = folder.split("/")
        if len(parts) > MAX_DEPTH:
            raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} folders", path=folder)
        above = ("/".join(parts[: end + 1]) for end, part in enumerate(parts) if part.endswith(OF_FILES))
        entries.update((path, Entry(0, Kind.FOLDER)) for path in above)
    return dict(sorted(entries.items()))


def _follow(tasks: Sequence[Future[None]], listener: Listener) -> None:
    """Waits for all of them; raises what the first of them raises that fails."""
    left = set(tasks)
    while left:
        listener("files", len(tasks) - len(left), len(tasks))
        done, left = wait(left, timeout=_LOOK, return_when=FIRST_EXCEPTION)
        for task in done:
            task.result()


def _is_of_model(file: RemoteFile) -> bool:
    """Whether it is parsed, or holds weights: what is read first where not everything can be."""
    return bool(_PARSED.fullmatch(file.path) or _TORCH.fullmatch(file.path)) or file.path.endswith(OF_FILES)


def _begin_of(file: RemoteFile) -> int:
    """How many of its first bytes are read before anyone asks; 0 where nobody will."""
    path, size = file.path, file.size
    if _PARSED.fullmatch(path) or size <= _SMALL:
        return size if size <= MAX_TEXT else 0
    if path.endswith(".safetensors"):
        return min(size, FIRST_READ)
    if _TORCH.fullmatch(path):
        return min(size, _HALF)
    if path.endswith(".gguf"):
        return min(size, FIRST_READ)
    return _HEAD if _BINARY.fullmatch(path) or size > _LARGEST_TEXT else size


def _listed(address: Address, reader: RevisionReader, cache: Cache) -> tuple[Commit, Sequence[RemoteFile]]:
    """The commit of a revision and its files; offline only where the revision is a commit that was listed before."""
    if reader.offline:
        commit = Commit(address.repo_id, address.revision or "")
        files = _kept(cache, reader, commit) if address.is_commit else None
        if files is None:
            raise _offline("read the revision", str(address))
        return commit, files
    commit = reader.commit(address)
    files = _kept(cache, reader, commit)
    if files is None:
        files = reader.tree(commit)
        cache.put(reader.endpoint, *commit, _TREE, content=json.dumps(files).encode())
    return commit, files


def _kept(cache: Cache, reader: RevisionReader, commit: Commit) -> list[RemoteFile] | None:
    content = cache.get(reader.endpoint, *commit, _TREE)
    try:
        return None if content is None else [RemoteFile(*fields) for fields in json.loads(content)]
    except (TypeError, ValueError):
        return None


_TREE: Final = "tree 1"  # with the version of what is kept under it


def _offline(doing: str, target: str) -> HubUnreachable:
    return HubUnreachable(
        f"could not {doing} of {target}: offline",
        why="HF_HUB_OFFLINE is set, and it is not among what was read before",
        hint="unset HF_HUB_OFFLINE; a whole commit id that was read before needs no network",
    )
