"""Our reader and writer of safetensors headers, held against the library's own.

The reader may refuse more than safetensors does and never less; what the writer writes, safetensors reads.
"""

from __future__ import annotations

import json
import random
import re

import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.errors import InputError, MalformedFile
from repokit.formats import safetensors as ours
from repokit.formats.safetensors import FIRST_READ, MAX_HEADER, header_bytes, in_file_order, read_header
from repokit.formats.tensors import DTYPE_BITS, TensorInfo, byte_size

# Whatever a module could be called, and a few names that are no identifiers. Control characters and paths are refused.
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12).filter(
    lambda name: name.isprintable() and name != "__metadata__" and not name.startswith("/") and "../" not in name
)
SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)
KINDS = st.tuples(st.sampled_from(sorted(DTYPE_BITS)), SHAPES).filter(lambda kind: byte_size(*kind) is not None)
TABLES = st.dictionaries(NAMES, KINDS, max_size=8)
METADATA = st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=3).filter(
    lambda metadata: not any(0xD800 <= ord(char) < 0xE000 for item in metadata.items() for char in "".join(item))
)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def placed(table):
    return in_file_order(TensorInfo(name, dtype, shape, 0, 0) for name, (dtype, shape) in table.items())


def file_of(tensors, metadata=None, *, seed=0):
    size = max((tensor.end for tensor in tensors), default=0)
    return header_bytes(tensors, metadata or {}) + random.Random(seed).randbytes(size)


def with_header(text, data=b""):
    body = text if isinstance(text, bytes) else text.encode()
    return len(body).to_bytes(8, "little") + body + data


def read(content):
    return read_header(lambda offset, length: content[offset : offset + length], len(content), "model.safetensors")


def refusal(content):
    with pytest.raises(MalformedFile) as caught:
        read(content)
    return caught.value


def safetensors_refuses(content):
    try:
        safetensors.deserialize(content)
    except Exception:  # noqa: BLE001 - whatever it raises, it did not read the file
        return True
    return False


def we_refuse(content):
    try:
        read(content)
    except InputError:
        return True
    return False


# ------------------------------------------------------------------------------------------------ writer


@FUZZ
@given(TABLES, METADATA)
def test_what_is_written_is_read_back(table, metadata):
    tensors = placed(table)
    header = read(file_of(tensors, metadata))
    assert list(header.tensors) == tensors
    assert dict(header.metadata or {}) == metadata
    assert header.remarks == ()


@FUZZ
@given(TABLES, METADATA)
def test_safetensors_reads_what_is_written(table, metadata):
    tensors = placed(table)
    content = file_of(tensors, metadata)
    data = content[len(content) - max((tensor.end for tensor in tensors), default=0) :]
    assert {
        name: (found["dtype"], tuple(found["shape"]), bytes(found["data"])) for name, found in library(content)
    } == {name: (dtype, shape, data[begin:end]) for name, dtype, shape, begin, end in tensors}


def library(content):
    return safetensors.deserialize(content)


def test_numpy_gets_equal_arrays_from_a_written_file(tmp_path):
    import numpy as np

    arrays = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b.bias": np.array([1, -2], dtype=np.int16)}
    tensors = placed({"b.bias": ("I16", (2,)), "a.weight": ("F32", (2, 3))})
    content = header_bytes(tensors, {"format": "np"}) + b"".join(arrays[tensor.name].tobytes() for tensor in tensors)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    loaded = safetensors.numpy.load_file(path)
    assert {name: (array.dtype, array.tolist()) for name, array in loaded.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }


@FUZZ
@given(TABLES, METADATA)
def test_every_tensor_is_aligned_to_its_elements(table, metadata):
    tensors = placed(table)
    start = len(header_bytes(tensors, metadata))
    assert start % 8 == 0
    assert all((start + tensor.begin) % max(1, DTYPE_BITS[tensor.dtype] // 8) == 0 for tensor in tensors)


@FUZZ
@given(TABLES, METADATA, st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_of_dictionaries(table, metadata, rng):
    def shuffled(mapping):
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    assert header_bytes(placed(table), metadata) == header_bytes(placed(shuffled(table)), shuffled(metadata))


def test_a_file_without_tensors_is_read():
    assert read(with_header("{}")).tensors == ()


def test_a_header_longer_than_the_first_read_is_read_whole():
    tensors = placed({f"layers.{number}.{'x' * 80}": ("U8", (1,)) for number in range(3000)})
    content = file_of(tensors)
    assert len(content) > FIRST_READ
    assert list(read(content).tensors) == tensors


# ------------------------------------------------------------------------------------------------ reader, hand-made


def entry(dtype="F32", shape="[1]", offsets="[0,4]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


ATTACKS = {
    "text behind the header's object": with_header(f'{{}}"a":{entry()}', b"1234"),
    "a brace between entries": with_header(f'{{"a":{entry()},}}"b":{entry(offsets="[4,8]")}', b"12345678"),
    "metadata that is an entry": with_header(f'{{"__metadata__":{entry()}}}', b"1234"),
    "metadata that is an entry, among others": with_header(
        f'{{"a":{entry()},"__metadata__":{entry(offsets="[4,8]")}}}', b"12345678"
    ),
    "metadata with a number": with_header('{"__metadata__":{"a":1}}'),
    "metadata that is a list": with_header('{"__metadata__":[]}'),
    "an overflow before a zero": with_header(f'{{"a":{entry(shape="[9223372036854775808,4,0]", offsets="[0,0]")}}}'),
    "a dimension of 65 bits": with_header(f'{{"a":{entry(shape="[18446744073709551616,0]", offsets="[0,0]")}}}'),
    "a dimension of 5,000 digits": with_header(f'{{"a":{entry(shape="[" + "1" * 5000 + "]")}}}', b"1234"),
    "100,000 large dimensions": with_header(
        f'{{"a":{entry(shape="[" + ",".join(["9223372036854775807"] * 100_000) + "]")}}}', b"1234"
    ),
    "minus zero as an offset": with_header(f'{{"a":{entry(offsets="[-0,4]")}}}', b"1234"),
    "minus zero as a dimension": with_header(f'{{"a":{entry(shape="[-0]", offsets="[0,0]")}}}'),
    "a leading zero": with_header(f'{{"a":{entry(offsets="[00,4]")}}}', b"1234"),
    "a leading zero in a shape": with_header(f'{{"a":{entry(shape="[01]")}}}', b"1234"),
    "a floating-point dimension": with_header(f'{{"a":{entry(shape="[1.0]")}}}', b"1234"),
    "an exponent": with_header(f'{{"a":{entry(offsets="[0,4e0]")}}}', b"1234"),
    "a Boolean dimension": with_header(f'{{"a":{entry(shape="[true]")}}}', b"1234"),
    "a negative offset": with_header(f'{{"a":{entry(offsets="[-4,0]")}}}', b"1234"),
    "an empty part in a shape": with_header(f'{{"a":{entry(shape="[1,]")}}}', b"1234"),
    "a comma behind the last entry": with_header(f'{{"a":{entry()},}}', b"1234"),
    "no comma between entries": with_header(f'{{"a":{entry()}"b":{entry(offsets="[4,8]")}}}', b"12345678"),
    "one offset": with_header(f'{{"a":{entry(offsets="[4]")}}}', b"1234"),
    "three offsets": with_header(f'{{"a":{entry(offsets="[0,4,4]")}}}', b"1234"),
    "a dtype that nobody has": with_header(f'{{"a":{entry(dtype="F33")}}}', b"1234"),
    "a dtype in small letters": with_header(f'{{"a":{entry(dtype="f32")}}}', b"1234"),
    "half a byte": with_header(f'{{"a":{entry(dtype="F4", offsets="[0,1]")}}}', b"1"),
    "too few bytes for the shape": with_header(f'{{"a":{entry(shape="[2]")}}}', b"1234"),
    "an overlap": with_header(f'{{"a":{entry()},"b":{entry(offsets="[2,6]")}}}', b"123456"),
    "a hole": with_header(f'{{"a":{entry()},"b":{entry(offsets="[5,9]")}}}', b"123456789"),
    "a hole at the start": with_header(f'{{"a":{entry(offsets="[4,8]")}}}', b"12345678"),
    "bytes behind the last tensor": with_header(f'{{"a":{entry()}}}', b"12345"),
    "a byte less than the last tensor": with_header(f'{{"a":{entry()}}}', b"123"),
    "an offset of 2**63": with_header(f'{{"a":{entry(offsets="[9223372036854775808,9223372036854775812]")}}}', b"1234"),
    "a list instead of an object": with_header("[]"),
    "a string instead of an entry": with_header('{"a":"F32"}'),
    "text that is not UTF-8": with_header(b'{"\xff":' + entry().encode() + b"}", b"1234"),
    "an escaped lone surrogate": with_header(f'{{"\\ud800":{entry()}}}', b"1234"),
    "a raw line break in a name": with_header(f'{{"a\n":{entry()}}}', b"1234"),
    "a null byte behind the header": with_header(f'{{"a":{entry()}}}\0', b"1234"),
    "a comment": with_header(f'{{/**/"a":{entry()}}}', b"1234"),
    "single quotes": with_header("{'a':1}"),
    "NaN": with_header(f'{{"a":{entry(more=chr(44) + chr(34) + "x" + chr(34) + ":NaN")}}}', b"1234"),
    "an empty file": b"",
    "seven bytes": b"\x02\0\0\0\0\0\0",
    "a header of no bytes": with_header(""),
    "a header that the file does not have": (64).to_bytes(8, "little") + b"{}",
    "a header of 2**63 bytes": (2**63).to_bytes(8, "little") + b"{}",
    "a header beyond the limit": (MAX_HEADER + 1).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_safetensors_refuses_the_attack(attack):
    assert safetensors_refuses(ATTACKS[attack])


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(attack):
    refusal(ATTACKS[attack])


STRICTER = {
    "a name twice": with_header(f'{{"a":{entry()},"a":{entry()}}}', b"1234"),
    "a name twice, once escaped": with_header(f'{{"a":{entry()},"\\u0061":{entry()}}}', b"1234"),
    "an array in place of an entry": with_header('{"a":["F32",[1],[0,4]]}', b"1234"),
    "a name without characters": with_header(f'{{"":{entry()}}}', b"1234"),
    "an escaped line break in a name": with_header(f'{{"a\\n":{entry()}}}', b"1234"),
    "an escape sequence in a name": with_header(f'{{"\\u001b[2J":{entry()}}}', b"1234"),
    "a bidirectional mark in a name": with_header(f'{{"a\u202e":{entry()}}}', b"1234"),
}


@pytest.mark.parametrize("case", STRICTER)
def test_safetensors_reads_what_we_refuse(case):
    assert not safetensors_refuses(STRICTER[case])


@pytest.mark.parametrize("case", STRICTER)
def test_what_two_readers_read_differently_is_refused(case):
    refusal(STRICTER[case])


UNUSUAL = {
    "white space everywhere": f'{{ "a" : {entry()} , "b":{entry(offsets="[4,8]")}\n}}',
    "a closing brace in a value of the metadata": f'{{"__metadata__":{{"a":"}},b"}},"a":{entry()},"b":{entry(offsets="[4,8]")}}}',
    "metadata behind the tensors": f'{{"a":{entry()},"b":{entry(offsets="[4,8]")},"__metadata__":{{"format":"pt"}}}}',
    "metadata with escapes": f'{{"__metadata__":{{"a":"\\"\\u00e4"}},"a":{entry()},"b":{entry(offsets="[4,8]")}}}',
    "metadata that is null": f'{{"__metadata__":null,"a":{entry()},"b":{entry(offsets="[4,8]")}}}',
    "an escape in a name": f'{{"\\u0061":{entry()},"b":{entry(offsets="[4,8]")}}}',
    "keys in another order": f'{{"a":{{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}},"b":{entry(offsets="[4,8]")}}}',
    "entries in another order than the data": f'{{"b":{entry(offsets="[4,8]")},"a":{entry()}}}',
    "an unknown field": f'{{"a":{entry(more=chr(44) + chr(34) + "x" + chr(34) + ":[1]")},"b":{entry(offsets="[4,8]")}}}',
    "white space before the brace": f' {{"a":{entry()},"b":{entry(offsets="[4,8]")}}}',
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_an_unusual_spelling_is_read_as_safetensors_reads_it(case):
    content = with_header(UNUSUAL[case], b"12345678")
    found = {
        tensor.name: (tensor.dtype, list(tensor.shape), data_of(content, tensor)) for tensor in read(content).tensors
    }
    assert found == {name: (info["dtype"], info["shape"], bytes(info["data"])) for name, info in library(content)}


def data_of(content, tensor):
    start = read(content).data_start
    return content[start + tensor.begin : start + tensor.end]


@pytest.mark.parametrize("case", ["an unknown field", "white space before the brace"])
def test_what_the_specification_does_not_allow_is_remarked(case):
    assert len(read(with_header(UNUSUAL[case], b"12345678")).remarks) == 1


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x80\x02}q\x00." + bytes(60), "pickle"),
        (b"\x80\x03}q\x00." + bytes(60), "pickle"),
        (b"GGUF\x03\0\0\0" + bytes(60), "GGUF"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b'{"error": "not found"}', "JSON"),
        (bytes(1000), "zeros"),
    ],
)
def test_another_kind_of_file_is_called_by_its_name(head, words):
    assert words in str(refusal(head))


def test_a_truncated_file_whose_length_looks_like_a_pickle_is_called_truncated():
    """A header of 640 bytes makes a file begin with 0x80 0x02."""
    tensors = placed({"a" * 587: ("U8", (1,))})
    content = file_of(tensors)
    assert content[:2] == b"\x80\x02"
    assert "truncated" in str(refusal(content[:300]))


def test_an_error_names_the_file_and_the_tensor():
    error = refusal(ATTACKS["a hole"])
    assert (error.path, error.place) == ("model.safetensors", "b")


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_message_is_short(attack):
    assert len(str(refusal(ATTACKS[attack]))) < 1000


# ------------------------------------------------------------------------------------------------ reader, generated


def fast(body):
    return ours._canonical(body, "f")


def strict(body):
    return ours._any_spelling(body, "f", [])


@FUZZ
@given(TABLES.filter(bool), METADATA)
def test_the_fast_path_reads_what_the_strict_one_reads(table, metadata):
    header = header_bytes(placed(table), metadata)
    found = fast(header[8:])
    assert found is None or found == strict(header[8:])


@pytest.mark.parametrize("name", ["model.layers.0.weight", "größe", "a/b c-d"])
def test_the_fast_path_is_taken_for_ordinary_names(name):
    assert fast(header_bytes(placed({name: ("F32", (2, 3))}), {"format": "pt"})[8:]) is not None


JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.eE+-]+|[{}\[\],:]|\s+|.', re.DOTALL)
SPECIAL = (
    *("-0", "0", "1", "01", "1.0", "1e0", "4", "8", "-1", "true", "null", "NaN", "18446744073709551616", "9" * 30),
    *("9223372036854775808", "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\0", "\ufeff", '""', '"a"', "{}", "[]"),
    *('"__metadata__"', '"dtype"', '"F32"', '"F4"', '"F6_E2M3"', '"F64"', '"shape"', '"data_offsets"', '"\\u0061"'),
    *('"\\ud800"', '"\\x"', '"\x7f"', "/**/", "'"),
)


def mutated(content, rng):
    """A file with one to three changes; most of them leave the rest of the header consistent."""
    for _ in range(rng.randint(1, 3)):
        length = int.from_bytes(content[:8], "little")
        body, data = content[8 : 8 + length], content[8 + length :]
        kind = rng.randrange(9)
        if kind < 5:
            body = mutated_text(body, rng, kind)
            content = len(body).to_bytes(8, "little") + body + data
        elif kind == 5:
            content = content[: rng.randint(0, len(content))]
        elif kind == 6:
            content += rng.randbytes(rng.randint(1, 9))
        elif kind == 7 and content:
            position = rng.randrange(len(content))
            content = content[:position] + bytes([content[position] ^ 1 << rng.randrange(8)]) + content[position + 1 :]
        else:
            wrong = rng.choice([0, 1, length - 1, length + 1, length + 8, 2**63, MAX_HEADER, rng.randrange(2**16)])
            content = max(0, wrong).to_bytes(8, "little") + content[8:]
    return content


def mutated_text(body, rng, kind):
    tokens = JSON_TOKEN.findall(body.decode("utf-8", errors="replace")) or [""]
    position = rng.randrange(len(tokens))
    match kind:
        case 0:
            tokens[position] = rng.choice(SPECIAL)
        case 1:
            tokens.insert(position, rng.choice(SPECIAL))
        case 2:
            del tokens[position]
        case 3:
            other = rng.randrange(len(tokens))
            tokens[position], tokens[other] = tokens[other], tokens[position]
        case 4:  # a run of tokens again: whole entries, keys, brackets
            end = rng.randint(position, min(len(tokens), position + 24))
            place = rng.randrange(len(tokens))
            tokens[place:place] = tokens[position:end]
    return "".join(tokens).encode()


def laxer(content):
    """Whether we read what safetensors refuses."""
    return safetensors_refuses(content) and not we_refuse(content)


@settings(max_examples=500, deadline=None)
@given(TABLES, METADATA, st.integers(0, 2**32))
def test_what_safetensors_refuses_is_refused(table, metadata, seed):
    content = mutated(file_of(placed(table), metadata), random.Random(seed))
    assert not laxer(content), content


@settings(max_examples=500, deadline=None)
@given(TABLES, METADATA, st.integers(0, 2**32))
def test_the_two_paths_agree_on_mutations(table, metadata, seed):
    content = mutated(file_of(placed(table), metadata), random.Random(seed))
    body = content[8 : 8 + int.from_bytes(content[:8], "little")]
    found = fast(body)
    assert found is None or found == strict(body)


@pytest.mark.full
def test_what_safetensors_refuses_is_refused_200_000_times():
    rng = random.Random(20261130)
    tables = [
        {},
        {"a": ("F32", (2, 3)), "b.c": ("BF16", (4,)), "d": ("F4", (2, 2))},
        {f"layers.{number}": ("U8", (number,)) for number in range(4)},
        {"x": ("F6_E2M3", (4,)), "y": ("I64", ()), "z": ("BOOL", (0, 7))},
    ]
    starts = [file_of(placed(table), metadata) for table in tables for metadata in ({}, {"format": "pt", "x": "},"})]
    for _ in range(200_000):
        content = mutated(rng.choice(starts), rng)
        assert not laxer(content), content


@FUZZ
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read_as_safetensors_reads_them(content):
    assert not laxer(content)


def test_what_the_library_writes_is_read():
    import numpy as np

    arrays = {"a": np.zeros((2, 3), np.float16), "b": np.zeros((), np.int64), "c": np.zeros((0, 4), np.uint8)}
    content = safetensors.numpy.save(arrays, {"format": "np", "note": json.dumps({"a": [1]})})
    assert {tensor.name: tensor.shape for tensor in read(content).tensors} == {"a": (2, 3), "b": (), "c": (0, 4)}


@pytest.mark.parametrize("name", ["", "../../outside", "/etc/passwd", "a\nb", "a\x1b[2Jb", "a\u202eb", "x" * 65_536])
def test_names_that_no_module_has_are_refused(name):
    content = single_tensor(name)
    with pytest.raises(MalformedFile, match="has a tensor whose name"):
        read_header(lambda offset, length: content[offset : offset + length], len(content), "model.safetensors")


@pytest.mark.parametrize("name", ["model.layers.0.mlp", "..", "a/b", "été.weight", "x" * 1024])
def test_odd_names_that_some_library_may_write_are_read(name):
    content = single_tensor(name)
    header = read_header(lambda offset, length: content[offset : offset + length], len(content), "model.safetensors")
    assert [tensor.name for tensor in header.tensors] == [name]


def single_tensor(name: str) -> bytes:
    return header_bytes([TensorInfo(name, "U8", (4,), 0, 4)], {}) + bytes(4)
