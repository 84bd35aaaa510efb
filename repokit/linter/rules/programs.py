"""FIL and SEC: programs, code and notebooks that lie beside a model. Nothing is imported or run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.remote_code import AUTO_MAP
from repokit.printable import count
from repokit.repo.config import CONFIG
from repokit.repo.remote_code import remote_code
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

ELF: Final = b"\x7fELF\x02\x01\x01" + bytes(57)


def notebook(*outputs: dict[str, Any]) -> str:
    """A notebook of one cell, for an example."""
    cell: dict[str, Any] = {
        "cell_type": "code",
        "source": ["1 + 1"],
        "outputs": list(outputs),
        "execution_count": None,
        "metadata": {},
    }
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


class DisguisedProgram(Rule):
    """A file is a program, and its name says that it is text, a picture or weights.

    Nobody expects one there, and nobody looks: it waits for whatever runs it.
    """

    code = "SEC150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("as a table", {"table.csv": ELF}),)
    good = (
        Example("a text that begins with the letters of one", {"notes.txt": "MZ is where it began.\n"}),
        Example("a program by its name", {"tools/quantize": ELF}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, entry in repository.files.items():
            if entry.kind is Kind.FILE and _NO_PROGRAM.search(path) and (what := _program(repository.head(path))):
                yield self.finding(path, f"is {what}", hint="delete it")


_NO_PROGRAM: Final = re.compile(
    r"\.(?:txt|md|json|jsonl|ya?ml|toml|cfg|ini|csv|tsv|jinja|html?|py|ipynb|model|safetensors|gguf|npy|npz"
    r"|png|jpe?g|gif|webp|svg|pdf|wav|mp3)$",
    re.IGNORECASE,
)
# Mach-O, 64 bits of either byte order; that of several architectures begins as a Java class does, and is left out.
_MACH: Final = (b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf")
_PE_HEADER: Final = range(0x40, 0x1000)  # where `MZ` programs for Windows say, at byte 60, that their header begins


def _program(head: bytes) -> str | None:
    """What machine runs it, by its first 64 bytes."""
    if head.startswith(b"\x7fELF"):
        return "a program or library for Linux (ELF)"
    if head.startswith(_MACH):
        return "a program or library for macOS (Mach-O)"
    if head.startswith(b"MZ") and int.from_bytes(head[60:64], "little") in _PE_HEADER:
        return "a program or library for Windows (PE)"
    return None


class CompiledLibrary(Rule):
    """A library of machine code lies beside a model.

    No loader of the model needs it, and nobody can tell what it does. Kernels have repositories of their own.
    """

    code = "SEC250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("operations of one's own", {"custom_ops.so": ELF}),
        Example("a module for Windows", {"ops/fast.pyd": b"MZ"}),
    )
    good = (
        Example("the layout of a repository of kernels", {"build/torch29-cu128-x86_64-linux/ops.abi3.so": ELF}),
        Example(
            "a compiled model, which has no config.json", {CONFIG: None, "model.safetensors": None, "model.so": ELF}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = [path for path in repository.files if _LIBRARY.search(path) and not path.startswith("build/")]
        if found and repository.has(CONFIG):
            yield self.finding(found[0], "is machine code", names=found, hint="delete it, or publish its source")


_LIBRARY: Final = re.compile(r"\.(?:so(?:\.\d+)*|dll|dylib|pyd)$", re.IGNORECASE)


class UnaskedCode(Rule):
    """A file has a name under which Python's tools run it without being asked.

    pytest runs conftest.py, Python itself sitecustomize.py: in the folder of a download, and with the rights of whoever
    works there.
    """

    code = "SEC251"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("of pytest", {"conftest.py": "import os\n"}),
        Example("of Python", {"sitecustomize.py": "import os\n"}),
    )
    good = (Example("among the tests that it is for", {"tests/conftest.py": "", "tests/test_x.py": ""}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            if _UNASKED.search(path) and not _OF_TESTS.search(path):
                yield self.finding(path, "runs without being asked for", hint="delete it, or give it another name")


_UNASKED: Final = re.compile(r"(?:^|/)(?:conftest|sitecustomize|usercustomize)\.py$")
_OF_TESTS: Final = re.compile(r"(?:^|/)tests?/(?:[^/]+/)*conftest\.py$")


class UnreferencedCode(Rule):
    """There is code that loading the model does not run.

    An example or a script is of use. It is told for those who review what a repository brings.
    """

    code = "SEC350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a script", {"inference/generate.py": "print(1)\n"}),)
    good = (
        Example("code that `auto_map` names", {**AUTO_MAP, "modeling_x.py": "class XForCausalLM: ...\n"}),
        Example("the handler of an endpoint", {"handler.py": "class EndpointHandler: ...\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        code = [path for path in repository.files if path.endswith((".py", ".sh"))]
        named = {*remote_code(repository).files, *_HANDLERS} if code else set()
        if others := [path for path in code if path not in named and not _UNASKED.search(path)]:
            message = f"is code that loading does not run ({count(len(others), 'file')} in all)"
            yield self.finding(others[0], message, names=others)


_HANDLERS: Final = ("handler.py", "pipeline.py")  # of Inference Endpoints; of the Hub's api-inference-community


class NotebookOutput(Rule):
    """A notebook holds what its cells printed.

    Outputs carry paths, names and data of the machine that ran them, and make every change of the file a large one.
    """

    code = "FIL350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a notebook as it was left", {"demo.ipynb": notebook({"output_type": "stream", "text": ["2"]})}),)
    good = (Example("a notebook without outputs", {"demo.ipynb": notebook()}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, entry in repository.files.items():
            if not path.endswith(".ipynb") or entry.kind is not Kind.FILE or entry.size > _MOST_NOTEBOOK:
                continue
            if number := _outputs(repository.glance(path) or b""):
                hint = "jupyter nbconvert --clear-output --inplace takes them out"
                yield self.finding(path, f"holds the output of {count(number, 'cell')}", hint=hint)


_MOST_NOTEBOOK: Final = 16 * 1024 * 1024  # bytes


def _outputs(content: bytes) -> int:
    """How many cells have outputs; 0 where it is no notebook, of which another rule speaks."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return 0
    cells = document.get("cells") if isinstance(document, dict) else None
    listed = cells if isinstance(cells, list) else []
    return sum(isinstance(cell, dict) and bool(cell.get("outputs")) for cell in listed)


RULES: Final = (NotebookOutput(),)
SECURITY: Final = (DisguisedProgram(), CompiledLibrary(), UnaskedCode(), UnreferencedCode())
