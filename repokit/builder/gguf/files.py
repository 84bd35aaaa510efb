"""The GGUF files of a source: which are one model, which stand beside it, and what each is in numbers.

Everything is read from headers. A set of parts that is not whole is refused here: llama.cpp opens the first part and
stops at the one that is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.sources import Role
from repokit.builder.quantized.words import NOT_STATED, stated
from repokit.errors import MalformedFile, MissingInput
from repokit.formats.ggml_types import FILE_TYPES, GGML_TYPES
from repokit.printable import count, printable, some
from repokit.repo.gguf import PIECE, contradiction, missing_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.checkpoints.stored import LeftBehind, TensorAt
    from repokit.builder.plan import Sources
    from repokit.operations import Content
    from repokit.repo.gguf import GgufFile
    from repokit.schema.recipe import QuantizationRecipe

# Where a name says which quantisation a file holds: what `llama-cli -hf org/name:Q4_K_M` looks for.
_LABEL: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:UD[-._])?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32)(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_FLOATS: Final = frozenset({"F32", "F16", "BF16", "F64"})
_SPLIT_AGAIN: Final = "split the whole file again: llama-gguf-split --split"


def _is_packed(kind: int) -> bool:
    """Whether a type packs blocks of elements; of one that only other programs have, it is taken to."""
    found = GGML_TYPES.get(kind)
    return found is None or found.block > 1


class GgufEntry:
    """One model, encoder or adapter, in one file or in parts.

    Attributes:
        files: The file, or the parts in their order; the first holds the metadata.
        sizes: Bytes of each file.
    """

    def __init__(self, files: Sequence[GgufFile], sizes: Sequence[int]) -> None:
        self.files = tuple(files)
        self.sizes = tuple(sizes)

    @property
    def head(self) -> GgufFile:
        """The file that holds the metadata."""
        return self.files[0]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(self.sizes)

    @property
    def what(self) -> str:
        """`model`, or what it is beside one."""
        head = self.head
        if head.is_matrix:
            return "importance matrix"
        if head.is_projector:
            return "projector"
        if "adapter.type" in head or head.string("general.type") == "adapter":
            return "LoRA adapter"
        if head.string("general.type") == "vocab":
            return "vocabulary"
        return "model" if head.is_model else "control vector"

    @property
    def label(self) -> str | None:
        """The quantisation that the name states, as it is spelled there; None where it states none."""
        named = self.head.part
        name = (self.head.path.removesuffix(".gguf") if named is None else named.stem).rpartition("/")[2]
        found = _LABEL.findall(name)
        return found[-1] if found else None

    @cached_property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(prod(tensor.dims) for file in self.files for tensor in file.header.tensors)

    @property
    def bits_per_weight(self) -> float | None:
        """Bytes of the tensors over their elements; None where it has none."""
        held = sum(self._held(file, size) for file, size in zip(self.files, self.sizes, strict=True))
        return held * 8 / self.parameters if self.parameters else None

    @staticmethod
    def _held(file: GgufFile, size: int) -> int:
        """Bytes of the tensors of one file; of a type that only other programs have, all that follows the header."""
        sizes = [tensor.size for tensor in file.header.tensors]
        known = [found for found in sizes if found is not None]
        return sum(known) if len(known) == len(sizes) else size - file.header.data_start

    @cached_property
    def _main(self) -> int | None:
        """The type that most elements have."""
        found: Counter[int] = Counter()
        for file in self.files:
            for tensor in file.header.tensors:
                found[tensor.kind] += prod(tensor.dims)
        return found.most_common(1)[0][0] if found else None

    @property
    def method(self) -> str:
        """As llama.cpp calls the mixture of types: `Q4_K_M`."""
        stated_ = self.claimed
        if stated_ is not None and not self.contradicts:
            return stated_
        main = GGML_TYPES.get(-1 if self._main is None else self._main)
        return "not known" if main is None else main.name

    @property
    def claimed(self) -> str | None:
        """What general.file_type says; None where it says nothing."""
        return FILE_TYPES.get(-1 if (number := self.head.integer("general.file_type")) is None else number)

    @property
    def contradicts(self) -> bool:
        """Whether general.file_type names a quantization and no tensor has one, or none and most elements have one."""
        if self.claimed is None or self._main is None:
            return False
        kinds = {tensor.kind for file in self.files for tensor in file.header.tensors}
        return not any(map(_is_packed, kinds)) if self.claimed not in _FLOATS else _is_packed(self._main)

    @property
    def group_size(self) -> str:
        """Elements that share a scale's block; "-" where there are none."""
        main = GGML_TYPES.get(-1 if self._main is None else self._main)
        return "-" if main is None or main.name in _FLOATS or main.block == 1 else str(main.block)

    def calibration(self, recipe: QuantizationRecipe) -> str:
        """What a person states; else what llama-quantize wrote of its importance matrix."""
        if self.method in _FLOATS:
            return "-"
        given = recipe.calibration
        parts = list(stated(given.samples, given.dataset, given.text)) or list(self._matrix())
        return "; ".join(parts) or NOT_STATED

    def _matrix(self) -> Iterator[str]:
        """Without the folders of the machine where it lay."""
        data = self.head.string("quantize.imatrix.dataset")
        chunks = self.head.integer("quantize.imatrix.chunks_count")
        if "quantize.imatrix.file" in self.head or data:
            name = re.split(r"[/\\]", data)[-1] if data else ""
            of = f" of {printable(name, 100)}" if name else ""
            amount = f", {count(chunks, 'chunk')}" if chunks and chunks > 0 else ""
            yield f"importance matrix{of}{amount}"


class _NoTensors:
    """The weights of a checkpoint whose files are copied whole: none are taken out of them."""

    files: tuple[str, ...] = ()
    sharded = False
    container = ""
    tensors: Mapping[str, TensorAt] = {}
    left_behind: tuple[LeftBehind, ...] = ()
    notes: tuple[str, ...] = ()
    index_path: str | None = None

    def pieces(self, tensor: TensorAt, sources: Sources, cast: str | None = None) -> tuple[Content, ...]:
        raise NotImplementedError

    def same_memory(self, one: TensorAt, other: TensorAt) -> bool:
        raise NotImplementedError

    def contents(self, tensor: TensorAt) -> Iterator[memoryview]:
        raise NotImplementedError


def gguf_entries(checkpoint: Checkpoint) -> tuple[GgufEntry, ...]:
    """What lies in a source, sorted by path; every set of parts is whole.

    Raises:
        MalformedFile: ggml would refuse a file; parts contradict their names or each other.
        MissingInput: A part is missing, or there is no model.
    """
    checkpoint.weights = _NoTensors()
    paths = _paths(checkpoint)
    _check_parts(checkpoint, paths)
    gguf, entries = checkpoint.repository.gguf, []
    for path in paths:
        file = gguf.file(path)
        if file.part is not None and file.part.number > 1:
            continue
        of = path if file.part is None else f"{file.part.stem}-of-{file.part.of:05d}"
        parts = [path] if file.part is None else [gguf.splits[of][number] for number in sorted(gguf.splits[of])]
        sizes = [checkpoint.repository.files[part].size for part in parts]
        entries.append(GgufEntry([gguf.file(part) for part in parts], sizes))
    _check_model(checkpoint, entries)
    return tuple(entries)


def _paths(checkpoint: Checkpoint) -> list[str]:
    """The files that count: where a person named one, it and the other parts of its set."""
    repository = checkpoint.repository
    pieces = [path for path in repository.files if PIECE.search(path)]
    if pieces and checkpoint.file is None:
        what = f"is a piece of a GGUF file, which no program loads, as {some(pieces)}"
        raise MalformedFile(what, path=pieces[0], hint="put the pieces together: cat FILE.gguf.* > FILE.gguf")
    paths = [path for path in repository.gguf.paths if checkpoint.roles[path] is Role.UNKNOWN]
    if checkpoint.file is None:
        return paths
    part = repository.gguf.file(checkpoint.file).part
    others = {} if part is None else repository.gguf.splits[f"{part.stem}-of-{part.of:05d}"]
    return sorted({checkpoint.file, *others.values()})


def _check_parts(checkpoint: Checkpoint, paths: list[str]) -> None:
    repository = checkpoint.repository
    for there in repository.gguf.splits.values():
        if not set(there.values()) & set(paths):
            continue
        if missing := missing_parts(there):
            what = f"is one part of several, of which {count(len(missing), 'is', 'are')} missing: {some(missing)}"
            why = "llama.cpp opens the first part and stops at one that is not there"
            raise MissingInput(what, why=why, path=there[min(there)], hint=f"copy {printable(missing[0])} beside it")
        files = {number: repository.gguf.file(path) for number, path in there.items()}
        for number, file in files.items():
            if (fault := contradiction(file, number)) is not None:
                raise MalformedFile(fault[0], path=file.path, place=fault[1], hint=_SPLIT_AGAIN)
        _check_tensors([files[number] for number in sorted(files)])
    for path in paths:
        file = repository.gguf.file(path)
        said = file.integer("split.count") or 0
        if said > 1 and file.part is None:
            what = f"is one of {said:,} parts by its header, and not by its name"
            hint = f"rename it to NAME-{(file.integer('split.no') or 0) + 1:05d}-of-{said:05d}.gguf"
            raise MalformedFile(what, path=path, place="split.count", hint=hint)


def _check_tensors(files: list[GgufFile]) -> None:
    """Holds the parts against the number of tensors that each states."""
    held = sum(len(file.header.tensors) for file in files)
    for file in files:
        said = file.integer("split.tensors.count")
        if said is not None and said != held:
            what = f"says {said:,} tensors; the parts hold {held:,}"
            raise MalformedFile(what, path=file.path, place="split.tensors.count", hint=_SPLIT_AGAIN)


def _check_model(checkpoint: Checkpoint, entries: list[GgufEntry]) -> None:
    if not entries:
        hint = "convert a model first: python convert_hf_to_gguf.py MODEL"
        raise MissingInput("holds no .gguf file", path=str(checkpoint.root), hint=hint)
    if not any(entry.what in {"model", "LoRA adapter"} for entry in entries):
        named = some([f"{entry.head.path} ({entry.what})" for entry in entries])
        what = f"holds no model, only {named}"
        raise MissingInput(what, path=str(checkpoint.root), hint="copy the model's file beside it")
