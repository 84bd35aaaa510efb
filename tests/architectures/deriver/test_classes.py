"""Model classes by config class, and the hash of what they are made from."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from repokit.architectures.deriver.classes import config_class, source_hash

pytestmark = pytest.mark.oracle


def test_source_hash_is_sixteen_hexadecimal_digits():
    assert len(bytes.fromhex(source_hash("LlamaConfig"))) == 8


def test_source_hash_differs_between_types():
    assert source_hash("LlamaConfig") != source_hash("BertConfig")


@pytest.mark.full  # imports every model of transformers
def test_an_unknown_config_class_is_refused():
    with pytest.raises(KeyError):
        config_class("NoSuchConfig")


@pytest.mark.full
def test_every_public_model_class_has_its_config_class():
    from repokit.architectures.deriver.classes import model_types

    types = model_types()
    assert types["LlamaConfig"] == (
        "LlamaForCausalLM",
        "LlamaForQuestionAnswering",
        "LlamaForSequenceClassification",
        "LlamaForTokenClassification",
        "LlamaModel",
    )
    assert not [name for names in types.values() for name in names if name.endswith("PreTrainedModel")]
