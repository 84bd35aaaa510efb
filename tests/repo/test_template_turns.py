"""What a template makes of conversations whose every word is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from repokit.linter.examples import CHATML
from repokit.repo.chat_template import JINJA
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.template_turns import QUESTION, Turns, alike, turns
from repokit.repo.worker import Worker

LISTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% for part in m.content %}{{ part.text }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def said(worker: Worker) -> Callable[[str], Turns]:
    def render(source: str) -> Turns:
        repository = Repository(Memory({JINJA: source.encode()}))
        repository._worker = worker
        return turns(repository, repository.chat_templates.all[0])

    return render


def test_the_header_is_what_stands_before_an_answer(said):
    assert said(CHATML).header == "<|im_start|>assistant\n"


def test_the_prompt_is_what_asking_for_an_answer_adds(said):
    assert said(CHATML).prompt == "<|im_start|>assistant\n"


def test_the_header_of_a_user_is_found_behind_an_answer(said):
    assert said(CHATML).user_header == "<|im_start|>user\n"


def test_a_template_for_lists_is_given_lists(said):
    assert QUESTION in (said(LISTS).asked or "")


def test_a_conversation_that_is_refused_is_none(said):
    assert (
        said("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML).instructed is None
    )


def test_no_header_is_told_where_an_answer_changes_what_stands_before_it(said):
    assert said("{{ messages | length }}" + CHATML).header is None


def test_a_template_without_tools_takes_none(said):
    assert not said(CHATML).takes_tools


@given(st.text(alphabet="<|im_start>ab \n[]/INST", max_size=60), st.text(max_size=20))
def test_a_text_is_alike_to_what_continues_it(text, more):
    assert alike(text, text.strip() + " " + more) >= alike(text, text) - 1


def test_a_marker_counts_once():
    assert alike("<|im_start|>assistant\n", "<|im_start|>user\n") == 1
