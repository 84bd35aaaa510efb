"""Renews data/model_types.json: the values of `model_type` that transformers knows.

    python repokit/data/renew/model_types.py

Needs transformers (the extra `load`); reads its table of names and imports no model.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "model_types.json"


def main() -> None:
    """Writes the table beside this folder."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    table = {
        "source": f"transformers {version('transformers')}, CONFIG_MAPPING_NAMES",
        "date": datetime.now(UTC).date().isoformat(),
        "model_types": sorted(CONFIG_MAPPING_NAMES),
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"{TABLE.name}: {len(table['model_types'])} model types of {table['source']}")


if __name__ == "__main__":
    main()
