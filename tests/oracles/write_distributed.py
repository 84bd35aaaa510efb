"""Writes distributed checkpoints as torch and accelerate do, with processes of its own: `write_distributed.py MODELS OUT`.

MODELS holds the oracle repositories `llama` and `llama-tied`. The processes are forked: torch is imported once.
"""

from __future__ import annotations

import logging
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "float8_e4m3fn",
)
CANARY = 12345.678
PLACEMENTS = {1: {"row": [Shard(0)], "column": [Shard(1)], "whole": [Replicate()]}}
PLACEMENTS[2] = {
    "row": [Shard(0), Replicate()],
    "column": [Replicate(), Shard(1)],
    "grid": [Shard(0), Shard(1)],
    "twice": [Shard(0), Shard(0)],
    "whole": [Replicate(), Replicate()],
}


def tensors(mesh=None) -> dict[str, torch.Tensor]:
    """Every dtype in every placement, uneven on purpose; and what is the same on every process."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for dtype in DTYPES:
        for placement, over in PLACEMENTS[1 if mesh is None else mesh.ndim].items():
            whole = (torch.rand(7, 6, generator=generator) * 20).to(getattr(torch, dtype))
            found[f"{dtype}.{placement}"] = whole if mesh is None else shared(whole, mesh, over)
    found["few.rows"] = torch.rand(1, 4, generator=generator)
    if mesh is not None:
        found["few.rows"] = shared(found["few.rows"], mesh, [Shard(0)] * mesh.ndim)
    return found | {
        "float8": torch.rand(4, 4, generator=generator).to(torch.float8_e4m3fn),
        "uint16": torch.arange(6, dtype=torch.int32).to(torch.uint16),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "slice": torch.arange(24.0).reshape(4, 6)[:, 2:4],
        "transposed": torch.arange(24.0).reshape(4, 6).t(),
        "tied": found["float32.row"],
    }


def shared(whole: torch.Tensor, mesh, over) -> torch.Tensor:
    """Every process has the whole and keeps its part: gloo sends no float8."""
    return distribute_tensor(whole, mesh, over, src_data_rank=None)


def optimizer(state) -> dict[str, object]:
    name = "float32.row"
    moment = torch.full_like(state[name], CANARY)
    return {
        "state": {name: {"exp_avg": moment, "step": torch.tensor(1.0)}},
        "param_groups": [{"lr": 0.1, "params": [name]}],
    }


LAYOUTS = {
    "model": lambda state: {"model": state, "optimizer": optimizer(state), "step": 5},
    "app": lambda state: {"app": {"model": state, "optim": optimizer(state)}},
    "Lightning": lambda state: {"state_dict": state, "optimizer_0": optimizer(state)},
    "torchtitan": lambda state: {**state, "optimizer": optimizer(state), "lr_scheduler": {"last_epoch": 3}, "train_state": {"step": 5}},
    "top": lambda state: state,
}  # fmt: skip


def write(rank: int, world: int, models: Path, out: Path) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{out}/init{world}")
    mesh = init_device_mesh("cpu", (world,)) if world == 2 else init_device_mesh("cpu", (2, world // 2))
    state = tensors(mesh)
    for name, make in LAYOUTS.items():
        dcp.save(make(state), checkpoint_id=out / f"{name}-{world}")
    if world == 2:
        write_models(rank, mesh, models, out)
        write_slices(mesh, models, out)
    dist.barrier()
    dist.destroy_process_group()


def write_models(rank: int, mesh, models: Path, out: Path) -> None:
    """FSDP as accelerate saves it, with its own functions."""
    from accelerate.utils import fsdp_utils
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp.fully_sharded_data_parallel import StateDictType
    from transformers import AutoModelForCausalLM

    fsdp_utils.logger = logging.getLogger("accelerate")  # its own wants a whole Accelerator
    accelerator = SimpleNamespace(process_index=rank, num_processes=2, wait_for_everyone=dist.barrier)
    for name in ("llama", "llama-tied"):
        for kind in (StateDictType.SHARDED_STATE_DICT, StateDictType.FULL_STATE_DICT):
            model = AutoModelForCausalLM.from_pretrained(models / name, dtype="auto")
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            plugin = SimpleNamespace(
                state_dict_type=kind,
                state_dict_config=SimpleNamespace(offload_to_cpu=False, rank0_only=False),
                optim_state_dict_config=SimpleNamespace(offload_to_cpu=False, rank0_only=False),
                fsdp_version=2,
                cpu_ram_efficient_loading=False,
            )
            learner = torch.optim.AdamW(model.parameters(), lr=0.0)
            model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
            learner.step()
            folder = out / f"{name}-{kind.name.split('_')[0].lower()}"
            save_fsdp_model(plugin, accelerator, model, str(folder))
            save_fsdp_optimizer(plugin, accelerator, learner, model, str(folder))
    if rank == 0:
        for folder in out.glob("llama*-*"):
            finish(models / folder.name.rpartition("-")[0], folder)


def finish(model: Path, folder: Path) -> None:
    """What accelerate and a trainer leave beside the weights."""
    for path in model.iterdir():
        if not path.name.startswith("model") and path.is_file():
            shutil.copy(path, folder / path.name)
    torch.save({"random": torch.full((4,), CANARY)}, folder / "random_states_0.pkl")
    torch.save({"last_epoch": 3}, folder / "scheduler.bin")


def write_slices(mesh, models: Path, out: Path) -> None:
    """With torch's writer of safetensors: slices, and slices with what it makes of them."""
    from safetensors.torch import load_file

    whole = load_file(models / "llama" / "model.safetensors")
    state = {
        name: shared(tensor, mesh, [Shard(index % tensor.ndim)]) for index, (name, tensor) in enumerate(whole.items())
    }
    for name, consolidated in (("slices", False), ("consolidated", True)):
        writer = HuggingFaceStorageWriter(str(out / name), save_distributed=True, enable_consolidation=consolidated)
        dcp.save(state, storage_writer=writer)


def main() -> None:
    models, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True)
    warnings.filterwarnings("ignore")
    dcp.save({"model": tensors(), "optimizer": optimizer(tensors())}, checkpoint_id=out / "model-1", no_dist=True)
    for world in (2, 4):
        torch.multiprocessing.start_processes(write, args=(world, models, out), nprocs=world, start_method="fork")
    for name in ("slices", "consolidated"):
        finish(models / "llama", out / name)


if __name__ == "__main__":
    main()
