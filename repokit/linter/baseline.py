"""Findings that are known: they are counted, and do not fail a run. New ones speak.

A finding is recognised by its code, its path and its symbolic place. Lines, columns, byte offsets and messages are no
part of it, so that an edit above a finding, or another wording in the next version, does not make it a new one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import MalformedFile, MissingInput, UsageError
from repokit.formats import strict_json
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from repokit.linter.finding import Finding, Report

FORMAT: Final = "repokit-baseline"
VERSION: Final = 1

_AGAIN: Final = "write it again: repokit lint --write-baseline FILE"
# Places that move when something else is edited: `line 3 column 2`, `header, line 1`, `byte 1,024`.
_POSITION: Final = re.compile(r"(?:header, )?(?:line|byte) [\d,]+(?: column \d+)?")


@dataclass(frozen=True, slots=True, order=True)
class Known:
    """What a finding is recognised by. Text as reports show it, so that the file needs no unsafe characters."""

    code: str
    path: str
    place: str = ""

    @classmethod
    def of(cls, finding: Finding) -> Known:
        """What a finding is recognised by."""
        return cls(finding.code, printable(finding.path, 4096), symbolic(finding))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of code, path and place, in hexadecimal digits."""
        return hashlib.sha256(f"{self.code}\0{self.path}\0{self.place}".encode()).hexdigest()

    def __str__(self) -> str:
        """`IDX101 model.safetensors.index.json /weight_map`, as much of it as there is."""
        return " ".join(part for part in (self.code, self.path, self.place) if part)


Baseline = dict[Known, int]


def symbolic(finding: Finding) -> str:
    """The place of a finding without lines and offsets; "" for the whole file."""
    place = finding.place or ""
    return "" if _POSITION.fullmatch(place) else printable(place, 4096)


def fingerprint(finding: Finding) -> str:
    """What tells a finding from others, in this run and in the next: SHA-256 of code, path and symbolic place."""
    return Known.of(finding).fingerprint


def of(findings: Iterable[Finding]) -> Baseline:
    """The baseline that knows these findings."""
    return dict(Counter(Known.of(finding) for finding in findings))


def apply(report: Report, baseline: Mapping[Known, int]) -> tuple[Report, tuple[Known, ...]]:
    """The report without what is known, and the entries of the baseline of which less was found than they say.

    Entries of rules that did not run to their end are not among those: nothing is known of them.
    """
    left = dict(baseline)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in report.findings:
        entry = Known.of(finding)
        there = left.get(entry, 0)
        left[entry] = there - 1
        (known if there > 0 else new).append(finding)
    ran = set(report.coverage.checked)
    stale = tuple(sorted(entry for entry, count in left.items() if count > 0 and entry.code in ran))
    return replace(report, findings=tuple(new), known=tuple(known)), stale


def merged(old: Mapping[Known, int], report: Report) -> Baseline:
    """The baseline that is to be written: what was found, and what an older one says of rules that did not run."""
    ran = {*report.coverage.checked, *(finding.code for finding in report.findings)}
    return {**{entry: count for entry, count in old.items() if entry.code not in ran}, **of(report.findings)}


def render(baseline: Mapping[Known, int]) -> str:
    """The file: sorted, one value a line, so that a change of it reads well."""
    findings = [_document(entry, count) for entry, count in sorted(baseline.items())]
    return strict_json.dumps({"format": FORMAT, "version": VERSION, "findings": findings}).decode()


def _document(entry: Known, count: int) -> dict[str, Any]:
    place = {"place": entry.place} if entry.place else {}
    return {"fingerprint": entry.fingerprint, "code": entry.code, "path": entry.path, **place, "count": count}


def read(path: Path) -> Baseline:
    """The baseline in a file.

    Raises:
        MissingInput: There is none.
        MalformedFile: It is no baseline of this version; with the place.
    """
    return _parsed(_content(path), str(path))


def to_replace(path: Path) -> Baseline:
    """The baseline that a new one is going to replace; empty where the file is not there.

    Raises:
        UsageError: The file is something else, which is not to be overwritten.
    """
    if not path.exists():
        return {}
    try:
        return read(path)
    except (MalformedFile, MissingInput) as error:
        what = f"{printable(path)} is not overwritten: it is no baseline of this repokit"
        raise UsageError(what, why=error.what, hint="name another file, or delete it") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = "without the baseline every known finding would be a new one"
        raise MissingInput(f"cannot be read: {error.strerror}", why=why, hint=_AGAIN, path=str(path)) from None


def _parsed(content: bytes, path: str) -> Baseline:
    from repokit.schema import baseline as schema
    from repokit.schema.document import problems

    document = strict_json.loads(content, path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise MalformedFile("is no baseline of repokit", why="it lacks its `format`", hint=_AGAIN, path=path)
    if document.get("version") != VERSION:
        what = f"is a baseline of version {printable(document.get('version'), 20)}; this repokit reads {VERSION}"
        raise MalformedFile(what, hint=_AGAIN, path=path, place="/version")
    for problem in problems(schema.Baseline, document):
        raise MalformedFile(problem.message, hint=_AGAIN, path=path, place=problem.pointer)
    items = document.get("findings", [])
    entries = [(Known(item["code"], item["path"], item.get("place") or ""), item) for item in items]
    _refuse_edited(entries, path)
    return {entry: item.get("count", 1) for entry, item in entries}


def _refuse_edited(entries: Collection[tuple[Known, Mapping[str, Any]]], path: str) -> None:
    """An entry whose fingerprint is not its own was edited or merged badly: which half of it is meant is not known."""
    seen: set[Known] = set()
    for index, (entry, item) in enumerate(entries):
        place = f"/findings/{index}"
        if entry.fingerprint != item["fingerprint"]:
            raise MalformedFile("has an entry whose fingerprint is not its own", hint=_AGAIN, path=path, place=place)
        if entry in seen:
            raise MalformedFile("has an entry twice", hint=_AGAIN, path=path, place=place)
        seen.add(entry)
