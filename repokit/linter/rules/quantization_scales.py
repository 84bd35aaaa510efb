"""QNT: scales and zero points, against what config.json says about groups and bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited
from repokit.linter.examples_quantized import everywhere
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.quantization import KEY, QUERY
from repokit.printable import count
from repokit.repo.config import CONFIG
from repokit.repo.quantization import MODELOPT_FILE, quantization, schemes
from repokit.repo.quantized_shapes import misfit, wrong_groups, wrong_scales
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.quantization import Declared, Module
    from repokit.repo.repository import Repository

FIRST_GROUP: Final = "group_0"


class ScaleMismatch(Rule):
    """Scales or zero points have another name, number or shape than config.json says.

    Loaders make their parameters by the config: a scale of another name is not found, one of another shape is refused.
    """

    code = "QNT105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "zero points of a symmetric scheme",
            {SINGLE: edited(add={f"{QUERY}.weight_zero_point": ("I32", (2, 2))})},
            "pack-quantized",
        ),
        Example(
            "an asymmetric scheme without zero points",
            {CONFIG: {KEY: {"config_groups": {FIRST_GROUP: {"weights": {"symmetric": False}}}}}},
            "pack-quantized",
        ),
        Example(
            "a scale per channel, declared per tensor",
            {CONFIG: {KEY: {"config_groups": {FIRST_GROUP: {"weights": {"strategy": "tensor"}}}}}},
            "float-quantized",
        ),
        Example("blocks of another size", {CONFIG: {KEY: {"weight_block_size": [16, 16]}}}, "fp8"),
        Example(
            "the other spelling",
            {SINGLE: edited(rename=lambda name: name.replace("weight_scale_inv", "weight_scale"))},
            "fp8",
        ),
        Example("static activations without scales", {CONFIG: {KEY: {"activation_scheme": "static"}}}, "fp8"),
    )
    good = (
        Example(
            "a scale per tensor",
            {
                CONFIG: {KEY: {"config_groups": {FIRST_GROUP: {"weights": {"strategy": "tensor"}}}}},
                SINGLE: edited(add=everywhere(lambda _rows, _columns: {"weight_scale": ("F32", (1,))})),
            },
            "float-quantized",
        ),
        Example(
            "DeepSeek's short name",
            {SINGLE: edited(rename=lambda name: name.replace("weight_scale_inv", "scale"))},
            "fp8",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None:
            return
        found = [
            (message, module.names) for module in facet.stored if (message := wrong_scales(module, facet.declared))
        ]
        for kind in KINDS_OF_SCALES:
            if wrong := [(message, names) for message, names in found if message.startswith(kind)]:
                yield of_modules(self, repository, wrong)
        parts = {part for module in facet.stored for part in module.parts}
        if facet.forms and static_inputs(facet.declared) and not parts & INPUT_SCALES:
            message = "declares static activations, and the weights hold no scale of any input"
            names = [name for module in facet.stored for name in module.names]
            yield self.finding(CONFIG, message, names=names, place=facet.declared.config.pointer)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import with_scale_names

        return with_scale_names(repository, finding)


class GroupSizeMismatch(Rule):
    """Packed weights and their scales have other shapes than `bits` and `group_size` give.

    Loaders work out the shapes from the two numbers: loading stops with a size mismatch, or kernels read scales of
    other weights.
    """

    code = "QNT106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("the config of another run", {CONFIG: {KEY: {"group_size": 4}}}, "gptq"),
        Example("eight bits declared, four stored", {CONFIG: {KEY: {"bits": 8}}}, "gptq"),
        Example("groups that do not fill the inputs", {CONFIG: {KEY: {"group_size": 12}}}, "awq"),
        Example(
            "groups larger than the inputs",
            {CONFIG: {KEY: {"config_groups": {FIRST_GROUP: {"weights": {"group_size": 128}}}}}},
            "pack-quantized",
        ),
        Example(
            "another group size of MLX", {CONFIG: {"quantization": {"group_size": 16}, KEY: {"group_size": 16}}}, "mlx"
        ),
        Example(
            "blocks and scales of different experts",
            {SINGLE: edited(add={"model.layers.0.mlp.experts.down_proj_scales": ("U8", (2, 16, 1))})},
            "mxfp4",
        ),
    )
    good = (
        Example(
            "a scale per column",
            {
                CONFIG: {KEY: {"group_size": -1}},
                SINGLE: edited(
                    add=everywhere(lambda rows, _: {"scales": ("F16", (1, rows)), "qzeros": ("I32", (1, rows // 8))})
                ),
            },
            "gptq",
        ),
        Example(
            "settings that differ by module, which GPTQModel reads",
            {CONFIG: {KEY: {"dynamic": {"+:.*": {"group_size": 8}}, "group_size": 4}}},
            "gptq",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None:
            return
        wrong = [(message, names) for module in facet.stored for message, names in unfit(module, facet.declared)]
        if wrong:
            hint = "write the bits and group size that the weights were packed with"
            yield of_modules(self, repository, wrong, hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import with_groups

        return with_groups(repository, finding)


class UnannouncedCacheScales(Rule):
    """The weights hold scales of the key and value cache, and config.json does not say that the cache is quantized.

    Servers go by the config: they leave the scales out, or stop at names that they do not expect.
    """

    code = "QNT108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "calibrated, and not declared",
            {SINGLE: edited(add={"model.layers.0.self_attn.k_scale": ("F32", (1,))})},
            "float-quantized",
        ),
        Example(
            "calibrated, in an FP8 model",
            {SINGLE: edited(add={"model.layers.0.self_attn.v_scale": ("F32", ())})},
            "fp8",
        ),
    )
    good = (
        Example(
            "declared",
            {
                CONFIG: {KEY: {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}},
                SINGLE: edited(
                    add={
                        f"model.layers.{layer}.self_attn.{side}_scale": ("F32", (1,))
                        for layer in range(2)
                        for side in "kv"
                    }
                ),
            },
            "float-quantized",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet = quantization(repository)
        if facet.declared is None or facet.declared.method not in CACHES or announces_cache(repository, facet.declared):
            return
        groups = repository.weights.groups
        scales = [
            name for pattern, names in groups.items() if pattern.endswith((".k_scale", ".v_scale")) for name in names
        ]
        if scales:
            message = f"says nothing of the cache, and the weights hold {count(len(scales), 'scale')} of it"
            hint = "write kv_cache_scheme, or leave the scales out"
            yield self.finding(CONFIG, message, place=facet.declared.config.pointer, names=scales, hint=hint)


RULES: Final = (ScaleMismatch(), GroupSizeMismatch(), UnannouncedCacheScales())

# How the messages about scales begin: each kind is one finding.
KINDS_OF_SCALES: Final = ("has `weight_zero_point`", "lacks `weight_zero_point`", "has `weight_scale", "has scales")

INPUT_SCALES: Final = frozenset({"input_scale", "activation_scale", "input_global_scale", "act_scale"})
# Methods whose config has a word for the cache.
CACHES: Final = frozenset({"compressed-tensors", "modelopt", "fp8"})


def static_inputs(declared: Declared) -> bool:
    """Whether every input's scale was calibrated and must lie beside the weights."""
    if declared.method == "fp8":
        return declared.config.string("activation_scheme") == "static"
    if declared.method != "compressed-tensors":
        return False
    inputs = [scheme.inputs for scheme in schemes(declared.config)]
    return bool(inputs) and all(each is not None and each.raw.get("dynamic") is False for each in inputs)


def announces_cache(repository: Repository, declared: Declared) -> bool:
    """Whether any file says that the cache is quantized; a group for attention modules may."""
    config, side = declared.config, repository.document(MODELOPT_FILE)
    said = side.mapping("quantization") if side is not None else None
    if config.raw.get("kv_cache_scheme") or config.raw.get("kv_cache_quant_algo"):
        return True
    if said is not None and said.raw.get("kv_cache_quant_algo"):
        return True
    return any(target != "Linear" for scheme in schemes(config) for target in scheme.targets)


Wrong = Sequence[tuple[str, Sequence[str]]]  # what is wrong with modules that are stored alike, and those modules


def of_modules(rule: Rule, repository: Repository, wrong: Wrong, hint: str | None = None) -> Finding:
    """One finding for all modules; the message speaks of the first."""
    names = [name for _, modules in wrong for name in modules]
    message = wrong[0][0] + (f" ({count(len(names), 'module')} in all)" if len(names) > 1 else "")
    return rule.finding(repository.weights.main or SINGLE, message, names=names, place=names[0], hint=hint)


def unfit(module: Module, declared: Declared) -> Iterator[tuple[str, Sequence[str]]]:
    """What does not fit, within the module or against the config; MLX may have settings of its own for some."""
    if message := misfit(module):
        yield message, module.names
        return
    own = [name for name in module.names if declared.method == "mlx" and name in declared.config]
    rest = [name for name in module.names if name not in own] if own else module.names
    for names in (*([name] for name in own), rest):
        if names and (message := wrong_groups(module, names[0], declared)):
            yield message, names
