"""Known-good repositories in memory, and the changes that break them.

An example is told as a *change to a base*, so that it shows the defect and nothing else. The same examples are a
rule's tests (tests/linter/test_contract.py) and its documentation (`repokit rules CODE`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from repokit.formats.safetensors import header_bytes, in_file_order, read_header
from repokit.formats.strict_json import dumps
from repokit.formats.tensors import TensorInfo, byte_size
from repokit.linter.examples_gguf import gguf
from repokit.repo.identity import Identity
from repokit.repo.memory import Memory
from repokit.repo.source import Entry, Kind


class _Delete:
    def __repr__(self) -> str:
        return "DELETE"


DELETE: Final = _Delete()  # removes a key from a JSON object; None sets it to null

# New content; None: the file is not there; a mapping: merged into the JSON object; a callable: edits the bytes, or
# makes them; a Kind: an entry that is no regular file.
Change = bytes | str | None | Mapping[str, Any] | Callable[[bytes], bytes] | Kind


@dataclass(frozen=True)
class Example:
    """A repository that breaks a rule, or comes close and does not.

    Attributes:
        title: What happened, as a person would say it: "the second shard was not uploaded".
        change: Path to change.
        base: A key of BASES.
        also: Codes of other rules that the same change breaks, unavoidably.
        against: A key of BASES: the base model that the caller names, for rules that compare with it.
        identity: What the caller knows of the model beside its files.
    """

    title: str
    change: Mapping[str, Change] = field(default_factory=dict)
    base: str = "single"
    also: tuple[str, ...] = ()
    against: str | None = None
    identity: Identity | None = None

    def source(self) -> Memory:
        """The repository of this example, in memory."""
        special = {path: Entry(0, change) for path, change in self.change.items() if isinstance(change, Kind)}
        return Memory(self.files(), special=special)

    def files(self) -> dict[str, bytes]:
        """Its regular files."""
        files = dict(BASES[self.base]())
        for path, change in self.change.items():
            if change is None or isinstance(change, Kind):
                files.pop(path, None)
            elif isinstance(change, bytes):
                files[path] = change
            elif isinstance(change, str):
                files[path] = change.encode()
            elif isinstance(change, Mapping):
                files[path] = dumps(merged(json.loads(files.get(path, b"{}")), change))
            else:
                files[path] = change(files.get(path, b""))
        return files


def merged(document: Any, change: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON document
    """The document with the change merged in, objects recursively."""
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in change.items():
        if isinstance(value, _Delete):
            del result[key]
        elif isinstance(value, Mapping):
            result[key] = merged(result.get(key), value)
        else:
            result[key] = value
    return result


# ---------------------------------------------------------------- tensors

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name to dtype and shape


def safetensors(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A whole .safetensors file; every tensor holds a run of bytes that follows from its name."""
    placed = in_file_order(TensorInfo(name, dtype, shape, 0, 0) for name, (dtype, shape) in tensors.items())
    header = header_bytes(placed, {"format": "pt"} if metadata is None else metadata)
    return header + b"".join(filled(tensor.name, byte_size(tensor.dtype, tensor.shape) or 0) for tensor in placed)


def filled(name: str, size: int) -> bytes:
    """The bytes of a tensor: they follow from its name."""
    pattern = name.encode()
    return (pattern * (size // len(pattern) + 1))[:size]


def tensors_of(content: bytes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name to dtype and shape, of a .safetensors file in memory."""
    header = read_header(lambda offset, length: content[offset : offset + length], len(content), "example")
    return {tensor.name: (tensor.dtype, tensor.shape) for tensor in header.tensors}


def edited(
    *,
    drop: tuple[str, ...] = (),
    add: Tensors | None = None,
    rename: Callable[[str], str] = lambda name: name,
) -> Callable[[bytes], bytes]:
    """A change to the tensors of a .safetensors file. `add` replaces tensors of the same name."""

    def change(content: bytes) -> bytes:
        kept = {rename(name): info for name, info in tensors_of(content).items() if name not in drop}
        return safetensors({**kept, **(add or {})})

    return change


# ---------------------------------------------------------------- bases

VOCABULARY: Final = (
    *("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<unk>"),
    *"abcdefghilmnorstuwy.:Ġ",
    *("as", "er", "us", "Ċ"),
)
CHATML: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CARD: Final = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
base_model: example/base
language: en
---
# Example

A tiny decoder for the examples of rules.
"""
# For examples of classifiers: the card of the bases says what a decoder does.
LABELS_IN_CARD: Final[Mapping[str, Change]] = {
    "README.md": lambda card: card.replace(b"pipeline_tag: text-generation", b"pipeline_tag: text-classification")
}
LICENSE: Final = "Apache License\nVersion 2.0, January 2004\n"  # enough for an example; real texts come from the source


def tokenizer_json(vocabulary: tuple[str, ...] = VOCABULARY, special: tuple[str, ...] = VOCABULARY[:6]) -> bytes:
    """A byte-level BPE tokenizer whose ids are the positions in `vocabulary`."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": ["a s", "e r", "u s"],
        },
    }
    return dumps(document)


_CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 4,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "transformers_version": "5.24.0",
    "vocab_size": len(VOCABULARY),
}


def _llama_tensors(layers: int = 2) -> dict[str, tuple[str, tuple[int, ...]]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (len(VOCABULARY), 16),
        "model.norm.weight": (16,),
        "lm_head.weight": (len(VOCABULARY), 16),
    }
    for layer in range(layers):
        block = f"model.layers.{layer}."
        shapes |= {
            block + "input_layernorm.weight": (16,),
            block + "post_attention_layernorm.weight": (16,),
            block + "self_attn.q_proj.weight": (16, 16),
            block + "self_attn.k_proj.weight": (8, 16),
            block + "self_attn.v_proj.weight": (8, 16),
            block + "self_attn.o_proj.weight": (16, 16),
            block + "mlp.gate_proj.weight": (24, 16),
            block + "mlp.up_proj.weight": (24, 16),
            block + "mlp.down_proj.weight": (16, 24),
        }
    return {name: ("BF16", shape) for name, shape in shapes.items()}


@cache
def single() -> Mapping[str, bytes]:
    """A two-layer llama in one file, untied, with tokenizer, template, card and license."""
    return {
        "LICENSE": LICENSE.encode(),
        "README.md": CARD.encode(),
        "chat_template.jinja": CHATML.encode(),
        "config.json": dumps(_CONFIG),
        "generation_config.json": dumps(
            {"bos_token_id": 1, "eos_token_id": [4, 2], "pad_token_id": 0, "transformers_version": "5.24.0"}
        ),
        "model.safetensors": safetensors(_llama_tensors()),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": dumps(
            {
                "backend": "tokenizers",
                "bos_token": "<s>",
                "eos_token": "<|im_end|>",
                "model_max_length": 64,
                "pad_token": "<pad>",
                "tokenizer_class": "PreTrainedTokenizerFast",
                "unk_token": "<unk>",
            }
        ),
    }


def shard(number: int, of: int = 3) -> str:
    """`model-00002-of-00003.safetensors`."""
    return f"model-{number:05d}-of-{of:05d}.safetensors"


@cache
def sharded() -> Mapping[str, bytes]:
    """The same model in three shards with an index: embedding; layers; norm and head."""
    tensors = _llama_tensors()
    places = {name: 2 if ".layers." in name else 1 if "embed" in name else 3 for name in tensors}
    weight_map = {name: shard(places[name]) for name in sorted(tensors)}
    total = sum(byte_size(dtype, shape) or 0 for dtype, shape in tensors.values())
    metadata = {"total_parameters": total // 2, "total_size": total}
    files = {path: content for path, content in single().items() if path != "model.safetensors"}
    files["model.safetensors.index.json"] = dumps({"metadata": metadata, "weight_map": weight_map})
    for number in (1, 2, 3):
        part = {name: info for name, info in tensors.items() if places[name] == number}
        files[shard(number)] = safetensors(part)
    return files


@cache
def tied() -> Mapping[str, bytes]:
    """The same model with tied embeddings: no head in the file."""
    config = dumps({**_CONFIG, "tie_word_embeddings": True})
    weights = edited(drop=("lm_head.weight",))(single()["model.safetensors"])
    return {**single(), "config.json": config, "model.safetensors": weights}


@cache
def lora() -> Mapping[str, bytes]:
    """A LoRA adapter of rank 4 on the queries and values of that model."""
    prefix = "base_model.model.model.layers."
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for layer in range(2):
        for module, rows in (("q_proj", 16), ("v_proj", 8)):
            tensors[f"{prefix}{layer}.self_attn.{module}.lora_A.weight"] = ("F32", (4, 16))
            tensors[f"{prefix}{layer}.self_attn.{module}.lora_B.weight"] = ("F32", (rows, 4))
    config = {
        "base_model_name_or_path": "example/base",
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": 8,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": 4,
        "revision": None,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    }
    card = CARD.replace("library_name: transformers", "library_name: peft")
    return {
        "LICENSE": LICENSE.encode(),
        "README.md": card.encode(),
        "adapter_config.json": dumps(config),
        "adapter_model.safetensors": safetensors(tensors),
    }


def quantized(method: str) -> Callable[[], Mapping[str, bytes]]:
    """A base of examples_quantized.py, which is made of this module's."""

    def base() -> Mapping[str, bytes]:
        from repokit.linter.examples_quantized import METHODS

        return METHODS[method]()

    return base


_QUANTIZED: Final = (
    *("gptq", "awq", "fp8", "bnb4", "bnb8", "mxfp4", "mlx", "modelopt"),
    *("pack-quantized", "float-quantized", "int-quantized"),  # compressed-tensors
)

BASES: Final[Mapping[str, Callable[[], Mapping[str, bytes]]]] = {
    "single": single,
    "sharded": sharded,
    "tied": tied,
    "lora": lora,
    **{method: quantized(method) for method in _QUANTIZED},
    "gguf": gguf,
}
