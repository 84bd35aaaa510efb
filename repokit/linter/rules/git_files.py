"""FIL: files of Git in the repository, and arrays of NumPy, which may be programs too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.names import is_ignored
from repokit.printable import count, printable

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

ATTRIBUTES: Final = ".gitattributes"
MODULES: Final = ".gitmodules"
TRACKED: Final = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


class UnknownFilter(Rule):
    """.gitattributes names a filter other than Git LFS.

    Git hands every file of that name to a program of the reader's own settings when it clones the repository.
    """

    code = "FIL127"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("a filter for everything", {ATTRIBUTES: "* filter=unpack\n" + TRACKED}),)
    good = (
        Example("Git LFS", {ATTRIBUTES: TRACKED}),
        Example("a comment", {ATTRIBUTES: "# *.bin filter=unpack\n" + TRACKED}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for number, line in enumerate(_lines(repository), 1):
            for found in () if line.lstrip().startswith("#") else FILTER.finditer(line):
                if found[1] != "lfs":
                    message = f"names the filter {printable(found[1], 40)!r}"
                    yield self.finding(ATTRIBUTES, message, place=f"line {number}", hint="delete the line")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_filter

        return without_filter(repository, finding)


class UntrackedWeights(Rule):
    """.gitattributes does not give the weights to Git LFS.

    `git push` then sends them as ordinary files, which the Hub refuses above 10 MB.
    """

    code = "FIL221"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("rules for another format", {ATTRIBUTES: "*.bin filter=lfs diff=lfs merge=lfs -text\n"}),
        Example("taken back", {ATTRIBUTES: TRACKED + "model.safetensors -filter\n"}),
    )
    good = (
        Example("a rule for all of them", {ATTRIBUTES: TRACKED}),
        Example("no such file", {ATTRIBUTES: None}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if not repository.has(ATTRIBUTES):
            return
        patterns = [pattern for line in _lines(repository) if (pattern := _tracked(line)) is not None]
        weights = [path for path in repository.files if WEIGHTS.search(path)]
        if untracked := [path for path in weights if not is_ignored(path, patterns)]:
            message = f"does not track {count(len(untracked), 'weight file')}"
            yield self.finding(ATTRIBUTES, message, names=untracked, hint="git lfs track '*.safetensors'")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import with_tracking

        return with_tracking(repository, finding)


class GitSubmodule(Rule):
    """The repository has Git submodules.

    Clones of it fetch other repositories, from wherever the file says; downloads from the Hub lack what is in them.
    """

    code = "FIL222"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (Example("the training code as a submodule", {MODULES: '[submodule "code"]\n'}),)
    good = (Example("only files"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.has(MODULES):
            yield self.finding(
                MODULES, "adds other repositories to this one", hint="delete it, and copy what is needed"
            )


class ObjectArray(Rule):
    """A file of NumPy holds Python objects, or a header that is no description of numbers.

    The objects are a pickle: numpy.load refuses it, or runs the code in it where it is told to.
    """

    code = "FIL128"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a vocabulary as an array", {"vocab.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order'"}),
        Example("a header that is an expression", {"vocab.npy": b"\x93NUMPY\x01\x00v\x00print(1) or {'descr': '<f4'"}),
    )
    good = (Example("numbers", {"mean.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            head = repository.head(path) if path.endswith(".npy") else b""
            if head.startswith(b"\x93NUMPY") and not NUMBERS.match(head):
                yield self.finding(path, "holds Python objects, or no numbers", hint="write it as safetensors or JSON")


RULES: Final = (UnknownFilter(), ObjectArray(), UntrackedWeights(), GitSubmodule())

FILTER: Final = re.compile(r"\sfilter=(\S+)")
# What the .gitattributes that the Hub gives a new repository tracks; it adds others itself when they are uploaded.
WEIGHTS: Final = re.compile(r"\.(?:safetensors|bin|pt|pth|ckpt|onnx|h5|msgpack)$")
# numpy/lib/format.py: magic, version, length of the header in 2 or 4 bytes, a dict with `descr` first.
NUMBERS: Final = re.compile(rb"\x93NUMPY[\x01-\x03]\x00(?:..|....)\{\s*'descr':\s*(?:'[^O']*'|\[)", re.DOTALL)


def _lines(repository: Repository) -> list[str]:
    return (repository.content(ATTRIBUTES) or b"").decode(errors="replace").splitlines()


def _tracked(line: str) -> str | None:
    """The pattern of a line that gives files to Git LFS, with `!` before it where it takes them back."""
    pattern, _, rest = line.strip().partition(" ")
    if not pattern or pattern.startswith("#"):
        return None
    if re.search(r"(?:^|\s)filter=lfs(?:\s|$)", rest):
        return pattern
    return f"!{pattern}" if re.search(r"(?:^|\s)[-!]filter(?:\s|$)", rest) else None
