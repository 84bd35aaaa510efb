"""Mutants against the linter: which count, which of those are flagged, and what the others have in common."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from mutants import Mutant, artifact
from oracle import Observer, Seen, digest_of_text
from subjects import Subject

from repokit.errors import InputError
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads
from repokit.linter.rules import RULES
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Verdict:
    """One mutant that counts.

    Attributes:
        subject: Of which repository.
        mutant: What was changed.
        seen: What its users see otherwise.
        finding: The first error or warning that the unmutated repository does not have; None: it survived.
    """

    subject: str
    mutant: Mutant
    seen: tuple[str, ...]
    finding: Finding | None


def verdicts(subject: Subject, chosen: Iterable[Mutant], kept: dict[str, Seen]) -> Iterator[Verdict]:
    """Judges mutants of one repository; those that nobody can tell from the original are left out."""
    observer = Observer(subject, kept)
    known = frozenset(map(_identity, flagged(subject.files, base=subject.base)))
    for mutant in chosen:
        files = mutant.applied(subject.files)
        if seen := observer.differs(files):
            yield Verdict(subject.name, mutant, seen, _first(subject, mutant, files, known))


def _first(subject: Subject, mutant: Mutant, files: Mapping[str, bytes], known: frozenset[Identity]) -> Finding | None:
    """The first finding that the unmutated repository does not have. A rule that breaks over a mutant flags nothing."""
    try:
        found = flagged(files, mutant.path, subject.base)
        return next((finding for finding in found if _identity(finding) not in known), None)
    except Exception as error:  # noqa: BLE001 - a bug of a rule, which the tests ask for
        BROKEN.append(f"{subject.name}: {mutant.title}: {error!r} {' '.join(getattr(error, '__notes__', ()))}")
        return None


BROKEN: list[str] = []  # rules that broke over a mutant


def flagged(files: Mapping[str, bytes], first: str = "", base: Mapping[str, bytes] | None = None) -> Iterator[Finding]:
    """Errors and warnings; lazily, rules of the changed file's family first, because one finding is enough.

    Args:
        files: The repository.
        first: The file that was changed.
        base: The model that an adapter is for, which its users have too.
    """
    preferred = FAMILIES.get(artifact(first), ("WGT", "IDX", "QNT", "ADP"))
    repository = Repository(Memory(files))
    repository._worker = WORKER
    try:
        if base is not None:
            repository.base_model = Repository(Memory(base))
            repository.base = repository.base_model.json("config.json")
        for rule in sorted(RULES, key=lambda rule: not rule.code.startswith(preferred)):
            if rule.severity >= Severity.WARNING and rule.reads is not Reads.TENSORS and not rule.preview:
                try:
                    yield from rule.check(repository)
                except InputError:  # the engine reports it as not checked; FIL101 speaks of the file
                    continue
                except Exception as error:
                    error.add_note(f"in {rule.code}")
                    raise
    finally:
        repository._worker = None  # it serves the next one too


WORKER = Worker()


# Whose rules are likely to speak of a change to such a file.
FAMILIES = {
    "adapter config": ("ADP",),
    "config": ("CFG", "WGT"),
    "generation config": ("GEN",),
    "processor": ("PRC",),
    "template": ("TPL",),
    "tokenizer config": ("TOK",),
    "tokenizer.json": ("TOK",),
    "gguf": ("GGF",),
}


Identity: TypeAlias = tuple[str, str, str | None]


def _identity(finding: Finding) -> Identity:
    return finding.code, finding.path, finding.place


# ---------------------------------------------------------------- what was seen in earlier runs


class Kept:
    """What the libraries showed of each group of files, in a folder: they never change their mind, the linter does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"seen-{self.key()}"
        self.folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def key() -> str:
        """The versions of the libraries and a digest of the observing code."""
        code = ast.dump(ast.parse((HERE / "oracle.py").read_text()))  # layout and comments change nothing
        source = code + str([version(name) for name in ("transformers", "torch", "peft")])
        return digest_of_text(source)

    def load(self, subject: str) -> dict[str, Seen]:
        path = self._path(subject)
        return json.loads(path.read_bytes()) if path.exists() else {}

    def save(self, subject: str, seen: Mapping[str, Seen]) -> None:
        partial = self._path(subject).with_suffix(".partial")
        partial.write_text(json.dumps(seen))
        partial.replace(self._path(subject))

    def _path(self, subject: str) -> Path:
        return self.folder / f"{subject.replace(':', '-')}.json"
