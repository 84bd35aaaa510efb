"""Renews data/processor_keys.json: every setting that an image, video or sound processor of transformers takes.

    python repokit/data/renew/processor_keys.py

Needs transformers, torch and pillow.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import transformers

DATA = Path(__file__).resolve().parents[1]
ENDINGS = ("ImageProcessorPil", "ImageProcessorFast", "FeatureExtractor", "Processor")


def main() -> None:
    keys: set[str] = set()
    for name in dir(transformers):
        if name.endswith(ENDINGS):
            with contextlib.suppress(Exception):
                keys |= keys_of(getattr(transformers, name))
    document = {
        "source": f"transformers {transformers.__version__}, its processor classes",
        "date": datetime.now(UTC).date().isoformat(),
        "ids": sorted(keys),
    }
    text = json.dumps(document, indent=1)
    (DATA / "processor_keys.json").write_text(text + "\n")


def keys_of(cls: Any) -> set[str]:  # noqa: ANN401 - a processor class
    """What its constructor and its calls take, and the attributes that it has by itself."""
    found = {name for name in inspect.signature(cls.__init__).parameters if name not in {"self", "args", "kwargs"}}
    for owner in cls.__mro__:
        found |= {name for name, value in vars(owner).items() if not name.startswith("_") and not callable(value)}
    found |= set(getattr(getattr(cls, "valid_kwargs", None), "__annotations__", {}))
    with contextlib.suppress(Exception):
        found |= set(cls().to_dict())
    return found


if __name__ == "__main__":
    main()
