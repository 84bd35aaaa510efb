"""A known-good GGUF repository in memory, and a small writer for its files and their defects."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from repokit.formats.ggml_types import GGML_TYPES
from repokit.formats.gguf import KINDS, GgufArray, read_gguf

# How `struct` writes one value of each type; strings and arrays have a length before them.
_CODES: Final = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "B",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}
_NUMBERS: Final = {name: number for number, name in KINDS.items()}
ALIGNMENT: Final = 32


class Typed(NamedTuple):
    """A value with its type spelled out: `Typed("u16", 2)`, `Typed("array", [1, 2], "i32")`."""

    kind: str
    value: Any
    items: str = ""


# Name to dimensions in ggml's order (columns, rows) and number of the ggml type.
GgufTensors = Mapping[str, tuple[tuple[int, ...], int]]


def gguf_bytes(metadata: Mapping[str, Any], tensors: GgufTensors, *, version: int = 3) -> bytes:
    """A whole .gguf file. Plain values are written as converters do: text, u32, f32, bool, arrays of text or i32."""
    entries = b"".join(_string(key) + _entry(typed(value)) for key, value in metadata.items())
    infos, data = b"", b""
    for name, (dims, kind) in tensors.items():
        infos += _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += _filled(name, dims, kind)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)) + entries + infos
    return head + bytes(-len(head) % ALIGNMENT if tensors else 0) + data


def typed(value: Any) -> Typed:  # noqa: ANN401 - whatever an example wants in a header
    """The value with the type that converters give it."""
    match value:
        case Typed():
            return value
        case bool():
            return Typed("bool", value)
        case int():
            return Typed("u32", value)
        case float():
            return Typed("f32", value)
        case str():
            return Typed("string", value)
        case [str(), *_]:
            return Typed("array", value, "string")
        case [float(), *_]:
            return Typed("array", value, "f32")
    return Typed("array", value, "i32")


def _entry(value: Typed) -> bytes:
    kind = struct.pack("<I", _NUMBERS[value.kind])
    if value.kind != "array":
        return kind + _plain(value.kind, value.value)
    head = struct.pack("<IQ", _NUMBERS[value.items], len(value.value))
    return kind + head + b"".join(_plain(value.items, item) for item in value.value)


def _plain(kind: str, value: Any) -> bytes:  # noqa: ANN401 - see `typed`
    return _string(value) if kind == "string" else struct.pack("<" + _CODES[kind], value)


def _string(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(content)) + content


def _filled(name: str, dims: tuple[int, ...], kind: int) -> bytes:
    """A run of bytes that follows from the name, padded to the alignment."""
    elements = 1
    for dimension in dims:
        elements *= dimension
    length = elements // GGML_TYPES[kind].block * GGML_TYPES[kind].size
    pattern = name.encode()
    return (pattern * (length // len(pattern) + 1))[:length] + bytes(-length % ALIGNMENT)


# ---------------------------------------------------------------- what is in a file, and edits of it


def contents(content: bytes) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int]]]:
    """Metadata and tensors of a .gguf file in memory, as `gguf_bytes` takes them."""
    header = read_gguf(lambda offset, length: content[offset : offset + length], len(content), "example")
    metadata = {key: Typed(entry.kind, *_items(entry.value)) for key, entry in header.metadata.items()}
    return metadata, {tensor.name: (tensor.dims, tensor.kind) for tensor in header.tensors}


def _items(value: object) -> tuple[Any, ...]:
    if not isinstance(value, GgufArray):
        return (value,)
    if value.kind == "string":
        return [item.decode() for item in value.strings], value.kind
    code = _CODES[value.kind]
    return list(struct.unpack(f"<{len(value)}{code}", value.raw)), value.kind


def gguf_edited(
    metadata: Mapping[str, Any] | None = None,
    *,
    drop: tuple[str, ...] = (),
    add: GgufTensors | None = None,
) -> Callable[[bytes], bytes]:
    """A change to a .gguf file: entries that are set or, with None, removed; tensors that are dropped or added."""

    def change(content: bytes) -> bytes:
        entries, tensors = contents(content)
        entries |= metadata or {}
        kept = {name: info for name, info in tensors.items() if name not in drop}
        return gguf_bytes({key: value for key, value in entries.items() if value is not None}, {**kept, **(add or {})})

    return change


# ---------------------------------------------------------------- the base

TOKENS: Final = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", *"abcdefghilmnorstuwy.:Ġ", "as", "er", "us", "Ċ")
CHAT: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MODEL: Final = "example-F32.gguf"
LICENSE: Final = "Apache License\nVersion 2.0, January 2004\n"
_CARD: Final = """---
license: apache-2.0
pipeline_tag: text-generation
base_model: example/base
base_model_relation: quantized
language: en
tags:
- gguf
---
# Example

A tiny decoder for the examples of rules: `llama-cli -m example-F32.gguf`.
"""


def metadata() -> dict[str, Any]:
    """What a converter writes for a llama of one block with a byte-level BPE vocabulary."""
    return {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "Example",
        "general.file_type": 0,
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 32,
        "llama.attention.head_count": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.token_type": [2, 3, 3, 3, 3] + [1] * (len(TOKENS) - 5),
        "tokenizer.ggml.merges": ["a s", "e r", "u s"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 4,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": CHAT,
    }


def tensors() -> dict[str, tuple[tuple[int, ...], int]]:
    """The twelve tensors of that model."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (32, len(TOKENS)), "output_norm.weight": (32,)}
    shapes["output.weight"] = (32, len(TOKENS))
    for name in ("attn_norm", "ffn_norm"):
        shapes[f"blk.0.{name}.weight"] = (32,)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}.weight"] = (32, 32)
    return {name: (shape, 0) for name, shape in shapes.items()}


def part(number: int, of: int = 2, stem: str = "example-F32") -> str:
    """`example-F32-00001-of-00002.gguf`."""
    return f"{stem}-{number:05d}-of-{of:05d}.gguf"


def split(number: int, of: int = 2, *, metadata_of: Mapping[str, Any] | None = None) -> bytes:
    """One part of that model, as llama-gguf-split writes it: the metadata in the first, the tensors dealt out."""
    every = list(tensors().items())
    dealt = dict(every[number - 1 :: of])
    own: dict[str, Any] = metadata() if number == 1 else {}
    own |= {
        "split.no": Typed("u16", number - 1),
        "split.count": Typed("u16", of),
        "split.tensors.count": Typed("i32", len(every)),
    }
    return gguf_bytes(own | dict(metadata_of or {}), dealt)


def in_parts(of: int = 2) -> dict[str, Any]:
    """A change that puts the model of the base into parts."""
    return {MODEL: None, **{part(number, of): split(number, of) for number in range(1, of + 1)}}


@cache
def gguf() -> Mapping[str, bytes]:
    """One GGUF file of a llama of one block, with its vocabulary and chat template, and a card."""
    return {"README.md": _CARD.encode(), "LICENSE": LICENSE.encode(), MODEL: gguf_bytes(metadata(), tensors())}
