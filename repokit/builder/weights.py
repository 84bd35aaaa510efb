"""The weights of a plan: which tensors, under which names, in which dtype, in which file, from which bytes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted  # as dumps(ensure_ascii=False) does it
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.builder import fitting, naming, sharding, vocabulary
from repokit.builder.plan import matching
from repokit.builder.transforms.cast import CASTABLE
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import PlanError
from repokit.formats.safetensors import header_bytes, in_file_order
from repokit.formats.strict_json import dumps
from repokit.formats.tensors import HEADER_NAMES, TORCH_NAMES, TensorInfo, byte_size
from repokit.operations import Piece, WriteShard, WriteText
from repokit.printable import printable
from repokit.repo.tensor_names import is_embedding, is_head
from repokit.repo.weights import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from repokit.architectures.live import Live
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import Stored, TensorAt
    from repokit.builder.plan import Sources
    from repokit.builder.vocabulary import Resizing
    from repokit.operations import Content
    from repokit.schema.recipe import Weights

# What transformers ties the embeddings of encoder-decoder models to (`_tied_weights_keys` of T5, BART, mBART, Pegasus).
_SHARED: Final = re.compile(r"(?:^|\.)shared\.weight$")
_OF_ONE_SIDE: Final = re.compile(r"(?:^|\.)(?:encoder|decoder)\.embed_tokens\.weight$")
METADATA: Final = {"format": "pt"}  # huggingface_hub and accelerate refuse another value, older transformers none


class Output(NamedTuple):
    """A tensor of the output: where its bytes lie now, the dtype and, where it is another one, the shape it gets."""

    stored: TensorAt
    dtype: str
    resized: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape if self.resized is None else self.resized

    @property
    def size(self) -> int:
        return byte_size(self.dtype, self.shape) or 0


@dataclass
class PlannedWeights:
    """The tensors of the output by their final names.

    Attributes:
        tensors: In the order of the source.
        renamed: How many have another name than in the source.
        kept: How many weights.keep exempted from the cast.
        dropped: Names in the source that weights.drop left out.
        tied: Final names of tensors that are stored once, under the name of what they equal.
        repairs: What was changed in the names so that they are the architecture's, in words.
        declared: torch's name of the dtype that config.json must state: the one that was asked for; of a running
            program the one that most bytes have, as save_pretrained does it. None leaves what it states.
        packed: Whether they are quantized, so that elements are not parameters.
        logical: Parameters, where they are not the elements; of packed weights None where nobody can count them.
        metadata: `__metadata__` of each shard; () where all have that of a plain one.
        untied: Final names of heads that are written as copies of the embedding.
        unties: Whether config.json is to say that the head is one of its own.
        vocabulary: Token ids before and after, where the recipe changes their number.
        resized: Final names of the tensors that get rows, or lose them.
    """

    tensors: dict[str, Output]
    renamed: int = 0
    kept: int = 0
    dropped: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    declared: str | None = None
    shards: list[list[str]] = field(default_factory=list)
    packed: bool = False
    logical: int | None = None
    metadata: tuple[Mapping[str, str], ...] = ()
    untied: tuple[str, ...] = ()
    unties: bool = False
    vocabulary: tuple[int, int] | None = None
    resized: tuple[str, ...] = ()

    @property
    def views(self) -> int:
        """How many do not lie side by side in the source: views, which are written out."""
        return sum(tensor.stored.strides is not None for tensor in self.tensors.values())

    @property
    def parameters(self) -> int:
        return sum(self.dtypes.values()) if self.logical is None else self.logical

    @property
    def dtypes(self) -> Mapping[str, int]:
        """Elements by dtype, as a header spells it."""
        found: Counter[str] = Counter()
        for tensor in self.tensors.values():
            found[tensor.dtype] += prod(tensor.shape)
        return dict(sorted(found.items()))

    @property
    def size(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def wanted_dtype(self) -> str | None:
        """The dtype that config.json must state, as torch calls it; None where what it states stays."""
        return self.declared if TORCH_NAMES.get(self.declared or "") in self.dtypes else None

    @property
    def cast(self) -> int:
        return sum(tensor.dtype != tensor.stored.dtype for tensor in self.tensors.values())

    @property
    def casts(self) -> str:
        """`float32 to bfloat16`; nothing where nothing is cast."""
        cast = [tensor for tensor in self.tensors.values() if tensor.dtype != tensor.stored.dtype]
        before, after = (
            " and ".join(HEADER_NAMES.get(dtype, dtype) for dtype in sorted(dtypes))
            for dtypes in ({tensor.stored.dtype for tensor in cast}, {tensor.dtype for tensor in cast})
        )
        return f"{before} to {after}" if cast else ""


def plan_weights(
    recipe: Weights,
    checkpoint: Checkpoint,
    live: Live | None = None,
    module_of: Callable[[str], str] | None = None,
    resizing: Resizing | None = None,
) -> PlannedWeights:
    """Names, drops, casts, ties and rows, in that order.

    Args:
        recipe: What is wanted.
        checkpoint: What there is.
        live: Says which names an architecture has that the data does not cover.
        module_of: Of quantized weights, the module of a tensor: what must lie in one file. Their names are not held
            against the architecture's, and nothing is tied but what is plain.
        resizing: To another vocabulary.

    Raises:
        PlanError: Renames that lose a tensor; a tie that is none.
        RecipeError: A pattern that matches nothing.
        InputError: The source's index and shards do not fit together.
    """
    stored = checkpoint.tensors
    dropped = matching(stored, recipe.drop, "weights.drop")
    left = [name for name in stored if name not in dropped]
    names = _names(recipe, left, in_module=bool(checkpoint.weights.container))
    naming.check_one_to_one(names)
    repairs: tuple[str, ...] = ()
    fits = recipe.rename == "auto" and module_of is None
    if fits and (wanted := fitting.wanted_tensors(checkpoint.config, live)) is not None:
        names, repairs = fitting.fitted(names, {name: stored[name].shape for name in names}, wanted)
        naming.check_one_to_one(names)
    kept = matching(names.values(), recipe.keep, "weights.keep")
    target = TORCH_NAMES.get(recipe.dtype)
    tensors = {}
    for name, final in names.items():
        dtype = stored[name].dtype
        castable = target in CASTABLE and dtype in CASTABLE and final not in kept
        tensors[final] = Output(stored[name], target if castable and target else dtype)
    planned = PlannedWeights(
        tensors,
        renamed=sum(name != final for name, final in names.items()),
        kept=sum(tensors[final].stored.dtype in CASTABLE for final in kept),
        dropped=tuple(sorted(dropped)),
        repairs=repairs,
        declared=recipe.dtype if target else _most_common(stored) if checkpoint.given else None,
    )
    if recipe.tie == "auto":
        _tie(planned, checkpoint, names, module_of)
    elif recipe.tie == "untie":
        _untie(planned, checkpoint, live)
    if resizing is not None:
        resizing.resize(planned)
    planned.shards = _shards(recipe, planned, checkpoint, module_of)
    return planned


def _plain(
    matrices: list[str], names: Mapping[str, str], stored: Mapping[str, TensorAt], module_of: Callable[[str], str]
) -> list[str]:
    """Of quantized weights, the heads and embeddings that are floats and have nothing beside them."""
    floats = [name for name in matrices if stored[name].dtype in CASTABLE]
    ends = {name: module_of(name) for name in floats if is_head(names[name]) or is_embedding(names[name])}
    modules = set(ends.values())
    alone = Counter(module for name in names if (module := module_of(name)) in modules)
    return [name for name, module in ends.items() if alone[module] == 1]


def _most_common(stored: Mapping[str, TensorAt]) -> str | None:
    sizes: Counter[str] = Counter()
    for tensor in stored.values():
        if tensor.dtype in CASTABLE:
            sizes[tensor.dtype] += tensor.size
    return HEADER_NAMES[sizes.most_common(1)[0][0]] if sizes else None


def _names(recipe: Weights, stored: list[str], *, in_module: bool) -> dict[str, str]:
    if recipe.rename == "off":
        return {name: name for name in stored}
    if recipe.rename == "auto":
        return naming.repaired(stored, in_module=in_module)
    rules = [(rule.from_, rule.to) for rule in recipe.rename]
    return naming.renamed({name: name for name in stored}, rules)


def _tie(
    planned: PlannedWeights,
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    module_of: Callable[[str], str] | None,
) -> None:
    """Leaves out a head that config.json ties to the embedding, once its bytes have been compared.

    Args:
        planned: What is left out is taken from it.
        checkpoint: The source.
        names: Name in the source to final name, of every tensor that is not dropped.
        module_of: As of plan_weights: packed heads are not held against anything.

    Raises:
        PlanError: They differ: loading would overwrite one of them.
    """
    config = checkpoint.config
    if config is None or not config.tie_word_embeddings:
        return
    stored = checkpoint.tensors
    matrices = sorted(name for name in names if len(stored[name].shape) == 2)
    if module_of is not None:
        matrices = _plain(matrices, names, stored, module_of)
    embeddings = [name for name in matrices if is_embedding(names[name])]
    tied = []
    for head in (name for name in matrices if is_head(names[name])):
        candidates = [name for name in embeddings if stored[name].shape == stored[head].shape]
        if not candidates:
            continue
        final = names[head]
        if not any(same_bytes(checkpoint.weights, stored[head], stored[name]) for name in candidates):
            what = f"{printable(final)} and {printable(names[candidates[0]])} differ, and config.json ties them"
            why = "loaders overwrite one with the other or leave them apart, depending on their version"
            hint = "set tie_word_embeddings to false in the checkpoint's config.json, or drop one: weights.drop"
            raise PlanError(what, why=why, path="config.json", place="/tie_word_embeddings", hint=hint)
        del planned.tensors[final]
        tied.append(final)
    planned.tied = (*tied, *_repeated_embeddings(planned, checkpoint, embeddings, names))


def _untie(planned: PlannedWeights, checkpoint: Checkpoint, live: Live | None) -> None:
    """Writes the head as a copy of the embedding, so that each can be changed without the other.

    Raises:
        PlanError: There is nothing to untie, or nothing says what the head is called.
    """
    config = checkpoint.config
    assert config is not None  # noqa: S101 - check_supported refuses a checkpoint without one
    if (pair := vocabulary.head_of(config, live, planned.tensors)) is not None:
        head, embedding = pair
        planned.tensors[head] = planned.tensors[embedding]
        planned.untied = (head,)
    elif config.tie_word_embeddings is False:
        what = "asks for a head of its own, which there is, and config.json does not tie it"
        raise PlanError(what, place="weights.tie", hint="weights.tie: auto")
    planned.unties = True


def _repeated_embeddings(
    planned: PlannedWeights, checkpoint: Checkpoint, embeddings: list[str], names: Mapping[str, str]
) -> Iterator[str]:
    """Leaves out the embeddings of an encoder and a decoder that are the one they share, as save_pretrained does.

    A pickle has all three (T5, BART): they are names of one storage there.
    """
    stored = checkpoint.tensors
    shared = [name for name in embeddings if _SHARED.search(names[name])]
    for name in embeddings:
        if _OF_ONE_SIDE.search(names[name]) and any(
            same_bytes(checkpoint.weights, stored[name], stored[other]) for other in shared
        ):
            del planned.tensors[names[name]]
            yield names[name]


def _shards(
    recipe: Weights, planned: PlannedWeights, checkpoint: Checkpoint, module_of: Callable[[str], str] | None
) -> list[list[str]]:
    from repokit.schema.recipe import parse_size

    if not planned.tensors:
        raise PlanError("no tensor is left to write", hint="narrow weights.drop")
    sizes = {name: tensor.size for name, tensor in planned.tensors.items()}
    if recipe.max_shard_size != "auto":
        return sharding.packed(sizes, parse_size(recipe.max_shard_size), module_of)
    if checkpoint.weights.sharded:
        files = {name: tensor.stored.file for name, tensor in planned.tensors.items()}
        return sharding.as_in_source(sizes, files if module_of is None else sharding.together(sizes, files, module_of))
    return sharding.packed(sizes, sharding.automatic_limit(planned.size), module_of)


def operations(planned: PlannedWeights, checkpoint: Checkpoint, sources: Sources) -> Iterator[WriteShard | WriteText]:
    """The shards, and the index where there is more than one."""
    files = sharding.file_names(planned.shards)
    metadata = planned.metadata or [METADATA] * len(files)
    for path, names, own in zip(files, planned.shards, metadata, strict=True):
        yield shard(path, {name: planned.tensors[name] for name in names}, checkpoint.weights, sources, own)
    if len(files) > 1:
        yield WriteText(path=INDEX, content=_index(planned, files), origin="weights")


def shard(
    path: str,
    tensors: Mapping[str, Output],
    stored: Stored,
    sources: Sources,
    metadata: Mapping[str, str] = METADATA,
) -> WriteShard:
    """One file.

    Args:
        path: Of the file, in the output.
        tensors: By their final names.
        stored: What they are read from.
        sources: Of the plan.
        metadata: Of the header.
    """
    placed = in_file_order(TensorInfo(name, tensor.dtype, tensor.shape, 0, 0) for name, tensor in tensors.items())
    header = header_bytes(placed, metadata)
    pieces = _joined(piece for info in placed for piece in _pieces(info.name, tensors[info.name], stored, sources))
    return WriteShard(path=path, header=header, pieces=tuple(pieces), size=len(header) + placed[-1].end)


def _pieces(name: str, tensor: Output, stored: Stored, sources: Sources) -> tuple[Content, ...]:
    dtype = tensor.stored.dtype
    cast = None if dtype == tensor.dtype else f"{dtype}>{tensor.dtype}"
    whole = stored.pieces(tensor.stored, sources, cast)
    return whole if tensor.resized is None else vocabulary.resized(whole, tensor.size, name)


def _joined(pieces: Iterator[Content]) -> Iterator[Content]:
    """Neighbours in the source that are neighbours in the output are read in one go; empty tensors take no reading."""
    last: Content | None = None
    for piece in pieces:
        if isinstance(last, Piece) and isinstance(piece, Piece) and _follows(piece, last):
            last = last.model_copy(update={"length": last.length + piece.length})
            continue
        if last and last.size:
            yield last
        last = piece
    if last and last.size:
        yield last


def _follows(piece: Piece, last: Piece) -> bool:
    if piece.view or last.view:
        return False
    return (piece.source, piece.offset, piece.cast) == (last.source, last.offset + last.length, last.cast)


def _index(planned: PlannedWeights, files: list[str]) -> bytes:
    weight_map = {name: file for file, names in zip(files, planned.shards, strict=True) for name in names}
    metadata: dict[str, Any] = {"total_parameters": planned.parameters, "total_size": planned.size}
    if planned.packed and planned.logical is None:
        del metadata["total_parameters"]
    # The map by itself: json's own encoder takes half a second to indent 100,000 entries.
    lines = [f"    {quoted(name)}: {quoted(weight_map[name])}" for name in sorted(weight_map)]
    before, _, after = dumps({"metadata": metadata, "weight_map": {}}, sort_keys=True).rpartition(b"{}")
    return before + b"{\n" + ",\n".join(lines).encode() + b"\n  }" + after
