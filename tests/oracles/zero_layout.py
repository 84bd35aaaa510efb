"""Writes ZeRO checkpoints as DeepSpeed does, and merges them again: from its documentation, where it is not installed.

What is written follows deepspeed/runtime/engine.py (`save_checkpoint`) and the optimizers' `state_dict`; the files of
a run of DeepSpeed 0.19.8 on two and three processes were compared with these by hand. How they are merged is written
down straight from what the layout means, with torch, and shares no line with repokit.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

STEP = "global_step4"
CANARY = "CANARY-of-the-training"


@dataclass(frozen=True)
class Run:
    """How a model was trained.

    Attributes:
        stage: Of ZeRO; 0 divides nothing.
        ranks: Processes.
        dtype: What the model was computed in.
        frozen: Names that the optimizer does not have.
        tied: Names of parameters that are another one.
        groups: How many groups the optimizer has: matrices and the rest, where there are two.
        lean: Whether the padding at the end is cut off (stage 1 and 2), as newer versions do.
        aligned: Whether there is padding behind every parameter (stage 1 and 2, `parameter_alignment`).
        sub_group: How many parameters a flat tensor of stage 3 has at most.
        prefix: Of every name in the module.
    """

    stage: int = 3
    ranks: int = 2
    dtype: torch.dtype = torch.bfloat16
    frozen: tuple[str, ...] = ()
    tied: tuple[tuple[str, str], ...] = ()
    groups: int = 1
    lean: bool = True
    aligned: bool = False
    sub_group: int | None = None
    prefix: str = ""


def parameters() -> dict[str, torch.Tensor]:
    """A model of a few hundred values in full precision, its sizes no multiples of anything."""
    shapes = {
        "model.embed_tokens.weight": (13, 7),
        "model.layers.0.mlp.up_proj.weight": (11, 7),
        "model.layers.0.mlp.down_proj.weight": (7, 11),
        "model.layers.0.input_layernorm.weight": (7,),
        "model.layers.0.scale": (),
        "model.norm.weight": (7,),
    }
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def buffers() -> dict[str, torch.Tensor]:
    return {"model.position_ids": torch.arange(5)[None], "model.inv_freq": torch.linspace(0, 1, 3)}


def write(folder: Path, run: Run) -> dict[str, torch.Tensor]:
    """Writes a checkpoint.

    Returns:
        What the optimizer trained, in full precision, and everything else as it was in the model.
    """
    step = folder / STEP
    step.mkdir(parents=True)
    (folder / "latest").write_text(STEP)
    (folder / "zero_to_fp32.py").write_text("# DeepSpeed's own script")
    masters = {run.prefix + name: value for name, value in parameters().items()}
    others = {run.prefix + name: value for name, value in buffers().items()}
    frozen = {run.prefix + name for name in run.frozen}
    tied = {run.prefix + one: run.prefix + other for one, other in run.tied}
    trained = {name: value for name, value in masters.items() if name not in frozen}
    groups = grouped(trained, run.groups)
    if run.stage and run.stage < 3 and run.ranks > 1:
        groups = [round_robin(group, run.ranks) for group in groups]
    common = {
        "buffer_names": list(others),
        "optimizer": None if run.stage else {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        "param_shapes": [OrderedDict((name, value.shape) for name, value in group.items()) for group in groups]
        if run.stage
        else None,
        "frozen_param_shapes": {name: masters[name].shape for name in masters if name in frozen}
        if run.stage > 1
        else None,
        "shared_params": tied if run.stage else None,
        "lr_scheduler": None,
        "global_steps": 4,
        "dp_world_size": run.ranks,
        "mp_world_size": 1,
        "ds_config": {
            "bf16": {"enabled": run.dtype is torch.bfloat16},
            "fp16": {"enabled": run.dtype is torch.float16},
        },
        "ds_version": "0.19.8",
        "client_note": CANARY,
    }
    with deepspeed_classes() as classes:
        parts = {"masters": masters, "others": others, "tied": tied, "frozen": frozen, "common": common}
        (_write_whole if run.stage < 3 else _write_placeholders)(step, run, **parts)
        if run.stage:
            _write_optimizers(step, run, groups, classes)
    as_saved = {name: value.to(run.dtype) if name in frozen else value for name, value in masters.items()}
    return as_saved | others | {one: as_saved[other] for one, other in tied.items()}


def grouped(trained: Mapping[str, torch.Tensor], groups: int) -> list[dict[str, torch.Tensor]]:
    if groups == 1:
        return [dict(trained)]
    matrices = {name: value for name, value in trained.items() if value.dim() > 1}
    return [matrices, {name: value for name, value in trained.items() if name not in matrices}]


def round_robin(group: Mapping[str, torch.Tensor], ranks: int) -> dict[str, torch.Tensor]:
    """The order in which stage 2 lays parameters down, so that the gradients of neighbours belong to several ranks."""
    names = [name for rank in range(ranks) for name in list(group)[rank::ranks]]
    return {name: group[name] for name in names}


def _write_whole(step, run, *, masters, others, tied, frozen, common) -> None:
    """Of stage 0 to 2: the module whole, its parameters views of one flat buffer."""
    flat = torch.cat([value.reshape(-1) for value in masters.values()]).to(run.dtype)
    module, offset = OrderedDict(), 0
    for name, value in masters.items():
        module[name] = flat[offset : offset + value.numel()].view(value.shape)
        offset += value.numel()
    module |= {one: module[other] for one, other in tied.items()}
    fragments = {name: module[name] for name in masters if name in frozen} if run.stage > 1 else None
    state = {"module": module | others, **common, "frozen_param_fragments": fragments}
    torch.save(state, step / "mp_rank_00_model_states.pt")


def _write_placeholders(step, run, *, masters, others, tied, frozen, common) -> None:
    """Of stage 3: the parameters empty, and of what is frozen a share in the file of every rank."""
    empty = torch.empty(0, dtype=run.dtype)
    module = OrderedDict((name, empty) for name in (*masters, *tied)) | others
    for rank in range(run.ranks):
        fragments = {name: share(masters[name].to(run.dtype), rank, run.ranks) for name in masters if name in frozen}
        state = {"module": module, **common, "frozen_param_fragments": fragments}
        torch.save(state, step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")


def share(value: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's part of a parameter, filled up at its end with what is no value of it."""
    length = -(-value.numel() // ranks)
    padded = torch.full((length * ranks,), 777.0, dtype=value.dtype)
    padded[: value.numel()] = value.reshape(-1)
    return padded[rank * length : (rank + 1) * length].clone()


def _write_optimizers(step, run, groups, classes) -> None:
    prefix = "bf16_" if run.dtype is torch.bfloat16 else ""
    for rank in range(run.ranks):
        state: dict[str, Any] = {
            "loss_scaler": classes["LossScaler"](),
            "overflow": False,
            "zero_stage": classes["ZeroStageEnum"](run.stage),
        }
        if run.stage == 3:
            flats = [_flat([share(value, rank, run.ranks) for value in part]) for part in _sub_groups(run, groups)]
            state |= {"partition_count": run.ranks, "fp32_flat_groups": flats}
            state["optimizer_state_dict"] = {"state": {0: {"exp_avg": torch.ones(5), "note": CANARY}}}
        else:
            flats, paddings = _partitions(run, groups, rank)
            state |= {"partition_count": [run.ranks] * len(groups), "single_partition_of_fp32_groups": flats}
            state["base_optimizer_state"] = {"state": {0: {"exp_avg": torch.ones(5), "note": CANARY}}}
            if run.aligned:
                state["param_alignment_paddings"] = paddings
        saved = {"optimizer_state_dict": state, "ds_config": {"bf16": {"enabled": True}}, "ds_version": "0.19.8"}
        torch.save(saved, step / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def _sub_groups(run: Run, groups) -> list[list[torch.Tensor]]:
    """The parameters of stage 3's flat tensors: no sub-group has those of two groups."""
    parts = []
    for group in groups:
        values = list(group.values())
        size = run.sub_group or len(values)
        parts += [values[first : first + size] for first in range(0, len(values), size)]
    return parts


def _flat(parts: list[torch.Tensor]) -> torch.Tensor:
    """As stage 3 keeps it: a tensor with an attribute of its own, which changes how it is pickled."""
    flat = torch.cat([part.reshape(-1) for part in parts]).requires_grad_()
    flat.ds_id = "0,1"
    return flat


def _partitions(run: Run, groups, rank: int) -> tuple[list[torch.Tensor], list[list[int]]]:
    flats, paddings = [], []
    for group in groups:
        pieces, behind = [], []
        values = list(group.values())
        for number, value in enumerate(values):
            pieces.append(value.reshape(-1))
            length = sum(piece.numel() for piece in pieces)
            padding = -length % 8 if run.aligned and number < len(values) - 1 else 0
            pieces.append(torch.full((padding,), 555.0))
            behind.append(padding)
        vector = torch.cat(pieces)
        length = vector.numel()
        vector = torch.nn.functional.pad(vector, (0, -length % (2 * run.ranks)), value=333.0)
        part = vector.numel() // run.ranks
        first, end = rank * part, (rank + 1) * part
        flats.append(vector[first : max(first, min(end, length)) if run.lean else end])
        paddings.append(behind)
    return flats, paddings


@contextmanager
def deepspeed_classes() -> Iterator[dict[str, type]]:
    """The classes of DeepSpeed that its pickles name: its own where it is installed, else ones of the same names."""
    names = {"deepspeed.runtime.zero.config": "ZeroStageEnum", "deepspeed.runtime.fp16.loss_scaler": "LossScaler"}
    made = {
        "ZeroStageEnum": Enum("ZeroStageEnum", {f"stage_{n}": n for n in range(4)}),
        "LossScaler": type("LossScaler", (), {"cur_scale": 1.0}),
    }
    modules = {}
    for dotted, name in names.items():
        made[name].__module__ = dotted
        made[name].__qualname__ = name
        parts = dotted.split(".")
        for length in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:length]), ModuleType(".".join(parts[:length])))
        setattr(modules[dotted], name, made[name])
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield made
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


# ---------------------------------------------------------------- merged again


def merged(folder: Path) -> dict[str, torch.Tensor]:
    """The parameters of the optimizer in full precision, what is frozen, and the buffers: from the files alone."""
    step = folder / (folder / "latest").read_text()
    with deepspeed_classes():
        optimizers = [_load(path)["optimizer_state_dict"] for path in _by_rank(step, "*_optim_states.pt")]
        models = [_load(path) for path in _by_rank(step, "*_model_states.pt")]
        stage = optimizers[0]["zero_stage"].value
    first = models[0]
    found = {name: first["module"][name] for name in first["buffer_names"]}
    if stage == 3:
        found |= _merged_by_parameter(first, [torch.cat(state["fp32_flat_groups"]) for state in optimizers])
        for name, shape in (first["frozen_param_shapes"] or {}).items():
            whole = torch.cat([model["frozen_param_fragments"][name] for model in models])
            found[name] = whole[: shape.numel()].view(shape)
    else:
        found |= _merged_by_group(first, [state["single_partition_of_fp32_groups"] for state in optimizers], optimizers)
        found |= first["frozen_param_fragments"] or {
            name: first["module"][name]
            for name in first["module"]
            if name not in found and name not in first["shared_params"]
        }
    return found | {one: found[other] for one, other in first["shared_params"].items()}


def _by_rank(step: Path, pattern: str) -> list[Path]:
    return sorted(step.glob(pattern), key=lambda path: int(path.name.split("rank_")[1].split("_")[0]))


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=False)


def _merged_by_parameter(first, ranks: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    found, offset = {}, 0
    for name, shape in ((name, shape) for group in first["param_shapes"] for name, shape in group.items()):
        length = -(-shape.numel() // len(ranks))
        found[name] = torch.cat([flat[offset : offset + length] for flat in ranks])[: shape.numel()].view(shape)
        offset += length
    return found


def _merged_by_group(first, ranks: list[list[torch.Tensor]], optimizers) -> dict[str, torch.Tensor]:
    found = {}
    for number, group in enumerate(first["param_shapes"]):
        vector, offset = torch.cat([flats[number] for flats in ranks]), 0
        paddings = optimizers[0].get("param_alignment_paddings", [[0] * len(group)] * (number + 1))[number]
        for (name, shape), padding in zip(group.items(), paddings, strict=True):
            found[name] = vector[offset : offset + shape.numel()].view(shape)
            offset += shape.numel() + padding
    return found
