"""peft adapters, and the base models that they fit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tiny_models.case import Case, seed, table
from tiny_models.text import tiny_model
from tiny_models.tokenizer import byte_level, sentencepiece_bpe, wordpiece

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerFast

BASES = {
    "base-llama": ("LlamaForCausalLM", "llama", sentencepiece_bpe),
    "base-qwen2": ("Qwen2ForCausalLM", "qwen2", byte_level),
    "base-bert": ("BertForSequenceClassification", "bert", wordpiece),
}

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def base_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The same weights at every call."""
    architecture, model_type, make_tokenizer = BASES[name]
    tokenizer = make_tokenizer()
    seed(name)
    return tiny_model(architecture, model_type, tokenizer), tokenizer


def _save_base(directory: Path, *, name: str) -> None:
    model, tokenizer = base_model(name)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _adapter(name: str, config_class: str, *, base: str = "base-llama", **config: Any) -> Case:
    def write(directory: Path) -> None:
        import peft

        model, tokenizer = base_model(base)
        # peft records where the base was loaded from, in adapter_config.json and (from the config) in README.md:
        # here an id on the Hub, as in an adapter that others can use.
        model.name_or_path = model.config.name_or_path = f"example/{base}"
        adapter_config = getattr(peft, config_class)(**({"task_type": "CAUSAL_LM"} | config))
        seed(name)
        peft.get_peft_model(model, adapter_config).save_pretrained(str(directory))
        tokenizer.save_pretrained(directory)

    return Case(name, "adapter", write, base=base)


CASES = table(
    *(Case(name, "base", partial(_save_base, name=name)) for name in BASES),
    _adapter("peft-lora", "LoraConfig", r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    _adapter("peft-lora-all-linear-dora", "LoraConfig", r=4, target_modules="all-linear", use_dora=True),
    _adapter(
        "peft-lora-modules-to-save", "LoraConfig",
        r=4, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"],
    ),
    _adapter(
        "peft-lora-rslora-bias", "LoraConfig",
        r=2, target_modules=["q_proj", "k_proj"], use_rslora=True, bias="lora_only",
    ),
    _adapter(
        "peft-ia3", "IA3Config",
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"],
    ),
    _adapter("peft-prompt-tuning", "PromptTuningConfig", num_virtual_tokens=4),
    _adapter("peft-prefix-tuning", "PrefixTuningConfig", num_virtual_tokens=4),
    _adapter("peft-adalora", "AdaLoraConfig", target_modules=["q_proj"], total_step=10),
    _adapter("peft-loha", "LoHaConfig", r=4, target_modules=["q_proj"]),
    _adapter("peft-vera", "VeraConfig", r=4, target_modules=["q_proj"]),
    _adapter("peft-oft", "OFTConfig", r=0, oft_block_size=4, target_modules=["q_proj"]),
    _adapter(
        "peft-trainable-tokens", "LoraConfig",
        r=2, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [1, 2, 3]},
    ),
    _adapter(
        "peft-lora-seqcls-bert", "LoraConfig", base="base-bert",
        task_type="SEQ_CLS", r=4, target_modules=["query", "value"],
    ),
    _adapter("peft-lora-qwen2", "LoraConfig", base="base-qwen2", r=8, target_modules=ALL_LINEAR),
)  # fmt: skip
