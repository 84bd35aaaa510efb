"""The pickle interpreter that never executes and never imports.

A pickle is a program for a stack machine. This one runs its opcodes (CPython Lib/pickletools.py, protocols 0 to 5)
without their effects: a global is a pair of strings, a call is a record of what would have been called with which
arguments. Whatever the program names is noted, with its grade, also where it breaks off: a file that cannot be read to
the end is an error that still says what was found until then.

Where CPython's two unpicklers are lenient or differ, this one refuses; so no reader sees other globals than we do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from repokit.errors import MalformedFile
from repokit.formats.pickle_globals import FoundGlobal, Grade, grade, is_listed
from repokit.formats.pickle_machine import Broken, Machine, Truncated
from repokit.formats.pickle_opcodes import DISPATCH, MEMOIZE
from repokit.formats.pickle_values import Global, Opaque, PersistentId, Value
from repokit.printable import printable, size

MAX_PICKLE: Final = 256 * 1024 * 1024  # bytes of one pickle; that of 60,000 tensors has 7 MB
MAX_OPCODES: Final = 8_000_000  # 60,000 tensors take 1.9 million, 60,000 Parameters 3.4
MAX_OBJECTS: Final = 2_000_000  # numbers, strings, containers and calls: 60,000 Parameters make 1.1 million
MAX_STREAMS: Final = 1000  # pickles one after another in a file; torch.save writes five
_STRIDE: Final = 8192  # opcodes between two looks at the limits


class Most(NamedTuple):
    """What one pickle may ask for."""

    opcodes: int
    objects: int


class Interpreted(NamedTuple):
    """One pickle.

    Attributes:
        value: What it leaves on the stack: see repokit.formats.pickle_values.
        globals: Every global that it names, in the order of their first positions.
        persistent: Every persistent id that it refers to, in order: the storages of a torch file.
        changed: Results of calls that it changes afterwards, in ways that nothing here carries out.
        opcodes: About how many it has.
        end: Where the pickle ends in the data: one past its STOP.
    """

    value: Value
    globals: tuple[FoundGlobal, ...]
    persistent: tuple[PersistentId, ...]
    end: int
    changed: tuple[Opaque, ...] = ()
    opcodes: int = 0


class UnreadablePickle(MalformedFile):
    """A pickle that breaks off, or asks for more than a real one.

    Attributes:
        globals: What was found before that.
        truncated: Whether it would go on where the data end.
        opcodes: About how many were read.
    """

    globals: tuple[FoundGlobal, ...] = ()
    truncated: bool = False
    opcodes: int = 0


def unreadable(
    what: str,
    found: tuple[FoundGlobal, ...],
    *,
    why: str,
    path: str,
    hint: str | None = None,
    place: str | None = None,
) -> UnreadablePickle:
    """An error that carries the globals that were found."""
    error = UnreadablePickle(what, why=why, hint=hint, path=path, place=place)
    error.globals = found
    return error


def interpret(data: bytes, *, path: str, start: int = 0, member: str = "", most: Most | None = None) -> Interpreted:
    """Reads one pickle, from `start` to its STOP.

    Args:
        data: The bytes that hold it; what follows STOP is left to the caller.
        path: For messages.
        start: Where it begins.
        member: Where in a zip archive it lies, for messages and in the globals.
        most: What it may ask for, where that is more than the pickle of a state dict may.

    Raises:
        UnreadablePickle: It breaks off, is no pickle, or goes beyond a limit.
    """
    machine = Machine(data, start)
    try:
        value = _run(machine, most or Most(MAX_OPCODES, MAX_OBJECTS))
    except (Broken, Truncated) as problem:
        what = f"{problem} (byte {machine.opcode_at:,} of its pickle)"
        found = _globals(machine, member)
        error = unreadable(f"cannot be read as a pickle: {what}", found, why=_UNSEEN, path=path, place=member or None)
        error.truncated = isinstance(problem, Truncated)
        error.opcodes = machine.opcodes
        raise error from None
    found, persistent, changed = _globals(machine, member), tuple(machine.persistent), tuple(machine.changed)
    return Interpreted(value, found, persistent, machine.position, changed, machine.opcodes)


_MANY: Final = f"holds more than {MAX_STREAMS:,} pickles one after another"
_UNSEEN: Final = "what it would do when it is loaded cannot be told; no loader should be trusted to find out"


def _run(machine: Machine, most: Most) -> Value:
    """The value on top of the stack when STOP is met.

    Raises:
        Broken, Truncated: It is not met.
    """
    data, dispatch, far = machine.data, DISPATCH, machine.far
    try:
        while not machine.stopped:
            for _ in range(_STRIDE):
                machine.opcode_at = position = machine.position
                machine.position = position + 1
                code = data[position]
                if code == MEMOIZE and not far:  # every fourth opcode since protocol 4
                    machine.memo.append(machine.stack[-1])
                    continue
                dispatch[code](machine)
                if machine.stopped:
                    break
            machine.opcodes += _STRIDE
            _check_limits(machine, most)
    except IndexError:
        if machine.opcode_at >= len(data):
            raise Truncated("it ends without STOP") from None
        raise Broken("it takes from an empty stack") from None
    return machine.stack.pop()


def _check_limits(machine: Machine, most: Most) -> None:
    if machine.opcodes > most.opcodes:
        raise Broken(f"it has more than {most.opcodes:,} opcodes")
    if machine.objects > most.objects:
        raise Broken(f"it makes more than {most.objects:,} objects")
    if machine.position - machine.start > MAX_PICKLE:
        raise Broken(f"it is longer than {size(MAX_PICKLE)}")


def _globals(machine: Machine, member: str) -> tuple[FoundGlobal, ...]:
    found = []
    for (module, name, via), (position, times) in machine.found.items():
        graded = Grade.EXECUTES if via in _COMPUTED or not module else grade(module, name)
        if graded is Grade.INERT_KNOWN and Global(module, name) in machine.called and not is_listed(module, name):
            graded = Grade.UNKNOWN  # its package is known to be inert; what it does with arguments is not
        if machine.lookups_are_inert and machine.lookup == Global(module, name) and via in {"GLOBAL", "STACK_GLOBAL"}:
            graded = Grade.INERT_KNOWN
        found.append(FoundGlobal(module, name, graded, via, position, times, member))
    return tuple(found)


_COMPUTED: Final = frozenset({"REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "BUILD", "EXT1", "EXT2", "EXT4"})


def interpret_all(data: bytes, *, path: str, start: int = 0, member: str = "") -> tuple[Interpreted, ...]:
    """Pickles one after another until the data end.

    Raises:
        UnreadablePickle: As of `interpret`; its globals are those of the pickles before it too.
    """
    streams: list[Interpreted] = []
    while start < len(data):
        try:
            streams.append(interpret(data, path=path, start=start, member=member))
        except UnreadablePickle as error:
            error.globals = merged(*(stream.globals for stream in streams), error.globals)
            error.opcodes += sum(stream.opcodes for stream in streams)
            raise
        start = streams[-1].end
        if len(streams) > MAX_STREAMS:
            raise unreadable(_MANY, merged(*(stream.globals for stream in streams)), why=_UNSEEN, path=path)
    return tuple(streams)


def merged(*groups: tuple[FoundGlobal, ...]) -> tuple[FoundGlobal, ...]:
    """Globals of several pickles: equal ones of one member are counted together, under the worse of their grades."""
    order = list(Grade)
    kept: dict[tuple[str, str, str, str], FoundGlobal] = {}
    for found in (found for group in groups for found in group):
        key = (found.module, found.name, found.via, found.member)
        if (before := kept.get(key)) is not None:
            worse = max(before.grade, found.grade, key=order.index)
            kept[key] = before._replace(times=before.times + found.times, grade=worse)
        else:
            kept[key] = found
    return tuple(kept.values())


def named(found: tuple[FoundGlobal, ...] | list[FoundGlobal], limit: int = 3) -> str:
    """`os.system, builtins.eval and 4 more`: globals in a sentence, each name once, escaped."""
    names = list(dict.fromkeys(printable(one.dotted, 80) for one in found))
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"
