"""`repokit build` of checkpoints that lie in parts, and of a LoRA merge, beside what the libraries do with them.

    python tests/bench/checkpoints.py [--folder DIR] [--gigabytes N]

It needs torch, transformers and peft, which write the inputs and are what is compared with, and five times as much disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, Run, beside, best, run, show
from models import write_llama, write_recipe

_ROUNDS = 3
_GIGABYTE = 1_000 * MEGABYTE
_LAYER = 101 * MEGABYTE  # of write_llama, in bfloat16
_LARGEST = 131 * MEGABYTE  # its embedding

# ---------------------------------------------------------------- what the libraries do, each in a process of its own

_DISTRIBUTED = """
import sys, torch
import torch.distributed.checkpoint as dcp
from pathlib import Path
from safetensors.torch import load_file
place = Path(sys.argv[1])
dcp.save({"model": load_file(place / "model.safetensors")}, checkpoint_id=place / "sharded", no_dist=True)
(place / "model.safetensors").unlink()
"""
_CONSOLIDATE = """
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
work = Path(sys.argv[2])
dcp_to_torch_save(sys.argv[1], work / "whole.pt")
save_file(torch.load(work / "whole.pt", mmap=True)["model"], work / "model.safetensors", {"format": "pt"})
"""
_ADAPTER = """
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("meta"):
    base = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]), dtype=torch.bfloat16)
targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules=targets, task_type="CAUSAL_LM"))
state = {
    name.replace(".default", ""): torch.randn(tensor.shape) * 0.01
    for name, tensor in model.state_dict().items()
    if "lora_" in name
}
model.peft_config["default"].base_model_name_or_path = "bench/base"
model.peft_config["default"].inference_mode = True
from pathlib import Path
from safetensors.torch import save_file
Path(sys.argv[2]).mkdir()
model.peft_config["default"].save_pretrained(sys.argv[2])
save_file(state, Path(sys.argv[2]) / "adapter_model.safetensors", {"format": "pt"})
"""
_MERGE = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
PeftModel.from_pretrained(base, sys.argv[2]).merge_and_unload().save_pretrained(sys.argv[3])
"""
_SAVE = """
import sys, torch
from transformers import AutoModelForCausalLM
AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).save_pretrained(sys.argv[2])
"""


def library(program: str, *arguments: Path) -> Run:
    """What a person would run; the last argument is where it writes, which is emptied before."""
    shutil.rmtree(arguments[-1], ignore_errors=True)
    arguments[-1].mkdir()
    return run([sys.executable, "-c", program, *arguments])


def built(recipe: Path, *, jobs: int = 2) -> Run:
    """A build into a place that is free."""
    shutil.rmtree(recipe.parent / "built", ignore_errors=True)
    return run([*REPOKIT, "build", recipe, "--jobs", str(jobs), "-q"])


def changed(recipe: Path, **keys: object) -> Path:
    """The recipe with other keys."""
    document = json.loads(recipe.read_text(encoding="utf-8"))
    recipe.write_text(json.dumps({**document, **keys}), encoding="utf-8")
    return recipe


# ---------------------------------------------------------------- the measurements


def distributed(work: Path, size: int) -> list[Line]:
    """A folder of torch.distributed.checkpoint becomes safetensors."""
    source = work / "source"
    write_llama(source, layers=size // _LAYER, dtype="BF16")
    run([sys.executable, "-c", _DISTRIBUTED, source])
    recipe = write_recipe(work / "distributed", source, shards="50GB")
    ours, theirs = best(
        partial(built, recipe), partial(library, _CONSOLIDATE, source / "sharded", work / "theirs"), rounds=_ROUNDS
    )
    return [
        beside("DCP folder, against dcp_to_torch_save + save_file", ours, theirs, 1),
        Line("its peak memory", ours.peak / MEGABYTE, 200, "MB", detail=f"theirs {theirs.peak / MEGABYTE:,.0f} MB"),
    ]


def merged(work: Path, size: int) -> list[Line]:
    """A LoRA of rank 16 on every linear layer goes into its base."""
    base = work / "source"
    write_llama(base, layers=size // _LAYER, dtype="BF16")
    run([sys.executable, "-c", _ADAPTER, base, work / "adapter"])
    recipe = changed(
        write_recipe(work / "merged", work / "adapter", shards="50GB"),
        kind="full",
        base={"id": "bench/base", "path": str(base)},
    )
    ours, theirs = best(
        partial(built, recipe), partial(library, _MERGE, base, work / "adapter", work / "theirs"), rounds=_ROUNDS
    )
    return [
        beside("LoRA merge, against peft's on the processor", ours, theirs, 1),
        Line(
            "its peak memory",
            ours.peak / MEGABYTE,
            200 + _LARGEST / MEGABYTE,
            "MB",
            detail=f"theirs {theirs.peak / MEGABYTE:,.0f} MB",
        ),
    ]


def parallel(work: Path, size: int) -> list[Line]:
    """The same dtype re-sharded, by one job and by two, and what transformers takes to load and save it."""
    write_llama(work / "source", layers=size // _LAYER, dtype="BF16")
    recipe = write_recipe(work / "parallel", work / "source")
    two, one, saved = best(
        partial(built, recipe, jobs=2),
        partial(built, recipe, jobs=1),
        partial(library, _SAVE, work / "source", work / "saved"),
        rounds=_ROUNDS,
    )
    return [
        beside("two jobs, against one", two, one, 1.5),
        beside("re-sharded, against transformers' load + save", two, saved, 2),
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--gigabytes", type=int, default=2, help="of weights; 2 by default")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    chosen = arguments.parse_args()
    size = chosen.gigabytes * _GIGABYTE
    lines = []
    for part in (distributed, merged, parallel):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
            if shutil.disk_usage(work).free < 5 * size:
                raise SystemExit(f"{work}: {5 * chosen.gigabytes} GB of free disk are needed")
            lines += part(Path(work), size)
    show(lines)


if __name__ == "__main__":
    main()
