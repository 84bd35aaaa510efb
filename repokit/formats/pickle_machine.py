"""The state of an inert pickle interpreter: data, stack, memo, and the globals that were named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from repokit.formats.pickle_globals import Grade, grade, is_enumeration, modern
from repokit.formats.pickle_values import Global, Opaque, Pairs, PersistentId, Unordered, Value
from repokit.printable import printable

MAX_DEPTH: Final = 5000  # open marks: containers that are being filled; pickle itself gives up at about 500
MAX_NAME: Final = 1024  # characters of a module or name
MAX_GLOBALS: Final = 10_000  # different ones in a pickle; a checkpoint names fewer than 100
MAX_NAMED: Final = 300_000  # times that any is named; picklers name each once and recall it
MAX_FAR: Final = 100_000  # values that are not numbered one after another
MAX_LINE: Final = 1024 * 1024  # characters of an argument of protocol 0


class Broken(Exception):
    """The program cannot go on; the message says why, as a sentence about "it"."""


class Truncated(Exception):
    """The program goes on beyond the end of the data."""


class Machine:
    """What the opcodes of repokit.formats.pickle_opcodes work on.

    Attributes:
        stack: Of values, since the last open mark: nothing below a mark can be reached, as in CPython.
        below: The stacks under each open mark.
        memo: Values by number, as picklers number them: one after another.
        far: The values of all other numbers.
        named: How many opcodes named a global, or called what is none.
        objects: How many values were made that take memory of their own.
        found: Where each global was first named, and how often: by module, name and opcode.
        persistent: Every persistent id, in the order in which they were met.
        lookup: `builtins.getattr`, once it was named.
        called: Globals that a loader would call with arguments, which is more than to name them.
        changed: Results of calls that the program changes afterwards: by BUILD, SETITEM, APPEND or ADDITEMS.
        opcodes: How many were carried out, in whole strides.
    """

    __slots__ = (
        "_inert_lookups",
        "_interned",
        "_makers",
        "below",
        "called",
        "changed",
        "copied",
        "data",
        "far",
        "found",
        "lookup",
        "lookups",
        "memo",
        "named",
        "objects",
        "opcode_at",
        "opcodes",
        "persistent",
        "position",
        "stack",
        "start",
        "stopped",
    )

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.start = self.position = self.opcode_at = start
        self.stopped = False
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: list[Value] = []
        self.far: dict[int, Value] = {}
        self.named = 0
        self.objects = self.copied = self.opcodes = 0
        self.called: set[Global] = set()
        self.changed: list[Opaque] = []
        self.persistent: list[PersistentId] = []
        self.found: dict[tuple[str, str, str], tuple[int, int]] = {}
        self.lookup: Value = _NEVER
        self.lookups = self._inert_lookups = 0
        self._interned: dict[tuple[str, str], Global] = {}
        self._makers: dict[Global, Maker | None] = {}

    # -------------------------------------------------------------------------------------------- data

    def take(self, length: int) -> bytes:
        """The next bytes; asks for the length before it allocates."""
        position = self.position
        end = position + length
        if end > len(self.data):
            raise Truncated(f"it ends inside a value of {length:,} bytes")
        self.position = end
        return self.data[position:end]

    def number(self, length: int) -> int:
        """An unsigned little-endian integer."""
        return int.from_bytes(self.take(length), "little")

    def line(self) -> bytes:
        """An argument of protocol 0: up to the next newline, which is not part of it."""
        end = self.data.find(b"\n", self.position, self.position + MAX_LINE)
        if end < 0:
            if len(self.data) - self.position < MAX_LINE:
                raise Truncated("it ends inside a line")
            raise Broken(f"it has a line of more than {MAX_LINE:,} characters")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    # -------------------------------------------------------------------------------------------- stack

    def close_mark(self) -> list[Value]:
        """The values above the last mark, which goes away; its stack is the current one again."""
        values = self.stack
        if not self.below:
            raise Broken("it closes a mark that it has not set")
        self.stack = self.below.pop()
        return values

    def remember(self, number: int) -> None:
        """Puts the top of the stack into the memo."""
        memo = self.memo
        if number < len(memo):
            memo[number] = self.stack[-1]
        elif number == len(memo):
            memo.append(self.stack[-1])
            self.far.pop(number, None)  # else MEMOIZE, which counts both, would give out another number than CPython
        else:
            self.far[number] = self.stack[-1]
            if len(self.far) > MAX_FAR:
                raise Broken(f"it numbers more than {MAX_FAR:,} values as no pickler does")

    def recall(self, number: int) -> None:
        """Pushes a value of the memo."""
        try:
            value = self.memo[number]
        except IndexError:
            if number not in self.far:
                raise Broken(f"it recalls {number:,}, which it has not stored") from None
            value = self.far[number]
        if value is self.lookup:
            self.lookups += 1
        self.stack.append(value)

    # -------------------------------------------------------------------------------------------- globals

    def name(self, module: str, name: str, via: str) -> Global:
        """Notes a global and gives the pair that stands for it."""
        if len(module) > MAX_NAME or len(name) > MAX_NAME:
            self.note(module[:MAX_NAME], name[:MAX_NAME], via)
            raise Broken(f"it names a global of {len(module) + len(name):,} characters")
        self.note(module, name, via)
        known = self._interned.get((module, name))
        if known is None:
            known = self._interned[module, name] = Global(module, name)
            if self.lookup is _NEVER and modern(module, name) == _GETATTR:
                self.lookup = known
        return known

    def note(self, module: str, name: str, via: str) -> None:
        """Counts a global; the first position stays."""
        position, times = self.found.get((module, name, via), (self.opcode_at, 0))
        self.found[module, name, via] = position, times + 1
        self.named += 1
        if self.named > MAX_NAMED:
            raise Broken(f"it names globals more than {MAX_NAMED:,} times")
        if len(self.found) > MAX_GLOBALS:
            raise Broken(f"it names more than {MAX_GLOBALS:,} different globals")

    def push_global(self, module: str, name: str, via: str) -> None:
        """Names a global and pushes what stands for it."""
        value = self.name(module, name, via)
        if value is self.lookup:
            self.lookups += 1
        self.stack.append(value)

    @property
    def lookups_are_inert(self) -> bool:
        """Whether every `getattr` on the stack served to look up a member of an enumeration that is known to be inert.

        transformers' training_args.bin holds `getattr(IntervalStrategy, "STEPS")`, as Python 3.11 pickles members.
        What such a call gives is never called itself: that would be noted as a computed call.
        """
        return self.lookups == self._inert_lookups

    # -------------------------------------------------------------------------------------------- calls

    def call(self, callee: Value, args: Value, via: str) -> Value:
        """What stands for the result of a call: the value itself for constructors of plain data, else an Opaque."""
        if type(args) is not tuple:
            self.note_computed(callee, via)
            raise Broken(f"it calls {_shown(callee)} with something that is no tuple of arguments")
        self.objects += 1
        # getattr is counted when it comes to the stack. Out of a persistent id it would come uncounted.
        is_lookup = callee is self.lookup
        callee = _class_of(callee)
        if type(callee) is not Global:
            self.note_computed(callee, via)
            if not isinstance(callee, (Opaque, PersistentId)):
                raise Broken(f"it calls {_shown(callee)}")
            return Opaque(callee, args)
        if is_lookup and _is_member(args):
            self._inert_lookups += 1
        value = self.plain(callee, args, via)
        if value is not None:
            return value
        self.note_arguments(callee, args, via)
        return Opaque(callee, args)

    def plain(self, callee: Global, args: tuple[Value, ...], via: str) -> Value:
        """What a constructor of plain data gives; None where it is another call."""
        try:
            make = self._makers[callee]
        except KeyError:
            make = self._makers[callee] = _CONSTRUCTORS.get(modern(*callee))
        if make is None or (args and via in _WITHOUT_INIT):
            return None
        value = make(args)
        if args and isinstance(args[0], (str, list, tuple)):
            self.copied += len(args[0])
            # A program that uses each value once cannot copy more than its own length.
            if self.copied > len(self.data) + _FREE:
                raise Broken("it copies its values over and over")
        return value

    def note_arguments(self, callee: Global, args: tuple[Value, ...], via: str) -> None:
        """Notes what a call hands arguments to: the class itself, or what these functions call in their turn."""
        if via in _WITHOUT_INIT:
            return
        if (wrapped := _CALLERS.get(modern(*callee))) is None:
            if args and not _is_enumerator(callee, args):
                self.called.add(callee)
            return
        inner = args[wrapped] if len(args) > wrapped else None
        if isinstance(inner, (Opaque, PersistentId)):
            self.note_computed(inner, via)
        elif type(inner) is Global and modern(*inner) not in _BASES:
            self.called.add(inner)

    def note_computed(self, callee: Value, via: str) -> None:
        """Notes that something is called, or changed, that is itself a result: it can be anything."""
        if type(callee) is not Global:
            self.note("", f"the call of {_kind(callee)}", via)


def _class_of(callee: Value) -> Value:
    """The class itself where torch's legacy format puts `("module", class, file, source)` in its place."""
    match callee:
        case PersistentId(value=("module", Global() as module, *_)):
            return module
    return callee


_WITHOUT_INIT: Final = frozenset({"NEWOBJ", "NEWOBJ_EX"})  # they call __new__ only
_FREE: Final = 1024 * 1024  # elements that may be copied whatever the length

# Functions that call one of their arguments with others, and which one: torch/_tensor.py, Lib/copyreg.py (the base,
# whose __init__ is called), numpy/random/_pickle.py.
_CALLERS: Final[dict[tuple[str, str], int]] = {
    ("torch._tensor", "_rebuild_from_type"): 0,
    ("torch._tensor", "_rebuild_from_type_v2"): 0,
    ("torch.tensor", "_rebuild_from_type"): 0,
    ("copyreg", "_reconstructor"): 1,
    ("numpy.random._pickle", "__generator_ctor"): 1,
    ("numpy.random._pickle", "__randomstate_ctor"): 1,
}
# What they call in real files.
_BASES: Final = frozenset(
    {("builtins", name) for name in ("object", "dict", "list", "tuple", "set", "frozenset", "int", "float", "str")}
    | {("torch._utils", name) for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")}
    | {("torch._utils", name) for name in ("_rebuild_parameter", "_rebuild_parameter_with_state")}
    | {("numpy.random._pickle", "__bit_generator_ctor")}
)


def _is_enumerator(callee: Global, args: tuple[Value, ...]) -> bool:
    """Whether this is how Python pickles a member of an enumeration, or a string of a class of its own."""
    return len(args) == 1 and isinstance(args[0], (str, int)) and is_enumeration(callee.module)


_NEVER: Final = object()
_GETATTR: Final = ("builtins", "getattr")


def _is_member(args: tuple[Value, ...]) -> bool:
    """Whether the arguments of getattr name a constant of a class of known training software."""
    match args:
        case (Global(module, name), str(member)):
            third_party = module.partition(".")[0] in {"transformers", "accelerate", "torch", "trl", "peft"}
            return (
                third_party and member.isupper() and member.isidentifier() and grade(module, name) == Grade.INERT_KNOWN
            )
    return False


def _kind(value: Value) -> str:
    return f"what {value} gives" if isinstance(value, Opaque) else f"a value of type {type(value).__name__}"


def _shown(callee: Value) -> str:
    return printable(callee, 80) if isinstance(callee, Global) else printable(_kind(callee), 80)


# ------------------------------------------------------------------------------------------------ plain data


def _ordered_dict(args: tuple[Value, ...]) -> Value:
    """As Python 2 pickles it, an OrderedDict comes with a list of its pairs."""
    made = Pairs()
    match args:
        case ():
            return made
        case (list(items),) if all(type(pair) in {list, tuple} and len(pair) == 2 for pair in items):
            made.pairs.extend((pair[0], pair[1]) for pair in items)
            return made
    return None


def _set(args: tuple[Value, ...]) -> Value:
    match args:
        case ():
            return Unordered([])
        case (list(items),):
            return Unordered(list(items))
    return None


def _encoded(args: tuple[Value, ...]) -> Value:
    """Bytes before protocol 3: `_codecs.encode(text, "latin1")`; a bytearray has the same arguments."""
    match args:
        case (str(text), ("latin1" | "latin-1" | "utf-8" | "ascii") as encoding):
            try:
                return text.encode(encoding)
            except UnicodeError:
                return None
    return None


def _bytes(args: tuple[Value, ...]) -> Value:
    match args:
        case ():
            return b""
        case (bytes(content),):
            return content
    return _encoded(args)


def _complex(args: tuple[Value, ...]) -> Value:
    match args:
        case (float(real), float(imaginary)):
            return complex(real, imaginary)
    return None


def _size(args: tuple[Value, ...]) -> Value:
    match args:
        case ((tuple() | list()) as dimensions,) if type(dimensions) is not Global:
            return tuple(dimensions)
    return None


Maker = Callable[[tuple[Value, ...]], Value]
_CONSTRUCTORS: Final[dict[tuple[str, str], Maker]] = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("builtins", "set"): _set,
    ("builtins", "frozenset"): _set,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "bytes"): _bytes,
    ("builtins", "complex"): _complex,
    ("_codecs", "encode"): _encoded,
    ("torch", "Size"): _size,
}
