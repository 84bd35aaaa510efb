"""QNT: what config.json declares about quantized weights, against what is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import FLOATS
from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.examples_quantized import FP8
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable, some
from repokit.repo.config import CONFIG
from repokit.repo.quantization import declaration, keeps_weights, quantization, schemes, skip_list
from repokit.repo.quantized_parts import missing_parts
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.formats.tensors import TensorInfo
    from repokit.repo.document import Document
    from repokit.repo.quantization import Quantization, SkipList
    from repokit.repo.repository import Repository

KEY: Final = "quantization_config"
QUERY: Final = "model.layers.0.self_attn.q_proj"
UP: Final = "model.layers.0.mlp.up_proj"
BIASES: Final = {
    f"model.layers.{layer}.self_attn.{name}_proj.bias": ("BF16", (8 if name in "kv" else 16,))
    for layer in range(2)
    for name in "qkvo"
}

# Methods whose stored form this module knows. Of others, no tensor is asked for.
KNOWN: Final = frozenset(
    {"gptq", "awq", "auto-round", "bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "mxfp4", "modelopt", "mlx"}
)
# What each form of storage is evidence of.
EVIDENCE: Final = {
    "packed rows": "gptq, awq or auto-round",
    "packed": "compressed-tensors",
    "bitsandbytes int8": "bitsandbytes",
    "bitsandbytes 4-bit": "bitsandbytes",
    "mxfp4": "mxfp4",
    "float8": "fp8, compressed-tensors or modelopt",
    "int8": "compressed-tensors",
    "float4": "modelopt",
    "mlx": "MLX",
}


class UndeclaredQuantization(Rule):
    """The weights are quantized, and no quantization_config at the top of config.json says so.

    transformers looks for plain weights, finds none of these names, and loads the modules at random values; vLLM stops
    with a KeyError.
    """

    code = "QNT101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the config.json of the base", {CONFIG: {KEY: DELETE}}, "gptq"),
        Example(
            "only the language model's part has it",
            {CONFIG: {KEY: DELETE, "llm_config": {"model_type": "llama", KEY: {"quant_method": "awq", "bits": 4}}}},
            "awq",
        ),
        Example("packed by compressed-tensors", {CONFIG: {KEY: DELETE}}, "pack-quantized"),
    )
    good = (
        Example(
            "in text_config, where transformers looks too",
            {CONFIG: {KEY: DELETE, "text_config": {"model_type": "llama", KEY: FP8}}},
            "fp8",
        ),
        Example(
            "ModelOpt's own file",
            {CONFIG: {KEY: DELETE}, "hf_quant_config.json": '{"quantization": {"quant_algo": "NVFP4"}}'},
            "modelopt",
        ),
        Example(
            "a cast to eight bits, with the marker of ComfyUI",
            {SINGLE: edited(add={f"{QUERY}.weight": ("F8_E4M3", (16, 16)), "scaled_fp8": ("F8_E4M3", (0,))})},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.config is None or (facet := quantization(repository)).declared is not None or facet.elsewhere:
            return
        if not facet.forms:
            return
        names = [name for module in facet.modules if module.stored is not None for name in module.names]
        message = f"has no {KEY}, and {count(len(names), 'module')} of the weights are quantized"
        nested = next(iter(facet.nested), None)
        if nested is not None:
            message = f"has its {KEY} in {printable(nested.pointer)}, where loaders do not look"
        hint = f"write one at the top, for {', '.join(EVIDENCE[form] for form in facet.forms)}"
        place = None if nested is None else nested.pointer
        yield self.finding(CONFIG, message, place=place, names=names, hint=hint)


class StaleQuantizationConfig(Rule):
    """config.json declares a quantization, and no tensor of the weights is quantized.

    It was left there when the weights were merged or dequantized, or the weights were saved before they were packed:
    loaders ask for the quantizer's library, or look for packed weights and stop.
    """

    code = "QNT102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "merged into 16 bits by a QLoRA run",
            {CONFIG: {KEY: {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}},
        ),
        Example(
            "in a sub-config",
            {CONFIG: {"vision_config": {KEY: {"quant_method": "fp8"}}}},
        ),
        Example(
            "saved without packing",
            {
                CONFIG: {
                    KEY: {
                        "config_groups": {
                            "group_0": {
                                "targets": ["Linear"],
                                "weights": {"num_bits": 4, "type": "int", "strategy": "channel"},
                            }
                        },
                        "format": "pack-quantized",
                        "quant_method": "compressed-tensors",
                    }
                }
            },
        ),
    )
    good = (
        Example("a method that this version does not know", {CONFIG: {KEY: {"quant_method": "quark"}}}),
        Example(
            "only the cache is quantized",
            {CONFIG: {KEY: {"quant_method": "compressed-tensors", "config_groups": {}, "format": "dense"}}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        stale = tuple(stale_declarations(facet))
        weights = repository.weights
        if not stale or not weights.whole or weights.of_adapter or facet.stored or weights.stored.packed:
            return
        for document in stale:
            method = printable(document.string("quant_method") or "bitsandbytes", 60)
            message = f"declares {method} weights, and none is quantized"
            yield self.finding(CONFIG, message, place=document.pointer, hint=f"remove {KEY}, or pack the weights")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        return dropped(repository, finding)


class IncompleteModule(Rule):
    """A quantized module lacks tensors that its method stores.

    Without its scales a packed weight cannot be read: loading stops, or goes on with what is in memory.
    """

    code = "QNT103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("scales were lost", {SINGLE: edited(drop=(f"{QUERY}.scales",))}, "gptq"),
        Example("the state of one weight was lost", {SINGLE: edited(drop=(f"{UP}.weight.absmax",))}, "bnb4"),
        Example("an eight-bit weight without its scale", {SINGLE: edited(drop=(f"{UP}.weight_scale_inv",))}, "fp8"),
        Example("the shape of one packed weight", {SINGLE: edited(drop=(f"{UP}.weight_shape",))}, "pack-quantized"),
        Example(
            "experts without scales",
            {SINGLE: edited(drop=("model.layers.1.mlp.experts.down_proj_scales",))},
            "mxfp4",
        ),
    )
    good = (
        Example("no order of columns, so no g_idx", {SINGLE: edited(drop=(f"{QUERY}.g_idx",))}, "gptq"),
        Example(
            "biases beside",
            {CONFIG: {"attention_bias": True}, SINGLE: edited(add=BIASES)},
            "float-quantized",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None or facet.declared.method not in KNOWN:
            return
        lost: dict[tuple[str, ...], list[str]] = {}
        for module in facet.modules:
            if parts := missing_parts(module, facet.declared):
                lost.setdefault(tuple(parts), []).extend(module.names)
        for missing, names in lost.items():
            spelled = " and ".join(f"`{part}`" for part in missing)
            message = f"lacks {spelled} of {count(len(names), 'quantized module')}"
            hint = "save the quantized model again with the tool that made it"
            yield self.finding(repository.weights.main or SINGLE, message, names=names, place=names[0], hint=hint)


class ContradictedSkipList(Rule):
    """The list of modules that are not quantized, and the weights, say different things.

    Loaders make plain modules for what is listed and packed ones for the rest: tensors of the other kind are refused,
    or dropped and the module left at random values.
    """

    code = "QNT104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("listed, and packed", {CONFIG: {KEY: {"ignore": ["lm_head", UP]}}}, "float-quantized"),
        Example(
            "packed, inside of what is listed", {CONFIG: {KEY: {"modules_to_not_convert": ["mlp.up_proj"]}}}, "fp8"
        ),
        Example(
            "not listed, and stored plain",
            {
                SINGLE: edited(
                    drop=(f"{UP}.qweight", f"{UP}.qzeros", f"{UP}.scales"), add={f"{UP}.weight": ("F16", (24, 16))}
                )
            },
            "awq",
        ),
    )
    good = (
        Example(
            "listed, and stored plain",
            {
                CONFIG: {KEY: {"modules_to_not_convert": [UP]}},
                SINGLE: edited(
                    drop=(f"{UP}.qweight", f"{UP}.qzeros", f"{UP}.scales"), add={f"{UP}.weight": ("F16", (24, 16))}
                ),
            },
            "awq",
        ),
        Example(
            "listed under the name that the class gives it",
            {
                CONFIG: {KEY: {"ignore": ["lm_head", f"model.language_{UP}"]}},
                SINGLE: edited(drop=(f"{UP}.weight_scale",), add={f"{UP}.weight": ("BF16", (24, 16))}),
            },
            "float-quantized",
        ),
        Example(
            "an expression, which is not run",
            {
                CONFIG: {KEY: {"ignore": ["lm_head", "re:.*0.mlp.up_proj"]}},
                SINGLE: edited(drop=(f"{UP}.weight_scale",), add={f"{UP}.weight": ("BF16", (24, 16))}),
            },
            "float-quantized",
        ),
        Example(
            "a layer that drafts tokens",
            {SINGLE: edited(add={"mtp.layers.0.mlp.up_proj.weight": ("BF16", (24, 16))})},
            "float-quantized",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None or (skipped := skip_list(facet.declared)) is None:
            return
        place = facet.declared.config.at(skipped.key)
        if packed := packed_though_listed(facet, skipped):
            listed = some(tuple(dict.fromkeys(packed.values())))
            message = f"lists {listed}, and {count(len(packed), 'such module is', 'such modules are')} quantized"
            hint = f"take them out of {skipped.key}"
            yield self.finding(CONFIG, message, place=place, names=tuple(packed), hint=hint)
        if plain := plain_though_unlisted(facet, skipped):
            message = f"does not list {count(len(plain), 'module')} stored in full precision"
            hint = f"add them to {skipped.key}, or quantize them"
            yield self.finding(CONFIG, message, place=place, names=plain, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import with_skip_list

        return with_skip_list(repository, finding)


class UnlistedDraftModules(Rule):
    """Some modules that draft tokens are listed as not quantized, others that are stored plain are not.

    Loaders that go by the list make packed modules for the rest, and drop their weights: drafts are then noise.
    """

    code = "QNT203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "one of two",
            {
                CONFIG: {KEY: {"ignore": ["lm_head", "mtp.fc"]}},
                SINGLE: edited(add=dict.fromkeys(("mtp.fc.weight", "mtp.up_proj.weight"), ("BF16", (16, 16)))),
            },
            "float-quantized",
        ),
    )
    good = (
        Example("none of them", {SINGLE: edited(add={"mtp.fc.weight": ("BF16", (16, 16))})}, "float-quantized"),
        Example(
            "every one",
            {
                CONFIG: {KEY: {"ignore": ["lm_head", "mtp.fc"]}},
                SINGLE: edited(add={"mtp.fc.weight": ("BF16", (16, 16))}),
            },
            "float-quantized",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None or not facet.forms or (skipped := skip_list(facet.declared)) is None:
            return
        covers = skipped.covers()
        tensors = repository.weights.tensors
        drafts = [name for name in tensors if name.endswith(("_proj.weight", ".fc.weight"))]
        drafts = [name.removesuffix(".weight") for name in drafts if is_plain(tensors[name])]
        drafts = [module for module in drafts if facet.is_draft(module)]
        unlisted = [module for module in drafts if covers(module) is None]
        if skipped.plain and unlisted and len(unlisted) < len(drafts):
            which = count(len(unlisted), "module that drafts", "modules that draft")
            message = f"does not list {which} tokens, and lists others"
            place = facet.declared.config.at(skipped.key)
            yield self.finding(CONFIG, message, place=place, names=unlisted, hint="list every one of them")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import with_drafts

        return with_drafts(repository, finding)


RULES: Final = (
    UndeclaredQuantization(),
    StaleQuantizationConfig(),
    IncompleteModule(),
    ContradictedSkipList(),
    UnlistedDraftModules(),
)


def stale_declarations(facet: Quantization) -> Iterator[Document]:
    """Objects that declare packed weights, of methods whose stored form is known."""
    nested = (declaration(document) for document in facet.nested)
    for declared in (*(() if facet.declared is None else (facet.declared,)), *nested):
        if declared.method in KNOWN and not keeps_weights(declared):
            yield declared.config


def is_plain(tensor: TensorInfo) -> bool:
    """Whether a tensor is a matrix of floats."""
    return len(tensor.shape) == 2 and tensor.dtype in FLOATS


# ---------------------------------------------------------------- lists of modules


def packed_though_listed(facet: Quantization, skipped: SkipList) -> dict[str, str]:
    """Quantized modules that are listed, with the entry that lists them."""
    covers = skipped.covers()
    found = ((name, covers(name)) for module in facet.stored for name in module.names) if skipped.names else ()
    return {name: entry for name, entry in found if entry is not None}


def plain_though_unlisted(facet: Quantization, skipped: SkipList) -> list[str]:
    """Modules stored in full precision whose siblings in other layers are quantized, and which nothing excepts."""
    if not skipped.plain or not judges_all(facet):
        return []
    covers = skipped.covers()
    patterns = {module.pattern for module in facet.stored if "*" in module.pattern}
    plain = (module for module in facet.modules if module.pattern in patterns and not module.quantized)
    names = (
        name
        for module in plain
        if "weight" in module.parts and is_plain(module.parts["weight"])
        for name in module.names
    )
    inner = {in_block(entry) for entry in skipped.names} - {None}  # classes may call what is around them otherwise
    return [name for name in names if not (covers(name) or facet.is_draft(name) or in_block(name) in inner)]


def in_block(module: str) -> str | None:
    """`layers.0.mlp.up_proj`: the end of a name from the first number on, with the word before it."""
    found = re.search(r"(?:^|\.)(\w+\.\d+\..+)", module)
    return None if found is None else found[1]


def judges_all(facet: Quantization) -> bool:
    """Whether a method quantizes every linear module that is not listed."""
    declared = facet.declared
    if declared is None or declared.method not in {"awq", "fp8", "fbgemm_fp8", "compressed-tensors"}:
        return False
    if declared.method == "compressed-tensors":
        return all(set(scheme.targets) == {"Linear"} for scheme in schemes(declared.config))
    return not declared.config.raw.keys() & {"modules_to_convert", "quantized_layers", "ignore"}
