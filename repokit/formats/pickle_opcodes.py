"""The opcodes of pickle, protocols 0 to 5, as functions on a Machine: what each does to the stack, and nothing else.

Names, arguments and effects are those of CPython's Lib/pickletools.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from repokit.formats.pickle_dtypes import is_forged
from repokit.formats.pickle_machine import MAX_DEPTH, Broken, Machine
from repokit.formats.pickle_scalars import SCALARS, Opcode, integer, utf8
from repokit.formats.pickle_values import Global, Opaque, Pairs, PersistentId, Unordered, Value
from repokit.printable import printable

HIGHEST_PROTOCOL: Final = 5
MEMOIZE: Final = 0x94

_Item = TypeVar("_Item")


# ------------------------------------------------------------------------------------------------ frame of a program


def _proto(machine: Machine) -> None:
    if (protocol := machine.number(1)) > HIGHEST_PROTOCOL:
        raise Broken(f"it is of protocol {protocol}; there are {HIGHEST_PROTOCOL}")


def _frame(machine: Machine) -> None:
    length = machine.number(8)
    if length > len(machine.data) - machine.position:
        machine.take(length)  # ends beyond the data


def _stop(machine: Machine) -> None:
    if machine.below or len(machine.stack) != 1:
        raise Broken("it stops with an open mark or more than one value")
    machine.stopped = True


# ------------------------------------------------------------------------------------------------ stack and memo


def _mark(machine: Machine) -> None:
    below = machine.below
    if len(below) > MAX_DEPTH:
        raise Broken(f"it nests deeper than {MAX_DEPTH:,}")
    below.append(machine.stack)
    machine.stack = []


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.close_mark()


def _pop_mark(machine: Machine) -> None:
    machine.close_mark()


def _dup(machine: Machine) -> None:
    value = machine.stack[-1]
    if value is machine.lookup:
        machine.lookups += 1
    machine.stack.append(value)


def _get_text(machine: Machine) -> None:
    if (number := integer(machine.line())) < 0:
        raise Broken("it recalls a negative number")
    machine.recall(number)


def _binget(machine: Machine) -> None:
    position = machine.position
    machine.position = position + 1
    machine.recall(machine.data[position])


def _long_binget(machine: Machine) -> None:
    position = machine.position
    machine.position = end = position + 4
    if end > len(machine.data):
        machine.position = position
        machine.take(4)  # ends beyond the data
    machine.recall(int.from_bytes(machine.data[position:end], "little"))


def _put_text(machine: Machine) -> None:
    if (number := integer(machine.line())) < 0:
        raise Broken("it stores a value under a negative number")
    machine.remember(number)


def _binput(machine: Machine) -> None:
    position = machine.position
    machine.position = position + 1
    machine.remember(machine.data[position])


def _long_binput(machine: Machine) -> None:
    position = machine.position
    machine.position = end = position + 4
    number = int.from_bytes(machine.data[position:end], "little")
    if number == len(machine.memo) and not machine.far:  # nearly always
        machine.memo.append(machine.stack[-1])
    else:
        machine.remember(number)


def _memoize(machine: Machine) -> None:
    machine.remember(len(machine.memo) + len(machine.far))


# ------------------------------------------------------------------------------------------------ containers


def _empty_tuple(machine: Machine) -> None:
    machine.stack.append(())


def _tuple(machine: Machine) -> None:
    values = machine.stack
    machine.stack = stack = machine.below.pop() if machine.below else machine.close_mark()
    machine.objects += 1
    stack.append(tuple(values))


def _tuple_of(length: int) -> Opcode:
    def gather(machine: Machine) -> None:
        stack = machine.stack
        if len(stack) < length:
            raise Broken("it takes from an empty stack")
        machine.objects += 1
        stack[-length:] = [tuple(stack[-length:])]

    return gather


def _empty_list(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append([])


def _list(machine: Machine) -> None:
    values = machine.close_mark()
    machine.objects += 1
    machine.stack.append(values)


def _append(machine: Machine) -> None:
    value = machine.stack.pop()
    _extend(machine, [value])


def _appends(machine: Machine) -> None:
    _extend(machine, machine.close_mark())


def _extend(machine: Machine, values: list[Value]) -> None:
    match machine.stack[-1]:
        case list() as items:
            items.extend(values)
        case Opaque() as made:
            made.items = _extended(made.items, values)
            machine.changed.append(made)
        case other:
            raise Broken(f"it appends to {_article(other)}")


def _extended(held: list[_Item] | None, values: Iterable[_Item]) -> list[_Item]:
    """In place: a program that appends a million times must not copy a million lists."""
    held = [] if held is None else held
    held.extend(values)
    return held


def _empty_dict(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append(Pairs())


def _dict(machine: Machine) -> None:
    values = machine.close_mark()
    machine.objects += 1
    machine.stack.append(Pairs())
    _set_pairs(machine, values)


def _setitem(machine: Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    target = machine.stack[-1]
    if type(target) is Pairs:
        machine.objects += 1
        target.pairs.append((key, value))
    else:
        _set_pairs(machine, [key, value])


def _setitems(machine: Machine) -> None:
    _set_pairs(machine, machine.close_mark())


def _set_pairs(machine: Machine, values: list[Value]) -> None:
    if len(values) % 2:
        raise Broken("it sets a key without a value")
    pairs = zip(values[::2], values[1::2], strict=True)
    machine.objects += len(values) // 2
    match machine.stack[-1]:
        case Pairs() as mapping:
            mapping.pairs.extend(pairs)
        case Opaque() as made:
            made.pairs = _extended(made.pairs, pairs)
            machine.changed.append(made)
        case other:
            raise Broken(f"it sets a key of {_article(other)}")


def _empty_set(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append(Unordered([]))


def _additems(machine: Machine) -> None:
    values = machine.close_mark()
    match machine.stack[-1]:
        case Unordered(items=items):
            items.extend(values)
        case Opaque() as made:
            made.items = _extended(made.items, values)
            machine.changed.append(made)
        case other:
            raise Broken(f"it adds to {_article(other)}")


def _frozenset(machine: Machine) -> None:
    values = machine.close_mark()
    machine.objects += 1
    machine.stack.append(Unordered(values))


def _article(value: Value) -> str:
    return f"a value of type {type(value).__name__}"


# ------------------------------------------------------------------------------------------------ globals and calls


def _global(machine: Machine) -> None:
    module, name = utf8(machine.line()), utf8(machine.line())
    machine.push_global(module, name, "GLOBAL")


def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if isinstance(module, str) and isinstance(name, str):
        machine.push_global(module, name, "STACK_GLOBAL")
        return
    machine.note("", "something that it computes", "STACK_GLOBAL")
    if not isinstance(module, (str, Opaque)) or not isinstance(name, (str, Opaque)):
        raise Broken(f"it names a global by {_article(module)} and {_article(name)}")
    machine.stack.append(Opaque(None, (module, name)))


def _inst(machine: Machine) -> None:
    module, name = utf8(machine.line()), utf8(machine.line())
    callee = machine.name(module, name, "INST")
    arguments = tuple(machine.close_mark())
    machine.stack.append(machine.call(callee, arguments, "INST"))


def _obj(machine: Machine) -> None:
    values = machine.close_mark()
    if not values:
        raise Broken("it makes an object of no class")
    machine.stack.append(machine.call(values[0], tuple(values[1:]), "OBJ"))


def _reduce(machine: Machine) -> None:
    arguments = machine.stack.pop()
    callee = machine.stack.pop()
    machine.stack.append(machine.call(callee, arguments, "REDUCE"))


def _newobj(machine: Machine) -> None:
    arguments = machine.stack.pop()
    callee = machine.stack.pop()
    machine.stack.append(machine.call(callee, arguments, "NEWOBJ"))


def _newobj_ex(machine: Machine) -> None:
    keywords, arguments, callee = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    made = machine.call(callee, arguments, "NEWOBJ_EX")
    if isinstance(made, Opaque):
        made.state = keywords
        machine.changed.append(made)
    machine.stack.append(made)


def _build(machine: Machine) -> None:
    state = machine.stack.pop()
    match machine.stack[-1]:
        case Opaque() as made:
            if is_forged(made.callee, made.args, state):
                machine.note("", "fields of a numpy dtype that lie outside of it, or are pointers", "BUILD")
            made.state = state if made.state is None else (made.state, state)
            machine.changed.append(made)
        case Pairs() as mapping:
            mapping.state = state if mapping.state is None else (mapping.state, state)
        case Global(module, name):
            machine.note(module, name, "BUILD")
            raise Broken(f"it changes {printable(f'{module}.{name}', 80)} itself, which no data does")
        case other:
            raise Broken(f"it sets the state of {_article(other)}")


def _persid(machine: Machine) -> None:
    machine.stack.append(utf8(machine.line()))
    _binpersid(machine)


def _binpersid(machine: Machine) -> None:
    stack = machine.stack
    machine.objects += 1
    stack[-1] = found = PersistentId(stack[-1])
    machine.persistent.append(found)


def _extension(width: int) -> Opcode:
    def refuse(machine: Machine) -> None:
        code = machine.number(width)
        machine.note("", f"extension {code} of copyreg", f"EXT{width}")
        raise Broken(f"it uses extension {code} of copyreg, which means something else in every process")

    return refuse


def _out_of_band(_: Machine) -> None:
    raise Broken("it refers to a buffer that is not in the file")


def _unknown(machine: Machine) -> None:
    raise Broken(f"0x{machine.data[machine.opcode_at]:02x} is no opcode")


_OPCODES: Final[dict[bytes, Opcode]] = {
    **SCALARS,
    b"\x80": _proto,
    b"\x95": _frame,
    b".": _stop,
    b"(": _mark,
    b"0": _pop,
    b"1": _pop_mark,
    b"2": _dup,
    b"g": _get_text,
    b"h": _binget,
    b"j": _long_binget,
    b"p": _put_text,
    b"q": _binput,
    b"r": _long_binput,
    b"\x94": _memoize,
    b")": _empty_tuple,
    b"t": _tuple,
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"]": _empty_list,
    b"l": _list,
    b"a": _append,
    b"e": _appends,
    b"}": _empty_dict,
    b"d": _dict,
    b"s": _setitem,
    b"u": _setitems,
    b"\x8f": _empty_set,
    b"\x90": _additems,
    b"\x91": _frozenset,
    b"c": _global,
    b"\x93": _stack_global,
    b"i": _inst,
    b"o": _obj,
    b"R": _reduce,
    b"\x81": _newobj,
    b"\x92": _newobj_ex,
    b"b": _build,
    b"P": _persid,
    b"Q": _binpersid,
    b"\x82": _extension(1),
    b"\x83": _extension(2),
    b"\x84": _extension(4),
    b"\x97": _out_of_band,
    b"\x98": _out_of_band,
}
DISPATCH: Final = tuple(_OPCODES.get(bytes([code]), _unknown) for code in range(256))
