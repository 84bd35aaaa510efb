"""What an expression may look at: the values of the sampled configs, as columns over observations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from repokit.architectures.completion import Completed
from repokit.architectures.grammar import INDICES, UNUSABLE, Expression, Value, expression

Column = NDArray[np.float64]
_IMAGE: Final = re.compile(r"(image_size|img_size|input_size)$")
_HEAD_WIDTH: Final = re.compile(r"(head_dim|d_kv)$")
_HIDDEN: Final = re.compile(r"(hidden_size|n_embd|d_model|embed_dim)")
_HEADS: Final = re.compile(r"(num_attention_heads|num_heads|n_heads?|decoder_attention_heads|encoder_attention_heads)")
# Objects that a config keeps by number or by token are no keys: per_layer_config.3.head_dim.
_KEY: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_ELEMENTS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -2)


@dataclass(frozen=True)
class Observations:
    """Where something was seen: a sample's number, and the numbers of layer, expert, ... within it.

    Attributes:
        points: (sample, indices) pairs.
    """

    points: tuple[tuple[int, tuple[int, ...]], ...]

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def samples(self) -> NDArray[np.intp]:
        """The sample of each point."""
        return np.fromiter((sample for sample, _ in self.points), dtype=np.intp, count=len(self.points))

    @cached_property
    def depth(self) -> int:
        """How many indices each point has."""
        return len(self.points[0][1]) if self.points else 0

    def where(self, mask: Iterable[bool]) -> Observations:
        """Those at which the mask holds."""
        return Observations(tuple(point for point, here in zip(self.points, mask, strict=True) if here))


class Features:
    """The effective configs of all samples of one model type.

    Attributes:
        environments: One per sample.
        scalars: Numbers that vary: key -> value per sample, None where it is null.
        choices: Everything else that varies and is no list: booleans, strings, and numbers and nulls again.
        lists: Lists, whether they vary or not.
        sides: Lists that are one number in some samples: height and width, or both in one.
        mixed: Keys that are a number in some samples and text in others (`time_step_rank: "auto"`).
    """

    def __init__(self, environments: Sequence[Mapping[str, Value]]) -> None:
        self.environments = [Completed(environment) for environment in environments]
        self.scalars: dict[str, list[Value]] = {}
        self.choices: dict[str, list[Value]] = {}
        self.lists: dict[str, list[Value]] = {}
        self.mixed: list[str] = []
        self._evaluated: dict[str, Column] = {}
        self.sides: list[str] = []
        for key in filter(_KEY.fullmatch, dict.fromkeys(key for one in environments for key in one)):
            self._sort_in(key, [environment[key] for environment in self.environments])

    def _sort_in(self, key: str, values: list[Value]) -> None:
        if any(isinstance(value, tuple) for value in values):
            self.lists[key] = values
            if any(_is_number(value) for value in values):
                self.sides.append(key)
            return
        if len({repr(value) for value in values}) == 1:
            return
        self.choices[key] = values
        known = [value for value in values if value is not None]
        numbers = all(isinstance(value, (int, float)) for value in known)
        if numbers and not all(isinstance(value, bool) for value in known):
            self.scalars[key] = values
        elif any(_is_number(value) for value in known):
            self.mixed.append(key)

    def evaluated(self, text: str) -> Column:
        """An expression without indices at every sample; NaN where it has no number there."""
        if text not in self._evaluated:
            compiled = expression(text)
            self._evaluated[text] = np.array([_number(compiled, environment) for environment in self.environments])
        return self._evaluated[text]

    def at(self, text: str, seen: Observations) -> Column:
        """An expression at observations; NaN where it has no number."""
        compiled = expression(text)
        if not compiled.indexed:
            return self.evaluated(text)[seen.samples]
        return np.array([_number(compiled, self.environments[sample], indices) for sample, indices in seen.points])

    def columns(self, seen: Observations, only: frozenset[str] | None = None) -> dict[str, Column]:
        """The numeric columns over observations: keys, indices, list elements, and what the field often computes."""
        found: dict[str, Column] = {}
        for key in self.scalars:
            if only is None or key in only:
                found[key] = self.evaluated(key)[seen.samples]
        for text in self._usual(only):
            found[text] = self.evaluated(text)[seen.samples]
        for level in range(seen.depth):
            found[INDICES[level]] = np.array([float(indices[level]) for _, indices in seen.points])
        for key in self.lists:
            if only is None or key in only:
                found.update(self._of_list(key, seen))
        return {text: column for text, column in found.items() if not np.isnan(column).any()}

    def _usual(self, only: frozenset[str] | None) -> list[str]:
        """Expressions that half the architectures have: a head's width where it is null, patches of an image."""
        allowed = [key for key in (*self.choices, *self.lists) if only is None or key in only]
        usual = []
        for key in allowed:
            path = key[: key.rfind(".") + 1]
            if _HEAD_WIDTH.search(key) and key in self.choices and None in self.choices[key]:
                near = [name for name in self.scalars if name.startswith(path)]
                hidden = [name for name in near if _HIDDEN.fullmatch(name.removeprefix(path))]
                heads = [name for name in near if _HEADS.fullmatch(name.removeprefix(path))]
                usual += [f"({key} if {key} is not None else {wide}//{n})" for wide in hidden for n in heads]
            if (image := _IMAGE.search(key)) and (patch := f"{key[: image.start()]}patch_size") in {
                *self.scalars,
                *self.lists,
            }:
                usual.append(f"patches({key},{patch})")
        return usual

    def elements(self, seen: Observations) -> list[str]:
        """The elements of lists of numbers at the place of an index, and beside it."""
        numeric = [
            key
            for key, values in self.lists.items()
            if all(_is_number(item) for value in values if isinstance(value, tuple) for item in value)
        ]
        places = [f"{index}{beside}" for index in INDICES[: seen.depth] for beside in ("", "-1", "+1")]
        return [f"{key}[{place}]" for key in numeric[:12] for place in places]

    def _of_list(self, key: str, seen: Observations) -> dict[str, Column]:
        values = [self.lists[key][sample] for sample in seen.samples]
        if not all(isinstance(value, tuple) for value in values):
            texts = [f"first({key})", f"last({key})", f"count({key})"]
            texts += [f"side({key},{INDICES[level]})" for level in range(seen.depth)]
            return {text: self.at(text, seen) for text in texts}
        texts = [f"len({key})"]
        shortest = min(len(value) for value in values if isinstance(value, tuple))
        numeric = all(_is_number(item) for value in values if isinstance(value, tuple) for item in value)
        if numeric:
            texts.append(f"sum({key})")
            texts += [f"{key}[{number}]" for number in _ELEMENTS if -shortest <= number < shortest]
            for level in range(seen.depth):
                index = INDICES[level]
                texts += [f"{key}[{index}]", f"{key}[{index}+1]"]
                if all(indices[level] > 0 for _, indices in seen.points):
                    texts.append(f"{key}[{index}-1]")
        return {text: self.at(text, seen) for text in texts}


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(compiled: Expression, environment: Mapping[str, Value], indices: tuple[int, ...] = ()) -> float:
    try:
        value = compiled.evaluate(environment, *indices)
        return float(value) if isinstance(value, (int, float)) else float("nan")
    except UNUSABLE:
        return float("nan")
