"""ADP: adapters of PEFT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example, edited, safetensors, tensors_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable, some
from repokit.repo.adapter import ADAPTER_CONFIG, adapters
from repokit.repo.adapter_kinds import kind_of, modules, wrong_shapes
from repokit.repo.card import is_path, is_repo_id
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from repokit.repo.adapter import Adapter
    from repokit.repo.adapter_kinds import Kind
    from repokit.repo.repository import Repository

QUERY: Final = "base_model.model.model.layers.0.self_attn.q_proj."


class UnusableBaseModel(Rule):
    """An adapter does not say for which base model it is, or names a folder of the machine that trained it.

    Whoever loads the adapter gets an error about a model that does not exist; no one can tell what it belongs to.
    """

    code = "ADP101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("the base was an object in memory", {ADAPTER_CONFIG: {"base_model_name_or_path": None}}, "lora"),
        Example(
            "the base was loaded from a folder", {ADAPTER_CONFIG: {"base_model_name_or_path": "/data/base"}}, "lora"
        ),
        Example("a folder beside", {ADAPTER_CONFIG: {"base_model_name_or_path": "../base"}}, "lora"),
        Example("Python's None as text", {ADAPTER_CONFIG: {"base_model_name_or_path": "None"}}, "lora", ("CRD204",)),
        Example("the key is gone", {ADAPTER_CONFIG: {"base_model_name_or_path": DELETE}}, "lora"),
    )
    good = (
        Example(
            "an id without an owner",
            {
                ADAPTER_CONFIG: {"base_model_name_or_path": "gpt2"},
                "README.md": lambda card: card.replace(b"example/base", b"gpt2"),
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for adapter in adapters(repository):
            config = adapter.config
            base = config.raw.get("base_model_name_or_path")
            if "peft_type" not in config:
                continue  # of another library, or no config of an adapter: another rule's
            if base is None:
                message = "names no base model"
            elif not isinstance(base, str) or (is_repo_id(base) and base != "None"):
                continue  # a wrong type is another rule's
            else:
                message = f"names {printable(base, 80)!r}, " + ("a path" if is_path(base) else "no id of the Hub")
            place = config.at("base_model_name_or_path")
            yield self.finding(config.path, message, place=place, hint="write the base model's id on the Hub")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_base_of_card

        return with_base_of_card(repository, finding)


class UnpairedFactor(Rule):
    """Of the two factors of a LoRA module only one was saved.

    PEFT leaves the other at its initial value, zero or noise: the module does nothing, or harm, without an error.
    """

    code = "ADP102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("one factor was lost", {ADAPTER: edited(drop=(QUERY + "lora_B.weight",))}, "lora"),)
    good = (Example("both factors of every module", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            alone = [module for module, pair in adapter.pairs.items() if pair.a is None or pair.b is None]
            if alone:
                message = f"has one of two factors in {count(len(alone), 'module')}"
                yield self.finding(path, message, names=alone, place=alone[0])


class FlattenedFactor(Rule):
    """A factor of a LoRA module has one dimension.

    It is the flat part of a sharded run (ZeRO-3, FSDP) that was not gathered before saving: loading stops with a size
    mismatch.
    """

    code = "ADP103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a flat parameter", {ADAPTER: edited(add={QUERY + "lora_A.weight": ("F32", (64,))})}, "lora"),)
    good = (Example("matrices", base="lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            factors = (tensor for pair in adapter.pairs.values() for tensor in (pair.a, pair.b) if tensor is not None)
            if flat := [tensor.name for tensor in factors if len(tensor.shape) < 2 and tensor.size]:
                yield self.finding(path, f"has {count(len(flat), 'flat factor')}", names=flat, place=flat[0])


class RankMismatch(Rule):
    """The factors of a LoRA module have another rank than adapter_config.json says.

    Loading stops with a size mismatch.
    """

    code = "ADP104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("the config of another run", {ADAPTER_CONFIG: {"r": 64}}, "lora"),
        Example("ranks that differ, and no pattern", {ADAPTER_CONFIG: {"rank_pattern": {"q_proj": 8}}}, "lora"),
    )
    good = (
        Example(
            "every module in a pattern", {ADAPTER_CONFIG: {"r": 8, "rank_pattern": {"q_proj": 4, "v_proj": 4}}}, "lora"
        ),
        Example(
            "a pattern that only PEFT can read", {ADAPTER_CONFIG: {"r": 8, "rank_pattern": {"(q|v)_proj": 4}}}, "lora"
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            if not plain_lora(adapter):
                continue
            ranks = {module: (pair.rank, adapter.rank_of(module)) for module, pair in adapter.pairs.items()}
            wrong = [module for module, (rank, said) in ranks.items() if rank is not None and said and rank != said]
            wrong += [module for module, pair in adapter.pairs.items() if module not in wrong and not pair.fits]
            if wrong:
                rank, said = ranks[wrong[0]]
                message = f"has rank {rank} in {count(len(wrong), 'module')}; {adapter.config.path} says {said}"
                yield self.finding(path, message, names=wrong, place=wrong[0], hint="set r and rank_pattern to match")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_ranks

        return with_ranks(repository, finding)


class UnmatchedTargets(Rule):
    """No module of the adapter is one that `target_modules` names.

    PEFT adapts the modules that are named and looks for their weights in vain: the adapter does nothing, without an
    error.
    """

    code = "ADP105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the config of another architecture", {ADAPTER_CONFIG: {"target_modules": ["c_attn"]}}, "lora"),)
    good = (
        Example("names of other architectures too", {ADAPTER_CONFIG: {"target_modules": ["c_attn", "v_proj"]}}, "lora"),
        Example("an expression, which is not run", {ADAPTER_CONFIG: {"target_modules": ".*attn.*"}}, "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for _, adapter in with_weights(repository):
            targets, modules = adapter.config.strings("target_modules"), adapter.pairs
            ends = tuple(f".{target}" for target in targets)
            if modules and targets and not any(f".{module}".endswith(ends) for module in modules):
                message = f"names {some(targets)}, and the weights are of {some(tuple(modules), 1)}"
                yield self.finding(adapter.config.path, message, place=adapter.config.at("target_modules"))


def with_magnitudes(content: bytes) -> bytes:
    """The weights of a LoRA with a magnitude for every output, as DoRA has them."""
    tensors = tensors_of(content)
    factors = {name: shape for name, (_, shape) in tensors.items() if name.endswith(".lora_B.weight")}
    magnitudes = {
        name.replace("lora_B.weight", "lora_magnitude_vector"): ("F32", shape[:1]) for name, shape in factors.items()
    }
    return edited(add=magnitudes)(content)


class MisshapenAdapter(Rule):
    """Tensors of an adapter have other shapes than adapter_config.json gives, or their counterparts are missing.

    PEFT makes its parameters by the config: loading stops with a size mismatch, or leaves them at their initial values.
    """

    code = "ADP115"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a prompt of another length",
            {
                ADAPTER_CONFIG: {
                    "peft_type": "PROMPT_TUNING",
                    "num_virtual_tokens": 8,
                    "num_transformer_submodules": 1,
                    "token_dim": 16,
                },
                ADAPTER: safetensors({"prompt_embeddings": ("F32", (4, 16))}),
            },
            "lora",
        ),
        Example("DoRA without magnitudes", {ADAPTER_CONFIG: {"use_dora": True}}, "lora"),
        Example(
            "a factor of LoHa is missing",
            {
                ADAPTER_CONFIG: {"peft_type": "LOHA"},
                ADAPTER: safetensors({QUERY + "hada_w1_a": ("F32", (16, 4)), QUERY + "hada_w1_b": ("F32", (4, 16))}),
            },
            "lora",
        ),
    )
    good = (
        Example(
            "IA3",
            {
                ADAPTER_CONFIG: {"peft_type": "IA3", "r": DELETE},
                ADAPTER: safetensors({QUERY + "ia3_l": ("F32", (16, 1))}),
            },
            "lora",
        ),
        Example(
            "DoRA with its magnitudes",
            {
                ADAPTER_CONFIG: {"use_dora": True},
                ADAPTER: with_magnitudes,
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in with_weights(repository):
            kind = kind_of(adapter)
            for message, names in (*of_dora(adapter), *(() if kind is None else of_kind(adapter, kind))):
                yield self.finding(path, message, names=names, place=names[0] if names else None)


RULES: Final = (
    UnusableBaseModel(),
    UnpairedFactor(),
    FlattenedFactor(),
    RankMismatch(),
    UnmatchedTargets(),
    MisshapenAdapter(),
)


def with_weights(repository: Repository) -> Iterator[tuple[str, Adapter]]:
    """Adapters whose weights are a .safetensors file, with its path."""
    for adapter in adapters(repository):
        if adapter.weights is not None:
            yield adapter.weights, adapter


def plain_lora(adapter: Adapter) -> bool:
    """Whether the rows of A are the rank: not where whole parameters of experts or blocks of a matrix are adapted."""
    config = adapter.config
    special = any(config.raw.get(key) for key in ("target_parameters", "use_bdlora", "use_qalora"))
    return config.string("peft_type") == "LORA" and not special


def of_dora(adapter: Adapter) -> Iterator[tuple[str, list[str]]]:
    """What is wrong with the magnitudes of DoRA."""
    if not plain_lora(adapter) or not adapter.config.flag("use_dora"):
        return
    held = {tensor.name: tensor for tensor in adapter.tensors if ".lora_magnitude_vector" in tensor.name}
    linear = {module: pair.b for module, pair in adapter.pairs.items() if pair.b is not None and not pair.embedding}
    names = {module: f"{module}.lora_magnitude_vector" for module in linear}
    if lacking := [module for module, name in names.items() if not {name, f"{name}.weight"} & held.keys()]:
        yield f"has no magnitudes in {count(len(lacking), 'module')}; {ADAPTER_CONFIG} says use_dora", lacking
    wrong = [
        name
        for module, name in names.items()
        if name in held and len(linear[module].shape) == 2 and held[name].shape != linear[module].shape[:1]
    ]
    if wrong:
        yield f"has another number of magnitudes than outputs in {count(len(wrong), 'module')}", wrong


def of_kind(adapter: Adapter, kind: Kind) -> Iterator[tuple[str, list[str]]]:
    """What is wrong with the tensors of a method other than LoRA."""
    found = modules(adapter, kind)
    if adapter.tensors and not found:
        yield f"holds no tensor of the method {adapter.config.string('peft_type')}", [adapter.tensors[0].name]
    lacking = [
        module for module, parts in found.items() if kind.together & parts.keys() not in (frozenset(), kind.together)
    ]
    if lacking:
        yield f"lacks tensors that belong together in {count(len(lacking), 'module')}", lacking
    wrong = list(wrong_shapes(adapter, kind))
    if wrong:
        tensor, wanted = wrong[0]
        said = " x ".join("any" if size is None else f"{size:,}" for size in wanted)
        message = f"has the shape {list(tensor.shape)}; {adapter.config.path} gives {said}"
        yield message, [tensor.name for tensor, _ in wrong]
