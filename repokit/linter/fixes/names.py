"""Names of tensors: wrappers taken out, prefixes set right, in every shard and its index."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.linter.fix import Edit, EditTensors, Fix, RebuildIndex
from repokit.linter.fixes.index import is_whole
from repokit.linter.rules.expected_tensors import judgement
from repokit.printable import count, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repokit.linter.finding import Finding
    from repokit.linter.rules.expected_tensors import Judgement
    from repokit.repo.repository import Repository

# Parts that only a wrapper leaves: no architecture calls a module so.
_PARTS: Final = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# What a module could be called: taken off only where every name begins with it.
_WHOLE: Final = ("module.", "_forward_module.", "base_model.model.")
_UNMERGED: Final = re.compile(r"\.(?:base_layer|lora_(?:embedding_)?[AB])(?:\.|$)")


def unwrapped(repository: Repository, finding: Finding) -> Fix | None:
    """Every name as it was before the wrapper, where a skeleton says so or the wrapper leaves no doubt."""
    if finding.path != repository.weights.main or any(map(_UNMERGED.search, repository.weights.tensors)):
        return None  # an adapter that was not merged is in the values, not in the names
    judged = _judged(repository)
    mapping = None if judged is None else explained(judged)
    if mapping is None:
        mapping = without_wrappers(repository.weights.tensors)
        config = repository.config
        if judged is None and config is not None and "auto_map" in config and not all(map(_PARTS.search, mapping)):
            return None  # code of the repository may call a module so
        if judged is not None and judged.verified and not _is_better(judged, mapping):
            return None
    if not finding.names or not all(name in mapping for name in finding.names):
        return None
    return renamed(repository, mapping, f"rename {count(len(mapping), 'tensor')}: {_shown(mapping)}")


def _judged(repository: Repository) -> Judgement | None:
    try:
        return judgement(repository)
    except InputError:
        return None


def explained(judged: Judgement) -> dict[str, str] | None:
    """Old name to new, where renames leave nothing between the weights and a verified skeleton unexplained."""
    found = judged.suggestion
    if found is None or not found.renames or found.left or not judged.verified:
        return None
    mapping = {}
    for name in judged.misnamed:
        new = name
        for rename in found.renames:
            new = rename.of(new)
        mapping[name] = new
    return mapping or None


def without_wrappers(names: Iterable[str]) -> dict[str, str]:
    """Old name to new, of the names that have a wrapper in them, in any nesting."""
    found = {name: name for name in names}
    before: tuple[str, ...] = ()
    while before != (now := tuple(found.values())):
        before = now
        found = {name: _PARTS.sub("", current) for name, current in found.items()}
        for prefix in _WHOLE:
            if all(current.startswith(prefix) for current in found.values()):
                found = {name: current.removeprefix(prefix) for name, current in found.items()}
    return {name: new for name, new in found.items() if name != new}


def _is_better(judged: Judgement, mapping: Mapping[str, str]) -> bool:
    from repokit.architectures.comparison import compare

    held = {mapping.get(name, name): shape for name, shape in judged.held.items()}
    return compare(judged.skeleton, held).problems < judged.comparison.problems


def renamed(repository: Repository, mapping: Mapping[str, str], title: str) -> Fix | None:
    """The edits of a renaming; None where it is not one-to-one, or where the index does not fit its shards."""
    weights = repository.weights
    names = list(weights.tensors)
    if len({mapping.get(name, name) for name in names}) != len(names) or not all(mapping.values()):
        return None
    index = weights.index
    if index is not None and (not is_whole(repository, index) or any(vars(weights.placement(index)).values())):
        return None
    edits: list[Edit] = []
    for path in weights.files:
        here = {name: mapping[name] for name in (t.name for t in repository.header(path).tensors) if name in mapping}
        if here:
            edits.append(EditTensors(path, rename=here))
    if edits and index is not None:
        edits.append(RebuildIndex(index.path))
    return Fix(title, tuple(edits)) if edits else None


def _shown(mapping: Mapping[str, str]) -> str:
    name, new = next(iter(mapping.items()))
    return f"{printable(name, 80)} to {printable(new, 80)}" + (", and so on" if len(mapping) > 1 else "")
