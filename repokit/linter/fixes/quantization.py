"""Declarations of quantized weights, by what is stored."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.fix import Edit, Fix, SetJson
from repokit.linter.fixes.names import renamed
from repokit.linter.rules.quantization import packed_though_listed, plain_though_unlisted
from repokit.linter.rules.quantization_scales import unfit
from repokit.printable import count, printable
from repokit.repo.config import CONFIG
from repokit.repo.document import Document
from repokit.repo.quantization import Declared, declaration, quantization, skip_list
from repokit.schema.document import steps

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository


def with_skip_list(repository: Repository, finding: Finding) -> Fix | None:
    """The list of plain modules by the weights: those that are packed out of it, those that are plain in it."""
    facet = quantization(repository)
    skipped = None if facet.declared is None else skip_list(facet.declared)
    if facet.declared is None or skipped is None or not finding.place:
        return None
    raw = facet.declared.config.raw.get(skipped.key)
    listed = list(raw) if isinstance(raw, list) else []
    packed = packed_though_listed(facet, skipped)
    if packed:
        wrong = set(packed.values())
        covers = skipped._replace(names=tuple(wrong)).covers()
        if any(covers(name) for module in facet.modules if not module.quantized for name in module.names):
            return None  # the entry stands for plain modules too
        kept = [entry for entry in listed if entry not in wrong]
        title = f"take {', '.join(printable(entry, 80) for entry in sorted(wrong))} out of {skipped.key}"
        return Fix(title, (SetJson(CONFIG, finding.place, kept),))
    if plain := plain_though_unlisted(facet, skipped):
        title = f"add {count(len(plain), 'module')} in full precision to {skipped.key}"
        return Fix(title, (SetJson(CONFIG, finding.place, [*listed, *plain]),))
    return None


def with_drafts(repository: Repository, finding: Finding) -> Fix | None:
    """The list with every module that drafts tokens and is stored plain."""
    declared = quantization(repository).declared
    skipped = None if declared is None else skip_list(declared)
    raw = None if declared is None or skipped is None else declared.config.raw.get(skipped.key)
    if not isinstance(raw, list) or not finding.place or skipped is None:
        return None
    title = f"add {count(len(finding.names), 'module')} to {skipped.key}"
    return Fix(title, (SetJson(CONFIG, finding.place, [*raw, *finding.names]),))


# ---------------------------------------------------------------- bits and groups

_NUMBERS: Final = frozenset({"bits", "group_size", "num_bits", "w_bit", "q_group_size"})
_BITS: Final = (2, 3, 4, 8)
_WHOLE_COLUMNS: Final = frozenset({"gptq", "awq", "auto-round"})  # -1 is one group a column
_GROUPS: Final = (-1, 8, 16, 32, 64, 128, 256, 512, 1024)


def with_groups(repository: Repository, _finding: Finding) -> Fix | None:
    """The one number of bits, or size of groups, with which every packed weight has its shape."""
    facet = quantization(repository)
    if facet.declared is None or repository.config is None:
        return None
    declared = facet.declared
    whole = () if declared.method in _WHOLE_COLUMNS else (-1,)
    found = [
        (place, value)
        for place, said in _numbers(declared.config.raw)
        for value in (_BITS if "bit" in place[-1] else _GROUPS)
        if value not in {said, *whole} and not _misfits(repository, _with(declared, place, value))
    ]
    if len(found) > 1:  # other widths may fill as many integers, of other inputs than the architecture has
        found = [one for one in found if _is_expected(repository, _with(declared, *one))]
    if len(found) != 1:
        return None
    place, value = found[0]
    pointer = declared.config.at(*place)
    edits: list[Edit] = [SetJson(CONFIG, pointer, value)]
    # MLX writes its object under both keys.
    other = repository.config.mapping("quantization_config")
    if declared.method == "mlx" and other is not None and other.pointer != declared.config.pointer:
        edits.append(SetJson(CONFIG, other.at(*place), value))
    title = f"set {'.'.join(place)} to {value}, by the shapes of the packed weights"
    return Fix(title, tuple(edits))


def _numbers(raw: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    for key, value in raw.items():
        if isinstance(value, Mapping) and len(place) < 4:
            yield from _numbers(value, (*place, key))
        elif key in _NUMBERS and type(value) is int:
            yield (*place, key), value


def _with(declared: Declared, place: tuple[str, ...], value: int) -> Declared:
    raw = copy.deepcopy(dict(declared.config.raw))
    inner: Any = raw
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    config = Document(declared.config.path, raw, declared.config.pointer)
    return Declared(config, declared.method) if declared.method == "mlx" else declaration(config)


def _is_expected(repository: Repository, declared: Declared) -> bool:
    """Whether the weights are those of the architecture, stored as this declaration says."""
    from repokit.architectures import ConfigUnusable, NotCovered, skeleton
    from repokit.architectures.comparison import compare
    from repokit.linter.rules.expected_tensors import as_stored

    config, place = repository.config, declared.config.pointer
    if config is None or place.count("/") != 1:
        return False
    changed = {**config.raw, steps(place)[0]: declared.config.raw}
    try:
        wanted = as_stored(repository, skeleton(changed), changed)
    except (NotCovered, ConfigUnusable):
        return False
    held = {name: tensor.shape for name, tensor in repository.weights.whole.items()}
    return wanted is not None and compare(wanted, held).exact


def _misfits(repository: Repository, declared: Declared) -> bool:
    return any(True for module in quantization(repository).stored for _ in unfit(module, declared))


# ---------------------------------------------------------------- names of scales


def with_scale_names(repository: Repository, finding: Finding) -> Fix | None:
    """Scales under the name that readers of the method look for: their values are multiplied in both spellings."""
    found = _SPELLED.search(finding.message)
    if found is None:
        return None
    mapping = {f"{module}.{found['old']}": f"{module}.{found['new']}" for module in finding.names}
    if not mapping.keys() <= repository.weights.tensors.keys():
        return None
    title = f"rename {found['old']} to {found['new']} in {count(len(mapping), 'module')}"
    return renamed(repository, mapping, title)


_SPELLED: Final = re.compile(r"has `(?P<old>weight_scale\w*)` where .* `(?P<new>weight_scale\w*)`")


# ---------------------------------------------------------------- single values


def as_float(repository: Repository, finding: Finding) -> Fix | None:
    """An integer where the class asks for a float, as one."""
    value: Any = repository.json(finding.path)
    for step in steps(finding.place or ""):
        value = value.get(step) if isinstance(value, dict) else None
    if type(value) is not int or not finding.place or not math.isfinite(float(value)):
        return None
    if "float" not in finding.message:
        return None
    title = f"write {steps(finding.place)[-1]} as {float(value)}"
    return Fix(title, (SetJson(finding.path, finding.place, float(value)),))


def as_declared(repository: Repository, finding: Finding) -> Fix | None:
    """The quantizer's own file as config.json has it."""
    from repokit.repo.quantization import SIDE_FILES

    declared = quantization(repository).declared
    key = steps(finding.place or "/")[-1]
    ours = SIDE_FILES.get(finding.path, {}).get(key)
    if declared is None or ours is None or ours not in declared.config or not finding.place:
        return None
    value = declared.config.raw[ours]
    title = f"set {key} of {finding.path} to {printable(value, 40)}, as {CONFIG} has it"
    return Fix(title, (SetJson(finding.path, finding.place, value),))
