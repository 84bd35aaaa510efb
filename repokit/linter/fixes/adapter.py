"""Adapters: ranks and names by the weights, keys that say nothing taken out."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.fix import DropJson, Edit, EditTensors, Fix, SetJson
from repokit.linter.rules.adapter import plain_lora
from repokit.linter.rules.adapter_config import LEGACY, TASKS
from repokit.linter.rules.adapter_names import HEADLESS, OLD, WITH_HEAD
from repokit.printable import count, printable
from repokit.repo.adapter import adapters, plain_pattern
from repokit.repo.adapter_names import NAMED, PREFIX
from repokit.repo.card import is_repo_id
from repokit.schema.document import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.linter.finding import Finding
    from repokit.repo.adapter import Adapter
    from repokit.repo.repository import Repository


def adapter_of(repository: Repository, finding: Finding) -> Adapter | None:
    """The adapter whose config or weights a finding is about."""
    return next((one for one in adapters(repository) if finding.path in {one.config.path, one.weights}), None)


def with_base_of_card(repository: Repository, finding: Finding) -> Fix | None:
    """The one base model that the card names."""
    card = repository.card
    bases = () if card is None else card.base_models
    if len(bases) != 1 or not is_repo_id(bases[0]) or finding.path != "adapter_config.json" or not finding.place:
        return None
    title = f"set base_model_name_or_path to {printable(bases[0], 80)}, which the card names"
    return Fix(title, (SetJson(finding.path, finding.place, bases[0]),))


# ---------------------------------------------------------------- ranks


def with_ranks(repository: Repository, finding: Finding) -> Fix | None:
    """Rank and rank_pattern by the rows of A; lora_alpha is a person's, and stays."""
    adapter = adapter_of(repository, finding)
    if adapter is None or not plain_lora(adapter) or not adapter.pairs:
        return None
    if not all(pair.rank is not None and pair.fits for pair in adapter.pairs.values()):
        return None
    ranks = {module: pair.rank or 0 for module, pair in adapter.pairs.items()}
    said = adapter.config.integer("r")
    usual = said if said in ranks.values() else Counter(ranks.values()).most_common(1)[0][0]
    old = adapter.config.mapping("rank_pattern")
    written: Mapping[str, Any] = {} if old is None else old.raw
    if any(plain_pattern(pattern) is None for pattern in written) or usual is None:
        return None
    patterns = rank_pattern(ranks, usual, written)
    edits: list[Edit] = [SetJson(adapter.config.path, "/r", usual)] if usual != said else []
    edits += [SetJson(adapter.config.path, "/rank_pattern", patterns)] if patterns != written else []
    told = [f"set r to {usual}"] if usual != said else []
    told += ["write rank_pattern by the weights"] if patterns != written else []
    return Fix(" and ".join(told), tuple(edits)) if edits else None


def rank_pattern(ranks: Mapping[str, int], usual: int, written: Mapping[str, Any]) -> dict[str, Any]:
    """Pattern to rank for the modules that have not the usual one; those that are written and right stay.

    PEFT takes the first pattern that matches the end of a path (peft 0.21 utils/other.py get_pattern_key).
    """
    kept: dict[str, Any] = {}
    for pattern, value in written.items():
        matched = [module for module in ranks if _ends(module, pattern)]
        if matched and all(ranks[module] == value for module in matched):
            kept[pattern] = value
    left = {module: rank for module, rank in ranks.items() if not any(_ends(module, pattern) for pattern in kept)}
    kinds: dict[str, set[int]] = {}
    for module, rank in left.items():
        kinds.setdefault(module.rpartition(".")[2], set()).add(rank)
    for module, rank in left.items():
        if rank != usual:
            kind = module.rpartition(".")[2]
            kept[kind if len(kinds[kind]) == 1 else module.removeprefix(PREFIX)] = rank
    return kept


def _ends(module: str, pattern: str) -> bool:
    return f".{module}".endswith(f".{plain_pattern(pattern)}")


# ---------------------------------------------------------------- keys


def with_known_type(repository: Repository, finding: Finding) -> Fix | None:
    """The method in capitals, which is how PEFT looks it up; LoRA where the weights are nothing else."""
    adapter = adapter_of(repository, finding)
    kind = None if adapter is None else adapter.config.string("peft_type")
    if adapter is not None and "peft_type" not in adapter.config and _is_lora(adapter):
        return Fix("set peft_type to LORA, of which the weights are", (SetJson(finding.path, "/peft_type", "LORA"),))
    if kind is None or not finding.place:
        return None
    return Fix(f"set peft_type to {kind.upper()}", (SetJson(finding.path, finding.place, kind.upper()),))


def _is_lora(adapter: Adapter) -> bool:
    """Whether all tensors are the two factors of LoRA, and the config has its settings."""
    factors = sum((pair.a is not None) + (pair.b is not None) for pair in adapter.pairs.values())
    return bool(factors) and factors == len(adapter.names) and {"r", "lora_alpha"} <= adapter.config.raw.keys()


def without_legacy(repository: Repository, finding: Finding) -> Fix | None:
    """Without keys of PEFT 0.2, where they say nothing: `enable_lora` once chose parts of a fused matrix."""
    adapter = adapter_of(repository, finding)
    if adapter is None or any(adapter.config.raw.get(key) not in (None, False) for key in LEGACY):
        return None
    return without_keys(repository, finding)


def without_keys(repository: Repository, finding: Finding) -> Fix | None:
    """Without the keys that a finding names."""
    adapter = adapter_of(repository, finding)
    if adapter is None or not finding.names:
        return None
    edits = tuple(DropJson(finding.path, adapter.config.at(key)) for key in finding.names)
    return Fix(f"remove {', '.join(printable(key, 60) for key in finding.names)}", edits)


def with_known_value(repository: Repository, finding: Finding) -> Fix | None:
    """A task that differs from PEFT's in case and marks alone."""
    adapter = adapter_of(repository, finding)
    task = None if adapter is None else adapter.config.string("task_type")
    if task is None or not finding.place or steps(finding.place)[-1] != "task_type":
        return None
    bare = {re.sub("_", "", known): known for known in TASKS}
    known = bare.get(re.sub(r"[\W_]", "", task).upper())
    if known is None:
        return None
    return Fix(f"set task_type to {known}", (SetJson(finding.path, finding.place, known),))


def with_known_key(repository: Repository, finding: Finding) -> Fix | None:
    """A key under the name that was meant, where the config does not have that one too."""
    from repokit.schema.adapter_types import unknown_keys

    adapter = adapter_of(repository, finding)
    key = steps(finding.place or "/")[-1]
    if adapter is None or not finding.place:
        return None
    meant = next((one.meant for one in unknown_keys(adapter.config.raw) if one.key == key), None)
    if meant is None or meant in adapter.config:
        return None
    edits = (
        SetJson(finding.path, adapter.config.at(meant), adapter.config.raw[key]),
        DropJson(finding.path, finding.place),
    )
    return Fix(f"rename {printable(key, 60)} to {meant}", edits)


# ---------------------------------------------------------------- names of tensors


def renamed(repository: Repository, finding: Finding, rename: Callable[[str], str], title: str) -> Fix | None:
    """The weights of an adapter under other names, where no two become one."""
    adapter = adapter_of(repository, finding)
    if adapter is None or adapter.weights is None:
        return None
    mapping = {name: new for name in adapter.names if (new := rename(name)) != name}
    if not mapping or len({mapping.get(name, name) for name in adapter.names}) != len(adapter.names):
        return None
    return Fix(title, (EditTensors(adapter.weights, rename=mapping),))


def without_adapter_name(repository: Repository, finding: Finding) -> Fix | None:
    """The adapter's name out of every key, where there is one adapter alone."""

    def rename(name: str) -> str:
        match = NAMED.search(name)
        return name if match is None else name[: match.start("adapter") - 1] + name[match.end("adapter") :]

    segments = {match["adapter"] for name in finding.names if (match := NAMED.search(name))}
    if len(segments) != 1:
        return None
    title = f"take .{printable(segments.pop(), 60)} out of {count(len(finding.names), 'name')}"
    return renamed(repository, finding, rename, title)


_LAYER: Final = re.compile(r"model\.layers\.[0-9]+\.(?:self_attn|mlp)\.")


def with_prefix(repository: Repository, finding: Finding) -> Fix | None:
    """`base_model.model.` before every name, or in the place of one `model.`: as the task says that it must be."""
    adapter = adapter_of(repository, finding)
    if adapter is None or len(finding.names) != len(adapter.names):
        return None
    if adapter.config.string("task_type") not in WITH_HEAD:
        return None  # how many levels stand below the prefix follows from the head alone
    whole = all(_LAYER.match(name) for name in adapter.names)
    half = all(_LAYER.match(name.removeprefix("model.")) and name.startswith("model.model.") for name in adapter.names)
    if whole == half:
        return None
    cut = "model." if half else ""
    title = f"put {PREFIX} before {count(len(finding.names), 'name')}"
    return renamed(repository, finding, lambda name: PREFIX + name.removeprefix(cut), title)


def with_level(repository: Repository, finding: Finding) -> Fix | None:
    """One level less where the prefix stands twice, one more where every name lacks that of the model."""
    adapter = adapter_of(repository, finding)
    names = () if adapter is None else adapter.names
    if names and all(name.startswith(PREFIX * 2) for name in names):
        title = f"take one {PREFIX} out of {count(len(names), 'name')}"
        return renamed(repository, finding, lambda name: name.removeprefix(PREFIX), title)
    if names and all(HEADLESS.match(name) for name in names):
        title = f"put model. before layers. in {count(len(names), 'name')}"
        return renamed(repository, finding, lambda name: f"{PREFIX}model.{name.removeprefix(PREFIX)}", title)
    return None


def with_language_model(repository: Repository, finding: Finding) -> Fix | None:
    """Names as the base has them since transformers 4.52."""
    title = f"rename model.layers to model.language_model.layers in {count(len(finding.names), 'name')}"

    def rename(name: str) -> str:
        return f"{PREFIX}model.language_model.layers.{name.removeprefix(OLD)}" if name.startswith(OLD) else name

    return renamed(repository, finding, rename, title)
