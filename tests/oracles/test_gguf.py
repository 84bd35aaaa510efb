"""Our reader of GGUF headers, held against the `gguf` package: what that writes, ours reads the same."""

from __future__ import annotations

import random

import pytest

gguf = pytest.importorskip("gguf")
numpy = pytest.importorskip("numpy")

from repokit.formats.ggml_types import GGML_TYPES  # noqa: E402 - after the packages that may be missing
from repokit.formats.gguf import GgufArray, read_gguf  # noqa: E402
from repokit.linter.examples_gguf import gguf_bytes, metadata, tensors  # noqa: E402


def read(path):
    content = path.read_bytes()
    return read_gguf(lambda offset, length: content[offset : offset + length], len(content), path.name)


def plain(value):
    if not isinstance(value, GgufArray):
        return value
    if value.kind == "string":
        return [item.decode() for item in value.strings]
    kinds = {"i32": "<i4", "f32": "<f4", "u32": "<u4", "bool": "?", "u8": "u1"}
    return numpy.frombuffer(value.raw, kinds[value.kind]).tolist()


def theirs(path):
    reader = gguf.GGUFReader(path)
    values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    infos = [
        (tensor.name, tuple(int(size) for size in tensor.shape), int(tensor.tensor_type), int(tensor.data_offset))
        for tensor in reader.tensors
    ]
    return values, infos


def ours(path):
    header = read(path)
    values = {key: plain(entry.value) for key, entry in header.metadata.items()}
    return values, [(t.name, t.dims, t.kind, header.data_start + t.offset) for t in header.tensors]


def written(path, seed):
    """A file by gguf's own writer, with values and quantised tensors that follow from the seed."""
    dice = random.Random(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"model {seed}")
    writer.add_block_count(dice.randrange(4))
    writer.add_layer_norm_rms_eps(dice.random())
    writer.add_token_list([f"token {number}" for number in range(dice.randrange(1, 40))])
    writer.add_token_types([dice.randrange(1, 6) for _ in range(dice.randrange(1, 40))])
    writer.add_add_bos_token(dice.random() < 0.5)
    writer.add_chat_template("{{ messages }}")
    if dice.random() < 0.5:
        writer.add_custom_alignment(dice.choice((8, 64, 256)))
    for number in range(dice.randrange(1, 8)):
        values = numpy.ones((dice.randrange(1, 5), 32 * dice.randrange(1, 4)), dtype=numpy.float32)
        kind = dice.choice((gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0))
        writer.add_tensor(f"t.{number}", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("seed", range(12))
def test_what_gguf_writes_is_read_the_same(tmp_path, seed):
    path = written(tmp_path / "m.gguf", seed)
    assert ours(path) == theirs(path)


def test_gguf_reads_what_our_examples_write(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata(), tensors()))
    assert ours(path) == theirs(path)


def test_a_set_that_gguf_split_is_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for number in range(5):
        writer.add_tensor(f"t.{number}", numpy.ones((2, 32), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert [read(path).metadata["split.no"].value for path in parts] == list(range(len(parts)))
    assert [ours(path) for path in parts] == [theirs(path) for path in parts]


def test_blocks_have_the_sizes_that_gguf_has():
    known = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {number: tuple(kind) for number, kind in GGML_TYPES.items() if number in known} == known
