"""ADP: adapter_config.json by itself, and the repository around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example, lora, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable, some
from repokit.repo.adapter import ADAPTER_CONFIG, adapters, plain_pattern
from repokit.repo.card import README
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

# What loaders take for the weights of a full model, in one folder with an adapter.
FULL: Final = re.compile(r"(?:model|pytorch_model)(?:-[0-9]+-of-[0-9]+)?\.(?:safetensors|bin)")


class AdapterBesideModel(Rule):
    """An adapter and the weights of a full model lie in one folder.

    Loaders that find adapter_config.json take the folder for an adapter, others for a model: what is loaded depends on
    the reader, and unsloth refuses to choose.
    """

    code = "ADP110"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the adapter pushed over its base",
            {path: content for path, content in lora().items() if path.startswith("adapter_")},
        ),
    )
    good = (
        Example(
            "an adapter in a folder of its own",
            {"adapter/adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "example/base"}'},
        ),
        Example(
            "a class that loads both, as Granite Speech does",
            {path: content for path, content in lora().items() if path.startswith("adapter_")}
            | {"config.json": {"model_type": "granite_speech", "has_lora_adapter": True}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            folder = adapter.config.path.removesuffix(ADAPTER_CONFIG)
            beside = [
                path for path in repository.files if path.startswith(folder) and FULL.fullmatch(path[len(folder) :])
            ]
            model = repository.document(f"{folder}config.json")
            if beside and model is not None and model.flag("has_lora_adapter") is not True:
                message = f"lies beside the weights of a full model: {some(beside, 1)}"
                hint = "publish the adapter in a repository or folder of its own, or merge it"
                yield self.finding(adapter.config.path, message, names=beside, hint=hint)


class AdapterAsModel(Rule):
    """The card calls an adapter a model of transformers.

    The Hub shows code that loads a full model; without PEFT installed it fails, and downloads count for transformers.
    """

    code = "ADP201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("the card of the base", {README: lambda card: card.replace(b": peft", b": transformers")}, "lora"),)
    good = (Example("the library is peft", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, config = repository.card, repository.adapter_config
        full = any(FULL.fullmatch(path) for path in repository.files)
        if card is not None and config is not None and not full and card.library_name == "transformers":
            message = "has library_name transformers; the repository is an adapter"
            yield self.finding(README, message, place=card.place("library_name"), hint="library_name: peft")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import as_peft

        return as_peft(repository, finding)


class UnusableRank(Rule):
    """A rank is zero or less.

    PEFT refuses it; AdaLoRA writes rank 0 where it pruned all of a module, and cannot load it back.
    """

    code = "ADP111"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("zero", {ADAPTER_CONFIG: {"r": 0}}, "lora"),
        Example("zero in one module", {ADAPTER_CONFIG: {"rank_pattern": {"k_proj": 0}}}, "lora", ("ADP202",)),
        Example(
            "AdaLoRA kept nothing",
            {ADAPTER_CONFIG: {"peft_type": "ADALORA", "rank_pattern": {"q_proj.lora_E": [False] * 4}}, ADAPTER: None},
            "lora",
        ),
    )
    good = (
        Example(
            "OFT with a block size instead",
            {ADAPTER_CONFIG: {"peft_type": "OFT", "r": 0, "oft_block_size": 4, "lora_alpha": DELETE}, ADAPTER: None},
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            config = adapter.config
            rank = config.integer("r")
            if rank is not None and rank < 1 and config.string("peft_type") not in RANK_MAY_BE_ZERO:
                yield self.finding(config.path, f"has rank {rank}", place=config.at("r"))
            patterns = config.mapping("rank_pattern")
            empty = [] if patterns is None else [key for key, value in patterns.raw.items() if is_no_rank(value)]
            if empty and patterns is not None:
                message = f"has rank 0 for {count(len(empty), 'pattern')}"
                yield self.finding(config.path, message, names=empty, place=patterns.at(empty[0]))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_ranks

        return with_ranks(repository, finding)


class UnmatchedPattern(Rule):
    """A key of rank_pattern or alpha_pattern is the name of no module of the adapter.

    PEFT takes the values for all instead: an alpha that was meant for some modules never applies.
    """

    code = "ADP202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (Example("a module that was not adapted", {ADAPTER_CONFIG: {"alpha_pattern": {"k_proj": 16}}}, "lora"),)
    good = (
        Example("a part of a name", {ADAPTER_CONFIG: {"alpha_pattern": {"self_attn.v_proj": 16}}}, "lora"),
        Example("an expression, which is not run", {ADAPTER_CONFIG: {"alpha_pattern": {".*[.]k_proj": 16}}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            modules = tuple(adapter.pairs)
            if adapter.config.string("peft_type") != "LORA" or not modules:
                continue
            if adapter.config.raw.get("target_parameters"):
                continue  # a pattern may be the name of a parameter, whose tensors have that of its module
            for key in ("rank_pattern", "alpha_pattern"):
                patterns = adapter.config.mapping(key)
                for pattern in () if patterns is None else patterns.raw:
                    plain = plain_pattern(pattern)
                    if plain is not None and not any(f".{module}".endswith(f".{plain}") for module in modules):
                        message = f"has {printable(pattern, 80)!r} in {key}, which is no module of the adapter"
                        yield self.finding(adapter.config.path, message, place=adapter.config.at(key, pattern))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        return dropped(repository, finding)


class NotAnAdapterConfig(Rule):
    """adapter_config.json is not the config of an adapter.

    PEFT takes the method from `peft_type`; it stops at a file that has none, or at keys of another kind of file.
    """

    code = "ADP112"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example(
            "generation settings under this name",
            {ADAPTER_CONFIG: '{"_from_model_config": true, "eos_token_id": 2, "transformers_version": "5.24.0"}'},
            "lora",
        ),
        Example("no method", {ADAPTER_CONFIG: {"peft_type": DELETE}}, "lora"),
        Example("a method in small letters", {ADAPTER_CONFIG: {"peft_type": "lora"}}, "lora"),
    )
    good = (
        Example(
            "an adapter of MLX",
            {
                ADAPTER: None,
                ADAPTER_CONFIG: '{"fine_tune_type": "lora", "lora_parameters": {"rank": 8}, "num_layers": 2}',
                "adapters.safetensors": safetensors({"model.layers.0.mlp.up_proj.lora_a": ("F32", (16, 8))}),
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.adapter_types import type_names

        for adapter in adapters(repository):
            config, kind = adapter.config, adapter.config.string("peft_type")
            if "peft_type" not in config and (adapter.weights is not None or config.raw.keys() & OF_OTHER_FILES):
                if not config.raw.keys() & OF_OTHER_LIBRARIES:
                    theirs = sorted(config.raw.keys() & OF_OTHER_FILES)
                    message = "has no peft_type" + (f", and keys of another file: {some(theirs)}" if theirs else "")
                    yield self.finding(config.path, message)
            elif kind is not None and kind not in type_names() and kind.upper() in type_names():
                hint = f'"peft_type": "{kind.upper()}"'
                message = f"has peft_type {printable(kind, 40)!r}; PEFT looks methods up in capitals"
                yield self.finding(config.path, message, place=config.at("peft_type"), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_known_type

        return with_known_type(repository, finding)


class LegacyAdapterKey(Rule):
    """adapter_config.json has keys that PEFT dropped in 0.3.

    From 0.3 to 0.13 PEFT stops at them with a TypeError; later versions leave them out with a warning.
    """

    code = "ADP113"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("written before 0.3", {ADAPTER_CONFIG: {"enable_lora": None, "merge_weights": False}}, "lora"),)
    good = (Example("none of them", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            config = adapter.config
            if "peft_type" in config and (keys := [key for key in LEGACY if key in config]):
                message = f"has {some(keys)}"
                yield self.finding(config.path, message, names=keys, place=config.at(keys[0]), hint="delete them")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import without_legacy

        return without_legacy(repository, finding)


class RefusedAdapterValue(Rule):
    """adapter_config.json has values that PEFT refuses.

    Its config classes check what goes together, and raise before any weight is read.
    """

    code = "ADP114"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a task that PEFT does not have", {ADAPTER_CONFIG: {"task_type": "CAUSALLM"}}, "lora"),
        Example(
            "layers beside an expression",
            {ADAPTER_CONFIG: {"target_modules": ".*_proj", "layers_to_transform": [0]}},
            "lora",
        ),
        Example("a pattern of layers without layers", {ADAPTER_CONFIG: {"layers_pattern": "layers"}}, "lora"),
    )
    good = (
        Example("no task", {ADAPTER_CONFIG: {"task_type": None}}, "lora"),
        Example(
            "layers beside names", {ADAPTER_CONFIG: {"layers_to_transform": [0, 1], "layers_pattern": "layers"}}, "lora"
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            if "peft_type" in adapter.config:
                for key, message in refused(adapter.config):
                    yield self.finding(adapter.config.path, message, place=adapter.config.at(key))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_known_value

        return with_known_value(repository, finding)


class MisspelledAdapterKey(Rule):
    """A key of adapter_config.json is spelled almost like a field of its method.

    PEFT leaves out keys that it does not know, with a warning, and takes the default instead.
    """

    code = "ADP203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("a letter too few", {ADAPTER_CONFIG: {"lora_alpa": 16, "lora_alpha": DELETE}}, "lora"),)
    good = (
        Example("a key of someone's own", {ADAPTER_CONFIG: {"trained_by": "me"}}, "lora"),
        Example("one that says nothing, of ms-swift", {ADAPTER_CONFIG: {"use_qa_lora": False}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.adapter_types import unknown_keys

        for adapter in adapters(repository):
            for unknown in unknown_keys(adapter.config.raw):
                says = adapter.config.raw[unknown.key] not in (None, False)
                if says and unknown.meant is not None and not unknown.types and unknown.key not in LEGACY:
                    message = f"has the key {printable(unknown.key, 60)!r}, which is no field of its method"
                    place, hint = adapter.config.at(unknown.key), f"did you mean {unknown.meant}?"
                    yield self.finding(adapter.config.path, message, place=place, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_known_key

        return with_known_key(repository, finding)


class NewerAdapterKey(Rule):
    """adapter_config.json has keys that are null and that older versions of PEFT do not know.

    PEFT before 0.14 stops at any key that it does not know, and these say nothing.
    """

    code = "ADP301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("written by PEFT 0.14", {ADAPTER_CONFIG: {"eva_config": None, "exclude_modules": None}}, "lora"),)
    good = (
        Example(
            "keys that are old enough", {ADAPTER_CONFIG: {"layers_pattern": None, "megatron_config": None}}, "lora"
        ),
        Example("a newer key that says something", {ADAPTER_CONFIG: {"use_qalora": True}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            config = adapter.config
            if config.string("peft_type") != "LORA":
                continue
            if keys := [key for key in config.raw if config.raw[key] is None and key not in OLD_KEYS]:
                message = f"has {count(len(keys), 'key')} that are null and unknown to PEFT before 0.14"
                hint = "delete them, for readers with an older PEFT"
                yield self.finding(config.path, message, names=keys, place=config.at(keys[0]), hint=hint)


class UnknownAdapterType(Rule):
    """The method of an adapter is not one that this version knows.

    It may be newer; PEFT 0.21 stops at it with a KeyError.
    """

    code = "ADP302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a method of a later PEFT", {ADAPTER_CONFIG: {"peft_type": "FROBNICATE"}}, "lora"),)
    good = (Example("LoRA", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.adapter_types import source, type_names

        for adapter in adapters(repository):
            kind = adapter.config.string("peft_type")
            if kind is not None and kind.upper() not in type_names():
                message = f"has peft_type {printable(kind, 40)!r}, which {source()} does not have"
                yield self.finding(adapter.config.path, message, place=adapter.config.at("peft_type"))


RULES: Final = (
    AdapterBesideModel(),
    UnusableRank(),
    NotAnAdapterConfig(),
    LegacyAdapterKey(),
    RefusedAdapterValue(),
    AdapterAsModel(),
    UnmatchedPattern(),
    MisspelledAdapterKey(),
    NewerAdapterKey(),
    UnknownAdapterType(),
)

# Methods in which 0 says that the number follows from another.
RANK_MAY_BE_ZERO: Final = frozenset({"OFT", "SUPERTUNING"})

# Keys of config.json and generation_config.json that no method of PEFT has.
OF_OTHER_FILES: Final = frozenset(
    {"_from_model_config", "transformers_version", "architectures", "eos_token_id", "vocab_size", "hidden_act"}
)
# adapter_config.json of MLX, and of the library `adapters`.
OF_OTHER_LIBRARIES: Final = frozenset({"fine_tune_type", "lora_parameters", "model_class", "lora_layers"})

LEGACY: Final = ("enable_lora", "merge_weights")  # fields of LoraConfig in peft 0.2

# Fields of LoraConfig in peft 0.13.2; from 0.14 on unknown keys are left out.
OLD_KEYS: Final = frozenset(
    {
        *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "fan_in_fan_out", "inference_mode"),
        *("init_lora_weights", "layer_replication", "layers_pattern", "layers_to_transform", "loftq_config"),
        *("lora_alpha", "lora_dropout", "megatron_config", "megatron_core", "modules_to_save", "peft_type", "r"),
        *("rank_pattern", "revision", "target_modules", "task_type", "use_dora", "use_rslora", *LEGACY),
    }
)

# peft 0.21 utils/peft_types.py TaskType.
TASKS: Final = frozenset({"SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"})


def is_no_rank(value: Any) -> bool:  # noqa: ANN401 - a value of JSON
    """Whether a rank is 0 or less, or a list of values of which none was kept."""
    if isinstance(value, list):
        return bool(value) and not any(value)
    return type(value) is int and value < 1


def refused(config: Document) -> Iterator[tuple[str, str]]:
    """Keys and what is wrong with them: peft 0.21 config.py and tuners/lora/config.py __post_init__."""
    task = config.string("task_type")
    if task is not None and task not in TASKS:
        yield "task_type", f"has task_type {printable(task, 40)!r}, which PEFT does not have"
    if config.string("peft_type") != "LORA":
        return
    if config.string("target_modules") is not None:
        for key in ("layers_to_transform", "layers_pattern"):
            if config.raw.get(key) is not None:
                yield key, f"has {key} beside target_modules that are an expression"
    if config.raw.get("layers_pattern") and not config.raw.get("layers_to_transform"):
        yield "layers_pattern", "has layers_pattern without layers_to_transform"
    if config.flag("use_dora") and config.raw.get("megatron_config"):
        yield "use_dora", "has use_dora beside megatron_config"
    if config.flag("lora_bias") and config.flag("use_dora"):
        yield "lora_bias", "has lora_bias beside use_dora"
    if config.string("target_parameters") is not None:
        yield "target_parameters", "has target_parameters that are text; PEFT takes a list"
