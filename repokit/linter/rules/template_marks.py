"""TPL: the marks of a chat template: turns that begin and do not end, and what stands between two turns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.template_turns import rendered
from repokit.printable import printable
from repokit.repo.chat_template import JINJA

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

MARKER: Final = re.compile(r"<\|?\w+\|?>")
# The ways in which a marker says that something begins, and what the one that ends it says.
PAIRS: Final = (("start", "end"), ("START", "END"), ("begin_of_turn", "end_of_turn"))
_JOINED: Final = re.compile(r"<\|im_end\|><\|im_start\|>")
_LINES: Final = re.compile(r"<\|im_start\|>\w+\n")


class OpenTurn(Rule):
    """A chat template writes the marker with which a turn begins, and never the one with which it ends.

    The model never sees the end of an answer, and does not learn from the prompt to write it: it goes on.
    """

    code = "TPL240"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the end was left out", {JINJA: CHATML.replace("<|im_end|>", "")}),
        Example("the end was cut", {JINJA: CHATML.replace("<|im_end|>", "<|im_end|")}),
    )
    good = (Example("begun and ended"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            written = frozenset(MARKER.findall(said.continued or ""))
            for marker in sorted(written):
                ends = [marker.replace(begin, end) for begin, end in PAIRS if begin in marker]
                if ends and not written.intersection(ends):
                    message = f"writes {printable(marker, 40)!r}, and never {printable(ends[0], 40)!r}"
                    yield self.finding(template.path, message, place=template.place)


class JoinedTurns(Rule):
    """A chat template in the form of ChatML has no line end behind a turn.

    In training every turn ended its line: the model sees another sequence of tokens than it knows.
    """

    code = "TPL241"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a line end short", {JINJA: CHATML.replace("<|im_end|>\n", "<|im_end|>")}),)
    good = (
        Example(
            "a form without line ends",
            {
                JINJA: CHATML.replace("'\n' +", "': ' +")
                .replace("assistant\n", "assistant: ")
                .replace("<|im_end|>\n", "<|im_end|>")
            },
        ),
        Example("a turn a line"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            text = said.continued or ""
            if "<|im_end|>" in template.source and _LINES.search(text) and _JOINED.search(text):
                message = "writes '<|im_end|>' without the line end that follows it in ChatML"
                yield self.finding(template.path, message, place=template.place)


RULES: Final[tuple[Rule, ...]] = (OpenTurn(), JoinedTurns())
