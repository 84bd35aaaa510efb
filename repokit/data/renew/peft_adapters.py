"""Renews peft_adapters.json: what PEFT takes where adapter_config.json says nothing.

    python repokit/data/renew/peft_adapters.py

Needs peft and transformers (the dependency group `oracles`). For each method of PEFT the targets by model type
(`target_modules: null`), those of IA3 that are feed-forward, and the default of every field that is a plain value. A
method whose targets are those of another names that other.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from table import DATA

PLAIN = (bool, int, float, str)


def main() -> None:
    """Writes the table."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
    from peft.utils import constants

    targets = {kind.value: _targets(tuner) for kind, tuner in PEFT_TYPE_TO_TUNER_MAPPING.items()}
    document = {
        "source": f"peft {version('peft')}, PEFT_TYPE_TO_TUNER_MAPPING and PEFT_TYPE_TO_CONFIG_MAPPING",
        "date": datetime.now(UTC).date().isoformat(),
        "targets": _shared({kind: mapping for kind, mapping in sorted(targets.items()) if mapping}),
        "feedforward": _sorted(constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING),
        "defaults": {kind.value: _defaults(made) for kind, made in sorted(PEFT_TYPE_TO_CONFIG_MAPPING.items())},
    }
    _write(document)


def _targets(tuner: Any) -> dict[str, Any]:  # noqa: ANN401 - a class of PEFT
    return _sorted(getattr(tuner, "target_module_mapping", None) or {})


def _sorted(mapping: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value if isinstance(value, str) else list(value) for name, value in mapping.items()}
    return dict(sorted(plain.items()))


def _shared(targets: dict[str, Any]) -> dict[str, Any]:
    """Mappings that are equal are written once, for LORA or the first in the alphabet."""
    first: list[tuple[str, Any]] = []
    found: dict[str, Any] = {}
    for kind in sorted(targets, key=lambda kind: (kind != "LORA", kind)):
        same = next((name for name, mapping in first if mapping == targets[kind]), None)
        found[kind] = same or targets[kind]
        if same is None:
            first.append((kind, targets[kind]))
    return dict(sorted(found.items()))


def _defaults(made: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    fields = (field for field in dataclasses.fields(made) if field.init)
    defaults = {field.name: field.default for field in fields if isinstance(field.default, PLAIN)}
    return {
        name: value.value if hasattr(value, "value") else value
        for name, value in sorted(defaults.items())
        if name != "inference_mode"
    }


def _write(document: dict[str, Any]) -> None:
    """One entry a line, wrapped at 110 columns: a renewal is a diff that people can read."""
    parts = [f"  {json.dumps(key)}: {_value(value)}" for key, value in document.items()]
    (DATA / "peft_adapters.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    print(f"peft_adapters.json: {len(document['defaults'])} methods")


def _value(value: Any) -> str:  # noqa: ANN401 - a JSON value
    if not isinstance(value, dict):
        return json.dumps(value)
    lines = (f"{json.dumps(key)}: {json.dumps(inner)}" for key, inner in value.items())
    wrapped = (
        textwrap.fill(
            line, 110, initial_indent="    ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
        )
        for line in lines
    )
    return "{\n" + ",\n".join(wrapped) + "\n  }"


if __name__ == "__main__":
    main()
