"""From blocks to every tensor; what a config cannot mean is said, with the key and its value."""

from __future__ import annotations

from typing import Any

import pytest

from repokit.architectures.completion import Completed
from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.expansion import expand
from repokit.architectures.member import Kind, blocks

LAYERS = [["True", ["layers"], False, [["layers.{i}.up.weight", ["width", "4*width"]]]]]
EXPERTS = [["i>=dense", ["layers", "experts"], True, [["layers.{i}.experts.{j}.up", ["width"]]]]]


def expanded(document: list[Any], **config: Any) -> dict[str, tuple[int | None, ...]]:
    return expand(blocks(document), Completed(config)).shapes


def test_every_layer_has_its_tensor() -> None:
    assert expanded(LAYERS, layers=2, width=8) == {"layers.0.up.weight": (8, 32), "layers.1.up.weight": (8, 32)}


def test_experts_are_there_in_the_layers_that_the_condition_names() -> None:
    assert list(expanded(EXPERTS, layers=2, experts=2, dense=1, width=8)) == [
        "layers.1.experts.0.up",
        "layers.1.experts.1.up",
    ]


def test_a_shape_may_depend_on_the_layer() -> None:
    document = [["True", ["layers"], False, [["l.{i}", ["widths[i]"]]]]]
    assert expanded(document, layers=2, widths=(4, 8)) == {"l.0": (4,), "l.1": (8,)}


def test_an_unknown_dimension_is_none() -> None:
    assert expanded([["True", [], False, [["a", ["width", None]]]]], width=8) == {"a": (8, None)}


@pytest.mark.parametrize("block", [[None, ["layers"], False], ["True", [None], False]])
def test_an_unknown_condition_or_range_is_loose(block: list[Any]) -> None:
    loose = expand(blocks([[*block, [["layers.{i}.bias", ["width"]]]]]), Completed(layers=2, width=8)).loose
    assert [one.shape for one in loose if one.pattern.fullmatch("layers.7.bias")] == [(8,)]


def test_kinds_come_from_the_letter() -> None:
    templates = expand(
        blocks([["True", [], False, [["a", ["1"], "B"], ["b.weight", ["1", "1"]]]]]), Completed()
    ).templates
    assert (templates["a"].kind, templates["a"].integer, templates["b.weight"].kind) == (Kind.BUFFER, True, Kind.LINEAR)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"layers": -1, "width": 8}, "layers"),
        ({"layers": "32", "width": 8}, "layers"),
        ({"layers": 2.5, "width": 8}, "layers"),
        ({"layers": 10**12, "width": 8}, "layers"),
        ({"layers": 2, "width": -8}, "width"),
        ({"layers": 2, "width": "8" * 9}, "width"),
        ({"layers": 2, "width": None}, "width"),
        ({"layers": 2, "width": (8, 8)}, "width"),
    ],
)
def test_what_no_model_has_is_refused_by_its_key(config: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigUnusable) as refused:
        expanded(LAYERS, **config)
    assert refused.value.key == key


def test_a_difference_below_nothing_is_nothing() -> None:
    assert expanded([["True", ["layers-2"], False, [["l.{i}", ["1"]]]]], layers=1) == {}


def test_layers_times_experts_without_end_are_refused() -> None:
    with pytest.raises(ConfigUnusable):
        expanded(EXPERTS, layers=100_000, experts=100_000, dense=0, width=1)


def test_a_layer_count_without_tensors_ends_too() -> None:
    with pytest.raises(ConfigUnusable):
        expanded([["i<0", ["layers", "layers"], False, [["l.{i}.{j}", ["1"]]]]], layers=1_000_000)
