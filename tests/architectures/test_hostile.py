"""Whatever a stranger writes into config.json: tensors, or an error that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from repokit.architectures import ConfigUnusable, NotCovered, member as members, skeleton
from repokit.architectures.comparison import compare
from repokit.architectures.expansion import MOST_TENSORS, expand
from repokit.architectures.member import Member, blocks
from repokit.architectures.suggestions import Budget, suggest

TYPES = members.known()

# Between these, counts are merely large, and what they ask for is made: seconds of work, and no end of it in sight.
NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([10**12, -(10**12), 2**63, 2**31 - 1, 10**4000, -(10**4000)]),
    st.floats(allow_nan=True, allow_infinity=True),
)
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["9" * 5000, "%999999999d", "M-M*" * 50, "None", "a.b", "x" * 100_000])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
LISTS = st.one_of(st.lists(SCALARS, max_size=5), st.sampled_from([[0] * 100_001, [[[]]], [{}], [[1, 2], [3]]]))
HOSTILE = st.one_of(SCALARS, LISTS, st.dictionaries(st.text(max_size=4), SCALARS, max_size=3))


def keys_of(known: Member) -> list[str]:
    facts = known.config
    return sorted({*facts.defaults, *facts.derived, *(key for pair in facts.aliases for key in pair), *facts.subs})


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """A config with these values at these dotted keys; where one lies inside another's value, it is left out."""
    config: dict[str, Any] = {}
    for key, value in sorted(values.items()):
        *path, last = key.split(".")
        level: Any = config
        for part in path:
            level = level.setdefault(part, {}) if isinstance(level, dict) else None
        if isinstance(level, dict):
            level[last] = value
    return config


@st.composite
def configs(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    known = members.member(draw(st.sampled_from(TYPES)))
    keys = keys_of(known)
    values = draw(st.dictionaries(st.sampled_from(keys), HOSTILE, max_size=6)) if keys else {}
    beside = draw(
        st.dictionaries(st.sampled_from(["id2label", "per_layer_config", "text_config", "extra"]), HOSTILE, max_size=2)
    )
    config = {**beside, **nested(values), "model_type": known.model_type}
    return config, draw(st.sampled_from(sorted(known.raw)))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(configs())
@example(({"model_type": "llama", "num_hidden_layers": 10**12}, "LlamaForCausalLM"))
@example(({"model_type": "llama", "hidden_size": 10**4000, "head_dim": 10**4000}, "LlamaForCausalLM"))
@example(({"model_type": "llama", "hidden_size": "%999999999d", "head_dim": None}, "LlamaForCausalLM"))
@example(({"model_type": "llama", "num_attention_heads": 0, "head_dim": None}, "LlamaForCausalLM"))
@example(({"model_type": "qwen2_moe", "layer_types": [0] * 100_001}, "Qwen2MoeForCausalLM"))
def test_a_config_gives_tensors_or_says_what_is_wrong(case: tuple[dict[str, Any], str]) -> None:
    config, architecture = case
    try:
        found = skeleton(config, architecture)
    except (NotCovered, ConfigUnusable) as error:
        assert len(str(error)) < 2000  # noqa: PT017 - a list of 100,000 elements is not told in full
        return
    for shape in found.shapes.values():
        assert all(size is None or (isinstance(size, int) and size >= 0) for size in shape)
    held = {"model.norm.weight": (4,), "x": ()}
    difference = compare(found, held)
    suggest(found, config, held, difference, budget=Budget(tensors=2000, tries=4))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(["model_type", "architectures", "auto_map"]), HOSTILE))
def test_a_config_that_names_nothing_known_is_not_covered(config: dict[str, Any]) -> None:
    with pytest.raises(NotCovered):
        skeleton(config)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_hidden_layers": -3}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"intermediate_size": -1}, "intermediate_size"),
        ({"intermediate_size": 1.5}, "intermediate_size"),
    ],
    ids=str,
)
def test_an_unusable_value_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigUnusable) as caught:
        skeleton({"model_type": "llama", **values}, "LlamaForCausalLM")
    assert (caught.value.key, caught.value.place) == (named, f"/{named}")


def test_more_tensors_than_any_model_has_are_refused() -> None:
    with pytest.raises(ConfigUnusable, match=f"more than {MOST_TENSORS:,}"):
        skeleton({"model_type": "llama", "num_hidden_layers": MOST_TENSORS}, "LlamaForCausalLM")


def test_looking_for_tensors_that_are_not_there_ends_too() -> None:
    """A condition that never holds, over so many layers of so many experts."""
    nowhere = blocks([["i + j < 0", ["layers", "experts"], False, [["{i}.{j}.weight", ["1"]]]]])
    with pytest.raises(ConfigUnusable, match="more than"):
        expand(nowhere, {"layers": MOST_TENSORS, "experts": MOST_TENSORS})


def test_nested_models_without_end_are_refused() -> None:
    config: dict[str, Any] = {"model_type": "llava"}
    for _ in range(300):
        config = {"model_type": "llava", "text_config": config, "vision_config": config}
    with pytest.raises((ConfigUnusable, NotCovered)):
        skeleton(config, "LlavaForConditionalGeneration")


def test_an_error_fits_on_a_screen() -> None:
    config = {"model_type": "llama", "hidden_size": "9" * 1_000_000}
    with pytest.raises(ConfigUnusable) as caught:
        skeleton(config, "LlamaForCausalLM")
    assert len(json.dumps(str(caught.value))) < 1000
