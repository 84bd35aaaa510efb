"""Renews what the rules for tokenizers and processors ask of transformers.

    python repokit/data/renew/loaders.py TRANSFORMERS_4

tokenizer_classes.json    names that tokenizer_class may have
processor_classes.json    names that processor_class, image_processor_type and their kin may have
tokenizer_methods.json    keys that tokenizer_config.json must not have: a method has the name
default_eos.json          model_type -> eos_token_id where neither config.json nor generation_config.json gives one

Needs transformers 5 and torch (the extra `load`): a default config of each model_type is made, and no model.
TRANSFORMERS_4 is the unpacked wheel of the last transformers 4, which has classes that 5 dropped; it is only read.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from table import DATA, write_ids

TOKENIZER = re.compile(r"\w+(?:Tokenizer|TokenizerFast|Backend)")
PROCESSOR = re.compile(r"\w*(?:(?<!Logits)Processor|FeatureExtractor)\w*")


def main(older: Path) -> None:
    """Writes the four tables."""
    import transformers
    from transformers.tokenization_utils_tokenizers import TokenizersBackend

    logging.disable(logging.WARNING)
    today = datetime.now(UTC).date().isoformat()
    newest = f"transformers {version('transformers')}"
    both = f"{newest} and {next(older.glob('transformers-*.dist-info')).name.split('-')[1].removesuffix('.dist')}"
    names = sorted({*(name for name in dir(transformers) if not name.startswith("_")), *_classes(older)})
    for table, pattern in (("tokenizer_classes", TOKENIZER), ("processor_classes", PROCESSOR)):
        write_ids(table, source=both, date=today, ids=[name for name in names if pattern.fullmatch(name)])
    methods = (name for name in dir(TokenizersBackend) if callable(getattr(TokenizersBackend, name, None)))
    public = sorted(name for name in methods if not name.startswith("_"))
    write_ids("tokenizer_methods", source=f"{newest}, TokenizersBackend", date=today, ids=public)
    lines = (f"  {json.dumps(name)}: {json.dumps(ids)}" for name, ids in _default_eos().items())
    head = f'{{\n "source": "{newest}, defaults of its config classes",\n "date": "{today}",\n "ids": {{\n'
    (DATA / "default_eos.json").write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


def _classes(older: Path) -> set[str]:
    files = older.glob("transformers/**/*.py")
    return {name for file in files for name in re.findall(r"^class ([A-Z]\w+)", file.read_text("utf-8"), re.MULTILINE)}


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
    main(Path(sys.argv[1]))
