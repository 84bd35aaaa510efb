"""Models of transformers built with traced configs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import PreTrainedConfig, PreTrainedModel  # noqa: E402 - needs what may be missing

from repokit.architectures.deriver.tracing import LEVELS, Hints, traced  # noqa: E402
from repokit.architectures.deriver.truth import on_disk  # noqa: E402

pytestmark = pytest.mark.oracle

SECONDS = 60.0


def hints(name: str, hidden: dict[str, object] | None = None, **values: Any) -> Hints:
    model_class = getattr(transformers, name)
    config = model_class.config_class(**values)
    on_disk(model_class, config, seconds=SECONDS)  # loads the modules of its parts
    return traced(model_class, config, hidden=hidden, seconds=SECONDS)


SMALL = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 50}


def test_llama_computes_its_projections() -> None:
    found = hints("LlamaForCausalLM", **SMALL, num_key_value_heads=1, head_dim=10)
    assert {"num_attention_heads*head_dim", "num_key_value_heads*head_dim", "vocab_size", "num_hidden_layers"} <= {
        *found.expressions
    }


def test_llama_is_built_with_everything_traced() -> None:
    assert hints("LlamaForCausalLM", **SMALL).level == 0


def test_a_flag_that_only_torch_asks_about_is_a_condition() -> None:
    assert "attention_bias" in hints("LlamaForCausalLM", **SMALL).conditions


def test_a_condition_on_layers_is_said_with_an_index() -> None:
    found = hints("DeepseekV3ForCausalLM", num_hidden_layers=2, n_routed_experts=8)
    assert "i>=first_k_dense_replace" in found.conditions


def test_keys_of_sub_configs_are_dotted() -> None:
    vision = {**SMALL, "image_size": 32, "patch_size": 8}
    found = hints("CLIPModel", text_config=SMALL, vision_config=vision)
    assert {"text_config.hidden_size", "vision_config.hidden_size"} <= {*found.expressions}


def test_doubling_widths_are_a_power_of_the_stage() -> None:
    assert "embed_dim*2**i" in hints("SwinForImageClassification", depths=[1, 1], num_heads=[1, 2]).expressions


def test_overrides_for_one_layer_are_elements_of_a_list() -> None:
    found = hints("Gemma4ForCausalLM", **SMALL, hidden_size_per_layer_input=8, vocab_size_per_layer_input=9)
    assert "num_attention_heads*head_dim__per_layer[i]" in found.expressions


def test_the_number_of_labels_is_a_key() -> None:
    assert "num_labels" in hints("BertForSequenceClassification", **SMALL, num_labels=7).expressions


def test_keys_that_are_read_and_no_more_are_named() -> None:
    assert "max_position_embeddings" in hints("BertModel", **SMALL).read


def test_the_config_is_not_changed() -> None:
    config = transformers.LlamaConfig(**SMALL)
    before = config.to_json_string()
    traced(transformers.LlamaForCausalLM, config, seconds=SECONDS)
    assert (config.to_json_string(), type(config.hidden_size)) == (before, int)


def test_nothing_of_transformers_stays_changed() -> None:
    from transformers.models.llama import modeling_llama

    before = (dict(vars(modeling_llama)), PreTrainedConfig.__getattribute__, PreTrainedConfig.num_labels)
    hints("LlamaForCausalLM", **SMALL)
    assert (dict(vars(modeling_llama)), PreTrainedConfig.__getattribute__, PreTrainedConfig.num_labels) == before


class TwoWidthsConfig(PreTrainedConfig):
    model_type = "two_widths"
    width: int = 6
    deep: bool = True


class Plain(PreTrainedModel):
    config_class = TwoWidthsConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(config.width * 2, config.width)
        self.refuse(config)

    def refuse(self, config: Any) -> None:
        """Takes everything."""


class InsistsOnFlags(Plain):
    def refuse(self, config: Any) -> None:
        if type(config.deep) is not bool:
            raise TypeError(config.deep)


class InsistsOnIntegers(Plain):
    def refuse(self, config: Any) -> None:
        if type(config.width) is not int:
            raise TypeError(config.width)


class ReadsWhatNoClassDeclares(Plain):
    def refuse(self, config: Any) -> None:
        self.more = torch.nn.Linear(getattr(config, "extra", 4) * 3, 2)


class NeverEnds(Plain):
    def refuse(self, config: Any) -> None:
        while config is not None:
            pass


@pytest.mark.parametrize(
    ("model_class", "level"), [(Plain, 0), (InsistsOnFlags, 1), (InsistsOnIntegers, len(LEVELS))]
)  # fmt: skip
def test_a_class_that_refuses_traced_values_gets_fewer(model_class: type[PreTrainedModel], level: int) -> None:
    assert traced(model_class, TwoWidthsConfig(), seconds=SECONDS).level == level


@pytest.mark.parametrize("model_class", [InsistsOnIntegers, NeverEnds])
def test_what_was_seen_before_a_failure_counts(model_class: type[PreTrainedModel]) -> None:
    assert "2*width" in traced(model_class, TwoWidthsConfig(), seconds=0.5).expressions


def test_a_hidden_key_is_traced() -> None:
    found = traced(ReadsWhatNoClassDeclares, TwoWidthsConfig(), hidden={"extra": 4}, seconds=SECONDS)
    assert "3*extra" in found.expressions


def test_a_hidden_key_that_the_config_has_keeps_its_value() -> None:
    config = TwoWidthsConfig(extra=5)
    found = traced(ReadsWhatNoClassDeclares, config, hidden={"extra": None}, seconds=SECONDS)
    assert ("3*extra" in found.expressions, config.extra) == (True, 5)
