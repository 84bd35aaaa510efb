"""TPL: the places in which chat templates live, and what happens where two of them have one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.chat_template import FOLDER, JINJA, LEGACY, PROCESSOR
from repokit.repo.tokenizer import TOKENIZER_CONFIG

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class DifferingTemplates(Rule):
    """Two files hold different chat templates under one name.

    Tokenizers, processors and older libraries look in different places: the same repository is two models.
    """

    code = "TPL104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "the old one stayed in tokenizer_config.json",
            {TOKENIZER_CONFIG: {"chat_template": CHATML + "{{ eos_token }}"}},
        ),
        Example("a processor's own", {LEGACY: {"chat_template": CHATML + "{{ eos_token }}"}}, also=("TPL303",)),
    )
    good = (
        Example("an equal copy for older readers", {TOKENIZER_CONFIG: {"chat_template": CHATML}}),
        Example("a copy with other line ends", {TOKENIZER_CONFIG: {"chat_template": CHATML + "\n"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for preferred, other in repository.chat_templates.differing:
            message = f"is another {printable(other.name, 40)} chat template than the one in {other.path}"
            if preferred.place is not None:
                message = f"has {message.removeprefix('is ')}"
            hint = f"keep {preferred.path}, and delete the other or copy it there"
            yield self.finding(preferred.path, message, place=preferred.place, names=(other.path,), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.chat_template import as_preferred

        return as_preferred(repository, finding)


class MalformedTemplateEntry(Rule):
    """A chat template in a JSON file has no text, no name, or a name that is not one.

    transformers stops when it loads the tokenizer, or when it saves it; of two templates with one name the last wins.
    """

    code = "TPL105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a named template without text",
            {TOKENIZER_CONFIG: {"chat_template": [{"name": "rag"}]}},
            also=("FIL104",),
        ),
        Example("a name that is a path", {TOKENIZER_CONFIG: {"chat_template": [{"name": "../x", "template": "x"}]}}),
        Example(
            "one name twice",
            {TOKENIZER_CONFIG: {"chat_template": [{"name": "default", "template": CHATML}] * 2}},
        ),
    )
    good = (Example("a list of one", {TOKENIZER_CONFIG: {"chat_template": [{"name": "default", "template": CHATML}]}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for entry in repository.chat_templates.malformed:
            yield self.finding(entry.path, f"has a chat template {entry.what}", place=entry.place)


class HiddenNamedTemplate(Rule):
    """A named chat template in tokenizer_config.json is not read.

    Where there are .jinja files, transformers takes all templates from them, and tokenizer_config.json's from no place.
    """

    code = "TPL205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "tool use was left behind",
            {
                TOKENIZER_CONFIG: {
                    "chat_template": [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML}]
                }
            },
        ),
    )
    good = (Example("all of them as files", {f"{FOLDER}/tool_use.jinja": CHATML}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.hidden:
            message = f"has the chat template {printable(template.name, 40)!r}, which the .jinja files hide"
            hint = f"write it to {FOLDER}/{printable(template.name, 40)}.jinja"
            yield self.finding(template.path, message, place=template.place, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.chat_template import as_file

        return as_file(repository, finding)


class TemplateOnlyInFile(Rule):
    """The chat template is in chat_template.jinja alone.

    transformers before 4.52, older TGI and other libraries read tokenizer_config.json and find none.
    """

    code = "TPL301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("as transformers 5 saves it"),)
    good = (Example("a copy in tokenizer_config.json", {TOKENIZER_CONFIG: {"chat_template": CHATML}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if repository.has(JINJA) and (config is None or not config.raw.get("chat_template")):
            yield self.finding(JINJA, "is not in tokenizer_config.json as well, where older readers look")


class TemplateInProcessorConfig(Rule):
    """The chat template of the processor is in a place that transformers gives up.

    processor_config.json and chat_template.json still win over chat_template.jinja, with a warning.
    """

    code = "TPL303"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("an equal copy in chat_template.json", {LEGACY: {"chat_template": CHATML}}),)
    good = (Example("chat_template.jinja alone"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in dict.fromkeys(template.path for template in repository.chat_templates.all):
            if path in {LEGACY, PROCESSOR}:
                yield self.finding(path, f"holds a chat template, which belongs into {JINJA}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.chat_template import without_given_up_place

        return without_given_up_place(repository, finding)


RULES: Final = (
    DifferingTemplates(),
    MalformedTemplateEntry(),
    HiddenNamedTemplate(),
    TemplateOnlyInFile(),
    TemplateInProcessorConfig(),
)
