"""What numpy says of its dtypes is told from what takes over a process that believes it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from torch_writer import call, dict_of, name, number, program, text, tuple_of

from repokit.formats.inert_pickle import interpret
from repokit.formats.pickle_globals import Grade

NONE = b"N"
FALSE, TRUE = b"\x89", b"\x88"


def dtype(code, *, inner=NONE, names=NONE, fields=NONE, size=8, flags=0):
    """A dtype of numpy, with the state that `numpy.dtype.__reduce__` gives."""
    made = call(name("numpy", "dtype"), text(code), FALSE, TRUE)
    return made + tuple_of(number(3), text("|"), inner, names, fields, number(size), number(1), number(flags)) + b"b"


OBJECT = dtype("O8", size=-1, flags=63)
NAMES = tuple_of(text("a"))


def grades(part):
    return {one.grade for one in interpret(program(part), path="x.pkl").globals}


DTYPES = [
    *("f4", ">f4", "i8", "?", "c16", "U7", "S3", "V9", "O", "M8[ns]", "u1"),
    *([("a", "f4"), ("b", "i8")], [("a", "O"), ("b", "f4", (2, 3))], [("x", [("y", "u2"), ("z", "O")])]),
    {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]},
]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("spelled", DTYPES, ids=str)
def test_what_numpy_writes_is_trusted(spelled, protocol):
    content = pickle.dumps(np.zeros(2, np.dtype(spelled)), protocol)
    assert Grade.EXECUTES not in {one.grade for one in interpret(content, path="x.pkl").globals}


FORGED = {
    "pointers without their flags": dtype("V8", names=NAMES, fields=dict_of(("a", tuple_of(OBJECT, number(0))))),
    "an array of pointers without their flags": dtype("V8", inner=tuple_of(OBJECT, tuple_of(number(1)))),
    "object without its flags": dtype("O8", size=-1),
    "a field outside": dtype("V8", names=NAMES, fields=dict_of(("a", tuple_of(dtype("i8"), number(64))))),
    "a field before": dtype("V8", names=NAMES, fields=dict_of(("a", tuple_of(dtype("i8"), number(-8))))),
    "numbers that are smaller than they are": dtype("i8", size=1),
    "fields that are none": dtype("V8", names=NAMES, fields=number(5)),
    "an array larger than its element": dtype("V8", inner=tuple_of(dtype("i8"), tuple_of(number(2)))),
}


@pytest.mark.parametrize("part", FORGED.values(), ids=FORGED)
def test_a_forged_dtype_can_take_over_the_process(part):
    assert Grade.EXECUTES in grades(part)
