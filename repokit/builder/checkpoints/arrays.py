"""Arrays of any library as bytes, without importing the library: DLPack, the buffer protocol, numpy's interface.

An array-like has `dtype` and `shape`, and lets its memory be read in one of three ways:

DLPack                 `__dlpack__`: torch, JAX, CuPy, numpy, MLX. Read here through ctypes, because numpy's own
                       reader knows no bfloat16 and no 8-bit float.
__array_interface__    numpy, ml_dtypes' bfloat16 and 8-bit floats included
buffer protocol        memoryview, array.array

Source: dmlc/dlpack include/dlpack/dlpack.h, version 1.1.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from repokit.errors import UnsupportedSource
from repokit.formats.tensors import DTYPE_BITS, TORCH_NAMES
from repokit.printable import printable

_CPU: Final = {1, 3, 13}  # kDLCPU, and host memory pinned by CUDA or shared by it (kDLCUDAHost, kDLCUDAManaged)


@dataclass(frozen=True, slots=True)
class Array:
    """The memory of one array.

    Attributes:
        memory: From the first element to the end of the last one. Read-only; keeps the array alive.
        strides: Elements from one to the next in each dimension; None where they lie side by side.
    """

    memory: memoryview
    strides: tuple[int, ...] | None


def described(name: str, array: Any) -> tuple[str, tuple[int, ...]]:  # noqa: ANN401 - an array of any library
    """The dtype, as a header of safetensors spells it, and the shape. No element is looked at.

    Raises:
        UnsupportedSource: It is no array, or of a dtype that safetensors does not have.
    """
    try:
        dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", None)
    except RuntimeError as error:  # torch's nested tensors have no shape
        raise _unreadable(name, printable(error, 200)) from None
    if dtype is None and isinstance(array, memoryview):
        dtype = _FORMATS.get(array.format)
    if dtype is None or shape is None:
        what = f"{printable(name)} is no array: {printable(type(array).__name__)}"
        raise UnsupportedSource(what, hint="give a mapping of names to tensors, such as model.state_dict()")
    spelled = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    found = TORCH_NAMES.get(spelled)
    if found is None:
        what = f"{printable(name)} has the dtype {printable(dtype)}, which safetensors does not have"
        raise UnsupportedSource(what, hint="cast it, or leave it out of the mapping")
    try:
        lengths = tuple(int(length) for length in shape)
    except (TypeError, ValueError, AttributeError, RuntimeError):  # of torch's nested tensors, some are symbols
        raise _unreadable(name, "its shape is no row of numbers") from None
    if DTYPE_BITS[found] < 8:  # packed: one element of memory holds several
        packed = 8 // DTYPE_BITS[found]
        lengths = (*lengths[:-1], lengths[-1] * packed) if lengths else lengths
    return found, lengths


# struct's codes (memoryview.format), where the array has no dtype of its own.
_FORMATS: Final = {"d": "float64", "f": "float32", "e": "float16", "b": "int8", "B": "uint8", "h": "int16"} | {
    "H": "uint16", "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64", "l": "int64", "L": "uint64", "?": "bool"
}  # fmt: skip


def identity(array: Any) -> str | None:  # noqa: ANN401 - an array of any library
    """Equal for two arrays that begin at the same place in memory; None where nothing tells."""
    if callable(pointer := getattr(array, "data_ptr", None)):
        try:
            # The same memory, read as other values: lazily conjugated, or negated.
            marks = [mark for mark in ("is_conj", "is_neg") if callable(test := getattr(array, mark, None)) and test()]
            return ":".join([str(array.device), str(pointer()), *marks]) if pointer() else None
        except (RuntimeError, AttributeError):  # torch's tensors without storage
            return None
    interface = getattr(array, "__array_interface__", None)
    address = _address(interface) if isinstance(interface, dict) else None
    return f"cpu:{address}" if address else None


def opened(name: str, array: Any) -> Array:  # noqa: ANN401 - an array of any library
    """The memory of an array, copied to the CPU first where it is elsewhere.

    Raises:
        UnsupportedSource: It has none that can be read.
    """
    try:
        array = _detached(array)
        found = _through_interface(array) or _through_dlpack(array) or _through_torch(array) or _through_buffer(array)
    except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise _unreadable(name, printable(error, 200)) from None
    if found is None:
        raise _unreadable(name, f"a {printable(type(array).__name__)} gives no access to its memory")
    return found


def _unreadable(name: str, reason: str) -> UnsupportedSource:
    hint = "give dense arrays whose values are in this process; load the model onto one device, without offloading"
    return UnsupportedSource(f"{printable(name)} cannot be read: {reason}", hint=hint)


def _detached(array: Any) -> Any:  # noqa: ANN401 - an array of any library
    """Without its gradient, and on the CPU: torch exports neither a tensor that requires one nor across devices."""
    if callable(detach := getattr(array, "detach", None)):
        array = detach()
    for mark, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if callable(test := getattr(array, mark, None)) and test():  # its bytes are not its values
            array = getattr(array, resolve)()
    if getattr(array, "is_sparse", False):
        raise RuntimeError("it is sparse")
    if getattr(array, "is_meta", False):
        raise RuntimeError("it is on the meta device, and has no values")
    device = getattr(array, "__dlpack_device__", None)
    if callable(device) and int(device()[0]) not in _CPU and callable(cpu := getattr(array, "cpu", None)):
        return cpu()
    return array


# ---------------------------------------------------------------- numpy's interface, the buffer protocol


def _through_interface(array: Any) -> Array | None:  # noqa: ANN401 - an array of any library
    interface = getattr(array, "__array_interface__", None)
    if not isinstance(interface, dict) or (address := _address(interface)) is None:
        return None
    itemsize = int(interface["typestr"][2:])
    if interface["typestr"][0] == ">":
        raise TypeError("its bytes are in big-endian order")
    strides = interface.get("strides")
    if strides is not None and any(stride % itemsize for stride in strides):
        raise TypeError("its elements do not lie at multiples of their size")
    steps = None if strides is None else tuple(stride // itemsize for stride in strides)
    return _array(address, tuple(interface["shape"]), steps, itemsize, (array, interface))


def _address(interface: dict[str, Any]) -> int | None:
    """Where the memory is; None where the interface hands over an object instead, which it may."""
    match interface.get("data"):
        case (int(address), _):
            return address
    return None


def _through_buffer(array: Any) -> Array | None:  # noqa: ANN401 - an array of any library
    try:
        view = memoryview(array)
    except TypeError:
        return None
    if not view.c_contiguous:
        raise TypeError("its elements do not lie side by side")
    return Array(view.cast("B") if view.nbytes else memoryview(b""), None)


def _through_torch(array: Any) -> Array | None:  # noqa: ANN401 - a tensor of a dtype that DLPack does not have
    """As bytes, by way of the uint8 of the module that the tensor is from; it is loaded, or there were no tensor."""
    import sys

    torch = sys.modules.get(type(array).__module__.partition(".")[0])
    as_bytes = getattr(torch, "uint8", None)
    if as_bytes is None or not callable(getattr(array, "contiguous", None)):
        return None
    flat = array.contiguous().reshape(-1).view(as_bytes)
    return _through_dlpack(flat)


# ---------------------------------------------------------------- DLPack


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _through_dlpack(array: Any) -> Array | None:  # noqa: ANN401 - an array of any library
    """The capsule is kept and never consumed: its own destructor gives the memory back."""
    export = getattr(array, "__dlpack__", None)
    if not callable(export) or _is_a_wrapper(array):
        return None
    try:
        capsule = export()
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
    # DLManagedTensor begins with the DLTensor.
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    if tensor.device.device_type not in _CPU:
        raise TypeError("it is not in the memory of the CPU")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    itemsize = tensor.dtype.bits * tensor.dtype.lanes // 8
    return _array((tensor.data or 0) + tensor.byte_offset, shape, strides, itemsize, capsule)


def _is_a_wrapper(array: Any) -> bool:  # noqa: ANN401 - an array of any library
    """Whether a tensor only stands for others: fake, distributed, quantized by torchao.

    torch exports some of these with an address of nothing, or crashes.
    """
    if not callable(pointer := getattr(array, "data_ptr", None)):
        return False
    return not pointer() and 0 not in array.shape


def _array(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int, owner: object
) -> Array:
    if strides is not None and (min(strides, default=0) < 0):
        raise TypeError("its elements lie in reverse order")
    steps = None if strides is None or _side_by_side(shape, strides) else strides
    if 0 in shape:
        return Array(memoryview(b""), None)
    if not address:
        raise TypeError("it has no memory of its own")
    span = 1
    if steps is None:
        for length in shape:
            span *= length
    else:
        span += sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    buffer = (ctypes.c_ubyte * (span * itemsize)).from_address(address)
    buffer.owner = owner  # type: ignore[attr-defined] # every view of the buffer then keeps what the memory is of
    return Array(memoryview(buffer).cast("B").toreadonly(), steps)


def _side_by_side(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True
