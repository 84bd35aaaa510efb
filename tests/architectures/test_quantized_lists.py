"""Lists of modules, each against the code of the program that reads it; and expressions that anyone may have written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies

from repokit.architectures.quantized_expressions import Clock, TooSlow, compiled, looks_at_numbers
from repokit.architectures.quantized_lists import Overrides, PartList, SkipList, Targets, WildcardList

NAMES = [
    "lm_head",
    "model.embed_tokens",
    "model.layers.1.mlp.gate",
    "model.layers.1.mlp.gate_proj",
    "model.layers.11.mlp.experts.3.up_proj",
    "model.visual.blocks.0.attn.qkv",
    "visual.merger.mlp.0",
]
PIECES = strategies.sampled_from(
    ["model", "layers", ".", "1", "11", "mlp", "gate", "_proj", "visual", "*", ".*", "lm_head", "\\.", "|", "$", "^"]
)
ENTRIES = strategies.lists(strategies.lists(PIECES, max_size=6).map("".join), max_size=4)


def should_convert_module(name, patterns):
    """transformers 5.24 quantizers/quantizers_utils.py."""
    boundary = r"(?:(?<=\.)|(?=\.|$))"
    return not any(re.match(rf"(?:{key}){boundary}", name) or name.endswith(key) for key in patterns)


def is_expression(entry):
    try:
        re.compile(entry)
    except re.error:
        return False
    return True


@given(ENTRIES.filter(lambda entries: all(map(is_expression, entries))), strategies.sampled_from(NAMES))
def test_a_skip_list_is_read_as_transformers_reads_it(entries, name):
    said = SkipList(entries, Clock()).covers(name)
    assert said is None or said is not should_convert_module(name, entries)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("lm_head", "lm_head"),
        ("gate", "model.layers.1.mlp.gate"),
        ("head", "lm_head"),  # the end of a word is enough
        ("model.layers.1", "model.layers.1.mlp.gate"),
        ("model.layers.*.mlp", "model.layers.11.mlp.experts.3.up_proj"),
        ("model.visual.", "model.visual.blocks.0.attn.qkv"),
    ],
)
def test_a_skip_list_covers(entry, name):
    assert SkipList([entry], Clock()).covers(name) is True


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("model.layers.1", "model.layers.11.mlp.experts.3.up_proj"),
        ("mlp.gate", "model.layers.1.mlp.gate_proj"),
        ("visual", "model.visual.blocks.0.attn.qkv"),
    ],
)
def test_a_skip_list_does_not_cover(entry, name):
    assert SkipList([entry], Clock()).covers(name) is False


def test_a_long_list_is_read_as_a_short_one():
    entries = [f"model.layers.{number}.mlp" for number in range(100, 900)]
    listed = SkipList([*entries, "gate"], Clock())
    assert [listed.covers(name) for name in ("a.gate", "model.layers.899.mlp.up_proj", "a.up_proj")] == [
        True,
        True,
        False,
    ]


def test_awq_looks_for_parts_inside_a_layer():
    assert PartList(["gate"], Clock()).covers("model.layers.1.mlp.gate_proj")


def test_awq_does_not_look_at_the_path_of_the_layers():
    assert not PartList(["model"], Clock()).covers("model.layers.1.mlp.gate_proj")


def test_wildcards_cover_whole_names():
    listed = WildcardList(["model.layers.1.mlp*"], Clock())
    assert [listed.covers(name) for name in NAMES[2:5]] == [True, True, False]


def test_targets_are_tried_from_the_most_special_on():
    targets = Targets(["Linear", "re:.*gate", "model.layers.1.mlp.gate"], Clock())
    found = list(targets.fitting("model.layers.1.mlp.gate", frozenset({"Linear"})))
    assert found == ["model.layers.1.mlp.gate", "re:.*gate", "Linear"]


def test_the_first_override_counts():
    overrides = Overrides({"-:.*gate$": {}, ".*gate.*": {"bits": 8}}, Clock())
    assert overrides.find("model.layers.1.mlp.gate") == (False, {})
    assert overrides.find("model.layers.1.mlp.gate_proj") == (True, {"bits": 8})


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    "pattern",
    [
        r".*lm_head",
        r".*mlp\.gate$",
        r"^model\.layers\.(0|1|2)\..*",
        r".*layers\.\d+\.mlp\.experts\.\d+\.(up|down)_proj",
        r"(?!.*visual).*proj",
        r"(?i)LM_HEAD",
        r"model\.layers\.[0-9]{1,2}\.self_attn.*",
    ],
)
def test_expressions_of_real_lists_are_run(pattern):
    assert compiled(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a|aa)*b",
        r"(?:.*a){20}",
        r"(a{1,9}){2,}",
        r"(.)\1",
        r"(?P<x>a)(?P=x)",
        r".*.*.*.*.*x",
        "a?" * 40 + "a" * 40,
        r"a{1,100000}",
        "a" * 5000,
        "(",
        "[",
        "*",
        r"(?P<1>a)",
    ],
)
def test_expressions_that_may_take_for_ever_are_not_run(pattern):
    assert compiled(pattern) is None


@given(strategies.text(alphabet="ab.*+?(){}[]|\\^$!<=:1,", max_size=30))
def test_no_text_is_an_exception(pattern):
    found = compiled(pattern)
    assert found is None or found.match("model.layers.1.mlp.gate_proj" * 3) is None or True


def test_the_time_of_all_expressions_together_is_limited():
    with pytest.raises(TooSlow):
        Clock(0.0).match(re.compile("a"), "a")


@pytest.mark.parametrize("pattern", [r".*layers\.1\.", r".*\d", r".*[ab]x", r"layers...mlp", r".*\..\.mlp"])
def test_expressions_that_may_look_at_numbers(pattern):
    assert looks_at_numbers(pattern)


@pytest.mark.parametrize("pattern", [r".*lm_head", r".*mlp.gate$", r".*self_attn.*", r".*(q|k)_proj"])
def test_expressions_that_do_not_look_at_numbers(pattern):
    assert not looks_at_numbers(pattern)
