"""TPL: what a chat template makes of a conversation, word for word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.chat_template import JINJA
from repokit.repo.template_turns import NEXT, PLACE, QUESTION, REPLY, RESULT, SYSTEM, alike, turns

if TYPE_CHECKING:
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository
    from repokit.repo.template_turns import Turns

# What transformers and the engines give to every template (chat_template_utils.py; vLLM and llama.cpp the same).
PASSED_NAMES: Final = (
    *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "raise_exception"),
    *("strftime_now", "enable_thinking", "continue_final_message"),
)
_CODE: Final = re.compile(r"\{\{(.*?)\}\}|\{%(.*?)%\}", re.DOTALL)
_STRING: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_NAME: Final = re.compile(r"(?<![\w.])[a-z_][a-z0-9_]{4,}\b(?!\s*=(?!=))")
_BOUND: Final = re.compile(r"\b(?:set|for|macro|import|as)\s+([^=%]*?)(?=\s+in\b|=|$)|(\w+)\s*=(?!=)")

TOOLS: Final = (
    "{% if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class LostMessage(Rule):
    """A chat template leaves out what somebody said, or changes it.

    The model answers a conversation that did not take place: it never sees the words, or sees them escaped or cut.
    """

    code = "TPL160"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("only the last message", {JINJA: CHATML.replace("in messages %}", "in messages[-1:] %}")}),
        Example("a web page's escaping", {JINJA: CHATML.replace("message['content']", "message['content'] | e")}),
        Example("a key that messages do not have", {JINJA: CHATML.replace("['content']", ".get('text', '')")}),
    )
    good = (
        Example("blanks at the ends cut off", {JINJA: CHATML.replace("['content']", "['content'] | trim")}),
        Example(
            "an answer whose thoughts are cut", {JINJA: CHATML.replace("['content']", ".content.split('</t>')[-1]")}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            if lost := _lost(said):
                shown = " and ".join(repr(words) for words in lost)
                message = f"renders a conversation without what was said in it: {shown}"
                yield self.finding(template.path, message, place=template.place)


class UnheardSystemPrompt(Rule):
    """A chat template leaves out the system message, and says nothing.

    Whoever sets a system prompt believes that it holds. A template that takes none says so with raise_exception.
    """

    code = "TPL260"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "two roles only",
            {JINJA: CHATML.replace("in messages %}", "in messages if message.role != 'system' %}")},
        ),
    )
    good = (
        Example(
            "refused", {JINJA: "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML}
        ),
        Example("one turn of three"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            if said.instructed is not None and SYSTEM not in said.instructed and not _lost(said):
                message = "renders a conversation without its system message"
                hint = "render it, or refuse it with raise_exception"
                yield self.finding(template.path, message, place=template.place, hint=hint)


class IndistinctRoles(Rule):
    """A chat template renders what the user and what the assistant said alike.

    The model cannot know whose turn a text was, and was not trained on chats of that form.
    """

    code = "TPL261"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("one role for everybody", {JINJA: CHATML.replace("message['role']", "messages[0]['role']")}),)
    good = (
        Example(
            "a model that knows no roles, as DialoGPT", {JINJA: "{% for m in messages %}{{ m.content }}{% endfor %}"}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            if "role" in template.source and said.answered is not None and said.answered == said.asked_twice:
                message = "renders an answer as if the user had said it"
                yield self.finding(template.path, message, place=template.place)


class MissingGenerationPrompt(Rule):
    """A chat template writes a header before an answer, and not when it asks for one.

    add_generation_prompt does nothing: the model is to write the header itself, and often goes on with the user's turn.
    """

    code = "TPL262"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the last line was forgotten", {JINJA: CHATML.partition("{% if add_generation_prompt")[0]}),
        Example("a misspelt variable", {JINJA: CHATML.replace("add_generation", "generation")}),
    )
    good = (
        Example(
            "an answer that follows the question at once",
            {
                JINJA: "{% for m in messages %}{{ ('[INST] ' + m.content + ' [/INST]') if m.role == 'user' "
                "else m.content + '<|im_end|>' }}{% endfor %}"
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            if said.prompt == "" and (header := (said.header or "").strip()):
                message = f"adds no generation prompt, although answers begin with {printable(header, 60)!r}"
                hint = "end it with {% if add_generation_prompt %}…{% endif %}"
                yield self.finding(template.path, message, place=template.place, hint=hint)


class ForeignGenerationPrompt(Rule):
    """The generation prompt of a chat template is not how its answers begin.

    The model is asked to go on behind words that it was trained to see before something else, or never.
    """

    code = "TPL263"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the user's header", {JINJA: CHATML.replace("assistant\n", "user\n")}),
        Example("another word for the role", {JINJA: CHATML.replace("assistant\n", "model\n")}),
        Example("a line end short", {JINJA: CHATML.replace("assistant\n", "assistant")}),
    )
    good = (Example("with the beginning of a thought", {JINJA: CHATML.replace("assistant\n", "assistant\n<think>\n")}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            header, prompt, users = said.header, said.prompt, said.user_header
            if not header or not header.strip() or not prompt or users is None:
                continue
            # Files that are indented to be read hold blanks which their authors take out before use.
            is_cut = header != prompt and header.rstrip("\n") == prompt.rstrip("\n") and header[0] != " "
            if is_cut or (said.answered != said.asked_twice and alike(header, prompt) <= alike(header, users)):
                one, other = (prompt, header) if is_cut else (prompt.strip(), header.strip())
                shown = f"{printable(one, 60)!r}, and answers with {printable(other, 60)!r}"
                yield self.finding(template.path, f"begins a generation with {shown}", place=template.place)


class MisspeltVariable(Rule):
    """A chat template uses a variable whose name is nearly that of one which every caller passes.

    Jinja takes an unknown name for false and empty text: the part that depends on it never appears.
    """

    code = "TPL264"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("two letters exchanged", {JINJA: CHATML + "{% if add_generation_promtp %}{% endif %}"}),
        Example("the plural left out", {JINJA: "{{ bos_tokens }}" + CHATML}),
    )
    good = (
        Example(
            "a loop's own variable", {JINJA: CHATML.replace("message ", "messages_ ").replace("message[", "messages_[")}
        ),
        Example("what a caller may pass", {JINJA: "{% if custom_tools is defined %}{% endif %}" + CHATML}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in repository.chat_templates.all:
            for name, position in _free_names(template.source):
                near = difflib.get_close_matches(name, PASSED_NAMES, n=1, cutoff=0.9)
                if near and name not in PASSED_NAMES:
                    message = f"uses the variable {printable(name)!r}, which nobody passes"
                    hint = f"did you mean {near[0]}?"
                    yield self.finding(template.path, message, place=template.line_at(position), hint=hint)


class ForgottenToolCall(Rule):
    """A chat template tells the model of its tools, and not what it called or what came of that.

    In an agent's second step the model does not see that it has called a tool, or its result, and calls it once more.
    """

    code = "TPL360"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "calls that are not rendered",
            {
                JINJA: TOOLS.replace("message.tool_calls or []", "[]"),
                "tokenizer_config.json": {"eos_token": "<|im_end|>"},
            },
        ),
    )
    good = (Example("calls and results", {JINJA: TOOLS, "tokenizer_config.json": {"eos_token": "<|im_end|>"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, said in rendered(repository):
            if not said.takes_tools or said.called is None:
                continue
            words = (("the call", PLACE), ("the result", RESULT))
            if lost := [what for what, said_words in words if said_words not in said.called]:
                message = f"takes tools, and renders a conversation with a call without {' and '.join(lost)}"
                yield self.finding(template.path, message, place=template.place)


RULES: Final = (
    LostMessage(),
    UnheardSystemPrompt(),
    IndistinctRoles(),
    MissingGenerationPrompt(),
    ForeignGenerationPrompt(),
    MisspeltVariable(),
    ForgottenToolCall(),
)


def rendered(repository: Repository) -> Iterator[tuple[ChatTemplate, Turns]]:
    """The templates that render a question; a template that fails has rules of its own."""
    templates = repository.chat_templates
    for template in templates.all:
        if not template.source.strip() or templates.problem(template) is not None:
            continue
        if any(
            probe.rendered.error and probe.rendered.error.kind in {"limit", "crash"}
            for probe in templates.probes(template)
        ):
            continue
        said = turns(repository, template)
        if said.asked is not None:
            yield template, said


def _lost(said: Turns) -> list[str]:
    """What was said in a conversation and is not in what renders."""
    expected = ((said.asked, (QUESTION,)), (said.continued, (QUESTION, REPLY, NEXT)))
    lost = (words for text, parts in expected if text is not None for words in parts if words not in text)
    return list(dict.fromkeys(lost))


def _free_names(source: str) -> Iterator[tuple[str, int]]:
    """Names that a template reads and does not bind, each once, with the place of the first."""
    blocks = [
        (found.start(), _STRING.sub(lambda text: " " * len(text[0]), found[0])) for found in _CODE.finditer(source)
    ]
    bound = {word for _, code in blocks for match in _BOUND.finditer(code) for word in re.findall(r"\w+", match[0])}
    seen: set[str] = set()
    for start, code in blocks:
        for found in _NAME.finditer(code):
            if found[0] not in bound and found[0] not in seen:
                seen.add(found[0])
                yield found[0], start + found.start()
