"""Renews what the rules for positions and experts ask of transformers.

    python repokit/data/renew/config_tables.py TRANSFORMERS_4

rope_types.json         rope_type -> the fields without which transformers 5 refuses it
older_rope_theta.json   model_type -> rope_theta that transformers 4 takes where config.json has none at its top
divided_heads.json      model types for which hidden_size must be a multiple of num_attention_heads
unfused_experts.json    model types whose published weights have a tensor for each expert, although transformers 5
                        holds them in one

Needs transformers 5 and torch (the extra `load`). TRANSFORMERS_4 is the unpacked wheel of the last transformers 4,
which is only read.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from table import DATA, write_ids

# Filled in from elsewhere in config.json, or with a default, before they are asked for (standardize_rope_params).
FILLED_IN = {"rope_type", "rope_theta", "original_max_position_embeddings"}


def main(older: Path) -> None:
    """Writes the four tables."""
    today = datetime.now(UTC).date().isoformat()
    newest = f"transformers {version('transformers')}"
    last = next(older.glob("transformers-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    _write("rope_types", f"{newest}, modeling_rope_utils.py", today, "types", _rope_types())
    _write("older_rope_theta", f"transformers {last}, models/*", today, "rope_theta", _thetas(older))
    write_ids("divided_heads", source=f"{newest}, its config classes", date=today, ids=_divided())
    write_ids("unfused_experts", source=f"{newest}, conversion_mapping.py", date=today, ids=_unfused())


def _write(name: str, source: str, date: str, key: str, values: dict[str, Any]) -> None:
    lines = (f"  {json.dumps(word)}: {json.dumps(value)}" for word, value in sorted(values.items()))
    head = f'{{\n "source": {json.dumps(source)},\n "date": "{date}",\n "{key}": {{\n'
    (DATA / f"{name}.json").write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")
    print(f"{name}.json: {len(values)} of {source}")


def _rope_types() -> dict[str, list[str]]:
    """Read off the methods `_validate_X_rope_parameters`."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RotaryEmbeddingConfigMixin

    found: dict[str, list[str]] = {}
    for name in (*ROPE_INIT_FUNCTIONS, "default", "axial"):
        method = getattr(RotaryEmbeddingConfigMixin, f"_validate_{name}_rope_parameters")
        required = re.search(r"required_keys = (\{[^}]*\})", inspect.getsource(method))
        found[name] = sorted(set(ast.literal_eval(required[1]) if required else ()) - FILLED_IN)
    return found


def _thetas(older: Path) -> dict[str, float]:
    """The default of `rope_theta` in the config class of each model_type."""
    found: dict[str, float] = {}
    for path in sorted(older.glob("transformers/models/*/configuration_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                model_type, theta = _model_type(node), _default(node, "rope_theta")
                if model_type and theta is not None:
                    found[model_type] = theta
    return found


def _model_type(node: ast.ClassDef) -> str | None:
    for part in node.body:
        match part:
            case ast.Assign(targets=[ast.Name(id="model_type")], value=ast.Constant(value=str(name))):
                return name
    return None


def _default(node: ast.ClassDef, argument: str) -> float | None:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            names = [arg.arg for arg in part.args.args]
            defaults = dict(zip(names[len(names) - len(part.args.defaults) :], part.args.defaults, strict=True))
            value = defaults.get(argument)
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                return float(value.value)
    return None


def _divided() -> list[str]:
    """Asked of the config classes themselves."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    found: list[str] = []
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        try:
            CONFIG_MAPPING[model_type](hidden_size=18, num_attention_heads=4)
        except Exception as error:  # noqa: BLE001 - whatever a config class asks for
            if "multiple" in str(error) or "divisible" in str(error):
                found.append(model_type)
    return found


def _unfused() -> list[str]:
    from transformers.conversion_mapping import _build_checkpoint_conversion_mapping
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    mapping: dict[str, list[Any]] = _build_checkpoint_conversion_mapping()
    return sorted(name for name, steps in mapping.items() if name in CONFIG_MAPPING_NAMES and any(map(_merges, steps)))


def _merges(step: Any) -> bool:  # noqa: ANN401 - a converter of transformers
    operations = [type(operation).__name__ for operation in getattr(step, "operations", ())]
    return "MergeModulelist" in operations and "experts" in str(step.source_patterns)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
