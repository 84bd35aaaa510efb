"""The worker renders what transformers renders."""

from __future__ import annotations

from datetime import datetime

import pytest

from repokit.repo.worker import Worker

pytestmark = pytest.mark.oracle

CHATML = """\
{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
"""
LLAMA_2 = """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}
{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if loop.index0 == 0 and system %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
    {% else %}{% set content = message['content'] %}{% endif %}
    {% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""
LLAMA_3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if loop.first and message.role == 'system' %}
        {{- 'Today: ' ~ date_string ~ '\\n' }}
    {%- endif %}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
MISTRAL = """\
{%- set loop_messages = messages[1:] if messages[0].role == "system" else messages %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message.role == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
    {%- endif %}
    {%- if message.role == "user" %}
        {%- if loop.last and messages[0].role == "system" %}
            {{- "[INST] " + messages[0].content + "\\n\\n" + message.content + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message.content + "[/INST]" }}
        {%- endif %}
    {%- elif message.role == "assistant" %}
        {{- " " + message.content + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, not " + message.role) }}
    {%- endif %}
{%- endfor %}
"""
TOOLS = """\
{%- macro arguments(call) %}{% for key, value in call.arguments | items %}{{ key }}={{ value | tojson }};{% endfor %}{% endmacro %}
{%- if tools %}
    {{- '<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' ~ tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\n' ~ tools | tojson(indent=2) ~ tools[0].function | tojson(separators=(',', ':'), sort_keys=True) }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
    {{- '<' ~ message.role ~ '>' ~ message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- call.function.name ~ ': ' ~ arguments(call.function) }}
    {%- endfor %}
    {{- '</' ~ message.role ~ '>' }}
{%- endfor %}
{{- ns.last }}"""
GENERATION = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
{% generation %}
{{ message.content }}{{ eos_token }}
{% endgeneration %}
{% else %}
{{ message.role }}: {{ message.content }}
{% endif %}
{% endfor %}"""
LOOP_CONTROLS = """\
{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 3 %}{% break %}{% endif %}
{{ loop.index }} {{ message.content }}
{% endfor %}"""
PARTS = """\
{%- for message in messages %}
    {%- if message.content is string %}{{ message.content }}
    {%- else %}
        {%- for part in message.content if part.type in ('text', 'image') %}
            {{- '<image>' if part.type == 'image' else part.text }}
        {%- endfor %}
    {%- endif %}
    {{- '%s|%5.2f|' % (message.role, loop.index / 3) ~ '=' * 3 ~ dict(a=1, **{'b': 2}) ~ dict.fromkeys('xy') ~ undefined_name }}
{%- endfor %}"""
CLOCK = "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %j %A') }}"

TEMPLATES = {
    "chatml": CHATML, "llama 2": LLAMA_2, "llama 3": LLAMA_3, "mistral": MISTRAL, "tools": TOOLS, "generation": GENERATION,
    "loop controls": LOOP_CONTROLS, "parts": PARTS, "clock": CLOCK,
}  # fmt: skip


def message(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich <&>", "days": 3}},
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "It's <b>the</b> weather & more",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Zürich"}},
            "required": ["city"],
        },
    },
}
SYSTEM, USER, ASSISTANT = (
    message("system", "Be brief."),
    message("user", " Hi?\n"),
    message("assistant", "<b>Hello</b>"),
)
CHATS = {
    "user": [USER],
    "system and user": [SYSTEM, USER],
    "three turns": [USER, ASSISTANT, USER],
    "five turns after a system message": [SYSTEM, USER, ASSISTANT, USER, ASSISTANT],
    "no alternation": [USER, USER],
    "assistant first": [ASSISTANT],
    "unknown role": [USER, message("narrator", "Meanwhile")],
    "empty text": [message("user", "")],
    "list content": [message("user", [{"type": "text", "text": "What is"}, {"type": "image"}, {"type": "video"}])],
    "tool call": [USER, message("assistant", "", tool_calls=[CALL]), message("tool", "rain", tool_call_id="call_1")],
    "no message": [],
}


class StoppedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 1, 1, tzinfo=tz)


@pytest.fixture(scope="module", autouse=True)
def _transformers():
    pytest.importorskip("transformers", reason="compares with transformers: install the dependency group `oracles`")


@pytest.fixture(scope="module")
def worker():
    with Worker() as started:
        yield started


def rendered_by_transformers(template, variables):
    from transformers.utils.chat_template_utils import render_jinja_template

    chat = variables.pop("messages")
    try:
        texts, _ = render_jinja_template([chat], chat_template=template, **variables)
    except Exception:  # noqa: BLE001 - whatever it raises, the worker has to have an error too
        return None
    return texts[0]


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS.keys())
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_the_text_is_that_of_transformers(worker, monkeypatch, template, chat):
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", StoppedClock)
    variables = {
        "messages": chat, "tools": [WEATHER], "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"
    }  # fmt: skip
    assert worker.render(template, variables).text == rendered_by_transformers(template, variables)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_some_chat_renders(worker, template):
    variables = {"messages": CHATS["three turns"], "tools": [WEATHER], "bos_token": "<s>", "eos_token": "</s>"}
    assert worker.render(template, variables).text


def test_what_raises_in_transformers_raises_with_the_same_message(worker):
    from jinja2.exceptions import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    with pytest.raises(TemplateError) as raised:
        render_jinja_template([CHATS["no alternation"]], chat_template=LLAMA_2, bos_token="<s>", eos_token="</s>")
    error = worker.render(LLAMA_2, {"messages": CHATS["no alternation"], "bos_token": "<s>", "eos_token": "</s>"}).error
    assert error is not None
    assert (error.kind, error.message, error.line) == ("raised", str(raised.value), 5)


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ x|nothing }}",
        "{{ x is nothing }}",
        "{% endgeneration %}",
        "{% do x %}",
        "{% trans %}",
        "{{ (1 }}",
    ],
)
def test_what_does_not_compile_there_does_not_compile_here(worker, template):
    from jinja2.exceptions import TemplateSyntaxError
    from transformers.utils.chat_template_utils import _compile_jinja_template

    with pytest.raises(TemplateSyntaxError) as raised:
        _compile_jinja_template(template)
    problem = worker.compile(template)
    assert problem is not None
    assert (problem.kind, problem.message, problem.line) == ("syntax", raised.value.message, raised.value.lineno)


def test_the_globals_and_filters_are_those_of_transformers_less_lipsum(worker):
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment = _compile_jinja_template("").environment
    for name in environment.globals:
        assert (worker.render("{{ " + name + " is defined }}", {}).text == "True") == (name != "lipsum")
    assert worker.compile("".join("{{ x|" + name + " }}" for name in environment.filters)) is None
    assert worker.compile("".join("{{ x is " + name + " }}" for name in environment.tests if name.isalpha())) is None
