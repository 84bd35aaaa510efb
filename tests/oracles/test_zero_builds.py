"""ZeRO checkpoints become what their layout says, bit for bit; DeepSpeed's own script agrees where it is installed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from repokit.builder.build import carry_out
from repokit.builder.checkpoints.zero_weights import zero_weights
from repokit.builder.planner import make_plan
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")

import zero_layout  # noqa: E402 - it needs torch, which may be missing
from zero_layout import CANARY, Run  # noqa: E402 - likewise

FROZEN = ("model.embed_tokens.weight", "model.norm.weight")
TIED = (("lm_head.weight", "model.embed_tokens.weight"),)
TORCH = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64}


def bits(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[object, ...]]:
    return {
        name: (value.dtype, tuple(value.shape), value.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        for name, value in tensors.items()
    }


def read(folder: Path, *, masters: bool = False) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, without a build."""
    weights = zero_weights(folder, Repository(Directory(folder)), dtype="float32" if masters else "auto")
    found = {}
    for name, tensor in weights.tensors.items():
        raw = bytearray(b"".join(map(bytes, weights.contents(tensor))))
        found[name] = torch.frombuffer(raw, dtype=TORCH[tensor.dtype]).reshape(tensor.shape)
    return found


def build(folder: Path, **keys: object) -> Path:
    """A build without the linter, which a model of such tensors would not please."""
    (folder / "source" / "config.json").write_text(json.dumps({"model_type": "other"}))
    values = {"version": 1, "source": "source", "output": "out", "license": {"id": "mit", "file": None}, **keys}
    return carry_out(make_plan(Recipe.model_validate(values), folder=folder), gate=lambda _source, _stage: None).output


def built(folder: Path, **keys: object) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(build(folder, **keys) / "model.safetensors")


def runs() -> list[Run]:
    dtypes = (torch.bfloat16, torch.float16, torch.float32)
    return [
        Run(stage, ranks, dtype, frozen, tied, groups)
        for stage, ranks, dtype, frozen, tied, groups in product(
            (1, 2, 3), (1, 2, 3), dtypes, ((), FROZEN), ((), TIED), (1, 2)
        )
    ]


def named(run: Run) -> str:
    kinds = [("frozen", run.frozen), ("tied", run.tied), ("groups", run.groups > 1)]
    dtype = str(run.dtype).removeprefix("torch.")
    return "-".join([f"stage{run.stage}", f"{run.ranks}ranks", dtype, *(word for word, there in kinds if there)])


@pytest.mark.parametrize("run", runs(), ids=named)
def test_the_optimizers_parameters_are_merged(tmp_path, run):
    saved = zero_layout.write(tmp_path / "source", run)
    assert bits(read(tmp_path / "source", masters=True)) == bits(saved) == bits(zero_layout.merged(tmp_path / "source"))


@pytest.mark.parametrize("run", [run for run in runs() if run.stage < 3], ids=named)
def test_a_whole_module_is_taken_as_it_is(tmp_path, run):
    zero_layout.write(tmp_path / "source", run)
    with zero_layout.deepspeed_classes():
        path = tmp_path / "source" / zero_layout.STEP / "mp_rank_00_model_states.pt"
        module = torch.load(path, weights_only=False)["module"]
    assert bits(read(tmp_path / "source")) == bits(module)


VARIANTS = {
    "ZeRO off": Run(stage=0),
    "padding that is not cut off": Run(stage=1, ranks=3, lean=False, groups=2),
    "padding behind each parameter": Run(stage=2, ranks=3, aligned=True, groups=2),
    "padding behind each parameter and at the end": Run(stage=2, ranks=3, aligned=True, lean=False),
    "flat tensors of one parameter": Run(stage=3, ranks=2, sub_group=1),
    "flat tensors of two": Run(stage=3, ranks=3, sub_group=2, groups=2, frozen=FROZEN),
    "more ranks than some parameters have elements": Run(stage=3, ranks=11, frozen=("model.layers.0.scale",)),
    "more ranks than a group has elements": Run(stage=2, ranks=16, groups=2, frozen=FROZEN),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_of_the_layout_is_merged(tmp_path, variant):
    saved = zero_layout.write(tmp_path / "source", VARIANTS[variant])
    whole = VARIANTS[variant].stage == 0
    expected = {
        name: value.to(torch.bfloat16) if value.dtype == torch.float32 and "inv_freq" not in name else value
        for name, value in saved.items()
    }
    assert bits(read(tmp_path / "source", masters=not whole)) == bits(expected if whole else saved)


BUILT = (
    Run(stage=2, ranks=2, tied=TIED),
    Run(stage=3, ranks=2, tied=TIED, frozen=FROZEN),
    Run(stage=3, ranks=3, dtype=torch.float16, groups=2),
    Run(stage=1, ranks=1, dtype=torch.float32),
)


@pytest.mark.parametrize("run", BUILT, ids=named)
def test_a_build_writes_them(tmp_path, run):
    saved = zero_layout.write(tmp_path / "source", run)
    whole = run.stage < 3
    expected = {
        name: value.to(run.dtype) if whole and name in zero_layout.parameters() else value
        for name, value in saved.items()
    }
    expected |= {one: expected[other] for one, other in run.tied}
    assert bits(built(tmp_path, weights={"tie": "off"})) == bits(expected)


@pytest.mark.parametrize("run", BUILT, ids=named)
def test_a_cast_is_torchs_own(tmp_path, run):
    saved = zero_layout.write(tmp_path / "source", run)
    expected = {name: value.to(torch.bfloat16) if value.is_floating_point() else value for name, value in saved.items()}
    assert bits(built(tmp_path, weights={"dtype": "bfloat16"})) == bits(expected)


@pytest.mark.parametrize("stage", [1, 2])
def test_float32_is_taken_from_the_optimizer(tmp_path, stage):
    saved = zero_layout.write(tmp_path / "source", Run(stage=stage, frozen=FROZEN))
    expected = {name: value.float() if value.is_floating_point() else value for name, value in saved.items()}
    assert bits(built(tmp_path, weights={"dtype": "float32"})) == bits(expected)


def test_shared_parameters_are_tied(tmp_path):
    saved = zero_layout.write(tmp_path / "source", Run(stage=3, tied=TIED))
    weights = zero_weights(tmp_path / "source", Repository(Directory(tmp_path / "source")))
    assert weights.same_memory(weights.tensors["lm_head.weight"], weights.tensors["model.embed_tokens.weight"])
    assert "lm_head.weight" in saved


@pytest.mark.parametrize("prefix", ["_forward_module.", "module.", "_forward_module._orig_mod."])
def test_a_lightning_folder_is_built(tmp_path, prefix):
    source = tmp_path / "source"
    zero_layout.write(source, Run(stage=3, frozen=FROZEN, prefix=prefix))
    (source / zero_layout.STEP).rename(source / "checkpoint")
    (source / "latest").write_text("checkpoint\n")
    expected = zero_layout.write(tmp_path / "plain", Run(stage=3, frozen=FROZEN))
    assert bits(built(tmp_path)) == bits(expected)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_nothing_of_the_training_is_in_the_output(tmp_path, stage):
    zero_layout.write(tmp_path / "source", Run(stage=stage))
    for path in build(tmp_path).rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes()


@pytest.mark.parametrize("run", [replace(BUILT[1], dtype=torch.float32), *VARIANTS.values()], ids=str)
def test_deepspeeds_own_script_agrees(tmp_path, run):
    script = pytest.importorskip("deepspeed.utils.zero_to_fp32")
    zero_layout.write(tmp_path / "source", run)
    if run.stage:
        theirs = script.get_fp32_state_dict_from_zero_checkpoint(str(tmp_path / "source"))
        ours = read(tmp_path / "source", masters=True)
        assert bits({name: ours[name] for name in theirs}) == bits({n: torch.as_tensor(v) for n, v in theirs.items()})
