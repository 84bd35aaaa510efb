"""Five kinds of tokenizer, trained on a few sentences and wrapped by transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "def main(): return 42",
    "Hello, world! How are you today?",
    "A model repository holds weights, a config and a tokenizer.",
    "naïve café – größer, 你好世界, مرحبا",  # noqa: RUF001 - text of several scripts, on purpose
    "1234567890 +-*/=()[]{}<>",
    "user assistant system tool function call",
]
TRAINING_TEXT = SENTENCES * 20

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2's and Qwen's, with the placeholder tokens of images, videos and sounds."""
    tokenizer = _byte_level_bpe("<|bos|>", "<|im_end|>", "<|pad|>", "<|im_start|>", "<image>", "<video>", "<audio>")
    return _wrap(tokenizer, CHATML, bos_token="<|bos|>", eos_token="<|im_end|>", pad_token="<|pad|>")


def sentencepiece_bpe(chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """As Llama 2's, Mistral's and Gemma's: spaces become ▁, unknown characters fall back to bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return _wrap(tokenizer, chat_template, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>")


def roberta() -> PreTrainedTokenizerFast:
    """As RoBERTa's, BART's and CLIP's: byte-level, with a post-processor that adds <s> and </s>."""
    from tokenizers import processors

    tokenizer = _byte_level_bpe("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return _wrap(
        tokenizer,
        bos_token="<s>", eos_token="</s>", sep_token="</s>", cls_token="<s>",
        unk_token="<unk>", pad_token="<pad>", mask_token="<mask>",
    )  # fmt: skip


def wordpiece() -> PreTrainedTokenizerFast:
    """As BERT's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return _wrap(
        tokenizer,
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip


def unigram() -> PreTrainedTokenizerFast:
    """As T5's and XLM-RoBERTa's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return _wrap(tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", extra_ids=0)


def add_special(tokenizer: PreTrainedTokenizerFast, *tokens: str) -> None:
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(token, special=True) for token in tokens])


def _byte_level_bpe(*special: str) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return tokenizer


def _wrap(tokenizer: Tokenizer, chat_template: str | None = None, **tokens: Any) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **tokens)
    wrapped.chat_template = chat_template
    return wrapped
