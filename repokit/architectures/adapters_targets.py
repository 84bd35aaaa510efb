"""Which modules of the base a PEFT config chooses: the rules of peft 0.21 tuners/tuners_utils.py and utils/other.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from repokit.architectures.adapters_modules import LINEAR, Modules
from repokit.architectures.adapters_patterns import Undecided, pattern
from repokit.architectures.errors import NotCovered
from repokit.printable import printable
from repokit.resources import data

ALL_LINEAR: Final = "all-linear"
# peft 0.21 utils/constants.py SEQ_CLS_HEAD_NAMES, which peft_model.py also trains in full for these tasks.
_TASK_MODULES: Final = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
_PLAIN: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_FIRST_NUMBER: Final = re.compile(r".*?\.[^.]*\.([0-9]+)\.")


@dataclass(frozen=True)
class Settings:
    """adapter_config.json, with PEFT's defaults for what it does not say.

    Attributes:
        raw: The document.
        method: Its peft_type.
        model_type: Of the base.
    """

    raw: Mapping[str, Any]
    method: str
    model_type: str

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - a JSON value
        return self.raw[key] if key in self.raw else self._defaults.get(key)

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        known: Mapping[str, Any] = data("peft_adapters")["defaults"].get(self.method, {})
        return known

    def number(self, key: str) -> int | None:
        """A whole number; None where it is none or not positive."""
        value = self[key]
        return value if type(value) is int and value > 0 else None

    def whole(self, key: str) -> int:
        """A whole number of 0 or more; 0 where it is none."""
        value = self[key]
        return value if type(value) is int and value > 0 else 0

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; () where it is none, and without what is no text."""
        value = self[key]
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object; empty where it is none."""
        value = self[key]
        return value if isinstance(value, Mapping) else {}

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The names of modules that were trained in full, with those that the task implies."""
        implied = _TASK_MODULES.get(str(self["task_type"]), ())
        return tuple(dict.fromkeys([*self.texts("modules_to_save"), *implied]))


def decided(text: str, path: str) -> bool:
    """Whether an expression matches a whole path.

    Raises:
        NotCovered: That cannot be told.
    """
    try:
        return pattern(text).matches(path)
    except Undecided as error:
        why = f"the expression {printable(text, 80)!r} is not run: {printable(str(error), 60)}"
        raise NotCovered(why) from None


def targeted(modules: Modules, settings: Settings, paths: Iterable[str]) -> list[str]:
    """Those of the paths that the config chooses, in their order.

    Raises:
        NotCovered: The config names no targets, and PEFT has none for this model type; or its expression is not run.
    """
    names = target_names(modules, settings)
    every = names == ALL_LINEAR
    chosen = _linear(modules, settings) if every else None
    layers = _Layers(settings)
    excluded = _Excluded(settings)
    return [
        path
        for path in paths
        if (path in chosen if chosen is not None else _named(path, names, layers)) and path not in excluded
    ]


def target_names(modules: Modules, settings: Settings) -> str | tuple[str, ...]:
    """target_modules: names, an expression, or `all-linear`; where it is null what PEFT takes for the model type."""
    value = settings["target_modules"]
    if isinstance(value, str):
        return ALL_LINEAR if value.lower() == ALL_LINEAR else value
    if isinstance(value, list):
        return settings.texts("target_modules")
    default = _default_targets(modules, settings)
    if default is None and not settings["target_parameters"]:
        raise NotCovered(f"PEFT has no target_modules for {printable(modules.model_type)}, and the config names none")
    return default or ()


def _default_targets(modules: Modules, settings: Settings) -> str | tuple[str, ...] | None:
    if settings.method == "TRAINABLE_TOKENS":
        return (modules.embedding or "embed_tokens",)
    table = data("peft_adapters")["targets"]
    mapping = table.get(settings.method, {})
    value = (table[mapping] if isinstance(mapping, str) else mapping).get(modules.model_type)
    return tuple(value) if isinstance(value, list) else value


def _linear(modules: Modules, settings: Settings) -> set[str]:
    """Every linear module but the one that gives the logits, or the classes."""
    linear = {path for path, module in modules.found.items() if module.kind in LINEAR}
    if modules.head is not None:
        linear.discard(modules.head)
    elif settings["task_type"] == "SEQ_CLS":
        head = next((name for name in ("score", "classifier") if name in modules.paths), None)
        linear.discard(head or "")
    return linear


class _Layers:
    """`layers_to_transform`, which holds for names that match by their end."""

    def __init__(self, settings: Settings) -> None:
        wanted = settings["layers_to_transform"]
        self._all = wanted is None or wanted == []
        numbers = wanted if isinstance(wanted, list) else [wanted]
        self._wanted = frozenset(number for number in numbers if type(number) is int)
        given = settings["layers_pattern"]
        names = [given] if isinstance(given, str) and given else list(settings.texts("layers_pattern"))
        self._names = [] if self._all else [_before_number(name) for name in names]

    def __contains__(self, path: str) -> bool:
        if self._all:
            return True
        searches = self._names or [_FIRST_NUMBER]
        match = next((found for search in searches if (found := search.match(path))), None)
        return match is not None and int(match[1]) in self._wanted


def _before_number(name: str) -> re.Pattern[str]:
    if not _PLAIN.fullmatch(name):
        raise NotCovered(f"layers_pattern {printable(name, 80)!r} is not run")
    return re.compile(rf"(?:^|.*?\.){re.escape(name)}\.([0-9]+)\.")


class _Excluded:
    """`exclude_modules`, and the modules that were trained in full."""

    def __init__(self, settings: Settings) -> None:
        value = settings["exclude_modules"]
        self._pattern = value if isinstance(value, str) and value else None
        names = settings.texts("exclude_modules")
        self._names, self._ends = frozenset(names), tuple(f".{name}" for name in names)
        self._saved = [rf"(?:^|.*\.){name}(?:$|\..*)" for name in settings.saved if not _PLAIN.fullmatch(name)]
        self._plain = [name for name in settings.saved if _PLAIN.fullmatch(name)]

    def __contains__(self, path: str) -> bool:
        if path in self._names or path.endswith(self._ends):
            return True
        if self._pattern is not None and decided(self._pattern, path):
            return True
        inside = f".{path}."
        return any(f".{name}." in inside for name in self._plain) or any(decided(text, path) for text in self._saved)


def _named(path: str, names: str | tuple[str, ...], layers: _Layers) -> bool:
    if isinstance(names, str):
        return decided(names, path)
    if path in names:
        return True
    return path.endswith(tuple(f".{name}" for name in names)) and path in layers


def check_spelling(modules: Modules, settings: Settings, chosen: Iterable[str]) -> None:
    """Refuses a config that chooses modules by names that they had in an older version of transformers.

    Raises:
        NotCovered: It does: which of them were adapted cannot be told from the names of today.
    """
    found = set(chosen)
    if target_names(modules, settings) == ALL_LINEAR:
        return
    older = targeted(modules, settings, modules.spellings)
    if name := next((path for path in older if modules.spellings[path] not in found), None):
        raise NotCovered(f"target_modules are of an older version of transformers: {printable(name, 100)}")


def unmatched(modules: Modules, settings: Settings) -> tuple[str, ...]:
    """The names of target_modules that no module has; () for expressions."""
    paths = (*modules.paths, *modules.unfused)
    return tuple(
        name
        for name in settings.texts("target_modules")
        if name not in paths and not any(path.endswith(f".{name}") for path in paths)
    )


def saved_modules(modules: Modules, settings: Settings) -> Iterator[str]:
    """The modules that were trained in full: those whose path ends so (peft 0.21 utils/other.py _set_trainable)."""
    names = settings.saved
    if names:
        yield from (path for path in modules.paths if path.endswith(names))


def by_pattern(patterns: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - a JSON value
    """The value of the first key that matches the end of a path (peft 0.21 utils/other.py get_pattern_key), or None."""
    for key, value in patterns.items():
        if _PLAIN.fullmatch(key):
            # `.` in an expression is any character; in names that are otherwise equal it stands for itself.
            if f".{path}".endswith(f".{key}"):
                return value
        elif decided(rf"(?:.*\.)?(?:{key})", path):
            return value
    return None
