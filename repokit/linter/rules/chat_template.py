"""TPL: chat templates, compiled and rendered in the limited worker, in the environment of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.chat_template import JINJA, PASSED
from repokit.repo.stopping import EOS, Stopping
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG

if TYPE_CHECKING:
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository

MARKER: Final = re.compile(r"<\|[A-Za-z0-9_]+\|>")
ALTERNATION: Final = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
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
            {JINJA: CHATML + "{% for m in messages %}{% break %}{% endfor %}{% generation %}{% endgeneration %}"},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            problem = repository.chat_templates.problem(template)
            if problem is not None and problem.kind != "forbidden":
                yield self.finding(
                    template.path,
                    f"is not a template: {printable(problem.message)}",
                    place=template.line(problem.line),
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
                place = template.line(problem.line)
                yield self.finding(template.path, f"is not run: {printable(problem.message)}", place=place)


class UnrenderableTemplate(Rule):
    """A chat template renders none of the ordinary conversations.

    One question, a system prompt, a second turn; contents as text and as lists; with and without the generation prompt
    and a tool: all of them fail, or one takes more time and memory than a chat can, so nobody can chat with the model.
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
        Example("functions that the caller passes, as for Firefunction", {JINJA: "{{ functions + 'x' }}" + CHATML}),
        Example(
            "contents that are lists", {JINJA: CHATML.replace("message['content']", "message['content'][0]['text']")}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        templates = repository.chat_templates
        for template in _compiled(repository):
            problems = [probe.rendered.error for probe in templates.probes(template)]
            stopped = next((problem for problem in problems if problem and problem.kind in {"limit", "crash"}), None)
            problem = stopped or (problems[0] if all(problems) else None)
            if problem is not None and problem.message not in PASSED:
                what = "does not end within limits" if stopped else "renders no ordinary conversation"
                message = f"{what}: {printable(problem.message)}"
                yield self.finding(template.path, message, place=template.line(problem.line))


class TerminatorNotEos(Rule):
    """The token with which the chat template ends a turn does not end a generation.

    The model writes it and goes on: it answers itself until the length limit.
    """

    code = "TPL107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
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

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.chat_template import ending_at_turn

        return ending_at_turn(repository, finding)


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
            kinds = {probe.rendered.error.kind if probe.rendered.error else None for probe in probes}
            if None not in kinds or kinds & {"limit", "crash"}:
                continue  # said by another rule, or a template for tools alone
            for name in dict.fromkeys(probe.conversation for probe in probes):
                problems = [probe.rendered.error for probe in probes if probe.conversation == name]
                if all(problem and problem.kind != "raised" for problem in problems) and (first := problems[0]):
                    message = f"fails on the conversation ({name}): {printable(first.message)}"
                    yield self.finding(template.path, message, place=template.line(first.line))


class SplitMarker(Rule):
    """A chat template writes a marker that is no token, beside others that are.

    The tokenizer takes it apart: the model sees pieces where training had one token.
    """

    code = "TPL207"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a marker that was never added", {JINJA: CHATML.replace("<|im_start|>", "<|im_begin|>")}),)
    good = (
        Example("every marker is a token"),
        Example("markers that are text by design", {JINJA: CHATML.replace("im_", "text_")}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        template, tokenizer = repository.chat_templates.default, repository.tokenizer
        if template is None or tokenizer is None or not tokenizer.is_read:
            return
        markers = sorted(set(MARKER.findall(template.source)))
        if (split := [marker for marker in markers if marker not in tokenizer.ids]) and split != markers:
            message = f"writes {count(len(split), 'marker')} that the tokenizer splits"
            yield self.finding(template.path, message, place=template.place, names=split)


class DoubledBos(Rule):
    """The chat template begins with the token that the tokenizer also puts before every text.

    Whoever tokenizes a rendered chat with the defaults has it twice; apply_chat_template does not.
    """

    code = "TPL304"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "both add it",
            {
                JINJA: "{{ bos_token }}" + CHATML,
                TOKENIZER_JSON: {
                    "post_processor": {
                        "type": "TemplateProcessing",
                        "single": [
                            {"SpecialToken": {"id": "<s>", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}},
                        ],
                        "pair": [
                            {"SpecialToken": {"id": "<s>", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}},
                            {"Sequence": {"id": "B", "type_id": 0}},
                        ],
                        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
                    }
                },
            },
        ),
    )
    good = (Example("only the template adds it", {JINJA: "{{ bos_token }}" + CHATML}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        template, tokenizer = repository.chat_templates.default, repository.tokenizer
        bos = None if tokenizer is None else tokenizer.roles.get("bos_token")
        if template is None or tokenizer is None or bos is None or not bos.content:
            return
        if bos.content not in {token for token, _, _ in tokenizer.post_processor}:
            return
        if repository.chat_templates.problem(template) is None:
            texts = [probe.rendered.text for probe in repository.chat_templates.probes(template)]
            if any(text.startswith(bos.content) for text in texts if text is not None):
                message = (
                    f"begins with {printable(bos.content, 40)!r}, which the post-processor of tokenizer.json adds too"
                )
                yield self.finding(template.path, message, place=template.place)


RULES: Final = (
    UncompilableTemplate(),
    ForbiddenTemplate(),
    UnrenderableTemplate(),
    TerminatorNotEos(),
    FragileTemplate(),
    SplitMarker(),
    DoubledBos(),
)


def _compiled(repository: Repository) -> Iterator[ChatTemplate]:
    templates = repository.chat_templates
    return (template for template in templates.all if templates.problem(template) is None)
