"""What an inert pickle is made of: plain Python values, and these stand-ins for all that a loader would build or call.

None of them hashes, compares or prints what it holds: a pickle can nest a tuple so that its hash takes years.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

# None, bool, int, float, complex, str, bytes, tuple and list as they are; otherwise one of the classes below.
Value: TypeAlias = object


class Global(NamedTuple):
    """A module and a name that the pickle refers to: `torch.FloatStorage`. Never resolved."""

    module: str
    name: str

    def __str__(self) -> str:
        """`torch.FloatStorage`."""
        return f"{self.module}.{self.name}"


class PersistentId:
    """What BINPERSID leaves to the loader: in a torch file, the tuple that describes a storage."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Pairs:
    """A dict, or a collections.OrderedDict, as the pairs that were put in: keys may repeat and be of any kind."""

    __slots__ = ("pairs", "state")

    def __init__(self) -> None:
        self.pairs: list[tuple[Value, Value]] = []
        self.state: Value = None  # of an OrderedDict: state dicts keep `_metadata` there

    def text_items(self) -> Iterator[tuple[str, Value]]:
        """The pairs whose key is a string, in order."""
        for key, value in self.pairs:
            if isinstance(key, str):
                yield key, value


class Unordered:
    """A set or frozenset, as the items that were put in."""

    __slots__ = ("items",)

    def __init__(self, items: list[Value]) -> None:
        self.items = items


class Opaque:
    """The result of a call that was not made.

    Attributes:
        callee: What would have been called or instantiated: a Global, or a value that the pickle computes.
        args: Its positional arguments.
        state: What BUILD would hand to the object: keyword arguments of NEWOBJ_EX come first, in a tuple.
        items: What APPEND and ADDITEMS would put in; None where there is none.
        pairs: What SETITEM would put in; None where there is none.
    """

    __slots__ = ("args", "callee", "items", "pairs", "state")

    def __init__(self, callee: Value, args: tuple[Value, ...]) -> None:
        self.callee = callee
        self.args = args
        self.state: Value = None
        self.items: list[Value] | None = None
        self.pairs: list[tuple[Value, Value]] | None = None

    def __str__(self) -> str:
        """The class or function that would have made it; escape it with `printable`."""
        return str(self.callee) if isinstance(self.callee, Global) else "something that the pickle computes"


def children(value: Value) -> Iterator[Value]:
    """What a value holds directly; nothing for a scalar."""
    match value:
        case tuple() if not isinstance(value, Global):
            yield from value
        case list():
            yield from value
        case Pairs(pairs=pairs, state=state):
            yield from _pairwise(pairs)
            yield state
        case Unordered(items=items):
            yield from items
        case PersistentId(value=inner):
            yield inner
        case Opaque():
            yield from value.args
            yield value.callee
            yield value.state
            yield from value.items or ()
            yield from _pairwise(value.pairs or [])


def _pairwise(pairs: list[tuple[Value, Value]]) -> Iterator[Value]:
    for pair in pairs:
        yield from pair


def walk(value: Value) -> Iterator[Value]:
    """Every container, stand-in and scalar below a value, itself included, each container once; without recursion."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _HOLDERS):
            if id(value) in seen:
                continue
            seen.add(id(value))
            waiting.extend(children(value))
        yield value


_HOLDERS: Final = (tuple, list, Pairs, Unordered, PersistentId, Opaque)
