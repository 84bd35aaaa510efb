"""Renews data/even_heads.json: classes whose heads must divide their width, and defaults of sizes that go together.

    python repokit/data/renew/even_heads.py

A pair of keys is kept for a class where a model of one layer is built (without memory) and run with four heads on a
width of 240, and with five, and is not with seven. Needs transformers and torch; takes some minutes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from repokit.schema.field_types import class_of, table

DATA = Path(__file__).resolve().parents[1]
WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "emb_dim", "dim")
HEADS = (
    *("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
    "num_encoder_attention_heads",
)
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth")
OTHERS = ("num_experts_per_tok", "num_local_experts", "num_experts", "n_routed_experts", "topk_group", "n_group")
SECONDS = 20


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    classes: dict[str, list[tuple[str, str]]] = {}
    defaults: dict[str, dict[str, int]] = {}
    for name, cls in every_class().items():
        known = class_of(name)
        made = None
        with contextlib.suppress(Exception):
            made = cls()
        if known is None or made is None:
            continue
        keys = [key for key in (*WIDTHS, *HEADS, *OTHERS) if key in known and type(default(made, key)) is int]
        pairs = [(width, heads) for width in WIDTHS for heads in HEADS if width in keys and heads in keys]
        pairs = [pair for pair in pairs if is_uneven(cls, *pair)]
        if pairs:
            classes[name] = pairs
        related = {key for pair in pairs for key in pair} | (set(keys) & set(OTHERS))
        if related:
            defaults[name] = {key: default(made, key) for key in sorted(related)}
        print(name, pairs, flush=True)
    write(classes, defaults)


def default(made: Any, key: str) -> Any:  # noqa: ANN401 - a config, and whatever it holds
    """The value of a default config; None where it differs from layer to layer."""
    with contextlib.suppress(Exception):
        return getattr(made, key)
    return None


def every_class() -> dict[str, Any]:
    """The name that the table of field types has for a class -> the class."""
    found: dict[str, Any] = {}
    for model_type in sorted(CONFIG_MAPPING):
        name = table()["model_types"].get(model_type, model_type)
        with contextlib.suppress(Exception):
            found.setdefault(name, CONFIG_MAPPING[model_type])
    return found


def is_uneven(cls: Any, width: str, heads: str) -> bool:  # noqa: ANN401 - a config class
    """Whether four and five heads run on a width of 240, and seven do not, whatever else is the default."""
    known = class_of(cls.model_type)
    if known is None or width in known.aliases or heads in known.aliases:
        return False
    others = {key: 4 for key in HEADS if key in known and key not in known.aliases}
    runs = [_runs(cls, {**others, width: 240, heads: number}) for number in (4, 5, 7)]
    return runs == [True, True, False]


def _runs(cls: Any, values: dict[str, int]) -> bool:  # noqa: ANN401 - a config class
    with _limited(), contextlib.suppress(Exception), torch.device("meta"):
        known = class_of(cls.model_type)
        config = cls(**values, **dict.fromkeys((key for key in LAYERS if known and key in known), 1))
        model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
        _step(model, config)
        return True
    return False


def _step(model: Any, config: Any) -> None:  # noqa: ANN401 - a model and its config
    """One step, on the input that the class names."""
    if model.main_input_name == "input_ids":
        given = {"input_ids": torch.ones(1, 4, dtype=torch.long)}
        if getattr(config, "is_encoder_decoder", False):
            given["decoder_input_ids"] = given["input_ids"]
        model(**given)
    elif model.main_input_name == "pixel_values":
        size = getattr(config, "image_size", 32)
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
        model(pixel_values=torch.ones(1, getattr(config, "num_channels", 3), *sides))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def write(classes: dict[str, list[tuple[str, str]]], defaults: dict[str, dict[str, int]]) -> None:
    document = {
        "source": f"transformers {transformers.__version__}, its config classes and models",
        "date": datetime.now(UTC).date().isoformat(),
        "classes": classes,
        "defaults": defaults,
    }
    text = json.dumps(document, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')
    (DATA / "even_heads.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
