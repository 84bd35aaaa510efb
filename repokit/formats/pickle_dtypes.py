"""Whether the state of a pickled numpy dtype is one that numpy writes.

`dtype.__setstate__` (numpy/_core/src/multiarray/descriptor.c) believes what it is told: with forged flags the bytes of
an array become pointers to Python objects, with forged offsets its elements lie outside of its memory. Such a pickle
names `numpy.dtype` and `numpy.ndarray` only, and still takes over the process.
"""

from __future__ import annotations

import re
from typing import Final

from repokit.formats.pickle_globals import modern
from repokit.formats.pickle_values import Global, Opaque, Pairs, Value

_TYPE: Final = re.compile(r"[<>|=]?([?bBhHiIlLqQefdgFDGcuSUVmMO])([0-9]{0,6})")
_OBJECTS: Final = 63  # flags of object itself
_HOLDS_OBJECTS: Final = 27  # flags that fields inherit from object (numpy/ndarraytypes.h NPY_FROM_FIELDS)
_MAX_DEPTH: Final = 8  # of fields in fields
_MAX_FIELDS: Final = 1000


def is_forged(callee: Value, args: tuple[Value, ...], state: Value) -> bool:
    """Whether BUILD gives a dtype a state that it cannot have. False for anything that is no dtype."""
    if type(callee) is not Global or modern(*callee) != ("numpy", "dtype"):
        return False
    made = Opaque(callee, args)
    made.state = state
    return _size(made, 0) is None


def _size(value: Value, depth: int) -> int | None:
    """Bytes of one element, 0 where nothing tells; None where the dtype is forged."""
    match value:
        case Opaque(callee=Global() as callee, args=(str(code), *_), state=state) if depth < _MAX_DEPTH:
            kind = _TYPE.fullmatch(code)
            if modern(*callee) != ("numpy", "dtype") or kind is None:
                return None
            size = int(kind[2] or 0) * (4 if kind[1] == "U" else 1)
            return size if state is None else _stated(kind[1], size, state, depth)
    return None


def _stated(kind: str, size: int, state: Value, depth: int) -> int | None:
    match state:
        case (3 | 4, str() | None, inner, names, fields, int(stated), int(), int(flags), *_):
            if fields is None and names is None and inner is None:
                fits = stated in {-1, size} or kind in "SUV"
                return max(stated, size) if fits and (kind != "O" or flags == _OBJECTS) else None
            if kind != "V" or stated < 0:
                return None
            parts = _fields(fields) if inner is None else _repeated(inner)
            return stated if parts is not None and _fit(parts, stated, flags, depth) else None
    return None


def _fields(fields: Value) -> list[tuple[Value, int, int]] | None:
    """Dtype, offset and number of each field."""
    if not isinstance(fields, Pairs) or len(fields.pairs) > _MAX_FIELDS:
        return None
    found = []
    for _, field in fields.pairs:
        match field:
            case (dtype, int(offset), *_):
                found.append((dtype, offset, 1))
            case _:
                return None
    return found


def _repeated(inner: Value) -> list[tuple[Value, int, int]] | None:
    """The one field of an array in each element: `(dtype, shape)`."""
    match inner:
        case (dtype, int() as length):
            shape: tuple[Value, ...] = (length,)
        case (dtype, tuple() as shape):
            pass
        case _:
            return None
    times = 1
    for dimension in shape:
        if type(dimension) is not int or not 0 <= dimension < 2**31 or times > 2**31:
            return None
        times *= dimension
    return [(dtype, 0, times)]


def _fit(parts: list[tuple[Value, int, int]], size: int, flags: int, depth: int) -> bool:
    for dtype, offset, times in parts:
        part = _size(dtype, depth + 1)
        if part is None or offset < 0 or offset + part * times > size:
            return False
        if _has_objects(dtype, 0) and flags & _HOLDS_OBJECTS != _HOLDS_OBJECTS:
            return False
    return True


def _has_objects(dtype: Value, depth: int) -> bool:
    match dtype:
        case Opaque(args=(str(code), *_), state=(_, _, inner, _, fields, *_)) if depth < _MAX_DEPTH:
            parts = (_fields(fields) if inner is None else _repeated(inner)) or []
            return "O" in code or any(_has_objects(part, depth + 1) for part, _, _ in parts)
        case Opaque(args=(str(code), *_)):
            return "O" in code
    return True
