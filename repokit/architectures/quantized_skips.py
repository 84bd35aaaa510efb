"""Which modules transformers leaves alone where a config lists none, and where it lists some.

transformers 5.24 quantizers/base.py: `get_keys_to_not_convert` and `get_modules_to_not_convert`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from repokit.architectures.quantized_expressions import Clock
from repokit.architectures.quantized_lists import SkipList, one_of
from repokit.architectures.quantized_parts import Module, Settings, Verdict

_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_projection|lm_head_\w+)$")


@dataclass(frozen=True)
class Defaults:
    """What a model brings along, whatever the config says.

    Attributes:
        tied: Modules whose weights are one with another's, as on disk.
        kept: Ends of names of modules that stay in 32 bits.
        names: The names of all modules, one for each pattern of them.
        biased: Modules outside the layers that have a bias.
        subclassed: The linear modules of the layers are of a class of the model's own.
        clock: For the expressions of the config.
    """

    tied: frozenset[str]
    kept: tuple[str, ...]
    names: frozenset[str]
    biased: frozenset[str]
    subclassed: bool
    clock: Clock


class Skips:
    """The modules that a method of transformers leaves alone.

    Args:
        listed: The config's own list; None: it has none, and the defaults count.
        always: The defaults count in any case.
    """

    def __init__(self, listed: SkipList | None, defaults: Defaults, *, always: bool = False) -> None:
        self.listed, self.defaults = listed, defaults
        self.by_default = listed is None or always
        self.numbered = listed is not None and listed.numbered
        self._kept = SkipList(defaults.kept, defaults.clock)

    def verdict(self, module: Module) -> Verdict:
        """Whether the list, or what stands in for it, leaves the module alone."""
        listed = False if self.listed is None else one_of(module.names, self.listed.covers)
        if listed or (listed is not None and self._tied(module)):
            return Verdict.PLAIN
        if listed is None:
            return Verdict.OPEN
        return self._unlisted(module)

    def _unlisted(self, module: Module) -> Verdict:
        """A module that no list names.

        Outside the layers little is certain: by default output embeddings stay, and the last module, which for
        versions before 5 is the last child, and for later ones a module without a bias. A head that a list does not
        name is quantized by some programs and not by others. Subclasses of nn.Linear were, before 5.
        """
        if module.router or self.defaults.subclassed or any(self._kept.covers(name) for name in module.names):
            return Verdict.OPEN
        if module.block:
            return Verdict.QUANTIZED
        embeds = _HEAD.search(module.name) and module.name not in self.defaults.biased
        return Verdict.PLAIN if self.by_default and embeds else Verdict.OPEN

    def _tied(self, module: Module) -> bool:
        return self.by_default and module.name in self.defaults.tied


def skips(settings: Settings, defaults: Defaults, *keys: str) -> Skips:
    """What a config says under the first of these keys."""
    listed = settings.strings(*keys)
    return Skips(None if listed is None else SkipList(listed, defaults.clock), defaults)
