"""recipe.yaml of llm-compressor: what it did to the weights, held against what config.json says they are.

It is published beside the weights, as llm-compressor saves it. Only facts that both have are compared: a preset's name
(W4A16) or the numbers of a group.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError
from repokit.formats.paths import is_local
from repokit.repo.quantization import schemes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.quantization import Declared
    from repokit.repo.repository import Repository

RECIPE_FILE: Final = "recipe.yaml"
# llm-compressor: stages hold modifiers (recipe/recipe.py): {default_stage: {default_modifiers: {GPTQModifier: {...}}}}.
_STAGE: Final = re.compile(r".*_(?:stage|modifiers)|[A-Za-z]*Modifier")
_LIMIT: Final = 10_000  # nodes of a recipe; real ones have a few hundred
# compressed-tensors 0.20 quantization/quant_scheme.py PRESET_SCHEMES.
_INTEGERS: Final = re.compile(r"W(\d+)A\d+(?:_ASYM)?", re.IGNORECASE)
_FLOATS: Final = (
    (re.compile(r"(?:NV|MX)FP4.*", re.IGNORECASE), 4),
    (re.compile(r"(?:FP8|MXFP8).*", re.IGNORECASE), 8),
)


def is_recipe(repository: Repository) -> bool:
    """Whether there is one that can be published: nothing in it is a path of the machine that quantized."""
    raw = _parsed(repository)
    stages = any(_STAGE.fullmatch(key) for key in raw)
    return stages and not any(isinstance(value, str) and _is_path(value) for _, value in _leaves(raw))


def recipe_differences(declared: Declared, repository: Repository) -> Iterator[tuple[str, str, object, str, object]]:
    """Numbers that it says otherwise: file, place, value; place in config.json, value there."""
    found = schemes(declared.config)
    if declared.method != "compressed-tensors" or not found:
        return
    widths = {scheme.weights.raw.get("num_bits", 8) for scheme in found}
    groups = {size for scheme in found if (size := scheme.weights.integer("group_size")) is not None}
    for place, value in _leaves(_parsed(repository)):
        key = place.rpartition("/")[2]
        if key == "scheme" and isinstance(value, str) and (bits := _bits(value)) is not None and bits not in widths:
            yield RECIPE_FILE, place, value, found[0].weights.at("num_bits"), _shown(widths)
        if "/weights/" in place and key == "num_bits" and value not in widths:
            yield RECIPE_FILE, place, value, found[0].weights.at("num_bits"), _shown(widths)
        if "/weights/" in place and key == "group_size" and isinstance(value, int) and groups and value not in groups:
            yield RECIPE_FILE, place, value, found[0].weights.at("group_size"), _shown(groups)


def _shown(values: set[Any]) -> object:
    return next(iter(values)) if len(values) == 1 else sorted(values, key=str)


def _bits(preset: str) -> int | None:
    """Bits per weight of a preset of compressed-tensors; None where the name is none of those that are known."""
    if found := _INTEGERS.fullmatch(preset):
        return int(found[1])
    return next((bits for pattern, bits in _FLOATS if pattern.fullmatch(preset)), None)


def _is_path(value: str) -> bool:
    """Whether it is a path; a regular expression (`re:.*lm_head`) is none."""
    return not value.startswith("re:") and " " not in value and is_local(value)


def _parsed(repository: Repository) -> dict[str, Any]:
    """The recipe; {} where there is none, or where it is nothing that is read: then it stays behind."""
    from repokit.formats.front_matter import load_mapping

    try:
        text = repository.text(RECIPE_FILE)
        return {} if text is None else load_mapping(text, RECIPE_FILE)[0]
    except InputError:
        return {}


def _leaves(raw: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Every value with its JSON Pointer, at most _LIMIT of them."""
    stack, left = [(place, raw)], _LIMIT
    while stack and left:
        left -= 1
        where, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{where}/{key}", item) for key, item in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(f"{where}/{index}", item) for index, item in reversed([*enumerate(value)])]
        else:
            yield where, value
