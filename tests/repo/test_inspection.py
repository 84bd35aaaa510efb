"""What `inspect` says of repositories whose making is known."""

from __future__ import annotations

import json

import pytest

from repokit.linter.examples import BASES, VOCABULARY, edited, merged, sharded, single
from repokit.linter.examples_torch import called, torch_file
from repokit.repo.inspection import inspect
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository


def look(files, tensors=None):
    with Repository(Memory(files)) as repository:
        return inspect(repository, tensors)


def with_json(files, path, **change):
    return {**files, path: json.dumps(merged(json.loads(files.get(path, b"{}")), change)).encode()}


KINDS = {
    "single": "model",
    "sharded": "model",
    "tied": "model",
    "lora": "LoRA adapter",
    "gptq": "quantized model",
    "awq": "quantized model",
    "fp8": "quantized model",
    "bnb4": "quantized model",
    "gguf": "GGUF model",
}


@pytest.mark.parametrize(("base", "kind"), KINDS.items())
def test_the_kind(base, kind):
    assert look(BASES[base]()).kind == kind


@pytest.mark.parametrize("base", BASES)
def test_of_a_whole_repository_nothing_is_unread(base):
    assert look(BASES[base]()).unread == {}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"model_index.json": b"{}"}, "diffusers pipeline"),
        ({"modules.json": b"[]"}, "sentence-transformers model"),
        ({"config.json": b"{}"}, "model without weights"),
        ({"model.safetensors": single()["model.safetensors"]}, "weights without a config"),
        ({"README.md": b""}, "no model"),
        ({"adapter_config.json": b"{}"}, "adapter"),
    ],
)
def test_the_kind_of_less(files, kind):
    assert look(files).kind == kind


def test_the_weights_in_numbers():
    weights = look(sharded()).weights
    rows = look(sharded(), "*").tensors
    assert (weights.format, len(weights.files), weights.tensors) == ("safetensors", 3, len(rows))
    assert (weights.size, weights.dtypes) == (sum(row.size for row in rows), {"BF16": weights.size})
    assert (weights.elements, weights.packed) == (weights.size // 2, False)


def test_packed_weights_are_no_parameters():
    assert look(BASES["gptq"]()).weights.packed


def test_several_dtypes_come_by_size():
    files = {
        **single(),
        "model.safetensors": edited(add={"x": ("F32", (2, 2)), "y": ("U8", (3,))})(single()["model.safetensors"]),
    }
    assert list(look(files).weights.dtypes) == ["BF16", "F32", "U8"]


def test_pickled_weights_are_counted_and_never_loaded():
    files = {"config.json": b"{}", "pytorch_model.bin": torch_file({"a.weight": ("F32", (2, 3)), "b": ("F16", (4,))})}
    weights = look(files).weights
    assert (weights.format, weights.tensors, weights.elements, weights.dtypes) == (
        "pickle",
        2,
        10,
        {"F32": 24, "F16": 8},
    )


def test_pickled_weights_that_cannot_be_read_have_a_size():
    weights = look(
        {"config.json": b"{}", "pytorch_model.bin": b"PK\x03\x04" + bytes(96), "optimizer.pt": bytes(5)}
    ).weights
    assert (weights.format, weights.files, weights.size, weights.elements) == (
        "pickle",
        ("pytorch_model.bin",),
        100,
        None,
    )


@pytest.mark.parametrize(("base", "tied"), [("single", False), ("tied", True), ("lora", None)])
def test_tied_or_not(base, tied):
    assert look(BASES[base]()).tied is tied


def test_the_vocabulary_against_the_rows():
    vocabulary = look(single()).vocabulary
    assert (vocabulary.path, vocabulary.tokens, vocabulary.largest_id) == (
        "tokenizer.json",
        len(VOCABULARY),
        len(VOCABULARY) - 1,
    )
    assert (vocabulary.rows, vocabulary.special["eos_token"], vocabulary.ids["eos_token"]) == (32, "<|im_end|>", 4)


def test_rows_are_config_jsons_where_the_weights_are_broken():
    files = {**single(), "model.safetensors": b"broken"}
    assert (look(files).vocabulary.rows, "weights" in look(files).unread) == (None, True)


def test_a_vocabulary_that_is_not_read_is_named():
    vocabulary = look({"config.json": b"{}", "tekken.json": b"{}"}).vocabulary
    assert (vocabulary.path, vocabulary.tokens, vocabulary.largest_id) == ("tekken.json", None, None)


def test_the_template_and_what_it_writes():
    (template,) = look(single()).templates
    assert (template.path, template.markers) == ("chat_template.jinja", ("<|im_start|>", "<|im_end|>"))


def test_markers_without_a_tokenizer():
    files = {"config.json": b"{}", "chat_template.jinja": b"{{ '<|b|>' }}[INST]{{ '<|a|>' }}"}
    assert look(files).templates[0].markers == ("<|b|>", "[INST]", "<|a|>")


def test_where_a_generation_stops():
    files = with_json(single(), "generation_config.json", eos_token_id=[4, 2])
    assert look(files).stops == (4, 2)
    without = {path: content for path, content in files.items() if path != "generation_config.json"}
    assert look(without).stops == (4,)


def test_the_adapter_and_its_base():
    files = with_json(BASES["lora"](), "adapter_config.json", r=8, lora_alpha=16, target_modules=["q_proj"])
    (adapter,) = look(files).adapters
    assert (adapter.method, adapter.base) == (
        "LORA",
        json.loads(files["adapter_config.json"])["base_model_name_or_path"],
    )
    assert {key: adapter.settings[key] for key in ("r", "lora_alpha", "target_modules")} == {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["q_proj"],
    }


def test_the_quantization_method_comes_first():
    files = with_json(
        single(), "config.json", quantization_config={"bits": 4, "quant_method": "gptq", "long": "x" * 90}
    )
    assert list(look(files).quantization.items()) == [("quant_method", "gptq"), ("bits", 4)]


def test_the_card():
    found = look(single())
    assert (found.licenses, found.base_models, found.library, found.has_card) == (
        ("apache-2.0",),
        ("example/base",),
        "transformers",
        True,
    )


def test_what_a_training_run_left():
    files = {
        **single(),
        "optimizer.pt": bytes(5),
        "checkpoint-3/config.json": b"{}",
        "checkpoint-3/rng_state.pth": b"x",
    }
    assert look(files).leftovers == {"checkpoint-3/": 3, "optimizer.pt": 5}


def test_code_and_processors():
    files = {
        **single(),
        "modeling_x.py": b"",
        "preprocessor_config.json": b'{"image_processor_type": "XImageProcessor"}',
    }
    found = look(files)
    assert (found.code, found.processors) == (
        ("modeling_x.py",),
        {"preprocessor_config.json": ("XImageProcessor",)},
    )


@pytest.mark.parametrize(
    ("path", "unread"),
    [
        ("config.json", {"architectures", "quantization", "tied"}),
        ("README.md", {"licenses"}),
        ("tokenizer.json", {"vocabulary"}),
        ("model.safetensors", {"weights", "tied"}),
        ("chat_template.jinja", {"templates"}),
    ],
)
def test_what_does_not_parse_is_said_where_it_belongs(path, unread):
    found = look({**single(), path: b"\xff\xfe{"})
    assert unread <= found.unread.keys()
    assert all(path in reason for reason in found.unread.values())


@pytest.mark.parametrize(
    ("pattern", "number"),
    [
        ("*", 23),
        ("*.q_proj.weight", 2),
        ("layers.0.self_attn.*", 4),
        ("model.norm.weight", 1),
        ("lm_head", 0),
        ("norm", 0),
    ],
)
def test_tensors_by_pattern(pattern, number):
    names = [row.name for row in look(single(), pattern).tensors]
    assert len(names) == (len(look(single(), "*").tensors) if pattern == "*" else number)


def test_a_row_of_the_table():
    (row,) = look(sharded(), "lm_head.weight").tensors
    assert (row.dtype, row.shape, row.size) == ("BF16", (32, 16), 1024)
    assert row.file in sharded()


def test_tensors_of_gguf_have_rows_first():
    rows = look(BASES["gguf"](), "token_embd.weight").tensors
    assert [row.shape[0] for row in rows] == [look(BASES["gguf"]()).vocabulary.rows]


def test_a_head_in_a_pickle_is_seen():
    tensors = {"model.embed_tokens.weight": ("F32", (4, 2)), "lm_head.weight": ("F32", (4, 2))}
    assert look({"config.json": b"{}", "pytorch_model.bin": torch_file(tensors)}).tied is False


def test_what_a_pickle_names_is_graded():
    extra = called("os", "system", "true") + b"cargparse\nNamespace\n)R0cmylib\nSettings\n)R0"
    files = {"config.json": b"{}", "pytorch_model.bin": torch_file({"w": ("F32", (2,))}, extra)}
    assert look(files).pickled == {
        "os.system": "executes",
        "mylib.Settings": "unknown",
        "argparse.Namespace": "inert-known",
    }
