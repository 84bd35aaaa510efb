"""The budgets, as tests: `python -m pytest -m bench -s tests/bench` prints the tables.

Machines differ, and a busy one differs from itself: with two other jobs on two cores a build takes twice as long, and
`cp` hardly longer. So a ratio of times fails here only where it misses its budget threefold, and is an expected failure
between. Memory does not vary, nor does what is asked of a Hub: both are asserted as they are.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.bench

_HERE = Path(__file__).resolve().parent
_TOLERATED = 3.0


def _lines(program: str, folder: Path, environment: dict[str, str], *flags: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(_HERE / program), "--json", *flags]
    folder.mkdir()
    done = subprocess.run(
        command, cwd=folder, env={**environment, "TMPDIR": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines: list[dict[str, Any]] = json.loads(done.stdout)
    for line in lines:
        verdict = "ok" if line["kept"] else "OVER"
        print(
            f"\n{line['what']}: {line['value']:.2f} {line['unit']}, budget {line['budget']}, {verdict} {line['detail']}"
        )
    return lines


def _judge(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        excess = line["budget"] / line["value"] if line["floor"] else line["value"] / line["budget"]
        assert line["unit"] not in {"MB", "requests"} or line["kept"], line
        assert excess <= _TOLERATED, line
    if missed := [line["what"] for line in lines if not line["kept"]]:
        pytest.xfail(f"over budget on this machine, now: {'; '.join(missed)}")


def test_startup(tmp_path: Path, environment: dict[str, str]) -> None:
    _judge(_lines("startup.py", tmp_path / "work", environment))


def test_lint(tmp_path: Path, environment: dict[str, str]) -> None:
    _judge(_lines("lint.py", tmp_path / "work", environment))


def test_deep_lint(tmp_path: Path, environment: dict[str, str]) -> None:
    _judge(_lines("deep.py", tmp_path / "work", environment))


def test_remote_lint(tmp_path: Path, environment: dict[str, str]) -> None:
    _judge(_lines("remote.py", tmp_path / "work", environment))


def test_plan(tmp_path: Path, environment: dict[str, str]) -> None:
    _judge(_lines("plan.py", tmp_path / "work", environment))


def test_build(tmp_path: Path, environment: dict[str, str]) -> None:
    peer = ["--peer"] if importlib.util.find_spec("torch") else []
    _judge(_lines("build.py", tmp_path / "work", environment, *peer))


def test_checkpoints(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("peft")
    _judge(_lines("checkpoints.py", tmp_path / "work", environment))
