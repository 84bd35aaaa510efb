"""Renews what the rules for tokenizers and processors ask of transformers.

    python repokit/data/renew/loaders.py

tokenizer_classes.json    names that tokenizer_class may have
tokenizer_methods.json    keys that tokenizer_config.json must not have: a method has the name
processor_classes.json    names that processor_class, image_processor_type and their kin may have
default_eos.json          model_type -> eos_token_id where neither config.json nor generation_config.json gives one

Needs transformers and torch (the extra `load`): a default config of each model_type is made, and no model.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from table import DATA, write_ids

PROCESSORS = (
    "ImageProcessor",
    "ImageProcessorFast",
    "ImageProcessorPil",
    "FeatureExtractor",
    "VideoProcessor",
    "Processor",
)


def main() -> None:
    """Writes the four tables."""
    import transformers
    from transformers.tokenization_utils_tokenizers import TokenizersBackend

    logging.disable(logging.WARNING)
    names = sorted(name for name in dir(transformers) if not name.startswith("_"))
    methods = sorted(name for name in dir(TokenizersBackend) if callable(getattr(TokenizersBackend, name, None)))
    source = f"transformers {version('transformers')}"
    today = datetime.now(UTC).date().isoformat()
    tokenizers = [name for name in names if name.endswith(("Tokenizer", "TokenizerFast", "Backend"))]
    write_ids("tokenizer_classes", source=source, date=today, ids=tokenizers)
    public = [name for name in methods if not name.startswith("_")]
    write_ids("tokenizer_methods", source=f"{source}, TokenizersBackend", date=today, ids=public)
    processors = [name for name in names if name.endswith(PROCESSORS) and not name.endswith("LogitsProcessor")]
    write_ids("processor_classes", source=source, date=today, ids=processors)
    lines = (f"  {json.dumps(name)}: {json.dumps(ids)}" for name, ids in _default_eos().items())
    head = f'{{\n "source": "{source}, defaults of its config classes",\n "date": "{today}",\n "ids": {{\n'
    (DATA / "default_eos.json").write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


def _default_eos() -> dict[str, list[int]]:
    """Of the text model's config or the whole one; `[]` where they have none. What has no default is left out."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    found: dict[str, list[int]] = {}
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        try:
            config = CONFIG_MAPPING[model_type]()
            levels: list[Any] = [config.get_text_config(decoder=True), config]
        except Exception as error:  # noqa: BLE001 - whatever a config class asks for, it then has no default
            print(f"{model_type}: no default config: {type(error).__name__}")
            continue
        ids = next((eos for level in levels if (eos := getattr(level, "eos_token_id", None)) is not None), [])
        found[model_type] = ids if isinstance(ids, list) else [ids]
    return found


if __name__ == "__main__":
    main()
