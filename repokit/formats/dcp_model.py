"""Which tensors of a torch.distributed.checkpoint folder are the model's, and what lies beside them.

A folder holds a nested dict, as a file of torch.save does; the same words say what is what (torch_containers.py).
accelerate keeps the model under `model`, torch's recipes under `app.model`, Lightning under `model` or `state_dict`;
torchtitan keeps its tensors at the top, beside `optimizer`, `lr_scheduler` and `train_state`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from repokit.errors import UnsupportedSource
from repokit.formats.dcp import DcpMetadata
from repokit.formats.torch_containers import AVERAGE_KEYS, MAX_LEVELS, MODEL_KEYS, TRAINING_KEYS, LeftOut
from repokit.printable import count, printable, some

Keys = tuple[str, ...]

# As accelerate, Lightning, torchtitan and torchtune number and name them, beside TRAINING_KEYS.
_TRAINING: Final = re.compile(
    r"(?:optim|optimizer|optimizer_state|lr_scheduler|scheduler)s?(?:[_.]?\d+)?|train_state|dataloader(?:[_.]?\d+)?"
    r"|rng(?:_states?)?|(?:global_)?step|steps_run|epochs?_run|training_progress|profiler"
)
MAX_NAMED: Final = 20  # pickled values of the model that are named one by one


class Selected(NamedTuple):
    """The model's tensors.

    Attributes:
        container: The keys above them, joined by dots; "" where they are at the top.
        names: Their names in the checkpoint, by their keys below that, joined by dots.
        left_out: All else.
    """

    container: str
    names: Mapping[str, str]
    left_out: tuple[LeftOut, ...]


def select(metadata: DcpMetadata) -> Selected:
    """Finds the model's tensors.

    Raises:
        UnsupportedSource: There are none, or more than one place that could be meant.
    """
    keys = metadata.tensors if metadata.has_keys else _guessed(metadata.tensors, metadata.path)
    at: Keys = ()
    while (step := _choice(keys, at, metadata.path)) is not None:
        at = (*at, step)
        if len(at) > MAX_LEVELS:
            raise _refused(f"has its tensors deeper than {'.'.join(at)}", metadata.path)
    chosen = {name: path for name, path in keys.items() if path[: len(at)] == at and not _of_training(path, at)}
    names: dict[str, str] = {}
    for name, path in chosen.items():
        inner = ".".join(path[len(at) :])
        if inner in names:
            raise _refused(f"holds two tensors called {printable(inner)}", metadata.path)
        names[inner] = name
    return Selected(".".join(at), names, tuple(_left_out(metadata, keys, chosen, at)))


def is_training(key: str) -> bool:
    """Whether what lies under a key is state of the run."""
    return key in TRAINING_KEYS or _TRAINING.fullmatch(key) is not None


def _of_training(path: Keys, at: Keys) -> bool:
    """Whether a tensor lies below a key of the run, or is itself one at the top: `rng_state`."""
    return (len(path) > len(at) + 1 and is_training(path[len(at)])) or (len(path) == 1 and path[0] in TRAINING_KEYS)


def _guessed(names: Mapping[str, Keys], path: str) -> dict[str, Keys]:
    """Keys of flattened names, where nothing says where one ends: what comes before the first dot, if that is telling.

    `model.` is a key where there is training state beside it: alone, it may be how the model calls its tensors.

    Raises:
        UnsupportedSource: Of some, nothing tells whether they are state of the run.
    """
    first = {name: name.partition(".")[0] for name in names if "." in name}
    inner: dict[str, set[str]] = {}
    for name, key in first.items():
        inner.setdefault(key, set()).add(name.removeprefix(f"{key}."))
    states = {key for key, below in inner.items() if is_training(key) and _is_run(key, below)}
    if doubtful := [key for key, below in inner.items() if key not in states and is_training(key) and _is_open(below)]:
        what = f"holds {some([printable(key, 80) for key in doubtful], 6)}, state of the run or a part of the model"
        raise _refused(f"{what}, and does not say which", path)
    training = {name for name in names if first.get(name) in states or ("." not in name and is_training(name))}
    others = {first.get(name, name) for name in names if name not in training}
    inside = len(others) == 1 and bool(training) and others <= MODEL_KEYS
    return {
        name: (first[name], name.removeprefix(f"{first[name]}."))
        if name in first and (name in training or inside)
        else (name,)
        for name in names
    }


def _is_run(key: str, inner: set[str]) -> bool:
    """Whether a word of the run begins names of its state: modules are called `scaler` and `config` too."""
    return key.startswith(("optim", "lr_scheduler")) or _is_optimizer(inner)


def _is_open(inner: set[str]) -> bool:
    return not all(name.rpartition(".")[2] in {"weight", "bias"} for name in inner)


def _choice(keys: Mapping[str, Keys], at: Keys, path: str) -> str | None:
    """The key to go on with; None where the tensors are here.

    Raises:
        UnsupportedSource: A person has to say.
    """
    inside = [found for found in keys.values() if found[: len(at)] == at]
    direct = [found[-1] for found in inside if len(found) == len(at) + 1 and not is_training(found[-1])]
    below: dict[str, set[str]] = {}
    for found in inside:
        if len(found) > len(at) + 1:
            below.setdefault(found[len(at)], set()).add(found[len(at) + 1])
    holders = [key for key, inner in below.items() if not is_training(key) and not _is_optimizer(inner)]
    models = [key for key in holders if key in MODEL_KEYS]
    in_model = bool(at) and at[-1] in MODEL_KEYS
    if len(models) == 1 and not any("." in key for key in direct):
        return models[0]
    if (direct and (in_model or not holders)) or (in_model and holders and not models):
        return None
    if direct or len(models) > 1:
        raise _undecided([*models, *(key for key in holders if key not in models)], direct, at, path)
    candidates = [key for key in holders if key not in AVERAGE_KEYS] or holders
    if len(candidates) == 1:
        return candidates[0]
    raise _undecided(candidates, [], at, path) if candidates else _nothing(below, at, path)


def _is_optimizer(inner: set[str]) -> bool:
    """Whether keys are those of torch.optim.Optimizer.state_dict(); its parameter groups may hold no tensor."""
    return inner <= {"state", "param_groups"} or all(key.startswith(("state.", "param_groups.")) for key in inner)


def _undecided(holders: list[str], direct: list[str], at: Keys, path: str) -> UnsupportedSource:
    places = [".".join((*at, printable(key, 80))) for key in holders[:MAX_NAMED]]
    if direct:
        places.insert(0, ".".join(at) or "the top level")
    number = len(holders) + bool(direct)
    return _refused(f"holds tensors in {number} places, and no rule says which are the model: {some(places, 6)}", path)


def _nothing(below: Mapping[str, set[str]], at: Keys, path: str) -> UnsupportedSource:
    where = f" under {printable('.'.join(at), 80)}" if at else ""
    held = f", but {some([printable(key, 80) for key in below], 6)}" if below else ""
    return _refused(f"holds no model{where}{held}", path)


def _refused(what: str, path: str) -> UnsupportedSource:
    hint = 'name the folder of the model, or save it alone: dcp.save({"model": model.state_dict()}, checkpoint_id=DIR)'
    return UnsupportedSource(what, hint=hint, path=path)


def _left_out(
    metadata: DcpMetadata, keys: Mapping[str, Keys], chosen: Mapping[str, Keys], at: Keys
) -> Iterator[LeftOut]:
    """What is beside the model, by the key under which it lies; of the model itself, what is no tensor."""
    tensors: Counter[str] = Counter(_beside(path, at) for name, path in keys.items() if name not in chosen)
    pickled: Counter[str] = Counter()
    inner = []
    for path in metadata.pickled.values():
        if path[: len(at)] == at and at and not _of_training(path, at):
            inner.append(".".join(path))
        else:
            pickled[_beside(path, at)] += 1
    for key in dict.fromkeys([*tensors, *pickled]):
        held = [count(tensors[key], "tensor")] if tensors[key] else []
        held += [count(pickled[key], "pickled value")] if pickled[key] else []
        yield LeftOut(key, " and ".join(held), tensors[key])
    for name in inner[:MAX_NAMED]:
        yield LeftOut(name, "a pickled value, not a tensor", 0)
    if len(inner) > MAX_NAMED:
        yield LeftOut(at[0], f"{len(inner) - MAX_NAMED:,} more pickled values, not tensors", 0)


def _beside(path: Keys, at: Keys) -> str:
    """The keys down to where a path leaves the way to the model."""
    depth = next((depth for depth, key in enumerate(at) if path[depth : depth + 1] != (key,)), len(at))
    return ".".join(path[: depth + 1])
