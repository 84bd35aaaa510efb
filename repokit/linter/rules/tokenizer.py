"""TOK: the files of a tokenizer, what the tokenizers library and transformers make of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.linter.examples import DELETE, Change, Example
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.files import is_pointer
from repokit.printable import printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG, check_vocabulary, vocabularies
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.config import Config
    from repokit.repo.repository import Repository


MODEL: Final = b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"  # SentencePiece with one piece


BERT: Final = {"architectures": ["BertForMaskedLM"], "model_type": "bert"}
ENCODER: Final[dict[str, Change]] = {
    "config.json": BERT,
    "model.safetensors": weights_of(BERT),
    "README.md": with_lines("pipeline_tag: fill-mask\n", drop="pipeline_tag"),
    "generation_config.json": None,
    "chat_template.jinja": None,
}


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


class MalformedVocabulary(Rule):
    """A SentencePiece or tiktoken file is not one.

    A download that failed, or was cut off: slow tokenizers and converters stop at it.
    """

    code = "TOK114"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("an HTML page", {"tokenizer.model": "<html>404</html>"}),
        Example("a file that was cut off", {"tokenizer.model": MODEL[:-3]}),
    )
    good = (
        Example("a SentencePiece model", {"tokenizer.model": MODEL}),
        Example("tiktoken under the same name", {"tokenizer.model": "IQ== 0\nIg== 1\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in vocabularies(repository):
            if is_pointer(repository, path):
                continue  # another rule speaks of it
            try:
                check_vocabulary(repository, path)
            except InputError as error:
                yield self.finding(path, error.what, place=error.place)


class MethodNamedKey(Rule):
    """A key of tokenizer_config.json is the name of a method of the tokenizer.

    transformers stops with AttributeError: "conflicts with the method".
    """

    code = "TOK105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("an argument of a call, saved", {TOKENIZER_CONFIG: {"add_special_tokens": True}}),)
    good = (Example("other keys are everyone's right", {TOKENIZER_CONFIG: {"add_prefix_space": False, "my_key": 1}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        methods = data("tokenizer_methods")["ids"]
        for key in config.raw if config is not None else ():
            if config is not None and key in methods:
                yield self.finding(config.path, f"has the key {key!r}, a method's name", place=config.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        return dropped(repository, finding)


class MissingSlowVocabulary(Rule):
    """tokenizer_class is one that reads a SentencePiece model in transformers 4, and there is none.

    `use_fast=False` fails, and so do tools that look for tokenizer.model.
    """

    code = "TOK204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
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

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import generic_class

        return generic_class(repository, finding)


class ConvertedVocabulary(Rule):
    """There is a SentencePiece model and no tokenizer.json.

    Every load converts it, each version of transformers in its own way: the same text can become other tokens.
    """

    code = "TOK205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "only tokenizer.model",
            {TOKENIZER_JSON: None, "tokenizer.model": MODEL},
        ),
    )
    good = (Example("both", {"tokenizer.model": MODEL}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = vocabularies(repository)
        config = repository.tokenizer_config
        if config is not None and "auto_map" in config:
            return  # code of the repository reads it
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
    fixes = Safety.UNSAFE
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

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import known_class

        return known_class(repository, finding)


class UnlimitedLength(Rule):
    """The model has a table of positions, and the tokenizer does not cut texts to its length.

    model_max_length is absent, or more than the table has: the first long text is an index out of range.
    """

    code = "TOK216"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("no limit in an encoder", ENCODER | {TOKENIZER_CONFIG: {"model_max_length": DELETE}}),
        Example("a limit of another model", ENCODER | {TOKENIZER_CONFIG: {"model_max_length": 128}}),
    )
    good = (
        Example("the length of the table", ENCODER),
        Example("rotary positions have no table", {TOKENIZER_CONFIG: {"model_max_length": 10**30}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer_config = repository.config, repository.tokenizer_config
        positions = None if config is None else positions_of(config)
        if config is None or tokenizer_config is None or config.model_type not in POSITION_TABLES or not positions:
            return
        length = tokenizer_config.number("model_max_length")
        if length is None or length > positions:
            said = "has no model_max_length" if length is None else f"has a model_max_length of {length:,}"
            message = f"{said}; config.json has {positions:,} positions"
            yield self.finding(tokenizer_config.path, message, place=tokenizer_config.at("model_max_length"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import with_length

        return with_length(repository, finding)


class ListOfExtraTokens(Rule):
    """extra_special_tokens is a list.

    transformers 5 writes it so; transformers 4 expects an object of names and stops with AttributeError.
    """

    code = "TOK301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("saved by transformers 5", {TOKENIZER_CONFIG: {"extra_special_tokens": ["<|im_start|>"]}}),)
    good = (Example("names for tokens", {TOKENIZER_CONFIG: {"extra_special_tokens": {"start_token": "<|im_start|>"}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if config is not None and isinstance(config.raw.get("extra_special_tokens"), list):
            message = "has a list of extra_special_tokens, which transformers 4 does not read"
            yield self.finding(config.path, message, place=config.at("extra_special_tokens"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import under_older_name

        return under_older_name(repository, finding)


class Transformers5Class(Rule):
    """tokenizer_class is one that only transformers 5 has.

    transformers 4 and libraries built on it stop: "Tokenizer class TokenizersBackend does not exist".
    """

    code = "TOK302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("saved by transformers 5", {TOKENIZER_CONFIG: {"tokenizer_class": "TokenizersBackend"}}),)
    good = (Example("a class that both have"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if config is not None and config.string("tokenizer_class") in {"TokenizersBackend", "SentencePieceBackend"}:
            message = f"names {config.raw['tokenizer_class']}, which transformers 4 does not have"
            hint = 'name "PreTrainedTokenizerFast", which both know'
            yield self.finding(config.path, message, place=config.at("tokenizer_class"), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import generic_class

        return generic_class(repository, finding)


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

# Models with a learned table of positions (transformers 5.24 models/*/modeling_*.py, position_embeddings).
POSITION_TABLES: Final = frozenset(
    {
        *("albert", "bert", "camembert", "data2vec-text", "distilbert", "electra", "ernie", "layoutlm", "longformer"),
        *("bart", "clip", "gpt2", "mobilebert", "mpnet", "opt", "roberta"),
        *("roberta-prelayernorm", "squeezebert", "xlm-roberta", "xlm-roberta-xl"),
    }
)

# Architectures that have a vocab_size and no text: codes of images, of sounds, of actions.
_NO_TEXT: Final = re.compile(
    r"Image(?!Text)|Vision(?!2Seq|EncoderDecoder|TextDual)|^Beit|^Data2Vec(?:Audio|Vision)|^ImageGPT|Audio"
    r"|^(?:Wav2Vec2|Hubert|WavLM|UniSpeech|SEW)\w*(?<!ForCTC)$|Trajectory|^DecisionTransformer|TimeSeries|^Vits"
    r"|Eagle|Encodec|Mimi|^Dac|Bark|Musicgen|Speech(?:Encoder|T5HifiGan)"
)

RULES: Final = (
    MissingTokenizer(),
    MalformedVocabulary(),
    MethodNamedKey(),
    MissingSlowVocabulary(),
    ConvertedVocabulary(),
    UnknownTokenizerClass(),
    UnlimitedLength(),
    ListOfExtraTokens(),
    Transformers5Class(),
)


def positions_of(config: Config) -> int | None:
    """The rows of the table of positions of the text model."""
    text = config.mapping("text_config") or config
    return text.integer("max_position_embeddings") or text.integer("n_positions")


# They take bytes or characters as ids (transformers 5.24: byt5, canine, perceiver tokenization files).
WITHOUT_VOCABULARY: Final = frozenset({"canine", "perceiver", "ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer"})


def reads_text(repository: Repository) -> bool:
    """Whether config.json is that of a model of transformers that takes text, and weights are there for it."""
    config = repository.config
    if config is None or config.model_type is None or not config.architectures or not config.vocab_size:
        return False
    named = None if repository.tokenizer_config is None else repository.tokenizer_config.string("tokenizer_class")
    if config.model_type in WITHOUT_VOCABULARY or named in WITHOUT_VOCABULARY or "chronos_config" in config:
        return False
    has_weights = any(path.endswith((".safetensors", ".bin")) for path in repository.files)
    return has_weights and not any(_NO_TEXT.search(name) for name in config.architectures)
