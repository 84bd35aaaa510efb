"""What is asked of the child, and what becomes of its answers; a program of our own stands in its place.

Whether transformers really loads is asked in tests/oracles/test_load_check.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repokit.errors import InputError, MissingInput, UsageError
from repokit.linter.examples import lora, single
from repokit.verifier import load_check
from repokit.verifier.load_check import Target, check_load, require_libraries

PASSED = {"steps": [{"name": "config", "outcome": "passed", "what": "llama"}], "keys": {}, "seconds": 1.5}
READY = {"libraries": {"transformers": "5.0"}}


@pytest.fixture
def repository(tmp_path: Path):
    def write(files: dict[str, bytes], name: str = "dist") -> Path:
        for path, content in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture
def program(tmp_path: Path):
    """A program that answers the given lines; `ask` has the request, `answer(X)` says a line."""

    def write(body: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(
            "import json, os, signal, sys\n"
            "ask = json.load(sys.stdin)['repositories']\n"
            "def answer(value): print(json.dumps(value), flush=True)\n"
            f"ready, passed = {READY!r}, {PASSED!r}\n{body}\n"
        )
        return path

    return write


ECHO = """
answer(ready)
for one in ask:
    answer({**passed, "steps": [{"name": "config", "outcome": "passed", "what": json.dumps(one)}]})
"""


def asked(program, directory: Path, base: Path | None = None) -> dict:
    """What the child was asked for."""
    (report,) = check_load([Target(directory, str(directory), base)], program=program(ECHO))
    found: dict = json.loads(report.steps[0].what)
    return found


def test_an_ordinary_repository_is_asked_for_with_its_tokenizer(program, repository):
    found = asked(program, repository(single()))
    assert (found["kind"], found["variant"], found["tokenizer"], found["processor"]) == ("model", None, True, False)


def test_a_processor_is_asked_for_where_there_is_one(program, repository):
    assert asked(program, repository({**single(), "preprocessor_config.json": b"{}"}))["processor"] is True


def test_without_a_vocabulary_no_tokenizer_is_asked_for(program, repository):
    files = {path: content for path, content in single().items() if "token" not in path}
    assert asked(program, repository(files))["tokenizer"] is False


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("model.fp16.safetensors", "fp16"),
        ("model.safetensors.index.fp16.json", "fp16"),
        ("pytorch_model.bf16.bin", "bf16"),
        ("model.safetensors.index.json", None),
        ("pytorch_model.bin", None),
    ],
)
def test_a_variant_is_told_by_the_only_weights(program, repository, name, variant):
    assert asked(program, repository({"config.json": b"{}", name: b""}))["variant"] == variant


def test_an_adapter_is_asked_for_on_its_base(program, repository):
    base = repository(single(), "base")
    found = asked(program, repository(lora()), base)
    assert (found["kind"], found["base"]) == ("adapter", str(base))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["adapter_config.json", "adapter_model.safetensors"], "--base"),
        (["model_index.json", "unet/config.json"], "diffusers"),
        (["config.json", "model-q4_k_m.gguf"], "GGUF"),
        (["modules.json", "0_Transformer/config.json"], "sentence-transformers"),
        (["README.md"], "no config.json"),
    ],
)
def test_what_transformers_does_not_load_is_not_asked_for(repository, files, reason):
    directory = repository(dict.fromkeys(files, b"{}"))
    (report,) = check_load([Target(directory, "dist")], program=Path("/no/such/program"))
    assert (report.exit_code, reason in report.steps[0].what) == (2, True)


def test_the_modules_of_sentence_transformers_are_said_to_be_left_out(program, repository):
    assert "pooling" in asked(program, repository({**single(), "modules.json": b"[]"}))["note"]


def test_reports_come_in_the_order_of_the_targets(program, repository):
    ours, gguf = repository(single(), "ours"), repository({"model.gguf": b""}, "gguf")
    targets = [Target(gguf, "gguf"), Target(ours, "ours"), Target(gguf, "again")]
    reports = check_load(targets, program=program("answer(ready)\nfor _ in ask: answer(passed)"))
    assert [(report.directory, report.exit_code) for report in reports] == [("gguf", 2), ("ours", 0), ("again", 2)]


def test_the_place_is_told_as_the_user_calls_it(program, repository):
    directory = repository(single())
    (report,) = check_load([Target(directory, "dist")], program=program(ECHO))
    assert json.loads(report.steps[0].what)["directory"] == "dist"


def test_the_others_are_loaded_by_a_new_child_when_one_is_lost(program, repository):
    """The first repository crashes whatever loads it."""
    crashing = "answer(ready)\nfor one in ask:\n  if 'bad' in one['directory']: os.kill(os.getpid(), signal.SIGSEGV)\n"
    bad, good = repository(single(), "bad"), repository(single(), "good")
    targets = [Target(good, "good"), Target(bad, "bad"), Target(good, "again")]
    reports = check_load(targets, program=program(crashing + "  answer(passed)"))
    assert [report.exit_code for report in reports] == [0, 2, 0]
    assert "SIGSEGV" in reports[1].steps[0].what


@pytest.mark.parametrize("garbage", ["[]", "{}", '{"steps": 3, "keys": {}, "seconds": 1}', "nonsense", ""])
def test_what_is_no_report_is_not_taken_for_one(program, repository, garbage):
    stand_in = program(f"answer(ready); print({garbage!r}, flush=True)")
    (report,) = check_load([Target(repository(single()), "dist")], program=stand_in)
    assert (report.exit_code, report.steps[0].what) == (2, "the child process answered what is no report")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("answer({'unusable': 'OSError: libcudart.so.12: cannot open'})", "libcudart"),
        ("os.abort()", "SIGABRT"),
        ("answer([])", "no report"),
    ],
)
def test_libraries_that_do_not_work_stop_it_with_what_they_said(program, repository, body, told):
    with pytest.raises(InputError, match=told):
        check_load([Target(repository(single()), "dist")], program=program(body))


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MissingInput):
        check_load([Target(tmp_path / "nowhere", "nowhere")])


def test_a_base_that_is_not_there_is_refused(tmp_path, repository):
    with pytest.raises(MissingInput, match="nowhere"):
        check_load([Target(repository(lora()), "dist", tmp_path / "nowhere")])


def test_a_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setattr(load_check, "_LIBRARIES", ("json", "no_such_library"))
    with pytest.raises(UsageError, match="no_such_library") as caught:
        require_libraries()
    assert caught.value.hint == "pip install 'repokit[load]'"
