"""Selecting rules by code, prefix or name, ignoring with a reason and an end, keeping out by path."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from repokit.errors import UsageError
from repokit.linter.finding import Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.selection import Ignore, Selection

TODAY = date(2026, 3, 1)


class MissingShard(Rule):
    """A shard is missing.

    It bites.
    """

    code = "IDX901"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = ()


RULE = MissingShard()


@pytest.mark.parametrize("word", ["IDX901", "idx901", "IDX", "idx", "missing-shard"])
def test_a_word_matches_by_code_prefix_or_name(word: str) -> None:
    assert Selection(select=(word,)).wants(RULE, TODAY)


@pytest.mark.parametrize("word", ["", "WGT", "IDX9011", "missing", "Missing-Shard"])
def test_other_words_match_nothing(word: str) -> None:
    assert not Selection(select=(word,)).wants(RULE, TODAY)


def test_everything_is_selected_by_default() -> None:
    assert Selection().wants(RULE, TODAY)


def test_ignoring_wins_over_selecting() -> None:
    assert not Selection(select=("IDX901",), ignore=(Ignore("IDX"),)).wants(RULE, TODAY)


@pytest.mark.parametrize(("days", "runs"), [(-1, True), (0, False), (1, False)])
def test_an_ignore_holds_through_its_last_day(days: int, *, runs: bool) -> None:
    ignore = Ignore("missing-shard", "fixed upstream", TODAY + timedelta(days=days))
    assert Selection(ignore=(ignore,)).wants(RULE, TODAY) is runs


@pytest.mark.parametrize(
    ("pattern", "path", "kept"),
    [
        ("unet/*", "unet/model.safetensors", False),
        ("*.json", "unet/config.json", False),
        ("unet/*", "vae/model.safetensors", True),
        ("model", "model.safetensors", True),
    ],
)
def test_findings_are_kept_out_by_path(pattern: str, path: str, *, kept: bool) -> None:
    selection = Selection(per_file={pattern: ("IDX",)})
    assert selection.keeps(RULE.finding(path, "is missing")) is kept


def test_a_path_keeps_out_only_the_rules_that_it_names() -> None:
    assert Selection(per_file={"*": ("WGT", "CFG101")}).keeps(RULE.finding("a", "is missing"))


@pytest.mark.parametrize(
    "selection",
    [
        Selection(select=("missing-shart",)),
        Selection(ignore=(Ignore("missing-shart"),)),
        Selection(per_file={"*": ("missing-shart",)}),
    ],
)
def test_a_word_that_matches_no_rule_is_refused_with_the_nearest(selection: Selection) -> None:
    with pytest.raises(UsageError, match="missing-shart") as caught:
        selection.validate([RULE])
    assert "missing-shard" in (caught.value.hint or "")


def test_words_that_match_are_accepted() -> None:
    Selection(select=("IDX",), ignore=(Ignore("idx901"),), per_file={"*": ("missing-shard",)}).validate([RULE])


def test_an_empty_word_is_refused() -> None:
    with pytest.raises(UsageError):
        Selection(select=("",)).validate([RULE])
