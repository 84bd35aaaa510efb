"""CFG: config.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import TORCH_NAMES
from repokit.linter.examples import DELETE, Example, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.config import CONFIG, TOKEN_ID_KEYS
from repokit.repo.weights import SINGLE
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository


PARAMS: Final = "params.json"  # config.json of Meta's and Mistral's own formats


class MissingModelType(Rule):
    """config.json names no model_type.

    `AutoConfig`, `AutoModel` and every server that goes by them stop: they do not know what to build.
    """

    code = "CFG101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("a config written by hand", {CONFIG: {"model_type": DELETE}}),)
    good = (
        Example(
            "a model of another library",
            {
                CONFIG: '{"sampling_rate": 24000}',
                "README.md": "---\nlicense: apache-2.0\nlibrary_name: openvoice\n---\n",
            },
        ),
        Example("a model of diffusers", {CONFIG: '{"_class_name": "AutoencoderKL"}'}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        if config is not None and not config.model_type and of_transformers(repository):
            yield self.finding(CONFIG, "has no model_type", hint="take it from the config.json of the base model")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_model_type

        return with_model_type(repository, finding)


class MissingArchitectures(Rule):
    """config.json does not say which class the weights are of.

    vLLM, SGLang and converters choose their implementation by `architectures` and stop without it.
    """

    code = "CFG201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a trainer's own saver", {CONFIG: {"architectures": DELETE}}),
        Example(
            "only in the language model",
            {CONFIG: {"architectures": None, "language_config": {"architectures": ["LlamaForCausalLM"]}}},
        ),
    )
    good = (
        Example(
            "a model_type alone, beside a GGUF file",
            {CONFIG: '{"model_type": "llama"}'},
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        if config is None or config.model_type is None or repository.weights.main is None:
            return
        if config.raw.get("architectures") in (None, []) and not repository.weights.of_adapter:
            yield self.finding(CONFIG, "names no architectures", hint='"architectures": ["...ForCausalLM"]')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_architectures

        return with_architectures(repository, finding)


class UnknownDtype(Rule):
    """The dtype in config.json is not the name of a torch dtype.

    transformers looks it up in torch, and stops with AttributeError before it reads a weight.
    """

    code = "CFG102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("str() of a dtype", {CONFIG: {"dtype": "torch.bfloat16"}}),
        Example("a header's spelling", {CONFIG: {"dtype": "BF16"}}),
        Example("a loader's word", {CONFIG: {"dtype": DELETE, "torch_dtype": "auto"}}),
    )
    good = (
        Example("torch's other name for float16", {CONFIG: {"dtype": DELETE, "torch_dtype": "bfloat16"}}),
        Example("a type of a later torch", {CONFIG: {"dtype": "float6_e3m2fn"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            for key in ("dtype", "torch_dtype"):
                if (name := level.string(key)) is not None and not is_torch_dtype(name):
                    near = name.removeprefix("torch.")
                    hint = f'"{near}"' if is_torch_dtype(near) else f"one of {', '.join(list(TORCH_NAMES)[:4])}"
                    yield self.finding(
                        CONFIG, f"is {printable(name, 40)!r}, no torch dtype", place=level.at(key), hint=hint
                    )

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_torch_name

        return with_torch_name(repository, finding)


class ConflictingDtypes(Rule):
    """`dtype` and the older `torch_dtype` in config.json differ.

    transformers 5 reads the first, transformers 4 and many servers the second: the same repository is loaded in two
    precisions.
    """

    code = "CFG202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("a cast that changed one of them", {CONFIG: {"torch_dtype": "float16"}}),)
    good = (Example("both spellings, one value", {CONFIG: {"torch_dtype": "bfloat16"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            new, old = level.string("dtype"), level.string("torch_dtype")
            if new is not None and old is not None and new != old:
                message = f"is {printable(old, 40)!r}, and dtype is {printable(new, 40)!r}"
                yield self.finding(CONFIG, message, place=level.at("torch_dtype"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_one_dtype

        return with_one_dtype(repository, finding)


class TokenOutOfRange(Rule):
    """A token id in config.json is not in the vocabulary.

    As a padding id it stops with an index error, on a GPU with an illegal memory access; as an end id it never comes.
    """

    code = "CFG103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("a padding id beside the last row", {CONFIG: {"pad_token_id": 32}}, also=("TOK212",)),
        Example("an end id of another tokenizer", {CONFIG: {"eos_token_id": [4, 128009]}}),
        Example("an end id below zero", {CONFIG: {"eos_token_id": -1}}),
        Example(
            "in the text model of a composed one", {CONFIG: {"text_config": {"vocab_size": 32, "sep_token_id": 32}}}
        ),
    )
    good = (
        Example("no padding, as LLaMA 1 spelled it", {CONFIG: {"pad_token_id": -1}}),
        Example("an image, as LLaVA's own code spells it", {CONFIG: {"image_token_index": -200}}),
        Example("no weights: the vocabulary of config.json", {SINGLE: None}),
        Example(
            "ids of CLIP, which are the default of SigLIP's class and which it never reads",
            {CONFIG: {"text_config": {"model_type": "siglip_text_model", "vocab_size": 32, "eos_token_id": 49407}}},
        ),
        Example(
            "an id of the text model, in a part", {CONFIG: {"talker_config": {"vocab_size": 8, "image_token_id": 31}}}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        for level in () if config is None else config.levels:
            of_text = config is not None and level.pointer in {"", config.text.pointer}
            # Ids in other parts may be of the text model too, or of a codebook that has a row more than they say.
            rows = repository.weights.token_rows if of_text and level.string("model_type") not in NEVER_ENDS else None
            for key in TOKEN_ID_KEYS:
                if wrong := [number for number in level.integers(key) if not is_token(number, key, rows)]:
                    message = f"is {printable(wrong[0])}; " + (
                        f"the vocabulary has {rows:,} rows" if rows is not None else "ids begin at 0"
                    )
                    yield self.finding(CONFIG, message, place=level.at(key), names=tuple(map(str, wrong)))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import within_rows

        return within_rows(repository, finding)


class LayerTypesMismatch(Rule):
    """A list with one entry a layer has another length than the number of layers.

    transformers 5 refuses the config: extra layers that draft tokens do not count.
    """

    code = "CFG104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("a layer that drafts tokens was counted", {CONFIG: {"layer_types": ["full_attention"] * 3}}),
        Example("layers were cut away", {CONFIG: {"mlp_layer_types": ["dense"]}}),
        Example("a switch for a layer that is not there", {CONFIG: {"no_rope_layers": [1, 1, 0]}}),
    )
    good = (
        Example("one entry a layer", {CONFIG: {"layer_types": ["sliding_attention", "full_attention"]}}),
        Example("an empty list, which stands for the default", {CONFIG: {"no_rope_layers": []}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            layers = level.integer("num_hidden_layers")
            for key in PER_LAYER:
                types = level.raw.get(key)
                if layers is not None and isinstance(types, list) and types and len(types) != layers:
                    message = f"has {count(len(types), 'entry', 'entries')}; num_hidden_layers is {printable(layers)}"
                    yield self.finding(CONFIG, message, place=level.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_fewer_entries

        return with_fewer_entries(repository, finding)


class ImpossibleSize(Rule):
    """A size in config.json is not one that a model can have.

    A placeholder that was never filled in, or a number that makes its reader allocate or loop without end.
    """

    code = "CFG105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("the vocabulary was to be filled in later", {CONFIG: {"vocab_size": -1}}),
        Example("no heads", {CONFIG: {"num_attention_heads": 0}}),
        Example("more layers than bytes in memory", {CONFIG: {"num_hidden_layers": 10**12}}, also=("WGT104",)),
        Example(
            "in Mistral's own format",
            {
                PARAMS: '{"dim": 16, "vocab_size": -1}',
                "consolidated.safetensors": safetensors({"norm.weight": ("BF16", (16,))}),
            },
        ),
    )
    good = (
        Example(
            "no heads, in code of the repository",
            {
                CONFIG: {"auto_map": {"AutoConfig": "configuration_x.X"}, "num_attention_heads": None},
                "configuration_x.py": "class X: ...\n",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        levels: list[Document] = [] if repository.config is None else list(repository.config.levels)
        params = repository.document(PARAMS)
        for level in [*levels, *([] if params is None else [params])]:
            for key, most in SIZES.items():
                value = level.integer(key)
                if value is not None and not 0 < value <= most:
                    yield self.finding(level.path, f"is {printable(value, 40)}", place=level.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_rows

        return with_rows(repository, finding)


class IndivisibleHeads(Rule):
    """hidden_size is not a multiple of num_attention_heads.

    transformers refuses the config of such a family, whatever head_dim says; others cut the size of a head down, and
    stop with a size mismatch.
    """

    code = "CFG112"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("three heads", {CONFIG: {"num_attention_heads": 3}}),)
    good = (Example("a family with heads of any size", {CONFIG: {"model_type": "qwen3", "num_attention_heads": 3}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        for level in () if config is None or "auto_map" in config else config.levels:
            hidden, heads = level.integer("hidden_size"), level.integer("num_attention_heads")
            if level.string("model_type") in data("divided_heads")["ids"] and hidden and heads and hidden % heads:
                message = f"is {printable(heads)}; hidden_size is {printable(hidden)}"
                yield self.finding(CONFIG, message, place=level.at("num_attention_heads"))


class AssertedTrust(Rule):
    """config.json asks for trust_remote_code.

    Whether code of a repository may run is for its user to say: loaders that take arguments from config.json run it
    unasked, all others ignore the key.
    """

    code = "CFG208"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("an argument of the training script", {CONFIG: {"trust_remote_code": True}}),)
    good = (Example("off", {CONFIG: {"trust_remote_code": False}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            if level.flag("trust_remote_code"):
                yield self.finding(CONFIG, "is true", place=level.at("trust_remote_code"), hint="delete the key")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        # Code of the repository may read the key.
        return None if repository.config is None or "auto_map" in repository.config else dropped(repository, finding)


class FrozenAttention(Rule):
    """config.json asks for flash attention.

    Loading stops with ImportError where that package is not installed, although the model runs without it.
    """

    code = "CFG204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("the setting of a training run", {CONFIG: {"_attn_implementation": "flash_attention_2"}}),
        Example(
            "in the text model",
            {CONFIG: {"text_config": {"vocab_size": 32, "attn_implementation": "flash_attention_2"}}},
        ),
        Example("an older flag", {CONFIG: {"use_flash_attention_2": True}}),
    )
    good = (Example("what torch itself brings", {CONFIG: {"_attn_implementation": "sdpa"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            for key in ("_attn_implementation", "attn_implementation", "use_flash_attention_2"):
                value = level.raw.get(key)
                if value is True or (isinstance(value, str) and "flash" in value):
                    message = f"is {printable(value, 40)}"
                    yield self.finding(CONFIG, message, place=level.at(key), hint="delete the key")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        # Code of the repository may read the key.
        return None if repository.config is None or "auto_map" in repository.config else dropped(repository, finding)


RULES: Final = (
    MissingModelType(),
    UnknownDtype(),
    TokenOutOfRange(),
    LayerTypesMismatch(),
    ImpossibleSize(),
    IndivisibleHeads(),
    MissingArchitectures(),
    ConflictingDtypes(),
    FrozenAttention(),
    AssertedTrust(),
)

# Lists with an entry for each layer (transformers 5.24: the first two are validated, the others are read by index).
PER_LAYER: Final = ("layer_types", "mlp_layer_types", "indexer_types", "no_rope_layers")

# The ids in their configs are those of CLIP, beyond their own vocabulary; their code has no use for them.
NEVER_ENDS: Final = frozenset({"siglip_text_model", "siglip2_text_model"})

# Far above every model there is (vocabulary 1 M, hidden size 64 k, 128 layers in 2026).
SIZES: Final = {
    "vocab_size": 2**31 - 1,
    "hidden_size": 2**24,
    "num_attention_heads": 2**16,
    "num_hidden_layers": 10_000,
    "dim": 2**24,
    "n_layers": 10_000,
    "n_heads": 2**16,
}

# Every dtype that is an attribute of torch 2.13 beside those that a header can hold, and the pattern of later ones:
# a width, and for floats the exponent and mantissa.
OTHER_DTYPES: Final = frozenset(
    {"half", "float", "double", "short", "int", "long", "cfloat", "cdouble", "chalf", "complex32", "complex128"}
)
LATER_DTYPES: Final = re.compile(r"u?int[1-7]|float[0-9]{1,2}_e[0-9]m[0-9][a-z0-9_]*")


def is_torch_dtype(name: str) -> bool:
    """Whether `getattr(torch, name)` is a dtype, in this torch or perhaps in a later one."""
    return name in TORCH_NAMES or name in OTHER_DTYPES or LATER_DTYPES.fullmatch(name) is not None


def is_token(number: int, key: str, rows: int | None) -> bool:
    """Whether an id is in the vocabulary, or stands for none.

    LLaMA 1 said -1 for no padding; LLaVA's own code has -200 for an image, which it takes out before the embedding.
    """
    none = -1 if key == "pad_token_id" else -200 if key.startswith(("image_", "video_", "audio_")) else 0
    return (rows is None or number < rows) and (number >= 0 or number == none)


def of_transformers(repository: Repository) -> bool:
    """Whether this is a repository for transformers: it says so or says nothing, and it looks like one."""
    config, card = repository.config, repository.card
    library = None if card is None else card.library_name
    if config is None or library not in (None, "transformers") or repository.weights.of_adapter:
        return False
    if "_class_name" in config or "pretrained_cfg" in config:  # diffusers; timm, which transformers wraps
        return False
    return "architectures" in config or "transformers_version" in config or repository.has("tokenizer_config.json")
