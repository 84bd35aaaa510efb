"""WGT: the values of tensors, with --deep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited, safetensors
from repokit.linter.examples_values import INFINITY, NAN, one_after_another, planted, zero_row, zeroed
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.stopping import Stopping
from repokit.repo.weights import ADAPTER, SINGLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.repo.repository import Repository
    from repokit.repo.values import TensorValues

UP: Final = "model.layers.1.mlp.up_proj.weight"
HEAD: Final = "lm_head.weight"
MASK: Final = "model.layers.0.self_attn.causal_mask"
LIMITS: Final = {"model.vision.input_min": ("BF16", ()), "model.vision.input_max": ("BF16", ())}

# Where infinity is meant: masks that are added to scores; bounds that clip nothing (Gemma 4 `input_min`, observers of
# quantizers); biases of logits, which forbid tokens.
_MEANS_INFINITY: Final = re.compile(r"mask(?!_token|_embed)|(?:^|_)(?:min|max|bounds?|limits?|clip)(?:_|$)|logits_bias")
_LOGITS: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out|decoder|predictions)\.bias$")


class NonFiniteValue(Rule):
    """A weight has values that are no numbers.

    It loads without a word, and whatever passes through it becomes NaN: the model answers with one token for ever, or
    with an error of the sampler.
    """

    code = "WGT120"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example("one value of one layer", {SINGLE: planted(NAN, 5, UP)}),
        Example("a value that overflowed when it was cast", {SINGLE: planted(INFINITY, 0, UP)}),
        Example("two models of a pipeline", {
            f"{part}/diffusion_pytorch_model.safetensors": planted(NAN, 1, "w")(safetensors({"w": ("F32", (4, 4))}))
            for part in ("unet", "controlnet")
        }),
        Example("a factor of an adapter", {ADAPTER: planted(NAN, 0, "0.self_attn.q_proj.lora_A.weight")}, "lora"),
    )  # fmt: skip
    good = (
        Example("values of every size"),
        Example(
            "a mask",
            {SINGLE: one_after_another(edited(add={MASK: ("BF16", (4, 4))}), planted(INFINITY, 1, MASK))},
        ),
        Example(
            "bounds that clip nothing", {SINGLE: one_after_another(edited(add=LIMITS), planted(INFINITY, 0, *LIMITS))}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, tensors in repository.values.tensors():
            found = [values for values in tensors.values() if _is_broken(values)]
            if found:
                message = f"has values that are not finite in {count(len(found), 'tensor')}: {_first(found[0])}"
                names = [values.tensor.name for values in found]
                hint = "save the weights again from a step before they diverged, or cast them to a dtype of more range"
                yield self.finding(path, message, names=names, place=names[0], hint=hint)


def _is_broken(values: TensorValues) -> bool:
    name = values.tensor.name
    return bool(values.nan) or (bool(values.infinite) and not _may_be_infinite(name, name.rpartition(".")[2]))


def _may_be_infinite(name: str, last: str) -> bool:
    return bool(_LOGITS.search(name) if last in {"weight", "bias"} else _MEANS_INFINITY.search(last))


def _first(values: TensorValues) -> str:
    """`model.norm.weight has 3 NaN and 1 infinite of 4,096, the first at [7]`."""
    kinds = ((values.nan, "NaN"), (values.infinite, "infinite"))
    said = " and ".join(f"{number:,} {word}" for number, word in kinds if number)
    place: list[int] = []
    elements, rest = 1, values.first or 0
    for length in reversed(values.tensor.shape):
        elements *= length
        place.insert(0, rest % length)
        rest //= length
    return f"{printable(values.tensor.name, 120)} has {said} of {elements:,}, the first at {place}"


# ---------------------------------------------------------------- zeros

# What a linear module multiplies with, in the names of safetensors, of fused experts and of quantizers.
_MATRIX: Final = re.compile(
    r"(?:^|\.)(?:weight|qweight|weight_packed)$"
    r"|(?:^|[._])(?:gate_up_proj|gate_proj|up_proj|down_proj)(?:_blocks)?$"
)
_SCALE: Final = re.compile(r"(?P<module>.+)\.(?:weight_scale|weight_scale_inv|scales|SCB|weight\.absmax)$")
_LEAST: Final = 2  # rows and columns of a matrix: gates and heads of one output have one
_PACKED: Final = "U8"  # bitsandbytes stores 4-bit weights as one column

# What is zero by right: what begins so and is not always trained, or what a conversion leaves unused (RoBERTa's
# token types). What begins as noise is not among it.
_STARTS_AT_ZERO: Final = re.compile(
    r"lora_|adapter|controlnet|zero_|ada_?ln|modulation|token_type|segment_emb|pos(?:ition)?_emb|relative_|rel_pos"
    r"|(?:^|[._])(?:alpha|gamma|score|scores|classifier|pooler|v_head|value_head|reward_head|prompt)(?:[._]|$)",
    re.IGNORECASE,
)

# The last matrix of a branch whose output is added to its input. Where only these are zero, the blocks pass on what
# they get, as those do by which a model is made deeper (LLaMA Pro; `scale: 0.0` of mergekit).
_ENDS_BRANCH: Final = re.compile(
    r"(?:^|\.)(?:o_proj|out_proj|down_proj|c_proj|dense_4h_to_h|dense|fc2|wo|w2|proj|proj_out|out_lin|lin2|attn_output"
    r"|ffn_down|to_out\.0)(?:\.weight|\.qweight|\.weight_packed|_blocks)?$"
)


class ZeroedMatrices(Rule):
    """Matrices of the weights hold only zeros.

    Their values were lost on the way to the file: not gathered, not copied, or never written. The model loads, and
    what these layers have learned is gone.
    """

    code = "WGT121"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example(
            "the feed-forward part of a layer",
            {SINGLE: zeroed(*(f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")))},
        ),
        Example("every query", {SINGLE: zeroed("q_proj.weight")}),
        Example("scales of quantized weights", {SINGLE: zeroed("q_proj.scales")}, "gptq"),
        Example("packed weights", {SINGLE: zeroed("k_proj.qweight", "q_proj.qweight")}, "awq"),
    )
    good = (
        Example("zero points are often zero", {SINGLE: zeroed("qzeros")}, "gptq"),
        Example("the factors of an adapter that begin at zero", {ADAPTER: zeroed("lora_B.weight")}, "lora"),
        Example(
            "the table of a model that does not use it",
            {
                SINGLE: one_after_another(
                    edited(add={f"{part}.token_type_embeddings.weight": ("BF16", (2, 16)) for part in ("a", "b")}),
                    zeroed("token_type_embeddings.weight"),
                ),
                "config.json": {"auto_map": {"AutoModelForCausalLM": "modeling_x.XModel"}},
                "modeling_x.py": "",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = zero_matrices(repository)
        if is_lost(found):
            yield from (_zeroed(self, path, names) for path, names in found.items())
        repository.values.check_read()


class ZeroedMatrix(Rule):
    """A matrix of the weights holds only zeros, or the last matrices of blocks do.

    A model that was made deeper has blocks that pass on what they get, until it is trained; elsewhere the values were
    lost on the way to the file.
    """

    code = "WGT220"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example("one matrix", {SINGLE: zeroed(UP)}),
        Example("a block that does nothing", {SINGLE: zeroed("1.self_attn.o_proj.weight", "1.mlp.down_proj.weight")}),
    )
    good = (Example("every matrix has values"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = zero_matrices(repository)
        if not is_lost(found):
            yield from (_zeroed(self, path, names) for path, names in found.items())
        repository.values.check_read()


def _zeroed(rule: Rule, path: str, names: list[str]) -> Finding:
    message = f"has {count(len(names), 'matrix', 'matrices')} of nothing but zeros"
    hint = "look at them where the weights came from; if they are zero on purpose, ignore this rule"
    return rule.finding(path, message, names=names, place=names[0], hint=hint)


def is_lost(found: Mapping[str, list[str]]) -> bool:
    """Whether several matrices are zero, and not only such as end a branch."""
    names = [name for names in found.values() for name in names]
    return len(names) > 1 and not all(map(_ENDS_BRANCH.search, names))


def zero_matrices(repository: Repository) -> Mapping[str, list[str]]:
    """The modules of every file that could be read whose matrix is zero, or all of its scales; not of adapters."""
    return repository.remember(("zero matrices", ""), lambda: dict(_zero_matrices(repository)))


def _zero_matrices(repository: Repository) -> Iterator[tuple[str, list[str]]]:
    for path, tensors in repository.values.readable.items():
        if not path.rpartition("/")[2].startswith("adapter_model"):
            zero = dict.fromkeys(name for values in tensors.values() if (name := _zero_weight(values)))
            if zero:
                yield path, list(zero)


def _zero_weight(values: TensorValues) -> str | None:
    """The name of the weight that is zero by this tensor."""
    name, dtype, shape = values.tensor.name, values.tensor.dtype, values.tensor.shape
    if not values.zero or not values.tensor.size or _STARTS_AT_ZERO.search(name):
        return None
    if (scale := _SCALE.fullmatch(name)) is not None:
        return f"{scale['module']}.weight"
    matrix = len(shape) >= _LEAST and (min(shape[:2]) >= _LEAST or dtype == _PACKED)
    return name if matrix and _MATRIX.search(name) else None


class ZeroedEndingToken(Rule):
    """The row of the head that belongs to the token that ends an answer is zero.

    Its logit is zero whatever the text: the model has no say in where it ends, and runs on or stops by chance.
    """

    code = "WGT223"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TENSORS
    bad = (
        Example("a row that was never filled", {SINGLE: one_after_another(zero_row(4, HEAD), zero_row(2, HEAD))}),
        Example(
            "of tied embeddings",
            {SINGLE: one_after_another(zero_row(4, "embed_tokens.weight"), zero_row(2, "embed_tokens.weight"))},
            "tied",
        ),
    )
    good = (
        Example("the row of the padding", {SINGLE: zero_row(0, "embed_tokens.weight", HEAD)}),
        Example("a token beside those that end an answer", {SINGLE: zero_row(5, "embed_tokens.weight", HEAD)}),
        Example("one of two that end an answer", {SINGLE: zero_row(2, HEAD)}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        values = _output_rows(repository)
        if values is None or values.zero:
            return
        stopping = Stopping(repository)
        padding = {number for declared in stopping.declared("pad_token_id") for number in declared.ids}
        ids = (stopping.ids or frozenset()) if stopping.generates else frozenset()
        rows = sorted(number for number in ids if values.has_zero_row(number))
        if rows and len(rows) == len(ids) and not padding & ids:
            tensor = values.tensor
            message = f"has nothing but zeros in {count(len(rows), 'row')} of tokens that end an answer: {rows}"
            yield self.finding(
                tensor.path, message, place=tensor.name, hint="name the ids that the model was trained on"
            )


def _output_rows(repository: Repository) -> TensorValues | None:
    """The matrix that gives the logits, one row a token; None where the names do not tell, or a bias is added."""
    weights, config = repository.weights, repository.config
    if not weights.files or config is None or weights.of_adapter:
        return None
    tied = config.tie_word_embeddings and not weights.heads
    head = weights.embedding if tied else weights.heads[0] if len(weights.heads) == 1 else None
    if head is None or f"{head.name.removesuffix('.weight')}.bias" in weights.tensors:
        return None
    place = repository.values.places.get(head.name)
    return None if place is None else repository.values.of(place.path).get(head.name)


RULES: Final = (NonFiniteValue(), ZeroedMatrices(), ZeroedMatrix(), ZeroedEndingToken())
