"""Which numbers in a name are an index."""

from __future__ import annotations

from repokit.architectures.deriver.templates import prefixes, templates


def layers(count: int, tail: str = "weight") -> dict[str, tuple[int, ...]]:
    return {f"layers.{number}.{tail}": (8,) for number in range(count)}


def test_a_number_whose_range_varies_is_an_index() -> None:
    assert list(templates([layers(2), layers(3)])) == ["layers.{i}.weight"]


def test_the_places_of_a_sequential_stay() -> None:
    held = {"mlp.0.weight": (8, 8), "mlp.2.weight": (8, 8)}
    assert set(templates([held, held])) == set(held)


def test_many_constant_numbers_are_an_index() -> None:
    assert list(templates([layers(8), layers(8)])) == ["layers.{i}.weight"]


def test_experts_in_layers_are_two_indices() -> None:
    def model(layers: int, experts: int) -> dict[str, tuple[int, ...]]:
        return {f"l.{i}.experts.{j}.up": (4,) for i in range(layers) for j in range(experts)}

    found = templates([model(2, 2), model(3, 4)])
    assert list(found) == ["l.{i}.experts.{j}.up"]
    assert found["l.{i}.experts.{j}.up"][1, (2, 3)] == (4,)


def test_a_refused_config_has_no_points() -> None:
    assert {sample for sample, _ in templates([layers(2), None, layers(3)])["layers.{i}.weight"]} == {0, 2}


def test_prefixes_end_with_their_index() -> None:
    assert prefixes("l.{i}.experts.{j}.up") == ["l.{i}", "l.{i}.experts.{j}"]
