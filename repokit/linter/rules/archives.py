"""FIL and SEC: archives that are no checkpoints of torch, by what their directories say."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import MalformedFile
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable, size
from repokit.repo.archives import DEEPEST, archives

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

# Bytes that one byte of an archive stands for: deflate reaches 1,032 on zeros, text and weights stay below 20.
MOST_RATIO: Final = 200
FROM: Final = 1024 * 1024  # smaller members do no harm


def zipped(members: Mapping[str, bytes]) -> bytes:
    """A zip archive, for an example; the same bytes whenever it is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def npy(kind: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """A .npy file, for an example."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def nested(depth: int) -> bytes:
    """An archive in an archive, so many times, for an example."""
    content = b"x"
    for number in range(depth):
        content = zipped({f"{number}.zip" if number else "x.txt": content})
    return content


LAMBDA: Final = {
    "class_name": "Functional",
    "config": {"layers": [{"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__"}}}]},
}
DENSE: Final = {"class_name": "Functional", "config": {"layers": [{"class_name": "Dense", "module": "keras.layers"}]}}


class ExpandingText(Rule):
    """A text in an archive is more than 200 times as large as the space that it takes.

    Whoever opens the archive holds all of it in memory. No real text is like that: it was made to fill a machine.
    """

    code = "FIL150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a config of two million blanks",
            {"model.keras": lambda _: zipped({"config.json": b"{" + b" " * 2_000_000 + b"}", "metadata.json": b"{}"})},
        ),
    )
    good = (Example("a config", {"model.keras": zipped({"config.json": json.dumps(DENSE).encode()})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        yield from _expanding(self, repository, of_text=True)


class ExpandingMember(Rule):
    """A file in an archive is more than 200 times as large as the space that it takes.

    A download of kilobytes becomes megabytes or more, in the memory of whoever opens it.
    """

    code = "FIL250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "an array of zeros",
            {"mask.npz": lambda _: zipped({"mask.npy": npy("|u1", (2_000_000,), bytes(2_000_000))})},
        ),
    )
    good = (Example("a small array", {"mask.npz": zipped({"mask.npy": npy("|u1", (2000,), bytes(2000))})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        yield from _expanding(self, repository, of_text=False)


def _expanding(rule: Rule, repository: Repository, *, of_text: bool) -> Iterator[Finding]:
    for path, archive in archives(repository).items():
        for member in archive.members:
            if _expands(member) and bool(_TEXT.search(member.filename)) is of_text:
                message = f"has a member of {size(member.file_size)} in {size(member.compress_size)}"
                yield rule.finding(path, message, place=printable(member.filename))


def _expands(member: zipfile.ZipInfo) -> bool:
    return member.file_size > FROM and member.file_size > MOST_RATIO * member.compress_size


_TEXT: Final = re.compile(r"\.(?:json|txt|md|ya?ml|xml|html|csv|py)$", re.IGNORECASE)


class MisdeclaredArray(Rule):
    """An array in an .npz archive has more values by its header than are there.

    numpy.load stops at it, or first asks for the memory that the header tells of.
    """

    code = "FIL151"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a million times a million", {"mean.npz": zipped({"mean.npy": npy("<f4", (10**6, 10**6), b"1234")})}),
    )
    good = (Example("two numbers", {"mean.npz": zipped({"mean.npy": npy("<f4", (2,), bytes(8))})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, archive in archives(repository).items():
            for member, header in archive.arrays:
                if header.size is None or header.begin + header.size <= member.file_size:
                    continue
                there = max(0, member.file_size - header.begin)
                message = f"has an array of {size(header.size)} by its header, and {size(there)} of it"
                yield self.finding(path, message, place=printable(member.filename))


class PickledArray(Rule):
    """An array in an .npz archive holds Python objects.

    They are a pickle: numpy.load refuses it, or runs the code in it where it is told to.
    """

    code = "FIL152"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a vocabulary as an array", {"vocab.npz": zipped({"vocab.npy": npy("|O", (2,), b"\x80\x04.")})}),)
    good = (Example("texts of one length", {"vocab.npz": zipped({"vocab.npy": npy("|S2", (2,), b"abcd")})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, archive in archives(repository).items():
            for member, header in archive.arrays:
                if header.is_pickled:
                    hint = "write it as safetensors or JSON"
                    yield self.finding(
                        path, "has an array of Python objects", place=printable(member.filename), hint=hint
                    )


class EscapingMember(Rule):
    """A file in an archive has a path that leads out of the folder in which it is unpacked.

    Tools that do not look write over files elsewhere on the machine.
    """

    code = "FIL251"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a way up", {"data.zip": zipped({"../../notes.txt": b"x"})}),
        Example("an absolute path", {"data.zip": zipped({"/etc/notes.txt": b"x"})}),
    )
    good = (Example("two dots in a name", {"data.zip": zipped({"a..b/notes.txt": b"x"})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, archive in archives(repository).items():
            if names := [member.filename for member in archive.members if _ESCAPING.search(member.filename)]:
                yield self.finding(path, "has members that leave their folder", names=names, hint="pack it anew")


_ESCAPING: Final = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)|^[/\\]|^[A-Za-z]:[/\\]")


class NestedArchive(Rule):
    """Archives lie in each other, deeper than anybody looks.

    Scanners stop at some depth, and what lies below is downloaded unseen.
    """

    code = "FIL252"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("six deep", {"data.zip": nested(6)}),)
    good = (Example("one in another", {"data.zip": nested(2)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, archive in archives(repository).items():
            if archive.depth() > DEEPEST:
                yield self.finding(path, f"holds archives in archives, more than {DEEPEST} deep", hint="unpack it")


class KerasLambda(Rule):
    """A Keras model has a layer that is compiled Python.

    Keras refuses to load it, unless it is told with safe_mode=False to run whatever the layer holds.
    """

    code = "SEC252"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a Lambda layer", {"model.keras": zipped({"config.json": json.dumps(LAMBDA).encode()})}),)
    good = (Example("layers of Keras", {"model.keras": zipped({"config.json": json.dumps(DENSE).encode()})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, archive in archives(repository).items():
            members = {member.filename: member for member in archive.members}
            member = members.get("config.json") if path.endswith(".keras") else None
            content = None if member is None or _expands(member) else archive.contents(member)
            if content is not None and "__lambda__" in _classes(content, path):
                message = "has a layer whose function is stored as compiled Python"
                yield self.finding(path, message, place="config.json", hint="register a named layer in its place")


def _classes(content: bytes, path: str) -> set[str]:
    """Every `class_name` of a Keras config.

    Raises:
        MalformedFile: It is not JSON.
    """
    found: set[str] = set()

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.update(value for key, value in pairs if key == "class_name" and isinstance(value, str))
        return dict(pairs)

    try:
        json.loads(content, object_pairs_hook=noted)
    except (ValueError, RecursionError):
        raise MalformedFile("has a config.json that is not JSON", why="Keras does not load it", path=path) from None
    return found


RULES: Final = (
    ExpandingText(),
    MisdeclaredArray(),
    PickledArray(),
    ExpandingMember(),
    EscapingMember(),
    NestedArchive(),
)
SECURITY: Final = (KerasLambda(),)
