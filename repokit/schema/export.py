"""The models as JSON Schemas: the files in schemas/, for editors and for other programs.

They are generated and committed; a test fails when they are not what the models say. To renew them:

    python -m repokit.schema.export
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema

from repokit.errors import UsageError
from repokit.resources import folder as resource_folder
from repokit.schema.adapter import AdapterConfig
from repokit.schema.added_tokens import AddedTokens
from repokit.schema.baseline import Baseline
from repokit.schema.card import Card
from repokit.schema.chat_template import ChatTemplateFile
from repokit.schema.config import Config
from repokit.schema.diffusers import ComponentConfig, ModelIndex
from repokit.schema.eval_results import EvalResults
from repokit.schema.generation_config import GenerationConfig
from repokit.schema.manifest import Manifest
from repokit.schema.processor import Preprocessor, Processor
from repokit.schema.quantization import AwqSideFile, GptqSideFile, ModelOptSideFile, QuantizationConfig
from repokit.schema.report import Report
from repokit.schema.sentence_transformers import (
    DenseSettings,
    ModelSettings,
    Modules,
    PoolingSettings,
    TransformerSettings,
)
from repokit.schema.special_tokens_map import SpecialTokensMap
from repokit.schema.tokenizer import Tokenizer
from repokit.schema.tokenizer_config import TokenizerConfig
from repokit.schema.variants import RecipeFile
from repokit.schema.weight_index import WeightIndex

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import BaseModel

# File in schemas/ -> the model that it is made of, and the file that it describes.
SCHEMAS: Mapping[str, tuple[type[BaseModel], str]] = {
    "adapter_config.schema.json": (AdapterConfig, "adapter_config.json"),
    "added_tokens.schema.json": (AddedTokens, "added_tokens.json"),
    "baseline.schema.json": (Baseline, "what `repokit lint --write-baseline` writes"),
    "card.schema.json": (Card, "README.md, front matter"),
    "chat_template.schema.json": (ChatTemplateFile, "chat_template.json"),
    "config.schema.json": (Config, "config.json"),
    "config_sentence_transformers.schema.json": (ModelSettings, "config_sentence_transformers.json"),
    "dense.schema.json": (DenseSettings, "config.json of a Dense module of sentence-transformers"),
    "diffusers_component.schema.json": (ComponentConfig, "config.json of a model of diffusers, scheduler_config.json"),
    "eval_results.schema.json": (EvalResults, ".eval_results/*.yaml"),
    "generation_config.schema.json": (GenerationConfig, "generation_config.json"),
    "hf_quant_config.schema.json": (ModelOptSideFile, "hf_quant_config.json"),
    "manifest.schema.json": (Manifest, "repokit-manifest.json"),
    "model_index.schema.json": (ModelIndex, "model_index.json"),
    "modules.schema.json": (Modules, "modules.json"),
    "pooling.schema.json": (PoolingSettings, "config.json of a Pooling module of sentence-transformers"),
    "preprocessor_config.schema.json": (Preprocessor, "preprocessor_config.json"),
    "processor_config.schema.json": (Processor, "processor_config.json"),
    "quantization_config.schema.json": (QuantizationConfig, "config.json, quantization_config"),
    "quant_config.schema.json": (AwqSideFile, "quant_config.json"),
    "quantize_config.schema.json": (GptqSideFile, "quantize_config.json"),
    "recipe.schema.json": (RecipeFile, "repokit.yaml"),
    "report.schema.json": (Report, "repokit lint --format json"),
    "sentence_bert_config.schema.json": (TransformerSettings, "sentence_bert_config.json"),
    "special_tokens_map.schema.json": (SpecialTokensMap, "special_tokens_map.json"),
    "tokenizer.schema.json": (Tokenizer, "tokenizer.json"),
    "tokenizer_config.schema.json": (TokenizerConfig, "tokenizer_config.json"),
    "weight_index.schema.json": (WeightIndex, "model.safetensors.index.json"),
}

_ID: Final = "urn:repokit:schema:"  # how a schema of repokit is told from another file


def render() -> dict[str, bytes]:
    """File name -> content, for every schema. Equal models give equal bytes."""
    return {name: _rendered(name, model, title) for name, (model, title) in SCHEMAS.items()}


class _Plain(GenerateJsonSchema):
    """Without a `title` per field: it would repeat the key in other letters."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - the signature is Pydantic's
        return False


def _rendered(name: str, model: type[BaseModel], title: str) -> bytes:
    schema: dict[str, Any] = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"{_ID}{name.removesuffix('.schema.json')}",
        **model.model_json_schema(by_alias=True, schema_generator=_Plain),
        "title": title,
    }
    return (json.dumps(schema, indent=2, ensure_ascii=False) + "\n").encode()


def stale(folder: Path) -> list[str]:
    """Names of schemas in the folder that are not what `render` gives: changed, missing, or of no model (any more)."""
    wanted = render()
    there = {path.name: path.read_bytes() for path in folder.glob("*.schema.json") if path.is_file()}
    ours = {name for name, content in there.items() if name in wanted or _ID.encode() in content}
    return sorted(name for name in wanted.keys() | ours if wanted.get(name) != there.get(name))


def write(folder: Path) -> None:
    """Brings the schemas in the folder up to date, and removes those of models that are gone; other files stay.

    Raises:
        UsageError: The file system refused.
    """
    wanted = render()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in stale(folder):
            if name in wanted:
                (folder / name).write_bytes(wanted[name])
            else:
                (folder / name).unlink()
    except OSError as error:
        hint = "name a folder that you may write to"
        raise UsageError(
            f"cannot be written: {error.strerror}", path=str(error.filename or folder), hint=hint
        ) from None


if __name__ == "__main__":
    write(resource_folder("schemas"))
