"""What Trainer leaves behind: the final model, and two checkpoints with optimizer, scheduler and random states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiny_models.case import Case, table
from tiny_models.config import tiny_config
from tiny_models.tokenizer import SENTENCES, byte_level

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast


def _trainer_output(directory: Path) -> None:
    import transformers

    tokenizer = byte_level()
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=4, save_steps=2, logging_steps=1, save_total_limit=2,
        per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=transformers.Qwen2ForCausalLM(tiny_config("qwen2", vocab_size=len(tokenizer))),
        args=arguments,
        train_dataset=[_example(tokenizer, text) for text in [*SENTENCES, SENTENCES[0]]],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


def _example(tokenizer: PreTrainedTokenizerFast, text: str) -> dict[str, Any]:
    # Padding here stays in the tokenizer.json that is saved, as it does for many people.
    encoded = tokenizer(text, truncation=True, max_length=16, padding="max_length")
    return {**encoded, "labels": encoded["input_ids"]}


CASES = table(Case("trainer-output-dir", "training", _trainer_output))
