"""TOK: tokenizer_config.json: keys that are misspelt, missing, or have a value that nothing can be done with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.slips import is_slip, misspelt
from repokit.linter.rules.tokenizer import POSITION_TABLES, reads_text
from repokit.printable import printable
from repokit.repo.chat_template import JINJA
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class UnlistedAddedTokens(Rule):
    """tokenizer.json has no list of added tokens.

    transformers stops with KeyError: 'added_tokens'; the library alone loads it, and takes special tokens apart.
    """

    code = "TOK144"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the key was lost", {TOKENIZER_JSON: {"added_tokens": DELETE}, JINJA: None}, also=("TOK240", "TPL208")),
        Example(
            "no special token in it", {TOKENIZER_JSON: {"added_tokens": []}, JINJA: None}, also=("TOK240", "TPL208")
        ),
    )
    good = (
        Example(
            "a tokenizer without special tokens",
            {
                TOKENIZER_JSON: {"added_tokens": []},
                TOKENIZER_CONFIG: {"bos_token": None, "eos_token": None, "pad_token": None, "unk_token": None},
                JINJA: None,
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        document = None if tokenizer is None else tokenizer.document
        if tokenizer is None or document is None:
            return
        if "added_tokens" not in document:
            yield self.finding(TOKENIZER_JSON, "has no added_tokens", hint='write "added_tokens": []')
        elif not tokenizer.added and (names := [token.content for token in tokenizer.roles.values() if token.content]):
            message = "has no added tokens, and tokenizer_config.json names special ones"
            yield self.finding(TOKENIZER_JSON, message, place=document.at("added_tokens"), names=names)


class ImpossibleLength(Rule):
    """model_max_length leaves nothing of a text.

    Whoever asks for truncation gets an empty text, or an overflow: "must be a non-negative number".
    """

    code = "TOK146"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("-1 for no limit", {TOKENIZER_CONFIG: {"model_max_length": -1}}),)
    good = (Example("no limit", {TOKENIZER_CONFIG: {"model_max_length": 10**30}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        length = None if config is None else config.number("model_max_length")
        if config is not None and length is not None and length < SHORTEST_TEXT:
            message = f"has a model_max_length of {printable(length)}"
            yield self.finding(config.path, message, place=config.at("model_max_length"))


class MissingProcessorToken(Rule):
    """The processor asks its tokenizer for a token that tokenizer_config.json does not name.

    Loading the processor stops: "has no attribute image_token".
    """

    code = "TOK149"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "no token for where an image begins",
            {TOKENIZER_CONFIG: {"processor_class": "Gemma3Processor", "eoi_token": "<s>", "image_token": "<s>"}},
        ),
    )
    good = (
        Example(
            "a token for each",
            {
                TOKENIZER_CONFIG: {
                    "processor_class": "Gemma3Processor",
                    **dict.fromkeys(("boi_token", "eoi_token", "image_token"), "<s>"),
                }
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer = repository.tokenizer_config, repository.tokenizer
        name = None if config is None else config.string("processor_class")
        if config is None or tokenizer is None or name is None or "auto_map" in config:
            return
        wanted = data("processor_tokens")["tokens"].get(name, ())
        for key in wanted:
            if key not in tokenizer.roles:
                message = f"names no {key}, for which {name} asks the tokenizer"
                yield self.finding(config.path, message, place=config.at(key))


class MisspeltTokenizerKey(Rule):
    """A key of tokenizer_config.json is nearly one that transformers reads, and that one is not there.

    The tokenizer keeps what it does not know and nobody reads it: the setting takes its default.
    """

    code = "TOK246"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "two letters exchanged",
            {TOKENIZER_CONFIG: {"model_max_length": DELETE, "model_max_lenght": 64}},
        ),
        Example("a letter short", {TOKENIZER_CONFIG: {"padding_sde": "left"}}),
    )
    good = (
        Example("a key of someone's own", {TOKENIZER_CONFIG: {"padding_note": "left"}}),
        Example("both are there", {TOKENIZER_CONFIG: {"model_max_lengths": 64}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in (repository.tokenizer_config, repository.special_tokens_map):
            if document is None:
                continue
            for key, meant in misspelt(document.raw, KEYS):
                message = f"is no setting of a tokenizer; {meant} is, and is not there"
                yield self.finding(document.path, message, place=document.at(key), hint=f"rename it to {meant}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import renamed

        return renamed(repository, finding)


class MissingTokenizerConfig(Rule):
    """tokenizer.json comes without tokenizer_config.json, or with one that has lost its class or its length.

    transformers takes the class of the model's type with that class's special tokens, which are those of another
    vocabulary, and cuts no text.
    """

    code = "TOK247"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("it was not uploaded", {TOKENIZER_CONFIG: None}),
        Example("its class was deleted", {TOKENIZER_CONFIG: {"tokenizer_class": DELETE}}),
        Example("its length was deleted", {TOKENIZER_CONFIG: {"model_max_length": DELETE}}),
    )
    good = (
        Example("a class"),
        Example("as transformers 4 wrote it", {TOKENIZER_CONFIG: {"tokenizer_class": DELETE, "backend": DELETE}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, model = repository.tokenizer_config, repository.config
        if repository.has(TOKENIZER_JSON) and config is None and reads_text(repository):
            yield self.finding(TOKENIZER_JSON, "has no tokenizer_config.json beside it")
        # Only transformers 5 writes `backend`, and it never does without the class and the length (5.24, measured).
        if config is None or "backend" not in config:
            return
        if not config.raw.get("tokenizer_class") and (model is None or model.string("tokenizer_class") is None):
            yield self.finding(config.path, "names no tokenizer_class", place=config.at("tokenizer_class"))
        has_other = any(is_slip(key, LENGTH) for key in config.raw)  # of which another rule speaks, as of tables
        has_table = model is not None and model.model_type in POSITION_TABLES
        if config.raw.get(LENGTH) is None and not has_other and not has_table:
            yield self.finding(config.path, f"has no {LENGTH}", place=config.at(LENGTH))


RULES: Final[tuple[Rule, ...]] = (
    UnlistedAddedTokens(),
    ImpossibleLength(),
    MissingProcessorToken(),
    MisspeltTokenizerKey(),
    MissingTokenizerConfig(),
)

LENGTH: Final = "model_max_length"
SHORTEST_TEXT: Final = 2  # below it nothing is left beside what is put around a text

# What PreTrainedTokenizerBase and its backends read (transformers 5.24), with tokens that processors ask for.
KEYS: Final = frozenset(
    {
        *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
        *("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens", "added_tokens_decoder"),
        *("tokenizer_class", "processor_class", "auto_map", "backend", "chat_template", "response_template"),
        *("model_max_length", "padding_side", "truncation_side", "model_input_names", "clean_up_tokenization_spaces"),
        *("split_special_tokens", "add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "legacy"),
        *("image_token", "boi_token", "eoi_token", "video_token", "audio_token", "vision_start_token"),
        *("vision_end_token", "image_start_token", "image_end_token", "audio_bos_token", "audio_eos_token"),
        *("strip_accents", "tokenize_chinese_chars", "sp_model_kwargs", "trim_offsets", "use_default_system_prompt"),
    }
)
