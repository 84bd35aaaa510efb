"""Where in a base model the modules lie that an adapter names: by their names in memory, in any spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from repokit.architectures.adapters_modules import Modules, modules_of
from repokit.architectures.member import Evidence, Kind
from repokit.builder import fitting
from repokit.builder.naming import repaired
from repokit.repo.tensor_names import is_embedding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from repokit.architectures import Skeleton
    from repokit.architectures.live import Live
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import Stored, TensorAt

# Prefixes that the same module has in files of different ages and classes: with the model inside another one
# (transformers 4 and 5 moved the language model and the tower of most vision models), or without.
_MOVES: Final = (
    ("", "model."),
    ("model.", ""),
    ("model.", "model.language_model."),
    ("model.language_model.", "model."),
    ("model.", "language_model.model."),
    ("language_model.model.", "model."),
    ("model.language_model.", "language_model.model."),
    ("language_model.model.", "model.language_model."),
    ("", "language_model."),
    ("language_model.", ""),
)


@dataclass(frozen=True)
class Move:
    """What stands before names in the adapter, and before the same names in the base."""

    adapter: str
    base: str

    def of(self, path: str) -> str | None:
        """The name in the base, or None where it does not begin so."""
        return self.base + path.removeprefix(self.adapter) if path.startswith(self.adapter) else None


STAYS: Final = Move("", "")


class Places:
    """The tensors of a base model by the names that its modules have in memory.

    Attributes:
        stored: The weights of the base.
        tensors: Of the base, by stored name.
        skeleton: Of its class; None where nobody knows it.
        modules: Of the skeleton.
    """

    def __init__(self, base: Checkpoint, live: Live | None = None) -> None:
        self.stored: Stored = base.weights
        self.tensors: Mapping[str, TensorAt] = base.tensors
        self.skeleton: Skeleton | None = fitting.wanted_tensors(base.config, live)
        self.modules: Modules | None = None if self.skeleton is None else modules_of(self.skeleton)
        names = repaired(self.tensors, in_module=bool(base.weights.container))
        self._plain = {final: name for name, final in names.items()}
        self._in_memory = {self._memory_name(final): name for name, final in names.items()}

    @property
    def verified(self) -> bool:
        """Whether the skeleton is known to be that of the class."""
        return self.skeleton is not None and self.skeleton.evidence is Evidence.VERIFIED

    def _memory_name(self, name: str) -> str:
        return name if self.modules is None else self.modules.memory_name(name)

    def find(self, name: str) -> str | None:
        """The stored name of a tensor, or None where the base has none of that name."""
        return self._plain.get(name) or self._in_memory.get(self._memory_name(name))

    def move(self, paths: Iterable[str], found: Callable[[str, Move], bool]) -> Move:
        """What has to be changed in the paths of an adapter so that the base has all of them; nothing if nothing helps.

        Args:
            paths: Of the adapter's modules.
            found: Whether the base has a module once it is renamed.
        """
        every = list(paths)
        if all(found(path, STAYS) for path in every):
            return STAYS
        fitting_ = [move for move in (Move(*pair) for pair in _MOVES) if all(found(path, move) for path in every)]
        return fitting_[0] if len(fitting_) == 1 else STAYS

    def kind(self, path: str) -> Kind | None:
        """What sort of module it is, by the skeleton; None where it does not say."""
        if self.modules is None:
            return None
        path = self._memory_name(f"{path}.weight").removesuffix(".weight")
        module = self.modules.found.get(path) or self.modules.unfused.get(path)
        return None if module is None else module.kind

    def parameters(self, path: str) -> tuple[str, ...]:
        """The parameters of a module in memory, in the order in which its class makes them."""
        module = None if self.modules is None else self.modules.found.get(path)
        return () if module is None else tuple(module.own)

    def experts(self, path: str) -> list[dict[str, str]]:
        """The tensors of single experts that a module fuses in memory: for each expert, its part -> stored name."""
        pattern = re.compile(re.escape(f"{path}.") + r"([0-9]+)\.([A-Za-z0-9_]+)\.weight")
        found: dict[int, dict[str, str]] = {}
        for names in (self._plain, self._in_memory):
            for name, stored in names.items():
                if match := pattern.fullmatch(name):
                    found.setdefault(int(match[1]), {})[match[2]] = stored
        return [found[number] for number in sorted(found)] if sorted(found) == list(range(len(found))) else []

    def near(self, name: str) -> str | None:
        """The name in the base that is spelled most alike."""
        close = get_close_matches(name, self._plain, n=1, cutoff=0.8)
        return close[0] if close else None

    # ------------------------------------------------------------ ties

    def tied(self, *, stated: bool | None) -> bool:
        """Whether the head is the embedding, by the config or by the default of its class.

        Args:
            stated: What config.json says.
        """
        default = self.skeleton.environment.get("tie_word_embeddings") if self.skeleton is not None else None
        return bool(default if stated is None else stated)

    def embedding(self) -> str | None:
        """The stored name of the embedding that a head may be tied to."""
        if self.modules is not None and self.modules.embedding is not None:
            return self.find(f"{self.modules.embedding}.weight")
        return next((name for final, name in self._plain.items() if is_embedding(final)), None)

    def tied_to_it(self) -> tuple[str, ...]:
        """The modules in memory whose weight may be the embedding's; `lm_head` where nobody knows."""
        if self.modules is None:
            return ("lm_head",)
        source = self.modules.embedding
        return tuple(target for target, of in self.modules.ties.items() if of == source)
