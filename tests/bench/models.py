"""Models of any size without a framework: a Llama to build from, and a sparse terabyte to lint."""

from __future__ import annotations

import array
import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.tensors import TensorInfo

Shapes = Mapping[str, tuple[int, ...]]

_HIDDEN, _INNER = 2048, 5504
_EXPERTS, _EXPERT_INNER, _EXPERT_HIDDEN, _MIXED_LAYERS = 330, 2048, 4096, 60


def write_llama(folder: Path, *, layers: int, dtype: str, rows: int = 32_000) -> int:
    """A checkpoint that save_pretrained could have written, in one file; its weights are small random numbers.

    Args:
        folder: Made here.
        layers: About 50 million parameters each.
        dtype: `F32` or `BF16`.
        rows: Tokens of its vocabulary.

    Returns:
        Bytes of the weights.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_llama(layers, dtype, rows)), encoding="utf-8")
    _write_tokenizer(folder, tokens=rows)
    tensors = _placed(_llama_shapes(layers, rows), dtype)
    path = folder / "model.safetensors"
    with path.open("wb") as stream:
        stream.write(header_bytes(tensors, {"format": "pt"}))
        left = tensors[-1].end
        numbers = _numbers(dtype)
        while left:
            left -= stream.write(numbers[:left])
        stream.flush()
        os.fsync(stream.fileno())
    return tensors[-1].end


def write_recipe(
    folder: Path, source: Path, *, dtype: str = "auto", shards: str = "300MB", manifest: str = "keep"
) -> Path:
    """A recipe for it in `folder`, with the output in `folder/built`."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {
        "version": 1,
        "source": str(source),
        "output": "built",
        "license": {"id": "apache-2.0"},
        "weights": {"dtype": dtype, "max_shard_size": shards},
        "manifest": manifest,
    }
    (folder / "repokit.yaml").write_text(json.dumps(recipe), encoding="utf-8")  # JSON is YAML
    return folder / "repokit.yaml"


def write_terabyte(folder: Path, *, shards: int, experts: int = _EXPERTS) -> int:
    """A mixture of experts of 1 TB: real headers and a real index over files of holes.

    Args:
        folder: Made here.
        shards: Files.
        experts: 180 tensors each; the more, the smaller.

    Returns:
        The number of tensors.
    """
    folder.mkdir(parents=True)
    inner = _EXPERT_INNER * _EXPERTS // experts
    config = {**_MIXTURE, "num_experts": experts, "moe_intermediate_size": inner}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shapes = dict(_mixture_shapes(experts, inner))
    names = list(shapes)
    files = {f"model-{part + 1:05}-of-{shards:05}.safetensors": names[part::shards] for part in range(shards)}
    total = 0
    for file, own in files.items():
        tensors = _placed({name: shapes[name] for name in own}, "BF16")
        header = header_bytes(tensors, {"format": "pt"})
        with (folder / file).open("wb") as stream:
            stream.write(header)
            stream.truncate(len(header) + tensors[-1].end)
        total += tensors[-1].end
    weight_map = {name: file for file, own in sorted(files.items()) for name in own}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return len(names)


def _write_tokenizer(folder: Path, *, tokens: int) -> None:
    """A byte-level BPE tokenizer.json with that many tokens, each merged from another one and a letter."""
    alphabet = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    vocabulary = dict.fromkeys(alphabet)
    merges = []
    queue = list(alphabet)
    while len(vocabulary) < tokens:
        token = queue.pop(0)
        for letter in "ae":
            if len(vocabulary) < tokens and token + letter not in vocabulary:
                vocabulary[token + letter] = None
                merges.append([token, letter])
                queue.append(token + letter)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": merges,
        },
    }
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def _placed(shapes: Shapes, dtype: str) -> list[TensorInfo]:
    return in_file_order(TensorInfo(name, dtype, shape, 0, 0) for name, shape in shapes.items())


def _numbers(dtype: str) -> bytes:
    """Eight million bytes of small numbers of this dtype."""
    source = random.Random(0)
    values = array.array("f", (source.gauss(0, 0.02) for _ in range(1_000_000)))
    if dtype == "F32":
        return values.tobytes() * 2
    halves = array.array("H")
    halves.frombytes(values.tobytes())
    return halves[1::2].tobytes() * 4  # the upper half of a little-endian float32 is the bfloat16


def _llama(layers: int, dtype: str, rows: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32" if dtype == "F32" else "bfloat16",
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": rows,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }


def _llama_shapes(layers: int, rows: int) -> dict[str, tuple[int, ...]]:
    square, up, down = (_HIDDEN, _HIDDEN), (_INNER, _HIDDEN), (_HIDDEN, _INNER)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (rows, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
        "lm_head.weight": (rows, _HIDDEN),
    }
    for layer in range(layers):
        block = f"model.layers.{layer}"
        shapes |= {f"{block}.self_attn.{part}_proj.weight": square for part in "qkvo"}
        shapes |= {f"{block}.mlp.gate_proj.weight": up, f"{block}.mlp.up_proj.weight": up}
        shapes |= {f"{block}.mlp.down_proj.weight": down}
        shapes |= {f"{block}.{norm}_layernorm.weight": (_HIDDEN,) for norm in ("input", "post_attention")}
    return shapes


_MIXTURE: Mapping[str, object] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "dtype": "bfloat16",
    "hidden_size": _EXPERT_HIDDEN,
    "moe_intermediate_size": _EXPERT_INNER,
    "intermediate_size": 12_288,
    "num_experts": _EXPERTS,
    "num_experts_per_tok": 8,
    "num_hidden_layers": _MIXED_LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
}


def _mixture_shapes(experts: int, inner: int) -> Iterable[tuple[str, tuple[int, ...]]]:
    """About 60,000 tensors of 330 experts."""
    hidden = _EXPERT_HIDDEN
    yield "model.embed_tokens.weight", (151_936, hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (151_936, hidden)
    for layer in range(_MIXED_LAYERS):
        block = f"model.layers.{layer}"
        yield f"{block}.input_layernorm.weight", (hidden,)
        yield f"{block}.post_attention_layernorm.weight", (hidden,)
        yield f"{block}.self_attn.q_proj.weight", (4096, hidden)
        yield f"{block}.self_attn.k_proj.weight", (512, hidden)
        yield f"{block}.self_attn.v_proj.weight", (512, hidden)
        yield f"{block}.self_attn.o_proj.weight", (hidden, 4096)
        yield f"{block}.self_attn.q_norm.weight", (128,)
        yield f"{block}.self_attn.k_norm.weight", (128,)
        yield f"{block}.mlp.gate.weight", (experts, hidden)
        for expert in range(experts):
            one = f"{block}.mlp.experts.{expert}"
            yield f"{one}.gate_proj.weight", (inner, hidden)
            yield f"{one}.up_proj.weight", (inner, hidden)
            yield f"{one}.down_proj.weight", (hidden, inner)
