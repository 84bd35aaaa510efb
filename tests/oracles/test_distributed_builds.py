"""Distributed checkpoints that torch and accelerate wrote are built into what their own consolidations give, bit for bit."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loading import load_report

import repokit
from repokit.builder.build import carry_out
from repokit.builder.planner import make_plan
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.builder.plan import Plan

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

LAYOUTS = ("model", "app", "Lightning", "torchtitan", "top")
CANARY = struct.pack("<f", 12345.678)
RECIPE = {"version": 1, "repo": "me/x", "source": "source", "output": "out", "license": {"id": "mit", "file": None}}


@pytest.fixture(scope="module")
def written(models, tmp_path_factory) -> Path:
    """The folders of write_distributed.py. Shared: a test that changes one copies it first."""
    out = tmp_path_factory.mktemp("distributed") / "out"
    script = Path(__file__).with_name("write_distributed.py")
    done = subprocess.run([sys.executable, script, models, out], capture_output=True, text=True, check=False)
    assert not done.returncode, f"{done.stdout}\n{done.stderr}"
    return out


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def plan(folder: Path, source: Path, **keys: object) -> Plan:
    recipe = Recipe.model_validate({**RECIPE, "source": str(source), **keys})
    return make_plan(recipe, folder=folder)


def build(folder: Path, source: Path, **keys: object) -> dict[str, torch.Tensor]:
    """Without the linter, which a model of such tensors would not please."""
    carry_out(plan(folder, source, **keys), gate=lambda _source, _stage: None)
    return read(folder / "out")


def read(output: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for path in output.glob("*.safetensors") for name, tensor in load_file(path).items()}


def bits(tensor: torch.Tensor) -> tuple[object, ...]:
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).tolist() if flat.numel() else []


def differing(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> set[str]:
    both = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {name for name in both if bits(one[name]) != bits(other[name])}


def consolidated(source: Path, folder: Path) -> dict[str, Any]:
    """torch's own: dcp_to_torch_save."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(source, folder / "consolidated.pt")
    return torch.load(folder / "consolidated.pt", weights_only=False)


def model_of(layout: str, state: dict[str, Any]) -> dict[str, torch.Tensor]:
    match layout:
        case "model":
            return state["model"]
        case "app":
            return state["app"]["model"]
        case "Lightning":
            return state["state_dict"]
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def described(source: Path, folder: Path) -> Path:
    """A copy with a config.json, which a test of tensors alone has none of."""
    copy = shutil.copytree(source, folder / "source")
    (copy / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return copy


CASES = [("model", 1), *((layout, world) for world in (2, 4) for layout in LAYOUTS)]


@pytest.mark.parametrize(("layout", "world"), CASES)
def test_every_tensor_is_the_one_that_torch_consolidates(written, folder, layout, world):
    source = written / f"{layout}-{world}"
    wanted = model_of(layout, consolidated(source, folder))
    assert not differing(build(folder, described(source, folder)), wanted)


@pytest.mark.parametrize("world", [2, 4])
def test_every_dtype_is_among_them_in_every_placement(written, folder, world):
    names = set(build(folder, described(written / f"model-{world}", folder)))
    placements = ("row", "column", "whole") if world == 2 else ("row", "column", "grid", "twice", "whole")
    dtypes = ("float64", "float32", "float16", "bfloat16", "int64", "int8", "bool", "float8_e4m3fn")
    assert {f"{dtype}.{placement}" for dtype in dtypes for placement in placements} <= names


@pytest.mark.parametrize("world", [2, 4])
def test_a_cast_is_the_one_of_torch(written, folder, world):
    source = written / f"model-{world}"
    wanted = model_of("model", consolidated(source, folder))
    floats = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
    cast = {name: tensor.to(torch.bfloat16) if tensor.dtype in floats else tensor for name, tensor in wanted.items()}
    assert not differing(build(folder, described(source, folder), weights={"dtype": "bfloat16"}), cast)


@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_the_state_of_the_run_stays_behind(written, folder, layout):
    source = described(written / f"{layout}-2", folder)
    assert any(CANARY in path.read_bytes() for path in source.glob("*.distcp"))
    carry_out(plan(folder, source), gate=lambda _source, _stage: None)
    for path in (folder / "out").iterdir():
        assert CANARY not in path.read_bytes()
        assert str(written).encode() not in path.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS[:4])
def test_what_stays_behind_is_named(written, folder, layout):
    left = [file.path for file in plan(folder, described(written / f"{layout}-2", folder)).left_out]
    assert any("optim" in path for path in left), left


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_that_is_missing_is_named(written, folder, rank):
    source = described(written / "model-4", folder)
    (source / f"__{rank}_0.distcp").unlink()
    with pytest.raises(repokit.RepokitError, match=rf"lacks 1 file of process {rank}: __{rank}_0\.distcp"):
        plan(folder, source)


def test_a_rank_that_is_cut_off_is_named(written, folder):
    source = described(written / "model-2", folder)
    part = source / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    with pytest.raises(repokit.RepokitError, match=r"__1_0\.distcp: .*: is cut off"):
        plan(folder, source)


# ------------------------------------------------------------------------------------------------ FSDP of accelerate


def built(folder: Path, source: Path) -> Path:
    """With the linter, as `repokit build` does it."""
    (folder / "repokit.yaml").write_text(json.dumps({**RECIPE, "source": str(source)}))
    return repokit.build(folder / "repokit.yaml", gate=repokit.api.Gate(repokit.api.Selection())).output


@pytest.mark.parametrize("kind", ["sharded", "full"])
@pytest.mark.parametrize("model", ["llama", "llama-tied"])
def test_transformers_loads_what_fsdp_saved(models, written, folder, model, kind):
    report = load_report(built(folder, written / f"{model}-{kind}"))
    assert report.clean
    assert not differing(report.tensors, load_report(models / model).tensors)


@pytest.mark.parametrize("model", ["llama", "llama-tied"])
def test_every_weight_is_the_one_that_accelerate_merges(written, folder, model):
    from accelerate.utils import merge_fsdp_weights

    source = written / f"{model}-sharded"
    merge_fsdp_weights(str(source / "pytorch_model_fsdp_0"), str(folder / "merged"))
    merged = read(folder / "merged")
    if model == "llama-tied":  # once more under another name
        assert bits(merged.pop("lm_head.weight")) == bits(merged["model.embed_tokens.weight"])
    assert not differing(read(built(folder, source)), merged)


def test_the_folder_of_the_weights_itself_is_a_source(written, folder):
    source = written / "llama-sharded"
    whole = build(folder, source)
    shutil.rmtree(folder / "out")
    assert not differing(build(folder, source / "pytorch_model_fsdp_0"), whole)


def test_the_optimizer_itself_is_no_source(written, folder):
    with pytest.raises(repokit.RepokitError, match="holds no model, but"):
        plan(folder, written / "llama-sharded" / "optimizer_0")


# ------------------------------------------------------------------------------------------------ slices in safetensors


@pytest.mark.parametrize("name", ["slices", "consolidated"])
def test_slices_in_safetensors_are_put_together(models, written, folder, name):
    assert not differing(read(built(folder, written / name)), read(models / "llama"))


def test_slices_of_a_process_that_are_missing_are_noticed(written, folder):
    source = shutil.copytree(written / "slices", folder / "source")
    (source / "shard-00002-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(repokit.RepokitError, match="lacks slices of"):
        plan(folder, source)
