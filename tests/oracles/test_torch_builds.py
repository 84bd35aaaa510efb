"""What torch.save writes, in every form that people keep, is built into what torch.load gives, bit for bit."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import pytest

import repokit
from repokit.builder.build import carry_out
from repokit.builder.planner import make_plan
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip


def state_dict() -> dict[str, torch.Tensor]:
    """Every dtype as every kind of tensor, and ties."""
    found = {}
    for dtype in DTYPES:
        whole = torch.arange(48, dtype=torch.float32).reshape(6, 8).to(getattr(torch, dtype))
        found |= {
            f"{dtype}.plain": whole,
            f"{dtype}.tied": whole,
            f"{dtype}.view": whole[2:5],
            f"{dtype}.column": whole[:, 3:4],
            f"{dtype}.transposed": whole.t(),
            f"{dtype}.stepped": whole[::2, ::3],
            f"{dtype}.expanded": whole[:1].expand(5, 8),
            f"{dtype}.scalar": whole[1, 1],
            f"{dtype}.empty": whole[:0],
        }
    found["parameter"] = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    return found


CONTAINERS = {
    "top": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model": lambda state: {"model": state, "optimizer": {"state": {0: {"step": torch.ones(1)}}}},
    "module": lambda state: {"module": state},
    "model_state_dict": lambda state: {"model_state_dict": state, "optimizer_state_dict": {}, "loss": 0.5},
    "nested twice": lambda state: {"state_dict": {"state_dict": state}},
    "Lightning": lambda state: {
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "hyper_parameters": argparse.Namespace(lr=0.1),
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}}],
        "callbacks": {},
    },
    "DDP": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
}


def build(folder: Path, source: str = "source", **keys: object) -> Path:
    """A build without the linter, which a model of such tensors would not please."""
    (folder / "source" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    values = {"version": 1, "source": source, "output": "out", "license": {"id": "mit", "file": None}, **keys}
    plan = make_plan(Recipe.model_validate(values), folder=folder)
    return carry_out(plan, gate=lambda _source, _stage: None).output


def read(output: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for path in output.glob("*.safetensors") for name, tensor in load_file(path).items()}


def bits(tensor: torch.Tensor) -> tuple[object, ...]:
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).tolist() if flat.numel() else []


def assert_equal(written: dict[str, torch.Tensor], loaded: dict[str, torch.Tensor]) -> None:
    assert {name: bits(tensor) for name, tensor in written.items()} == {
        name: bits(tensor) for name, tensor in loaded.items()
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_tensor_is_the_one_that_torch_saved(folder, container, zipped):
    place = folder / "source" / "pytorch_model.bin"
    torch.save(CONTAINERS[container](state_dict()), place, _use_new_zipfile_serialization=zipped)
    assert_equal(read(build(folder)), state_dict())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_shards_are_read_by_their_index(folder, zipped):
    state = state_dict()
    names = sorted(state)
    parts = {f"pytorch_model-0000{number + 1}-of-00003.bin": names[number::3] for number in range(3)}
    for file, held in parts.items():
        torch.save(
            {name: state[name] for name in held}, folder / "source" / file, _use_new_zipfile_serialization=zipped
        )
    weight_map = {name: file for file, held in parts.items() for name in held}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "source" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_equal(read(build(folder)), state)


def test_a_cast_of_views_is_the_one_of_torch(folder):
    state = {"w.transposed": torch.randn(300, 200).t(), "w.stepped": torch.randn(64, 64)[::3, 1::2]}
    torch.save(state, folder / "source" / "pytorch_model.bin")
    written = read(build(folder, weights={"dtype": "bfloat16"}))
    assert_equal(written, {name: tensor.to(torch.bfloat16) for name, tensor in state.items()})


def test_a_slice_of_a_large_storage_is_written_alone(folder):
    torch.save({"w": torch.zeros(1000, 1000)[3, :2]}, folder / "source" / "pytorch_model.bin")
    assert (build(folder) / "model.safetensors").stat().st_size < 200


@pytest.mark.parametrize("name", ["gpt2", "t5", "llama-tied", "bart", "mixtral", "qwen2_vl"])
def test_transformers_loads_what_was_a_pickle(models, folder, name):
    import shutil

    from loading import load_report
    from safetensors.torch import load_file

    source = folder / "source"
    shutil.copytree(models / name, source, dirs_exist_ok=True)
    state = {key: tensor for path in source.glob("*.safetensors") for key, tensor in load_file(path).items()}
    for path in source.glob("model*.safetensors*"):
        path.unlink()
    torch.save(state, source / "pytorch_model.bin")
    (folder / "repokit.yaml").write_text(
        json.dumps(
            {"version": 1, "repo": "me/x", "source": "source", "output": "out", "license": {"id": "mit", "file": None}}
        )
    )
    built = repokit.build(folder / "repokit.yaml", gate=lambda _source, _stage: None)
    report = load_report(built.output)
    assert (report.missing, report.unexpected, report.mismatched) == (frozenset(), frozenset(), frozenset())


def test_tensors_in_memory_are_written_as_they_are(folder):
    state = state_dict()
    (folder / "source" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    values = {"version": 1, "source": "source", "output": "out", "license": {"id": "mit", "file": None}}
    plan = repokit.plan(Recipe.model_validate(values), folder=folder, tensors=state)
    repokit.build(plan, tensors=state, gate=lambda _source, _stage: None)
    assert_equal(read(folder / "out"), state)


def test_a_merged_adapter_needs_no_directory(models, folder):
    """The example of the README."""
    from loading import load_report
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(models / "llama", dtype="bfloat16")
    model = PeftModel.from_pretrained(base, models / "peft-lora", autocast_adapter_dtype=False).merge_and_unload()
    values = {"version": 1, "repo": "me/x", "output": "out", "license": {"id": "mit", "file": None}}
    (folder / "repokit.yaml").write_text(json.dumps({**values, "source": str(models / "llama")}))
    built = repokit.build(folder / "repokit.yaml", tensors=model.state_dict(), gate=lambda _source, _stage: None)
    loaded = load_report(built.output)
    assert loaded.clean
    assert_equal(dict(loaded.tensors), model.state_dict())


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: torch.empty(2, 2, device="meta"),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.complex128),
    ],
    ids=["meta", "sparse", "complex128"],
)
def test_a_tensor_that_cannot_be_written_is_named(folder, tensor):
    (folder / "source" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    values = {"version": 1, "source": "source", "output": "out", "license": {"id": "mit", "file": None}}
    (folder / "repokit.yaml").write_text(json.dumps(values))
    with pytest.raises(repokit.RepokitError, match=r"model\.w (has|cannot be read)"):
        repokit.build(folder / "repokit.yaml", tensors={"model.w": tensor()}, gate=lambda _source, _stage: None)
