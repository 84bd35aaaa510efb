"""`repokit lint --deep` as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repokit import api
from repokit.errors import UsageError
from repokit.formats.safetensors import header_bytes
from repokit.formats.tensors import TensorInfo
from repokit.linter.examples import lora, sharded, single
from repokit.linter.examples_values import NAN, planted, zero_rows
from repokit.linter.rules.misnamed import MANIFEST, manifest_of
from repokit.repo.value_stream import CHUNK
from repokit.repo.weights import ADAPTER, SINGLE

Run = Callable[..., "subprocess.CompletedProcess[str]"]

UP = "model.layers.1.mlp.up_proj.weight"


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for path, content in files.items():
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A llama with one NaN."""
    files = dict(single())
    return written(tmp_path / "model", {**files, SINGLE: planted(NAN, 5, UP)(files[SINGLE])})


def codes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [finding["code"] for finding in json.loads(done.stdout)["findings"] if finding["severity"] != "note"]


def test_values_are_read_where_they_are_asked_for(command: Run, model: Path) -> None:
    shallow, deep = command("lint", model, "--json"), command("lint", model, "--deep", "--json")
    assert (shallow.returncode, codes(shallow), deep.returncode, codes(deep)) == (0, [], 1, ["WGT120"])


def test_the_text_says_where_it_is(command: Run, model: Path) -> None:
    done = command("lint", model, "--deep", "--select", "WGT120")
    assert f"model.safetensors {UP}: error WGT120" in done.stdout


@pytest.mark.parametrize("jobs", ["1", "5"])
def test_threads_do_not_change_the_report(command: Run, tmp_path: Path, jobs: str) -> None:
    files = {
        path: planted(NAN, 1, "weight")(content) if path.endswith(".safetensors") else content
        for path, content in sharded().items()
    }
    folder = written(tmp_path / "model", files)
    words = ("lint", folder, "--deep", "--select", "WGT12")
    assert command(*words, "--jobs", jobs).stdout == command(*words).stdout


def test_half_an_adapter_is_found(command: Run, tmp_path: Path) -> None:
    files = dict(lora())
    folder = written(tmp_path / "adapter", {**files, ADAPTER: zero_rows(4, 8, "lora_B.weight")(files[ADAPTER])})
    assert codes(command("lint", folder, "--deep", "--json")) == ["ADP120"]


def test_a_file_is_held_against_the_manifest(command: Run, tmp_path: Path) -> None:
    files = {**single(), MANIFEST: manifest_of(single())}
    whole = written(tmp_path / "whole", files)
    changed = written(tmp_path / "changed", {**files, SINGLE: files[SINGLE][:-1] + b"\x01"})
    found = [codes(command("lint", folder, "--deep", "--json")) for folder in (whole, changed)]
    assert found == [[], ["FIL120"]]


def test_a_model_is_compared_with_the_base_that_is_named(command: Run, tmp_path: Path) -> None:
    model, base = written(tmp_path / "model", dict(single())), written(tmp_path / "base", dict(single()))
    assert codes(command("lint", model, "--deep", "--base", base, "--json")) == ["WGT222"]


def test_a_trained_model_is_not_its_base(command: Run, tmp_path: Path) -> None:
    trained = {**single(), SINGLE: planted({"BF16": b"\x80\x3f"}, 0, UP)(single()[SINGLE])}
    model, base = written(tmp_path / "model", trained), written(tmp_path / "base", dict(single()))
    assert codes(command("lint", model, "--deep", "--base", base, "--json")) == []


def test_the_values_of_a_base_are_not_read_without_deep(command: Run, tmp_path: Path) -> None:
    model, base = written(tmp_path / "model", dict(single())), written(tmp_path / "base", dict(single()))
    assert codes(command("lint", model, "--base", base, "--json")) == []


def test_what_cannot_be_read_is_not_clean(command: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {**single(), MANIFEST: b'{"version": 2}'})
    done = command("lint", folder, "--deep")
    assert (done.returncode, "not checked: FIL120" in done.stdout) == (2, True)


@pytest.mark.parametrize(
    ("target", "command_to_run"),
    [
        ("org/name", "hf download org/name --local-dir name && repokit lint name --deep"),
        ("org/name@v1.0", "hf download org/name --revision v1.0 --local-dir name && repokit lint name --deep"),
    ],
)
def test_a_revision_on_the_hub_is_not_downloaded(command: Run, target: str, command_to_run: str) -> None:
    done = command("lint", target, "--deep", HF_ENDPOINT="http://127.0.0.1:9")
    assert (done.returncode, command_to_run in done.stderr, "HubUnreachable" in done.stderr) == (2, True, False)


def test_a_rule_over_values_asks_for_deep(command: Run, model: Path) -> None:
    done = command("lint", model, "--select", "WGT120")
    assert (done.returncode, "add --deep" in done.stderr) == (2, True)


def test_without_deep_no_array_library_is_loaded(model: Path, environment: dict[str, str]) -> None:
    program = "import sys; from repokit import api; api.lint(sys.argv[1]); print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(model)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


# ---------------------------------------------------------------- from Python


def test_progress_is_told_to_its_end(model: Path) -> None:
    told: list[tuple[str, int, int]] = []
    api.lint(model, deep=True, progress=lambda *step: told.append(step))
    stage, done, total = told[-1]
    assert (stage, done == total > 0) == ("values", True)


def test_an_address_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="would download"):
        api.lint("org/name", deep=True)


# ---------------------------------------------------------------- interrupted


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model of half a terabyte of zeros, none of them stored."""
    folder = written(tmp_path / "endless", {**single(), SINGLE: b""})
    size = 2**39
    with (folder / SINGLE).open("wb") as stream:
        stream.truncate(
            stream.write(header_bytes([TensorInfo("w", "BF16", (size // 4096, 2048), 0, size)], {"format": "pt"}))
            + size
        )
    return folder


def test_ctrl_c_ends_it_between_two_chunks(endless: Path) -> None:
    at = 256 * CHUNK  # then the main thread does nothing but wait

    def interrupt(stage: str, done: int, _total: int) -> None:
        if stage == "values" and at <= done < at + CHUNK:
            os.kill(os.getpid(), signal.SIGINT)

    # A shell gives its background jobs a SIGINT that is ignored; the tests would inherit it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            api.lint(endless, deep=True, selection=api.Selection(("WGT120",)), progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
