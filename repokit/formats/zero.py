"""The files that DeepSpeed's ZeRO writes, without torch and without DeepSpeed.

`*_model_states.pt` holds `module`, a state dict, and what is known of the parameters; `*_optim_states.pt` of each rank
holds a share of the parameters in full precision, flat. Both are torch files whose pickles name classes of DeepSpeed:
they are read inertly. Which share is whose: zero_partitions.

Source: deepspeed/runtime/engine.py (`_common_checkpoint_state`, `_save_zero_checkpoint`), deepspeed/utils/
zero_to_fp32.py, and the `state_dict` of stage_1_and_2.py, stage3.py and bf16_optimizer.py, of 0.9 to 0.19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.pickle_globals import FoundGlobal
from repokit.formats.pickle_values import Global, Opaque, Pairs, Value
from repokit.formats.torch_containers import MAX_TENSORS, LeftOut, choose, describe, fault_of
from repokit.formats.torch_file import Opened, open_torch_file
from repokit.formats.torch_tensors import StoredTensor, is_tensor, stored_tensor
from repokit.printable import printable

Read = Callable[[int, int], bytes]
Shape = tuple[int, ...]

# What is used of a file of model states; all else in it is left behind.
_USED: Final = frozenset(
    {
        "buffer_names",
        "frozen_param_fragments",
        "frozen_param_shapes",
        "module",
        "param_shapes",
        "shared_params",
    }
)
_FLATS: Final = ("fp32_flat_groups", "single_partition_of_fp32_groups")  # of stage 3, and of 1 and 2
_DIVIDED: Final = 3  # the stage that divides the parameters themselves
_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
_WHY: Final = "DeepSpeed writes no such checkpoint; the file is damaged or made up"


class ModelStates(NamedTuple):
    """A file of model states.

    Attributes:
        path: For messages.
        module: The state dict, in its order. In stage 3 parameters are placeholders of no elements in it.
        buffers: Which of its entries are no parameters.
        groups: Shapes by name for each group of the optimizer, in the order in which they lie in its flat tensors;
            () where ZeRO is off.
        frozen: Shapes by name of the parameters that the optimizer does not have.
        fragments: This rank's share of those in stage 3, else the whole of them.
        shared: Names of parameters that are stored under the name of another one.
        ranks: How many processes the parameters of a model are divided between beside data parallelism.
        experts: Whether experts are divided between ranks.
        trained_in: `bfloat16`, `float16`: what the configuration asks to compute in; None where it does not.
        left_out: What else is in the file.
        globals: Everything that its pickle names.
    """

    path: str
    module: Mapping[str, StoredTensor]
    buffers: frozenset[str]
    groups: tuple[Mapping[str, Shape], ...]
    frozen: Mapping[str, Shape]
    fragments: Mapping[str, StoredTensor]
    shared: Mapping[str, str]
    ranks: int
    experts: bool
    trained_in: str | None
    left_out: tuple[LeftOut, ...]
    globals: tuple[FoundGlobal, ...]


class OptimizerStates(NamedTuple):
    """A rank's file of optimizer states.

    Attributes:
        path: For messages.
        stage: Of ZeRO, 1 to 3; None where the file does not say (DeepSpeed's bf16 optimizer, which divides as 1 does).
        partitions: How many ranks a group is divided between, for each group; of stage 3 one number for all.
        flats: The flat tensors: of stage 1 and 2 one for each group, of stage 3 one for each of its sub-groups.
        paddings: Elements behind each parameter of each group; () where there are none.
        experts: Whether groups are divided between different ranks.
        left_out: What else is in the file.
        globals: Everything that its pickle names.
    """

    path: str
    stage: int | None
    partitions: tuple[int, ...]
    flats: tuple[StoredTensor, ...]
    paddings: tuple[tuple[int, ...], ...]
    experts: bool
    left_out: tuple[LeftOut, ...]
    globals: tuple[FoundGlobal, ...]


def read_model_states(read: Read, file_size: int, path: str) -> ModelStates:
    """Reads a `*_model_states.pt`, but none of its tensors' bytes.

    Args:
        read: `read(offset, length)` gives the bytes at that place.
        file_size: Bytes in the whole file.
        path: For messages.

    Raises:
        MalformedFile: It is none, is cut off, contradicts itself, or names what runs code.
        UnsupportedSource: It is one stage of a pipeline, or one of its tensors cannot be published.
    """
    opened = open_torch_file(read, file_size, path)
    state = _State(opened, path)
    if state.top("module") is None and "module" in state.values:
        why = "DeepSpeed's pipeline keeps the layers in files of their own"
        raise UnsupportedSource("holds no module", why=why, path=path, hint=HINT_PIPELINE)
    chosen = choose(opened.value, path, "module")
    experts = state.values.get("num_experts")
    return ModelStates(
        path=path,
        module={name: stored_tensor(name, value, opened.locate, path) for name, value in chosen.tensors},
        buffers=frozenset(state.texts("buffer_names")),
        groups=state.groups(),
        frozen=state.shapes(state.top("frozen_param_shapes"), "frozen_param_shapes"),
        fragments=state.fragments(),
        shared=state.shared(),
        ranks=max(1, state.number(state.top("mp_world_size"), "mp_world_size") or 1),
        experts=bool(state.top("ds_autoep_layers") or state.top("autoep_layers"))
        or any(isinstance(number, int) and number > 1 for number in (experts if isinstance(experts, list) else ())),
        trained_in=state.trained_in(),
        left_out=tuple(left for left in chosen.left_out if left.path.partition(".")[0] not in _USED),
        globals=opened.globals,
    )


HINT_PIPELINE: Final = (
    "convert it with the trainer that wrote it (GPT-NeoX: tools/ckpts/convert_neox_to_hf.py; Megatron-DeepSpeed: "
    "tools/convert_checkpoint/deepspeed_to_transformers.py)"
)


def read_optimizer_states(read: Read, file_size: int, path: str) -> OptimizerStates:
    """Reads a `*_optim_states.pt`, but none of its tensors' bytes.

    Args:
        read: `read(offset, length)` gives the bytes at that place.
        file_size: Bytes in the whole file.
        path: For messages.

    Raises:
        MalformedFile: It is none, is cut off, contradicts itself, or names what runs code.
        UnsupportedSource: It is one that this version does not read.
    """
    opened = open_torch_file(read, file_size, path)
    optimizer = _State(opened, path).inside("optimizer_state_dict")
    key, stage = optimizer.key_of_flats(), optimizer.number(optimizer.top("zero_stage"), "zero_stage")
    if (key == _FLATS[0]) != (stage == _DIVIDED):
        what = f"has {key} and the zero_stage {'that is none' if stage is None else stage}"
        raise optimizer.wrong(what, "optimizer_state_dict")
    left = (name for name in optimizer.values if name not in {key, "zero_stage", "partition_count"})
    return OptimizerStates(
        path=path,
        stage=stage,
        partitions=optimizer.numbers("partition_count"),
        flats=tuple(optimizer.flats(key)),
        paddings=optimizer.paddings(),
        experts=optimizer.top("ds_zero_partition_groups") is not None,
        left_out=tuple(LeftOut(f"optimizer_state_dict.{name}", describe(optimizer.values[name]), 0) for name in left),
        globals=opened.globals,
    )


class _State:
    """A dict of a file, with accessors that refuse what DeepSpeed never puts there."""

    def __init__(self, opened: Opened, path: str, value: Value = None, within: str = "") -> None:
        self.opened = opened
        self.path = path
        self.within = within
        held = opened.value if value is None else value
        if not isinstance(held, Pairs):
            raise self.wrong(f"holds {describe(held)} where a dict is expected", within or None)
        self.values = self.unique(held, within)

    def wrong(self, what: str, place: str | None) -> MalformedFile:
        return MalformedFile(what, why=_WHY, path=self.path, place=printable(place, 120) if place else None)

    def at(self, key: str) -> str:
        return f"{self.within}.{key}" if self.within else key

    def top(self, key: str) -> Value:
        return self.values.get(key)

    def inside(self, key: str) -> _State:
        return _State(self.opened, self.path, self.top(key) or Global("builtins", "None"), self.at(key))

    def unique(self, pairs: Pairs, place: str) -> dict[str, Value]:
        """The entries of a dict whose keys are texts."""
        found: dict[str, Value] = {}
        for key, value in pairs.text_items():
            if key in found:
                raise self.wrong(f"has {printable(key, 80)} twice", place or None)
            found[key] = value
        return found

    def mapping(self, value: Value, place: str) -> dict[str, Value]:
        """A dict of names; an empty one where there is none."""
        if value is None:
            return {}
        if not isinstance(value, Pairs):
            raise self.wrong(f"is {describe(value)} where a dict is expected", place)
        return self.unique(value, place)

    def name(self, name: Value, place: str) -> str:
        if not isinstance(name, str):
            raise self.wrong(f"has {describe(name)} where a name is expected", place)
        if fault := fault_of(name):
            raise self.wrong(f"is the name of a parameter and {fault}", f"{place}: {name}")
        return name

    def key_of_flats(self) -> str:
        keys = [key for key in _FLATS if key in self.values]
        if len(keys) > 1:
            raise self.wrong(f"has both {' and '.join(_FLATS)}", self.within)
        if not keys:
            what = f"has neither {' nor '.join(_FLATS)}: it is no optimizer state of ZeRO"
            raise MalformedFile(what, why="the parameters in full precision are there", path=self.path)
        return keys[0]

    # ---------------------------------------------------------------------------------------- numbers and shapes

    def number(self, value: Value, place: str) -> int | None:
        """An int, also as a member of DeepSpeed's enumeration of stages."""
        match value:
            case None:
                return None
            case Opaque(callee=Global(name="ZeroStageEnum"), args=(int(number),)):
                return number
            case int() if not isinstance(value, bool) and 0 <= value < _LARGEST:
                return value
        raise self.wrong(f"is {describe(value)} where a number is expected", self.at(place))

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.top(key)
        found = [self.number(one, key) for one in (value if isinstance(value, list) else [value])]
        return tuple(number for number in found if number is not None)

    def paddings(self) -> tuple[tuple[int, ...], ...]:
        key = "param_alignment_paddings"
        value = self.top(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
            raise self.wrong(f"is {describe(value)} where a list for each group is expected", self.at(key))
        self.check_number(sum(len(group) for group in value if isinstance(group, list)), self.at(key))
        return tuple(tuple(self.number(one, key) or 0 for one in group) for group in value)

    def check_number(self, parameters: int, place: str) -> None:
        """Refuses more than any model has: a group that a pickle holds once may stand in a list many times."""
        if parameters > MAX_TENSORS:
            raise self.wrong(f"is of {parameters:,} parameters; {MAX_TENSORS:,} are read", place)

    def shape(self, value: Value, place: str) -> Shape:
        if type(value) is not tuple or not all(type(one) is int and 0 <= one < _LARGEST for one in value):
            raise self.wrong(f"has {describe(value)} where a shape is expected", place)
        if len(value) > MAX_DIMENSIONS or prod(value) >= MAX_ELEMENTS:
            what = f"has the shape {list(value[:MAX_DIMENSIONS])} ({len(value)} dimensions), which no parameter has"
            raise self.wrong(what, place)
        return value

    def shapes(self, value: Value, place: str) -> dict[str, Shape]:
        found = self.mapping(value, place)
        return {self.name(name, place): self.shape(one, f"{place}: {name}") for name, one in found.items()}

    def groups(self) -> tuple[dict[str, Shape], ...]:
        value = self.top("param_shapes")
        if isinstance(value, Pairs):
            value = [value]  # DeepSpeed before 0.4 had one group
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(f"is {describe(value)} where a list of groups is expected", "param_shapes")
        self.check_number(sum(len(group.pairs) for group in value if isinstance(group, Pairs)), "param_shapes")
        groups = tuple(self.shapes(group, f"param_shapes.{number}") for number, group in enumerate(value))
        seen: set[str] = set()
        for group in groups:
            if twice := next((name for name in group if name in seen), None):
                raise self.wrong(f"has {printable(twice, 80)} in two groups", "param_shapes")
            seen.update(group)
        return groups

    # ---------------------------------------------------------------------------------------- names and tensors

    def texts(self, key: str) -> Iterator[str]:
        value = self.top(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(f"is {describe(value)} where a list is expected", key)
        for name in value or ():
            yield self.name(name, key)

    def shared(self) -> dict[str, str]:
        key = "shared_params"
        value = self.top(key)
        pairs = value if isinstance(value, list) else list(self.mapping(value, key).items())
        found = {}
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise self.wrong(f"has {describe(pair)} where two names are expected", key)
            found[self.name(pair[0], key)] = self.name(pair[1], key)
        return found

    def fragments(self) -> dict[str, StoredTensor]:
        key = "frozen_param_fragments"
        return {
            self.name(name, key): self.tensor(value, f"{key}: {name}")
            for name, value in self.mapping(self.top(key), key).items()
        }

    def tensor(self, value: Value, place: str) -> StoredTensor:
        if not isinstance(value, Opaque) or not is_tensor(value):
            raise self.wrong(f"is {describe(value)} where a tensor is expected", place)
        return stored_tensor(place, value, self.opened.locate, self.path)

    def flats(self, key: str) -> Iterator[StoredTensor]:
        value = self.top(key)
        if not isinstance(value, list):
            raise self.wrong(f"is {describe(value)} where a list of tensors is expected", self.at(key))
        for number, one in enumerate(value):
            place = f"{self.at(key)}.{number}"
            flat = self.tensor(one, place)
            if len(flat.shape) != 1 or not flat.contiguous or flat.dtype not in _FLOATS:
                raise self.wrong(f"is a tensor of {flat.dtype} {list(flat.shape)}, not a flat one", place)
            yield flat

    def trained_in(self) -> str | None:
        config = self.top("ds_config")
        sections = dict(config.text_items()) if isinstance(config, Pairs) else {}
        for keys, dtype in (({"bf16", "bfloat16"}, "bfloat16"), ({"fp16"}, "float16")):
            for key in keys:
                section = sections.get(key)
                if isinstance(section, Pairs) and dict(section.text_items()).get("enabled") is True:
                    return dtype
        return None


_LARGEST: Final = 2**63
MAX_DIMENSIONS: Final = 64  # of torch
MAX_ELEMENTS: Final = 2**60  # of a parameter
