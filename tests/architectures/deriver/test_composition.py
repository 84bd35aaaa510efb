"""Parts of composed models: found by the deriver, put together by the runtime, held against transformers itself.

The skeletons here are no derived ones: each holds the tensors of one real model, so that only the putting together is
under test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from repokit.architectures import composition, nested_configs  # noqa: E402 - needs what may be missing
from repokit.architectures.completion import Completed  # noqa: E402
from repokit.architectures.deriver.composition import autos, completed, flat_paths, references  # noqa: E402
from repokit.architectures.deriver.facts import facts  # noqa: E402
from repokit.architectures.deriver.names import loaded_as  # noqa: E402
from repokit.architectures.deriver.truth import Refused, Truth, truth  # noqa: E402
from repokit.architectures.errors import NotCovered  # noqa: E402
from repokit.architectures.member import Member, parsed  # noqa: E402
from repokit.architectures.names import Names  # noqa: E402

pytestmark = pytest.mark.oracle

SECONDS = 60.0
Shapes = Mapping[str, tuple[int, ...]]


def literal(shapes: Shapes) -> list[Any]:
    """Blocks that hold these tensors under every config."""
    return [["True", [], False, [[name, [str(size) for size in shape]] for name, shape in shapes.items()]]]


def record(held: Truth, **more: Any) -> dict[str, Any]:
    """The record of a class that has these tensors under every config."""
    model_class = type(held.model)
    found = {**facts(model_class, [held.model]), "evidence": "verified", "configs": 20, "blocks": literal(held.disk)}
    if differs(held, found):
        found["memory"] = literal(held.memory)
    return {**found, **more}


def differs(held: Truth, found: Mapping[str, Any]) -> bool:
    """Whether the second form is more than another spelling."""
    names = Names(found.get("names"))
    disk = {names.canonical(name): shape for name, shape in held.disk.items()}
    return disk != {names.canonical(name): shape for name, shape in held.memory.items()}


def a_member(model_type: str, records: Mapping[str, Any], subs: Mapping[str, str] | None = None) -> Member:
    """A member of literal skeletons."""
    config = {"class": "", "defaults": {}, "aliases": [], "derive": {}, "subs": dict(subs or {})}
    document = {"format": 1, "model_type": model_type, "transformers": "", "date": "", "source": "", "config": config}
    return parsed(model_type, {**document, "classes": dict(records)})


class Part:
    """What `composed` asks of the skeleton of a part."""

    def __init__(self, known: Member, architecture: str) -> None:
        self.architecture, self.facts = architecture, known.architecture(architecture)
        self.evidence, self.names = self.facts.evidence, Names(self.facts.other.get("names"))
        self.expanded = composition.expand(self.facts.disk, Completed())
        self.ties = tuple(map(tuple, self.facts.other.get("tied", ())))

    @property
    def memory(self) -> Part | None:
        if self.facts.memory is None:
            return None
        second = copy.copy(self)
        second.expanded = composition.expand(self.facts.memory, Completed())
        return second


def sub_types(config: Any, before: str = "") -> dict[str, str]:
    """Path -> model type of all nested configs."""
    found = {}
    for name, value in config.__dict__.items():
        if isinstance(value, transformers.PreTrainedConfig):
            found[before + name] = value.model_type
            found |= sub_types(value, f"{before}{name}.")
    return found


def with_part(config: Any, path: str, part: Any) -> Any:
    """The config with another one in a place."""
    changed = copy.deepcopy(config)
    *parents, last = path.split(".")
    holder = changed
    for name in parents:
        holder = getattr(holder, name)
    setattr(holder, last, part)
    return changed


def put_together(
    monkeypatch: pytest.MonkeyPatch, whole: Truth, rows: list[dict[str, Any]], changed: Truth, parts: list[Truth]
) -> composition.Composed:
    """The composed class of `whole` under the config of `changed`, whose parts are among `parts`."""
    known = a_member("whole", {"Whole": record(whole, references=rows)}, sub_types(whole.model.config))
    members = {
        part.model.config.model_type: a_member(
            part.model.config.model_type, {type(part.model).__name__: record(part, autos=autos(type(part.model)))}
        )
        for part in parts
    }

    def member(model_type: str) -> Member:
        if model_type not in members:
            raise NotCovered(model_type)
        return members[model_type]

    for module in (composition, nested_configs):
        monkeypatch.setattr(module, "member", member)
    config = composition.flattened(changed.model.config.to_dict(), known.config)
    skeleton = lambda nested, name=None: Part(members[nested["model_type"]], name)  # noqa: E731
    return composition.composed(known, known.architecture("Whole"), config, Completed(), skeleton)


class Case(NamedTuple):
    """A part of another type; its hidden and vocabulary size are those of the default part."""

    name: str
    path: str
    config_class: str
    keys: dict[str, Any]


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CASES = [
    Case("LlavaForConditionalGeneration", "text_config", "MistralConfig", HEADS),
    Case("LlavaForConditionalGeneration", "text_config", "Qwen3MoeConfig", {**HEADS, "num_experts": 4}),
    Case("LlavaForConditionalGeneration", "vision_config", "SiglipVisionConfig", {"num_attention_heads": 4}),
    Case("EncoderDecoderModel", "decoder", "GPT2Config", {"n_layer": 2, "add_cross_attention": True}),
    Case("EncoderDecoderModel", "encoder", "RobertaConfig", {}),
    Case("Blip2ForConditionalGeneration", "text_config", "T5Config", {"num_layers": 2}),
    Case("Blip2ForConditionalGeneration", "text_config", "OPTConfig", {"num_attention_heads": 4}),
    Case("InternVLForConditionalGeneration", "text_config", "LlamaConfig", HEADS),
    Case("GroundingDinoModel", "text_config", "RobertaConfig", {}),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.config_class}")


@pytest.fixture(scope="session")
def built() -> Callable[..., Truth]:
    """Builds a class under a config of few layers."""
    known: dict[str, Truth] = {}

    def build(name: str) -> Truth:
        if name not in known:
            model_class = getattr(transformers, name)
            known[name] = truth(model_class, small(model_class.config_class()), seconds=SECONDS)
        return known[name]

    return build


def small(config: Any) -> Any:
    """The config with two layers in each part."""
    for key in ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers"):
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, 2)
    for value in list(config.__dict__.values()):
        if isinstance(value, transformers.PreTrainedConfig):
            small(value)
    return config


def chosen(auto: str, config: Any) -> Any:
    """The class that an Auto class chooses for a config."""
    return getattr(transformers, auto)._model_mapping.get(type(config), None)


def one_part(
    monkeypatch: pytest.MonkeyPatch, built: Callable[..., Truth], case: Case
) -> tuple[composition.Composed, Truth]:
    """A class with one part of another type: put together, and as transformers has it."""
    whole = built(case.name)
    rows = references(type(whole.model), copy.deepcopy(whole.model.config))
    default = getattr(whole.model.config, case.path)
    config_class = getattr(transformers, case.config_class)
    sizes = {key: getattr(default, key) for key in ("hidden_size", "vocab_size") if hasattr(default, key)}
    config = small(config_class(**sizes, **case.keys))
    changed_config = with_part(whole.model.config, case.path, config)
    if hasattr(changed_config, "use_decoder_only_language_model"):  # a saved config has it right
        changed_config.use_decoder_only_language_model = not config.is_encoder_decoder
    changed = truth(type(whole.model), changed_config, seconds=SECONDS)
    row = next(row for row in rows if row["path"] == case.path)
    part_class = chosen(row["auto"], config) or chosen(row["instead"], config)
    return put_together(monkeypatch, whole, rows, changed, [truth(part_class, config, seconds=SECONDS)]), changed


@each_case
def test_a_part_of_another_type_gives_the_tensors_of_transformers(
    monkeypatch: pytest.MonkeyPatch, built: Callable[..., Truth], case: Case
) -> None:
    result, changed = one_part(monkeypatch, built, case)

    assert result.disk.shapes == changed.disk


def test_the_second_form_has_the_fused_experts_of_a_part(
    monkeypatch: pytest.MonkeyPatch, built: Callable[..., Truth]
) -> None:
    result, changed = one_part(monkeypatch, built, CASES[1])

    assert result.memory is not None
    names = Names(result.facts.other["names"])
    expected = {names.canonical(name): shape for name, shape in changed.memory.items()}
    assert {names.canonical(name): shape for name, shape in result.memory.shapes.items()} == expected


@each_case
def test_the_names_of_a_part_are_spelled_as_its_own_class_has_them(
    monkeypatch: pytest.MonkeyPatch, built: Callable[..., Truth], case: Case
) -> None:
    result, changed = one_part(monkeypatch, built, case)
    names = Names(result.facts.other["names"])

    loaded = loaded_as(changed.model, changed.disk)

    assert {one: names.canonical(one) for one in loaded} == {one: names.canonical(loaded[one]) for one in loaded}


def test_of_a_part_without_data_everything_is_unknown(
    monkeypatch: pytest.MonkeyPatch, built: Callable[..., Truth]
) -> None:
    whole = built("LlavaForConditionalGeneration")
    rows = references(type(whole.model), copy.deepcopy(whole.model.config))
    other = transformers.MistralConfig(hidden_size=4096, num_hidden_layers=2, vocab_size=32000)
    changed = truth(type(whole.model), with_part(whole.model.config, "text_config", other), seconds=SECONDS)

    result = put_together(monkeypatch, whole, rows, changed, [])

    names = Names(result.facts.other["names"])
    there = {names.canonical(name) for name in changed.disk}
    known = {names.canonical(name) for name in result.disk.shapes}
    assert known == {name for name in there if not name.startswith(tuple(result.unknown))}


def test_parts_that_the_files_lay_out_anew_have_no_class(built: Callable[..., Truth]) -> None:
    whole = built("CohereAsrForConditionalGeneration")

    (row,) = references(type(whole.model), copy.deepcopy(whole.model.config))

    assert row["auto"] is None


def test_a_class_without_parts_has_no_references() -> None:
    config = transformers.LlamaConfig(num_hidden_layers=2)

    assert references(transformers.LlamaForCausalLM, config) == []


def test_the_auto_classes_are_left_as_they_were() -> None:
    before = transformers.AutoModel.__dict__["from_config"]

    with pytest.raises(Refused):
        references(transformers.LlavaForConditionalGeneration, transformers.LlamaConfig())

    assert transformers.AutoModel.__dict__["from_config"] is before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LlamaModel", ["AutoModel"]),
        ("T5EncoderModel", ["AutoModelForTextEncoding"]),
        ("ResNetBackbone", ["AutoBackbone"]),
    ],
)
def test_the_auto_classes_that_choose_a_class(name: str, expected: list[str]) -> None:
    assert autos(getattr(transformers, name)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen2_5_VLConfig", ["text_config"]),
        ("Qwen2VLConfig", ["text_config"]),
        ("LlavaConfig", []),
        ("LlamaConfig", []),
    ],
)
def test_nested_configs_that_may_stand_flat(name: str, expected: list[str]) -> None:
    assert flat_paths(getattr(transformers, name)) == expected


def test_a_record_is_completed_by_what_composition_needs() -> None:
    record = {"evidence": "verified", "configs": 20, "blocks": []}
    config = {"class": "LlavaConfig", "subs": {"text_config": "llama", "vision_config": "clip_vision_model"}}

    document = completed({"config": config, "classes": {"LlavaForConditionalGeneration": record}})

    paths = [row["path"] for row in document["classes"]["LlavaForConditionalGeneration"]["references"]]
    assert paths == ["text_config", "vision_config"]
