"""What no load of a quantized model survives, although each type is right."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.schema.quantization_limits import refusals
from repokit.schema.quantization_methods import METHODS

ARGUMENTS = {"num_bits": 8, "type": "int"}


def gptq(**values):
    return {"quant_method": "gptq", "bits": 4, "group_size": 128} | values


def compressed(**arguments):
    group = {"targets": ["Linear"], "weights": ARGUMENTS | arguments}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


REFUSED = [
    (gptq(bits=5), "/bits", "is 5, must be 2, 3, 4 or 8"),
    (gptq(group_size=0), "/group_size", "is 0, must be -1 or greater than 0"),
    (gptq(damp_percent=1.0), "/damp_percent", "is 1.0, must be between 0 and 1, both excluded"),
    (gptq(dataset="ptb"), "/dataset", "is 'ptb', must be a list of texts or 'wikitext2', 'c4' or 'c4-new'"),
    ({"quant_method": "gptq"}, "", "lacks `bits`"),
    (
        {"quant_method": "awq", "version": "marlin"},
        "/version",
        "is 'marlin', must be 'gemm', 'gemv', 'gemv_fast' or 'llm-awq'",
    ),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}, "/bnb_4bit_quant_type", "is 'nf5', must be 'nf4' or 'fp4'"),
    ({"load_in_8bit": True, "llm_int8_threshold": 6}, "/llm_int8_threshold", "is 6, must be a float: 6.0"),
    (
        {"load_in_4bit": True, "load_in_8bit": True},
        "/load_in_8bit",
        "and `load_in_4bit` are both true, and one model is packed in one way",
    ),
    (
        {"quant_method": "fp8", "weight_block_size": [128]},
        "/weight_block_size",
        "is [128], must be two integers greater than 0",
    ),
    (
        {"quant_method": "higgs", "group_size": 128, "hadamard_size": 64},
        "/hadamard_size",
        "is 64, must be a multiple of `group_size`, which is 128",
    ),
    ({"quant_method": "hqq", "quant_config": {}}, "", "lacks `skip_modules`"),
    (
        {"quant_method": "torchao", "quant_type": "int4_weight_only"},
        "/quant_type",
        "is 'int4_weight_only', a string of transformers 4; 5 reads torchao's own config",
    ),
    (
        {"quant_method": "vptq", "config_for_layers": {"q/k": {"is_indice_packed": False}}},
        "/config_for_layers/q~1k/is_indice_packed",
        "is false, must be true",
    ),
    (
        compressed(strategy="group"),
        "/config_groups/group_0/weights/group_size",
        "is null, and `strategy` is 'group': must be greater than 0",
    ),
    (
        compressed(actorder="group"),
        "/config_groups/group_0/weights/actorder",
        "is 'group': the order by group (g_idx) is no longer read",
    ),
    (
        compressed(strategy="block"),
        "/config_groups/group_0/weights/block_structure",
        "is null, and `strategy` is 'block'",
    ),
    (
        compressed(strategy="token"),
        "/config_groups/group_0/weights/dynamic",
        "is not true, and `strategy` is 'token', which needs it",
    ),
    (
        {"quant_method": "compressed-tensors", "kv_cache_scheme": ARGUMENTS},
        "",
        "has no `config_groups`, which may be empty",
    ),
]


@pytest.mark.parametrize(("raw", "place", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_refused(raw, place, message):
    assert [(refusal.pointer, refusal.message) for refusal in refusals(raw)] == [(place, message)]


ACCEPTED = [
    gptq(group_size=-1, dataset=["a text"]),
    gptq(bits="5"),  # a wrong type is another rule's
    gptq(bits=None),
    {"quant_method": "awq", "version": "GEMM", "backend": "autoawq"},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_compute_dtype": "bfloat16"},
    {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "STATIC"},
    {"quant_method": "exl3", "bits": 4.65},
    {"bits": 4, "group_size": 64},
    {"quant_method": "compressed-tensors"},
    compressed(strategy="group", group_size=128),
    compressed(strategy="channel", group_size=-1),
    compressed(strategy="Tensor"),
]


@pytest.mark.parametrize("raw", ACCEPTED)
def test_accepted(raw):
    assert list(refusals(raw)) == []


def test_flag_of_bitsandbytes_is_missing():
    (refusal,) = refusals({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"})
    assert refusal.pointer == "/quant_method"


@pytest.mark.parametrize("name", ["torch.bfloat16", "bf16", ""])
def test_no_name_of_a_dtype(name):
    (refusal,) = refusals({"load_in_4bit": True, "bnb_4bit_compute_dtype": name})
    assert refusal.pointer == "/bnb_4bit_compute_dtype"


def test_nested_object_of_early_files_is_read():
    inner = compressed(actorder="group")
    (refusal,) = refusals({"quant_method": "compressed-tensors", "quantization_config": inner})
    assert refusal.pointer == "/quantization_config/config_groups/group_0/weights/actorder"


def test_reader_is_named():
    (refusal,) = refusals(compressed(actorder="group"))
    assert refusal.reader.startswith("compressed-tensors")


def test_what_a_hostile_file_holds_is_shown_harmlessly():
    (refusal,) = refusals({"quant_method": "quanto", "weights": "\x1b[31m" + "x" * 1000})
    assert "\x1b" not in refusal.message
    assert len(refusal.message) < 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("block"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted({field for model in METHODS.values() for field in model.model_fields} - {"quant_method"})


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), st.sampled_from(sorted(METHODS)))
def test_no_object_breaks_the_check(raw, name):
    raw["quant_method"] = name
    assert all(isinstance(refusal.message, str) for refusal in refusals(raw))


FIELDS = ["num_bits", "type", "strategy", "group_size", "block_structure", "dynamic", "actorder", "zp_dtype"]
CHOICES = VALUES | st.sampled_from(["group", "tensor", "block", "local", "float", "weight"])


@given(st.dictionaries(st.sampled_from(FIELDS), CHOICES))
def test_no_arguments_of_compressed_tensors_break_the_check(arguments):
    assert all(
        refusal.pointer.startswith("/config_groups/group_0/weights")
        for refusal in refusals(compressed() | {"config_groups": {"group_0": {"targets": [], "weights": arguments}}})
    )
