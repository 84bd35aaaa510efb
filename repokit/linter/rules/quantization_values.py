"""QNT: a quantization_config by itself, against its side files, and against the dtype that is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.quantization import KEY
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.repo.quantization import AWQ_FILE, GPTQ_FILE, MODELOPT_FILE, SIDE_FILES, Declared, quantization

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.schema.quantization_limits import Refusal

WEIGHTS: Final = {"group_0": {"weights": {"actorder": "group"}}}


class RefusedQuantizationValue(Rule):
    """The quantization_config has a value with which no load succeeds.

    The class of its method checks its arguments, and raises before the first weight is read.
    """

    code = "QNT107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a width that GPTQ does not have", {CONFIG: {KEY: {"bits": 5}}}, "gptq"),
        Example("no method", {CONFIG: {KEY: {"quant_method": DELETE}}}, "fp8"),
        Example("a packing that AWQ does not have", {CONFIG: {KEY: {"version": "gemn"}}}, "awq"),
        Example("an integer where bitsandbytes asks for a float", {CONFIG: {KEY: {"llm_int8_threshold": 6}}}, "bnb8"),
        Example("both widths", {CONFIG: {KEY: {"load_in_8bit": True}}}, "bnb4"),
    )
    good = (
        Example("the flag says the method", {CONFIG: {KEY: {"quant_method": DELETE}}}, "bnb4"),
        Example("MLX names no method", base="mlx"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for declared in declarations(repository):
            config = declared.config
            if declared.method is None and config.pointer.endswith(KEY):
                hint = 'add "quant_method": the name of the method'
                why = "Loaders choose the class by the name of the method, and stop without one."
                yield self.finding(CONFIG, "names no quant_method", place=config.pointer, hint=hint, why=why)
            for refusal in refusals_of(config):
                if not is_order(refusal):
                    key = refusal.pointer.rpartition("/")[2] or KEY
                    message = f"{printable(key)} {refusal.message}"
                    why = f"{refusal.reader} checks it, and raises before the first weight is read."
                    yield self.finding(CONFIG, message, place=config.pointer + refusal.pointer, why=why)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import as_float

        return as_float(repository, finding)


class Bfloat16Awq(Rule):
    """AWQ weights with float16 scales are declared as bfloat16.

    The kernels of AWQ compute in float16: older versions of vLLM refuse the model, newer ones cast.
    """

    code = "QNT201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (Example("the dtype of the base", {CONFIG: {"dtype": "bfloat16"}}, "awq"),)
    good = (Example("float16", base="awq"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        facet, config = quantization(repository), repository.config
        if config is None or facet.declared is None or facet.declared.method != "awq" or config.dtype != "BF16":
            return
        if any(module.dtype("scales") == "F16" for module in facet.stored):
            message = "declares bfloat16; the scales of AWQ are stored in float16"
            yield self.finding(CONFIG, message, place=config.dtype_place, hint='"dtype": "float16"')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import float16

        return float16(repository, finding)


class DivergingSideFile(Rule):
    """A file of the quantizer says something else than the quantization_config in config.json.

    Some readers go by one, some by the other (GPTQModel, TensorRT-LLM and older servers by the file): one of them reads
    the weights wrongly.
    """

    code = "QNT202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("another run of GPTQ", {GPTQ_FILE: '{"bits": 4, "group_size": 128, "desc_act": false}'}, "gptq"),
        Example("another run of AWQ", {AWQ_FILE: '{"w_bit": 4, "q_group_size": 64, "version": "GEMM"}'}, "awq"),
        Example("another algorithm", {MODELOPT_FILE: '{"quantization": {"quant_algo": "FP8"}}'}, "modelopt"),
    )
    good = (
        Example("the same in other words", {AWQ_FILE: '{"w_bit": 4, "q_group_size": 8, "version": "GEMM"}'}, "awq"),
        Example("optimum's file for ONNX", {GPTQ_FILE: '{"per_channel": false, "reduce_range": false}'}, "gptq"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        declared = quantization(repository).declared
        if declared is None:
            return
        for path, keys in SIDE_FILES.items():
            side = repository.document(path)
            if side is not None and path == MODELOPT_FILE:
                side = side.mapping("quantization")
            if side is None:
                continue
            for theirs, ours in keys.items():
                if differ(declared.config.raw.get(ours), side.raw.get(theirs)):
                    said, here = (printable(repr(raw), 40) for raw in (side.raw[theirs], declared.config.raw[ours]))
                    message = f"says {theirs} {said}; {CONFIG} says {ours} {here}"
                    yield self.finding(path, message, place=side.at(theirs), hint="delete the file that is out of date")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.quantization import as_declared

        return as_declared(repository, finding)


class UnknownQuantizationMethod(Rule):
    """The quantization method is not one that this version knows.

    It may be newer, or of one library alone: transformers 5.24 warns and loads the weights as if they were plain.
    """

    code = "QNT301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a method of someone's own", {CONFIG: {KEY: {"quant_method": "frobnicate"}}}),)
    good = (Example("a method that others read", {CONFIG: {KEY: {"quant_method": "quark"}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.quantization import is_known

        for declared in declarations(repository):
            if declared.method is not None and declared.method != "mlx" and not is_known(declared.method):
                message = f"has quant_method {printable(declared.method, 60)!r}, not known to this version"
                yield self.finding(CONFIG, message, place=declared.config.at("quant_method"))


class RemovedActivationOrder(Rule):
    """The columns of packed weights are ordered by group, which compressed-tensors reads no more.

    compressed-tensors from 0.20 on refuses the config, and transformers with it; vLLM reads it.
    """

    code = "QNT302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("made by an older llm-compressor", {CONFIG: {KEY: {"config_groups": WEIGHTS}}}, "pack-quantized"),)
    good = (
        Example(
            "ordered by weight",
            {CONFIG: {KEY: {"config_groups": {"group_0": {"weights": {"actorder": "weight"}}}}}},
            "pack-quantized",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for declared in declarations(repository):
            if places := [refusal.pointer for refusal in refusals_of(declared.config) if is_order(refusal)]:
                message = f"orders columns by group: {some(places)}"
                yield self.finding(CONFIG, message, place=declared.config.pointer + places[0])


RULES: Final = (
    RefusedQuantizationValue(),
    Bfloat16Awq(),
    DivergingSideFile(),
    UnknownQuantizationMethod(),
    RemovedActivationOrder(),
)


def declarations(repository: Repository) -> Iterator[Declared]:
    """The declaration that loaders go by, where there is one."""
    declared = quantization(repository).declared
    if declared is not None:
        yield declared


def refusals_of(config: Document) -> Iterator[Refusal]:
    from repokit.schema.quantization_limits import refusals

    return refusals(config.raw)


def is_order(refusal: Refusal) -> bool:
    """Whether it is the one value that only newer versions refuse."""
    return refusal.pointer.endswith("/actorder") and "no longer" in refusal.message


def differ(ours: Any, theirs: Any) -> bool:  # noqa: ANN401 - values of JSON
    """Whether both are given and not equal, letter case aside."""
    if ours is None or theirs is None:
        return False
    return bool(str(ours).lower() != str(theirs).lower())
