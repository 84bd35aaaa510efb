"""The folder that DeepSpeed saves a step in: `latest`, `global_stepN/`, one file of optimizer states for each rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.formats.zero import HINT_PIPELINE
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from repokit.repo.repository import Repository

LATEST: Final = "latest"
_SHOWN: Final = 8  # ranks in a message
_MAX_TAG: Final = 4096  # bytes of `latest`, which holds one name
# deepspeed/runtime/engine.py: `_get_ckpt_name`, `_get_rank_zero_ckpt_name`. Some versions write fp16_ before these.
_MODEL: Final = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_MODEL_OF_RANK: Final = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
_OPTIMIZER: Final = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_PIPELINE: Final = re.compile(r"layer_\d+-model_(?:\d+-)?(?:\d+-)?model_states\.pt|layer_\d+-model_states\.pt")
_EXPERT: Final = re.compile(
    r"(?:layer_\d+_)?expert_\d+_mp_rank_\d+_model_states\.pt|expp_rank_\d+_mp_rank_\d+_optim_states\.pt"
)
_ANY: Final = (_MODEL, _MODEL_OF_RANK, _OPTIMIZER, _PIPELINE, _EXPERT)
_UNIVERSAL: Final = re.compile(r"zero/.+/(?:fp32|exp_avg)\.pt")
_COPY: Final = "copy the checkpoint again, from every machine that took part"


@dataclass(frozen=True)
class Layout:
    """The files of one step.

    Attributes:
        folder: In the checkpoint, with a slash at its end; "" where the checkpoint is the step.
        model: The file of model states that all ranks share; None in stage 3.
        models: Those of each rank, in stage 3.
        optimizers: The optimizer states of each rank.
    """

    folder: str
    model: str | None
    models: Mapping[int, str]
    optimizers: Mapping[int, str]


def find_layout(repository: Repository) -> Layout | None:
    """The ZeRO checkpoint in a directory: at its top, or one folder down.

    Raises:
        InputError: It is one that this version does not read, or nothing says which of several is meant.
    """
    steps: dict[str, list[str]] = {}
    for path in repository.files:
        folder, _, name = path.rpartition("/")
        if "/" not in folder and any(pattern.fullmatch(name) for pattern in _ANY):
            steps.setdefault(folder, []).append(name)
    if not steps:
        return None
    folder = _chosen(steps, repository)
    within = f"{folder}/" if folder else ""
    _refuse_others(steps[folder], within, repository)
    model = next((within + name for name in steps[folder] if _MODEL.fullmatch(name)), None)
    models = _by_rank(steps[folder], _MODEL_OF_RANK, within)
    if model is not None and models:
        what = f"is of ZeRO stage 1 or 2, and {printable(next(iter(models.values())))} of stage 3"
        hint = "move the files that are old out of the folder"
        raise InputError(what, why="the folder holds files of two runs", path=model, hint=hint)
    return Layout(
        folder=within,
        model=model,
        models=models,
        optimizers=_by_rank(steps[folder], _OPTIMIZER, within),
    )


def _chosen(steps: Mapping[str, list[str]], repository: Repository) -> str:
    """The step that is meant: the one at the top, the one that `latest` names, or the only one."""
    if "" in steps:
        return ""
    if repository.has(LATEST):
        tag = _tag(repository)
        if tag in steps:
            return tag
        what = f"names {printable(tag)}, which holds no states of DeepSpeed"
        there = f"there is {some(sorted(steps))}: write the name of one into {LATEST}"
        raise MissingInput(what, path=LATEST, hint=f"{_COPY}; {there}")
    if len(steps) > 1:
        what = f"has {count(len(steps), 'ZeRO checkpoint')} and no file `{LATEST}`: {some(sorted(steps), 6)}"
        hint = f"write the name of one into a file `{LATEST}` beside them"
        raise InputError(what, why="nothing says which of them is the model", path=LATEST, hint=hint)
    return next(iter(steps))


def _tag(repository: Repository) -> str:
    raw = repository.source.read(LATEST, 0, min(repository.files[LATEST].size, _MAX_TAG))
    try:
        tag = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise MalformedFile("is no text: it should hold the name of a folder", path=LATEST) from None
    if not tag or not tag.isprintable() or "/" in tag or "\\" in tag or tag in {".", ".."}:
        what = f"names {printable(tag, 80)!r}, which is no folder beside it"
        raise MalformedFile(what, path=LATEST, hint="write the name of the step's folder into it: global_step100")
    return tag


def _by_rank(names: Iterable[str], pattern: re.Pattern[str], folder: str) -> dict[int, str]:
    """Files by their rank, in its order: rank 10 comes after rank 9.

    Raises:
        InputError: A rank has two.
    """
    found: dict[int, str] = {}
    for name in names:
        if match := pattern.fullmatch(name):
            rank = int(match[1])
            if rank in found:
                what = f"is of rank {rank}, and so is {printable(found[rank])}"
                hint = "move the one that is old out of the folder"
                raise InputError(what, why="one of them is of another run", path=folder + name, hint=hint)
            found[rank] = folder + name
    return dict(sorted(found.items()))


def check_ranks(found: Mapping[int, str], ranks: int, folder: str, what: str) -> None:
    """Refuses a set of files in which a rank's is missing, or that has more than there were ranks.

    Args:
        found: The files by rank.
        ranks: How many there must be.
        folder: That holds them.
        what: What they are: `optimizer states`.

    Raises:
        InputError: Naming the ranks.
    """
    there = sum(rank < ranks for rank in found)
    if there < ranks:
        # Not one more than are shown: the number of ranks stands in a file, and may be any.
        missing = list(islice((rank for rank in range(ranks) if rank not in found), _SHOWN))
        more = f" and {ranks - there - len(missing):,} more" if ranks - there > len(missing) else ""
        text = f"lacks the {what} of rank {', '.join(map(str, missing))}{more}, of {count(ranks, 'rank')}"
        raise MissingInput(text, why="its share of every parameter is in it", path=folder or ".", hint=_COPY)
    if beyond := [path for rank, path in found.items() if rank >= ranks]:
        text = f"is of a rank that a run of {count(ranks, 'rank')} does not have"
        hint = "move what an earlier run left out of the folder"
        raise InputError(text, why="the folder holds files of two runs", path=beyond[0], hint=hint)


# ---------------------------------------------------------------- what is recognised and not read

_CONVERTED: Final = "load it where it was trained and call engine.save_16bit_model(DIR), or model.save_pretrained(DIR)"


def _refuse_others(names: Iterable[str], folder: str, repository: Repository) -> None:
    """Refuses by name the checkpoints of DeepSpeed that divide a model in other ways than ZeRO.

    Raises:
        UnsupportedSource: With what converts it.
    """
    beside: list[tuple[str, Callable[[str], object], str, str]] = [
        (
            "is one layer of a DeepSpeed pipeline",
            _PIPELINE.fullmatch,
            "the names of its tensors are those of the pipeline, not of the model",
            HINT_PIPELINE,
        ),
        (
            "is an expert of a DeepSpeed mixture of experts",
            _EXPERT.fullmatch,
            "experts lie in files of their own, and their optimizer states are divided between other ranks",
            _CONVERTED,
        ),
        (
            "is a DeepSpeed checkpoint of tensor parallelism",
            _is_of_another_part,
            "how its parts belong together differs with every architecture",
            HINT_PIPELINE,
        ),
    ]
    for what, matches, why, hint in beside:
        for name in names:
            if matches(name):
                raise UnsupportedSource(what, why=why, path=folder + name, hint=hint)
    for path in repository.files:
        if path.startswith(folder) and _UNIVERSAL.fullmatch(path.removeprefix(folder)):
            hint = "build from the global_stepN folder that ds_to_universal.py made it of; or " + _CONVERTED
            raise UnsupportedSource("is of a DeepSpeed universal checkpoint", path=path, hint=hint)


def _is_of_another_part(name: str) -> bool:
    """Whether a file is of another model-parallel rank than the first."""
    for pattern in (_MODEL, _MODEL_OF_RANK, _OPTIMIZER):
        if match := pattern.fullmatch(name):
            return int(match[match.lastindex or 1]) > 0
    return False
