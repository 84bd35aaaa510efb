"""GEN: generation_config.json. What transformers does with it: generation/configuration_utils.py `validate`, 5.24."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Change, Example
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.repo.stopping import EOS

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

GENERATION: Final = "generation_config.json"


class RefusedGenerationConfig(Rule):
    """transformers refuses generation_config.json when it loads the model.

    `from_pretrained` reads the weights first, and then stops with ValueError.
    """

    code = "GEN101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a word that is not known", {GENERATION: {"early_stopping": "maybe"}}),
        Example("no tokens", {GENERATION: {"max_new_tokens": 0}}),
        Example("a cache of another library", {GENERATION: {"cache_implementation": "radix"}}),
        Example("three answers without sampling", {GENERATION: {"num_return_sequences": 3}}),
        Example("more answers than beams", {GENERATION: {"num_return_sequences": 3, "num_beams": 2}}),
        Example("a token forced and suppressed", {GENERATION: {"forced_eos_token_id": 2, "suppress_tokens": [2, 3]}}),
        Example("an argument of generate()", {GENERATION: {"streamer": None}}),
        Example("a compiled object", {GENERATION: {"compile_config": {"mode": "default"}}}),
        Example("a weight outside of (0, 1)", {GENERATION: {"assistant_ensemble_weight": 1.0}}),
        Example("a watermark of all tokens", {GENERATION: {"watermarking_config": {"greenlist_ratio": 1.5}}}),
        Example("a watermark without a width", {GENERATION: {"watermarking_config": {"context_width": None}}}),
        Example("a word that no watermark has", {GENERATION: {"watermarking_config": {"ratio": 0.5}}}),
        Example("a key that takes the place of a method", {GENERATION: {"validate": True}}),
    )
    good = (
        Example("beam search", {GENERATION: {"num_beams": 4, "early_stopping": "never", "num_return_sequences": 4}}),
        Example("sampling", {GENERATION: {"do_sample": True, "num_return_sequences": 3, "temperature": 0.7}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.generation_config
        if config is not None:
            for problems in (wrong_values(config), wrong_combinations(config), wrong_keys(config)):
                for key, message in problems:
                    yield self.finding(GENERATION, message, place=config.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import without_arguments

        return without_arguments(repository, finding)


class UnsavableGenerationConfig(Rule):
    """transformers cannot save generation_config.json again.

    It loads with a warning; `save_pretrained` stops with an error, in transformers 5.24 as soon as another value of it
    was changed, as trainers change the ids of special tokens: at the end of a fine-tuning run.
    """

    code = "GEN201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("a temperature without sampling", {GENERATION: {"temperature": 0.9, "top_p": 0.6}}),
        Example("sampling switched off", {GENERATION: {"do_sample": False, "temperature": 1e-06}}),
        Example("a padding id below zero", {GENERATION: {"pad_token_id": -1}}),
        Example("a length penalty without beams", {GENERATION: {"length_penalty": 2.0}}),
        Example("scores that nothing returns", {GENERATION: {"output_scores": True}}),
        Example("a cache that is switched off", {GENERATION: {"use_cache": False, "cache_implementation": "static"}}),
    )
    good = (
        Example("sampling", {GENERATION: {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}}),
        Example("the defaults, spelled out", {GENERATION: {"temperature": 1.0, "top_p": 1.0, "top_k": 50}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.generation_config
        if config is None:
            return
        for reason, keys in unsavable(config).items():
            if keys:
                shown = ", ".join(f"{key} = {printable(config.raw[key], 40)}" for key in keys)
                yield self.finding(GENERATION, f"has {shown}, {reason}", place=config.at(keys[0]), names=keys)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import savable

        return savable(repository, finding)


# Keys that hold an id of the text model's vocabulary.
TOKEN_IDS: Final = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)


class GenerationTokenOutOfRange(Rule):
    """A token id in generation_config.json is not in the vocabulary.

    As a padding or start id it stops with an index error, on a GPU with an illegal memory access; as an end id it never
    comes, and generation runs until it is cut off.
    """

    code = "GEN102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("a padding id beside the last row", {GENERATION: {"pad_token_id": 32}}, also=("TOK212",)),
        Example("one of the end ids of another tokenizer", {GENERATION: {"eos_token_id": [4, 128009]}}),
        Example("an end id below zero", {GENERATION: {"eos_token_id": -1}}),
    )
    good = (Example("the last row", {GENERATION: {"decoder_start_token_id": 31}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, rows = repository.generation_config, repository.weights.token_rows
        if config is None or rows is None:
            return
        for key in TOKEN_IDS:
            # Below zero, a padding id means "none" in older files: GEN201 speaks of it.
            lowest = None if key == "pad_token_id" else 0
            wrong = [number for number in config.integers(key) if not in_range(number, lowest, rows)]
            if wrong:
                message = f"is {printable(wrong[0])}; the vocabulary has {rows:,} rows"
                yield self.finding(GENERATION, message, place=config.at(key), names=tuple(map(str, wrong)))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import within_rows

        return within_rows(repository, finding)


SPOKEN: Final = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "d_model": 16,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 24,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "encoder_layers": 2,
    "max_source_positions": 8,
    "max_target_positions": 64,
    "num_mel_bins": 8,
}
WHISPER: Final[dict[str, Change]] = {
    CONFIG: SPOKEN,
    "model.safetensors": weights_of(SPOKEN),
    "preprocessor_config.json": (
        '{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8,'
        ' "chunk_length": 30, "nb_max_frames": 16}'
    ),
    "chat_template.jinja": None,
}
SPEECH: Final = {
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 5},
    "no_timestamps_token_id": 7,
    "task_to_id": {"transcribe": 6},
}


class MissingSpeechTable(Rule):
    """generation_config.json of a Whisper model does not say which tokens stand for languages, tasks and timestamps.

    `generate(language=..., task=...)` and timestamps stop with ValueError: "The generation config is outdated".
    """

    code = "GEN103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("as it was before 2023", {**WHISPER, GENERATION: {"no_timestamps_token_id": 7}}),
        Example("no languages", {**WHISPER, GENERATION: {"is_multilingual": True, "no_timestamps_token_id": 7}}),
    )
    good = (
        Example("every table", {**WHISPER, GENERATION: SPEECH}),
        Example("English alone", {**WHISPER, GENERATION: {"is_multilingual": False, "no_timestamps_token_id": 7}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, generation = repository.config, repository.generation_config
        if config is None or "WhisperForConditionalGeneration" not in config.architectures or "auto_map" in config:
            return
        raw = {} if generation is None else generation.raw
        english = raw.get("is_multilingual") is False
        wanted = SPEECH.keys() - ({"lang_to_id", "task_to_id"} if english else set())
        if missing := sorted(key for key in wanted if raw.get(key) is None):
            path = CONFIG if generation is None else GENERATION
            hint = f"copy {GENERATION} of the base model"
            yield self.finding(path, f"has no {some(tuple(missing), 4)}", names=missing, hint=hint)


class EndOnlyInConfig(Rule):
    """The tokenizer's end-of-text token ends a generation by config.json, and not by generation_config.json.

    `generate` reads generation_config.json alone where there is one, and goes on to the length limit.
    """

    code = "GEN202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("ids of the base model", {GENERATION: {EOS: 2}}),)
    good = (
        Example("one id in config.json, two in generation_config.json", {CONFIG: {EOS: 2}}),
        Example("no generation_config.json", {GENERATION: None}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, generation, tokenizer = repository.config, repository.generation_config, repository.tokenizer
        ids = () if generation is None else generation.integers(EOS)
        eos = None if tokenizer is None else tokenizer.roles.get("eos_token")
        if config is None or generation is None or tokenizer is None or eos is None or not eos.content:
            return
        number = tokenizer.id_of(eos.content) if ids and min(ids) >= 0 else None
        if number is not None and number not in ids and number in {*config.integers(EOS), *config.text.integers(EOS)}:
            message = f"does not list {number}, the tokenizer's {printable(eos.content, 40)!r}, which {CONFIG} does"
            yield self.finding(GENERATION, message, place=generation.at(EOS), hint=f"add {number}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import ending_at_eos

        return ending_at_eos(repository, finding)


RULES: Final = (
    RefusedGenerationConfig(),
    GenerationTokenOutOfRange(),
    MissingSpeechTable(),
    UnsavableGenerationConfig(),
    EndOnlyInConfig(),
)


def in_range(number: int, lowest: int | None, rows: int) -> bool:
    """Whether an id is below the number of rows, and not below the lowest one where there is one."""
    return number < rows and (lowest is None or number >= lowest)


# ALL_CACHE_IMPLEMENTATIONS, and "paged".
CACHES: Final = (
    *("static", "offloaded_static", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid"),
    *("offloaded_hybrid_chunked", "dynamic", "offloaded", "quantized", "paged"),
)
# Arguments of WatermarkingConfig, with the defaults of those that it checks.
WATERMARK: Final = {
    "greenlist_ratio": 0.25,
    "seeding_scheme": "lefthash",
    "context_width": 1,
    "bias": None,
    "hashing_key": None,
}
# Attributes of GenerationConfig without which loading or saving it stops (5.24; each was tried).
OF_THE_CLASS: Final = (
    *("__class__", "__dict__", "__weakref__", "update", "validate", "save_pretrained"),
    *("dict_dtype_to_str", "to_dict", "to_diff_dict", "to_json_file", "to_json_string"),
)
OF_GENERATE: Final = (
    *("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "synced_gpus", "assistant_model"),
    *("streamer", "negative_prompt_ids", "negative_prompt_attention_mask"),
)


def wrong_values(config: Document) -> Iterator[tuple[str, str]]:
    """Values that are wrong by themselves. Wrong types are another rule's."""
    if (stopping := config.string("early_stopping")) not in {None, "never"}:
        yield "early_stopping", f'is {printable(stopping)!r}; it must be true, false or "never"'
    if (tokens := config.number("max_new_tokens")) is not None and tokens <= 0:
        yield "max_new_tokens", f"is {printable(tokens)}; it must be above 0"
    if (weight := config.number("assistant_ensemble_weight")) is not None and not 0 < weight < 1:
        yield "assistant_ensemble_weight", f"is {printable(weight)}; it must lie between 0 and 1"
    if (cache := config.string("cache_implementation")) not in {None, *CACHES}:
        yield "cache_implementation", f"is {printable(cache)!r}; it must be one of {', '.join(CACHES)}"
    if config.mapping("compile_config") is not None:
        yield "compile_config", "is an object of JSON; only Python code can set it"
    if (watermark := config.mapping("watermarking_config")) is not None:
        for key, message in wrong_watermark(watermark):
            yield "watermarking_config", f"has the {key} {message}"


def wrong_watermark(config: Document) -> Iterator[tuple[str, str]]:
    """Values of the watermark that `WatermarkingConfig` refuses, and keys that it does not have."""
    for key in config.raw:
        if key not in WATERMARK:
            yield "unknown key", repr(printable(key, 40))
    ratio, scheme, width = (config.raw.get(key, usual) for key, usual in list(WATERMARK.items())[:3])
    if not isinstance(ratio, bool | int | float) or not 0 <= ratio <= 1:
        yield "greenlist_ratio", f"{printable(ratio, 40)}; it must lie between 0 and 1"
    if scheme not in ("lefthash", "selfhash"):
        yield "seeding_scheme", f"{printable(scheme, 40)!r}; it must be lefthash or selfhash"
    if not isinstance(width, bool | int | float) or width < 1:
        yield "context_width", f"{printable(width, 40)}; it must be at least 1"


def wrong_combinations(config: Document) -> Iterator[tuple[str, str]]:
    """Values that exclude each other."""
    answers, beams = config.integer("num_return_sequences") or 1, config.integer("num_beams") or 1
    if answers > 1 and beams == 1 and config.flag("do_sample") is not True:
        yield "num_return_sequences", f"is {printable(answers)} without sampling and beams, which give one answer"
    if answers > beams > 1:
        yield "num_return_sequences", f"is {printable(answers)}; {printable(beams)} beams give no more answers"
    suppressed = set(config.integers("suppress_tokens"))
    for key in ("forced_bos_token_id", "forced_eos_token_id"):
        forced = set(config.integers(key))
        if forced and forced <= suppressed:
            yield key, "is also in suppress_tokens: no token is left to choose"


def wrong_keys(config: Document) -> Iterator[tuple[str, str]]:
    """Arguments of generate() in the place of settings; a file made from a model's config is not asked for them."""
    if config.flag("_from_model_config") is not True:
        for key in OF_GENERATE:
            if key in config:
                yield key, "is an argument of generate(), not a setting"
        for key in OF_THE_CLASS:
            if key in config:
                yield key, "takes the place of what transformers' own class calls by this name"


# What has no effect without sampling, with the value that stands for "not set".
SAMPLING: Final = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
    "top_k": 50,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
OUTPUTS: Final = ("output_attentions", "output_hidden_states", "output_scores", "output_logits")


def unsavable(config: Document) -> dict[str, list[str]]:
    """Reason to the keys that strict validation refuses for it."""
    raw = config.raw
    found: dict[str, list[str]] = {}
    if config.flag("do_sample") is not True:
        reason = "which only sampling reads, and do_sample is not true"
        found[reason] = [key for key, unset in SAMPLING.items() if raw.get(key) not in (None, unset)]
    if (config.integer("num_beams") or 1) == 1:
        penalty = ["length_penalty"] if config.number("length_penalty") not in {None, 1.0} else []
        early = ["early_stopping"] if raw.get("early_stopping") in (True, "never") else []
        found["which only beam search reads, and there is one beam"] = early + penalty
    if config.flag("use_cache") is False:
        caches = [key for key in ("cache_implementation", "cache_config") if raw.get(key) is not None]
        found["and use_cache is false"] = caches
    if config.flag("return_dict_in_generate") is not True:
        found["and return_dict_in_generate is not true"] = [key for key in OUTPUTS if raw.get(key) is True]
    if (config.number("pad_token_id") or 0) < 0:
        found["which is no token"] = ["pad_token_id"]
    return found
