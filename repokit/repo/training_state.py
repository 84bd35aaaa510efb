"""What trainers and launchers leave beside the weights: never published, and an error where it was."""

from __future__ import annotations

import re
from typing import Final

# transformers trainer.py, accelerate checkpointing.py, deepspeed engine.py `_copy_recovery_script`.
PATTERN: Final = (
    r"(?:.*/)?(?:(?:optimizer|scheduler|scaler|sampler|dl_state_dict)(?:_\d+)?\.(?:pt|bin|safetensors)"
    r"|rng_state(?:_\d+)?\.pth|random_states_\d+\.pkl|training_args(?: \(\d+\))?\.bin|trainer_state\.json"
    r"|custom_checkpoint_\d+\.pkl|user_content\.pt|rank\d+-of-\d+-optimizer\.pt|optimizer_\d+/.*"
    r"|global_step\d+/.*|zero_pp_rank_.*|.*_optim_states\.pt|mp_rank_\d+_model_states\.pt|zero_to_(?:fp32|torch)\.py"
    r"|pytorch_model_fsdp_\d+/.*)"
)
_STATE: Final = re.compile(PATTERN)
# Parts that torch.distributed.checkpoint, verl, FSDP and DINOv2 write, one file a process.
_PART: Final = re.compile(
    r"\.distcp$|(?:^|/)(?:model|optim|extra_state)_world_size_\d+_rank_\d+\.pt$|[._]rank_?\d+\.(?:pt|pth|bin)$"
)
_CHECKPOINT: Final = re.compile(r"(?:.*/)?checkpoint-\d+/.*")


def is_training_state(path: str) -> bool:
    """Whether a file is optimizer, scheduler or random state, arguments or logs of a run."""
    return _STATE.fullmatch(path) is not None


def is_part(path: str) -> bool:
    """Whether a file is what one process of a distributed training saved, which no loader reads by itself."""
    return _PART.search(path) is not None


def in_checkpoint(path: str) -> bool:
    """Whether a file lies in a `checkpoint-N` folder of a run."""
    return _CHECKPOINT.fullmatch(path) is not None
