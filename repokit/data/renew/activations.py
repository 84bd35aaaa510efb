"""Renews data/activations.json: the names in transformers' table of activation functions (activations.py ACT2FN).

    python repokit/data/renew/activations.py

Needs transformers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import transformers
from transformers.activations import ACT2FN

DATA = Path(__file__).resolve().parents[1]


def main() -> None:
    document = {
        "source": f"transformers {transformers.__version__}, ACT2FN",
        "date": datetime.now(UTC).date().isoformat(),
        "ids": sorted(ACT2FN),
    }
    (DATA / "activations.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
