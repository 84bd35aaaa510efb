"""GGF: the tensors in GGUF files, and the encoders that lie beside a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.ggml_types import reader_of
from repokit.linter.examples import Example
from repokit.linter.examples_gguf import MODEL, TOKENS, gguf, gguf_bytes, gguf_edited, in_parts, metadata
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.gguf import CONVERT_AGAIN
from repokit.printable import count, printable
from repokit.repo.card import README
from repokit.repo.gguf import GgufModel
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

PROJECTOR: Final = gguf_bytes(
    {"general.architecture": "clip", "general.type": "mmproj", "clip.projector_type": "mlp"},
    {"v.patch_embd.weight": ((32, 4), 0)},
)


class MiscountedBlocks(Rule):
    """A GGUF file does not hold the transformer blocks that its metadata counts.

    llama.cpp stops: "missing tensor", or "wrong number of tensors".
    """

    code = "GGF112"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a block more than there are", {MODEL: gguf_edited({"llama.block_count": 2})}, "gguf"),
        Example(
            "a block that is not counted",
            {MODEL: gguf_edited(add={"blk.1.attn_norm.weight": ((32,), 0), "blk.2.attn_norm.weight": ((32,), 0)})},
            "gguf",
        ),
    )
    good = (
        Example("the blocks of all parts together", in_parts(3), "gguf"),
        Example(
            "without the heads that predict further tokens",
            {MODEL: gguf_edited({"llama.block_count": 2, "llama.nextn_predict_layers": 1})},
            "gguf",
        ),
        Example("a vocabulary without weights", {MODEL: gguf_bytes(metadata(), {})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            said, blocks = model.head.integer(f"{model.head.architecture}.block_count"), model.blocks
            further = model.head.integer(f"{model.head.architecture}.nextn_predict_layers") or 0
            if said is None or not blocks or not model.is_whole or model.head.architecture in WITHOUT_BLOCKS:
                continue
            lacking = [number for number in range(min(said - further, MOST_BLOCKS)) if number not in blocks]
            over = sorted(number for number in blocks if number >= said + further)
            if lacking or over:
                where = "holds nothing of" if lacking else "also holds"
                names = [f"blk.{number}" for number in lacking or over]
                message = f"counts {count(said, 'block')} and {where} {count(len(names), 'block')}"
                yield self.finding(model.head.path, message, names=names, place="block_count", hint=CONVERT_AGAIN)


MOST_BLOCKS: Final = 10_000  # no model has a tenth of them; a header may claim 2**32
WITHOUT_BLOCKS: Final = frozenset({"deci"})  # its blocks may have neither attention nor feed-forward


class MissizedEmbedding(Rule):
    """The embedding of a GGUF file has another number of rows than its vocabulary has tokens.

    llama.cpp makes the tensor by the vocabulary and stops: "tensor 'token_embd.weight' has wrong shape".
    """

    code = "GGF111"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "tokens were added and the weights not resized",
            {MODEL: gguf_edited(add={"token_embd.weight": ((32, len(TOKENS) - 2), 0)})},
            "gguf",
        ),
    )
    good = (
        Example("one row for each token", base="gguf"),
        Example(
            "weights without a vocabulary",
            {MODEL: gguf_edited({"tokenizer.ggml.model": "none", "tokenizer.ggml.tokens": None})},
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            tokens, embedding = model.head.tokens, model.tensor("token_embd.weight")
            rows = embedding.dims[1] if embedding is not None and len(embedding.dims) > 1 else None
            if tokens is not None and rows is not None and rows != len(tokens):
                message = f"has {count(rows, 'row')} in its embedding and {count(len(tokens), 'token')}"
                yield self.finding(model.head.path, message, place="token_embd.weight", hint=CONVERT_AGAIN)


class UnneededTensor(Rule):
    """A GGUF file holds buffers of the training code that no architecture of llama.cpp has.

    It counts the tensors that it uses and stops at the difference: "wrong number of tensors".
    """

    code = "GGF202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "rotary frequencies of every block",
            {MODEL: gguf_edited(add={"blk.0.attn_rot_embd.weight": ((16,), 0)})},
            "gguf",
        ),
    )
    good = (Example("factors of Llama 3.1", {MODEL: gguf_edited(add={"rope_freqs.weight": ((16,), 0)})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in repository.gguf.models:
            if names := [tensor.name for tensor in model.tensors if UNNEEDED.search(tensor.name)]:
                message = f"holds {count(len(names), 'tensor')} that no architecture has"
                yield self.finding(model.head.path, message, names=names, place=names[0], hint=CONVERT_AGAIN)


UNNEEDED: Final = re.compile(r"(?:^|\.)(?:attn_rot_embd|rotary_emb|inv_freq|masked_bias|position_ids)(?:\.|$)")


class UnknownGgufTensor(Rule):
    """A GGUF file holds tensors with names that its architecture does not have.

    Where llama.cpp does not use them either, it stops at "wrong number of tensors"; a newer one may.
    """

    code = "GGF302"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a name of the original model",
            {MODEL: gguf_edited(add={"model.layers.0.self_attn.k_scale": ((1,), 0)})},
            "gguf",
        ),
    )
    good = (
        Example(
            "an architecture of someone's own",
            {MODEL: gguf_bytes({"general.architecture": "mine"}, {"my.tensor": ((4,), 0)})},
            "gguf",
        ),
        Example("experts one by one", {MODEL: gguf_edited(add={"blk.0.ffn_up.0.weight": ((32, 32), 0)})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            known = frozenset(data("gguf_names")["tensors"][model.head.architecture].split())
            names = [tensor.name for tensor in model.tensors if not is_known(tensor.name, known)]
            if names:
                message = f"holds {count(len(names), 'tensor')} that {model.head.architecture} does not have"
                yield self.finding(model.head.path, message, names=names, place=names[0])


SUFFIX: Final = re.compile(r"\.(?:weight|bias|scale|input_scale)$")
# Before experts were stacked, llama.cpp had one tensor for each.
EXPERT: Final = re.compile(r"(ffn_(?:up|gate|down))\.\d+$")
# Ollama keeps the encoders of a model in the same file.
ENCODER: Final = re.compile(r"(?:v|a|mm|s|rope_\w+)\.")


def is_known(name: str, known: frozenset[str]) -> bool:
    """Whether a tensor has one of the names of its architecture, or is of a kind that other rules speak of."""
    plain = EXPERT.sub(r"\1", SUFFIX.sub("", re.sub(r"\.\d+\.", ".*.", name, count=1)))
    return plain in known or ENCODER.match(name) is not None or UNNEEDED.search(name) is not None


class ForeignTensorType(Rule):
    """A GGUF file holds tensors of a type that llama.cpp does not have.

    Only the program that made them loads the file. Their sizes are not known here, so that the end of the file was not
    held against them.
    """

    code = "GGF303"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a quantisation of ik_llama.cpp", {MODEL: lambda content: retyped(content, 139)}, "gguf"),)
    good = (Example("types of ggml", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in repository.gguf.files:
            if foreign := [tensor for tensor in file.header.tensors if tensor.size is None]:
                names = [tensor.name for tensor in foreign]
                reader = reader_of(foreign[0].kind) or "another program"
                message = f"holds {count(len(names), 'tensor')} of type {foreign[0].kind}, which {reader} has"
                yield self.finding(file.path, message, names=names, place=names[0])


def retyped(content: bytes, kind: int) -> bytes:
    """A file whose last tensor has another type; its bytes stay."""
    old = (0).to_bytes(4, "little")
    begin = content.rindex(b"blk.0.ffn_down.weight", 0, 4096) + len(b"blk.0.ffn_down.weight") + 4 + 16
    assert content[begin : begin + 4] == old  # noqa: S101 - the example is ours
    return content[:begin] + kind.to_bytes(4, "little") + content[begin + 4 :]


class MissingProjector(Rule):
    """A GGUF repository of a model that sees has no image encoder.

    llama.cpp keeps it in a second file, `mmproj-F16.gguf`; without it the model answers as if there were no picture.
    """

    code = "GGF203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "only the language model was converted",
            {README: with_lines("pipeline_tag: image-text-to-text\n", drop="pipeline_tag")},
            "gguf",
        ),
    )
    good = (
        Example(
            "the encoder beside it",
            {
                README: with_lines("pipeline_tag: image-text-to-text\n", drop="pipeline_tag"),
                "mmproj-F32.gguf": PROJECTOR,
            },
            "gguf",
        ),
        Example(
            "the encoder in the same file",
            {
                README: with_lines("pipeline_tag: image-text-to-text\n", drop="pipeline_tag"),
                MODEL: gguf_edited(add={"v.patch_embd.weight": ((32, 4), 0)}),
            },
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, files = repository.card, repository.gguf
        if card is None or card.pipeline_tag not in SEEING or not files.is_all or files.projectors:
            return
        models = list(files.models)
        has_encoder = any(file.is_projector for file in files.files) or any(
            tensor.name.startswith("v.") for model in models for tensor in model.tensors
        )
        if models and not has_encoder:
            message = f"says {card.pipeline_tag}, and the repository has no mmproj file"
            yield self.finding(README, message, place=card.place("pipeline_tag"), hint="convert it with --mmproj")


SEEING: Final = frozenset({"image-text-to-text", "visual-question-answering"})


class UnusableProjector(Rule):
    """A file with the name of an image encoder is not one that llama.cpp loads.

    It chooses the code by `general.architecture` (clip) and `clip.projector_type`, and stops without them.
    """

    code = "GGF204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the language model under that name", {"mmproj-F32.gguf": gguf()[MODEL]}, "gguf"),
        Example(
            "no type", {"mmproj.gguf": gguf_bytes({"general.architecture": "clip"}, {"mm.0.weight": ((4,), 0)})}, "gguf"
        ),
    )
    good = (
        Example("an encoder alone", {MODEL: None, "mmproj-F32.gguf": PROJECTOR}, "gguf"),
        Example(
            "an encoder of the first LLaVA",
            {"mmproj.gguf": gguf_bytes({"general.architecture": "clip", "clip.has_llava_projector": True}, {})},
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.gguf.projectors:
            file = repository.gguf.file(path)
            if file.architecture not in {"clip", None}:
                message = f"is of the architecture {printable(file.architecture, 40)}, not clip"
                yield self.finding(path, message, place="general.architecture")
            elif file.architecture and not any(key in file for key in PROJECTOR_KEYS):
                yield self.finding(path, "has no clip.projector_type", hint=CONVERT_AGAIN)


# llama.cpp tools/mtmd/clip-impl.h; LLaVA's first encoders had the second alone.
PROJECTOR_KEYS: Final = (
    "clip.projector_type",
    "clip.has_llava_projector",
    "clip.vision.projector_type",
    "clip.audio.projector_type",
)


def known_models(repository: Repository) -> Iterator[GgufModel]:
    """The models whose architecture is in the table."""
    known = data("gguf_names")["tensors"]
    return (model for model in repository.gguf.models if model.head.architecture in known)


RULES: Final = (
    MiscountedBlocks(),
    MissizedEmbedding(),
    UnneededTensor(),
    UnknownGgufTensor(),
    ForeignTensorType(),
    MissingProjector(),
    UnusableProjector(),
)
