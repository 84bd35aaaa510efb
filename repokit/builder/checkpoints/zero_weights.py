"""The weights of a DeepSpeed ZeRO checkpoint: its 16-bit module where it is whole, else the ranks' shares merged.

The bytes stay where they are: every tensor is a list of runs in the files of the ranks.
"""

from __future__ import annotations

from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from repokit.builder.checkpoints.stored import InFiles, LeftBehind, Part, TensorAt
from repokit.builder.checkpoints.zero_layout import check_ranks, find_layout
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource
from repokit.formats import zero_partitions
from repokit.formats.pickle_globals import Grade
from repokit.formats.tensors import DTYPE_BITS, HEADER_NAMES
from repokit.formats.zero import HINT_PIPELINE, ModelStates, OptimizerStates, read_model_states, read_optimizer_states
from repokit.formats.zero_partitions import PartitionFault
from repokit.printable import count, printable, some
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from repokit.builder.checkpoints.zero_layout import Layout
    from repokit.formats.torch_tensors import StoredTensor
    from repokit.formats.urls import Place
    from repokit.formats.zero_partitions import Run
    from repokit.repo.repository import Repository

_States = TypeVar("_States", ModelStates, OptimizerStates)
_DIVIDED: Final = 3  # the stage that divides the parameters themselves
_MAX_LINKS: Final = 64  # names between a shared parameter and its values; DeepSpeed writes one


def zero_weights(root: Place, repository: Repository, *, dtype: str = "auto") -> ZeroWeights | None:
    """The weights of a ZeRO checkpoint; None where the directory holds none.

    Args:
        root: The directory.
        repository: The same, as a repository.
        dtype: What the weights will be cast to, in torch's words. For `float32` the parameters of the optimizer are
            read, which have that precision, also where there is a whole module in 16 bits.

    Raises:
        InputError: It is one of DeepSpeed's that this version does not read, or nothing says which step is meant.
    """
    layout = find_layout(repository)
    return None if layout is None else ZeroWeights(root, repository, layout, dtype=dtype)


class _Found(NamedTuple):
    """What was decided.

    Attributes:
        tensors: By name, in the order of the module.
        models: The files of model states that are read.
        optimizers: Those of optimizer states.
        whole: Whether the tensors are the module's own.
    """

    tensors: Mapping[str, TensorAt]
    models: tuple[ModelStates, ...]
    optimizers: tuple[OptimizerStates, ...]
    whole: bool


class ZeroWeights(InFiles):
    """The weights in the files of one step."""

    index_path: str | None = None
    sharded = False
    container = "module"  # the names are those of the module that the training framework wrapped

    def __init__(self, root: Place, repository: Repository, layout: Layout, *, dtype: str) -> None:
        super().__init__(root, repository)
        self._layout = layout
        self._dtype = dtype

    @property
    def files(self) -> tuple[str, ...]:
        found = self._found
        return (*(states.path for states in found.models), *(states.path for states in found.optimizers))

    @property
    def tensors(self) -> Mapping[str, TensorAt]:
        return self._found.tensors

    @cached_property
    def left_behind(self) -> tuple[LeftBehind, ...]:
        return tuple(_left_behind(self._found.models)) + tuple(_left_behind(self._found.optimizers))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes())

    # ---------------------------------------------------------------- what is taken

    @cached_property
    def _found(self) -> _Found:
        layout = self._layout
        first = layout.model or layout.models.get(0)
        if first is None:
            what = "has optimizer states of DeepSpeed and no mp_rank_00_model_states.pt"
            if layout.models:
                what = "lacks the model states of rank 0: zero_pp_rank_0_mp_rank_00_model_states.pt"
            why = "it holds the names and shapes of the parameters"
            raise MissingInput(what, why=why, path=layout.folder or ".", hint="copy the checkpoint again")
        model = self._read(first, read_model_states)
        _refuse_divided(model)
        names = _parameters(model)
        empty = [name for name, shape in names.items() if _is_placeholder(model, name, shape)]
        masters = self._dtype == "float32" and layout.optimizers and model.groups
        if not empty and not masters:
            return _Found(self._of_module(model, names), (model,), (), whole=True)
        if not layout.optimizers:
            what = f"has no values for {count(len(empty), 'parameter')}, and there are no optimizer states beside it"
            why = f"the values of {some(empty)} are there"
            hint = "copy the *_optim_states.pt of every rank too"
            raise MissingInput(what, why=why, path=model.path, hint=hint)
        return self._merged(model)

    def _of_module(self, model: ModelStates, names: Mapping[str, tuple[int, ...]]) -> dict[str, TensorAt]:
        for name, shape in names.items():
            _check_shape(model, name, shape)
        found = {name: _whole(tensor, model.path) for name, tensor in model.module.items()}
        shared = {name: _source(model, name) for name in model.shared if name not in found}
        if lost := [name for name, source in shared.items() if source not in found]:
            raise _unheld(model, lost)
        return found | {name: found[source] for name, source in shared.items()}

    # ---------------------------------------------------------------- shares merged

    def _merged(self, model: ModelStates) -> _Found:
        optimizers = self._optimizers()
        stage = optimizers[0].stage
        models = self._models(model, len(optimizers)) if stage == _DIVIDED else (model,)
        try:
            runs = _runs(model, optimizers)
        except PartitionFault as fault:
            raise _explained(fault, optimizers, self._layout.folder) from None
        places = {name: self._at(name, of, optimizers, model) for name, of in runs.items()}
        places |= _frozen(models, self._layout.folder, divided=stage == _DIVIDED)
        return _Found(_in_order(model, places), models, optimizers, whole=False)

    def _optimizers(self) -> tuple[OptimizerStates, ...]:
        """The optimizer states of every rank, found to be of one run."""
        layout = self._layout
        first = self._read(next(iter(layout.optimizers.values())), read_optimizer_states)
        partitions = set(first.partitions)
        if first.experts or len(partitions) > 1:
            what = "divides groups of parameters between different ranks, as mixtures of experts are trained"
            hint = "load it where it was trained and call engine.save_16bit_model(DIR)"
            raise UnsupportedSource(what, path=first.path, hint=hint)
        if not partitions or not min(partitions):
            raise MalformedFile("has no partition_count", why="nothing says how many ranks there are", path=first.path)
        check_ranks(layout.optimizers, partitions.pop(), layout.folder, "optimizer states")
        return (first, *(self._other(path, first) for path in list(layout.optimizers.values())[1:]))

    def _other(self, path: str, first: OptimizerStates) -> OptimizerStates:
        states = self._read(path, read_optimizer_states)
        for what, one, other in (
            ("zero_stage", first.stage, states.stage),
            ("partition_count", first.partitions, states.partitions),
            ("param_alignment_paddings", first.paddings, states.paddings),
            ("dtypes of flat tensors", [flat.dtype for flat in first.flats], [flat.dtype for flat in states.flats]),
        ):
            if one != other:
                why = "the folder holds files of two runs"
                text = f"has another {what} than {printable(first.path)}: {printable(other)}, not {printable(one)}"
                raise MalformedFile(text, why=why, path=path)
        return states

    def _models(self, first: ModelStates, ranks: int) -> tuple[ModelStates, ...]:
        """The model states of every rank, where their shares of frozen parameters are needed; else of the first."""
        check_ranks(self._layout.models, ranks, self._layout.folder, "model states")
        if not first.frozen:
            return (first,)
        paths = list(self._layout.models.values())[1:]
        return (first, *(self._read(path, read_model_states) for path in paths))

    def _at(self, name: str, runs: Sequence[Run], ranks: Sequence[OptimizerStates], model: ModelStates) -> TensorAt:
        flats = [ranks[run.rank].flats[run.flat] for run in runs] or list(ranks[0].flats[:1])
        if not flats:
            why = "nothing says of which dtype its parameters are"
            raise MalformedFile("has no flat tensors", why=why, path=ranks[0].path, place=printable(name, 120))
        dtypes = sorted({flat.dtype for flat in flats})
        if len(dtypes) > 1:
            what = f"lies in flat tensors of {some(dtypes)}"
            raise MalformedFile(what, why="a tensor has one dtype", path=ranks[0].path, place=printable(name, 120))
        width = DTYPE_BITS[dtypes[0]] // 8
        parts = tuple(
            Part(ranks[run.rank].path, flat.offset + run.first * width, (run.elements,))
            for run, flat in zip(runs, flats, strict=False)
        )
        shape = next(group[name] for group in model.groups if name in group)
        return _in_parts(name, dtypes[0], shape, parts, ranks[0].path)

    # ---------------------------------------------------------------- files and words

    def _read(self, path: str, reader: Callable[[Callable[[int, int], bytes], int, str], _States]) -> _States:
        entry = self._repository.files[path]
        if entry.kind is not Kind.FILE:
            raise MissingInput(f"is a {entry.kind}", path=path, hint="put the file itself in its place")
        return reader(partial(self._repository.source.read, path), entry.size, path)

    def _notes(self) -> Iterator[str]:
        found = self._found
        model = found.models[0]
        if found.whole:
            dtypes = some(sorted({_torch_name(tensor.dtype) for tensor in found.tensors.values()}))
            kept = count(len(self._layout.optimizers), "rank")
            beside = f"; the optimizer's parameters of {kept} stay behind" if self._layout.optimizers else ""
            yield f"the weights are the module in {printable(model.path)} ({dtypes}){beside}"
        else:
            yield from self._notes_of_merge(model, found)
        named = [(states.path, states.globals) for states in found.models]
        for path, held in [*named, *((states.path, states.globals) for states in found.optimizers)]:
            unknown = sorted({one.dotted for one in held if one.grade is Grade.UNKNOWN})
            if unknown:
                yield f"{printable(path)} names {some(unknown)}: not known here, not run, and left out"

    def _notes_of_merge(self, model: ModelStates, found: _Found) -> Iterator[str]:
        names = [name for group in model.groups for name in group]
        dtypes = some(sorted({_torch_name(found.tensors[name].dtype) for name in names}))
        ranks = count(len(found.optimizers), "rank")
        stage = found.optimizers[0].stage or 1
        told = f"the weights are the optimizer's parameters ({dtypes}), merged from {ranks} of ZeRO stage {stage}"
        if model.trained_in and dtypes == "float32" and self._dtype == "auto":
            told += f"; the model was trained in {model.trained_in}: weights.dtype: {model.trained_in} casts them"
        yield told
        others = {name: at.dtype for name, at in found.tensors.items() if name in model.frozen or name in model.buffers}
        if unlike := sorted({_torch_name(dtype) for dtype in others.values()} - {dtypes}):
            yield f"frozen parameters and buffers are as they were saved: {some(unlike)}"


def _torch_name(dtype: str) -> str:
    return HEADER_NAMES.get(dtype, dtype)


def _refuse_divided(model: ModelStates) -> None:
    if model.ranks > 1:
        what = f"is one of {model.ranks} parts of tensor parallelism"
        raise UnsupportedSource(what, path=model.path, hint=HINT_PIPELINE)
    if model.experts:
        what = "is of a DeepSpeed mixture of experts, whose experts lie in files of their own"
        hint = "load it where it was trained and call engine.save_16bit_model(DIR)"
        raise UnsupportedSource(what, path=model.path, hint=hint)


def _parameters(model: ModelStates) -> dict[str, tuple[int, ...]]:
    """Every parameter by name, as the file says it, apart from those under another one's name."""
    return {name: shape for group in (*model.groups, model.frozen) for name, shape in group.items()}


def _is_placeholder(model: ModelStates, name: str, shape: tuple[int, ...]) -> bool:
    """Whether the module has no values of a parameter that has some."""
    held = model.module.get(name)
    return prod(shape) > 0 and (held is None or prod(held.shape) == 0)


def _check_shape(model: ModelStates, name: str, shape: tuple[int, ...]) -> None:
    held = model.module[name].shape if name in model.module else shape
    if held != shape:
        what = f"is {list(held)} in the module, and {list(shape)} by param_shapes"
        raise MalformedFile(what, why="one of them is of another model", path=model.path, place=printable(name, 120))


def _runs(model: ModelStates, optimizers: Sequence[OptimizerStates]) -> dict[str, tuple[Run, ...]]:
    sizes = [[flat.shape[0] for flat in states.flats] for states in optimizers]
    if optimizers[0].stage == _DIVIDED:
        return zero_partitions.of_stage_3({name: one for group in model.groups for name, one in group.items()}, sizes)
    return zero_partitions.of_stages_1_and_2(model.groups, sizes, optimizers[0].paddings)


def _explained(fault: PartitionFault, ranks: Sequence[OptimizerStates | ModelStates], folder: str) -> InputError:
    path = ranks[fault.rank].path if fault.rank is not None else folder or "."
    why = "names, shapes and values of different steps or runs make no model"
    return MalformedFile(fault.what, why=why, path=path, hint="copy the checkpoint again, every file of one step")


def _frozen(models: Sequence[ModelStates], folder: str, *, divided: bool) -> dict[str, TensorAt]:
    """Parameters that the optimizer does not have: in stage 3 a share in each rank's model states, else whole.

    Raises:
        MalformedFile: A rank does not have its share.
    """
    first = models[0]
    found = {}
    for name, shape in first.frozen.items():
        for states in models:
            if name not in states.fragments:
                raise MalformedFile("has no frozen_param_fragments of it", path=states.path, place=printable(name, 120))
        held = [states.fragments[name] for states in models]
        if not divided:
            if held[0].shape != shape:
                what = f"is {list(held[0].shape)}, and {list(shape)} by frozen_param_shapes"
                raise MalformedFile(what, path=first.path, place=printable(name, 120))
            found[name] = _whole(held[0], first.path)
            continue
        try:
            runs = zero_partitions.of_fragment(name, shape, [prod(tensor.shape) for tensor in held])
        except PartitionFault as fault:
            raise _explained(fault, models, folder) from None
        for states, tensor in zip(models, held, strict=True):
            if tensor.dtype != held[0].dtype or not tensor.contiguous:
                what = f"is {tensor.dtype}, not side by side or unlike that of rank 0"
                raise MalformedFile(what, path=states.path, place=printable(name, 120))
        parts = tuple(Part(models[run.rank].path, held[run.rank].offset, (run.elements,)) for run in runs)
        found[name] = _in_parts(name, held[0].dtype, shape, parts, first.path)
    return found


def _in_order(model: ModelStates, places: Mapping[str, TensorAt]) -> dict[str, TensorAt]:
    """Parameters, buffers and shared parameters in the order of the module.

    Raises:
        MalformedFile: The values of one are nowhere.
    """
    found: dict[str, TensorAt] = {}
    lost = []
    for name in [*model.module, *(name for name in (*places, *model.shared) if name not in model.module)]:
        held = model.module.get(name)
        source = _source(model, name)
        if name in places:
            found[name] = places[name]
        elif source in places:
            found[name] = places[source]
        elif held is not None and (0 not in held.shape or name in model.buffers):
            found[name] = _whole(held, model.path)
        else:
            lost.append(name)
    if lost:
        what = f"has no values of {count(len(lost), 'parameter')}: {some(lost)}"
        why = "they were frozen, and DeepSpeed before 0.8 did not save what is frozen in stage 3"
        hint = "take them from the base model, or save with stage3_gather_16bit_weights_on_model_save"
        raise MalformedFile(what, why=why, path=model.path, hint=hint)
    return found


def _source(model: ModelStates, name: str) -> str:
    """The name under which the values of a parameter are stored.

    Raises:
        MalformedFile: Names lead from one to another without an end.
    """
    source = name
    for _ in range(_MAX_LINKS):
        if source not in model.shared or model.shared[source] == source:
            return source
        source = model.shared[source]
    what = "has shared_params that lead from name to name without an end"
    raise MalformedFile(what, why="its values are nowhere", path=model.path, place=printable(name, 120))


def _unheld(model: ModelStates, names: list[str]) -> MalformedFile:
    what = f"has no values of {count(len(names), 'shared parameter')}: {some(names)}"
    why = "shared_params names others in their place, and those are not there"
    return MalformedFile(what, why=why, path=model.path, hint="copy the checkpoint again, every file of one step")


def _whole(tensor: StoredTensor, path: str) -> TensorAt:
    strides = None if tensor.contiguous else tensor.strides
    memory = f"{path}:{tensor.storage}"
    return TensorAt(path, tensor.dtype, tensor.shape, tensor.offset, strides, memory=memory)


def _in_parts(name: str, dtype: str, shape: tuple[int, ...], parts: tuple[Part, ...], path: str) -> TensorAt:
    """A tensor of one part lies there whole; one of none has no elements."""
    memory = f"{path}: {name}"
    if len(parts) > 1:
        return TensorAt(parts[0].file, dtype, shape, parts[0].offset, memory=memory, parts=parts)
    file, offset = (parts[0].file, parts[0].offset) if parts else (path, 0)
    return TensorAt(file, dtype, shape, offset, memory=memory)


def _left_behind(ranks: Sequence[ModelStates | OptimizerStates]) -> Iterator[LeftBehind]:
    """What else is in the files: told of the first, since every rank has the same."""
    if not ranks:
        return
    path, others = ranks[0].path, len(ranks) - 1
    beside = f", and of {count(others, 'other rank')}" if others else ""
    for left in ranks[0].left_out:
        yield LeftBehind(f"{path}: {left.path}", left.what + beside)
    for one in sorted({(one.dotted, one.grade) for one in ranks[0].globals if one.grade is not Grade.SAFE}):
        yield LeftBehind(f"{path}: {one[0]}", f"named by the pickle ({one[1]}), not run{beside}")
