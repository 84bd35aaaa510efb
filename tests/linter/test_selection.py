"""Selecting rules by code, prefix or name, ignoring with a reason and an end, keeping out by path."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from repokit.errors import UsageError
from repokit.linter.finding import Severity, Waived
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


# ---------------------------------------------------------------- extending and narrowing


class Unsure(MissingShard):
    """Is not sure of itself.

    It bites some.
    """

    code = "WGT901"
    preview = True


UNSURE = Unsure()


def test_extending_adds_to_all_rules() -> None:
    selection = Selection(extend_select=("WGT901",))
    assert (selection.wants(RULE, TODAY), selection.wants(UNSURE, TODAY)) == (True, True)


def test_extending_adds_to_what_is_selected() -> None:
    selection = Selection(select=("CFG",), extend_select=("IDX",))
    assert (selection.wants(RULE, TODAY), selection.wants(UNSURE, TODAY)) == (True, False)


def test_ignoring_wins_over_extending() -> None:
    assert not Selection(extend_select=("IDX",), ignore=(Ignore("IDX"),)).wants(RULE, TODAY)


def test_the_command_line_adds_to_the_settings() -> None:
    settings = Selection(("CFG",), (Ignore("CRD", "a reason"),), {"a": ("TOK",)}, ("IDX",))
    assert settings.narrowed((), ("WGT",), (Ignore("LIC"),)) == Selection(
        ("CFG",), (Ignore("CRD", "a reason"), Ignore("LIC")), {"a": ("TOK",)}, ("IDX", "WGT")
    )


def test_selecting_on_the_command_line_stands_for_what_the_settings_select() -> None:
    settings = Selection(("CFG",), (Ignore("CRD", "a reason"),), None, ("IDX",))
    assert settings.narrowed(("TPL",)) == Selection(("TPL",), (Ignore("CRD", "a reason"),))


def test_words_of_every_kind_are_looked_up() -> None:
    with pytest.raises(UsageError, match="missing-shart"):
        Selection(extend_select=("missing-shart",)).validate([RULE])


# ---------------------------------------------------------------- waivers


@pytest.mark.parametrize(
    ("ignore", "runs"),
    [
        (Ignore("IDX901"), False),
        (Ignore("IDX901", "a reason"), True),
        (Ignore("IDX901", "a reason", TODAY - timedelta(days=1)), False),
    ],
)
def test_a_rule_runs_for_its_waiver_where_that_has_a_reason(ignore: Ignore, *, runs: bool) -> None:
    assert Selection(ignore=(ignore,)).silences(RULE, TODAY) is runs


def test_a_rule_does_not_run_where_one_of_two_ignores_has_no_reason() -> None:
    assert not Selection(ignore=(Ignore("IDX", "a reason"), Ignore("IDX901"))).silences(RULE, TODAY)


def test_a_rule_that_is_not_selected_does_not_run_for_its_waiver() -> None:
    assert not Selection(select=("WGT",), ignore=(Ignore("IDX", "a reason"),)).silences(RULE, TODAY)


def test_an_ignore_of_files_lets_the_rule_run() -> None:
    assert Selection(ignore=(Ignore("IDX901", "a reason", paths="a/*"),)).wants(RULE, TODAY)


@pytest.mark.parametrize(("path", "kept"), [("a/x", False), ("b/x", True)])
def test_an_ignore_of_files_holds_there(path: str, *, kept: bool) -> None:
    selection = Selection(ignore=(Ignore("IDX901", "a reason", paths="a/*"),))
    assert selection.keeps(RULE.finding(path, "is missing"), TODAY) is kept


def test_an_ignore_of_files_ends_too() -> None:
    selection = Selection(ignore=(Ignore("IDX901", "a reason", TODAY - timedelta(days=1), "a/*"),))
    assert selection.keeps(RULE.finding("a/x", "is missing"), TODAY)


def test_a_waiver_that_has_ended_is_told() -> None:
    ended = Ignore("IDX901", "a reason", TODAY - timedelta(days=1))
    assert Selection(ignore=(ended, Ignore("WGT", "another"))).expired(TODAY) == (ended,)


UNUSED = Ignore("IDX901", "a reason")


def test_a_waiver_that_silenced_nothing_is_told() -> None:
    assert Selection(ignore=(UNUSED,)).unused((), [RULE], TODAY) == (UNUSED,)


def test_a_waiver_that_silenced_something_is_not() -> None:
    silenced = Waived(RULE.finding("a", "is missing"), "a reason")
    assert Selection(ignore=(UNUSED,)).unused((silenced,), [RULE], TODAY) == ()


def test_a_waiver_of_a_rule_that_did_not_run_is_not_told() -> None:
    assert Selection(ignore=(UNUSED,)).unused((), [], TODAY) == ()


def test_a_waiver_of_one_file_that_silenced_nothing_is_told() -> None:
    silenced = Waived(RULE.finding("a", "is missing"), "")
    selection = Selection(per_file={"b": ("IDX901",)})
    assert [str(entry) for entry in selection.unused((silenced,), [RULE], TODAY)] == ["IDX901 on b"]
