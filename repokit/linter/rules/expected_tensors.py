"""What the weights must hold by config.json, worked out once for all rules that ask: the architecture's skeleton.

Rules that look at names and headers alone ask here first whether the skeleton has judged the same tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from repokit.architectures import ConfigUnusable, Evidence, NotCovered, evidence, skeleton
from repokit.architectures.comparison import Comparison, compare
from repokit.architectures.prefixes import renamed
from repokit.architectures.suggestions import Cause, Expand, Suggestion, suggest
from repokit.errors import InputError
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.quantization import AWQ_FILE, GPTQ_FILE, MODELOPT_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.architectures import Skeleton
    from repokit.repo.config import Config
    from repokit.repo.repository import Repository

Shapes = dict[str, tuple[int, ...]]
SIDE_FILES: Final = (GPTQ_FILE, AWQ_FILE, MODELOPT_FILE)  # where a quantizer may say what it did, beside config.json


@dataclass
class Judgement:
    """The weights of a repository, held against the skeleton of its config.json.

    Attributes:
        skeleton: What must be there.
        config: config.json, parsed.
        held: Name -> shape of what is there.
        comparison: What differs.
        expand: Another config and class -> what must be there under it.
    """

    skeleton: Skeleton
    config: Mapping[str, Any]
    held: Shapes
    comparison: Comparison
    expand: Expand

    @property
    def verified(self) -> bool:
        """Whether the skeleton is known to be exact, so that what differs is an error."""
        return self.skeleton.evidence is Evidence.VERIFIED

    @cached_property
    def suggestion(self) -> Suggestion | None:
        """The one change that explains what differs, if there is one."""
        return suggest(self.skeleton, self.config, self.held, self.comparison, expand=self.expand)

    @property
    def explanation(self) -> str | None:
        """The same, as the hint of a finding."""
        return None if self.suggestion is None else self.suggestion.text

    @cached_property
    def misnamed(self) -> list[str]:
        """Names that only have the wrong prefix."""
        if self.suggestion is None or self.suggestion.cause is not Cause.NAMES:
            return []
        return [name for name in self.comparison.unexpected if self._renamed(name) != name]

    def _renamed(self, name: str) -> str:
        for rename in self.suggestion.renames if self.suggestion else ():
            name = rename.of(name)
        return name

    @cached_property
    def rest(self) -> Comparison:
        """What differs beside the names that only have the wrong prefix; names as they would be without it."""
        if not self.misnamed or self.suggestion is None:
            return self.comparison
        held, now = self.held, self.comparison
        for rename in self.suggestion.renames:
            held = renamed(held, rename, now.unexpected) or held
            now = compare(self.skeleton, held)
        return now

    @property
    def mistaken(self) -> Suggestion | None:
        """The suggestion, where the weights are those of another class than config.json names."""
        found = self.suggestion
        if found is None or found.cause is not Cause.ARCHITECTURE:
            return None
        other_way_round = bool(self.comparison.unexpected) and bool(
            self.comparison.missing or self.comparison.misshapen
        )
        return found if other_way_round or found.part is not None else None


@dataclass(frozen=True)
class _Outcome:
    """A judgement, or why there is none."""

    judgement: Judgement | None = None
    uncovered: str | None = None  # None: nothing to judge
    unusable: ConfigUnusable | None = None


def judgement(repository: Repository) -> Judgement | None:
    """The weights against the skeleton; None where there is nothing to judge, or nothing to judge it by.

    Raises:
        MissingInput: The weights are not all there.
        MalformedFile: A file of them, or config.json, does not parse.
    """
    return _outcome(repository).judgement


def judged_right(repository: Repository) -> bool:
    """Whether a verified skeleton finds everything as it should be: then no heuristic need look."""
    try:
        judged = judgement(repository)
    except InputError:
        return False  # weights that are not all there: heuristics look at what is
    return judged is not None and judged.verified and judged.comparison.exact


def torn(repository: Repository) -> list[str]:
    """Tensors of layers that hold parts of two forms of which loaders take one."""
    try:
        judged = judgement(repository)
    except InputError:
        return []
    return [] if judged is None else judged.rest.torn


def explanation(repository: Repository) -> str | None:
    """The one change that explains what differs, as a hint; None where nothing differs or nothing explains it."""
    judged = judgement(repository)
    return None if judged is None else judged.explanation


def mistaken(repository: Repository) -> bool:
    """Whether the weights are those of another class than config.json names, which a rule says."""
    judged = judgement(repository)
    return judged is not None and judged.verified and judged.mistaken is not None


def unusable(repository: Repository) -> ConfigUnusable | None:
    """What in config.json keeps a verified skeleton from being expanded."""
    return _outcome(repository).unusable


def uncovered(repository: Repository) -> str | None:
    """Why weights that are there are not held against config.json; None where they are, or where none are."""
    return _outcome(repository).uncovered


def _outcome(repository: Repository) -> _Outcome:
    return repository.remember(("skeleton", CONFIG), lambda: _judge(repository))


def _judge(repository: Repository) -> _Outcome:
    config, weights = repository.config, repository.weights
    if config is None or not config.model_type or not weights.files or weights.of_adapter:
        return _Outcome()
    if (code := _own_class(config)) is not None:
        return _Outcome(uncovered=f"{printable(code, 60)} is code of the repository")
    try:
        wanted = expected(repository)
    except NotCovered as error:
        return _Outcome(uncovered=str(error))
    except ConfigUnusable as error:
        known = evidence(config.model_type, config.architectures[0]) is Evidence.VERIFIED
        verified = known or repository.live is not None  # transformers itself refuses it
        return _Outcome(unusable=error) if verified else _Outcome(uncovered=str(error))
    if wanted is None:
        return _Outcome()
    held = {name: tensor.shape for name, tensor in weights.whole.items()}

    def expand(other: Mapping[str, Any], architecture: str) -> Skeleton:
        plain = skeleton(other, architecture)
        return (as_stored(repository, plain, other) or plain) if weights.quantized else plain

    return _Outcome(Judgement(wanted, config.raw, held, compare(wanted, held), expand))


def expected(repository: Repository) -> Skeleton | None:
    """The tensors that the weights must hold; None: not said, because a quantizer that nobody names rewrote them.

    Raises:
        NotCovered: There is no skeleton for the class.
        ConfigUnusable: None follows from the config.
    """
    config = repository.config
    if config is None:
        return None
    wanted = skeleton(config.raw) if repository.live is None else repository.live.best(config.raw)
    return as_stored(repository, wanted, config.raw) if repository.weights.quantized else wanted


def as_stored(repository: Repository, wanted: Skeleton, config: Mapping[str, Any]) -> Skeleton | None:
    """The tensors as the declared method of quantization stores them; None: none is declared.

    Raises:
        NotTransformed: How it stores them is not known.
    """
    from repokit.architectures.quantized import stored  # only where weights are quantized

    held = {name: tensor.shape for name, tensor in repository.weights.whole.items()}
    beside = next(filter(None, map(repository.document, SIDE_FILES)), None)
    found = stored(wanted, config, held, beside=None if beside is None else beside.raw)
    return None if found is None else found.as_skeleton


_AUTO_MAP: Final = "auto_map"


def _own_class(config: Config) -> str | None:
    """The class of config.json that code of the repository defines, or how its config is read."""
    mapped = config.mapping(_AUTO_MAP)
    if mapped is None:
        return None
    for auto, target in mapped.raw.items():
        if auto.startswith(("AutoConfig", "AutoModel")):
            return next(iter(config.architectures), None) or printable(target, 60)
    return None
