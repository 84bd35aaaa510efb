from __future__ import annotations

import pytest

from repokit.verifier.load_report import Keys, LoadReport, Step


def report(*outcomes: str, **keys: tuple) -> LoadReport:
    steps = tuple(Step(name=f"step {number}", outcome=outcome, what="words") for number, outcome in enumerate(outcomes))
    return LoadReport(directory="dist", steps=steps, keys=Keys(**keys))


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["passed"], 0),
        (["passed", "skipped"], 0),
        (["passed", "unchecked"], 2),
        (["passed", "unchecked", "failed"], 1),
        (["skipped"], 2),
        ([], 2),
    ],
)
def test_what_fails_weighs_more_than_what_is_not_known(outcomes, code):
    assert report(*outcomes).exit_code == code


def test_the_failure_is_told_before_what_could_not_be_checked():
    assert report("unchecked", "failed").trouble == "step 1: words"


def test_nothing_is_told_of_what_loads():
    assert report("passed", "skipped").trouble is None


def test_the_keys_are_named():
    assert report("failed", missing=("lm_head.weight",)).trouble == "step 0: words (lm_head.weight)"


LAYERS = tuple(f"model.layers.{number}.mlp.up_proj.weight" for number in range(300))


def test_a_large_set_is_one_line():
    assert list(Keys(missing=LAYERS).lines()) == ["missing     model.layers.*.mlp.up_proj.weight (300)"]


def test_shapes_of_both_sides_are_told():
    (line,) = Keys(mismatched=(("head.weight", (2, 3), (4, 3)),)).lines()
    assert line == "wrong shape head.weight: [2, 3] in the files, [4, 3] here"


def test_many_patterns_are_counted():
    lines = list(Keys(unexpected=tuple(f"{letter}.weight" for letter in "abcdefghij")).lines())
    assert (len(lines), lines[-1]) == (7, "unexpected  and 4 patterns more")


def test_the_prefix_of_a_wrapper_is_seen():
    keys = Keys(missing=LAYERS, unexpected=tuple(f"_orig_mod.{name}" for name in LAYERS))
    assert keys.prefix == "_orig_mod."


def test_one_name_that_ends_like_another_is_no_prefix():
    assert Keys(missing=("weight", "b"), unexpected=("head.weight",)).prefix is None


def test_a_name_that_would_move_the_cursor_is_escaped():
    (line,) = Keys(unexpected=("a\x1b[2J",)).lines()
    assert "\x1b" not in line
