"""repokit rules: the list, a family, one rule."""

from __future__ import annotations

import json

import pytest

from repokit.cli import run


@pytest.mark.parametrize("words", [["IDX"], ["--family", "IDX"], ["--family", "idx"]])
def test_a_family_is_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", *words, "-q"])
    codes = capsys.readouterr().out.split()
    assert {code[:3] for code in codes} == {"IDX"}


def test_a_family_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", "IDX"])
    assert capsys.readouterr().out.startswith("IDX101  error    missing-shard")


def test_a_code_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", "IDX101"])
    assert "\nBreaks it\n" in capsys.readouterr().out


def test_a_name_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", "missing-shard"])
    assert capsys.readouterr().out.startswith("IDX101 missing-shard")


def test_a_page_without_a_terminal_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", "IDX101"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_family_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run(["rules", "--family", "IDX", "--json"])
    assert {"examples", "incidents", "fixes"} <= json.loads(capsys.readouterr().out)[0].keys()


@pytest.mark.parametrize("words", [["--family", "XYZ"], ["IDX101", "--family", "IDX"], ["XYZ"]])
def test_what_does_not_exist_or_go_together_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["rules", *words])
    assert (code, "next" in capsys.readouterr().err) == (2, True)
