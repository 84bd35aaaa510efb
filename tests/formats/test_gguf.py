"""The GGUF header reader: what it gives, what it refuses and where, how it reads, and that nothing else comes out."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.errors import InputError, LimitExceeded, MalformedFile
from repokit.formats.ggml_types import GGML_TYPES
from repokit.formats.gguf import FIRST_READ, MAX_NESTED, GgufArray, read_gguf
from repokit.linter.examples_gguf import Typed, contents, gguf_bytes, metadata, tensors

FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BASE = gguf_bytes(metadata(), tensors())
SMALL = gguf_bytes(metadata(), {"a.weight": ((4,), 0), "b.weight": ((32, 2), 8)})
LLAMA = {"general.architecture": "llama"}


def read(content, known=None):
    return read_gguf(lambda offset, length: content[offset : offset + length], len(content), "m.gguf", known)


def refusal(content):
    with pytest.raises(MalformedFile) as caught:
        read(content)
    return caught.value


def header(keys=0, count=0, body=b"", *, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, count, keys) + body


def text(value):
    content = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(content)) + content


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def info(name, dims=(8,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def with_infos(*infos, data=256):
    return header(0, len(infos), b"".join(infos)).ljust(512, b"\0") + bytes(data)


# ---------------------------------------------------------------- what it gives


def test_scalars_have_their_types_and_values():
    values = {"a": Typed("u8", 7), "b": Typed("i64", -3), "c": 0.5, "d": True, "e": "é", "f": Typed("u64", 2**63)}
    found = read(gguf_bytes(values, {})).metadata
    assert {key: (value.kind, value.value) for key, value in found.items()} == {
        "a": ("u8", 7),
        "b": ("i64", -3),
        "c": ("f32", 0.5),
        "d": ("bool", True),
        "e": ("string", "é"),
        "f": ("u64", 2**63),
    }


def test_an_array_of_strings_gives_its_bytes():
    array = read(gguf_bytes({"tokens": ["a", "", "Ġb"]}, {})).metadata["tokens"].value
    assert isinstance(array, GgufArray)
    assert (len(array), array.strings) == (3, (b"a", b"", "Ġb".encode()))


def test_tokens_need_not_be_utf_8():
    body = entry("t", 9, struct.pack("<IQ", 8, 1) + text(b"\xff\xfe"))
    assert read(header(1, body=body)).metadata["t"].value.strings == (b"\xff\xfe",)


def test_tensors_have_ggml_s_order_of_dimensions_and_their_bytes():
    found = read(gguf_bytes({}, {"a.weight": ((32, 3), 8), "b.weight": ((5,), 0)})).tensors
    assert [(tensor.name, tensor.dims, tensor.offset, tensor.size) for tensor in found] == [
        ("a.weight", (32, 3), 0, 3 * 34),
        ("b.weight", (5,), 128, 20),
    ]


def test_the_data_section_begins_at_a_multiple_of_the_alignment():
    body = entry("general.alignment", 4, struct.pack("<I", 64)) + info("t")
    assert read(header(1, 1, body).ljust(128, b"\0") + bytes(32)).data_start == 128


def test_version_2_has_the_same_layout():
    assert read(gguf_bytes(metadata(), tensors(), version=2)).tensors == read(BASE).tensors


def test_a_type_of_another_program_has_no_size():
    assert read(with_infos(info("t", kind=139))).tensors[0].size is None


def test_image_models_may_have_long_names():
    content = gguf_bytes({"general.architecture": "flux"}, {"x" * 100: ((4,), 0)})
    assert read(content).tensors[0].name == "x" * 100


@pytest.mark.parametrize("kind", sorted(GGML_TYPES))
def test_a_row_of_every_type_takes_whole_blocks(kind):
    assert read(gguf_bytes({}, {"t": ((256 * 2, 3), kind)})).tensors[0].size == (
        256 * 2 * 3 // GGML_TYPES[kind].block * GGML_TYPES[kind].size
    )


# ---------------------------------------------------------------- what it refuses, and where


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"GGUF", "ends inside its own header"),
        (b"USER" + BASE[4:], "is no GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (header(version=1), "is GGUF version 1"),
        (header(version=0), "is GGUF version 0"),
        (header(version=0x03000000), "is big-endian"),
        (header(2**60), "claims 1,152,921,504,606,846,976 metadata entries"),
        (header(0, 2**60), "claims 1,152,921,504,606,846,976 tensors"),
        (BASE[:-200], "truncated"),
    ],
)
def test_a_file_that_ggml_refuses(content, what):
    assert what in refusal(content).what


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (struct.pack("<I", 77), "a value of type 77"),
        (struct.pack("<IB", 7, 2), "has 2 where true (1) or false (0) belongs"),
        (struct.pack("<IQ", 8, 2**63), "has a text of 9,223,372,036,854,775,808 bytes"),
        (struct.pack("<I", 8) + text(b"\xff"), "a text that is not UTF-8"),
        (struct.pack("<IIQ", 9, 8, 2**62), "claims 4,611,686,018,427,387,904 items"),
        (struct.pack("<IIQ", 9, 10, 2**61 + 1), "claims 2,305,843,009,213,693,953 items"),
        (struct.pack("<IIQ", 9, 13, 0), "an array of type 13"),
        (struct.pack("<IIQ", 9, 7, 2) + b"\1\2", "flags that are neither true (1) nor false (0)"),
        (struct.pack("<IIQQ", 9, 8, 1, 2**64 - 1), "ends inside its own header"),
        (struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 4 + struct.pack("<IQ", 0, 0), "more than 4 deep"),
    ],
)
def test_a_value_that_is_none_is_named_by_its_key(value, what):
    error = refusal(header(1, body=text("my.key") + value + bytes(16)))
    assert (what in error.what, error.place) == (True, "my.key")


@pytest.mark.parametrize("alignment", [0, 3, 31])
def test_an_alignment_is_a_power_of_two(alignment):
    error = refusal(header(1, body=entry("general.alignment", 4, struct.pack("<I", alignment))))
    assert (error.place, "power of two" in error.what) == ("general.alignment", True)


def test_a_key_twice():
    assert refusal(header(2, body=entry("k", 7, b"\1") * 2)).place == "k"


@pytest.mark.parametrize(
    ("infos", "what"),
    [
        ([info("t", (1, 1, 1, 1, 1))], "has 5 dimensions"),
        ([info("t", (4, 0))], "has a dimension of 0"),
        ([info("t", (2**32, 2**32, 2, 2))], "whose size overflows"),
        ([info("t", (2**64 - 1,))], "whose size overflows"),
        ([info("t", kind=4)], "is Q4_2, a type that ggml no longer has"),
        ([info("t", kind=250)], "has the type 250"),
        ([info("t", (31,), 8)], "is Q8_0 with rows of 31"),
        ([info("t", offset=4)], "no multiple of 32"),
        ([info("t", offset=2**64 - 32)], "behind a hole"),
        ([info("a"), info("t")], "overlaps the tensor before it"),
        ([info("a"), info("t", offset=64)], "lies behind a hole of 32 bytes"),
        ([info("t"), info("t", offset=32)], "is the name of two tensors"),
        ([info("t", (10_000,))], "behind the end of the file"),
    ],
)
def test_a_tensor_that_ggml_refuses_is_named(infos, what):
    error = refusal(with_infos(*infos))
    assert (what in error.what, error.place) == (True, "t")


@pytest.mark.parametrize("name", ["", "a" * 64, "../x", "/etc/x", "a\x1b[2J", "a\\b"])
def test_a_name_that_no_tensor_has(name):
    assert "whose name" in refusal(with_infos(info(name))).what


def test_arrays_in_arrays_are_few():
    inner = struct.pack("<IQ", 0, 0)
    body = entry("k", 9, struct.pack("<IQ", 9, MAX_NESTED + 1) + inner * (MAX_NESTED + 1))
    with pytest.raises(LimitExceeded):
        read(header(1, body=body))


# ---------------------------------------------------------------- how it reads


def counting(content):
    ranges = []

    def read_range(offset, length):
        ranges.append((offset, length))
        return content[offset : offset + length]

    return read_range, ranges


def large_vocabulary(tokens):
    values = {**LLAMA, "tokenizer.ggml.tokens": [f"token {number}" for number in range(tokens)]}
    return gguf_bytes(values, {"t": ((4,), 0)})


def test_a_small_header_takes_one_read():
    read_range, ranges = counting(BASE)
    read_gguf(read_range, len(BASE), "m.gguf")
    assert ranges == [(0, len(BASE))]


def test_a_large_header_is_read_in_growing_pieces_and_none_twice():
    content = large_vocabulary(150_000)
    read_range, ranges = counting(content)
    read_gguf(read_range, len(content), "m.gguf")
    assert [offset for offset, _ in ranges] == [0, *[FIRST_READ * 2**power for power in range(len(ranges) - 1)]]
    assert len(ranges) <= 6


def test_tensor_data_is_not_read():
    content = gguf_bytes(LLAMA, {"t": ((1024, 1024), 0)})
    read_range, ranges = counting(content)
    read_gguf(read_range, len(content), "m.gguf")
    assert ranges == [(0, FIRST_READ)]


def test_files_that_share_a_vocabulary_share_its_bytes():
    known = {}
    content = large_vocabulary(1000)
    first, second = (read(content, known).metadata["tokenizer.ggml.tokens"].value for _ in range(2))
    assert first is second


def test_a_known_vocabulary_is_not_taken_for_another_of_the_same_length():
    known = {}
    read(large_vocabulary(1000), known)
    other = [f"taken {number}" for number in range(1000)]
    found = read(gguf_bytes({"tokenizer.ggml.tokens": other}, {}), known).metadata["tokenizer.ggml.tokens"].value
    assert found.strings == tuple(token.encode() for token in other)


# ---------------------------------------------------------------- whatever comes

KEYS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20)
VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=8),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8),
)
NAMES = st.text("abc.0123_", min_size=1, max_size=20).filter(lambda name: "../" not in name)
SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(st.dictionaries(KEYS, VALUES, max_size=6), st.dictionaries(NAMES, SHAPES, max_size=6))
@FUZZ
def test_what_was_written_is_read(values, shapes):
    values.pop("general.alignment", None)
    content = gguf_bytes(values, {name: (shape, 0) for name, shape in shapes.items()})
    found, placed = contents(content)
    assert {key: value.value for key, value in found.items()} == values
    assert placed == {name: (shape, 0) for name, shape in shapes.items()}


@given(st.integers(0, 2**32), st.integers(1, 8))
@FUZZ
def test_a_mutated_file_raises_only_our_errors(seed, edits):
    dice = random.Random(seed)
    content = bytearray(SMALL)
    for _ in range(edits):
        place = dice.randrange(len(content))
        kind = dice.randrange(4)
        if kind == 0:
            content[place] = dice.randrange(256)
        elif kind == 1:
            content[place : place + 8] = struct.pack("<Q", dice.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)))
        elif kind == 2:
            del content[place : place + dice.randrange(1, 64)]
        else:
            content[place:place] = dice.randbytes(dice.randrange(1, 16))
    try:
        read(bytes(content))
    except InputError:
        return


@given(st.binary(max_size=400))
@FUZZ
def test_noise_raises_only_our_errors(noise):
    try:
        read(b"GGUF\3\0\0\0" + noise)
    except InputError:
        return


def test_arrays_that_all_differ_are_not_held_against_each_other():
    """A file may have 100,000 of one type and length; only the first few are remembered."""
    known = {}
    keys = [f"a{number:02}".encode() for number in range(20)]
    arrays = [struct.pack("<Q3sIIQ999xB", 3, key, 9, 0, 1000, number) for number, key in enumerate(keys)]
    read(b"GGUF" + struct.pack("<IQQ", 3, 0, len(arrays)) + b"".join(arrays), known)
    assert len(known[0, 1000]) < len(arrays)
