"""GGUF files that the `gguf` package wrote are assembled, and its reader reads what was assembled: the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

gguf = pytest.importorskip("gguf")
numpy = pytest.importorskip("numpy")

from repokit import api  # noqa: E402 - after the packages that may be missing
from repokit.formats.ggml_types import FILE_TYPES  # noqa: E402
from repokit.schema.recipe import Recipe  # noqa: E402

TOKENS = [f"t{number}" for number in range(60)] + ["<s>", "</s>", "x", "y"]
SHAPES = {
    "token_embd.weight": (64, 256),
    "output_norm.weight": (256,),
    "output.weight": (64, 256),
    "blk.0.attn_norm.weight": (256,),
    "blk.0.attn_q.weight": (256, 256),
    "blk.0.attn_k.weight": (256, 256),
    "blk.0.attn_v.weight": (256, 256),
    "blk.0.attn_output.weight": (256, 256),
    "blk.0.ffn_norm.weight": (256,),
    "blk.0.ffn_gate.weight": (512, 256),
    "blk.0.ffn_up.weight": (512, 256),
    "blk.0.ffn_down.weight": (256, 512),
}
# File: type of its matrices, number of the mixture, tensors of a part.
FILES: dict[str, tuple[str, int, int]] = {
    "tiny-F32": ("F32", 0, 3),
    "tiny-F16": ("F16", 1, 5),
    "tiny-BF16": ("BF16", 32, 0),
    "tiny-Q8_0": ("Q8_0", 7, 0),
    "tiny-Q5_1": ("Q5_1", 9, 0),
    "tiny-Q4_0": ("Q4_0", 2, 4),
    "tiny-TQ1_0": ("TQ1_0", 36, 0),
}


def write(path: Path, kind: str, file_type: int, part: int) -> None:
    """A llama of one block by gguf's own writer, in one file or in parts."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=part)
    writer.add_type("model")
    writer.add_name("tiny")
    writer.add_license("apache-2.0")
    writer.add_file_type(file_type)
    writer.add_quantization_version(2)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * 60 + [3, 3, 1, 1])
    writer.add_token_merges(["t 0", "t 1"])
    writer.add_bos_token_id(60)
    writer.add_eos_token_id(61)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}</s>{% endfor %}")
    dice = numpy.random.default_rng(0)
    wanted = gguf.GGMLQuantizationType[kind]
    for name, shape in SHAPES.items():
        values = dice.standard_normal(shape).astype(numpy.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf") / "tiny"
    folder.mkdir()
    for name, (kind, file_type, part) in FILES.items():
        write(folder / f"{name}.gguf", kind, file_type, part)
    return folder


@pytest.fixture(scope="module")
def output(source):
    recipe = Recipe.model_validate(
        {
            "version": 1,
            "repo": "me/tiny-GGUF",
            "source": str(source),
            "output": str(source.parent / "out"),
            "base": {"id": "example/tiny"},
            "license": {"id": "apache-2.0"},
        }
    )
    gate = api.Gate(api.Selection())
    built = api.build(api.plan(recipe), gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING), gate.last.report.findings
    return built.output


def parts(folder: Path, name: str) -> list[Path]:
    return sorted({*folder.glob(f"{name}.gguf"), *folder.glob(f"{name}-*.gguf")})


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and tensors, as gguf's own reader gives them."""
    reader = gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in reader.fields.items()}
    return values, {tensor.name: (tensor.tensor_type, tensor.data.tobytes()) for tensor in reader.tensors}


@pytest.mark.parametrize("name", FILES)
def test_what_was_assembled_reads_as_what_was_written(source, output, name):
    files = parts(source, name)
    assert [path.name for path in files] == [path.name for path in parts(output, name)]
    assert [read(output / path.name) for path in files] == [read(path) for path in files]


@pytest.mark.parametrize("name", FILES)
def test_the_parts_of_a_set_hold_every_tensor_once(output, name):
    found = [tensor for path in parts(output, name) for tensor in read(path)[1]]
    assert sorted(found) == sorted(SHAPES)


def test_the_manifest_has_the_hash_of_every_file(source, output):
    files = json.loads((output / "repokit-manifest.json").read_bytes())["files"]
    listed = {file["path"]: file["sha256"] for file in files if file["path"].endswith(".gguf")}
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in source.glob("*.gguf")}


@pytest.mark.parametrize("name", FILES)
def test_bits_per_weight_in_the_card_are_those_of_the_reader(source, output, name):
    tensors = [tensor for path in parts(source, name) for tensor in gguf.GGUFReader(path).tensors]
    bits = sum(int(tensor.n_bytes) for tensor in tensors) * 8 / sum(int(tensor.n_elements) for tensor in tensors)
    row = next(
        line for line in (output / "README.md").read_text().splitlines() if f"`{parts(source, name)[0].name}`" in line
    )
    assert f" {bits:.2f} | {FILES[name][0]} |" in row


def test_file_types_have_the_names_that_gguf_has():
    theirs = {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType}
    assert {number: name for number, name in theirs.items() if name != "GUESSED"} == FILE_TYPES
