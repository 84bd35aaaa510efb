"""config.json and generation_config.json: what a recipe changes in them, and nothing else.

Edits go to the raw document: key order and unknown keys survive. A file that nothing changes is copied byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repokit.builder import vocabulary
from repokit.errors import RecipeError
from repokit.formats.paths import is_local
from repokit.formats.strict_json import dumps
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.repo.config import Config


def edited_config(
    config: Config,
    *,
    dtype: str | None,
    compat: tuple[str, ...],
    architectures: tuple[str, ...] = (),
    vocab_size: int | None = None,
    unties: bool = False,
) -> bytes | None:
    """config.json with the dtype that the weights will have, or None where it says so already.

    Args:
        config: As it lies in the source.
        dtype: torch's name of the dtype that the weights will have; None where they keep theirs.
        compat: `transformers-4` writes `torch_dtype` beside `dtype`.
        architectures: The classes that it is to name; () leaves those that it names.
        vocab_size: Token ids that the weights will have a row for; None leaves what it states.
        unties: Whether it is to say that the head is not the embedding.
    """
    raw = _at_every_level(config.raw, _without_local_path)
    if architectures:
        raw["architectures"] = list(architectures)
    if dtype:
        raw = _at_every_level(raw, lambda level: _with_dtype(level, dtype))
        if raw.get("dtype") != dtype != raw.get("torch_dtype"):
            raw["dtype"] = dtype
    if vocab_size is not None:
        raw = vocabulary.with_vocabulary(config, raw, vocab_size)
    if unties:
        raw = vocabulary.untied(config, raw)
    if "transformers-4" in compat:
        raw = _at_every_level(raw, _for_transformers_4)
    return None if raw == config.raw else dumps(raw, infinity=True)  # as it stood


def _at_every_level(raw: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A config changed at the top and, before that, in every config inside it."""
    nested = {
        key: _at_every_level(value, change)
        for key, value in raw.items()
        if isinstance(value, dict) and (key.endswith("_config") or "model_type" in value)
    }
    return change({**raw, **nested})


def _without_local_path(raw: dict[str, Any]) -> dict[str, Any]:
    """Without what transformers 4 wrote: where it had loaded the model from, a path of the machine that trained."""
    return {key: value for key, value in raw.items() if key != "_name_or_path" or not is_local(str(value))}


def _with_dtype(raw: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The new dtype wherever one is stated."""
    stated = {key: dtype for key in ("dtype", "torch_dtype") if isinstance(raw.get(key), str)}
    return {**raw, **stated}


def _for_transformers_4(raw: dict[str, Any]) -> dict[str, Any]:
    """Both spellings of what transformers 5 renamed: `dtype`, and the rope block that moved below rope_parameters."""
    result = dict(raw)
    if "dtype" in result:
        result.setdefault("torch_dtype", result["dtype"])
    rope = result.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        result.setdefault("rope_theta", rope["rope_theta"])
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        if scaling.get("rope_type", "default") != "default":
            result.setdefault("rope_scaling", scaling)
    return result


def merged_generation_config(raw: Mapping[str, Any] | None, values: Mapping[str, Any]) -> bytes | None:
    """generation_config.json with the recipe's values, or None where they change nothing.

    Raises:
        RecipeError: A value that JSON does not have, such as `.inf` or a date.
    """
    merged = {**(raw or {}), **values}
    if repr(merged) == repr(raw or {}):  # a person tells true from 1
        return None
    try:
        dumps(values)
        return dumps(merged, infinity=True)  # the source may have it; a recipe may not add it
    except (TypeError, ValueError) as error:
        what = f"has a value that JSON does not have: {printable(error)}"
        raise RecipeError(what, place="generation_config") from None
