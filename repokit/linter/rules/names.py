"""FIL: names of files, and files that no one means to publish."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class DeceptiveName(Rule):
    """A file's name has characters that are not shown.

    They rewrite terminals, forge lines of logs and hide what the file is; a name that is not UTF-8 cannot be pushed.
    """

    code = "FIL105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("a terminal sequence", {"a\x1b[2J.txt": "x"}),
        Example("an ending read from right to left", {"photo\u202egnp.txt": "x"}),
        Example("a byte that is not UTF-8", {"caf\udce9.txt": "x"}),
    )
    good = (Example("letters of any script", {"Überblick-日本語.txt": "x"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            if any(unicodedata.category(character) in UNSEEN for character in path):
                yield self.finding(path, f"has a name with characters that are not shown: {printable(path, 80)}")


# Controls, bidirectional and zero-width marks, halves of surrogate pairs, line and paragraph separators.
UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class CollidingNames(Rule):
    """Two names differ only by case or by how their accents are written.

    On macOS and Windows one of the two files overwrites the other when the repository is downloaded.
    """

    code = "FIL106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("by case", {"readme.md": "x"}),
        Example("by the spelling of an accent", {"caf\u00e9.txt": "x", "cafe\u0301.txt": "x"}),
    )
    good = (Example("in different folders", {"docs/README.md": "x"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        seen: dict[str, str] = {}
        for path in repository.files:
            first = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
            if first != path:
                yield self.finding(
                    path, f"has the same name as {printable(first)} on macOS and Windows", names=(first,)
                )


class FolderForFile(Rule):
    """A folder has the name of a file.

    Loaders look for a file there, and stop.
    """

    code = "FIL126"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (Example("a folder that was to hold it", {"extra/weights.safetensors": Kind.FOLDER}),)
    good = (Example("a folder with a name of its own", {"weights/model.safetensors": safetensors({"x": ("F32", ())})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, entry in repository.files.items():
            if entry.kind is Kind.FOLDER:
                yield self.finding(path, "is a folder", hint="move the file out of it, or delete it")


class UnportableName(Rule):
    """A file's name is not allowed on Windows, or reads like an option.

    Whoever clones the repository there gets an error, or a file less.
    """

    code = "FIL206"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("a device", {"aux.txt": "x"}),
        Example("a colon", {"run 12:30.txt": "x"}),
        Example("a space at the end", {"notes.txt ": "x"}),
        Example("a dash at the beginning", {"-rf.txt": "x"}),
    )
    good = (Example("dots and spaces inside", {"my notes.v2.txt": "x"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            if any(UNPORTABLE.search(part) for part in path.split("/")):
                yield self.finding(path, "has a name that Windows does not take, or that reads like an option")


# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
UNPORTABLE: Final = re.compile(r'[<>:"|?*\\]|[. ]$|^-|^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)', re.IGNORECASE)


class UnwantedFile(Rule):
    """A file is one that no one means to publish.

    Credentials, what an interrupted download left behind, compiled code that a loader may pick up.
    """

    code = "FIL107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    fixes = Safety.SAFE
    bad = (
        Example("settings of a shell", {".env": "A=1"}),
        Example("a private key", {"keys/id_ed25519": "x"}),
        Example("half of a download", {"blob.incomplete": "x"}),
        Example("compiled code", {"modeling.pyc": b"\xa7\r\r\n"}),
    )
    good = (
        Example("an example of settings", {".env.example": "A="}),
        Example("a repository of kernels", {"build/torch/kernels.so": b"\x7fELF"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            name = path.rpartition("/")[2]
            for pattern, what in UNWANTED.items():
                if pattern.search(name):
                    yield self.finding(path, f"is {what}", hint="delete it")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_junk

        return without_junk(repository, finding)


class SystemFile(Rule):
    """A file is what an operating system left behind.

    Everyone who downloads the repository downloads it; a core dump holds the memory of the process that died.
    """

    code = "FIL208"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    fixes = Safety.SAFE
    bad = (Example("a folder that the Finder looked at", {".DS_Store": b"\0\0\0\1Bud1"}),)
    good = (Example("files of the model"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if left := [path for path in repository.files if SYSTEM.search(path)]:
            yield self.finding(left[0], "is what a system left behind", names=left, hint="delete it")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_system_files

        return without_system_files(repository, finding)


SYSTEM: Final = re.compile(r"(?:^|/)(?:\.DS_Store|Thumbs\.db|core\.\d+)$")

UNWANTED: Final = {
    re.compile(
        r"^\.env(?:\.(?:local|prod\w*|dev\w*))?$|^\.netrc$|^\.git-credentials$|^\.pypirc$"
    ): "a file of credentials",
    re.compile(r"^id_(?:rsa|dsa|ecdsa|ed25519)$|\.(?:p12|pfx|jks|keystore)$"): "a private key",
    re.compile(r"\.(?:incomplete|crdownload|part|partial)$"): "what an interrupted download left behind",
    re.compile(r"\.(?:pyc|exe)$"): "compiled code",  # shared libraries are what kernels and compiled models are
}


class IgnoredFile(Rule):
    """.gitignore names files of the repository.

    huggingface_hub leaves them out of an upload without a word: weights or configs are missing on the Hub.
    """

    code = "FIL108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("weights kept out of a code repository", {".gitignore": "*.safetensors\n"}),
        Example("a folder", {".gitignore": "# runs\n/extra/\n", "extra/notes.txt": "x"}),
    )
    good = (
        Example("what is not there", {".gitignore": "__pycache__/\n*.log\n\n"}),
        Example("taken back", {".gitignore": "*.json\n!*.json\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        text = repository.content(".gitignore")
        lines = [] if text is None else text.decode(errors="replace").splitlines()
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if ignored := [path for path in repository.files if is_ignored(path, patterns)]:
            message = f"leaves out {count(len(ignored), 'file')} of the repository"
            yield self.finding(".gitignore", message, names=ignored, hint="delete .gitignore")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_ignoring

        return without_ignoring(repository, finding)


RULES: Final = (
    DeceptiveName(),
    CollidingNames(),
    FolderForFile(),
    UnwantedFile(),
    SystemFile(),
    IgnoredFile(),
    UnportableName(),
)


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether the last pattern that matches a path, or a folder above it, is one that leaves out.

    gitignore(5) without its rarer forms (`a/**/b`, character classes with `!`).
    """
    ignored = False
    folders = [path[: place.start()] for place in re.finditer("/", path)]
    for pattern in patterns:
        wanted = pattern.removeprefix("!").removesuffix("/")
        candidates = folders if pattern.endswith("/") else [*folders, path]
        whole = "/" in wanted
        names = candidates if whole else [candidate.rpartition("/")[2] for candidate in candidates]
        if any(fnmatchcase(name, wanted.removeprefix("/")) for name in names):
            ignored = not pattern.startswith("!")
    return ignored
