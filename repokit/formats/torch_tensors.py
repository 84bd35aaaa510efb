"""How torch writes a tensor into a pickle, and where that puts its elements in the file.

A tensor is a call of one of the functions of torch/_utils.py with a storage, an offset, a shape and strides; the
storage is a persistent id `("storage", class, key, location, elements)`, to which the legacy format adds a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Final, NamedTuple, TypeGuard

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.pickle_values import Global, Opaque, Pairs, PersistentId, Unordered, Value
from repokit.formats.tensors import DTYPE_BITS, TORCH_NAMES
from repokit.printable import printable, size

MAX_DIMENSIONS: Final = 64  # at::kDimVectorStaticSize bounds none; numpy and DLPack take as many
MAX_EXPANDED: Final = 16 * 1024**3  # bytes that views with repeated elements may take when written out

# Bytes per element of each storage class of torch/storage.py, and how a header spells its dtype, if it can.
STORAGES: Final[dict[str, tuple[str | None, int]]] = {
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "DoubleStorage": ("F64", 8),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
    "UntypedStorage": ("U8", 1),
    "_UntypedStorage": ("U8", 1),  # torch 1.11 to 1.13
    "ComplexFloatStorage": ("C64", 8),
    "ComplexDoubleStorage": (None, 16),
    "QInt8Storage": (None, 1),
    "QUInt8Storage": (None, 1),
    "QInt32Storage": (None, 4),
    "QUInt4x2Storage": (None, 1),
    "QUInt2x4Storage": (None, 1),
}
_STORAGE_MODULES: Final = frozenset({"torch", "torch.cuda", "torch.storage"})
_REBUILT: Final[dict[tuple[str, str], str]] = {
    **{("torch._utils", name): name for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")},
    **{("torch._utils", name): "wrapped" for name in ("_rebuild_parameter", "_rebuild_parameter_with_state")},
    **{("torch.nn.parameter", name): "wrapped" for name in ("Parameter", "Buffer")},
    **{("torch._tensor", name): "typed" for name in ("_rebuild_from_type", "_rebuild_from_type_v2")},
    ("torch.tensor", "_rebuild_from_type"): "typed",
    ("torch._utils", "_rebuild_qtensor"): "a quantized tensor",
    ("torch._utils", "_rebuild_sparse_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_sparse_csr_tensor"): "a sparse tensor",
    ("torch._utils", "_rebuild_nested_tensor"): "a nested tensor",
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): "a tensor on the meta device, which has no values",
    ("torch._utils", "_rebuild_wrapper_subclass"): "a tensor of a class of its own",
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): "a tensor of a device without storages",
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): "a tensor of a device without storages",
    ("torch._utils", "_rebuild_xla_tensor"): "a tensor of a device without storages",
}
_PLAIN_CLASSES: Final = frozenset(
    {
        ("torch", "Tensor"),
        ("torch._tensor", "Tensor"),
        ("torch.nn.parameter", "Parameter"),
        ("torch.nn.parameter", "Buffer"),
    }
)


class StoredTensor(NamedTuple):
    """A tensor as it lies in a torch file.

    Attributes:
        name: Its key in the state dict.
        dtype: As a safetensors header spells it: a key of DTYPE_BITS.
        shape: Elements per dimension, outermost first; of F4, elements of 4 bits, not the bytes that torch counts.
        strides: Elements from one index of a dimension to the next; 0 where a dimension repeats.
        storage: Equal for tensors that share their memory.
        offset: Where element 0 begins in the file, in bytes.
        storage_offset: Where the whole storage begins in the file, in bytes.
        storage_size: Bytes of the whole storage.
        is_parameter: Whether it was saved as a torch.nn.Parameter.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: str
    offset: int
    storage_offset: int
    storage_size: int
    is_parameter: bool

    @property
    def size(self) -> int:
        """Bytes of the tensor written without gaps and repetitions."""
        return prod(self.shape) * DTYPE_BITS[self.dtype] // 8

    @property
    def span(self) -> int:
        """Bytes from `offset` to the end of the last element that belongs to it; 0 where it has no elements."""
        return _span(self.shape, self.strides) * DTYPE_BITS[self.dtype] // 8

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie row by row without gaps, so that `size` bytes from `offset` are the tensor."""
        return _is_contiguous(self.shape, self.strides)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """In elements."""
    if 0 in shape:
        return 0
    return 1 + sum((dimension - 1) * stride for dimension, stride in zip(shape, strides, strict=True))


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for dimension, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dimension != 1:
            if stride != expected:
                return False
            expected *= dimension
    return True


# ------------------------------------------------------------------------------------------------ finding them


def is_tensor(value: Value) -> bool:
    """Whether a value is a tensor of any kind, readable or not."""
    return type(value) is Opaque and type(value.callee) is Global and value.callee in _REBUILT


class OutOfBudget(Exception):
    """A search took more steps than any real file needs."""


class Budget:
    """Steps that several searches may take together: containers can hold one another in any number of ways."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def tensors_below(value: Value, budget: Budget) -> Iterator[Opaque]:
    """The tensors in a value, each container and tensor once; without recursion.

    Raises:
        OutOfBudget: More values were looked at than the budget allows.
    """
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, _HOLDERS) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Opaque) and is_tensor(value):
            yield value
            continue
        held = list(_held(value))
        budget.left -= len(held) + 1
        if budget.left < 0:
            raise OutOfBudget
        waiting.extend(item for item in held if isinstance(item, _HOLDERS))


_HOLDERS: Final = (tuple, list, Pairs, Unordered, Opaque)


def _held(value: Value) -> Iterator[Value]:
    match value:
        case tuple() | list():
            yield from value
        case Pairs(pairs=pairs):
            yield from (item for _, item in pairs)
        case Unordered(items=items):
            yield from items
        case Opaque():
            yield from value.args
            yield value.state
            yield from value.items or ()
            yield from (item for _, item in value.pairs or ())


# ------------------------------------------------------------------------------------------------ storages


class Storage(NamedTuple):
    """What a persistent id says of a storage.

    Attributes:
        key: Names it in the file.
        dtype: Of its class, as a header spells it; None where safetensors has none.
        width: Bytes per element.
        elements: How many.
        view: First element and number of elements of the part that is meant, in the legacy format.
        in_legacy: Whether it is described as in the legacy format, which has one item more.
        view_key: Names the part: torch takes the first one of each name.
    """

    key: str
    dtype: str | None
    width: int
    elements: int
    view: tuple[int, int] | None
    in_legacy: bool = False
    view_key: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        return self.width * self.elements


def storage_of(value: Value) -> Storage | str:
    """A persistent id as a storage, or why it is none."""
    match value:
        case PersistentId(
            value=("storage" | b"storage", Global(module, name), str(key), location, int(elements), *view)
        ):
            if name not in STORAGES or module not in _STORAGE_MODULES:
                return (
                    f"has a storage of the class {printable(f'{module}.{name}', 80)}, which this version does not know"
                )
            if location == "meta":
                return "is on the meta device, which has no values"
            if type(elements) is not int or not 0 <= elements < 2**60:
                return f"has a storage of {printable(elements, 40)} elements"
            match view:
                case [] | [None]:
                    return Storage(key, *STORAGES[name], elements, None, bool(view))
                case [(str(part), int(begin), int(length))] if 0 <= begin <= begin + length <= elements:
                    return Storage(key, *STORAGES[name], elements, (begin, length), in_legacy=True, view_key=part)
    return "has no storage that torch.save would write"


# ------------------------------------------------------------------------------------------------ reading one


# Where a storage of this key and size begins in the file; raises MalformedFile where it is missing or of another size.
Locate = Callable[[Storage], int]


def stored_tensor(name: str, value: Opaque, locate: Locate, path: str) -> StoredTensor:
    """A tensor of a state dict.

    Raises:
        MalformedFile: Its storage, offset, shape and strides contradict each other.
        UnsupportedSource: It is of a kind that safetensors cannot hold.
    """
    try:
        return _Reader(name, locate, path).read(value)
    except _Malformed as problem:
        raise MalformedFile(str(problem), why=_WHY, path=path, place=printable(name, 120)) from None
    except _Unsupported as problem:
        hint = "load the checkpoint with torch, convert or drop this tensor, and save it again"
        why = "safetensors holds plain, dense tensors"
        raise UnsupportedSource(str(problem), why=why, hint=hint, path=path, place=printable(name, 120)) from None


_WHY: Final = "torch.save writes no such tensor; the file is damaged or made up"


class _Malformed(Exception):
    pass


class _Unsupported(Exception):
    pass


class _Reader(NamedTuple):
    name: str
    locate: Locate
    path: str

    def read(self, value: Opaque) -> StoredTensor:
        value, is_parameter = _unwrapped(value)
        storage, offset, shape, strides, dtype = _fields(value)
        bits = DTYPE_BITS[dtype]
        begin = self.locate(storage)
        first, limit = (0, storage.size) if storage.view is None else (n * storage.width for n in storage.view)
        width = max(1, bits // 8)  # torch counts F4 in pairs, of a byte each
        end = offset + _span(shape, strides)
        if end * width > limit:
            raise _Malformed(f"reaches to element {end:,} of a storage of {limit:,} bytes at {width} each")
        if dtype == "F4":
            shape, strides = _unpaired(shape, strides)
            if not _is_contiguous(shape, strides):
                raise _Unsupported("is a view of float4 pairs that do not lie side by side")
        position = begin + first + offset * width
        tensor = StoredTensor(
            self.name, dtype, shape, strides, storage.key, position, begin, storage.size, is_parameter
        )
        if tensor.size > MAX_EXPANDED and tensor.size > tensor.span:
            raise _Malformed(f"repeats {size(tensor.span)} to {size(tensor.size)}")
        return tensor


def _unwrapped(value: Opaque) -> tuple[Opaque, bool]:
    """The tensor inside Parameters and instances of torch.Tensor with attributes, and whether it is a Parameter."""
    is_parameter = False
    for _ in range(8):
        kind = _REBUILT[value.callee] if is_tensor(value) else None  # type: ignore[index]
        match kind, value.args:
            case "wrapped", (Opaque() as inner, *rest):
                _check_attributes(*rest[2:3])  # the state of _rebuild_parameter_with_state
                is_parameter = is_parameter or value.callee[1] != "Buffer"  # type: ignore[index]
            case "typed", (Global() as function, Global() as cls, tuple() as args, *rest):
                _check_attributes(*rest[:1])
                if cls not in _PLAIN_CLASSES:
                    raise _Unsupported(f"is a tensor of the class {printable(cls, 80)}")
                is_parameter = is_parameter or cls.name == "Parameter"
                inner = Opaque(function, args)
            case (("_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3"), _):
                return value, is_parameter
            case ((None | "wrapped" | "typed"), _):
                break
            case str(other), _:
                raise _Unsupported(f"is {other}")
        value = inner
    raise _Malformed("is no tensor that torch.save would write")


def _fields(value: Opaque) -> tuple[Storage, int, tuple[int, ...], tuple[int, ...], str]:
    """Storage, offset, shape and strides in elements, and dtype."""
    version = value.callee[1]  # type: ignore[index]
    match version, value.args:
        case "_rebuild_tensor", (stored, offset, shape, strides):
            explicit, rest = None, ()
        case "_rebuild_tensor_v2", (stored, offset, shape, strides, _, hooks, *rest):
            explicit = None
            _check_hooks(hooks)
        case "_rebuild_tensor_v3", (stored, offset, shape, strides, _, hooks, Global() as explicit, *rest):
            _check_hooks(hooks)
        case _:
            raise _Malformed("has other arguments than torch.save gives a tensor")
    _check_marks(rest)
    storage = storage_of(stored)
    if isinstance(storage, str):
        raise _Malformed(storage)
    first = (offset,)
    if not _are_sizes(shape) or not _are_sizes(strides) or len(shape) != len(strides) or not _are_sizes(first):
        raise _Malformed("has a shape, strides or an offset that are no sizes")
    if len(shape) > MAX_DIMENSIONS:
        raise _Malformed(f"has {len(shape):,} dimensions")
    return storage, first[0], shape, strides, _dtype(storage, explicit)


def _dtype(storage: Storage, explicit: Global | None) -> str:
    dtype = storage.dtype if explicit is None else TORCH_NAMES.get(_DTYPE_ALIASES.get(explicit.name, explicit.name))
    if explicit is not None and explicit.module != "torch":
        raise _Malformed(f"has the dtype {printable(explicit, 80)}")
    if dtype is None:
        known = explicit.name if explicit is not None else {16: "complex128"}.get(storage.width, "quantized")
        raise _Unsupported(f"is {printable(known, 40)}, for which safetensors has no dtype")
    return dtype


_DTYPE_ALIASES: Final = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
}


def _are_sizes(values: Value) -> TypeGuard[tuple[int, ...]]:
    return type(values) is tuple and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_hooks(hooks: Value) -> None:
    match hooks:
        case None | Pairs(pairs=[]):
            return
    raise _Malformed("has backward hooks, which torch.save never writes")


def _check_attributes(state: Value = None) -> None:
    """Attributes of a tensor's own are dropped; some of those that every tensor has would put others in its place."""
    parts = state if type(state) is tuple else (state,)
    for part in parts:
        if isinstance(part, Pairs) and any(key in _ATTRIBUTES for key, _ in part.text_items()):
            raise _Malformed("has an attribute that replaces its values")


_ATTRIBUTES: Final = frozenset({"data", "real", "imag", "names", "__class__"})


def _check_marks(rest: list[Value] | tuple[Value, ...]) -> None:
    """The last argument marks lazy conjugation and negation: the bytes are then not the values."""
    for marks in rest:
        match marks:
            case None | Pairs(pairs=[]):
                continue
            case Pairs(pairs=pairs) if all(value is False for _, value in pairs):
                continue
        raise _Unsupported(
            "is conjugated or negated lazily: its bytes are not its values; resolve_conj() writes them out"
        )


def _unpaired(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a float4 tensor in elements: torch counts pairs of them, along the last dimension."""
    if not shape or (strides[-1] != 1 and shape[-1] > 1):
        raise _Unsupported("is a view of float4 pairs that cuts across them")
    return (*shape[:-1], shape[-1] * 2), (*(stride * 2 for stride in strides[:-1]), 1)
