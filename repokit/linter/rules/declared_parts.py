"""WGT: parts that config.json declares beside the layers: draft layers, experts in their two layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, Tensors, edited, safetensors
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.expected_tensors import torn
from repokit.linter.rules.weights_against_config import (
    MOE,
    as_dtype,
    dtypes,
    fused_groups,
    generates,
    of_experts,
)
from repokit.printable import count, printable, size
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

DRAFTS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


def fused(number: int) -> Tensors:
    """As many experts in one tensor, in both layers."""
    block = "model.layers.{}.mlp.experts."
    shapes = {"gate_up_proj": (number, 48, 16), "down_proj": (number, 16, 24)}
    return {block.format(layer) + part: ("BF16", shape) for layer in range(2) for part, shape in shapes.items()}


class MissingDraftLayer(Rule):
    """config.json declares layers that draft tokens, and the weights have none.

    Servers that draft with them stop, or draft with random weights and accept nothing. A merge, or a save by classes of
    transformers, which do not have these layers, drops them without a word.
    """

    code = "WGT203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("dropped by a merge", {CONFIG: {"num_nextn_predict_layers": 1}}),
        Example("in the text model", {CONFIG: {"text_config": {"vocab_size": 32, "mtp_num_hidden_layers": 1}}}),
    )
    good = (
        Example(
            "a stack of its own",
            {CONFIG: {"mtp_num_hidden_layers": 1}, SINGLE: edited(add={"mtp.fc.weight": ("BF16", (16, 32))})},
        ),
        Example(
            "behind the last layer",
            {
                CONFIG: {"num_nextn_predict_layers": 1},
                SINGLE: edited(add={"model.layers.2.eh_proj.weight": ("BF16", (16, 32))}),
            },
        ),
        Example("none declared", {CONFIG: {"num_nextn_predict_layers": 0}}),
        Example("MLX, which drops them", {CONFIG: {"num_nextn_predict_layers": 1}}, "mlx"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if config is None or weights.of_adapter or not weights.whole or "quantization" in config:
            return  # the last key is of MLX, which has no use for these layers and drops them
        for level in config.levels:
            for key in DRAFTS:
                number = level.integer(key) or 0
                if number > 0 and not has_drafts(repository, level.integer("num_hidden_layers")):
                    message = f"declares {count(number, 'layer')} that {'drafts' if number == 1 else 'draft'} tokens; "
                    message += "the weights have none"
                    hint = "set it to 0, or take the layers over from the base model"
                    yield self.finding(CONFIG, message, place=level.at(key), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import zeroed

        return zeroed(repository, finding)


class MixedExpertLayouts(Rule):
    """Experts of one layer are stored one by one and in one tensor as well.

    Loaders read one of the two layouts and drop the other: which experts the model has depends on the loader.
    """

    code = "WGT110"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "two savers, one folder",
            {CONFIG: MOE, SINGLE: weights_of(MOE, add=fused(4))},
            also=("WGT302",),
        ),
    )
    good = (Example("one by one", {CONFIG: MOE, SINGLE: weights_of(MOE)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights = repository.weights
        alone = {pattern.partition("experts.")[0] for pattern in weights.groups if ".experts.*." in pattern}
        together = fused_groups(repository)
        names = [names[0] for pattern, names in together.items() if pattern.partition("experts.")[0] in alone]
        if names or (names := torn(repository)):
            message = "has experts one by one and in one tensor, in the same layers"
            hint = "save the model again, in one layout"
            yield self.finding(weights.main or SINGLE, message, names=names, place=names[0], hint=hint)


class FusedExperts(Rule):
    """The experts of a layer are in one tensor, in a family that publishes them one by one.

    Those are the names that transformers 5 uses inside; other loaders, and transformers 4, look for each expert and
    find none: some of them go on with random ones.
    """

    code = "WGT302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a state dict of transformers 5",
            {CONFIG: MOE, SINGLE: weights_of(MOE, drop=of_experts(0, 1, 2, 3), add=fused(4))},
        ),
    )
    good = (
        Example(
            "a family that publishes them so",
            {CONFIG: {"model_type": "gpt_oss", "num_local_experts": 4}, SINGLE: edited(add=fused(4))},
        ),
        Example(
            "Qwen3.5, which is published in both",
            {CONFIG: {**MOE, "model_type": "qwen3_5_moe_text"}, SINGLE: edited(add=fused(4))},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if config is None or not (groups := fused_groups(repository)):
            return
        for model_type in dict.fromkeys((config.text.string("model_type"), config.model_type)):
            if model_type in data("unfused_experts")["ids"] and model_type not in IN_BOTH_LAYOUTS:
                message = f"has experts in one tensor, which {printable(model_type, 40)} publishes one by one"
                names = [name for names in groups.values() for name in names]
                yield self.finding(weights.main or SINGLE, message, names=names, place=names[0])
                return


class DerivedInFloat32(Rule):
    """A decoder that was made from another one is stored, and declared, in float32.

    Decoders with rotary positions are published in 16 bits, and run in them: a training run kept its master weights,
    and everyone downloads twice what they use.
    """

    code = "WGT204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a merge in float32", {CONFIG: {"dtype": "float32"}, SINGLE: as_dtype("F32")}),)
    good = (
        Example("a merge in bfloat16"),
        Example(
            "no model that it came from",
            {
                CONFIG: {"dtype": "float32"},
                SINGLE: as_dtype("F32"),
                "README.md": lambda card: card.replace(b"base_model: example/base\n", b""),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, card = repository.config, repository.card
        if config is None or card is None or not card.base_models or dtypes(repository) != ("F32", "F32"):
            return
        rotary = config.model_type in data("older_rope_theta")["rope_theta"]
        if rotary and any(generates(architecture) for architecture in config.architectures):
            total = size(sum(repository.weights.stored.bytes.values()))
            message = (
                f"holds {total} of float32 matrices; {printable(card.base_models[0], 60)} is what it was made from"
            )
            hint = "`repokit build` casts them, if the base is in 16 bits"
            yield self.finding(repository.weights.main or SINGLE, message, hint=hint)


VALUE_HEAD: Final = "value_head.safetensors"
SUMMARY: Final = "v_head.summary."


class UnreadValueHead(Rule):
    """The value head of a reward model lies in a file of its own, and config.json names a class without one.

    TRL trained the two as one model, and its wrapper alone reads that file: whoever loads the repository as
    config.json says gets a text generator, and no rewards.
    """

    code = "WGT150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a reward model of LLaMA-Factory",
            {
                VALUE_HEAD: safetensors(
                    {f"{SUMMARY}weight": ("BF16", (1, 16)), f"{SUMMARY}bias": ("BF16", (1,))},
                )
            },
        ),
    )
    good = (
        Example("a value head among the weights", {SINGLE: edited(add={f"{SUMMARY}weight": ("BF16", (1, 16))})}),
        Example(
            "code of the repository reads it",
            {
                VALUE_HEAD: safetensors({f"{SUMMARY}weight": ("BF16", (1, 16))}),
                CONFIG: {"auto_map": {"AutoModelForCausalLM": "modeling_x.XModel"}},
                "modeling_x.py": "",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        if config is None or "auto_map" in config or not repository.has(VALUE_HEAD):
            return
        names = [tensor.name for tensor in repository.header(VALUE_HEAD).tensors]
        plain = [name for name in config.architectures if generates(name)]
        if plain and names and all(name.startswith(SUMMARY) for name in names):
            message = f"is a value head that {printable(plain[0], 60)} does not read"
            hint = "train and save it as *ForSequenceClassification, or say in the card which program reads this file"
            yield self.finding(VALUE_HEAD, message, names=names, place=names[0], hint=hint)


# Qwen3.5 and 3.6 are published in one tensor, and quantized one by one; transformers reads both.
IN_BOTH_LAYOUTS: Final = frozenset({"qwen3_5_moe_text"})

RULES: Final = (MixedExpertLayouts(), MissingDraftLayer(), UnreadValueHead(), DerivedInFloat32(), FusedExperts())

# A stack of its own: Qwen, Nemotron-H, MiMo, MiniMax, LongCat, Inkling. Behind the last layer: DeepSeek, GLM
# (transformers 5.24 `_keys_to_ignore_on_load_unexpected`).
DRAFT_NAMES: Final = re.compile(r"(?:^|\.)(?:mtp|mtp_\w+|nextn|eh_proj|enorm|hnorm)(?:\.|$)")


def has_drafts(repository: Repository, layers: int | None) -> bool:
    """Whether a name is that of a layer that drafts tokens, or a stack goes on behind the last layer."""
    weights = repository.weights
    if any(DRAFT_NAMES.search(pattern) for pattern in weights.groups):
        return True
    return layers is not None and any(max(numbers) >= layers for numbers in weights.stacks.values())
