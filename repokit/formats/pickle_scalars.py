"""The opcodes of pickle that push a number or a text: protocols 0 to 2 write many in decimal, in lines.

Names, arguments and effects are those of CPython's Lib/pickletools.py.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from typing import Final

from repokit.formats.pickle_machine import Broken, Machine

MAX_INT_BYTES: Final = 64  # of a long; torch's magic number has 10
MAX_INT_TEXT: Final = 160  # digits of as many bytes

Opcode = Callable[[Machine], None]
_FLOAT: Final = struct.Struct(">d")


# ------------------------------------------------------------------------------------------------ scalars


def _none(machine: Machine) -> None:
    machine.stack.append(None)


def _true(machine: Machine) -> None:
    machine.stack.append(True)


def _false(machine: Machine) -> None:
    machine.stack.append(False)


def _binint(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


def _binint1(machine: Machine) -> None:
    position = machine.position
    machine.position = position + 1
    machine.stack.append(machine.data[position])


def _binint2(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append(machine.number(2))


def _long1(machine: Machine) -> None:
    _long(machine, machine.number(1))


def _long4(machine: Machine) -> None:
    _long(machine, machine.number(4))


def _long(machine: Machine, length: int) -> None:
    if length > MAX_INT_BYTES:
        raise Broken(f"it has an integer of {length:,} bytes")
    machine.objects += 1
    machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))


def _int_text(machine: Machine) -> None:
    line = machine.line()
    machine.stack.append({b"00": False, b"01": True}[line] if line in {b"00", b"01"} else integer(line))


def _long_text(machine: Machine) -> None:
    machine.stack.append(integer(machine.line().removesuffix(b"L")))


def integer(line: bytes) -> int:
    if len(line) > MAX_INT_TEXT:
        raise Broken(f"it has an integer of {len(line):,} digits")
    try:
        return int(line, 0)
    except ValueError:
        raise Broken("it has an integer that is none") from None


def _float_text(machine: Machine) -> None:
    line = machine.line()
    try:
        machine.stack.append(float(line))
    except ValueError:
        raise Broken("it has a floating-point number that is none") from None


def _binfloat(machine: Machine) -> None:
    machine.objects += 1
    machine.stack.append(_FLOAT.unpack(machine.take(8))[0])


# ------------------------------------------------------------------------------------------------ text and bytes


def _text_of(width: int) -> Opcode:
    def push(machine: Machine) -> None:
        position = machine.position
        machine.position = start = position + width
        raw = machine.take(int.from_bytes(machine.data[position:start], "little"))
        machine.objects += 1
        machine.stack.append(utf8(raw))

    return push


def utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Broken("it has text that is not UTF-8") from None


def _bytes_of(width: int) -> Opcode:
    def push(machine: Machine) -> None:
        machine.objects += 1
        machine.stack.append(machine.take(machine.number(width)))

    return push


def _string_of(width: int) -> Opcode:
    """A str of Python 2: text where it is UTF-8 (torch.load asks for that), else bytes."""

    def push(machine: Machine) -> None:
        machine.objects += 1
        machine.stack.append(_python2(machine.take(machine.number(width))))

    return push


def _python2(raw: bytes) -> str | bytes:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _string_text(machine: Machine) -> None:
    line = machine.line()
    if len(line) < 2 or line[:1] not in {b'"', b"'"} or line[:1] != line[-1:]:
        raise Broken("it has a string without quotes")
    if not _ESCAPED.fullmatch(line, 1, len(line) - 1):
        raise Broken("it has a string with an invalid escape")
    machine.objects += 1
    machine.stack.append(_python2(codecs.escape_decode(line[1:-1])[0]))


# What repr() wrote in Python 2, and the other escapes that `escape_decode` knows: any other one makes it warn.
_ESCAPED: Final = re.compile(rb"""(?:[^\\]|\\(?:[\\'"abfnrtv]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2}))*""")


def _unicode_text(machine: Machine) -> None:
    try:
        machine.stack.append(machine.line().decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        raise Broken("it has text with an invalid escape") from None
    machine.objects += 1


SCALARS: Final[dict[bytes, Opcode]] = {
    b"N": _none,
    b"\x88": _true,
    b"\x89": _false,
    b"J": _binint,
    b"K": _binint1,
    b"M": _binint2,
    b"\x8a": _long1,
    b"\x8b": _long4,
    b"I": _int_text,
    b"L": _long_text,
    b"F": _float_text,
    b"G": _binfloat,
    b"X": _text_of(4),
    b"\x8c": _text_of(1),
    b"\x8d": _text_of(8),
    b"V": _unicode_text,
    b"B": _bytes_of(4),
    b"C": _bytes_of(1),
    b"\x8e": _bytes_of(8),
    b"\x96": _bytes_of(8),  # BYTEARRAY8
    b"T": _string_of(4),
    b"U": _string_of(1),
    b"S": _string_text,
}
