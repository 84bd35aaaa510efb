"""CFG: config.json that is not there, and words in it that a slip of the pen made unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.slips import meant_by, misspelt
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.weights import INDEX, SINGLE
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.schema.field_types import Level

# What transformers' save_pretrained writes beside config.json, and other libraries do not.
BESIDE: Final = ("tokenizer_config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json")
OTHERS: Final = ("adapter_config.json", "model_index.json", "modules.json", "params.json", "open_clip_config.json")
OTHER_CARD: Final = "---\nlicense: apache-2.0\nlibrary_name: nemo\n---\n# A voice\n"


class MissingConfig(Rule):
    """There are weights and a tokenizer as transformers saves them, and no config.json.

    No class can be chosen and no size is known: loading stops before it begins.
    """

    code = "CFG130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("it was not uploaded", {CONFIG: None}),
        Example("of a sharded model", {CONFIG: None}, "sharded"),
    )
    good = (
        Example("weights alone", {CONFIG: None, "tokenizer_config.json": None, "generation_config.json": None}),
        Example("another library's", {CONFIG: None, "README.md": OTHER_CARD}),
        Example("a tokenizer alone", {CONFIG: None, SINGLE: None}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        library = None if card is None else card.library_name
        if repository.has(CONFIG) or library not in {None, "transformers"} or any(map(repository.has, OTHERS)):
            return
        weights = next((path for path in (SINGLE, INDEX) if repository.has(path)), None)
        if weights is not None and any(map(repository.has, BESIDE)):
            yield self.finding(weights, f"lies here without {CONFIG}", hint=f"copy {CONFIG} from the training run")


class UnknownActivation(Rule):
    """config.json names an activation function that transformers does not have.

    Building the model stops with KeyError, before a weight is read.
    """

    code = "CFG131"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a misspelt name", {CONFIG: {"hidden_act": "sliu"}}),
        Example("torch's spelling", {CONFIG: {"hidden_act": "SiLU"}}),
    )
    good = (
        Example("another name for the same", {CONFIG: {"hidden_act": "swish"}}),
        Example("written by a newer version", {CONFIG: {"hidden_act": "glow", "transformers_version": "99.0.0"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = data("activations")
        for level in judged(repository):
            for key in ACTIVATIONS:
                value = level.raw.get(key)
                is_null = key == "activation" and key in level.raw and value is None  # a type that the classes let pass
                is_unknown = isinstance(value, str) and not is_activation(value, key, known["ids"])
                if key in level.cls.fields and (is_null or is_unknown):
                    message = f"is {printable(value, 40)!r}, which {known['source'].partition(',')[0]} does not have"
                    hint = f"one of {', '.join(known['ids'])}"
                    yield self.finding(CONFIG, message, place=level.at(key), hint=hint)


class MisspelledConfigKey(Rule):
    """A key of config.json is nearly one that its class reads, and that one is not there.

    The class takes its own default for the one, and keeps the other as something that nobody reads.
    """

    code = "CFG230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("a letter short", {CONFIG: {"rms_norm_eps": DELETE, "rms_nrm_eps": 1e-06}}),
        Example("two letters swapped", {CONFIG: {"hidden_act": DELETE, "hiddne_act": "silu"}}),
    )
    good = (
        Example("a key of someone's own", {CONFIG: {"rms_norm_epsilon_of_teacher": 1e-5}}),
        Example("both are there", {CONFIG: {"hidden_acts": "silu"}}),
        Example("another number of the same thing", {CONFIG: {"hidden_act": DELETE, "hidden_act2": "silu"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key, meant in misspelt(level.raw, level.cls.keys):
                if key not in OF_EVERY_CLASS and not is_a_field(key):
                    message = f"is no key of a {printable(level.cls.name, 40)} config; {meant} is, and is not there"
                    yield self.finding(CONFIG, message, place=level.at(key), hint=f"rename it to {meant}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import renamed

        return renamed(repository, finding)


class MisspelledClass(Rule):
    """`architectures` names a class that is nearly one of the model type's.

    Pipelines, servers and exporters look the name up, and refuse the model.
    """

    code = "CFG231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("a letter short", {CONFIG: {"architectures": ["LlamaForCausaLM"]}}),
        Example("a letter too many", {CONFIG: {"architectures": ["LlamaForCausalLMx"]}}),
    )
    good = (Example("a class of someone's own", {CONFIG: {"architectures": ["LlamaForRewards"]}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.architectures.skeleton import covered

        config = repository.config
        if config is None or "auto_map" in config or config.model_type is None:
            return
        classes = covered(config.model_type)
        for number, name in enumerate(config.architectures):
            if name not in classes and (meant := meant_by(name, classes)) is not None:
                message = f"is {printable(name, 60)!r}, no class of transformers"
                place = config.at("architectures", number)
                yield self.finding(CONFIG, message, place=place, hint=f'"{meant}"')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import meant_class

        return meant_class(repository, finding)


RULES: Final[tuple[Rule, ...]] = (MissingConfig(), UnknownActivation(), MisspelledConfigKey(), MisspelledClass())

# The fields that config classes look up in transformers' table of activations (activations.py ACT2FN).
ACTIVATIONS: Final = (
    *(
        "activation",
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "decoder_hidden_act",
        "encoder_hidden_act",
    ),
    "feed_forward_proj",  # of the T5 family: "relu", "gated-gelu"
)

# Attributes of PreTrainedConfig itself, and keys that every loader leaves in the file.
OF_EVERY_CLASS: Final = frozenset(
    {
        *("_attn_implementation", "_name_or_path", "architectures", "attn_implementation", "auto_map", "dtype"),
        *("id2label", "is_encoder_decoder", "label2id", "model_type", "problem_type", "quantization_config"),
        *("return_dict", "torch_dtype", "transformers_version", "use_cache"),
    }
)


def judged(repository: Repository) -> Iterator[Level]:
    """The levels of a config.json whose classes are known, unless a newer transformers wrote it."""
    from repokit.schema.field_types import is_newer, levels

    raw: Any = None if repository.config is None else repository.config.raw
    if raw is not None and not is_newer(raw) and "auto_map" not in raw:
        yield from levels(raw)


def is_a_field(key: str) -> bool:
    """Whether some class reads a key, from config.json or as the public face of a field of its own."""
    from repokit.schema.field_types import is_known

    return is_known(key) or is_known(f"_{key}")


def is_activation(value: str, key: str, known: list[str]) -> bool:
    """Whether a name is in the table; a T5 block may have a gate before it."""
    if key == "feed_forward_proj":
        value = {"gated-gelu": "gelu_new"}.get(value, value.removeprefix("gated-"))
    return value in known
