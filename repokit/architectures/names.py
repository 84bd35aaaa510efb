r"""Canonical names: one name for every spelling of a tensor that `from_pretrained` takes for the same one.

transformers renames tensors on their way from the file to memory (conversion_mapping.py), puts the prefix of the base
model before names that lack it and takes it away where it is too much (core_model_loading.py, `rename_source_key`).
`Names` repeats that from the data of one class. Only names: what merges, splits or transposes values does not count,
so the `w1` and `w3` of an expert stay two names.

The "names" of a class in a data file:

    {"renames": [[pattern, replacement, prefixes, extra], ...], "base": "model", "kept": ["model.layers.#.norm", ...]}

renames: applied in this order, each to what the one before has left. `pattern` is searched for and the text that it
    matched is replaced where it first stands; `replacement` is a template of `re`, so `\1` is a group.
    `prefixes` (absent or null: none): the rule is about a sub-model. The name must start with one of them, the first
    that fits is set aside, and the rule sees only what follows.
    `extra` (absent or null: none): {"index": [divisor, offset]}: group 1 is a number n and is replaced by
    n // divisor + offset; {"group": k}: of all rules of group k only the first that fits is applied, and none at all
    in a set of names in which the first rule of the group, its guard, fits no name (`Names.among`).
base: what a name may have before it or not (`base_model_prefix`). Canonical names have it not. Absent where two
    tensors of the class differ only by it.
kept: names in memory that the renames would spoil, every number written `#`. The loader leaves a name alone that is
    right as it stands and that the renames would make wrong; so are these left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

# transformers' own names stay below 150 characters. Some patterns take time that grows with the square of the name.
MAX_LENGTH = 256
_MAX_CACHED = 20_000
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
# Number in a pattern that may be a whole part of a name: `layers\.0\.`, but not the 1 of `fc1`.
_LITERAL_NUMBER = re.compile(r"(?<![\w\\}{,])\d+")
_QUOTED_DIGITS = re.compile(r"\\[dg]\+|\[0-9\]\+|\{\d+(?:,\d*)?\}")
_ONE_DIGIT = re.compile(r"\\d|\[[^\]]*\d[^\]]*\]")


@dataclass(frozen=True, slots=True)
class _Rename:
    search: Callable[[str], re.Match[str] | None]
    template: str
    literal: bool
    prefixes: tuple[str, ...] | None
    index: tuple[int, int] | None
    group: Hashable

    def match(self, name: str) -> tuple[str, str, re.Match[str]] | None:
        """Prefix, what follows it, and the match in that; None where the rule says nothing about the name."""
        prefix = ""
        if self.prefixes is not None:
            fitting = next((prefix for prefix in self.prefixes if name.startswith(prefix)), None)
            if fitting is None:
                return None
            prefix = fitting
        rest = name[len(prefix) :]
        found = self.search(rest)
        return None if found is None else (prefix, rest, found)

    def replacement(self, found: re.Match[str]) -> str:
        if self.index is not None:
            divisor, offset = self.index
            return self.template.replace(r"\1", str(int(found[1]) // divisor + offset))
        return self.template if self.literal else found.expand(self.template)


class Names:
    """The canonical names of one class.

    Args:
        data: The class's "names" (see above). None or empty: every name is canonical.
        active: Groups of renames that count; None: all.
    """

    def __init__(self, data: Mapping[str, object] | None, *, active: frozenset[Hashable] | None = None) -> None:
        self.data: Mapping[str, object] = data or {}
        self._all = [_rename(row) for row in _rows(self.data.get("renames"))]
        self._renames = [rule for rule in self._all if rule.group is None or active is None or rule.group in active]
        base = self.data.get("base")
        self._base = f"{base}." if isinstance(base, str) and base else ""
        kept = self.data.get("kept")
        self._kept = frozenset(map(str, kept)) if isinstance(kept, list) else frozenset()
        self._split = _splitter(self.data)
        self._cache: dict[tuple[str, ...], Callable[..., str]] = {}

    def canonical(self, name: str) -> str:
        """The one name for all spellings of `name`. Names that are too long to be anyone's are left alone."""
        if len(name) > MAX_LENGTH:
            return name
        if not self._renames:
            return name.removeprefix(self._base)
        if self._split is None:
            return self._canonical(name)
        pieces = self._split(name)
        if len(pieces) == 1:
            return self._canonical(name)
        key = tuple(pieces[::2])
        template = self._cache.get(key)
        if template is None:
            template = self._template(key)
            if len(self._cache) < _MAX_CACHED:
                self._cache[key] = template
        return template(*pieces[1::2])

    def among(self, names: Iterable[str]) -> Names:
        """These names for one set of tensors: rules that count only where an old spelling occurs are decided by it."""
        guards: dict[Hashable, _Rename] = {}
        for rule in self._all:
            if rule.group is not None:
                guards.setdefault(rule.group, rule)
        if not guards:
            return self
        held = [name for name in names if len(name) <= MAX_LENGTH]
        seen = {group for group, guard in guards.items() if any(guard.match(name) for name in held)}
        return Names(self.data, active=frozenset(seen))

    def _canonical(self, name: str) -> str:
        renamed = self._renamed(name)
        if renamed != name and self._kept and _NUMBER.sub("#", name) in self._kept:
            renamed = name
        return renamed.removeprefix(self._base)

    def _renamed(self, name: str) -> str:
        done: set[Hashable] = set()
        for rule in self._renames:
            if rule.group is not None and rule.group in done:
                continue
            matched = rule.match(name)
            if matched is None:
                continue
            prefix, rest, found = matched
            name = prefix + rest.replace(found[0], rule.replacement(found), 1)
            if rule.group is not None:
                done.add(rule.group)
        return name

    def _template(self, texts: tuple[str, ...]) -> Callable[..., str]:
        """What the renames make of all names that differ only in their numbers, as a `str.format` of those numbers."""
        marks = [f"7{position:03d}00000000007" for position in range(len(texts) - 1)]
        marked = "".join(part for pair in zip(texts, [*marks, ""], strict=True) for part in pair)
        renamed = self._canonical(marked).replace("{", "{{").replace("}", "}}")
        for position, mark in enumerate(marks):
            renamed = renamed.replace(mark, f"{{{position}}}")
        return renamed.format


def scoped(
    whole: Mapping[str, object] | None, part: Mapping[str, object] | None, module: str
) -> dict[str, object] | None:
    """The names of a composed class of which one part is of another class.

    Args:
        whole: Names of the composed class with the part that it was derived with.
        part: Names of the part's class alone.
        module: What the part's names in memory have before them: `model.vision_tower.`.
    """
    names = dict(whole or {})
    base = f"{names['base']}." if names.get("base") else ""
    # core_model_loading.WeightTransform._scoped_match takes the module with and without the base model's prefix.
    inner = module.removeprefix(base)
    befores = list(dict.fromkeys([base + inner, inner]))
    rows = [row for row in _rows(names.get("renames")) if not _is_below(row, befores)]
    rows += [_moved(row, befores) for row in _rows((part or {}).get("renames")) if row not in rows]
    left_alone = [name for name in _texts(names.get("kept")) if not name.startswith(module)]
    left_alone += [module + name for name in _texts((part or {}).get("kept"))]
    names |= {"renames": rows, "kept": left_alone}
    return {key: value for key, value in names.items() if value} or None


def kept(data: Mapping[str, object] | None, names: Iterable[str]) -> dict[str, object] | None:
    """The data with more names that the renames must leave alone, whatever their numbers."""
    templates = sorted({*_texts((data or {}).get("kept")), *(_NUMBER.sub("#", name) for name in names)})
    return {**(data or {}), "kept": templates} if templates else dict(data or {}) or None


def _is_below(row: Sequence[object], befores: Sequence[str]) -> bool:
    return any(prefix.startswith(tuple(befores)) for prefix in _texts(row[2] if len(row) > 2 else None))


def _moved(row: Sequence[object], befores: Sequence[str]) -> list[object]:
    pattern, template, prefixes, extra = [*row, None, None][:4]
    inner = _texts(prefixes) or [""]
    if isinstance(extra, Mapping) and "group" in extra:
        extra = {**extra, "group": f"{befores[0]}{extra['group']}"}
    moved = [pattern, template, [before + text for before in befores for text in inner]]
    return moved if extra is None else [*moved, extra]


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []


def _rows(renames: object) -> list[Sequence[object]]:
    return [row for row in renames if isinstance(row, (list, tuple))] if isinstance(renames, (list, tuple)) else []


def _rename(row: Sequence[object]) -> _Rename:
    pattern, template, prefixes, extra = [*row, None, None][:4]
    options = extra if isinstance(extra, Mapping) else {}
    index = options.get("index")
    return _Rename(
        search=re.compile(str(pattern)).search,
        template=str(template),
        literal="\\" not in str(template),
        prefixes=tuple(map(str, prefixes)) if isinstance(prefixes, (list, tuple)) else None,
        index=(int(index[0]), int(index[1])) if index else None,
        group=options.get("group"),
    )


def _splitter(data: Mapping[str, object]) -> Callable[[str], list[str]] | None:
    """Splits a name at the numbers that no rule asks for by value; None where rules calculate with numbers.

    Names that differ only in such numbers are renamed alike, which is what makes 10,000 names of 100 layers cheap.
    """
    digits = 0
    for pattern, _, _, extra in ([*row, None, None][:4] for row in _rows(data.get("renames"))):
        if isinstance(extra, Mapping) and extra.get("index"):
            return None
        text = _QUOTED_DIGITS.sub("", str(pattern))
        if _ONE_DIGIT.search(text):
            digits = max(digits, 1)
        digits = max([digits, *(len(number) for number in _LITERAL_NUMBER.findall(text))])
    return re.compile(rf"(?<![^.])(\d{{{digits + 1},}})(?![^.])").split
