"""config.json and generation_config.json: what a recipe changes in them, and nothing else.

Edits go to the raw document: key order, unknown keys and number spelling survive. A file that nothing changes is
copied byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repokit.formats.paths import is_local
from repokit.formats.strict_json import dumps
from repokit.formats.tensors import TORCH_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.repo.config import Config


def edited_config(config: Config, *, dtype: str | None, tie: bool | None, compat: tuple[str, ...]) -> bytes | None:
    """config.json with the dtype that the weights will have, or None where it says so already.

    Args:
        config: As it lies in the source.
        dtype: torch's name of the dtype that the weights are cast to; None where they are not cast.
        tie: What tie_word_embeddings must say for the weights that are written; None where it stays.
        compat: `transformers-4` writes `torch_dtype` beside `dtype`.
    """
    raw = _with_dtype(config.raw, dtype) if dtype else dict(config.raw)
    if tie is not None and config.tie_word_embeddings is not tie:
        raw["tie_word_embeddings"] = tie
    # transformers 4 wrote where it had loaded the model from: a path of the machine that trained.
    if is_local(str(raw.get("_name_or_path", ""))):
        del raw["_name_or_path"]
    if "transformers-4" in compat:
        raw = _for_transformers_4(raw)
    return None if raw == config.raw else dumps(raw)


def _with_dtype(raw: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """The new dtype at the top and in every nested config that states one."""
    result = {
        key: _nested_dtype(value, dtype) if key.endswith("_config") and isinstance(value, dict) else value
        for key, value in raw.items()
    }
    spellings = [key for key in ("dtype", "torch_dtype") if key in raw] or ["dtype"]
    return {**result, **dict.fromkeys(spellings, dtype)}


def _nested_dtype(raw: dict[str, Any], dtype: str) -> dict[str, Any]:
    changed = _with_dtype(raw, dtype)
    stated = any(raw.get(key) in TORCH_NAMES for key in ("dtype", "torch_dtype"))
    return changed if stated else {key: changed[key] for key in raw}


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
    """generation_config.json with the recipe's values, or None where they change nothing."""
    merged = {**(raw or {}), **values}
    return None if merged == (raw or {}) else dumps(merged)
