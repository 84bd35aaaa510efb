"""TOK: the files of a tokenizer, what the tokenizers library and transformers make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG, trial, vocabularies
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class MissingTokenizer(Rule):
    """A model for text comes without the vocabulary of its tokenizer.

    AutoTokenizer and every server stop; users guess a tokenizer, and get text of another model.
    """

    code = "TOK101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no tokenizer files at all", {TOKENIZER_JSON: None, TOKENIZER_CONFIG: None}),
        Example("only tokenizer_config.json was copied", {TOKENIZER_JSON: None}),
    )
    good = (
        Example("tokenizer.json alone is enough"),
        Example("an adapter uses the tokenizer of its base model", base="lora"),
        Example(
            "code of the repository brings its own",
            {TOKENIZER_JSON: None, TOKENIZER_CONFIG: {"auto_map": {"AutoTokenizer": ["tok.Tok", None]}}, "tok.py": ""},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        has_code = config is not None and "auto_map" in config
        if reads_text(repository) and not has_code and not vocabularies(repository):
            path = TOKENIZER_CONFIG if config is not None else "config.json"
            message = "comes without a vocabulary: no tokenizer.json, tokenizer.model, vocab.json or vocab.txt"
            yield self.finding(path, message, hint="copy the tokenizer files of the base model")


class RefusedTokenizer(Rule):
    """The tokenizers library does not load tokenizer.json.

    transformers, vLLM, TGI and llama.cpp's converter all read it through that library.
    """

    code = "TOK102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a merge of a deleted token", {TOKENIZER_JSON: {"model": {"merges": [["a", "zz"]]}}}),
        Example("a key that the library does not know", {TOKENIZER_JSON: {"comment": "ours"}}, also=("FIL104",)),
        Example("a kind of model that it does not know", {TOKENIZER_JSON: {"model": {"type": "Syllables"}}}),
    )
    good = (Example("merges as text", {TOKENIZER_JSON: {"model": {"merges": ["a s", "e r", "u s"]}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.load:
            message = f"is refused by the tokenizers library: {printable(found.load.message)}"
            yield self.finding(TOKENIZER_JSON, message)


class FailingTokenizer(Rule):
    """tokenizer.json loads, and then fails on ordinary text.

    What it names is not there: a post-processor's token, the unknown token. The library panics at the first prompt.
    """

    code = "TOK103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a post-processor without its tokens",
            {
                TOKENIZER_JSON: {
                    "post_processor": {
                        "type": "TemplateProcessing",
                        "single": [
                            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}},
                        ],
                        "pair": [],
                        "special_tokens": {},
                    }
                }
            },
        ),
    )
    good = (Example("text becomes ids"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.encode:
            message = f"loads, but cannot tokenize ordinary text: {printable(found.encode.message)}"
            yield self.finding(TOKENIZER_JSON, message)


class MethodNamedKey(Rule):
    """A key of tokenizer_config.json is the name of a method of the tokenizer.

    transformers stops with AttributeError: "conflicts with the method".
    """

    code = "TOK105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("an argument of a call, saved", {TOKENIZER_CONFIG: {"add_special_tokens": True}}),)
    good = (Example("other keys are everyone's right", {TOKENIZER_CONFIG: {"add_prefix_space": False, "my_key": 1}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        methods = data("tokenizer_methods")["ids"]
        for key in config.raw if config is not None else ():
            if config is not None and key in methods:
                yield self.finding(config.path, f"has the key {key!r}, a method's name", place=config.at(key))


class FrozenEncodingState(Rule):
    """tokenizer.json holds the truncation or padding of somebody's last call.

    Whoever loads it with the tokenizers library or a binding of it gets every text cut, or filled, without a word.
    """

    code = "TOK201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "texts are cut at 16 tokens",
            {
                TOKENIZER_JSON: {
                    "truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
                }
            },
        ),
    )
    good = (
        Example(
            "sentence-transformers means it",
            {
                TOKENIZER_JSON: {
                    "truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
                },
                "modules.json": "[]",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        document = repository.document(TOKENIZER_JSON)
        card = repository.card
        if document is None or repository.has("modules.json"):
            return
        if card is not None and "sentence-transformers" in {card.library_name, *card.tags}:
            return
        for key, verb in (("truncation", "cuts"), ("padding", "fills")):
            if document.mapping(key) is not None:
                hint = f"set {key} to null; users ask for it in the call"
                yield self.finding(document.path, f"{verb} every text: {key} is set", place=document.at(key), hint=hint)


class FragileTokenizer(Rule):
    """A short hostile text makes the tokenizer fail, or use up a machine's time and memory.

    A regular expression that backtracks, or a normalizer that grows text: whoever serves the model can be stopped by
    one prompt.
    """

    code = "TOK202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a pattern that backtracks",
            {
                TOKENIZER_JSON: {
                    "pre_tokenizer": {
                        "type": "Split",
                        "pattern": {"Regex": "(a+)+$"},
                        "behavior": "Isolated",
                        "invert": False,
                    }
                }
            },
        ),
    )
    good = (Example("the pattern of GPT-2"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.hostile and not found.encode:
            message = f"fails on a text of 40 to 200 repeated characters: {printable(found.hostile.message)}"
            yield self.finding(TOKENIZER_JSON, message)


class MissingSlowVocabulary(Rule):
    """tokenizer_class is one that reads a SentencePiece model in transformers 4, and there is none.

    `use_fast=False` fails, and so do tools that look for tokenizer.model.
    """

    code = "TOK204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a merge that kept the class", {TOKENIZER_CONFIG: {"tokenizer_class": "LlamaTokenizer", "backend": DELETE}}
        ),
    )
    good = (Example("written by transformers 5", {TOKENIZER_CONFIG: {"tokenizer_class": "LlamaTokenizer"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer = repository.tokenizer_config, repository.tokenizer
        if config is None or tokenizer is None or tokenizer.is_sentencepiece or "backend" in config:
            return
        if (name := config.string("tokenizer_class")) in SENTENCEPIECE_CLASSES:
            message = f"names {name}, which in transformers 4 reads tokenizer.model; there is none"
            hint = 'copy tokenizer.model, or name "PreTrainedTokenizerFast"'
            yield self.finding(config.path, message, place=config.at("tokenizer_class"), hint=hint)


class ConvertedVocabulary(Rule):
    """There is a SentencePiece model and no tokenizer.json.

    Every load converts it, each version of transformers in its own way: the same text can become other tokens.
    """

    code = "TOK205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example(
            "only tokenizer.model",
            {TOKENIZER_JSON: None, "tokenizer.model": b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"},
        ),
    )
    good = (Example("both", {"tokenizer.model": b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = vocabularies(repository)
        if found and found[0] != TOKENIZER_JSON and "vocab.json" not in found and found[0].endswith(".model"):
            hint = "save the tokenizer once with save_pretrained, compare, and publish tokenizer.json too"
            yield self.finding(found[0], "has no tokenizer.json beside it", hint=hint)


class UnknownTokenizerClass(Rule):
    """tokenizer_class is not a class of transformers.

    transformers 4 stops; transformers 5 takes a generic class instead, which may split text otherwise.
    """

    code = "TOK206"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a misspelt class", {TOKENIZER_CONFIG: {"tokenizer_class": "LLaMATokenizer"}}),)
    good = (
        Example("a class of transformers", {TOKENIZER_CONFIG: {"tokenizer_class": "GPT2Tokenizer"}}),
        Example("a class with its Fast", {TOKENIZER_CONFIG: {"tokenizer_class": "Qwen2TokenizerFast"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        name = None if config is None else config.string("tokenizer_class")
        if config is None or name is None or "auto_map" in config:
            return
        table = data("tokenizer_classes")
        if name.removesuffix("Fast") not in {known.removesuffix("Fast") for known in table["ids"]}:
            message = f"names the class {printable(name, 60)!r}, which {table['source']} does not have"
            yield self.finding(config.path, message, place=config.at("tokenizer_class"))


class ListOfExtraTokens(Rule):
    """extra_special_tokens is a list.

    transformers 5 writes it so; transformers 4 expects an object of names and stops with AttributeError.
    """

    code = "TOK301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("saved by transformers 5", {TOKENIZER_CONFIG: {"extra_special_tokens": ["<|im_start|>"]}}),)
    good = (Example("names for tokens", {TOKENIZER_CONFIG: {"extra_special_tokens": {"start_token": "<|im_start|>"}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if config is not None and isinstance(config.raw.get("extra_special_tokens"), list):
            message = "has a list of extra_special_tokens, which transformers 4 does not read"
            yield self.finding(config.path, message, place=config.at("extra_special_tokens"))


class Transformers5Class(Rule):
    """tokenizer_class is one that only transformers 5 has.

    transformers 4 and libraries built on it stop: "Tokenizer class TokenizersBackend does not exist".
    """

    code = "TOK302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("saved by transformers 5", {TOKENIZER_CONFIG: {"tokenizer_class": "TokenizersBackend"}}),)
    good = (Example("a class that both have"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if config is not None and config.string("tokenizer_class") in {"TokenizersBackend", "SentencePieceBackend"}:
            message = f"names {config.raw['tokenizer_class']}, which transformers 4 does not have"
            hint = 'name "PreTrainedTokenizerFast", which both know'
            yield self.finding(config.path, message, place=config.at("tokenizer_class"), hint=hint)


# Tokenizers of transformers 4 whose slow class has `vocab_files_names` with a .model file; T5 and its kin say
# spiece.model (transformers 4.57 models/*/tokenization_*.py).
SENTENCEPIECE_CLASSES: Final = frozenset(
    {
        "AlbertTokenizer",
        "CamembertTokenizer",
        "CodeLlamaTokenizer",
        "GemmaTokenizer",
        "LlamaTokenizer",
        "MBart50Tokenizer",
        "MBartTokenizer",
        "NllbTokenizer",
        "PegasusTokenizer",
        "T5Tokenizer",
        "XLMRobertaTokenizer",
        "XLNetTokenizer",
    }
)

# Architectures that have a vocab_size and no text: codes of images, of sounds, of actions.
_NO_TEXT: Final = re.compile(
    r"Image(?!Text)|Vision(?!2Seq|EncoderDecoder|TextDual)|^Beit|^Data2Vec(?:Audio|Vision)|^ImageGPT|Audio"
    r"|^(?:Wav2Vec2|Hubert|WavLM|UniSpeech|SEW)\w*(?<!ForCTC)$|Trajectory|^DecisionTransformer|TimeSeries|^Vits"
    r"|Encodec|Mimi|^Dac|Bark|Musicgen|Speech(?:Encoder|T5HifiGan)"
)

RULES: Final = (
    MissingTokenizer(),
    RefusedTokenizer(),
    FailingTokenizer(),
    MethodNamedKey(),
    FrozenEncodingState(),
    FragileTokenizer(),
    MissingSlowVocabulary(),
    ConvertedVocabulary(),
    UnknownTokenizerClass(),
    ListOfExtraTokens(),
    Transformers5Class(),
)


def reads_text(repository: Repository) -> bool:
    """Whether config.json is that of a model of transformers that takes text, and weights are there for it."""
    config = repository.config
    if config is None or config.model_type is None or not config.architectures or not config.vocab_size:
        return False
    has_weights = any(path.endswith((".safetensors", ".bin")) for path in repository.files)
    return has_weights and not any(_NO_TEXT.search(name) for name in config.architectures)
