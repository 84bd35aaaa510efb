"""What each artifact's model takes and refuses, as its readers do."""

from __future__ import annotations

import pytest

from repokit.schema.adapter import AdapterConfig
from repokit.schema.added_tokens import AddedTokens
from repokit.schema.card import Card
from repokit.schema.chat_template import ChatTemplateFile
from repokit.schema.config import Config
from repokit.schema.document import problems
from repokit.schema.generation_config import GenerationConfig
from repokit.schema.processor import Preprocessor, Processor
from repokit.schema.quantization import AwqSideFile, GptqSideFile, ModelOptSideFile, QuantizationConfig
from repokit.schema.special_tokens_map import SpecialTokensMap
from repokit.schema.tokenizer import Tokenizer
from repokit.schema.tokenizer_config import TokenizerConfig
from repokit.schema.weight_index import WeightIndex

FLAGS = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
RESULT = {
    "task": {"type": "fill-mask"},
    "dataset": {"type": "glue", "name": "GLUE"},
    "metrics": [{"type": "accuracy", "value": 0.5}],
}

LEGAL = [
    (Config, {"model_type": "llama", "hidden_size": 4096, "eos_token_id": [1, 2], "pad_token_id": None}),
    (Config, {"rms_norm_eps": 1, "rope_theta": {"__float__": "Infinity"}}),
    (
        Config,
        {"num_attention_heads": [1, 2, 5, 8], "image_size": [224, 224], "patch_size": {"height": 16, "width": 16}},
    ),
    (Config, {"auto_map": {"AutoConfig": "configuration_x.XConfig", "AutoTokenizer": ["tokenization_x.X", None]}}),
    (Config, {"text_config": {"vocab_size": 32, "text_config": {"hidden_size": 8}}, "vision_config": None}),
    (Config, {"id2label": {"0": "cat"}, "label2id": {"cat": 0}, "dtype": "bfloat16", "frobnicate": object()}),
    (
        GenerationConfig,
        {"eos_token_id": [1, 2], "temperature": 1, "early_stopping": "never", "_from_model_config": True},
    ),
    (GenerationConfig, {"exponential_decay_length_penalty": [20, 1.01], "bad_words_ids": [[1, 2]]}),
    (
        TokenizerConfig,
        {"model_max_length": 1000000000000000019884624838656, "bos_token": {"content": "<s>", "__type": "AddedToken"}},
    ),
    (TokenizerConfig, {"chat_template": [{"name": "default", "template": "{{ messages }}"}], "image_token": "<image>"}),
    (
        TokenizerConfig,
        {"extra_special_tokens": {"image_token": "<image>"}, "added_tokens_decoder": {"0": {"content": "<s>"}}},
    ),
    (TokenizerConfig, {"extra_special_tokens": ["<x>"], "auto_map": ["tokenization_x.X", None]}),
    (SpecialTokensMap, {"eos_token": "</s>", "additional_special_tokens": ["<a>", {"content": "<b>"}]}),
    (AddedTokens, {"<pad>": 32000}),
    (Tokenizer, TOKENIZER),
    (
        Tokenizer,
        {
            **TOKENIZER,
            "added_tokens": [{"id": 1, "content": "<s>", **FLAGS, "extra": 1}],
            "normalizer": {"prepend": "x"},
        },
    ),
    (Tokenizer, {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.5]]}}),
    (ChatTemplateFile, {"chat_template": "{{ messages }}"}),
    (ChatTemplateFile, {"chat_template": {"default": "{{ messages }}"}}),
    (Preprocessor, {"size": {"shortest_edge": 224}, "image_mean": [0.5, 0.5, 0.5], "resample": 3, "rescale_factor": 1}),
    (Preprocessor, {"size": 224, "sampling_rate": 16000, "padding_value": 0.0, "fps": 2}),
    (
        Processor,
        {"processor_class": "X", "image_processor": {"size": {"height": 8, "width": 8}}, "feature_extractor": None},
    ),
    (
        Card,
        {
            "language": "en",
            "license": ["mit", "apache-2.0"],
            "base_model": ["a/b"],
            "co2_eq_emissions": 3,
            "inference": False,
        },
    ),
    (Card, {"model-index": [{"name": "m", "results": [RESULT]}], "anything": {"else": 1}}),
    (WeightIndex, {"metadata": {"total_size": 13731385408.0, "mergekit_version": "0.1"}, "weight_map": {"a": "b"}}),
    (AdapterConfig, {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": "all-linear", "novel": None}),
    (QuantizationConfig, {"quant_method": "gptq", "bits": 4, "group_size": -1, "dataset": ["x"]}),
    (GptqSideFile, {"bits": 4, "desc_act": True, "model_file_base_name": "model"}),
    (AwqSideFile, {"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}),
    (
        ModelOptSideFile,
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}},
    ),
]


@pytest.mark.parametrize(("model", "raw"), LEGAL, ids=lambda value: getattr(value, "__name__", ""))
def test_legal_document(model, raw):
    assert problems(model, raw) == ()


WRONG = [
    (Config, {"hidden_size": "4096"}, "/hidden_size"),
    (Config, {"vocab_size": 32000.0}, "/vocab_size"),
    (Config, {"num_hidden_layers": True}, "/num_hidden_layers"),
    (Config, {"rms_norm_eps": "1e-5"}, "/rms_norm_eps"),
    (Config, {"rope_theta": {"__float__": "Huge"}}, "/rope_theta"),
    (Config, {"architectures": "LlamaForCausalLM"}, "/architectures"),
    (Config, {"tie_word_embeddings": "false"}, "/tie_word_embeddings"),
    (Config, {"quantization_config": "gptq"}, "/quantization_config"),
    (Config, {"eos_token_id": [1, "2"]}, "/eos_token_id/1"),
    (Config, {"auto_map": {"AutoModel": 1}}, "/auto_map/AutoModel"),
    (Config, {"text_config": {"hidden_size": "8"}}, "/text_config/hidden_size"),
    (Config, {"vision_config": "clip"}, "/vision_config"),
    (
        Config,
        {"thinker_config": {"text_config": {"head_dim": None, "layer_types": 1}}},
        "/thinker_config/text_config/layer_types",
    ),
    (GenerationConfig, {"max_new_tokens": 10.0}, "/max_new_tokens"),
    (GenerationConfig, {"temperature": "0.7"}, "/temperature"),
    (GenerationConfig, {"do_sample": 1}, "/do_sample"),
    (GenerationConfig, {"eos_token_id": "2"}, "/eos_token_id"),
    (GenerationConfig, {"bad_words_ids": [[1, "x"]]}, "/bad_words_ids/0/1"),
    (TokenizerConfig, {"model_max_length": "512"}, "/model_max_length"),
    (TokenizerConfig, {"bos_token": 1}, "/bos_token"),
    (TokenizerConfig, {"bos_token": {"content": None}}, "/bos_token/content"),
    (TokenizerConfig, {"extra_special_tokens": "x"}, "/extra_special_tokens"),
    (TokenizerConfig, {"chat_template": {"default": "x"}}, "/chat_template"),
    (TokenizerConfig, {"chat_template": [{"name": "default"}]}, "/chat_template/0"),
    (TokenizerConfig, {"added_tokens_decoder": {"0": "<s>"}}, "/added_tokens_decoder/0"),
    (SpecialTokensMap, {"additional_special_tokens": ["a", 5]}, "/additional_special_tokens/1"),
    (AddedTokens, {"<pad>": "32000"}, "/<pad>"),
    (AddedTokens, ["<pad>"], ""),
    (Tokenizer, {"version": "1.0"}, ""),
    (Tokenizer, {**TOKENIZER, "comment": "x"}, "/comment"),
    (Tokenizer, {**TOKENIZER, "version": None}, "/version"),
    (Tokenizer, {**TOKENIZER, "added_tokens": None}, "/added_tokens"),
    (
        Tokenizer,
        {**TOKENIZER, "added_tokens": [{"id": 1, "content": "<s>"} | FLAGS | {"special": 1}]},
        "/added_tokens/0/special",
    ),
    (Tokenizer, {**TOKENIZER, "added_tokens": [{"id": -1, "content": "<s>"} | FLAGS]}, "/added_tokens/0/id"),
    (Tokenizer, {**TOKENIZER, "normalizer": "NFC"}, "/normalizer"),
    (Tokenizer, {**TOKENIZER, "truncation": {"max_length": 5, "strategy": "LongestFirst"}}, "/truncation"),
    (Tokenizer, {"model": {"type": "BPE", "vocab": 5}}, "/model/vocab"),
    (Tokenizer, {"model": {"type": "BPE", "vocab": {}, "merges": {}}}, "/model/merges"),
    (ChatTemplateFile, {"chat_template": 5}, "/chat_template"),
    (Preprocessor, {"size": "224"}, "/size"),
    (Preprocessor, {"size": {"height": "224"}}, "/size/height"),
    (Preprocessor, {"do_resize": "true"}, "/do_resize"),
    (Preprocessor, {"image_mean": [0.5, "0.5"]}, "/image_mean/1"),
    (Processor, {"image_processor": {"resample": "bicubic"}}, "/image_processor/resample"),
    (Card, {"language": [False]}, "/language/0"),
    (Card, {"tags": "chat"}, "/tags"),
    (Card, {"license": 5}, "/license"),
    (Card, {"model-index": {"name": "m"}}, "/model-index"),
    (Card, {"model-index": [{"name": "m", "results": [{**RESULT, "task": {}}]}]}, "/model-index/0/results/0/task"),
    (WeightIndex, {"metadata": {}, "weight_map": {"a": 1}}, "/weight_map/a"),
    (WeightIndex, {"metadata": {"total_size": "5"}, "weight_map": {}}, "/metadata/total_size"),
    (WeightIndex, {"metadata": []} | {"weight_map": {}}, "/metadata"),
    (AdapterConfig, {"peft_type": "LORA", "r": "8"}, "/r"),
    (QuantizationConfig, {"quant_method": "gptq", "bits": "4"}, "/bits"),
    (GptqSideFile, {"desc_act": "true"}, "/desc_act"),
    (AwqSideFile, {"w_bit": 4.0}, "/w_bit"),
    (ModelOptSideFile, {"quantization": {"exclude_modules": "lm_head"}}, "/quantization/exclude_modules"),
]


@pytest.mark.parametrize(("model", "raw", "place"), WRONG, ids=[f"{m.__name__}{p}" for m, _, p in WRONG])
def test_wrong_value_is_found_at_its_place(model, raw, place):
    assert [problem.pointer for problem in problems(model, raw)] == [place]


@pytest.mark.parametrize("key", ["content", "id", *FLAGS])
def test_tokenizers_library_needs_every_key_of_an_added_token(key):
    token = {"id": 1, "content": "<s>", **FLAGS}
    del token[key]
    (problem,) = problems(Tokenizer, {**TOKENIZER, "added_tokens": [token]})
    assert problem.missing == key


def test_vocabulary_is_not_walked():
    class Untouchable(dict):
        def __iter__(self):
            raise AssertionError("walked")

        items = keys = values = __iter__

    assert problems(Tokenizer, {"model": {"type": "BPE", "vocab": Untouchable({"a": 0})}}) == ()
