"""What the worker says about chat templates."""

from __future__ import annotations

import pytest

from repokit.repo.worker import TemplateProblem, Worker

HELLO = {"messages": [{"role": "user", "content": "<Hi> é"}], "tools": None, "add_generation_prompt": True}


@pytest.fixture(scope="module")
def worker():
    with Worker() as started:
        yield started


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("a\n{% for m in messages %}\n{{ m.content }", 3),
        ("\n{{ x|no_such_filter }}", 2),
        ("{% include %}", 1),
        ("\n\n{% fi %}", 3),
    ],
)
def test_a_syntax_error_has_its_line(worker, template, line):
    problem = worker.compile(template)
    assert problem is not None
    assert (problem.kind, problem.line) == ("syntax", line)


def test_a_sound_template_has_no_problem(worker):
    assert worker.compile("{% for m in messages %}{{ m.role }}{% endfor %}") is None


def test_what_does_not_compile_does_not_render(worker):
    assert worker.render("{% if", {}).error == worker.compile("{% if")


def test_the_message_of_raise_exception_arrives_with_its_line(worker):
    rendered = worker.render("{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}", HELLO)
    assert rendered.error == TemplateProblem("raised", "roles must alternate", 2)


def test_a_long_message_is_cut(worker):
    error = worker.render("{{ raise_exception('x' * 100000) }}", {}).error
    assert error == TemplateProblem("raised", "x" * 2000, 1)


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ message.content }}", "undefined"),
        ("{{ messages[0].content.missing.deeper }}", "undefined"),
        ("{{ 'a' + 1 }}", "type"),
        ("{{ 1 / 0 }}", "failed"),
        ("{{ messages.append(1) }}", "security"),
        ("{% set n = namespace(_x=1) %}", "security"),
        ("{% set n = namespace() %}{% set n._x = 1 %}", "security"),
    ],
)
def test_an_error_while_rendering_has_its_kind(worker, template, kind):
    error = worker.render(template, HELLO).error
    assert error is not None
    assert error.kind == kind


def test_an_undefined_variable_prints_nothing(worker):
    assert worker.render("[{{ nothing }}]", {}).text == "[]"


def test_each_case_has_its_own_result(worker):
    batch = worker.render_many("{{ a.b }}", [{"a": {"b": 1}}, {}, {"a": {"b": 2}}])
    assert [case.text for case in batch] == ["1", None, "2"]


FORBIDDEN = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of a global": "{{ cycler.__init__.__globals__.os }}",
    "self": "{{ self.__init__ }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "attr filter, built name": "{{ ''|attr('__cla' ~ 'ss__') }}",
    "subscript": "{{ ''['__class__'] }}",
    "subscript, built name": "{{ ''['__cla' ~ 'ss__'] }}",
    "map": "{{ [raise_exception]|map(attribute='__globals__')|list }}",
    "map through attr": "{{ [raise_exception]|map('attr', '__globals__')|list }}",
    "groupby": "{{ [raise_exception]|groupby('__globals__')|list }}",
    "sort": "{{ messages|sort(attribute='__class__') }}",
    "format": "{{ '{0.__class__}'.format('') }}",
    "format of a variable": "{% set f = '{0.__class__}' %}{{ f.format('') }}",
    "format through attr": "{{ ('{0.__class__}'|attr('format'))(1) }}",
    "format_map": "{{ '{a[__class__]}'.format_map({'a': 1}) }}",
    "generator frame": "{{ (messages|select).gi_frame }}",
    "namespace": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "keyword": "{{ dict(__class__=1) }}",
    "name": "{{ __builtins__ }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "from import": "{% from 'os' import path %}",
    "extends": "{% extends 'base.html' %}",
    "in a branch that is never taken": "{% if false %}{{ ''.__class__ }}{% endif %}",
}


@pytest.mark.parametrize("template", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_an_attack_is_forbidden(worker, template):
    problem = worker.compile("\n" + template)
    assert problem is not None
    assert (problem.kind, problem.line) == ("forbidden", 2)


@pytest.mark.parametrize("template", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_forbidden_template_is_not_rendered(worker, template):
    error = worker.render(template, HELLO).error
    assert error is not None
    assert error.kind == "forbidden"


@pytest.mark.parametrize(
    "template",
    [
        "{% set f %}{0.__cla{% endset %}{{ (f ~ 'ss__}').format(messages) }}",
        "{% set name = '__class__' %}{{ messages[name] }}",
        "{{ messages[['_', '_class_', '_']|join] }}",
        "{{ ''|attr(['_', '_class_', '_']|join) }}",
        "{{ [messages]|map(attribute=['_', '_class_', '_']|join)|list }}",
    ],
)
def test_an_attack_that_is_built_while_rendering_reaches_nothing(worker, template):
    rendered = worker.render(template, HELLO)
    assert "class" not in (rendered.text or "").replace("__class__", "")


@pytest.mark.parametrize(
    "template",
    [
        "{{ '__start__' ~ messages[0].content }}",
        "{{ '{name}: {0}'.format(1, name='__x__') }}",
        "{% if '__x__' in messages[0].content %}{% endif %}__init__",
        "{{ messages|map(attribute='content')|join('__') }}",
        "{{ messages[0]['tool_calls'] }}{{ messages[0]._private }}",
        "{{ {'__typename': 1}|tojson }}",
    ],
)
def test_underscores_in_text_are_not_an_attack(worker, template):
    assert worker.compile(template) is None


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("a{% generation %}{{ messages[0].role }}{% endgeneration %}b", "auserb"),
        ("{{ messages|tojson }}", '[{"role": "user", "content": "<Hi> é"}]'),
        (
            "{{ messages[0]|tojson(ensure_ascii=True, indent=1, sort_keys=True) }}",
            '{\n "content": "<Hi> \\u00e9",\n "role": "user"\n}',
        ),
        ("{{ messages[0]|tojson(separators=(',', ':')) }}", '{"role":"user","content":"<Hi> é"}'),
        ("{{ strftime_now('%d %b %Y %H:%M:%S.%f') }}", "01 Jan 2024 00:00:00.000000"),
        ("{{ dict(a=1) }}{{ dict.fromkeys('ab', 0) }}", "{'a': 1}{'a': 0, 'b': 0}"),
        ("{% set n = namespace(x=1, self=2) %}{% set n.x = n.x + 1 %}{{ n.x }}{{ n.self }}", "22"),
        (
            "{{ 'ab' * 3 }}{{ [1] * 2 }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ '%5.1f|%s' % (1.25, 'x') }}{{ '100%' }}",
            "ababab[1, 1]10243  1.2|x100%",
        ),
        ("{{ 1.5 * 2 }}{{ 2 ** -1 }}{{ 2 ** 0.5 > 1 }}", "3.00.5True"),
        ("{{ '<&>' }}{{ [none, true] }}", "<&>[None, True]"),
    ],
)
def test_the_environment_is_that_of_transformers(worker, template, text):
    assert worker.render(template, HELLO).text == text


def test_a_random_choice_is_the_same_in_every_run(worker):
    template = "{% for i in range(40) %}{{ range(1000)|random }} {% endfor %}"
    first = worker.render(template, {}).text
    worker.close()
    assert worker.render(template, {}).text == first


def test_there_is_no_lorem_ipsum(worker):
    error = worker.render("{{ lipsum(n=1) }}", {}).error
    assert error is not None
    assert error.kind == "undefined"
