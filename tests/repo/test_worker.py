"""The worker as a process: limits, losses, restarts, and a protocol that nothing gets out of step."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from repokit.errors import InputError
from repokit.repo import worker_process
from repokit.repo.worker import Kind, Limits, TemplateProblem, Worker

SMALL = Limits(cpu_seconds=0.3, wall_seconds=60.0, memory_bytes=160 << 20, output=1 << 16)
KINDS = typing.get_args(Kind)

needs_rlimits = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the limits of this system are weaker")
needs_proc = pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads /proc")


@pytest.fixture(scope="module")
def worker():
    with Worker(SMALL) as started:
        yield started


BOMBS = {
    "one long range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "nested ranges with output": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "repeated string": "{{ 'x' * 10 ** 9 }}",
    "repeated list": "{{ [0] * 10 ** 9 }}",
    "repeated in a variable": "{% set n = messages|length * 10 ** 9 %}{{ n * 'x' }}",
    "doubled string": "{% set n = namespace(s='xxxx') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "power of a power": "{{ 9 ** (9 ** 9) }}",
    "repeated multiplication": "{% set n = namespace(i=7) %}{% for i in range(99) %}{% set n.i = n.i * n.i %}{% endfor %}",
    "printf width": "{{ '%999999999d' % 1 }}",
    "printf width from the values": "{{ '%*d' % (999999999, 1) }}",
    "format width": "{{ '{:>9999999999}'.format(1) }}",
    "centred text": "{{ 'x'|center(9999999999) }}",
    "justified text": "{{ 'x'.ljust(9999999999) }}",
    "replaced text": "{% set x = 'a' * 99999 %}{{ x.replace('a', x) }}",
    "joined text": "{{ range(99999)|join('x' * 99999) }}",
    "slices": "{{ [1]|slice(10 ** 9)|list }}",
    "indented JSON": "{{ messages|tojson(indent=10 ** 9) }}",
    "endless macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "sum": "{{ " + "1+" * 5000 + "1 }}",
}


@needs_rlimits
@pytest.mark.parametrize("template", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_a_limit(worker, template):
    error = worker.render(template, {"messages": [{"role": "user"}]}).error
    assert error is not None
    assert error.kind == "limit"


@needs_rlimits
def test_the_request_after_a_bomb_is_answered(worker):
    worker.render(BOMBS["nested ranges"], {})
    assert worker.render("{{ x }}", {"x": "fine"}).text == "fine"


@needs_rlimits
def test_a_bomb_that_goes_off_while_compiling_is_a_limit(worker):
    problem = worker.compile("{{ []|slice(1000000000)|min }}")  # a constant, so that jinja2 computes it beforehand
    assert problem == TemplateProblem("limit", "more than 0.3 s of processor time")


@needs_rlimits
def test_the_limit_that_was_exceeded_is_named(worker):
    assert worker.render(BOMBS["nested ranges"], {}).error == TemplateProblem(
        "limit", "more than 0.3 s of processor time"
    )


@needs_rlimits
def test_a_lost_batch_is_the_same_problem_for_every_case(worker):
    batch = worker.render_many(
        "{% if bomb %}" + BOMBS["nested ranges"] + "{% endif %}", [{"bomb": False}, {"bomb": True}]
    )
    assert [case.error and case.error.kind for case in batch] == ["limit", "limit"]


def test_the_wall_clock_ends_what_the_processor_clock_does_not():
    with Worker(Limits(cpu_seconds=600, wall_seconds=0.3)) as impatient:
        rendered = impatient.render(BOMBS["nested ranges"], {})
    assert rendered.error == TemplateProblem("limit", "no answer within 0.3 s")


def test_the_cases_of_a_request_share_the_room_for_output(worker):
    batch = worker.render_many("{{ x }}", [{"x": "a" * 40_000}, {"x": "b" * 40_000}, {"x": "c"}])
    assert batch[0].text is not None
    assert batch[1].error is not None
    assert batch[1].error.kind == "limit"


def test_hundreds_of_requests_are_answered_by_one_child():
    with Worker() as fresh:
        answers = [fresh.render("{{ i }}", {"i": i}).text for i in range(300)]
        assert answers == [str(i) for i in range(300)]
        assert fresh.starts == 1


def test_threads_get_the_answers_to_their_own_requests(worker):
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda i: worker.render("{{ i }}", {"i": i}).text, range(100))
        assert list(answers) == [str(i) for i in range(100)]


def test_a_template_that_fails_leaves_the_child_running():
    with Worker() as fresh:
        fresh.render("{{ raise_exception('no') }}", {})
        fresh.render("{{ a.b.c }}", {})
        fresh.compile("{% if %}")
        assert fresh.starts == 1


def test_nothing_is_started_before_the_first_request():
    with Worker() as unused:
        pass
    assert unused.starts == 0


def test_a_closed_worker_starts_again(worker):
    worker.close()
    assert worker.render("{{ 1 }}", {}).text == "1"


def test_the_child_ends_with_the_worker():
    with Worker() as short:
        short.render("", {})
        process = short._child._process
    assert process.returncode is not None


def test_a_child_that_was_killed_between_requests_is_replaced(worker):
    worker.render("", {})
    worker._child._process.kill()
    worker._child._process.wait()
    assert worker.render("{{ 1 }}", {}).text == "1"


def test_an_interrupted_request_does_not_answer_the_next_one(worker, monkeypatch):
    real, pipe = worker_process.ChildProcess._reply, []

    def interrupted(child, *request):
        pipe.append(child._process.stdin.write(request[0]))  # the child goes on to answer it
        raise KeyboardInterrupt

    worker.render("", {})
    monkeypatch.setattr(worker_process.ChildProcess, "_reply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.render("first", {})
    monkeypatch.setattr(worker_process.ChildProcess, "_reply", real)
    assert worker.render("second", {}).text == "second"


# Children as they might be if an attack got out of the sandbox: they answer the import, and then something else.
ROGUE = """
import json, os, signal, sys

def answer(text):
    sys.stdout.write("\\0\\0\\0" + chr(len(text)) + "\\0\\0\\0\\0" + text)
    sys.stdout.flush()

os.read(0, 9999)
answer("[{}]")
os.read(0, 9999)
"""
ROGUES = {
    "ends": "sys.exit(3)",
    "closes its output": "os.close(1); sys.stdin.read()",
    "answers what is not JSON": "answer('[{]')",
    "answers what is not text": "sys.stdout.buffer.write(bytes([0, 0, 0, 2, 0, 0, 0, 0, 255, 255]))",
    "answers too many results": 'answer(\'[{"text": ""}, {"text": ""}]\')',
    "answers another document": "answer('{}')",
    "answers numbers": "answer('[1]')",
    "answers without a text": "answer('[{}]')",
    "answers with half a problem": 'answer(\'[{"problem": {"kind": "type"}}]\')',
    "answers half": "sys.stdout.write(chr(0) * 3 + chr(9) + chr(0) * 4 + '[{')",
}


@pytest.mark.parametrize("does", ROGUES.values(), ids=ROGUES.keys())
def test_what_a_rogue_child_does_is_a_result(does, tmp_path, monkeypatch):
    program = tmp_path / "rogue.py"
    program.write_text(ROGUE + does)
    monkeypatch.setattr(worker_process, "_PROGRAM", program)
    with Worker() as betrayed:
        error = betrayed.render("{{ 1 }}", {}).error
    assert error is not None
    assert error.kind in ("crash", "limit")


def test_an_answer_that_is_announced_too_large_is_not_read(tmp_path, monkeypatch):
    program = tmp_path / "rogue.py"
    program.write_text(ROGUE + "sys.stdout.write(chr(1) + chr(0) * 7); sys.stdout.flush(); sys.stdin.read()")
    monkeypatch.setattr(worker_process, "_PROGRAM", program)
    with Worker(SMALL) as betrayed:
        assert betrayed.compile("") == TemplateProblem("limit", "the answer has 16,777,216 bytes")


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_a_child_that_dies_of_a_signal_is_a_crash_that_names_it(tmp_path, monkeypatch):
    program = tmp_path / "rogue.py"
    program.write_text(ROGUE + "os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(worker_process, "_PROGRAM", program)
    with Worker() as betrayed:
        assert betrayed.compile("") == TemplateProblem("crash", "the child process ended with SIGSEGV")


def test_a_child_that_cannot_be_started_says_nothing_of_a_template(monkeypatch):
    monkeypatch.setattr(sys, "executable", str(Path(os.sep, "no", "such", "python")))
    with pytest.raises(InputError, match="could not be started"):
        Worker().compile("")


def child_file(worker, name):
    return Path(f"/proc/{worker._child._process.pid}/{name}")


@needs_proc
def test_the_child_has_no_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with Worker() as fresh:
        fresh.render("", {})
        names = {line.split(b"=")[0] for line in child_file(fresh, "environ").read_bytes().split(b"\0") if line}
    assert names <= {b"LC_CTYPE"}  # set by the interpreter itself, PEP 538


@needs_proc
def test_the_child_runs_outside_the_repository():
    with Worker() as fresh:
        fresh.render("", {})
        assert child_file(fresh, "cwd").resolve() == Path("/")


@needs_proc
def test_what_the_child_prints_is_not_an_answer():
    with Worker() as fresh:
        fresh.render("", {})
        assert child_file(fresh, "fd/1").readlink() == Path(os.devnull)


@needs_proc
@pytest.mark.parametrize(
    ("limit", "soft"),
    [
        ("Max file size", "0"),
        ("Max core file size", "0"),
        ("Max open files", "16"),
        ("Max address space", str(160 << 20)),
    ],
)
def test_the_child_is_limited(worker, limit, soft):
    worker.render("", {})
    (line,) = (line for line in child_file(worker, "limits").read_text().splitlines() if line.startswith(limit))
    assert line.removeprefix(limit).split()[0] == soft


@needs_rlimits
def test_a_confined_process_cannot_write_a_file(tmp_path):
    program = worker_process._PROGRAM.with_name("worker_child.py")
    attempt = f"import runpy; runpy.run_path({str(program)!r})['confine'](1 << 29, 2.0); open('canary', 'w').write('x')"
    subprocess.run([sys.executable, "-I", "-c", attempt], cwd=tmp_path, check=False, capture_output=True)
    assert [file.stat().st_size for file in tmp_path.iterdir()] in ([], [0])


def test_the_parent_loads_neither_library():
    code = (
        "import sys; from repokit.repo.worker import Worker\n"
        "with Worker() as w: print(w.render('{{ 1 }}', {}).text, w.tokenizer(b'').vocab_size)\n"
        "print(*{'jinja2', 'tokenizers', 'huggingface_hub'} & set(sys.modules))"
    )
    root = str(Path(worker_process.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "0"]


FRAGMENTS = [
    "{{", "}}", "{%", "%}", "{#", "#}", "-", "for", "x", "in", "messages", "endfor", "if", "else", "endif", "set", "=", "macro", "endmacro", "call", "filter",
    "generation", "endgeneration", "block", "raw", "endraw", "|", "tojson", "(", ")", "[", "]", "{", "}", ".", "'", '"', "~", "+", "*", "%", "**", "__class__",
    "0", "9999", "\n", " ", "raise_exception", "namespace", "loop", "self", "\0", "\ud800", "\u202e", "é",
]  # fmt: skip
templates = st.one_of(
    st.text(st.characters()),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(" ".join),
    st.text(st.characters()).map("{{{{ {} }}}}".format),
)


@settings(deadline=None, max_examples=200)
@given(template=templates, number=st.integers())
def test_no_template_breaks_the_protocol(worker, template, number):
    problem = worker.compile(template)
    rendered = worker.render(template, {"messages": [{"role": "user", "content": "x"}]})
    assert problem is None or problem.kind in KINDS
    assert (rendered.text is None) == (rendered.error is not None)
    assert worker.render("{{ x }}", {"x": number}).text == str(number)


@settings(deadline=None, max_examples=100)
@given(text=st.text(st.characters()))
def test_any_text_passes_through_unchanged(worker, text):
    assert worker.render("{{ x }}", {"x": text}).text == text
