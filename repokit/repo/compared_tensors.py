"""The tensors of two models side by side, by name: what one of them has and the other has not.

Names are compared without what wrappers and versions of transformers put before them: `model.language_model.layers.0`
and `language_model.model.layers.0` are one place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.architectures.comparison import is_legacy_buffer
from repokit.repo.tensor_names import group_names, is_embedding, is_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.repository import Repository

# Components that only say that the model is inside another one: transformers' base_model_prefix of the larger families,
# and the places of the text model in composed ones.
_CONTAINERS: Final = frozenset(
    {"model", "language_model", "transformer", "module", "backbone", "base_model"}
    | {"bert", "roberta", "distilbert", "electra", "deberta", "albert", "mpnet", "xlm_roberta", "vit", "gpt_neox"}
)
# What methods of quantization write in the place of a module's `weight`, or after the name of a parameter.
_QUANTIZED: Final = re.compile(r"_(?:blocks|scales|packed|quantized|scale_inv|scale|bias|shape)(?:_\d)?$")
_PARAMETERS: Final = frozenset({"weight", "qweight", "qzeros", "scales", "g_idx", "absmax", "SCB"})
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True)
class Part:
    """Tensors that stand together.

    Attributes:
        name: `model.visual`; `model.layers.24-31`; `model.layers.*.mlp.gate.bias`.
        count: How many.
    """

    name: str
    count: int


@dataclass(frozen=True)
class ComparedTensors:
    """What one model has and another has not.

    Attributes:
        lost: What only the other one has, as large parts as can be.
        renamed: Modules that hold other tensors in both, such as experts stored one by one and in one.
        reshaped: Tensors of both that have another shape, by pattern; those with a row per token aside.
        alike: Whether any name is in both. Where none is, nothing else is said.
    """

    lost: tuple[Part, ...] = ()
    renamed: tuple[Part, ...] = ()
    reshaped: tuple[Part, ...] = ()
    alike: bool = True


def compare_tensors(ours: Repository, theirs: Repository, *, dropped: Iterable[str] = ()) -> ComparedTensors:
    """The tensors of one model against those of another, which is often its base.

    Args:
        ours: The model; where it is quantized, shapes are not compared.
        theirs: The other one.
        dropped: Names that are missing on purpose.

    Raises:
        MalformedFile: A file of one of them has no valid header.
    """
    mine, others = ours.weights.tensors, theirs.weights.tensors
    # Most names are spelled alike in both; only the others are taken apart.
    added = {_plain(name): name for name in mine if name not in others}
    missing = {_plain(name): name for name in others if name not in mine}
    pairs = {name: name for name in mine if name in others}
    pairs |= {name: missing[place] for place, name in added.items() if place in missing}
    quantized = ours.weights.quantized or theirs.weights.quantized
    modules = _modules(map(_plain, mine)) if quantized and missing else frozenset()
    if not pairs and modules.isdisjoint(map(_module, missing)):
        return ComparedTensors(alike=not mine or not others)
    tied = ours.config is not None and ours.config.tie_word_embeddings is True
    left_out = {_plain(name) for name in dropped}
    lost = {
        place: name
        for place, name in missing.items()
        if place not in added
        and place not in left_out
        and not (quantized and _module(place) in modules)
        and not (tied and is_head(name))
        and not is_legacy_buffer(name, others[name].shape)
    }
    new = [place for place in added if place not in missing]
    renamed = _of_changed_modules(lost, map(_plain, mine), new) if lost and new else frozenset()
    gone = [name for place, name in lost.items() if place not in renamed]
    return ComparedTensors(
        lost=tuple(_parts(gone, others)) if gone else (),
        renamed=tuple(_by_pattern(sorted(_module(lost[place]) for place in renamed))),
        reshaped=() if quantized else tuple(_reshaped(mine, others, pairs)),
    )


def _plain(name: str) -> str:
    """A name without the containers before its first number."""
    if not _CONTAINERS.intersection(parts := name.split(".")):
        return name
    first = next((place for place, part in enumerate(parts) if part.isdecimal()), len(parts))
    kept = [part for part in parts[:first] if part not in _CONTAINERS]
    return ".".join([*kept, *parts[first:]])


def _module(name: str) -> str:
    """The module that a tensor belongs to; of a parameter without one, the parameter."""
    above, _, last = name.rpartition(".")
    bare = _QUANTIZED.sub("", last)
    return above if above and bare in _PARAMETERS else f"{above}.{bare}".lstrip(".")


def _modules(places: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_module, places))


def _of_changed_modules(lost: Iterable[str], plain_mine: Iterable[str], added: Iterable[str]) -> frozenset[str]:
    """Places whose module is gone where others have come into the one around it: `layers.*.mlp.experts`."""
    there = {_owner(name) for name in plain_mine}
    new = {_around(name) for name in added}
    return frozenset(place for place in lost if _owner(place) not in there and _around(place) in new)


def _owner(name: str) -> str:
    """The module of a weight or a bias; a parameter without one is its own."""
    above, _, last = name.rpartition(".")
    return above if last in {"weight", "bias"} else name


def _around(name: str) -> str:
    """The module around that of a tensor, numbers aside, inside of its block; elsewhere the tensor's own place."""
    pattern = _NUMBER.sub("*", _owner(name)).rpartition(".")[0]
    while pattern.endswith(".*"):
        pattern = pattern.removesuffix(".*")
    return pattern if "*" in pattern else name


def _parts(gone: list[str], others: Mapping[str, TensorInfo]) -> Iterator[Part]:
    """Names that are gone, as the largest modules of which nothing is left; modules in a row are drawn together."""
    total: Counter[str] = Counter(above for name in others for above in _prefixes(name))
    missing: Counter[str] = Counter(above for name in gone for above in _prefixes(name))
    whole: Counter[str] = Counter(
        next((above for above in _prefixes(name) if missing[above] == total[above]), name) for name in gone
    )
    patterns: dict[str, list[str]] = {}
    for pattern, names in group_names(f"{name}." for name in whole).items():  # a number at the end counts too
        patterns[pattern.rstrip(".")] = [name.rstrip(".") for name in names]
    for pattern, names in patterns.items():
        yield Part(_drawn(pattern, names), sum(whole[name] for name in names))


def _prefixes(name: str) -> Iterator[str]:
    """`model`, `model.visual`, ... and the name."""
    end = name.find(".")
    while end != -1:
        yield name[:end]
        end = name.find(".", end + 1)
    yield name


def _drawn(pattern: str, names: list[str]) -> str:
    """`model.layers.24-31` for modules in a row; the pattern where their numbers are elsewhere, or have gaps."""
    if len(names) == 1:
        return names[0]
    stack, _, last = pattern.rpartition(".")
    if last != "*" or "*" in stack:
        return pattern
    numbers = sorted(int(name.rpartition(".")[2]) for name in names)
    in_row = numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{stack}.{numbers[0]}-{numbers[-1]}" if in_row else pattern


def _by_pattern(names: Iterable[str]) -> Iterator[Part]:
    found: dict[str, int] = defaultdict(int)
    for name in names:
        found[_NUMBER.sub("*", name)] += 1
    return (Part(pattern, number) for pattern, number in found.items())


def _reshaped(
    mine: Mapping[str, TensorInfo], others: Mapping[str, TensorInfo], pairs: Mapping[str, str]
) -> Iterator[Part]:
    shapes = ((name, mine[name].shape, others[other].shape) for name, other in pairs.items())
    return _by_pattern(sorted(name for name, one, two in shapes if one != two and not _same_rows(one, two, name)))


def _same_rows(one: tuple[int, ...], other: tuple[int, ...], name: str) -> bool:
    """Whether two shapes differ in the number of tokens alone."""
    return one[1:] == other[1:] and (is_embedding(name) or is_head(name))
