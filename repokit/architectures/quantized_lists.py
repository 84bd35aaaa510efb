"""Lists of modules in a config, each read as the program that owns it reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from repokit.architectures.member import Kind
from repokit.architectures.quantized_expressions import Clock, looks_at_numbers

_PLAIN: Final = re.compile(r"[\w.-]*")
_DIGIT: Final = re.compile(r"\d")
_LAYER: Final = re.compile(r"[^.]+\.\d+(?:\.|$)")
_REGEX: Final = "re:"
_FEW: Final = 500  # entries that are tried one by one


class ModuleList:
    """Names and expressions.

    Attributes:
        numbered: Whether it may tell apart modules that differ only in their numbers.
        unread: Expressions that were not run.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.numbered = False
        self.unread: list[str] = []
        self._tails: frozenset[str] = frozenset()

    def expression(self, entry: str, pattern: str | None = None) -> re.Pattern[str] | None:
        """An entry as an expression, ready to run; None where it will not be. `pattern`: what the entry stands for."""
        self.numbered = self.numbered or looks_at_numbers(entry)
        found = self.clock.compiled(entry if pattern is None else pattern)
        if found is None:
            self.unread.append(entry)
        return found

    def plain(self, entries: Iterable[str]) -> tuple[str, ...]:
        """Entries that are names."""
        names = tuple(entries)
        self.numbered = self.numbered or any(map(_DIGIT.search, names))
        return names

    def alike(self, names: Iterable[str]) -> None:
        """Takes note of names that may be those of modules under another prefix, as versions have given several."""
        self._tails = frozenset(map(_tail, names))

    def otherwise(self, name: str) -> bool | None:
        """The answer for a module that no entry stands for: None where one does under another prefix."""
        return None if self.unread or _tail(name) in self._tails else False

    def any_match(self, expressions: Sequence[re.Pattern[str]], name: str) -> bool | None:
        """Whether one of them fits from the start; None: that cannot be said."""
        if any(self.clock.match(expression, name) for expression in expressions):
            return True
        return self.otherwise(name)


class SkipList(ModuleList):
    """transformers' list of modules that are not converted (5.24 quantizers/quantizers_utils.py).

    `should_convert_module`: an entry stands for a module and all below it, is an expression that fits up to a dot or
    the end, or is the end of a name, in the middle of a word too.
    """

    def __init__(self, entries: Iterable[str], clock: Clock) -> None:
        super().__init__(clock)
        every = tuple(entries)
        self._names = frozenset(self.plain(entry for entry in every if _PLAIN.fullmatch(entry)))
        self._ends = frozenset(self.plain(every))
        self._few_ends = tuple(self._ends) if len(self._ends) <= _FEW else ()
        self._starts = tuple(entry for entry in self._names if entry.endswith("."))
        self.alike(self._names)
        others = [entry for entry in every if entry not in self._names]
        found = (self.expression(entry, rf"(?:{entry})(?:(?<=\.)|(?=\.|$))") for entry in others)
        self._expressions = [expression for expression in found if expression is not None]

    def covers(self, name: str) -> bool | None:
        """Whether the module is left alone; None: cannot be said."""
        if self._ends_so(name) or name.startswith(self._starts) or not self._names.isdisjoint(_above(name)):
            return True
        return self.any_match(self._expressions, name)

    def _ends_so(self, name: str) -> bool:
        if self._few_ends or not self._ends:
            return name.endswith(self._few_ends)
        return any(name[start:] in self._ends for start in range(len(name) + 1))


class PartList(ModuleList):
    """AutoAWQ's list (0.2.9 utils/module.py, `exclude_layers_to_not_quantize`): parts of names inside a layer."""

    def __init__(self, entries: Iterable[str], clock: Clock) -> None:
        super().__init__(clock)
        self._entries = self.plain(entries)

    def covers(self, name: str) -> bool | None:
        """Whether the module is left alone; None: cannot be said, for so long a list is nobody's."""
        if len(self._entries) > _FEW:
            return None
        inside = _inside_layer(name)
        return any(entry in inside for entry in self._entries)


class WildcardList(ModuleList):
    """ModelOpt's `exclude_modules`: names in which `*` stands for anything, and all below a name."""

    def __init__(self, entries: Iterable[str], clock: Clock) -> None:
        super().__init__(clock)
        every = tuple(entries)
        self._names = frozenset(self.plain(entry for entry in every if "*" not in entry))
        self.alike(self._names)
        wild = [entry for entry in every if "*" in entry]
        self.plain(wild)
        found = (self.expression(_wildcards(entry)) for entry in wild)
        self._expressions = [expression for expression in found if expression is not None]

    def covers(self, name: str) -> bool | None:
        """Whether the module is left alone; None: cannot be said."""
        if not self._names.isdisjoint(_above(name)):
            return True
        return self.any_match(self._expressions, name)


class Targets(ModuleList):
    """Targets and `ignore` of compressed-tensors (0.20.1 utils/match.py): a name, `re:` an expression, or a class."""

    def __init__(self, entries: Iterable[str], clock: Clock) -> None:
        super().__init__(clock)
        self.entries = sorted(set(entries), key=lambda entry: (_REGEX in entry, entry))  # as match_targets has them
        self._names = frozenset(self.plain(entry for entry in self.entries if not entry.startswith(_REGEX)))
        self._expressions = {
            entry: self.expression(entry.removeprefix(_REGEX)) for entry in self.entries if entry.startswith(_REGEX)
        }
        self._running = [expression for expression in self._expressions.values() if expression is not None]

    def covers(self, name: str, classes: frozenset[str]) -> bool | None:
        """Whether an entry stands for the module; None: cannot be said."""
        if name in self._names or not self._names.isdisjoint(classes):
            return True
        return self.any_match(self._running, name)

    def fitting(self, name: str, classes: frozenset[str]) -> Iterator[str]:
        """The entries that stand for the module, the most special first."""
        if name in self._names:
            yield name
        for entry, expression in self._expressions.items():
            if expression is not None and self.clock.match(expression, name):
                yield entry
        yield from (entry for entry in sorted(classes) if entry in self._names)


class Overrides(ModuleList):
    """GPTQModel's `dynamic`: expression -> settings; `-:` before it leaves the module alone, `+:` is the default."""

    def __init__(self, entries: Mapping[str, Any], clock: Clock) -> None:
        super().__init__(clock)
        self._entries: list[tuple[re.Pattern[str] | None, Mapping[str, Any] | None]] = []
        for key, values in entries.items():
            pattern = key[2:] if key.startswith(("+:", "-:")) else key
            settings = None if key.startswith("-:") else values if isinstance(values, Mapping) else {}
            self._entries.append((self.expression(pattern), settings))

    def find(self, name: str) -> tuple[bool | None, Mapping[str, Any]]:
        """Whether the module is quantized, and with which settings beside; None: cannot be said."""
        for expression, settings in self._entries:
            if expression is None:
                return None, {}
            if self.clock.match(expression, name):
                return settings is not None, settings or {}
        return True, {}


def classes_of(kind: Kind) -> frozenset[str]:
    """The classes of torch that a module of this kind is of, which a target may name."""
    if kind is Kind.EMBEDDING:
        return frozenset({"Embedding", "Module"})
    return frozenset({"Linear", "Module"})


def _tail(name: str) -> str:
    """A name from its list of layers on; its last part, where it is in none."""
    found = _LAYER.search(name)
    return name.rpartition(".")[2] if found is None else name[found.start() :]


def _above(name: str) -> Iterator[str]:
    """The name, and what it lies in."""
    yield name
    while (dot := name.rfind(".")) >= 0:
        name = name[:dot]
        yield name


def _inside_layer(name: str) -> str:
    """What follows the number of the layer."""
    found = re.search(r"\.\d+\.", name)
    return name if found is None else name[found.end() :]


def _wildcards(entry: str) -> str:
    return ".*".join(re.escape(piece) for piece in re.split(r"\*+", entry)) + "$"


Covers = Callable[[str], bool | None]


def one_of(names: Sequence[str], covers: Covers) -> bool | None:
    """The answer for a module that has several names; None where they give different ones."""
    answers = {covers(name) for name in names}
    return answers.pop() if len(answers) == 1 else None
