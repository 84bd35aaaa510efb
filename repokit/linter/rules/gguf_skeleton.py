"""GGF: the keys without which llama.cpp loads no model, and the tensors that follow from them.

llama.cpp src/llama-model.cpp, load_hparams and load_tensors: what is read with `get_key(..., required)`, and what
`create_tensor` makes for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.examples_gguf import MODEL, gguf_edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.gguf import CONVERT_AGAIN
from repokit.linter.rules.gguf_tensors import MOST_BLOCKS, known_models
from repokit.linter.rules.slips import meant_by, misspelt
from repokit.printable import count, printable, some
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.gguf import GgufModel
    from repokit.repo.repository import Repository

QUERY: Final = "blk.0.attn_q.weight"


class MissingGgufKey(Rule):
    """The metadata of a GGUF file lacks a key that llama.cpp asks for.

    Loading stops: "key not found in model".
    """

    code = "GGF130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("no width", {MODEL: gguf_edited({"llama.embedding_length": None})}, "gguf"),
        Example("no vocabulary", {MODEL: gguf_edited({"tokenizer.ggml.model": None})}, "gguf"),
        Example("a term of the norms", {MODEL: gguf_edited({"llama.attention.layer_norm_rms_epsilon": None})}, "gguf"),
    )
    good = (Example("every key", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            if next(model.tensors, None) is not None and (missing := missing_keys(model)):
                message = f"lacks {some(tuple(missing), 4)}"
                yield self.finding(model.head.path, message, names=missing, place=missing[0], hint=CONVERT_AGAIN)


class MissingGgufTensor(Rule):
    """A GGUF file lacks a tensor that its architecture has in every block.

    llama.cpp stops: "missing tensor".
    """

    code = "GGF131"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the queries of a block", {MODEL: gguf_edited(drop=(QUERY,))}, "gguf"),)
    good = (Example("every tensor", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in plain_models(repository):
            there = {tensor.name for tensor in model.tensors}
            wanted = ("token_embd", "output_norm")
            names = [f"{name}.weight" for name in wanted]
            # Blocks that are missing as a whole, or as a group, are other rules' to tell.
            counted = model.head.integer(f"{model.head.architecture}.block_count") or 0
            blocks = [block for block in sorted(model.blocks)[:MOST_BLOCKS] if block < counted]
            names += [f"blk.{block}.{part}.weight" for block in blocks for part in PARTS]
            if missing := [name for name in names if name not in there]:
                message = f"lacks {count(len(missing), 'tensor')} of its architecture"
                yield self.finding(model.head.path, message, names=missing, place=missing[0], hint=CONVERT_AGAIN)


class MisshapenGgufTensor(Rule):
    """A tensor of a GGUF file has another shape than its metadata give.

    llama.cpp stops: "tensor has wrong shape".
    """

    code = "GGF132"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a row too many", {MODEL: gguf_edited(add={QUERY: ((32, 33), 0)})}, "gguf"),
        Example("another width", {MODEL: gguf_edited({"llama.feed_forward_length": 48})}, "gguf"),
    )
    good = (Example("as the metadata say", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in plain_models(repository):
            wanted = shapes(model)
            wrong = [tensor for tensor in model.tensors if wanted.get(kind(tensor.name), tensor.dims) != tensor.dims]
            if wrong:
                first = wrong[0]
                message = (
                    f"holds {printable(first.name, 60)} of {first.dims}; its metadata give {wanted[kind(first.name)]}"
                )
                names = [tensor.name for tensor in wrong]
                yield self.finding(model.head.path, message, names=names, place=first.name, hint=CONVERT_AGAIN)


class MisspelledGgufArchitecture(Rule):
    """A GGUF file names an architecture that is nearly one of llama.cpp's.

    Loading stops: "unknown model architecture".
    """

    code = "GGF133"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a letter short", {MODEL: gguf_edited({"general.architecture": "llma"})}, "gguf"),)
    good = (Example("one of a later version", {MODEL: gguf_edited({"general.architecture": "frobnicate"})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = data("gguf_names")["tensors"]
        for model in repository.gguf.models:
            name = model.head.architecture
            if name is not None and name not in known and (meant := meant_by(name, known)) is not None:
                message = f"names the architecture {printable(name, 40)!r}, which llama.cpp does not have"
                yield self.finding(
                    model.head.path, message, place="general.architecture", hint=f"did you mean {meant}?"
                )


class MisspelledGgufKey(Rule):
    """A key of a GGUF file is nearly one that llama.cpp reads, and that one is not there.

    What it says is lost: the default is taken, or loading stops.
    """

    code = "GGF232"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the template",
            {MODEL: gguf_edited({"tokenizer.chat_template": None, "tokenizer.chat_templte": "x"})},
            "gguf",
        ),
    )
    good = (Example("a key of someone's own", {MODEL: gguf_edited({"example.trained_by": "me"})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            head, name = model.head, model.head.architecture
            known = {*OF_TOKENIZER, *(f"{name}.{key}" for key in OF_HYPERPARAMETERS)}
            for key, meant in misspelt(head.header.metadata, known):
                message = f"has the key {printable(key, 60)!r}; {meant} is what is read, and is not there"
                yield self.finding(head.path, message, place=key, hint=CONVERT_AGAIN)


class ImplausibleGgufEpsilon(Rule):
    """The term that keeps a norm from dividing by zero is none, or as large as what it is added to.

    Every model has between 1e-12 and 1e-3 there: another one has a slip in it, and each layer is scaled wrongly.
    """

    code = "GGF233"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a sign lost", {MODEL: gguf_edited({"llama.attention.layer_norm_rms_epsilon": 1.0})}, "gguf"),)
    good = (Example("as it is", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            for ending in ("layer_norm_rms_epsilon", "layer_norm_epsilon"):
                key = f"{model.head.architecture}.attention.{ending}"
                entry = model.head.header.metadata.get(key)
                value = None if entry is None else entry.value
                if entry is not None and not (isinstance(value, float) and 0 < value < 0.05):
                    yield self.finding(model.head.path, f"is {printable(value, 40)}", place=key, hint=CONVERT_AGAIN)


class MissingGgufEnd(Rule):
    """A GGUF file does not say which token ends a text.

    llama.cpp takes the id that the kind of vocabulary had in its first model, and generates on after the answer.
    """

    code = "GGF230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("it was not converted", {MODEL: gguf_edited({"tokenizer.ggml.eos_token_id": None})}, "gguf"),)
    good = (
        Example("it is there", base="gguf"),
        Example("no vocabulary", {MODEL: gguf_edited({"tokenizer.ggml.model": "none"})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            head = model.head
            ends = head.string("tokenizer.ggml.model") == "gpt2" and head.tokens is not None
            if ends and "tokenizer.ggml.eos_token_id" not in head and next(model.tensors, None) is not None:
                yield self.finding(head.path, "has no tokenizer.ggml.eos_token_id", hint=CONVERT_AGAIN)


class UntypedGgufTokens(Rule):
    """A GGUF file does not say which of its tokens are special.

    llama.cpp takes all for ordinary text: markers of a chat are cut into letters, and printed in answers.
    """

    code = "GGF231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the list was not converted", {MODEL: gguf_edited({"tokenizer.ggml.token_type": None})}, "gguf"),)
    good = (Example("a type for every token", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            head = model.head
            if head.tokens is not None and "tokenizer.ggml.token_type" not in head:
                yield self.finding(head.path, "has no tokenizer.ggml.token_type", hint=CONVERT_AGAIN)


RULES: Final[tuple[Rule, ...]] = (
    MissingGgufKey(),
    MissingGgufTensor(),
    MisshapenGgufTensor(),
    MisspelledGgufArchitecture(),
    MissingGgufEnd(),
    MisspelledGgufKey(),
    ImplausibleGgufEpsilon(),
    UntypedGgufTokens(),
)

# Of every architecture that llama.cpp loads as a language model, and of those with the blocks of Llama.
ALWAYS: Final = ("block_count", "context_length", "embedding_length")
OF_TOKENIZER: Final = (
    *("general.architecture", "tokenizer.chat_template", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"),
    *("tokenizer.ggml.merges", "tokenizer.ggml.model", "tokenizer.ggml.padding_token_id", "tokenizer.ggml.pre"),
    *("tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.tokens", "tokenizer.ggml.add_bos_token"),
    *("tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_eos_token"),
)
OF_HYPERPARAMETERS: Final = (
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.sliding_window", "block_count"),
    *("context_length", "embedding_length", "expert_count", "expert_used_count", "feed_forward_length"),
    *("rope.dimension_count", "rope.freq_base", "rope.scaling.factor", "rope.scaling.type", "vocab_size"),
)
LIKE_LLAMA: Final = frozenset({"llama", "qwen2", "qwen3"})
ALSO: Final = ("attention.head_count", "attention.layer_norm_rms_epsilon", "feed_forward_length")
PARTS: Final = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)


def missing_keys(model: GgufModel) -> list[str]:
    """What llama.cpp asks the metadata for, and does not find."""
    head, name = model.head, model.head.architecture
    is_plain = name in LIKE_LLAMA and not is_mixture(model)
    wanted = [f"{name}.{key}" for key in (*ALWAYS, *(ALSO if is_plain else ()))]
    wanted.append("tokenizer.ggml.model")
    if head.string("tokenizer.ggml.model") not in {None, "none", "no_vocab"}:
        wanted.append("tokenizer.ggml.tokens")
    return [key for key in wanted if key not in head]


def is_mixture(model: GgufModel) -> bool:
    """Whether it has experts, or a number of heads for each layer, so that its blocks are not those of Llama."""
    head = model.head
    arrays = (head.array(f"{head.architecture}.{key}") for key in ("attention.head_count", "feed_forward_length"))
    experts = head.integer(f"{head.architecture}.expert_count") or 0
    return experts > 0 or any(found is not None for found in arrays)


def plain_models(repository: Repository) -> Iterator[GgufModel]:
    """Models in one file with the blocks of Llama, none of which is fused or of experts."""
    for model in known_models(repository):
        is_plain = model.head.architecture in LIKE_LLAMA and not is_mixture(model)
        is_plain = is_plain and model.is_whole and len(model.parts) == 1
        names = [tensor.name for tensor in model.tensors] if is_plain else []
        is_other = any("_exps" in name or "attn_qkv" in name for name in names)
        if any(name.startswith("blk.") for name in names) and not is_other:
            yield model


def kind(name: str) -> str:
    """The name without its block."""
    return name.split(".", 2)[-1] if name.startswith("blk.") else name


def shapes(model: GgufModel) -> Mapping[str, tuple[int, ...]]:
    """Kind of tensor to its dimensions in ggml's order (columns, rows), as far as the metadata tell."""
    head = model.head

    def said(key: str) -> int | None:
        return head.integer(f"{head.architecture}.{key}")

    width, inner, heads = said("embedding_length"), said("feed_forward_length"), said("attention.head_count")
    if not width or not heads:
        return {}
    groups = said("attention.head_count_kv") or heads
    key, value = said("attention.key_length") or width // heads, said("attention.value_length") or width // heads
    found = {
        **dict.fromkeys(("output_norm.weight", "attn_norm.weight", "ffn_norm.weight"), (width,)),
        "attn_q.weight": (width, key * heads),
        "attn_k.weight": (width, key * groups),
        "attn_v.weight": (width, value * groups),
        "attn_output.weight": (value * heads, width),
    }
    rows = None if head.tokens is None else len(head.tokens)
    if rows is not None:
        found["output.weight"] = (width, rows)
    if inner is not None:
        found |= {"ffn_gate.weight": (width, inner), "ffn_up.weight": (width, inner), "ffn_down.weight": (inner, width)}
    return found
