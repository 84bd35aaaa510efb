"""The inert interpreter: faithful to plain data, deaf to calls, and quick whatever it is given."""

from __future__ import annotations

import collections
import pickle
import pickletools
import random
import struct
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from torch_writer import call, dict_of, list_of, name, number, program, stack_name, text, tuple_of

from repokit.formats import inert_pickle
from repokit.formats.inert_pickle import UnreadablePickle, interpret, interpret_all
from repokit.formats.pickle_globals import Grade
from repokit.formats.pickle_values import Global, Opaque, Pairs, PersistentId, Unordered, walk

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = SCALARS | st.tuples(SCALARS, SCALARS)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(collections.OrderedDict)
        | st.sets(HASHABLE, max_size=4)
        | st.binary(max_size=8).map(bytearray)
    ),
    max_leaves=20,
)
PROTOCOLS = st.integers(0, pickle.HIGHEST_PROTOCOL)


def read(data, **options):
    return interpret(data, path="x.pkl", **options)


def value_of(part):
    return read(program(part)).value


def refusal(data):
    with pytest.raises(UnreadablePickle) as caught:
        read(data)
    return caught.value


def names(interpreted):
    return {found.dotted: found.grade for found in interpreted.globals}


def python(value):
    """The stand-ins of plain data as the Python values that they stand for."""
    match value:
        case Pairs(pairs=pairs):
            return {python(key): python(item) for key, item in pairs}
        case Unordered(items=items):
            return {python(item) for item in items}
        case tuple():
            return tuple(map(python, value))
        case list():
            return list(map(python, value))
    return value


# ------------------------------------------------------------------------------------------------ plain data


@FUZZ
@given(PLAIN, PROTOCOLS)
def test_plain_data_come_back_at_every_protocol(data, protocol):
    assert python(read(pickle.dumps(data, protocol)).value) == data


@FUZZ
@given(PLAIN, PROTOCOLS)
def test_plain_data_name_nothing_that_is_worse_than_safe(data, protocol):
    assert {found.grade for found in read(pickle.dumps(data, protocol)).globals} <= {Grade.SAFE}


@FUZZ
@given(st.lists(PLAIN, min_size=1, max_size=4), PROTOCOLS, st.binary(max_size=5))
def test_pickles_one_after_another_are_read_one_by_one(values, protocol, before):
    data = before + b"".join(pickle.dumps(value, protocol) for value in values)
    streams = interpret_all(data, path="x.pkl", start=len(before))
    assert [python(stream.value) for stream in streams] == values
    assert streams[-1].end == len(data)


def test_a_list_that_holds_itself_is_read_and_walked():
    loop: list[object] = []
    loop.append(loop)
    value = read(pickle.dumps(loop)).value
    assert list(walk(value)) == [value]


def test_keys_may_repeat_and_be_of_any_kind():
    assert [key for key, _ in value_of(dict_of(("a", b"N"), ("a", b"N"), (b"]", b"N"))).pairs] == ["a", "a", []]


def test_text_of_python_2_is_text_where_it_is_utf8_and_bytes_where_it_is_not():
    assert value_of(tuple_of(b"U\x02\xc3\xa4", b"U\x01\xff", b"S'a\\x41\\n'\n")) == ("ä", b"\xff", "aA\n")


def test_an_ordered_dict_of_python_2_brings_its_pairs():
    pairs = list_of(list_of(text("a"), number(1)), list_of(text("b"), number(2)))
    assert python(value_of(call(name("collections", "OrderedDict"), pairs))) == {"a": 1, "b": 2}


def test_a_persistent_id_keeps_what_it_refers_to():
    found = read(program(tuple_of(text("storage"), number(7)) + b"Q"))
    assert isinstance(found.value, PersistentId)
    assert found.value.value == ("storage", 7)
    assert found.persistent == (found.value,)


# ------------------------------------------------------------------------------------------------ calls


def test_a_call_is_a_record_of_what_would_be_called():
    value = value_of(call(name("my.module", "Model"), number(3)))
    assert isinstance(value, Opaque)
    assert (value.callee, value.args) == (Global("my.module", "Model"), (3,))


def test_state_items_and_pairs_of_an_object_are_kept():
    part = call(name("m", "C")) + dict_of(("a", number(1))) + b"b" + number(2) + b"a" + text("k") + number(3) + b"s"
    value = value_of(part)
    assert (python(value.state), value.items, value.pairs) == ({"a": 1}, [2], [("k", 3)])


@pytest.mark.parametrize(
    ("part", "via"),
    [
        (name("os", "system"), "GLOBAL"),
        (stack_name("os", "system"), "STACK_GLOBAL"),
        (b"(" + text("x") + b"ios\nsystem\n", "INST"),
    ],
)
def test_a_global_is_found_however_it_is_named(part, via):
    (found,) = read(program(part, 4)).globals
    assert (found.module, found.name, found.grade, found.via) == ("os", "system", Grade.EXECUTES, via)


def test_a_global_is_found_at_its_place_and_counted():
    data = program(list_of(name("os", "system"), name("os", "system")))
    (found,) = read(data).globals
    assert (found.times, data[found.position : found.position + 10]) == (2, b"cos\nsystem")


def test_a_global_that_is_dropped_again_is_found():
    assert names(read(program(name("os", "system") + b"0N"))) == {"os.system": Grade.EXECUTES}


@pytest.mark.parametrize("opcode", [b"R", b"\x81"])
def test_a_call_of_a_result_is_named_as_computed(opcode):
    made = call(name("my.module", "Model"))
    assert Grade.EXECUTES in names(read(program(made + b")" + opcode, 4))).values()


def test_a_name_that_is_computed_is_not_lost():
    computed = call(name("my.module", "name"))
    grades = names(read(program(text("os") + computed + b"\x93", 4)))
    assert grades["something that it computes"] is Grade.EXECUTES


def test_what_changes_a_class_is_refused_and_named():
    error = refusal(program(name("torch", "Tensor") + dict_of(("__reduce__", b"N")) + b"b"))
    assert ("torch.Tensor", Grade.EXECUTES) in {(found.dotted, found.grade) for found in error.globals}


@pytest.mark.parametrize("opcode", [b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00"])
def test_an_extension_is_refused_and_named(opcode):
    (found,) = refusal(program(opcode)).globals
    assert (found.dotted, found.grade) == ("extension 1 of copyreg", Grade.EXECUTES)


# ------------------------------------------------------------------------------------------------ members of enumerations

GETATTR = name("builtins", "getattr")
STRATEGY = name("transformers.trainer_utils", "IntervalStrategy")


def test_looking_up_a_member_of_a_known_enumeration_is_inert():
    assert names(read(program(call(GETATTR, STRATEGY, text("STEPS")))))["builtins.getattr"] is Grade.INERT_KNOWN


def test_the_same_through_the_memo_is_inert():
    again = b"h\x01" + tuple_of(STRATEGY, text("NO")) + b"R"
    part = list_of(GETATTR + b"q\x01" + tuple_of(STRATEGY, text("STEPS")) + b"R", again)
    assert names(read(program(part)))["builtins.getattr"] is Grade.INERT_KNOWN


@pytest.mark.parametrize(
    "part",
    [
        call(GETATTR, STRATEGY, text("__init__")),
        call(GETATTR, STRATEGY, text("mro")),
        call(GETATTR, STRATEGY, call(name("m", "name"))),
        call(GETATTR, name("os", "PathLike"), text("STEPS")),
        call(GETATTR, name("pathlib", "Path"), text("STEPS")),
        call(GETATTR, call(name("transformers.trainer_utils", "IntervalStrategy")), text("STEPS")),
        call(GETATTR, STRATEGY, text("STEPS"), b"N"),
        call(name("m", "call"), GETATTR, STRATEGY, text("STEPS")),
        list_of(call(GETATTR, STRATEGY, text("STEPS")), GETATTR),
        list_of(GETATTR + b"q\x01" + tuple_of(STRATEGY, text("STEPS")) + b"R", b"h\x01"),
        list_of(GETATTR + b"2" + tuple_of(STRATEGY, text("STEPS")) + b"R"),
        b"(" + STRATEGY + text("STEPS") + b"ibuiltins\ngetattr\n",
    ],
)
def test_any_other_use_of_getattr_executes(part):
    assert names(read(program(part)))["builtins.getattr"] is Grade.EXECUTES


def test_calling_what_getattr_gave_executes():
    grades = names(read(program(call(call(GETATTR, STRATEGY, text("STEPS"))))))
    assert grades["the call of what builtins.getattr gives"] is Grade.EXECUTES


# ------------------------------------------------------------------------------------------------ nothing runs


def touching(path):
    """A payload for every opcode that calls: it would make an empty file."""
    make, arguments = name("os", "mkdir"), text(str(path))
    instance = b"(" + arguments
    return {
        "GLOBAL and REDUCE": program(call(make, arguments)),
        "STACK_GLOBAL": program(call(stack_name("os", "mkdir"), arguments), 4),
        "INST": program(instance + b"ios\nmkdir\n"),
        "OBJ": program(b"(" + make + arguments + b"o"),
        "protocol 0": b"cos\nmkdir\n(S" + ascii(str(path)).encode() + b"\ntR.",
        "NEWOBJ": program(name("pathlib", "Path") + b")\x81" + b"0" + call(make, arguments), 4),
        "NEWOBJ_EX": program(name("collections", "Counter") + b")}\x920" + call(make, arguments), 4),
        "BUILD": program(call(name("argparse", "Namespace")) + dict_of(("x", call(make, arguments))) + b"b"),
        "popped": program(call(make, arguments) + b"0N"),
        "through a map": program(
            call(name("builtins", "list"), call(name("builtins", "map"), make, list_of(arguments)))
        ),
        "then broken": program(call(make, arguments))[:-1] + b"\xff",
        "in a frame that lies": b"\x80\x04\x95" + struct.pack("<Q", 2) + call(make, arguments) + b".",
    }


PAYLOADS = sorted(touching(""))


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_payload_does_not_run_and_is_named(kind, tmp_path):
    data = touching(tmp_path / "canary")[kind]
    try:
        found = read(data).globals
    except UnreadablePickle as error:
        found = error.globals
    assert {"os.mkdir": Grade.EXECUTES}.items() <= {one.dotted: one.grade for one in found}.items()
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("kind", PAYLOADS)
def test_the_canary_would_be_seen_with_pickle(kind, tmp_path):
    data = touching(tmp_path / "canary")[kind]
    load = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    subprocess.run([sys.executable, "-c", load], input=data, capture_output=True, check=False)
    assert (tmp_path / "canary").exists()


def test_nothing_is_imported(tmp_path, monkeypatch):
    (tmp_path / "never_imported.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    read(program(call(name("never_imported", "Model"))))
    assert "never_imported" not in sys.modules


# ------------------------------------------------------------------------------------------------ what breaks off


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"N",
        b"\x80\x09N.",
        b".",
        b"NN.",
        b"(N.",
        b"0.",
        b"h\x03.",
        b"R.",
        program(b"N)R"),
        program(name("m", "C") + b"]R"),
        program(b"]" + b"N" + b"s"),
        program(b"Na"),
        program(b"\x8b\x00\x00\x10\x00" + b"\x7f" * 0x100000),
        b"I" + b"9" * 200 + b"\n.",
        b"Inone\n.",
        b"F1.0.0\n.",
        b"S'open\n.",
        b"S'\\q'\n.",
        b"V\\uD8\n.",
        b"p-1\n.",
        b"c\xff\nx\n.",
        b"X\x02\x00\x00\x00\xff\xff.",
        program(b"X\xff\xff\xff\xffa"),
        program(b"\x8e" + struct.pack("<Q", 2**62)),
        program(b"\x95" + struct.pack("<Q", 2**62) + b"N", 4),
        program(b"\x97", 5),
        program(b"}(Nu"),
        program(b"K\x01\x93"),
        b"\xff.",
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_is_no_pickle_is_refused(data):
    assert refusal(data).why


def test_an_error_carries_the_globals_that_came_before():
    error = refusal(program(name("os", "system"))[:-1] + b"\xff")
    assert [(found.dotted, found.position) for found in error.globals] == [("os.system", 2)]


def test_an_error_of_a_later_pickle_carries_the_globals_of_all():
    data = program(name("os", "system")) + program(name("os", "popen"))[:-1]
    with pytest.raises(UnreadablePickle) as caught:
        interpret_all(data, path="x.pkl")
    assert [found.dotted for found in caught.value.globals] == ["os.system", "os.popen"]


def test_what_is_cut_off_says_so():
    data = pickle.dumps({"a": [1, 2, "three"]}, 4)
    assert all(refusal(data[:length]).truncated for length in range(11, len(data)))


# ------------------------------------------------------------------------------------------------ bombs


@pytest.mark.parametrize(
    ("limit", "part"),
    [
        ("MAX_OPCODES", b"N0" * 50_000),
        ("MAX_OBJECTS", b"]0" * 50_000),
    ],
)
def test_a_program_that_goes_on_and_on_is_stopped(limit, part, monkeypatch):
    monkeypatch.setattr(inert_pickle, limit, 20_000)
    assert "more than 20,000" in refusal(program(part + b"N")).what


def test_marks_in_marks_are_limited():
    assert "nests deeper" in refusal(program(b"(" * 100_000)).what


def test_different_globals_are_limited():
    part = b"".join(name("m", f"n{number}") + b"0" for number in range(10_001))
    assert "different globals" in refusal(program(part + b"N")).what


MEMO_STEPS = st.lists(
    st.integers(0, 4).map(number)
    | st.integers(0, 5).map(lambda slot: b"q" + bytes([slot]))
    | st.integers(0, 5).map(lambda slot: b"r" + struct.pack("<I", slot))
    | st.integers(0, 5).map(lambda slot: b"h" + bytes([slot]))
    | st.sampled_from([b"\x94", b"0", b"2", b"p2\n", b"g2\n"]),
    max_size=14,
)


@FUZZ
@given(MEMO_STEPS)
def test_the_memo_is_that_of_pickle_in_whatever_order_it_is_numbered(steps):
    data = program(b"(" + b"".join(steps) + b"t", 4)
    theirs = restricted(data)
    if theirs is None:
        refusal(data)
    else:
        assert read(data).value == theirs.value


def test_values_that_are_numbered_as_no_pickler_does_are_limited():
    part = b"N" + b"".join(b"r" + struct.pack("<I", 1000 + 2 * slot) for slot in range(100_001))
    assert "numbers more than" in refusal(program(part)).what


def test_a_high_number_of_the_memo_takes_no_memory_for_those_below():
    assert value_of(b"Nr\xff\xff\xff\xff") is None


def test_values_in_values_a_million_deep_are_read_and_dropped():
    part = b")" + b"\x85" * 1_000_000
    assert type(value_of(part)) is tuple


def test_a_tuple_whose_hash_takes_years_can_be_a_key():
    levels = b"".join(b"(" + (b"h" + bytes([level])) * 10 + b"tq" + bytes([level + 1]) + b"0" for level in range(60))
    value = value_of(b")q\x000" + levels + b"}h\x3cNs")
    assert len(value.pairs) == 1


def test_a_list_that_grows_without_end_when_it_is_written_out_is_walked_once():
    levels = b"".join(b"](" + (b"h" + bytes([level])) * 10 + b"eq" + bytes([level + 1]) + b"0" for level in range(60))
    value = value_of(b"]q\x000" + levels + b"h\x3c")
    assert sum(1 for _ in walk(value)) == 61


def test_a_million_single_items_of_an_object_are_kept_in_place():
    part = call(name("m", "C")) + b"K\x01K\x01s" * 200_000
    assert len(value_of(part).pairs) == 200_000


def test_arguments_of_a_safe_constructor_allocate_nothing():
    assert isinstance(value_of(call(name("builtins", "bytearray"), number(10**12))), Opaque)


# ------------------------------------------------------------------------------------------------ anything

CORPUS = [
    pickle.dumps({"a": [1.5, "x", b"y", (None, True)], "s": {1, 2}, "o": collections.OrderedDict(a=1)}, p)
    for p in range(6)
]
CORPUS += [program(call(name("m", "C"), number(1)) + dict_of(("a", b"]")) + b"b", 4)]


@FUZZ
@given(st.sampled_from(CORPUS), st.randoms(use_true_random=False), st.integers(1, 6))
def test_mutated_pickles_are_read_or_refused(data, rng, changes):
    mutated = bytearray(data)
    for _ in range(changes):
        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
    read_or_refused(bytes(mutated))


@FUZZ
@given(st.lists(st.sampled_from([op.code.encode("latin-1") for op in pickletools.opcodes]) | st.binary(max_size=4)))
def test_any_sequence_of_opcodes_is_read_or_refused(parts):
    read_or_refused(b"".join(parts) + b".")


def test_many_mutations_of_a_seeded_generator_are_read_or_refused():
    rng = random.Random(7)
    for _ in range(5_000):
        data = bytearray(rng.choice(CORPUS))
        for _ in range(rng.randrange(1, 5)):
            position = rng.randrange(len(data))
            data[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        read_or_refused(bytes(data))


def read_or_refused(data):
    try:
        found = read(data)
    except UnreadablePickle:
        return
    assert 0 < found.end <= len(data)


@FUZZ
@given(st.sampled_from(CORPUS), st.randoms(use_true_random=False))
def test_what_pickle_would_load_is_never_another_value(data, rng):
    """Where both read a mutated pickle of plain data, they read the same; ours may refuse more."""
    mutated = bytearray(data)
    mutated[rng.randrange(len(mutated))] = rng.randrange(256)
    theirs = restricted(bytes(mutated))
    if theirs is None:
        return
    try:
        ours = python(read(bytes(mutated)).value)
    except (UnreadablePickle, TypeError):  # python() hashes what a pickle may hold as a key
        return
    assert repr(ours) == repr(theirs.value)


class Loaded:
    def __init__(self, value):
        self.value = value


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError


def restricted(data):
    """What pickle makes of it without any global; None where it does not."""
    import io

    try:
        return Loaded(PlainUnpickler(io.BytesIO(data)).load())
    except Exception:  # noqa: BLE001 - whatever it raises, it did not read the pickle
        return None
