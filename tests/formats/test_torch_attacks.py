"""Torch files that torch.load reads differently from what they seem to hold, and those that keep a reader busy."""

from __future__ import annotations

import io
import struct
import tarfile

import pytest
from torch_writer import (
    FOUR_FLOATS,
    ORDERED_DICT,
    Entry,
    archive,
    call,
    dict_of,
    legacy,
    list_of,
    name,
    number,
    program,
    storage,
    tensor,
    text,
    torch_entries,
    torch_zip,
    tuple_of,
)

from repokit.errors import InputError, MalformedFile
from repokit.formats.inert_pickle import UnreadablePickle, interpret
from repokit.formats.pickle_globals import Grade
from repokit.formats.torch_file import check_trusted, read_torch_file, scan

STATE = dict_of(("w", tensor()))
OTHER = storage("FloatStorage", "1", 4)
TWO = {"0": FOUR_FLOATS, "1": bytes(16)}


def opened(content):
    return read_torch_file(lambda at, length: content[at : at + length], len(content), "model.bin")


def scanned(content):
    return scan(lambda at, length: content[at : at + length], len(content), "model.bin")


def grades(part):
    return {one.dotted: one.grade for one in interpret(program(part), path="x.pkl").globals}


# ------------------------------------------------------------------------------------------------ archives


def entries(**changes):
    """The members of a checkpoint, some renamed or put in."""
    found = {entry.name.partition("/")[2]: entry for entry in torch_entries(program(STATE))}
    for key, path in changes.items():
        entry = found[key]
        found[path] = Entry(f"archive/{path}", entry.content)
    return found


def with_directory_flag(content):
    """The attributes of the first storage say that it is a folder."""
    at = content.rindex(b"archive/data/0") - 46
    return content[: at + 38] + b"\x10" + content[at + 39 :]


def with_a_second_name(content):
    at = content.rindex(b"archive/version") - 46
    field = struct.pack("<HH", 0x7075, 5) + b"\1aaaa"
    grown = bytearray(content[:at] + content[at : at + 61] + field + content[at + 61 :])
    grown[at + 30 : at + 32] = struct.pack("<H", len(field))
    length = struct.unpack_from("<I", grown, len(grown) - 10)[0] + len(field)
    grown[-10:-6] = struct.pack("<I", length)
    return bytes(grown)


def with_a_long_local_field(content):
    """The contents of the storage lie behind it, by a header that only some readers look at."""
    at = content.index(b"archive/data/0") - 30
    return content[: at + 28] + struct.pack("<H", 60) + content[at + 30 :]


PLAIN = archive(torch_entries(program(STATE)))
ARCHIVES = {
    "a second pickle": (archive([*entries(**{"data.pkl": "DATA.pkl"}).values()]), "beside|unlike"),
    "the byte order in capitals": (
        archive([Entry("archive/BYTEORDER", b"big"), *torch_entries(program(STATE))]),
        "beside|unlike",
    ),
    "only that": (
        archive([Entry("archive/BYTEORDER", b"big"), *(e for k, e in entries().items() if k != "byteorder")]),
        "unlike",
    ),
    "a storage twice but for its case": (
        archive([Entry("archive/Data/0", bytes(16)), *torch_entries(program(STATE))]),
        "beside",
    ),
    "a storage that is a folder": (with_directory_flag(PLAIN), "folder by its attributes"),
    "a second name": (with_a_second_name(PLAIN), "second name"),
    "contents in the next member": (with_a_long_local_field(PLAIN), "reaches into"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_torch_reads_otherwise_is_refused(kind):
    content, words = ARCHIVES[kind]
    with pytest.raises(MalformedFile, match=words):
        opened(content)


def test_a_file_without_checksums_is_read():
    unchecked = [
        Entry(e.name, e.content, flags=e.flags, padding=e.padding, crc=0) for e in torch_entries(program(STATE))
    ]
    assert list(opened(archive(unchecked)).tensors) == ["w"]


def tar_too():
    """A legacy checkpoint that is a tar archive: the header of its first member is a text in the third pickle."""
    before = legacy(STATE)[: len(legacy(STATE)) - len(legacy(STATE).partition(b"protocol_version")[2])]
    begin = before[: before.index(b"\x80\x02", 20)] + b"\x80\x02}(" + text("a") + b"X"
    block = bytearray(begin + struct.pack("<I", 512 - len(begin) - 4) + b"a" * (512 - len(begin) - 4))
    block[100:148] = b"0000644\0" + 2 * b"0000000\0" + 2 * b"00000000000\0"
    block[148:157] = b" " * 8 + b"0"
    block[329:345] = 2 * b"0000000\0"
    block[148:156] = b"%06o\0 " % sum(block)
    rest = text("little_endian") + b"\x88u." + program(STATE) + program(list_of(text("0")))
    return bytes(block) + rest + struct.pack("<q", 4) + FOUR_FLOATS + bytes(1024)


@pytest.mark.parametrize("read", [opened, scanned])
def test_a_checkpoint_that_is_a_tar_archive_too_is_refused(read):
    content = tar_too()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as file:  # torch.load tries that first
        assert file.getmembers()
    with pytest.raises(MalformedFile, match="pickle and a tar archive"):
        read(content)


# ------------------------------------------------------------------------------------------------ tensors

TYPED = (name("torch._utils", "_rebuild_tensor_v2"), name("torch", "Tensor"))
ARGUMENTS = tuple_of(
    storage("FloatStorage", "0", 4), number(0), tuple_of(number(4)), tuple_of(number(1)), b"\x89", ORDERED_DICT
)
DATA = dict_of(("data", tensor(stored=OTHER)))
CHANGED = {
    "BUILD": tensor() + tuple_of(OTHER, number(0), tuple_of(number(4)), tuple_of(number(1))) + b"b",
    "SETITEM": tensor() + number(0) + number(5) + b"s",
    "APPEND": tensor() + number(0) + b"a",
    "ADDITEMS": tensor() + b"(" + number(0) + b"\x90",
    "keywords": name("torch._utils", "_rebuild_tensor_v2") + ARGUMENTS + dict_of(("metadata", b"N")) + b"\x92",
    "data of a parameter": call(
        name("torch._utils", "_rebuild_parameter_with_state"), tensor(), b"\x89", ORDERED_DICT, DATA
    ),
    "data of a subclass": call(name("torch._tensor", "_rebuild_from_type_v2"), *TYPED, ARGUMENTS, DATA),
    "data in slots": call(name("torch._tensor", "_rebuild_from_type_v2"), *TYPED, ARGUMENTS, tuple_of(b"N", DATA)),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_a_tensor_that_the_pickle_changes_is_refused(kind):
    with pytest.raises(MalformedFile, match=r"changes a tensor|replaces its values"):
        opened(torch_zip(dict_of(("w", CHANGED[kind])), TWO))


def test_a_change_through_a_view_that_is_thrown_away_is_refused():
    thrown = CHANGED["SETITEM"] + b"0"
    with pytest.raises(MalformedFile, match="changes a tensor"):
        opened(torch_zip(thrown + STATE))


def test_attributes_of_a_parameter_are_dropped():
    made = call(
        name("torch._utils", "_rebuild_parameter_with_state"), tensor(), b"\x89", ORDERED_DICT, dict_of(("note", b"N"))
    )
    assert opened(torch_zip(dict_of(("w", made)))).tensors["w"].is_parameter


@pytest.mark.parametrize("part", [("w", number(5)), ("w", dict_of(("x", tensor())))], ids=["number", "dict"])
def test_a_key_that_stands_twice_is_refused_whatever_it_holds(part):
    with pytest.raises(MalformedFile, match="stands there twice"):
        opened(torch_zip(dict_of(("model", dict_of(("w", tensor()), part)))))


def test_a_view_is_of_the_legacy_format_only():
    view = storage("FloatStorage", "0", 4, tuple_of(text("v"), number(2), number(2)))
    with pytest.raises(MalformedFile, match="legacy format"):
        opened(torch_zip(dict_of(("w", tensor((2,), stored=view)))))


@pytest.mark.parametrize(
    ("first", "second", "words"), [("v", "v", "name of two views"), ("v", "0", "name of a storage")]
)
def test_views_of_one_name_are_refused(first, second, words):
    views = [
        storage("FloatStorage", "0", 4, tuple_of(text(key), number(at), number(2)))
        for key, at in ((first, 0), (second, 2))
    ]
    part = dict_of(*((f"w{at}", tensor((2,), stored=view)) for at, view in enumerate(views)))
    with pytest.raises(MalformedFile, match=words):
        _ = opened(legacy(part))


# ------------------------------------------------------------------------------------------------ globals

DETECTOR = ("ultralytics.nn.tasks", "DetectionModel")
GETATTR = name("builtins", "getattr")
STRATEGY = name("transformers.trainer_utils", "IntervalStrategy")


def new(module, attribute):
    return name(module, attribute) + b")\x81"


@pytest.mark.parametrize(
    "part",
    [
        call(name(*DETECTOR), dict_of(("activation", text("__import__('os')")))),
        call(name(*DETECTOR), text("x.yaml")),
        b"(" + text("x.yaml") + b"iultralytics.nn.tasks\nDetectionModel\n",
        b"(" + name(*DETECTOR) + text("x.yaml") + b"o",
        call(name("copyreg", "_reconstructor"), name(*DETECTOR), name(*DETECTOR), text("x.yaml")),
        call(name("torch._tensor", "_rebuild_from_type"), name(*DETECTOR), name("torch", "Tensor"), b")", b"}"),
    ],
    ids=["REDUCE", "a path", "INST", "OBJ", "_reconstructor", "_rebuild_from_type"],
)
def test_what_a_known_class_does_with_arguments_is_not_known(part):
    assert grades(part)[".".join(DETECTOR)] is Grade.UNKNOWN


@pytest.mark.parametrize(
    "part",
    [
        new(*DETECTOR),
        call(name(*DETECTOR)),
        call(name("copyreg", "_reconstructor"), name(*DETECTOR), name("builtins", "object"), b"N"),
    ],
    ids=["NEWOBJ", "no arguments", "_reconstructor"],
)
def test_a_known_class_that_is_only_made_is_inert(part):
    assert grades(part)[".".join(DETECTOR)] is Grade.INERT_KNOWN


def test_a_member_of_a_known_enumeration_is_inert():
    assert grades(call(STRATEGY, text("steps")))["transformers.trainer_utils.IntervalStrategy"] is Grade.INERT_KNOWN


def test_getattr_out_of_a_persistent_id_executes():
    hidden = tuple_of(text("module"), GETATTR) + b"Qq\x01"
    part = list_of(hidden + tuple_of(STRATEGY, text("STEPS")) + b"R", b"h\x01" + tuple_of(STRATEGY, text("mro")) + b"R")
    assert grades(part)["builtins.getattr"] is Grade.EXECUTES


@pytest.mark.parametrize(
    "function", [("torch._tensor", "_rebuild_from_type_v2"), ("torch._tensor", "_rebuild_from_type")]
)
def test_a_function_that_calls_a_result_executes(function):
    part = call(
        name(*function), call(name("torch.utils._pytree", "_identity"), b"N"), name("torch", "Tensor"), b")", b"}"
    )
    assert Grade.EXECUTES in grades(part).values()


# ------------------------------------------------------------------------------------------------ the machine


@pytest.mark.parametrize("class_", [("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "bytearray")])
def test_a_container_made_without_init_stays_empty(class_):
    made = interpret(program(name(*class_) + tuple_of(b"]") + b"\x81"), path="x.pkl").value
    assert type(made).__name__ == "Opaque"


def test_the_memo_counts_as_that_of_cpython():
    """A value is put in at 1 and 3, then at 0 and 1: MEMOIZE goes on at 3."""
    numbered = b"Nq\x010Nq\x030Nq\x000Nr\x01\x00\x00\x000" + text("last") + b"\x940h\x03"
    assert interpret(program(numbered, 4), path="x.pkl").value == "last"


# ------------------------------------------------------------------------------------------------ bombs


@pytest.mark.parametrize(
    ("callee", "value"),
    [
        (name("_codecs", "encode"), text("a" * 400_000) + text("latin1") + b"\x86"),
        (name("torch", "Size"), b"(" + b"N" * 400_000 + b"t\x85"),
        (name("collections", "OrderedDict"), b"](" + b"NN\x86" * 400_000 + b"e\x85"),
    ],
    ids=["text", "tuple", "list"],
)
def test_a_value_is_not_copied_over_and_over(callee, value):
    part = b"(" + callee + b"q\x00" + value + b"q\x01R" + b"h\x00h\x01R" * 300 + b"l"
    with pytest.raises(UnreadablePickle, match="copies its values"):
        interpret(program(part), path="x.pkl")


def deep_tuple():
    return text("k") + b"q\x05h\x05\x86" * 60


@pytest.mark.parametrize("key", [deep_tuple(), b"]"], ids=["a hash that takes years", "no hash"])
def test_a_key_is_never_hashed(key):
    with pytest.raises(InputError):
        opened(torch_zip(dict_of(("m.w", tensor()), (key, dict_of(("x", tensor()))))))


def doubled(part, times):
    """A dict that holds the one before twice."""
    for _ in range(times):
        part = b"}(" + text("a") + part + b"q\x10" + text("b") + b"h\x10u"
    return part


def test_dicts_that_share_their_dicts_are_not_unfolded():
    wide = b"}(" + text("t") + tensor() + b"".join(b"J" + struct.pack("<i", at) + b"N" for at in range(50_000)) + b"u"
    with pytest.raises(MalformedFile, match="entries beside them"):
        opened(torch_zip(dict_of(("model", doubled(wide, 20)))))


def test_a_list_that_many_share_is_not_searched_for_each():
    long = b"]q\x11(" + b"N" * 300_000 + b"e"
    keys = b"".join(b"J" + struct.pack("<i", at) + b"h\x11\x85" for at in range(1, 300))
    with pytest.raises(MalformedFile, match="too often"):
        opened(torch_zip(b"}(" + text("m.w") + tensor() + number(0) + long + keys + b"u"))


def test_a_key_longer_than_any_name_is_refused():
    with pytest.raises(MalformedFile, match="5,000 characters"):
        opened(torch_zip(dict_of(("model", dict_of(("w", tensor()), ("k" * 5000, dict_of(("x", tensor()))))))))


def test_pickles_in_an_archive_are_limited_together():
    busy = b"\x80\x02" + b"N0" * 3_000_000 + b"N."
    stored = archive([Entry(f"a/{at}.pkl", busy) for at in range(4)])
    with pytest.raises(UnreadablePickle, match="more than can be looked at"):
        scanned(stored)


def test_what_was_found_before_the_limit_is_told():
    attack = program(call(name("os", "system"), text("true")))
    busy = b"\x80\x02" + b"N0" * 3_000_000 + b"N."
    stored = archive([Entry("a/0.pkl", attack), *(Entry(f"a/{at}.pkl", busy) for at in range(1, 5))])
    with pytest.raises(UnreadablePickle) as caught:
        scanned(stored)
    assert "os.system" in {one.dotted for one in caught.value.globals}


def test_a_large_archive_in_another_is_not_inflated():
    inner = b"PK\x03\x04" + bytes(range(256)) * 256 * 1024
    with pytest.raises(UnreadablePickle, match=r"is an archive of 67\.1 MB in another"):
        scanned(archive([Entry("a/inner", inner, deflate=True)]))


def test_an_ordinary_checkpoint_is_read():
    file = opened(torch_zip(STATE))
    check_trusted(file)
    assert list(file.tensors) == ["w"]
