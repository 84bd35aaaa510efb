"""Real published files: the models have no objection to them, but for defects that are really there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from repokit.schema.adapter import AdapterConfig
from repokit.schema.added_tokens import AddedTokens
from repokit.schema.config import Config
from repokit.schema.document import problems
from repokit.schema.generation_config import GenerationConfig
from repokit.schema.processor import Preprocessor, Processor
from repokit.schema.quantization import GptqSideFile, QuantizationConfig
from repokit.schema.quantization_limits import refusals
from repokit.schema.sentence_transformers import ModelSettings, Modules, PoolingSettings, TransformerSettings
from repokit.schema.special_tokens_map import SpecialTokensMap
from repokit.schema.tokenizer import Tokenizer
from repokit.schema.tokenizer_config import TokenizerConfig
from repokit.schema.weight_index import WeightIndex

CORPUS = os.environ.get("REPOKIT_CORPUS")
MODELS = {
    "adapter_config.json": AdapterConfig,
    "added_tokens.json": AddedTokens,
    "1_Pooling/config.json": PoolingSettings,
    "config.json": Config,
    "config_sentence_transformers.json": ModelSettings,
    "generation_config.json": GenerationConfig,
    "model.safetensors.index.json": WeightIndex,
    "modules.json": Modules,
    "preprocessor_config.json": Preprocessor,
    "processor_config.json": Processor,
    "pytorch_model.bin.index.json": WeightIndex,
    "quantize_config.json": GptqSideFile,
    "sentence_bert_config.json": TransformerSettings,
    "special_tokens_map.json": SpecialTokensMap,
    "tokenizer.json": Tokenizer,
    "tokenizer_config.json": TokenizerConfig,
}

pytestmark = pytest.mark.skipif(not CORPUS, reason="REPOKIT_CORPUS does not point at an unpacked corpus")


def documents(name):
    for path in sorted(Path(CORPUS).rglob(name)):
        try:
            yield path, json.loads(path.read_bytes())
        except ValueError:  # Git LFS pointers, and the corpus has files that are no JSON
            continue


@pytest.mark.parametrize("name", MODELS)
def test_real_files_have_no_problem(name):
    assert {str(path): found for path, raw in documents(name) if (found := problems(MODELS[name], raw))} == {}


def quantization_configs():
    for path, raw in documents("config.json"):
        if isinstance(raw, dict) and isinstance(config := raw.get("quantization_config"), dict):
            yield path, config


def test_real_quantized_models_have_no_problem():
    found = {str(path): problems(QuantizationConfig, config) for path, config in quantization_configs()}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
    assert found


def test_real_quantized_models_are_not_refused():
    assert {str(path): found for path, config in quantization_configs() if (found := list(refusals(config)))} == {}
