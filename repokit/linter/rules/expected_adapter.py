"""What an adapter must hold by the config of its base, worked out once for all rules that ask.

The config of the base is at hand where the caller gives it (`Repository.base`), or where it lies beside the adapter as
many trainers leave it. Nothing is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from repokit.architectures import ConfigUnusable, Evidence, NotCovered, skeleton
from repokit.repo.adapter import ADAPTER_CONFIG, Adapter, adapters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.architectures.adapters import AdapterComparison, AdapterTensors
    from repokit.architectures.adapters_suggestions import Suggestion
    from repokit.repo.repository import Repository

MOST_CLASSES: Final = 8  # of one model type, where the adapter does not say on which it was trained


@dataclass
class Held:
    """An adapter, held against its base.

    Attributes:
        adapter: The adapter.
        path: Its weights.
        architecture: The class of the base.
        wanted: What must be there.
        comparison: What differs.
        certain: The adapter says on which class it was trained.
    """

    adapter: Adapter
    path: str
    architecture: str
    wanted: AdapterTensors
    comparison: AdapterComparison
    certain: bool

    @property
    def verified(self) -> bool:
        """Whether the class of the base, and its skeleton, are known for sure, so that what differs is an error."""
        return self.certain and self.wanted.evidence is Evidence.VERIFIED

    @property
    def differences(self) -> int:
        """How many tensors differ."""
        return len(self.comparison.missing) + len(self.comparison.unexpected) + len(self.comparison.misshapen)

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The one cause that explains what differs."""
        from repokit.architectures.adapters_suggestions import suggestion

        return suggestion(self.wanted, self.comparison)

    @property
    def hint(self) -> str | None:
        """The same, in words."""
        return None if self.suggestion is None else self.suggestion.text


def held(repository: Repository) -> tuple[Held, ...]:
    """Every adapter of a repository whose base is known.

    Raises:
        MalformedFile: A file does not parse.
    """
    return repository.remember(("adapters", "held"), lambda: tuple(_held(repository)))


def uncovered(repository: Repository) -> str | None:
    """Why an adapter whose base is at hand is not held against it; None where all are, or there is none."""
    known = (
        one for one in adapters(repository) if one.weights is not None and base_config(repository, one) is not None
    )
    reasons = (_judged(repository, one) for one in known)
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _held(repository: Repository) -> Iterator[Held]:
    for one in adapters(repository):
        if one.weights is not None and isinstance(judged := _judged(repository, one), Held):
            yield judged


def _judged(repository: Repository, one: Adapter) -> Held | str:
    return repository.remember(("held", one.config.path), lambda: _judge(repository, one))


def base_config(repository: Repository, one: Adapter) -> Mapping[str, Any] | None:
    """config.json of the base: given by the caller, or beside the adapter; None where neither is."""
    if repository.base is not None:
        return repository.base
    beside = repository.document(one.config.path.removesuffix(ADAPTER_CONFIG) + "config.json")
    return None if beside is None or "model_type" not in beside else beside.raw


def _judge(repository: Repository, one: Adapter) -> Held | str:
    """The adapter against the class that it fits best, of those on which it may have been trained."""
    config = base_config(repository, one)
    if config is None:
        return "the config of the base model is not at hand"
    if config.get("auto_map") is not None:
        return "the base model is code of its repository"
    from repokit.architectures.adapters import adapter, architectures, compare  # only where there is an adapter

    tensors = {tensor.name: tensor.shape for tensor in one.tensors}
    names = architectures(config, one.config.raw)[:MOST_CLASSES]
    certain = bool(one.config.raw.get("task_type") or one.config.raw.get("auto_mapping"))
    best: Held | None = None
    why = "config.json of the base model names no class that is known"
    for name in names:
        try:
            base = skeleton(config, name) if repository.live is None else repository.live.best(config, name)
            wanted = adapter(base, one.config.raw)
        except (NotCovered, ConfigUnusable) as error:
            why = str(error)
            if name == names[0]:
                return why  # what is likeliest is not known: the others would be guesses
            continue
        judged = Held(one, one.weights or "", name, wanted, compare(wanted, tensors), certain)
        if best is None or judged.differences < best.differences:
            best = judged
        if not best.differences:
            break
    return why if best is None else best


def without(found: AdapterComparison, names: set[str]) -> AdapterComparison:
    """What differs beside tensors that other rules have named, themselves or with their module."""

    def is_named(name: str) -> bool:
        while name and name not in names:
            name = name.rpartition(".")[0]
        return bool(name)

    return replace(
        found,
        missing=tuple(name for name in found.missing if not is_named(name)),
        unexpected=tuple(name for name in found.unexpected if not is_named(name)),
        misshapen=tuple(one for one in found.misshapen if not is_named(one[0])),
    )
