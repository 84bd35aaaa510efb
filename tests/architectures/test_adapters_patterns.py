"""Expressions of strangers: the same answer as `re.fullmatch`, in bounded time, or none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from repokit.architectures.adapters_patterns import Pattern, Undecided

PATHS = (
    "",
    "q_proj",
    "model.layers.0.self_attn.q_proj",
    "model.layers.11.mlp.experts.3.down_proj",
    "model.visual.blocks.0.attn.qkv",
    "model.visual.patch_embed.proj",
    "lm_head",
)
# As they are published: PEFT's own for Gemma 4, unsloth's, those of training scripts for vision models.
PUBLISHED = (
    r".*language_model\..*\.(q_proj|v_proj)",
    r"(?:.*?(?:visual|image|patch).*?(?:attn|mlp|proj).*?(?:qkv|proj|fc1).*?)"
    r"|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|k_proj|down_proj)))",
    r"^(?!.*patch_embed).*(?:qkv|proj|lm_head)$",
    r"^model\.layers\.(0|1|2|11)\..*_proj",
    r"model\.layers\.([0-9]|1[0-5])\.self_attn\.[qkvo]_proj",
    r"(?!lm_head)\w+",
    r".+\.experts\.\d+\.(?:up|down)_proj$",
    r"[^.]+",
    r"(?P<name>q|v)_proj|lm_head",
    "",
)


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_expressions_choose_what_python_chooses(text: str) -> None:
    pattern = Pattern(text)
    assert [pattern.matches(path) for path in PATHS] == [re.fullmatch(text, path) is not None for path in PATHS]


ATOMS = st.sampled_from(
    ["a", "b", ".", r"\.", r"\d", r"\w", r"\W", "[ab]", "[^a]", "[a-c]", r"[\d_]", r"\b", r"\B", "^", "$"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"(?={part})"),
        inner.map(lambda part: f"(?!{part})"),
    ),
    max_leaves=5,
)


@given(EXPRESSIONS, st.text(alphabet="ab.c1_", min_size=1, max_size=7))
def test_answers_are_those_of_python(text: str, path: str) -> None:
    assert Pattern(text).matches(path) == (re.fullmatch(text, path) is not None)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*b", "(.*)*x", "(?:(?:a?){20}){20}", ".*.*.*.*.*.*.*.*.*b"])
def test_expressions_without_end_end(text: str) -> None:
    assert not Pattern(text).matches("a" * 40 + "!")


@pytest.mark.parametrize(
    "text", ["(", r"(a)\1", "(?<=a)b", "(?i)a", "(?>a)b", "a" * 10_000, "((a{900}){900}){900}", "(" * 500 + ")" * 500]
)
def test_what_is_not_worked_out_is_not_guessed(text: str) -> None:
    with pytest.raises(Undecided):
        Pattern(text).matches("a")
