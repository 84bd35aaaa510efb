"""Values of config.json that would explain the tensors of a file: read off from their shapes and numbers.

A dimension that is 640 where the config makes it 512 speaks for other values of the keys in its expression; layers up
to 27 where 32 are asked for speak for another number of layers; a bias that should not be there, for a switch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.architectures.comparison import Comparison, Held, Misshapen, differing
from repokit.architectures.completion import LABELS, Completed, complete
from repokit.architectures.composition import flattened
from repokit.architectures.errors import ConfigUnusable
from repokit.architectures.grammar import UNUSABLE, Expression, Value
from repokit.architectures.marks import MARK, marked
from repokit.architectures.member import Block, Template

if TYPE_CHECKING:
    from repokit.architectures.skeleton import Skeleton

_MOST_PROBLEMS: Final = 300  # of one kind: more of them say the same
_MOST_CHECKED: Final = 24
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
_STRING: Final = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_LABELS_TEXT: Final = "id2label"


def values_for(skeleton: Skeleton, held: Held, comparison: Comparison) -> Iterator[tuple[str, Value]]:
    """(key, value) that may explain a comparison, the likeliest first."""
    votes: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], Value] = {}
    for key, value in _proposed(skeleton, held, comparison):
        current = skeleton.environment[key]
        if value != current or type(value) is not type(current):
            votes[key, repr(value)] += 1
            values[key, repr(value)] = value
    for candidate in sorted(votes, key=lambda candidate: (-votes[candidate], candidate)):
        yield candidate[0], values[candidate]


def changed(config: Mapping[str, Any], skeleton: Skeleton, key: str, value: Value) -> dict[str, Any]:
    """The config with another value of one key, in every spelling of it that the config has."""
    facts = skeleton.member.config
    spellings = [key, *(two if one == key else one for one, two in facts.aliases if key in (one, two))]
    present = [spelling for spelling in spellings if _holds(config, spelling)] or [key]
    result = dict(config)
    for spelling in present:
        _put(result, spelling.split("."), value)
    if key == LABELS:
        result.pop(_LABELS_TEXT, None)
    return result


def fits(skeleton: Skeleton, config: Mapping[str, Any], comparison: Comparison) -> bool:
    """Whether a changed config gives the shapes that the misshapen tensors have; cheap, before all is expanded."""
    facts = skeleton.member.config
    try:
        environment = complete(facts, flattened(config, facts))
    except ConfigUnusable:
        return False
    for wrong in comparison.misshapen[:_MOST_CHECKED]:
        template = _template(skeleton, comparison, wrong)
        if template is None or len(wrong.held) != len(wrong.expected):
            continue
        for size, expected, own in zip(template.shape, wrong.expected, wrong.held, strict=True):
            if size is None or size.indexed or _evaluated(size, skeleton.environment) != expected:
                continue
            if _evaluated(size, environment) != own:
                return False
    return True


def _template(skeleton: Skeleton, comparison: Comparison, wrong: Misshapen) -> Template | None:
    name = comparison.renamed.get(wrong.name, wrong.name)
    found = skeleton.templates.get(name)
    if found is None and skeleton.memory is not None:
        found = skeleton.memory.templates.get(name)
    return found


def _evaluated(wanted: Expression, environment: Mapping[str, Value]) -> Any:  # noqa: ANN401 - of any type
    try:
        return wanted.evaluate(environment)
    except UNUSABLE:
        return None


def _holds(config: Mapping[str, Any], key: str) -> bool:
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def _put(config: dict[str, Any], path: list[str], value: Value) -> None:
    if len(path) > 1 and isinstance(inner := config.get(path[0]), Mapping):
        config[path[0]] = dict(inner)
        _put(config[path[0]], path[1:], value)
    else:
        config[path[-1]] = value  # of a nested config that is not there: older files keep its keys flat


# ---------------------------------------------------------------- what speaks for which value


def _proposed(skeleton: Skeleton, held: Held, comparison: Comparison) -> Iterator[tuple[str, Value]]:
    for wrong in comparison.misshapen[:_MOST_PROBLEMS]:
        template = _template(skeleton, comparison, wrong)
        if template is not None and len(wrong.held) == len(wrong.expected):
            yield from _by_sizes(skeleton, template, wrong)
    if comparison.missing or comparison.unexpected:
        yield from _by_presence(skeleton, held, comparison)


def _by_sizes(skeleton: Skeleton, template: Template, wrong: Misshapen) -> Iterator[tuple[str, Value]]:
    for dimension in differing(wrong.held, wrong.expected):
        size, expected = template.shape[dimension], wrong.expected[dimension]
        if size is not None and expected is not None:
            for key in _keys(skeleton, size.keys):
                for value in _solved(skeleton, key, size, expected, wrong.held[dimension]):
                    yield key, value


def _solved(skeleton: Skeleton, key: str, wanted: Expression, now: int, held: int) -> Iterator[Value]:
    """Values of a key with which an expression, now `now`, may give `held`: as summand, factor or divisor."""
    current = skeleton.environment[key]
    if current is None:
        yield held
        return
    if isinstance(current, bool) or not isinstance(current, int):
        return
    candidates = [held, current + held - now]
    if key in wanted.keys and (found := _sought(skeleton, key, wanted, held, current)) is not None:
        candidates.insert(0, found)
    if now and current * held % now == 0:
        candidates.append(current * held // now)
    if held and current * now % held == 0:
        candidates.append(current * now // held)
    yield from dict.fromkeys(value for value in candidates if value >= 0)


_RANGE: Final = 64  # no one is wrong by more than this factor


def _sought(skeleton: Skeleton, key: str, wanted: Expression, held: int, current: int) -> int | None:
    """The value of a key with which an expression that grows with it is `held`, by halving."""
    environment = Completed(skeleton.environment)
    low, high = 0, max(current, 1) * _RANGE
    while low < high:
        environment[key] = middle = (low + high) // 2
        value = _evaluated(wanted, environment)
        if not isinstance(value, (int, float)):
            return None
        low, high = (middle + 1, high) if value < held else (low, middle)
    environment[key] = low
    return low if _evaluated(wanted, environment) == held else None


def _keys(skeleton: Skeleton, keys: Iterable[str]) -> list[str]:
    """Keys that config.json may hold: computed ones are followed to those that they are computed from.

    What an expression names itself stands in the list twice: it is likelier to be what was changed.
    """
    derived = skeleton.member.config.derived
    found: list[str] = []
    for key in sorted(keys):
        rule = derived.get(key)
        if rule is None or rule.given:
            found += [key, key]
        if rule is not None:
            found += sorted(rule.value.keys | (rule.length.keys if rule.length else frozenset()))
    return found


class _Entry(NamedTuple):
    """A template in its block, with the pattern of its canonical names."""

    block: Block
    template: Template
    pattern: re.Pattern[str]
    order: tuple[int, ...]  # of the pattern's groups: which index each is


def _by_presence(skeleton: Skeleton, held: Held, comparison: Comparison) -> Iterator[tuple[str, Value]]:
    entries = _entries(skeleton)
    seen: set[tuple[str, bool]] = set()
    numbers = _NumbersHeld(skeleton, held)
    for names, there in ((comparison.missing, False), (comparison.unexpected, True)):
        for name in names[:_MOST_PROBLEMS]:
            spelled = skeleton.canonical(name)
            form = _NUMBER.sub("#", spelled)
            for entry in entries.get(form, ()):
                if entry.pattern.fullmatch(spelled) and (entry.template.name, there) not in seen:
                    seen.add((entry.template.name, there))
                    shape = held[name] if there else None
                    yield from _by_template(skeleton, entry, numbers.of(form), shape)


def _entries(skeleton: Skeleton) -> dict[str, list[_Entry]]:
    """Every template that the class may have, by canonical name with all numbers written `#`."""
    found: dict[str, list[_Entry]] = {}
    for block in (*skeleton.facts.disk, *(skeleton.facts.memory or ())):
        for template in block.templates:
            spelled = skeleton.canonical(marked(template.name))
            marks = MARK.findall(spelled)
            pattern = MARK.sub(r"(\\d+)", re.escape(spelled))
            entry = _Entry(block, template, re.compile(pattern), tuple(int(mark[2]) for mark in marks))
            found.setdefault(_NUMBER.sub("#", spelled), []).append(entry)
    return found


class _NumbersHeld:
    """The canonical names in a file, by name with all numbers written `#`."""

    def __init__(self, skeleton: Skeleton, held: Held) -> None:
        self._skeleton, self._held = skeleton, held
        self._forms: dict[str, list[str]] | None = None

    def of(self, form: str) -> list[str]:
        if self._forms is None:
            self._forms = {}
            spelled = list(map(self._skeleton.names.among(self._held).canonical, self._held))
            forms = _LINE_NUMBER.sub("#", "\n".join(spelled)).split("\n")
            for name, own in zip(spelled, forms, strict=True):
                self._forms.setdefault(own, []).append(name)
        return self._forms.get(form, [])


_LINE_NUMBER: Final = re.compile(r"(?<![^.\n])\d+(?![^.\n])")


def _by_template(
    skeleton: Skeleton, entry: _Entry, names: list[str], shape: tuple[int, ...] | None
) -> Iterator[tuple[str, Value]]:
    """Values that would bring a template, or more or fewer of its tensors."""
    for position, counted in _counts(entry, names).items():
        limit = entry.block.ranges[position] if position < len(entry.block.ranges) else None
        if limit is not None and isinstance(now := _evaluated(limit, skeleton.environment), int):
            for key in _keys(skeleton, limit.keys):
                for value in _solved(skeleton, key, limit, now, counted):
                    yield key, value
    condition = entry.block.condition
    if condition is not None:
        for key in _keys(skeleton, condition.keys):
            for value in _switched(skeleton.environment[key], condition.text, gone=not names):
                yield key, value
    for size, own in zip(entry.template.shape, shape or (), strict=False):
        if size is not None and size.text in size.keys:
            yield size.text, own


def _counts(entry: _Entry, names: list[str]) -> dict[int, int]:
    """How many values each index has in the file: the largest and one; nothing for templates without an index."""
    found = dict.fromkeys(entry.order, 0)
    for name in names:
        if (match := entry.pattern.fullmatch(name)) is not None:
            for position, number in zip(entry.order, match.groups(), strict=True):
                found[position] = max(found[position], int(number) + 1)
    return found


def _switched(current: Value, condition: str, *, gone: bool) -> Iterator[Value]:
    match current:
        case bool():
            yield not current
        case str():
            yield from dict.fromkeys(one or two for one, two in _STRING.findall(condition))
        case int():
            yield from (0, None) if gone else ()
            yield from (current + 1, current - 1)
        case _:
            return
