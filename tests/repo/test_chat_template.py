"""The places of chat templates, their precedence, and what comes out of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from repokit.errors import MalformedFile
from repokit.linter.examples import CHATML
from repokit.repo.chat_template import CONVERSATIONS, FOLDER, JINJA, LEGACY, PROCESSOR, ChatTemplates
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.worker import Worker

CONFIG = "tokenizer_config.json"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as shared:
        yield shared


def templates(files: dict[str, Any], worker: Worker | None = None) -> ChatTemplates:
    encoded = {
        path: content.encode() if isinstance(content, str) else json.dumps(content).encode()
        for path, content in files.items()
    }
    repository = Repository(Memory(encoded))
    repository._worker = worker
    return repository.chat_templates


# ---------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, []),
        ({JINJA: "a"}, [("default", "a", JINJA, None)]),
        ({CONFIG: {"chat_template": "a"}}, [("default", "a", CONFIG, "/chat_template")]),
        ({CONFIG: {"chat_template": None}}, []),
        (
            {CONFIG: {"chat_template": [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]}},
            [("default", "a", CONFIG, "/chat_template/0"), ("rag", "b", CONFIG, "/chat_template/1")],
        ),
        ({f"{FOLDER}/rag.jinja": "b"}, [("rag", "b", f"{FOLDER}/rag.jinja", None)]),
        ({f"{FOLDER}/deeper/rag.jinja": "b", f"{FOLDER}/notes.txt": "c"}, []),
        ({LEGACY: {"chat_template": "a"}}, [("default", "a", LEGACY, "/chat_template")]),
        ({LEGACY: {"chat_template": {"a/b": "x", "rag": "y"}}}, [("rag", "y", LEGACY, "/chat_template/rag")]),
        ({PROCESSOR: {"chat_template": "a"}}, [("default", "a", PROCESSOR, "/chat_template")]),
    ],
)
def test_every_place_is_looked_at(files: dict[str, Any], found: list[tuple[str, str, str, str | None]]) -> None:
    assert [(item.name, item.source, item.path, item.place) for item in templates(files).all] == found


def test_line_ends_are_those_of_pythons_text_mode() -> None:
    assert templates({JINJA: "a\r\nb\rc\n"}).all[0].source == "a\nb\nc\n"


def test_a_template_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedFile, match="not UTF-8") as caught:
        _ = Repository(Memory({JINJA: b"a\nb\xff"})).chat_templates
    assert caught.value.place == "line 2"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (7, "that is neither text"),
        ({"default": "a"}, "that is neither text"),
        ([{"name": "a"}], "without a name or a text"),
        (["text"], "without a name or a text"),
        ([{"name": "../x", "template": "a"}], "no file name"),
        ([{"name": "", "template": "a"}], "no file name"),
        ([{"name": "a", "template": "1"}, {"name": "a", "template": "2"}], "the name of another one"),
    ],
)
def test_an_entry_that_is_no_template_is_set_aside(value: Any, what: str) -> None:
    (malformed,) = templates({CONFIG: {"chat_template": value}}).malformed
    assert what in malformed.what


# ---------------------------------------------------------------- precedence


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({JINJA: "a", CONFIG: {"chat_template": "b"}, LEGACY: {"chat_template": "c"}}, JINJA),
        ({CONFIG: {"chat_template": "b"}, LEGACY: {"chat_template": "c"}}, CONFIG),
        ({LEGACY: {"chat_template": "c"}}, LEGACY),
        ({f"{FOLDER}/rag.jinja": "r", CONFIG: {"chat_template": "b"}}, None),
        ({}, None),
    ],
)
def test_the_default_is_the_one_that_a_tokenizer_takes(files: dict[str, Any], path: str | None) -> None:
    default = templates(files).default
    assert (default.path if default else None) == path


def test_two_places_differ_where_their_text_does() -> None:
    files = {JINJA: "a", CONFIG: {"chat_template": "b"}, LEGACY: {"chat_template": "a"}}
    assert [(one.path, other.path) for one, other in templates(files).differing] == [(JINJA, CONFIG)]


@pytest.mark.parametrize("copy", ["a\nb", "a\nb\n", "a\r\nb\r\n"])
def test_copies_that_render_alike_do_not_differ(copy: str) -> None:
    assert templates({JINJA: copy, CONFIG: {"chat_template": "a\nb"}}).differing == ()


def test_templates_of_other_names_do_not_differ() -> None:
    assert templates({JINJA: "a", f"{FOLDER}/rag.jinja": "b"}).differing == ()


def test_named_templates_behind_files_are_hidden() -> None:
    named = [{"name": "default", "template": "a"}, {"name": "rag", "template": "b"}]
    assert [item.name for item in templates({JINJA: "a", CONFIG: {"chat_template": named}}).hidden] == ["rag"]


# ---------------------------------------------------------------- what comes out


def test_every_conversation_is_rendered_in_every_form(worker: Worker) -> None:
    found = templates({JINJA: "{{ messages | length }}{{ tools is none }}{{ add_generation_prompt }}"}, worker)
    probes = found.probes(found.all[0])
    assert {probe.conversation for probe in probes} == set(CONVERSATIONS)
    assert {probe.rendered.text for probe in probes if probe.conversation == "user"} == {
        f"1{no_tools}{prompt}" for no_tools in (True, False) for prompt in (True, False)
    }


def test_contents_are_texts_and_lists_of_parts(worker: Worker) -> None:
    found = templates({JINJA: "{{ messages[0].content is string }}"}, worker)
    assert {probe.rendered.text for probe in found.probes(found.all[0])} == {"True", "False"}


def test_special_tokens_are_those_of_the_files(worker: Worker) -> None:
    files = {JINJA: "{{ eos_token }}", CONFIG: {"eos_token": "<a>"}, "special_tokens_map.json": {"eos_token": "<b>"}}
    found = templates(files, worker)
    assert {probe.rendered.text for probe in found.probes(found.all[0])} == {"<b>"}


def test_a_template_alone_has_tokens_to_write(worker: Worker) -> None:
    found = templates({JINJA: "{{ bos_token + eos_token }}"}, worker)
    assert {probe.rendered.text for probe in found.probes(found.all[0])} == {"<s></s>"}


def test_a_template_that_never_ends_is_stopped_for_all_probes_at_once(worker: Worker) -> None:
    started = worker.starts
    found = templates({JINJA: "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"}, worker)
    kinds = {probe.rendered.error.kind for probe in found.probes(found.all[0]) if probe.rendered.error}
    assert (kinds, worker.starts - started <= 1) == ({"limit"}, True)


def test_a_few_words_may_not_become_a_book(worker: Worker) -> None:
    found = templates({JINJA: "{{ 'word ' * 50000 }}"}, worker)
    errors = [probe.rendered.error for probe in found.probes(found.all[0])]
    assert {error.message for error in errors if error} == {"a few words become 250,000 characters"}


def test_long_prompts_of_many_probes_are_no_book(worker: Worker) -> None:
    found = templates({JINJA: "{{ 'word ' * 20000 }}"}, worker)
    assert [probe.rendered.error for probe in found.probes(found.all[0]) if probe.rendered.error] == []


@pytest.mark.parametrize(
    ("source", "terminator"),
    [
        (CHATML, "<|im_end|>\n"),
        ("{% for m in messages %}{{ m.content[0].text }}</s>{% endfor %}", "</s>"),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", None),
        ("{{ raise_exception('no') }}", None),
    ],
)
def test_the_terminator_is_what_follows_the_assistant(source: str, terminator: str | None, worker: Worker) -> None:
    found = templates({JINJA: source}, worker)
    assert found.terminator(found.all[0]) == terminator


def test_a_template_that_does_not_compile_says_why(worker: Worker) -> None:
    found = templates({JINJA: "a\n{% for %}"}, worker)
    problem = found.problem(found.all[0])
    assert problem is not None
    assert (problem.kind, found.all[0].line(problem.line)) == ("syntax", "line 2")


def test_a_place_in_json_is_the_pointer() -> None:
    (template,) = templates({CONFIG: {"chat_template": "a\nb"}}).all
    assert (template.line(2), template.line_at(3)) == ("/chat_template", "/chat_template")


def test_a_place_in_a_file_is_the_line() -> None:
    (template,) = templates({JINJA: "a\nb"}).all
    assert (template.line_at(2), template.line(None)) == ("line 2", None)
