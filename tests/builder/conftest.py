"""A workshop: checkpoints of a few kilobytes, written by the safetensors library itself, and builds of them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import safetensors

from repokit import api
from repokit.builder.build import carry_out
from repokit.builder.planner import make_plan
from repokit.formats.tensors import DTYPE_BITS, HEADER_NAMES
from repokit.linter.examples import lora
from repokit.schema.manifest import MANIFEST_NAME, Manifest
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from repokit.builder.build import Built
    from repokit.builder.plan import Plan

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "formats"))  # where the writers of formats are

STRACE = shutil.which("strace") or ""

Tensor = tuple[str, tuple[int, ...], bytes]  # dtype as a header spells it, shape, data

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "dtype": "float32",
    "hidden_size": 8,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
    "vocab_size": 16,
}


def tensor(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Data that looks like small weights in every floating-point dtype, and like anything in the others."""
    elements = 1
    for dimension in shape:
        elements *= dimension
    width = DTYPE_BITS[dtype] // 8
    rng = random.Random(seed)
    if dtype not in {"F64", "F32", "F16", "BF16"}:
        return dtype, shape, rng.randbytes(elements * width)
    import struct

    from repokit.builder.transforms.cast import cast

    values = struct.pack(f"<{elements}d", *(rng.gauss(0, 0.1) for _ in range(elements)))
    return dtype, shape, values if dtype == "F64" else bytes(cast(values, f"F64>{dtype}")) if elements else b""


def model(dtype: str = "F32") -> dict[str, Tensor]:
    """A llama of two layers, with an integer buffer beside its weights."""
    shapes = {"model.embed_tokens.weight": (16, 8), "lm_head.weight": (16, 8), "model.norm.weight": (8,)}
    for layer in range(2):
        shapes[f"model.layers.{layer}.self_attn.q_proj.weight"] = (8, 8)
        shapes[f"model.layers.{layer}.mlp.up_proj.weight"] = (24, 8)
        shapes[f"model.layers.{layer}.input_layernorm.weight"] = (8,)
    tensors = {name: tensor(dtype, shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    return tensors | {"model.position_ids": ("I64", (1, 4), b"".join(n.to_bytes(8, "little") for n in range(4)))}


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """With the library's own writer."""
    buffers = {name: ctypes.create_string_buffer(data, len(data)) for name, (_, _, data) in tensors.items()}
    table = {
        name: safetensors.TensorSpec(
            dtype=HEADER_NAMES[dtype], shape=shape, data_ptr=ctypes.addressof(buffers[name]), data_len=len(data)
        )
        for name, (dtype, shape, data) in tensors.items()
    }
    safetensors.serialize_file(table, str(path), {"format": "pt"})


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """With the library's own reader."""
    return {
        name: (found["dtype"], tuple(found["shape"]), bytes(found["data"]))
        for name, found in safetensors.deserialize(path.read_bytes())
    }


class Workshop:
    """A folder with a checkpoint, where the recipe would lie, and `out`, which is built."""

    model = staticmethod(model)
    tensor = staticmethod(tensor)
    config = CONFIG
    write_safetensors = staticmethod(write_safetensors)
    read_safetensors = staticmethod(read_safetensors)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out"

    def checkpoint(
        self,
        tensors: Mapping[str, Tensor] | None = None,
        *,
        name: str = "checkpoint",
        config: Mapping[str, Any] | None = None,
        shards: int = 1,
        files: Mapping[str, bytes | str] | None = None,
    ) -> Path:
        """Writes a checkpoint; `shards` of them in turn, with an index; `files` beside it."""
        root = self.folder / name
        root.mkdir(parents=True, exist_ok=True)
        tensors = model() if tensors is None else tensors
        (root / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}, indent=2) + "\n")
        if shards == 1:
            write_safetensors(root / "model.safetensors", tensors)
        else:
            self._write_shards(root, tensors, shards)
        for path, content in (files or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    @staticmethod
    def _write_shards(root: Path, tensors: Mapping[str, Tensor], shards: int) -> None:
        files = [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]
        weight_map = {name: files[place % shards] for place, name in enumerate(tensors)}
        for file in files:
            write_safetensors(root / file, {name: tensors[name] for name in tensors if weight_map[name] == file})
        total = sum(len(data) for _, _, data in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (root / "model.safetensors.index.json").write_text(json.dumps(index))

    @staticmethod
    def recipe(**keys: Any) -> Recipe:
        known = {"version": 1, "source": "./checkpoint", "output": "./out", "license": {"id": "apache-2.0"}}
        return Recipe.model_validate({**known, **keys})

    def plan(self, *, kept: tuple[str, ...] = (), **keys: Any) -> Plan:
        return make_plan(self.recipe(**keys), folder=self.folder, kept=kept)

    def build(self, *, kept: tuple[str, ...] = (), force: bool = False, jobs: int = 1, **keys: Any) -> Built:
        """Without the linter, which a llama of this size would not please."""
        return self.carry_out(self.plan(kept=kept, **keys), force=force, jobs=jobs)

    @staticmethod
    def carry_out(plan: Plan, **arguments: Any) -> Built:
        return carry_out(plan, gate=lambda _source, _stage: None, **arguments)

    def tensors(self, root: Path | None = None) -> dict[str, Tensor]:
        """Every tensor of a built directory."""
        found: dict[str, Tensor] = {}
        for path in sorted((root or self.output).glob("*.safetensors")):
            shard = read_safetensors(path)
            assert not found.keys() & shard.keys(), "a tensor lies in two files"
            found |= shard
        return found

    def read(self, path: str) -> bytes:
        return (self.output / path).read_bytes()

    def contents(self, root: Path | None = None) -> dict[str, bytes]:
        """Every file by its path."""
        root = root or self.output
        return {
            path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
        }

    def hidden(self) -> list[str]:
        """What builds left beside the output."""
        return sorted(
            path.name for path in self.output.parent.iterdir() if path.name.startswith(f".{self.output.name}.")
        )


FORGE_RECIPE = """version: 1
source: {up}/checkpoint
output: {up}/out
license: {{id: apache-2.0}}
weights: {{max_shard_size: 2KB}}
card: {{summary: "{summary}"}}
lint:
  ignore:
    - {{code: TOK, reason: "weights are all that is built"}}
    - {{code: WGT, reason: "and few of them: no llama has so few"}}
    - {{code: CFG113, reason: "nor is it so small"}}
    - {{code: CFG135, reason: "its heads are those of a large one"}}
"""


class Forge:
    """A folder in which `repokit build` runs again and again, undisturbed, killed or with a call that fails."""

    # What changes a file system, or opens what is on it.
    calls_traced = "openat,write,fsync,ftruncate,flock,mkdir,mkdirat,rmdir,unlink,unlinkat,rename,renameat,renameat2,chmod,fchmodat"

    def __init__(self, workshop: Workshop, environment: Mapping[str, str]) -> None:
        self.root = workshop.folder
        self.number = 0
        workshop.checkpoint(files={"LICENSE": "text"})
        self.recipe("0")
        ours, theirs = socket.socketpair()
        command = [sys.executable, str(Path(__file__).with_name("forked_builds.py")), str(self.root)]
        self._process = subprocess.Popen(command, stdin=theirs, env=environment)
        theirs.close()
        self._connection = ours
        self._answers = ours.makefile("r")
        self.build()

    def close(self) -> None:
        self._connection.close()
        self._answers.close()
        self._process.wait()

    def recipe(self, summary: str, folder: Path | None = None, up: str = ".") -> None:
        text = FORGE_RECIPE.format(summary=summary, up=up)
        ((folder or self.root) / "repokit.yaml").write_text(text, encoding="utf-8")

    def next(self) -> str:
        """Makes the recipe another one than that of the target."""
        self.number += 1
        self.recipe(str(self.number))
        return str(self.number)

    def ask(self, **wanted: Any) -> dict[str, Any]:
        """See forked_builds.py."""
        self._connection.sendall(json.dumps({"folders": [str(self.root)], **wanted}).encode() + b"\n")
        return json.loads(self._answers.readline())

    def build(self, **wanted: Any) -> int:
        """The exit code of a build."""
        return self.ask(**wanted)["codes"][0]

    def traced(self, *options: str, **wanted: Any) -> tuple[int, str]:
        """A build under strace: its exit code, and its system calls."""
        log = self.root / "calls.txt"
        command = [STRACE, "-f", "-y", "-o", str(log), "-p", str(self._process.pid), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            attached = strace.stderr.readline()
            assert "attached" in attached, attached
            answer = self.ask(**wanted)
            strace.terminate()
        pattern = re.compile(rf"^{answer['processes'][0]} +(.*)", re.MULTILINE)
        return answer["codes"][0], "\n".join(pattern.findall(log.read_text(errors="replace")))

    def calls(self) -> dict[str, int]:
        """How often an undisturbed build makes each system call."""
        _, calls = self.traced("-e", f"trace={self.calls_traced}")
        return Counter(re.findall(r"^(\w+)\(", calls, re.MULTILINE))

    def message(self) -> str:
        return (self.root / "stderr.txt").read_text(encoding="utf-8")

    def state(self, folder: Path | None = None) -> str:
        """The summary of the card, after every file has been compared with the manifest."""
        output = (folder or self.root) / "out"
        manifest = Manifest.model_validate_json((output / MANIFEST_NAME).read_bytes())
        present = {path.relative_to(output).as_posix() for path in output.rglob("*")} - {MANIFEST_NAME}
        assert present == {file.path for file in manifest.files}
        for file in manifest.files:
            assert hashlib.sha256((output / file.path).read_bytes()).hexdigest() == file.sha256, file.path
        return re.findall(r"^\d+$", (output / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[0]

    def left(self) -> list[str]:
        """What builds left beside the target."""
        return sorted(path.name for path in self.root.iterdir() if path.name.startswith(".out."))


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Forge]:
    running = Forge(Workshop(tmp_path_factory.mktemp("forge")), environment)
    yield running
    running.close()


@pytest.fixture
def strace(forge: Forge) -> Forge:
    """The forge, where strace can disturb its builds."""
    if not STRACE:
        pytest.skip("there is no strace here")
    try:
        forge.traced("-e", "trace=flock")
    except AssertionError:
        pytest.skip("strace may not trace here")
    return forge


@pytest.fixture
def nobody() -> Iterator[Callable[[], None]]:
    """Takes the rights of whoever runs the tests: root, whom no mode stops, becomes a user without any."""

    def become() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)

    before = os.geteuid()
    yield become
    os.seteuid(before)


@pytest.fixture
def mounted() -> Iterator[Callable[..., None]]:
    """Mounts a small file system of its own at a folder, until the test ends."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    places: list[Path] = []

    def at(place: Path, options: str = "size=16m") -> None:
        arguments = ["-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        done = mount and umount and subprocess.run([mount, *arguments], capture_output=True, check=False)
        if not done or done.returncode:
            pytest.skip("only root may mount a small file system here")
        if place not in places:  # mounted, not mounted once more with other options
            places.append(place)

    yield at
    for place in places:
        subprocess.run([str(umount), str(place)], check=True)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


ADAPTER_CONFIG = json.loads(lora()["adapter_config.json"])


class Adapters(Workshop):
    """A workshop of adapters: a LoRA on the queries and values of a model with two layers, and what lies beside it."""

    prefix = "base_model.model."
    config = ADAPTER_CONFIG

    @classmethod
    def lora(cls, dtype: str = "F32") -> dict[str, Tensor]:
        """The tensors, under the names that PEFT saves."""
        shapes = {}
        for layer in range(2):
            for module, rows in (("q_proj", 16), ("v_proj", 8)):
                path = f"{cls.prefix}model.layers.{layer}.self_attn.{module}"
                shapes |= {f"{path}.lora_A.weight": (4, 16), f"{path}.lora_B.weight": (rows, 4)}
        return {name: tensor(dtype, shape, seed) for seed, (name, shape) in enumerate(shapes.items())}

    def adapter(
        self,
        tensors: Mapping[str, Tensor] | None = None,
        *,
        folder: str = "",
        config: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        weights: str = "adapter_model.safetensors",
    ) -> Path:
        """Writes an adapter into the checkpoint; `folder` is a folder in it, `weights` the file of its tensors."""
        root = self.folder / "checkpoint"
        (root / folder).mkdir(parents=True, exist_ok=True)
        raw = {key: value for key, value in {**self.config, **(config or {})}.items() if value is not ...}
        (root / folder / "adapter_config.json").write_text(json.dumps(raw, indent=2) + "\n")
        tensors = self.lora() if tensors is None else tensors
        if weights.endswith(".safetensors"):
            write_safetensors(root / folder / weights, tensors)
        else:
            (root / folder / weights).write_bytes(pickled(tensors))
        for path, content in (files or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    def base(
        self,
        files: Mapping[str, bytes | str] | None = None,
        rows: int = 16,
        more: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Writes a model that the adapter fits, or, with other `rows`, does not, into `base`; `more` tensors with it."""
        tensors = dict(more or {})
        for layer in range(2):
            path = f"model.layers.{layer}.self_attn"
            tensors[f"{path}.q_proj.weight"] = tensor("F32", (rows, 16))
            tensors[f"{path}.v_proj.weight"] = tensor("F32", (8, 16))
        sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32}
        return self.checkpoint(tensors, name="base", config=sizes, files=files)

    @staticmethod
    def in_pickle(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same tensors, with the values that they have in a pickle."""
        from repokit.linter.examples import filled

        return {name: (dtype, shape, filled(name, len(data))) for name, (dtype, shape, data) in tensors.items()}

    def published(self, path: str = "adapter_config.json") -> dict[str, Any]:
        """A config of the output."""
        return json.loads(self.read(path))


def pickled(tensors: Mapping[str, Tensor]) -> bytes:
    """A file of torch with tensors of these dtypes and shapes. Its values follow from their names."""
    from repokit.linter.examples_torch import torch_file

    return torch_file({name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()})


@pytest.fixture
def adapters(tmp_path: Path) -> Adapters:
    return Adapters(tmp_path)


@pytest.fixture
def gate() -> api.Gate:
    return api.Gate(api.Selection())
