"""Weights that torch's HuggingFaceStorageWriter left as slices: each process its part of each tensor, in safetensors.

torch/distributed/checkpoint/hf_storage.py, with save_distributed=True: `shard-RANK-model-N-of-M.safetensors`, in whose
metadata DCP_SHARDING_INFO says where in its tensor each slice begins. How large the whole tensor is, nothing says.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.checkpoints.stored import InFiles, LeftBehind, Part, TensorAt
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.boxes import overlapping, untiled
from repokit.formats.strict_json import loads
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.safetensors import Header
    from repokit.formats.urls import Place
    from repokit.repo.repository import Repository

SHARDING: Final = "DCP_SHARDING_INFO"  # torch/distributed/checkpoint/_hf_utils.py
_SLICE: Final = re.compile(
    r"(?P<folder>(?:sharded/)?)shard-(?P<rank>[0-9]+)-model-(?P<number>[0-9]+)-of-(?P<total>[0-9]+)\.safetensors"
)
_TWO_RUNS: Final = "the folder holds files of two runs"
_SHOWN: Final = 8  # numbers in a message

Sizes = tuple[int, ...]


def sliced_weights(root: Place, repository: Repository) -> SlicedWeights | None:
    """The slices in a directory, or in the `sharded` folder inside; None where there are none."""
    for folder in ("", "sharded/"):
        files = [path for path in repository.files if (match := _SLICE.fullmatch(path)) and match["folder"] == folder]
        if files:
            return SlicedWeights(root, repository, tuple(files))
    return None


class SlicedWeights(InFiles):
    """Tensors put together from their slices."""

    container = ""
    sharded = False
    index_path = None
    left_behind: tuple[LeftBehind, ...] = ()

    def __init__(self, root: Place, repository: Repository, files: tuple[str, ...]) -> None:
        super().__init__(root, repository)
        self.files = files

    @property
    def notes(self) -> tuple[str, ...]:
        ranks = {int(match["rank"]) for match in map(_SLICE.fullmatch, self.files) if match}
        what = f"tensors are put together from the slices of {count(len(ranks), 'process', 'processes')}"
        return (f"{what}; the files do not say whether there were more",)

    @cached_property
    def tensors(self) -> Mapping[str, TensorAt]:
        self._check_numbers()
        slices: dict[str, list[tuple[str, Part]]] = {}
        for path in self.files:
            for name, dtype, part in self._slices(path):
                slices.setdefault(name, []).append((dtype, part))
        return {name: self._tensor(name, found) for name, found in slices.items()}

    def _check_numbers(self) -> None:
        """Refuses files of two runs, and a number that no process has.

        A process has no file of a number whose tensors it holds nothing of (HuggingFaceStorageWriter.write_data).

        Raises:
            InputError: Naming them.
        """
        totals: dict[int, str] = {}
        numbers: set[int] = set()
        for path in self.files:
            if match := _SLICE.fullmatch(path):
                totals.setdefault(int(match["total"]), path)
                numbers.add(int(match["number"]))
        if len(totals) > 1:
            what = f"has slices of models in {some([f'{total:,}' for total in sorted(totals)])} files"
            hint = "move those that are old out of the folder"
            raise InputError(f"{what}: {some(list(totals.values()))}", why=_TWO_RUNS, path=str(self._root), hint=hint)
        total = next(iter(totals))
        if lacks := total - sum(1 <= number <= total for number in numbers):
            missing = islice((number for number in range(1, total + 1) if number not in numbers), _SHOWN)
            names = [f"shard-*-model-{number:05d}-of-{total:05d}.safetensors" for number in missing]
            what = f"lacks the slices of {count(lacks, 'file')} of {total:,}: {some(names)}"
            why = "the tensors in them would be missing from the model"
            raise MissingInput(what, why=why, path=str(self._root), hint="copy every process's files")

    def _slices(self, path: str) -> Iterator[tuple[str, str, Part]]:
        header = self._repository.header(path)
        offsets = _offsets(header, path)
        for name, dtype, shape, begin, _ in header.tensors:
            place = offsets.get(name)
            if place is None or len(place) != len(shape):
                what = f"does not say in {SHARDING} where the slice of {printable(name)} begins"
                raise MalformedFile(what, path=path, place="__metadata__")
            yield name, dtype, Part(path, header.data_start + begin, shape, place=place)

    def _tensor(self, name: str, slices: list[tuple[str, Part]]) -> TensorAt:
        dtypes = {dtype for dtype, _ in slices}
        if len(dtypes) > 1 or len({len(part.shape) for _, part in slices}) > 1:
            files = [part.file for _, part in slices]
            what = f"has slices of several dtypes or numbers of dimensions in {some(files)}"
            raise MalformedFile(what, path=str(self._root), place=printable(name))
        dtype, first = slices[0]
        parts = self._distinct(name, dtype, [part for _, part in slices if 0 not in part.shape])
        if not parts:
            return TensorAt(first.file, dtype, first.shape, first.offset)
        shape = tuple(max(place + length for place, length in zip(*ends, strict=True)) for ends in _by_dimension(parts))
        boxes = [(part.place or (), part.shape) for part in parts]
        if problem := untiled(shape, boxes):
            if (both := overlapping(boxes)) is not None:
                one, other = (parts[boxes.index(box)].file for box in both)
                raise self._of_two_runs(name, one, other, f": {problem}")
            what = f"is not whole: its slices are {problem} of {list(shape)}"
            raise MissingInput(what, path=str(self._root), place=printable(name), hint="copy every process's files")
        if len(parts) == 1:
            return TensorAt(parts[0].file, dtype, shape, parts[0].offset)
        return TensorAt(parts[0].file, dtype, shape, parts[0].offset, parts=tuple(parts))

    def _distinct(self, name: str, dtype: str, parts: list[Part]) -> list[Part]:
        """The slices, each box once.

        Raises:
            MalformedFile: Two files hold other bytes of one.
        """
        found: dict[tuple[Sizes | None, Sizes], Part] = {}
        for part in parts:
            first = found.setdefault((part.place, part.shape), part)
            one, other = (TensorAt(at.file, dtype, at.shape, at.offset) for at in (first, part))
            if first is not part and not same_bytes(self, one, other):
                raise self._of_two_runs(name, first.file, part.file)
        return list(found.values())

    def _of_two_runs(self, name: str, one: str, other: str, problem: str = "") -> MalformedFile:
        what = f"holds other values of {printable(name)} than {printable(one)}{problem}"
        return MalformedFile(what, why=_TWO_RUNS, path=other, hint="move the files that are old out of the folder")


def _by_dimension(parts: list[Part]) -> Iterator[tuple[Sizes, Sizes]]:
    """For each dimension, where every part begins and how long it is."""
    for dimension in range(len(parts[0].shape)):
        yield (
            tuple((part.place or ())[dimension] for part in parts),
            tuple(part.shape[dimension] for part in parts),
        )


def _offsets(header: Header, path: str) -> Mapping[str, Sizes]:
    """Where the slices of a file begin.

    Raises:
        MalformedFile: It does not say, or not in torch's words.
    """
    stated = (header.metadata or {}).get(SHARDING)
    if stated is None:
        what = f"is named like a slice and has no {SHARDING} in its metadata"
        raise MalformedFile(what, path=path, place="__metadata__", hint="rename it if it holds whole tensors")
    document: Any = loads(stated.encode(), path)
    if not isinstance(document, dict):
        raise MalformedFile(f"has a {SHARDING} that is no object", path=path, place="__metadata__")
    found = {}
    for name, entry in document.items():
        offsets = entry.get("saved_offsets") if isinstance(entry, dict) else None
        if isinstance(offsets, list) and all(type(offset) is int and 0 <= offset < 2**60 for offset in offsets):
            found[name] = tuple(offsets)
    return found
