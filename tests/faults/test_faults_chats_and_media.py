"""Faults of published repositories: chat templates, processors of images.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import CHATML, Example, edited
from repokit.linter.finding import Severity
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.processor import IMAGE_PROCESSOR, vit
from repokit.linter.rules.token_ids import with_added

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
CONFIG: Final = "config.json"
JINJA: Final = "chat_template.jinja"
TOKENIZER: Final = "tokenizer_config.json"
TOKENIZER_JSON: Final = "tokenizer.json"
CARD: Final = "README.md"
VLM: Final = {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"patch_size": 4}}

FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "CT01 THUDM/LongWriter#39": (
        "TPL208",
        WARNING,
        Example("a card that promises chats", {JINJA: None, CARD: with_lines("tags:\n- conversational\n")}),
    ),
    "CT01 THUDM/LongWriter#39 (by its name)": (
        "TPL208",
        WARNING,
        Example("tuned for instructions", {JINJA: None, CARD: with_lines("model_name: example-7b-instruct\n")}),
    ),
    "CT02 huggingface/text-generation-inference#3247": ("TPL301", NOTE, Example("a file alone")),
    "CT03 huggingface/transformers#33957": (
        "TPL104",
        ERROR,
        Example("two places", {TOKENIZER: {"chat_template": "{{ messages[0].content }}"}}),
    ),
    "CT04 vllm-project/vllm#15230": (
        "TPL101",
        ERROR,
        Example("escapes of JSON", {JINJA: CHATML.replace("'<|im", '\\"<|im')}),
    ),
    "CT05 abetlen/llama-cpp-python#2082": (
        "TPL302",
        NOTE,
        Example(
            "a tag for training",
            {JINJA: CHATML.replace("{% endfor %}", "{% generation %}{% endgeneration %}{% endfor %}")},
        ),
    ),
    "PP01 LLaVA-VL/LLaVA-NeXT#20": ("PRC101", ERROR, Example("no processor", {CONFIG: VLM})),
    "PP01 2U1/Qwen-VL-Series-Finetune#34": (
        "PRC101",
        ERROR,
        Example(
            "a checkpoint",
            {
                CONFIG: {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"patch_size": 4}},
                "trainer_state.json": "{}",
            },
        ),
    ),
    "PP02 modelscope/ms-swift#6666": (
        "PRC203",
        WARNING,
        Example(
            "a grid of the base",
            vit({**IMAGE_PROCESSOR, "image_grid_pinpoints": [[8, 8]]}, image_grid_pinpoints=[[8, 16]]),
        ),
    ),
    "PP03 aim-uofa/Active-o3#1": (
        "PRC102",
        ERROR,
        Example(
            "a class that nobody has", vit({"size": {"height": 8, "width": 8}, "processor_class": "OursProcessor"})
        ),
    ),
    "PP03 aim-uofa/Active-o3#1 (no config.json)": (
        "PRC103",
        ERROR,
        Example("no class", {**vit({"size": {"height": 8, "width": 8}}), CONFIG: None, "model.safetensors": None}),
    ),
    "PP05 StarsfieldAI/R1-V#91": (
        "PRC104",
        ERROR,
        Example(
            "an id beside",
            {
                CONFIG: {**VLM, "image_token_id": 31},
                TOKENIZER_JSON: with_added("<image>", 32),
                "preprocessor_config.json": IMAGE_PROCESSOR,
                "model.safetensors": edited(
                    add=dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (64, 16)))
                ),
            },
        ),
    ),
    "PP05 StarsfieldAI/R1-V#91 (named)": (
        "PRC104",
        ERROR,
        Example(
            "an id beside",
            {CONFIG: {**VLM, "image_token_id": 4}, TOKENIZER: {"image_token": "<unk>"}},
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
