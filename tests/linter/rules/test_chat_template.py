"""Templates of kinds that the examples of rules do not show."""

from __future__ import annotations

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import CHATML, Change, Example
from repokit.linter.finding import Severity
from repokit.linter.selection import Selection
from repokit.repo.chat_template import JINJA
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

TOOLS_ONLY = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}" + CHATML
GEMMA = (
    "{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>assistant\n{% endif %}"
)
VICUNA = (
    "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)
PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>{% endfor %}"


@pytest.fixture(scope="module")
def worker() -> Worker:
    with Worker() as shared:
        yield shared


def codes(change: dict[str, Change], worker: Worker) -> set[str]:
    repository = Repository(Example("", change).source())
    repository._worker = worker
    report = lint(repository, Selection(select=("TPL",)))
    assert report.coverage.broken == {}
    return {finding.code for finding in report.at_least(Severity.WARNING)}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(CHATML, id="ChatML"),
        pytest.param(VICUNA, id="Vicuna"),
        pytest.param(GEMMA, id="markers that the tokenizer does not have at all"),
        pytest.param(PARTS, id="contents that are lists"),
        pytest.param(TOOLS_ONLY, id="for tools alone"),
        pytest.param(
            CHATML.replace("'\n' +", "'\\n' + (enable_thinking | default('')) +", 1), id="a variable of its own"
        ),
        pytest.param("{% generation %}" + CHATML + "{% endgeneration %}", id="a mask for training"),
        pytest.param("{{ bos_token }}" + CHATML, id="special tokens by name"),
        pytest.param(
            "{% if 'image' in messages[0].content %}{{ messages[0].content.image }}{% endif %}" + CHATML,
            id="a key of a part",
        ),
        pytest.param("{% set content = {} %}{% if 'value' in content %}{% endif %}" + CHATML, id="a key of its own"),
    ],
)
def test_templates_as_people_write_them_pass(source: str, worker: Worker) -> None:
    assert codes({JINJA: source}, worker) == set()


def test_a_terminator_by_the_name_of_eos_ends_a_generation(worker: Worker) -> None:
    assert codes({JINJA: CHATML.replace("'<|im_end|>\n'", "eos_token")}, worker) == set()


def test_any_of_several_terminators_will_do(worker: Worker) -> None:
    change = {
        JINJA: CHATML.replace("<|im_end|>", "<|im_end|></s>"),
        "generation_config.json": {"eos_token_id": 2},
        "config.json": {"eos_token_id": 2},
        "tokenizer_config.json": {"eos_token": "</s>"},
    }
    assert codes(change, worker) == set()


def test_a_model_that_does_not_generate_needs_no_terminator(worker: Worker) -> None:
    change = {
        "generation_config.json": None,
        "config.json": {"architectures": ["LlamaForSequenceClassification"], "eos_token_id": 2},
        "tokenizer_config.json": {"eos_token": "</s>"},
    }
    assert codes(change, worker) == set()


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("{{ ''['__cla' ~ 'ss__'] }}", "TPL102"),
        ("{{ '{0.__class__}'.format('') }}", "TPL102"),
        ("{{ 'a' * 10000000000 }}", "TPL103"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "TPL103"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "TPL101"),
        ("{{ 'x' * 300000 }}", "TPL103"),
        ("{% if 'weekend' in message.content %}{% endif %}" + CHATML, "TPL206"),
        ("{% set day = strftime_now('%d') | int > 3 %}" + CHATML, "TPL206"),
    ],
)
def test_hostile_templates_are_named(source: str, code: str, worker: Worker) -> None:
    assert code in codes({JINJA: source}, worker)


def test_messages_of_templates_reach_no_terminal_as_they_are(worker: Worker) -> None:
    change = {JINJA: "{{ raise_exception('\x1b[2J\u202e\n::error::x') }}"}
    repository = Repository(Example("", change).source())
    repository._worker = worker
    findings = lint(repository, Selection(select=("TPL103",))).findings
    assert [finding.message.isprintable() for finding in findings] == [True]
