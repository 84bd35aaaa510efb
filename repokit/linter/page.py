"""A rule as a page for a terminal.

What is wrong, whom it bites, where it was met, examples and what `lint` says of them, how it is repaired, how it is
ignored, what the rule reads.

The output of `lint` is no text of ours: the rule runs over its examples, in memory, while the page is made.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from repokit.linter.example_changes import changes, middle_cut
from repokit.linter.examples import BASES, Example
from repokit.linter.fix import Safety
from repokit.linter.incidents import incidents
from repokit.linter.places import locator
from repokit.linter.rule import Reads
from repokit.printable import printable, some
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.linter.places import Locate
    from repokit.linter.rule import Rule

Style = Callable[[str, str], str]  # text and what it is, as in reporters/text.py

WIDTH: Final = 96  # columns
_CHANGED: Final = 14  # lines of what a bad example changes
_CHANGED_WELL: Final = 6  # of what a good one does
_FINDINGS: Final = 3  # of one example
_INCIDENTS: Final = 5

READS: Final = {
    Reads.LISTING: "Names and sizes of files.",
    Reads.TEXT: "Small files, and the first bytes of others.",
    Reads.HEADERS: "Small files, and the headers of weight files.",
    Reads.TENSORS: "The values of tensors: it runs under `repokit lint --deep` alone.",
}
REPAIRED: Final = {
    Safety.SAFE: "`repokit lint --fix` repairs it",
    Safety.UNSAFE: "`repokit lint --fix --unsafe-fixes` repairs it, and somebody has to look at the result",
}

# Bases of examples, as they go on in a sentence.
DESCRIBED: Final = {
    "single": "a llama of two layers in one file, with tokenizer, chat template, card and license",
    "sharded": "a small llama in three shards with an index",
    "tied": "a small llama with an output head that is its embedding",
    "lora": "a LoRA adapter of rank 4 for the queries and values of a small llama",
    "gptq": "a small llama in 4 bits, as AutoGPTQ stores it",
    "awq": "a small llama in 4 bits, as AutoAWQ stores it",
    "fp8": "a small llama in FP8 with a scale for each block, as DeepSeek stores it",
    "bnb4": "a small llama in NF4 of bitsandbytes",
    "bnb8": "a small llama in LLM.int8() of bitsandbytes",
    "mxfp4": "a small gpt-oss with experts in MXFP4",
    "mlx": "a small llama in 4 bits, as MLX stores it",
    "modelopt": "a small llama in NVFP4, as ModelOpt stores it",
    "pack-quantized": "a small llama in 4 bits, as compressed-tensors packs it",
    "float-quantized": "a small llama in FP8 with a scale for each row, as compressed-tensors stores it",
    "int-quantized": "a small llama in 8 bits with a scale for each row, as compressed-tensors stores it",
    "gguf": "a llama of one block as a GGUF file, with a card",
}


class _Opened(Repository):
    """The repository of an example. Those of one page share a worker: to start one takes longer than most rules."""

    def __init__(self, example: Example, worker: Worker) -> None:
        super().__init__(example.source())
        self._shared = worker
        self.identity = example.identity
        if example.against is not None:
            self.base_model = Repository(Example("base", base=example.against).source())

    @property
    def worker(self) -> Worker:
        return self._shared


def page(rule: Rule, style: Style = lambda text, _kind: text) -> str:
    """The page, with a line end; `style` sets headings and findings off where the terminal can."""
    with Worker() as worker:
        seen = [(example, *_linted(rule, example, worker)) for example in rule.bad]
        sections = (
            ("Why", _paragraph(rule.why)),
            ("Seen", _seen(rule)),
            ("Breaks it", _bad(seen, style)),
            ("Does not", _good(rule)),
            ("Fix", _fix(rule, [(repository, found) for _, repository, found in seen])),
            ("Ignore", _ignore(rule)),
            ("Reads", _reads(rule)),
        )
        lines = [_title(rule, style), "", *_wrapped(rule.summary)]
        for heading, content in sections:
            if told := list(content):
                lines += ["", style(heading, "path"), *told]
    return "\n".join(lines) + "\n"


def _title(rule: Rule, style: Style) -> str:
    preview = ", in preview" if rule.preview else ""
    grade = style(rule.severity.word, rule.severity.word)
    return f"{style(f'{rule.code} {rule.name}', 'path')}  {grade}, since {rule.since}{preview}"


def _seen(rule: Rule) -> Iterator[str]:
    known = incidents(rule.code)
    for incident in known[:_INCIDENTS]:
        yield from _wrapped(f"{incident.thread}: {incident.what}", "  ", "    ")
    if len(known) > _INCIDENTS:
        yield from _wrapped(f"and {len(known) - _INCIDENTS} more: repokit rules {rule.code} --json")


# ---------------------------------------------------------------- examples


def _linted(rule: Rule, example: Example, worker: Worker) -> tuple[Repository, list[Finding]]:
    repository = _Opened(example, worker)
    return repository, list(rule.check(repository))


def _bad(seen: Sequence[tuple[Example, Repository, list[Finding]]], style: Style) -> Iterator[str]:
    yield from _bases([example for example, _, _ in seen])
    for example, repository, found in seen:
        yield ""
        yield from _example(example, _CHANGED)
        locate = locator(repository)
        for finding in found[:_FINDINGS]:
            yield from _finding(finding, locate, style)
        if example.also:
            yield from _wrapped(f"{some(example.also)} speaks of it too", "    ")


def _good(rule: Rule) -> Iterator[str]:
    yield from _bases([example for example in rule.good if example.base not in {bad.base for bad in rule.bad}])
    for example in rule.good:
        yield from _example(example, _CHANGED_WELL)


def _bases(examples: Iterable[Example]) -> Iterator[str]:
    for base in dict.fromkeys(example.base for example in examples):
        yield from _wrapped(f"{base} is {_described(base)}.")


def _described(base: str) -> str:
    """In our words, or the first line of its docstring."""
    said = DESCRIBED.get(base) or (BASES[base].__doc__ or "a small model").split("\n", 1)[0].rstrip(".")
    return said[:1].lower() + said[1:] if said.startswith(("A ", "An ", "The ")) else said


def _example(example: Example, limit: int) -> Iterator[str]:
    said = changes(example)
    yield from _wrapped(f"{example.title} ({'' if said else 'as '}{example.base})", "  * ", "    ")
    for line in middle_cut(said, limit):
        indent = " " * (6 + len(line) - len(line.lstrip()))
        yield from _wrapped(line.lstrip(), indent, indent + "  ")


def _finding(finding: Finding, locate: Locate, style: Style) -> Iterator[str]:
    """As reporters/text.py tells it, without the reason, which is above."""
    where = printable(finding.path)
    if place := locate(finding):
        where += ":" + ":".join(str(number) for number in place if number is not None)
    elif finding.place:
        where += f" {printable(finding.place, 100)}"
    severity = finding.severity.word
    lines = list(_wrapped(f"{where}: {severity} {finding.code} {printable(finding.message, 400)}", "    ", "      "))
    yield lines[0].replace(f": {severity} ", f": {style(severity, severity)} ", 1)
    yield from lines[1:]
    if len(finding.names) > 1:
        yield from _wrapped(f"names {some(finding.names, limit=5)}", "      ", "        ")
    if finding.hint:
        yield from _wrapped(f"fix   {printable(finding.hint, 400)}", "      ", "        ")


# ---------------------------------------------------------------- fix, ignore, reads


def _fix(rule: Rule, seen: list[tuple[Repository, list[Finding]]]) -> Iterator[str]:
    if rule.fixes is not None:
        fixes = (rule.fix(repository, finding) for repository, found in seen for finding in found)
        title = next((fix.title for fix in fixes if fix is not None), None)
        example = f"; in the first example: {printable(title)}." if title else "."
        yield from _wrapped(f"{REPAIRED[rule.fixes]}{example}")
        return
    hints = dict.fromkeys(finding.hint for _, found in seen for finding in found if finding.hint)
    for hint in list(hints)[:_FINDINGS] or ("`lint` cannot repair it: a person has to say what is right.",):
        yield from _wrapped(f"{hint[:1].upper()}{printable(hint[1:], 400)}")


def _ignore(rule: Rule) -> Iterator[str]:
    yield "  repokit.yaml       lint:"
    yield f'                       ignore: [{{code: {rule.code}, reason: "why it may stay"}}]'
    yield f'                       per_file: {{"extra/*": [{rule.code}]}}'
    yield "  pyproject.toml     [tool.repokit.lint]"
    yield f'                     ignore = [{{code = "{rule.code}", reason = "why it may stay"}}]'
    yield f'                     per_file = {{"extra/*" = ["{rule.code}"]}}'
    yield f"  command line       repokit lint DIR --ignore {rule.code}"


def _reads(rule: Rule) -> Iterator[str]:
    yield from _wrapped(READS[rule.reads])
    if rule.preview:
        yield from _wrapped(f"In preview: it runs where it is selected, as by --select {rule.code}.")


def _paragraph(text: str) -> Iterator[str]:
    yield from _wrapped(text)


def _wrapped(text: str, first: str = "  ", others: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(
        printable(text, 1000),
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_on_hyphens=False,
    )
