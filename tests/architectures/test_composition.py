"""Composed models: parts of other types, and what of the class's own tensors then stays known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from repokit.architectures import composition, nested_configs
from repokit.architectures.completion import complete
from repokit.architectures.composition import Composed, composed
from repokit.architectures.errors import ConfigUnusable, NotCovered
from repokit.architectures.expansion import Expanded, expand
from repokit.architectures.member import ClassFacts, Evidence, Member, parsed
from repokit.architectures.names import Names
from repokit.architectures.nested_configs import flattened


def a_member(model_type: str, config: Mapping[str, Any], classes: Mapping[str, Any]) -> Member:
    whole = {"class": "", "defaults": {}, "aliases": [], "derive": {}, "subs": {}, **config}
    document = {"format": 1, "model_type": model_type, "transformers": "", "date": "", "source": "", "config": whole}
    return parsed(model_type, {**document, "classes": classes})


def a_class(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"evidence": "verified", "configs": 20, "blocks": list(blocks), **more}


TEXT = {"path": "text", "prefix": "lm.model.", "module": "model.lm.", "auto": "AutoModel"}
CONFIG = {
    "defaults": {"text.width": 8, "text.depth": 2, "text.heads": 4, "wide": False},
    "derive": {"text.inner": {"given": False, "expr": "text.heads*3"}},
    "subs": {"text": "plain"},
}
OWN = a_class(
    ["True", [], False, [["projector.weight", ["text.width", "16"], "l"], ["lm.head.weight", ["text.inner", "1"]]]],
    ["True", ["text.depth"], False, [["lm.model.layers.{i}.weight", ["text.width", "text.width"]]]],
    ["text.heads>8", [], False, [["extra.weight", ["2", "2"]]]],
    names={"renames": [["^lm\\.model", "model.lm"], ["attn", "attention", ["model.lm.", "lm."]]], "base": "model"},
    tied=[["lm.model.copy", "projector.weight"], ["lm.head.weight", "lm.model.embed"]],
)
PARTS = {
    "plain": a_member("plain", {}, {"Plain": a_class(autos=["AutoModel"])}),
    "other": a_member(
        "other",
        {"defaults": {"n_embd": 32, "width": 32, "n": 1}, "aliases": [["width", "n_embd"]]},
        {
            "Other": a_class(
                ["True", ["n"], False, [["h.{i}.w.weight", ["width"], "n"], ["pooler.{i}.w", ["1"]]]],
                autos=["AutoModel", "AutoBackbone"],
                tied=[["h.0.copy", "h.0.w.weight"]],
                names={"renames": [["^old\\.", "h."]]},
                ignore_unexpected=["rubbish"],
            ),
            "OtherForSomething": a_class(autos=["AutoModelForSomething"]),
        },
    ),
    "fused": a_member(
        "fused",
        {},
        {
            "Fused": {
                **a_class(
                    ["True", ["2"], False, [["e.{i}.weight", ["4", "4"]]]], autos=["AutoModel"], evidence="partial"
                ),
                "memory": [["True", [], False, [["e", ["2", "4", "4"]]]]],
            }
        },
    ),
}


class Part:
    """What `composed` asks of a part's skeleton."""

    def __init__(self, nested: Mapping[str, Any], architecture: str) -> None:
        known = PARTS[nested["model_type"]]
        self.architecture, self.facts = architecture, known.architecture(architecture)
        self.evidence, self.names = self.facts.evidence, Names(self.facts.other.get("names"))
        self.environment = complete(known.config, nested)
        self.expanded = expand(self.facts.disk, self.environment)
        self.ties = tuple(map(tuple, self.facts.other.get("tied", ())))

    @property
    def memory(self) -> Second | None:
        return None if self.facts.memory is None else Second(self.facts, self.environment)


class Second:
    def __init__(self, facts: ClassFacts, environment: Any) -> None:
        assert facts.memory is not None
        self.expanded: Expanded = expand(facts.memory, environment)


@pytest.fixture(autouse=True)
def members(monkeypatch: pytest.MonkeyPatch) -> None:
    def member(model_type: str) -> Member:
        if model_type not in PARTS:
            raise NotCovered(model_type)
        return PARTS[model_type]

    for module in (composition, nested_configs):
        monkeypatch.setattr(module, "member", member)


def of(text: Any, **reference: Any) -> Composed:
    """The composed class under a config with this part; `reference`: what differs from TEXT."""
    known = a_member("whole", CONFIG, {"Whole": {**OWN, "references": [{**TEXT, **reference}]}})
    config = flattened({"model_type": "whole", "text": text}, known.config)
    return composed(known, known.architecture("Whole"), config, complete(known.config, config), Part)  # type: ignore[arg-type]


def test_a_part_of_the_derived_type_is_left_to_the_class() -> None:
    result = of({"model_type": "plain", "width": 8})

    assert result.disk.shapes == {
        "projector.weight": (8, 16),
        "lm.head.weight": (12, 1),
        "lm.model.layers.0.weight": (8, 8),
        "lm.model.layers.1.weight": (8, 8),
    }


def test_a_part_without_a_type_is_of_the_derived_one() -> None:
    assert "lm.model.layers.1.weight" in of({"width": 8}).disk.shapes


def test_a_part_of_another_type_takes_the_place_of_the_derived_one() -> None:
    shapes = of({"model_type": "other", "heads": 4}).disk.shapes

    assert {name for name in shapes if name.startswith("lm.model.")} == {"lm.model.h.0.w.weight", "lm.model.pooler.0.w"}


def test_its_templates_keep_their_kind() -> None:
    template = of({"model_type": "other"}).disk.templates["lm.model.h.0.w.weight"]

    assert (template.name, template.kind.value) == ("lm.model.h.{i}.w.weight", "n")


def test_an_absent_key_means_what_it_means_for_the_part_s_own_type() -> None:
    assert of({"model_type": "other"}).disk.shapes["projector.weight"] == (32, 16)


def test_a_key_in_the_spelling_of_the_part_s_own_type_counts() -> None:
    assert of({"model_type": "other", "n_embd": 64}).disk.shapes["projector.weight"] == (64, 16)


def test_a_size_that_follows_from_a_key_the_part_has_not_is_unknown() -> None:
    assert of({"model_type": "other"}).disk.shapes["lm.head.weight"] == (None, 1)


def test_a_condition_on_a_key_that_the_part_has_not_is_unknown() -> None:
    result = of({"model_type": "other"})

    assert [loose.template.name for loose in result.disk.loose] == ["extra.weight"]


def test_where_something_became_unknown_the_whole_is_partial() -> None:
    assert of({"model_type": "other"}).evidence is Evidence.PARTIAL


def test_where_all_is_known_the_whole_is_verified() -> None:
    assert of({"model_type": "other", "heads": 4}).evidence is Evidence.VERIFIED


def test_a_partial_part_makes_the_whole_partial() -> None:
    assert of({"model_type": "fused", "width": 8, "heads": 4}).evidence is Evidence.PARTIAL


def test_a_backbone_of_another_type_makes_the_whole_partial() -> None:
    assert of({"model_type": "other", "heads": 4}, auto="AutoBackbone").evidence is Evidence.PARTIAL


def test_modules_that_the_whole_does_not_build_are_left_out() -> None:
    shapes = of({"model_type": "other"}, without=["pooler."]).disk.shapes

    assert {name for name in shapes if name.startswith("lm.model.")} == {"lm.model.h.0.w.weight"}


def test_names_may_be_left_out_by_their_end() -> None:
    shapes = of({"model_type": "other"}, without=[".weight"]).disk.shapes

    assert {name for name in shapes if name.startswith("lm.model.")} == {"lm.model.pooler.0.w"}


def test_another_auto_class_chooses_where_the_first_has_nothing() -> None:
    result = of({"model_type": "other"}, auto="AutoModelForNothing", instead="AutoModelForSomething")

    assert result.replaced == {"text": "OtherForSomething"}


def test_of_a_part_that_no_data_is_about_everything_is_unknown() -> None:
    result = of({"model_type": "timm"})

    names = Names(result.facts.other["names"])
    assert names.canonical("lm.model.blocks.0.weight").startswith(tuple(result.unknown))


def test_what_is_not_of_that_part_stays_known() -> None:
    result = of({"model_type": "timm", "width": 8})

    assert result.disk.shapes == {"projector.weight": (8, 16), "lm.head.weight": (None, 1)}


def test_a_part_whose_files_are_laid_out_anew_is_unknown() -> None:
    assert of({"model_type": "other"}, auto=None).unknown == ["lm."]


def test_the_second_form_of_a_part_makes_one_of_the_whole() -> None:
    result = of({"model_type": "fused", "width": 8, "heads": 4})

    assert result.memory is not None
    assert result.memory.shapes == {"projector.weight": (8, 16), "lm.head.weight": (12, 1), "model.lm.e": (2, 4, 4)}


def test_without_fused_parts_there_is_no_second_form() -> None:
    assert of({"model_type": "other"}).memory is None


def test_the_spellings_of_a_part_come_with_it() -> None:
    names = Names(of({"model_type": "other"}).facts.other["names"])

    assert names.canonical("lm.model.old.0.w") == names.canonical("model.lm.h.0.w")


def test_the_spellings_of_the_derived_part_go_with_it() -> None:
    names = Names(of({"model_type": "other"}).facts.other["names"])

    assert names.canonical("lm.model.attn") != names.canonical("lm.model.attention")


def test_the_ties_of_a_part_take_the_place_of_the_derived_one_s() -> None:
    tied = of({"model_type": "other"}).facts.other["tied"]

    assert tied == [["lm.head.weight", "lm.model.embed"], ["lm.model.h.0.copy", "lm.model.h.0.w.weight"]]


def test_what_a_part_ignores_the_whole_ignores() -> None:
    assert of({"model_type": "other"}).facts.other["ignore_unexpected"] == ["rubbish"]


def test_models_nested_without_end_are_refused() -> None:
    text: dict[str, Any] = {"model_type": "other"}
    for _ in range(60):
        text = {"model_type": "other", "text": text}

    with pytest.raises(ConfigUnusable, match="nested"):
        of(text)


def test_objects_that_are_no_models_may_nest() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"deep": deep}

    assert of({"model_type": "plain", "rope": deep}).disk.shapes


@pytest.mark.parametrize("text", [None, 7, "other", ["other"]])
def test_a_part_that_is_no_object_is_of_no_other_type(text: Any) -> None:
    assert of(text).replaced == {}
