"""CFG: code that config files ask loaders to run. It is parsed here and never imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count
from repokit.repo.config import CONFIG
from repokit.repo.remote_code import references, remote_code

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

AUTO_MAP: Final = {CONFIG: {"auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}}}


class MissingCode(Rule):
    """A file of code that `auto_map` leads to is not in the repository.

    Loading stops with "does not appear to have a file named ...", also for those who allowed it to run code.
    """

    code = "CFG106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the code was not uploaded", AUTO_MAP),
        Example("a path of someone's machine", {CONFIG: {"auto_map": {"AutoConfig": "/opt/code.XConfig"}}}),
        Example("a file that the code imports", {**AUTO_MAP, "modeling_x.py": "from .layers import Block\n"}),
    )
    good = (
        Example(
            "code with all that it imports",
            {
                **AUTO_MAP,
                "modeling_x.py": "import torch\nfrom .layers import Block\n",
                "layers.py": "class Block: ...\n",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, wanted_by in remote_code(repository).missing.items():
            yield self.finding(wanted_by, f"needs {path}, which is not in the repository", names=(path,))


class UnusableCode(Rule):
    """A file of code that `auto_map` leads to cannot be imported.

    transformers copies the files of the repository beside each other before it imports them: what lies outside of
    it is not there.
    """

    code = "CFG107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("copied out of transformers", {**AUTO_MAP, "modeling_x.py": "from ...activations import ACT2FN\n"}),
        Example(
            "a folder of code",
            {**AUTO_MAP, "modeling_x.py": "from .utils.pos import X\n", "utils/pos.py": "class X: ...\n"},
        ),
        Example("cut in the middle", {**AUTO_MAP, "modeling_x.py": "class XForCausalLM(\n"}),
    )
    good = (Example("imports of installed packages", {**AUTO_MAP, "modeling_x.py": "from torch import nn\n"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, reason in remote_code(repository).unreadable.items():
            yield self.finding(path, reason)


class ForeignCode(Rule):
    """`auto_map` names code of another repository.

    Whoever loads the model runs whatever stands there that day: the code can change or go without this repository.
    """

    code = "CFG203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("saved by transformers", {CONFIG: {"auto_map": {"AutoModel": "org/base--modeling_x.XModel"}}}),)
    good = (Example("code of its own", {**AUTO_MAP, "modeling_x.py": "class XForCausalLM: ...\n"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for reference in remote_code(repository).foreign:
            carrier = next(path for found, path in references(repository) if found == reference)
            message = "takes code from another repository"
            hint = "copy the .py files here and drop what stands before `--`"
            yield self.finding(carrier, message, names=(reference,), place="/auto_map", hint=hint)


class NeedsRemoteCode(Rule):
    """Loading runs code of this repository.

    Only for those who pass `trust_remote_code=True`; many servers do not.
    """

    code = "CFG301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("code of its own", {**AUTO_MAP, "modeling_x.py": "class XForCausalLM: ...\n"}),)
    good = (Example("an architecture of transformers"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if files := remote_code(repository).files:
            carrier = next(path for _, path in references(repository))
            message = f"asks loaders to run {count(len(files), 'file')} of code"
            yield self.finding(carrier, message, names=files, place="/auto_map")


RULES: Final = (MissingCode(), UnusableCode(), ForeignCode(), NeedsRemoteCode())
