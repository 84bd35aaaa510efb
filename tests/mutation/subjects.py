"""The repositories that are mutated: every base of the examples, and oracle repositories of other architectures."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mutants import Mutant, mutants
from tensor_mutants import NUMPY, Stored, read, serialized

from repokit.linter.examples import BASES

# One of each architecture that publishes much: decoders dense, sparse, recurrent; encoders; encoder and decoder;
# images, sounds, both with text; sharded; adapters of a decoder and of a classifier.
ORACLES = (
    *("bart", "bert", "clip", "deepseek_v3", "falcon", "gemma3", "gpt2", "gpt_neox", "gpt_oss", "llava"),
    *("mamba", "mixtral", "peft-lora", "peft-lora-seqcls-bert", "phi3", "qwen2", "qwen2_5_vl"),
    *("qwen3-tied-sharded-bf16", "roberta", "t5", "vit", "wav2vec2", "whisper"),
)
ADAPTER_BASES = {"peft-lora": "base-llama", "peft-lora-seqcls-bert": "base-bert"}


@dataclass(frozen=True)
class Subject:
    """An unmutated repository.

    Attributes:
        name: `base:single`, `oracle:bert`.
        files: Its files.
        base: The files of the model that an adapter is for.
        twin: Of a quantization that no library here loads: weights of the same model that do load.
        like: A repository of which this one is a variation; see `mutants`.
    """

    name: str
    files: Mapping[str, bytes]
    base: Mapping[str, bytes] | None = None
    twin: Mapping[str, bytes] | None = None
    like: Mapping[str, bytes] | None = None

    def mutants(self) -> Iterator[Mutant]:
        return mutants(self.files, self.like)


UNLOADABLE = ("gptq", "awq", "bnb4", "bnb8", "mlx", "modelopt")  # their libraries need a GPU, or are not transformers


def subjects(models: Path) -> dict[str, Subject]:
    """All of them, by name. `models` is the folder of the oracle repositories."""
    single = with_values(BASES["single"]())
    found = {}
    for name, base in BASES.items():
        files = with_values(base())
        found[f"base:{name}"] = Subject(
            f"base:{name}",
            files,
            base=single if name == "lora" else None,
            twin=single if name in UNLOADABLE else None,
            like=None if name == "single" else single,
        )
    for name in ORACLES:
        of_adapter = ADAPTER_BASES.get(name)
        base = None if of_adapter is None else files_of(models / of_adapter)
        found[f"oracle:{name}"] = Subject(f"oracle:{name}", files_of(models / name), base=base)
    return found


def files_of(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def with_values(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with small random numbers in their tensors: those of the examples are texts, with which nothing runs."""
    return {path: _filled(content) if path.endswith(".safetensors") else content for path, content in files.items()}


def _filled(content: bytes) -> bytes:
    tensors, metadata = read(content)
    return serialized({name: _numbers(name, stored) for name, stored in tensors.items()}, metadata)


def _numbers(name: str, stored: Stored) -> Stored:
    if stored.dtype.startswith(("I", "U")):
        return stored
    random = np.random.default_rng(zlib.crc32(name.encode()))
    numbers = random.normal(0, 0.3, stored.shape).astype(np.float32).astype(NUMPY[stored.dtype])
    return stored._replace(data=numbers.tobytes())
