"""Makes trainer-output/checkpoint-N: what transformers' Trainer leaves behind, for `repokit demo` and the tests.

    python repokit/data/demo/make_checkpoint.py [OUTPUT]

OUTPUT is the folder to write; by default trainer-output beside this file, which is replaced. What lies there was made
with transformers 5.24.0, torch 2.13.0, accelerate 1.15.0, tokenizers 0.23.3, safetensors 0.8.0 and numpy 2.4.6, and
is what those wrote: nothing in it was edited. The same versions on the same kind of processor write the same bytes.

A Trainer records its output folder in training_args.bin, so the training runs in a temporary folder under a relative
name: no path, host or user of the machine gets into the data.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")

import torch
from tokenizers import AddedToken
from transformers import (
    DataCollatorForLanguageModeling,
    GenerationConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    Trainer,
    TrainingArguments,
)

OUTPUT = "trainer-output"
STEPS = 200
MAX_LENGTH = 96  # tokens; the longest conversation has fewer

# ChatML, without the default system prompt that Qwen's own template adds.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

CONVERSATIONS = {
    "What is in a model repository?": "Weights, a config and a tokenizer.",
    "Who reads the model card?": "Everyone who wants to use the model.",
    "Why is there a license file?": "So that people know what they may do.",
    "What does a shard hold?": "A part of the weights.",
    "Where do the shards meet?": "In the index.",
    "When is a repository done?": "When it loads.",
}


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name(OUTPUT)).resolve()
    with tempfile.TemporaryDirectory() as work, chdir(work):
        train()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(OUTPUT, target)
    for path in target.glob("*/*"):
        path.chmod(0o644)  # safetensors' own writer makes files that only their owner may read


def train() -> None:
    tokenizer = make_tokenizer()
    arguments = TrainingArguments(
        output_dir=OUTPUT,
        max_steps=STEPS,
        save_steps=STEPS,
        logging_steps=STEPS // 8,
        per_device_train_batch_size=len(CONVERSATIONS),
        learning_rate=2e-2,
        lr_scheduler_type="cosine",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    Trainer(
        model=make_model(tokenizer),
        args=arguments,
        train_dataset=[make_example(tokenizer, *conversation) for conversation in CONVERSATIONS.items()],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    ).train()


def make_tokenizer() -> Qwen2Tokenizer:
    """Byte-level BPE: the 256 bytes, three special tokens, a few merges."""
    untrained = Qwen2Tokenizer(
        unk_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", add_prefix_space=False
    )
    untrained.add_tokens([AddedToken("<|im_start|>", special=True)])
    texts = [text for conversation in CONVERSATIONS.items() for text in conversation]
    tokenizer = untrained.train_new_from_iterator(texts, vocab_size=288, show_progress=False)
    tokenizer.model_max_length = MAX_LENGTH
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """Under 12,000 parameters, with a head of its own."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=12,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=48,
    )
    return model


def make_example(tokenizer: Qwen2Tokenizer, question: str, answer: str) -> dict[str, list[int]]:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    # Padding is left to the collator: what is padded here stays in tokenizer.json and pads every later call.
    return {"input_ids": tokenizer(tokenizer.apply_chat_template(messages, tokenize=False))["input_ids"]}


if __name__ == "__main__":
    main()
