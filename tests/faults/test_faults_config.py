"""Faults of published repositories: config.json and generation_config.json.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import DELETE, Example, edited, safetensors, shard, tensors_of
from repokit.linter.finding import Severity
from repokit.linter.rules.processor import vit
from repokit.linter.rules.token_ids import with_added
from repokit.repo.weights import SINGLE

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
TOKENIZER: Final = "tokenizer_config.json"
EOS: Final = "eos_token_id"
TEXT: Final = {"vocab_size": 32, "hidden_size": 16}
CLASSIFIER: Final = {
    SINGLE: edited(drop=("lm_head.weight",), add={"score.weight": ("BF16", (3, 16))}),
    GENERATION: None,
}
CLASSIFIES: Final = {"architectures": ["LlamaForSequenceClassification"]}
WHISPER: Final = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "vocab_size": 32,
}
LANGUAGES: Final = {"is_multilingual": True, "lang_to_id": {"<|en|>": 5}, "task_to_id": {"transcribe": 6}}


def as_dtype(dtype: str):
    """A change that stores every tensor in another dtype."""
    return lambda content: safetensors({name: (dtype, shape) for name, (_, shape) in tensors_of(content).items()})


def inserted(text: str):
    """A change to the text of a JSON object: a first entry, spelled as it is."""
    return lambda content: content.replace(b"{", b"{" + text.encode() + b", ", 1)


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "CF01 huggingface/transformers#42381": (
        "CFG101",
        ERROR,
        Example("no model_type", {CONFIG: {"model_type": DELETE}}),
    ),
    "CF02 instructlab/training#128": (
        "CFG201",
        WARNING,
        Example("no architectures", {CONFIG: {"architectures": DELETE}}),
    ),
    "CF02 vllm-project/vllm#14105": (
        "CFG201",
        WARNING,
        Example(
            "in the language model alone",
            {CONFIG: {"architectures": DELETE, "language_config": {**TEXT, "architectures": ["LlamaForCausalLM"]}}},
        ),
    ),
    "CF03 ai-dynamo/dynamo#3043": (
        "FIL101",
        ERROR,
        Example("NaN", {CONFIG: inserted('"text_config": {"x": NaN}')}),
    ),
    "CF03 huggingface/transformers#42959": (
        "FIL207",
        WARNING,
        Example("an infinite number", {CONFIG: inserted('"x": -Infinity')}),
    ),
    "CF03 Sygil-Dev/sygil-webui#919": (
        "FIL101",
        ERROR,
        Example("a comma too many", {CONFIG: lambda old: old.rstrip()[:-1] + b",}"}),
    ),
    "CF03 (byte order mark)": (
        "FIL101",
        ERROR,
        Example("saved by an editor", {CONFIG: lambda old: b"\xef\xbb\xbf" + old}),
    ),
    "CF03 (duplicate keys)": (
        "FIL101",
        ERROR,
        Example("one key twice", {CONFIG: inserted('"hidden_size": 8')}),
    ),
    "CF04 ggml-org/llama.cpp#3900": (
        "CFG105",
        ERROR,
        Example(
            "Meta's own format",
            {
                CONFIG: None,
                SINGLE: None,
                "consolidated.00.pth": b"PK\x03\x04" + bytes(60),
                "params.json": '{"dim": 16, "n_heads": 2, "n_layers": 2, "vocab_size": -1}',
            },
        ),
    ),
    "CF04 (config.json)": ("CFG105", ERROR, Example("a placeholder", {CONFIG: {"vocab_size": -1}})),
    "CF05 NVIDIA-NeMo/Automodel#1916": (
        "CFG104",
        ERROR,
        Example("a draft layer was counted", {CONFIG: {"layer_types": ["full_attention"] * 3}}),
    ),
    "CF05 (a switch for each layer)": (
        "CFG104",
        ERROR,
        Example("too few", {CONFIG: {"model_type": "smollm3", "no_rope_layers": [1]}}),
    ),
    "CF05 (indexers)": ("CFG104", ERROR, Example("too many", {CONFIG: {"indexer_types": ["full"] * 3}})),
    # A legitimate config that only newer versions read; faults of that kind are notes.
    "CF06 meta-llama/llama3#299": (
        "CFG303",
        NOTE,
        Example(
            "fields that older versions refuse",
            {
                CONFIG: {
                    "rope_parameters": DELETE,
                    "rope_theta": 500000.0,
                    "rope_scaling": {
                        "rope_type": "llama3",
                        "factor": 8.0,
                        "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 16,
                    },
                }
            },
        ),
    ),
    "CF06 meta-llama/llama3#299 (the older key)": (
        "CFG303",
        NOTE,
        Example(
            "three fields where two are allowed",
            {
                CONFIG: {
                    "rope_parameters": DELETE,
                    "rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0},
                }
            },
        ),
    ),
    "CF06 vllm-project/vllm#42624": (
        "CFG205",
        WARNING,
        Example("where older versions do not look", {CONFIG: {"rope_parameters": {"rope_theta": 500000.0}}}),
    ),
    "CF06 (unknown type)": (
        "CFG108",
        ERROR,
        Example("a misspelt type", {CONFIG: {"rope_parameters": {"rope_type": "lama3", "factor": 8.0}}}),
    ),
    "CF06 (a field is missing)": (
        "CFG109",
        ERROR,
        Example("linear scaling by what?", {CONFIG: {"rope_parameters": {"rope_type": "linear"}}}),
    ),
    "CF06 (both spellings, two values)": (
        "CFG111",
        ERROR,
        Example("two base periods", {CONFIG: {"rope_theta": 500000.0}}),
    ),
    "CF07 axolotl-ai-cloud/axolotl#904": (
        "WGT202",
        WARNING,
        Example("declared float32", {CONFIG: {"dtype": "float32"}}),
    ),
    "CF07 intel/auto-round#2385": ("WGT108", ERROR, Example("stored in float32", {SINGLE: as_dtype("F32")})),
    "CF07 OpenPipe/OpenPipe#591": (
        "WGT204",
        WARNING,
        Example("declared and stored in float32", {CONFIG: {"dtype": "float32"}, SINGLE: as_dtype("F32")}),
    ),
    "CF07 huggingface/transformers#33780": (
        "WGT108",
        ERROR,
        Example("shards in float32", {shard(number): as_dtype("F32") for number in (1, 2, 3)}, "sharded"),
    ),
    "CF08 unslothai/unsloth-zoo#286": (
        "CFG202",
        WARNING,
        Example("two spellings, two values", {CONFIG: {"torch_dtype": "float16"}}),
    ),
    "CF09 haotian-liu/LLaVA#94": (
        "CFG103",
        ERROR,
        Example("pad is the number of rows", {CONFIG: {"pad_token_id": 32}}),
    ),
    "CF09 meta-llama/llama-cookbook#189": (
        "GEN102",
        ERROR,
        Example("in one file", {CONFIG: {"pad_token_id": None}, GENERATION: {"pad_token_id": 32}}),
    ),
    "CF09 huggingface/transformers#3108": (
        "TOK106",
        ERROR,
        Example(
            "the mask beside the last row",
            {"tokenizer.json": with_added("<mask>", 32), TOKENIZER: {"mask_token": "<mask>"}},
        ),
    ),
    "CF09 stefan-it/german-gpt2#9": ("CFG103", ERROR, Example("the end is no row", {CONFIG: {EOS: 32}})),
    "CF10 huggingface/transformers#10449": (
        "WGT109",
        ERROR,
        Example("a config of another model", {**CLASSIFIER, CONFIG: {**CLASSIFIES, "id2label": {"0": "a", "1": "b"}}}),
    ),
    "CF10 alexandrainst/danlp#80": (
        "WGT109",
        ERROR,
        Example("no labels", {**CLASSIFIER, CONFIG: CLASSIFIES}),
    ),
    "CF10 (names that say nothing)": (
        "CFG206",
        WARNING,
        Example(
            "placeholders",
            {
                **CLASSIFIER,
                CONFIG: {
                    **CLASSIFIES,
                    "id2label": {str(number): f"LABEL_{number}" for number in range(3)},
                    "label2id": {f"LABEL_{number}": number for number in range(3)},
                },
            },
        ),
    ),
    "CF10 (no inverse)": (
        "CFG207",
        WARNING,
        Example(
            "one table was edited",
            {
                **CLASSIFIER,
                CONFIG: {
                    **CLASSIFIES,
                    "id2label": {"0": "no", "1": "yes", "2": "maybe"},
                    "label2id": {"no": 0, "yes": 2, "maybe": 1},
                },
            },
        ),
    ),
    "CF11 bytedance/tarsier#26": (
        "CFG204",
        WARNING,
        Example("in the text model", {CONFIG: {"text_config": {**TEXT, "attn_implementation": "flash_attention_2"}}}),
    ),
    "CF12 huggingface/transformers#21483": (
        "SEC201",
        WARNING,
        Example("where the tokenizer was", {TOKENIZER: {"name_or_path": "/home/alice/run-7"}}),
    ),
    "CF13 zai-org/GLM-4#612": (
        "CFG203",
        WARNING,
        Example("code of the base", {CONFIG: {"auto_map": {"AutoConfig": "org/base--configuration_x.XConfig"}}}),
    ),
    "CF13 huggingface/transformers#29714": (
        "CFG107",
        ERROR,
        Example(
            "a folder of code",
            {
                CONFIG: {"auto_map": {"AutoModel": "modeling.X"}},
                "modeling.py": "from .utils.pos import X\n",
                "utils/pos.py": "class X: ...\n",
            },
        ),
    ),
    "CF13 huggingface/transformers#29714 (not there)": (
        "CFG107",
        ERROR,
        Example(
            "a folder that was not uploaded",
            {CONFIG: {"auto_map": {"AutoModel": "modeling.X"}}, "modeling.py": "from .utils.pos import X\n"},
        ),
    ),
    "CF13 huggingface/transformers#20813": (
        "CFG107",
        ERROR,
        Example(
            "copied out of the library",
            {
                CONFIG: {"auto_map": {"AutoModel": "modeling.X"}},
                "modeling.py": "from ...activations import ACT2FN\n",
            },
        ),
    ),
    "GC01 QwenLM/Qwen3#927": (
        "TOK111",
        ERROR,
        Example("the tokenizer of the chat model", {CONFIG: {EOS: 2}, GENERATION: {EOS: 2}}),
    ),
    "GC01 QwenLM/Qwen3#927 (config.json alone)": (
        "GEN202",
        WARNING,
        Example("in config.json, where generate() does not look", {GENERATION: {EOS: 2}}),
    ),
    "GC01 huggingface/open-r1#663": (
        "TOK111",
        ERROR,
        Example("ids of the base after chat training", {CONFIG: {EOS: DELETE}, GENERATION: {EOS: 2}}),
    ),
    "GC01 Blaizzy/mlx-vlm#1191": (
        "TOK111",
        ERROR,
        Example("ids lost in a conversion", {CONFIG: {EOS: DELETE}, GENERATION: None}),
    ),
    "GC01 Blaizzy/mlx-vlm#1191 (a family without a default)": (
        "TOK111",
        ERROR,
        Example("ids lost in a conversion", {CONFIG: {EOS: DELETE, "model_type": "qwen3"}, GENERATION: None}),
    ),
    "GC01 axolotl-ai-cloud/axolotl#801": (
        "TOK111",
        ERROR,
        Example(
            "a new token for the end",
            {
                CONFIG: {EOS: 2},
                GENERATION: {EOS: 2},
                "tokenizer.json": with_added("<end>", 32),
                TOKENIZER: {"eos_token": "<end>"},
            },
        ),
    ),
    "GC01 tloen/alpaca-lora#279": (
        "TOK111",
        ERROR,
        Example(
            "tokens that are empty",
            {CONFIG: {"bos_token_id": 0, EOS: 1}, TOKENIZER: {"bos_token": "", "eos_token": ""}},
        ),
    ),
    "GC01 Vision-CAIR/MiniGPT-4#339": (
        "TOK111",
        ERROR,
        Example(
            "ids of another generation",
            {
                CONFIG: {"bos_token_id": 0, EOS: 1, "pad_token_id": -1},
                GENERATION: {"bos_token_id": 0, EOS: 1, "pad_token_id": 0},
                TOKENIZER: {"eos_token": "</s>"},
            },
        ),
    ),
    "GC02 hiyouga/LlamaFactory#7454": (
        "TPL107",
        ERROR,
        Example(
            "a chat template for a base model",
            {CONFIG: {EOS: 2}, GENERATION: {EOS: 2}, TOKENIZER: {"eos_token": "</s>"}},
        ),
    ),
    "GC03 QwenLM/Qwen3-ASR#210": (
        "GEN201",
        WARNING,
        Example("a temperature for greedy search", {GENERATION: {"do_sample": False, "temperature": 1e-06}}),
    ),
    "GC03 hiyouga/LlamaFactory#2837": (
        "GEN201",
        WARNING,
        Example("sampling that is not asked for", {GENERATION: {"temperature": 0.9, "top_p": 0.6}}),
    ),
    "GC04 huggingface/transformers#21878": (
        "GEN103",
        ERROR,
        Example(
            "no languages and tasks",
            {**vit(), CONFIG: WHISPER, GENERATION: '{"no_timestamps_token_id": 7, "is_multilingual": true}'},
        ),
    ),
    "GC04 huggingface/transformers#25298": (
        "GEN103",
        ERROR,
        Example(
            "no token for no timestamps",
            {**vit(), CONFIG: WHISPER, GENERATION: LANGUAGES},
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
