"""TPL: chat templates, compiled and rendered in the limited worker, in the environment of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.chat_template import JINJA
from repokit.repo.lookalikes import invisible
from repokit.repo.stopping import EOS, Stopping
from repokit.repo.tokenizer import TOKENIZER_CONFIG

if TYPE_CHECKING:
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository

GENERATION: Final = re.compile(r"\{%-?\s*generation\b")
RANDOM: Final = re.compile(r"\|\s*random\b")
ALTERNATION: Final = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
)


class UncompilableTemplate(Rule):
    """A chat template is not a template.

    Every chat request fails: "TemplateSyntaxError" in transformers, vLLM and TGI.
    """

    code = "TPL101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("text copied out of JSON with its escapes", {JINJA: CHATML.replace("'<|im", '\\"<|im')}),
        Example("a loop that does not end", {JINJA: "{% for message in messages %}{{ message.content }}"}),
        Example("a filter that does not exist", {JINJA: "{{ messages | fromjson }}"}),
    )
    good = (
        Example(
            "loop controls and generation tags",
            {JINJA: "{% for m in messages %}{{ m.content }}{% break %}{% endfor %}"},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            problem = repository.chat_templates.problem(template)
            if problem is not None and problem.kind != "forbidden":
                yield self.finding(
                    template.path,
                    f"is not a template: {printable(problem.message)}",
                    place=_line(template, problem.line),
                )


class ForbiddenTemplate(Rule):
    """A chat template reaches for Python's internals or for other files.

    That is how templates attack whoever renders them; an honest one has no use for it. It was not run.
    """

    code = "TPL102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a way out of the sandbox", {JINJA: CHATML + "{{ ''.__class__.__mro__ }}"}),
        Example("another file", {JINJA: "{% include '/etc/passwd' %}"}),
    )
    good = (Example("what chats are made of"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            problem = repository.chat_templates.problem(template)
            if problem is not None and problem.kind == "forbidden":
                place = _line(template, problem.line)
                yield self.finding(template.path, f"is not run: {printable(problem.message)}", place=place)


class UnrenderableTemplate(Rule):
    """A chat template renders none of the ordinary conversations.

    One question, a system prompt, a second turn; contents as text and as lists; with and without the generation prompt
    and a tool: all of them fail, so the model cannot be chatted with.
    """

    code = "TPL103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a function that transformers does not have", {JINJA: "{{ render_turns(messages) }}"}),
        Example("a loop without end", {JINJA: "{% for i in range(1000000000) %}{% endfor %}"}),
        Example("messages changed in place", {JINJA: "{{ messages.append(1) }}"}),
    )
    good = (
        Example("no system role, said so", {JINJA: ALTERNATION}),
        Example(
            "contents that are lists", {JINJA: CHATML.replace("message['content']", "message['content'][0]['text']")}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        templates = repository.chat_templates
        for template in _compiled(repository):
            problems = [probe.rendered.error for probe in templates.probes(template)]
            if all(problems) and (first := problems[0]) is not None:
                message = f"renders no ordinary conversation: {printable(first.message)}"
                yield self.finding(template.path, message, place=_line(template, first.line))


class TemplateByteOrderMark(Rule):
    """chat_template.jinja begins with a byte order mark.

    No reader takes it for one: it becomes the first character of every prompt.
    """

    code = "TPL106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("saved by an editor", {JINJA: "\ufeff" + CHATML}),)
    good = (Example("plain UTF-8"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            if template.source.startswith("\ufeff"):
                message = "begins with a byte order mark, which becomes part of every prompt"
                yield self.finding(
                    template.path, message, place=_line(template, 1), hint="save it as UTF-8 without BOM"
                )


class TerminatorNotEos(Rule):
    """The token with which the chat template ends a turn does not end a generation.

    The model writes it and goes on: it answers itself until the length limit.
    """

    code = "TPL107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a base model's ids after chat training",
            {"generation_config.json": {EOS: 2}, "config.json": {EOS: 2}, TOKENIZER_CONFIG: {"eos_token": "</s>"}},
        ),
    )
    good = (Example("the terminator is among the ids", {TOKENIZER_CONFIG: {"eos_token": "</s>"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        template, tokenizer, stopping = repository.chat_templates.default, repository.tokenizer, Stopping(repository)
        if template is None or tokenizer is None or not stopping.generates or not stopping.ids:
            return
        if repository.chat_templates.problem(template) is not None:
            return
        suffix = repository.chat_templates.terminator(template) or ""
        ends = [token for token in tokenizer.special if token and token in suffix]
        known = stopping.ids | {tokenizer.role_id("eos_token")}
        if ends and not any(tokenizer.id_of(token) in known for token in ends):
            first = min(ends, key=suffix.index)
            message = (
                f"ends a turn with {printable(first, 60)!r}, id {tokenizer.id_of(first)}, which ends no generation"
            )
            hint = f"add {tokenizer.id_of(first)} to eos_token_id of generation_config.json"
            yield self.finding(template.path, message, place=template.place, hint=hint)


class FragileTemplate(Rule):
    """A chat template fails on one of the ordinary conversations, and not on purpose.

    A template that cannot take a system prompt or a second turn should say so with raise_exception; this one stops in
    the middle, with an error that users cannot read.
    """

    code = "TPL201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "written for one question", {JINJA: CHATML + "{% if messages[2] %}{{ messages[2].image.url.x }}{% endif %}"}
        ),
    )
    good = (Example("no system role, said so", {JINJA: ALTERNATION}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in _compiled(repository):
            probes = [probe for probe in repository.chat_templates.probes(template) if not probe.with_tools]
            if all(probe.rendered.error for probe in probes):
                continue  # said by another rule, or a template for tools alone
            for name in dict.fromkeys(probe.conversation for probe in probes):
                problems = [probe.rendered.error for probe in probes if probe.conversation == name]
                if all(problem and problem.kind != "raised" for problem in problems) and (first := problems[0]):
                    message = f"fails on the conversation ({name}): {printable(first.message)}"
                    yield self.finding(template.path, message, place=_line(template, first.line))


class EmptyTemplate(Rule):
    """A chat template is empty.

    Every conversation becomes an empty prompt.
    """

    code = "TPL202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a file that was never filled", {JINJA: ""}),)
    good = (Example("no template at all", {JINJA: None}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            if not template.source.strip():
                yield self.finding(template.path, "has an empty chat template", place=template.place)


class InvisibleCharacters(Rule):
    """A chat template holds characters that cannot be seen.

    They reach every prompt, where they can say things to the model that no reviewer reads.
    """

    code = "TPL203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("zero-width and bidirectional marks", {JINJA: "\u200b\u202e" + CHATML}),
        Example("Unicode tags, which spell a word", {JINJA: "\U000e006f\U000e0062" + CHATML}),
    )
    good = (Example("letters of any script", {JINJA: CHATML + "{# 日本語 #}"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            for number, line in enumerate(template.source.removeprefix("\ufeff").split("\n"), 1):
                if invisible(line):
                    message = f"has invisible characters: {printable(line.strip(), 60)}"
                    yield self.finding(template.path, message, place=_line(template, number))
                    break


class RandomTemplate(Rule):
    """A chat template draws at random.

    The same conversation becomes another prompt each time: nothing can be reproduced or cached.
    """

    code = "TPL204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a greeting at random", {JINJA: "{{ ['Hi', 'Hello'] | random }}" + CHATML}),)
    good = (Example("today's date", {JINJA: "{{ strftime_now('%d %b %Y') }}" + CHATML}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            if found := RANDOM.search(template.source):
                line = template.source.count("\n", 0, found.start()) + 1
                yield self.finding(template.path, "uses the filter `random`", place=_line(template, line))


class GenerationTag(Rule):
    """A chat template uses the tag {% generation %}.

    Only transformers knows it. llama.cpp, TGI and plain Jinja stop with "unknown tag".
    """

    code = "TPL302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a mask for training",
            {JINJA: "{% for m in messages %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endfor %}"},
        ),
    )
    good = (Example("the word elsewhere", {JINJA: CHATML + "{# generation #}"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            if found := GENERATION.search(template.source):
                line = template.source.count("\n", 0, found.start()) + 1
                message = f"uses the tag generation {count(len(GENERATION.findall(template.source)), 'time')}"
                yield self.finding(template.path, message, place=_line(template, line))


RULES: Final = (
    UncompilableTemplate(),
    ForbiddenTemplate(),
    UnrenderableTemplate(),
    TemplateByteOrderMark(),
    TerminatorNotEos(),
    FragileTemplate(),
    EmptyTemplate(),
    InvisibleCharacters(),
    RandomTemplate(),
    GenerationTag(),
)


def _compiled(repository: Repository) -> Iterator[ChatTemplate]:
    templates = repository.chat_templates
    return (template for template in templates.all if templates.problem(template) is None)


def _line(template: ChatTemplate, line: int | None) -> str | None:
    """`line 3` where the file is the template; in JSON, where the template is one line, the pointer to it."""
    if template.place is not None:
        return template.place
    return None if line is None else f"line {line}"
