"""Tensors that are what one process held of a weight: ZeRO-3 and FSDP leave them where nothing gathered the weights.

Such a file looks whole, by its names: a merge or a save from one process wrote shapes of (0,), or a flat part.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, prod
from typing import TYPE_CHECKING, Final, cast

from repokit.builder import fitting, naming
from repokit.builder.checkpoints.sliced_weights import SlicedWeights
from repokit.errors import MissingInput, UnsupportedSource
from repokit.printable import count, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.builder.checkpoints.sources import Checkpoint

Shape = tuple[int, ...]

_PARAMETERS: Final = (".weight", ".bias")
_FLAT: Final = ("flat_param", "_flat_param")  # torch/distributed/fsdp/_flat_param.py
MAX_PROCESSES: Final = 65_536
_MOST: Final = 0.9  # of the tensors, to be parts of one number of processes, before a config is believed
_WHY: Final = "loaders fill the rest with random values, or stop at the shape"
_GATHER: Final = "gather the weights where it was trained: accelerator.get_state_dict(model), then save_pretrained"
_REFUSED: Final = "save it with SHARDED_STATE_DICT or FULL_STATE_DICT where it was trained"


def check_whole(checkpoint: Checkpoint) -> None:
    """Refuses a checkpoint of parts, naming the tensors.

    Raises:
        UnsupportedSource: They are FSDP's flat parameters.
        MissingInput: They are empty, or one process's part of what config.json tells.
    """
    tensors = checkpoint.tensors
    root = str(checkpoint.root / (checkpoint.file or ""))
    if flat := [name for name in tensors if name.rpartition(".")[2] in _FLAT]:
        what = f"holds {count(len(flat), 'flat parameter')} of FSDP, in which the weights of a module have no names"
        raise UnsupportedSource(f"{what}: {some(flat)}", path=root, hint=_REFUSED)
    if empty := [name for name, at in tensors.items() if 0 in at.shape and f".{name}".endswith(_PARAMETERS)]:
        what = f"has {count(len(empty), 'weight')} of no elements: {some(empty)}"
        why = f"ZeRO-3 and FSDP leave them so where they are not gathered; {_WHY}"
        raise MissingInput(what, why=why, path=root, hint=_gathering(checkpoint))
    pairs = dict(_against_config(checkpoint))
    if isinstance(checkpoint.weights, SlicedWeights):
        _check_slices(pairs, root)
    _check_shares(pairs, root)


def _gathering(checkpoint: Checkpoint) -> str:
    """Where the values are to be had."""
    if not any(path.endswith("_optim_states.pt") for path in checkpoint.repository.files):
        return _GATHER
    files = some(checkpoint.weights.files)
    return f"the values lie in DeepSpeed's files beside it: move {files} away, then build again"


def _against_config(checkpoint: Checkpoint) -> Iterator[tuple[str, tuple[Shape, Shape]]]:
    """Shapes beside those that config.json tells, of the tensors whose name and shape it does."""
    wanted = fitting.wanted_tensors(checkpoint.config)
    if wanted is None:
        return
    names = naming.repaired(checkpoint.tensors, in_module=bool(checkpoint.weights.container))
    shapes: Mapping[str, tuple[int | None, ...]] = wanted.shapes
    for name, final in names.items():
        known = shapes.get(final)
        if known is not None and None not in known:
            yield name, (checkpoint.tensors[name].shape, cast("Shape", known))


def _check_slices(pairs: Mapping[str, tuple[Shape, Shape]], root: str) -> None:
    """Slices do not say how large the whole is; config.json does.

    Raises:
        MissingInput: The last ones are missing.
    """
    short = [name for name, (shape, wanted) in pairs.items() if _differing(shape, wanted) is not None]
    if short:
        shape, wanted = pairs[short[0]]
        what = f"lacks slices of {count(len(short), 'tensor')}: {some(short)}"
        why = f"together they are {list(shape)}, and config.json says {list(wanted)}"
        raise MissingInput(
            what, why=why, path=root, hint="copy every process's files; or config.json is another model's"
        )


def _check_shares(pairs: Mapping[str, tuple[Shape, Shape]], root: str) -> None:
    shares = {name: share for name, (shape, wanted) in pairs.items() if (share := _share(shape, wanted)) is not None}
    flat = [name for name in shares if len(pairs[name][0]) < len(pairs[name][1])]
    if not flat and len(shares) < _MOST * len(pairs):
        return
    (processes, times), *_ = Counter(shares[name] for name in flat or shares).most_common(1) or [(0, 0)]
    if processes and times > 1:
        names = [name for name, share in shares.items() if share == processes]
        shape, wanted = pairs[names[0]]
        what = f"holds what one of {processes} processes had of {count(len(names), 'tensor')}: {some(names)}"
        why = f"{list(shape)} of the first, where config.json says {list(wanted)}; {_WHY}"
        raise MissingInput(what, why=why, path=root, hint=_GATHER)


def _share(shape: Shape, wanted: Shape) -> int | None:
    """Of how many processes one holds such a part of a tensor; None where it is no such part."""
    held, whole = prod(shape), prod(wanted)
    if not 0 < held < whole:
        return None
    if len(shape) == 1 < len(wanted):
        processes = ceil(whole / held)
        return processes if processes <= MAX_PROCESSES and ceil(whole / processes) == held else None
    dimension = _differing(shape, wanted)
    return None if dimension is None or wanted[dimension] % shape[dimension] else wanted[dimension] // shape[dimension]


def _differing(shape: Shape, wanted: Shape) -> int | None:
    """The one dimension in which a shape is shorter; None where it is another kind of shape."""
    if len(shape) != len(wanted):
        return None
    differing = [place for place, (one, other) in enumerate(zip(shape, wanted, strict=True)) if one != other]
    return differing[0] if len(differing) == 1 and shape[differing[0]] < wanted[differing[0]] else None
