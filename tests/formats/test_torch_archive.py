"""Zip archives: what torch.save writes is read, and whatever two readers could read differently is refused."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from torch_writer import Entry, archive

from repokit.errors import InputError, MalformedFile
from repokit.formats.torch_archive import MAX_RATIO, contents, contents_at, ends_as_zip, is_zip, read_archive

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PARTS = st.text("abcXYZ019_-", min_size=1, max_size=6)
FILES = st.dictionaries(
    st.lists(PARTS, min_size=1, max_size=3).map("/".join), st.binary(max_size=60), max_size=6
).filter(lambda files: not any(other.startswith(f"{name}/") for name in files for other in files))


def reader(content):
    return lambda offset, length: content[offset : offset + length]


def opened(content):
    return read_archive(reader(content), len(content), "model.bin")


def everything(content):
    return {name: contents(reader(content), member, "model.bin") for name, member in opened(content).members.items()}


def refusal(content):
    with pytest.raises(MalformedFile) as caught:
        everything(content)
    return str(caught.value)


def entries():
    return [
        Entry("a/data.pkl", b"\x80\x02N.", flags=0x0808, padding=9),
        Entry("a/version", b"3\n", flags=0x0808, padding=3),
    ]


def with_first(**changes):
    first, second = entries()
    for field, value in changes.items():
        setattr(first, field, value)
    return archive([first, second])


# ------------------------------------------------------------------------------------------------ what is read


@FUZZ
@given(FILES, st.booleans(), st.booleans(), st.booleans())
def test_members_come_back(files, deflate, wide, zip64):
    content = archive([Entry(name, raw, deflate=deflate, zip64=zip64) for name, raw in files.items()], wide=wide)
    assert everything(content) == files


@FUZZ
@given(FILES, st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_what_zipfile_writes_is_read(files, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, raw in files.items():
            file.writestr(name, raw)
    assert everything(out.getvalue()) == files


@FUZZ
@given(FILES, st.booleans())
def test_zipfile_reads_what_we_read(files, wide):
    content = archive([Entry(name, raw, flags=0x0808, padding=5) for name, raw in files.items()], wide=wide)
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert {name: file.read(name) for name in file.namelist()} == everything(content)


def test_contents_lie_where_the_local_header_says():
    content = archive(entries(), wide=True)
    member = opened(content).members["a/version"]
    begin = contents_at(reader(content), member, "model.bin")
    assert content[begin : begin + member.size] == b"3\n"


def test_folders_are_left_out():
    content = archive([Entry("a/", b""), *entries()])
    assert list(opened(content).members) == ["a/data.pkl", "a/version"]


@pytest.mark.parametrize(
    ("names", "root"),
    [(["a/x", "a/y/z"], "a"), (["a/x", "b/x"], None), (["x"], None), (["a/x", "y"], None), ([], None)],
)
def test_the_root_is_the_one_folder_that_holds_everything(names, root):
    assert opened(archive([Entry(name, b"") for name in names])).root == root


def test_an_archive_is_known_by_its_beginning_or_its_end():
    content = archive(entries())
    assert is_zip(content)
    assert ends_as_zip(reader(b"#!" + content), len(content) + 2)
    assert not ends_as_zip(reader(content[:-1]), len(content) - 1)


# ------------------------------------------------------------------------------------------------ what is refused


def second_end(content):
    return content[:-2] + struct.pack("<H", 22) + b"PK\x05\x06" + bytes(18)


PLAIN = archive(entries())
WIDE = archive(entries(), wide=True)
MISCHIEF = {
    "one member twice": (archive([*entries(), entries()[0]]), "twice"),
    "bytes before it": (archive(entries(), prefix=b"#!/bin/sh\n"), "before its first member"),
    "bytes before it, offsets counted from the file": (
        archive([Entry("a/x", b"N", header=4)], prefix=b"MZ\0\0"),
        "before its first member",
    ),
    "bytes behind it": (PLAIN + b"A" * 100, "100 bytes behind"),
    "a comment": (archive(entries(), comment=b"hello"), "behind its directory"),
    "a second end in the comment": (second_end(PLAIN), "before its first member"),
    "cut off": (PLAIN[:-30], "truncated"),
    "cut in half": (PLAIN[: len(PLAIN) // 2], "truncated"),
    "another name in its header": (with_first(local_name="a/datap.kl"), "another name"),
    "a longer name in its header": (with_first(local_name="a/data.pkl.txt"), "another name"),
    "other flags in its header": (with_first(local_flags=0), "packed otherwise"),
    "another method in its header": (with_first(local_method=8), "packed otherwise"),
    "another size in its header": (with_first(flags=0, local_size=2), "another size"),
    "encrypted": (with_first(flags=0x1), "encrypted"),
    "strongly encrypted": (with_first(flags=0x40), "encrypted"),
    "with an encrypted directory": (with_first(flags=0x2000), "encrypted"),
    "a wrong checksum": (with_first(crc=7), "checksum"),
    "longer than the file": (with_first(size=0xFFFFFF00, packed=0xFFFFFF00), "reaches into"),
    "4 GiB without a 64-bit size": (with_first(size=0xFFFFFFFF, packed=0xFFFFFFFF), "without a 64-bit size"),
    "stored and yet of two sizes": (with_first(size=1), "is stored, yet"),
    "a hole behind a member": (with_first(behind=bytes(100_000)), "of nothing"),
    "two members at one place": (archive([Entry("a/x", b"N"), Entry("a/y", b"N", header=0)]), "reaches into"),
    "a bomb": (archive([Entry("a/x", bytes(2_000_000), deflate=True)]), "bomb|inflates"),
    "a longer deflated member": (archive([Entry("a/x", bytes(2000), deflate=True, size=1000)]), "another size"),
    "a shorter deflated member": (archive([Entry("a/x", bytes(2000), deflate=True, size=3000)]), "checksum"),
    "a name that climbs": (archive([Entry("../../x", b"N")]), "leaves the repository"),
    "a name that begins at the root": (archive([Entry("/etc/x", b"N")]), "absolute"),
    "a name with control characters": (archive([Entry("a/x\x1b[2J", b"N")]), "control characters"),
    "more members than it has": (PLAIN.replace(b"\x02\x00\x02\x00", b"\x03\x00\x03\x00"), "fewer members"),
    "fewer members than it has": (PLAIN.replace(b"\x02\x00\x02\x00", b"\x01\x00\x01\x00"), "more in its directory"),
    "one part of several": (PLAIN.replace(b"PK\x05\x06\x00\x00", b"PK\x05\x06\x01\x00"), "several"),
    "two directories that differ": (WIDE[:-14] + b"\x01\x00\x01\x00" + WIDE[-10:], "two directories"),
    "a 64-bit directory elsewhere": (
        WIDE.replace(b"PK\x06\x07\x00\x00\x00\x00", b"PK\x06\x07\x00\x00\x00\x00\x01", 1)[:-1],
        "truncated|elsewhere|behind",
    ),
    "a 64-bit record that is none": (WIDE.replace(b"PK\x06\x06", b"PK\x06\x05"), "is none"),
    "a broken entry": (PLAIN.replace(b"PK\x01\x02", b"PK\x01\x03"), "broken entry"),
}


@pytest.mark.parametrize("kind", MISCHIEF)
def test_what_readers_read_differently_is_refused(kind):
    content, words = MISCHIEF[kind]
    with pytest.raises(MalformedFile, match=words):
        everything(content)


def test_a_bomb_is_refused_before_it_is_inflated():
    content = archive([Entry("a/x", bytes(2_000_000), deflate=True)])
    member = opened(content).members["a/x"]
    touched = []

    def read(offset, length):
        touched.append(length)
        return content[offset : offset + length]

    with pytest.raises(MalformedFile, match="inflates"):
        contents(read, member, "model.bin")
    assert sum(touched) < 100


def test_a_member_over_the_limit_is_not_read():
    content = archive([Entry("a/x", bytes(2000))])
    with pytest.raises(MalformedFile, match="more than any real one"):
        contents(reader(content), opened(content).members["a/x"], "model.bin", limit=1000)


def test_a_directory_of_many_gigabytes_is_not_read():
    content = archive(entries())
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 2, 2, 0xFFFFFF00, 0, 0)
    with pytest.raises(MalformedFile, match="does not end with its directory"):
        everything(content[:-22] + end)


# ------------------------------------------------------------------------------------------------ anything


@FUZZ
@given(
    st.sampled_from([PLAIN, WIDE, archive([Entry("a/x", bytes(300), deflate=True)])]), st.randoms(use_true_random=False)
)
def test_mutated_archives_are_read_or_refused(content, rng):
    mutated = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
    read_or_refused(bytes(mutated))


@FUZZ
@given(st.sampled_from([PLAIN, WIDE]), st.randoms(use_true_random=False))
def test_shortened_and_spliced_archives_are_read_or_refused(content, rng):
    begin, end = sorted(rng.randrange(len(content)) for _ in range(2))
    read_or_refused(content[:begin] + content[end:])


def test_many_mutations_of_a_seeded_generator_are_read_or_refused():
    rng = random.Random(3)
    for _ in range(2_000):
        mutated = bytearray(WIDE)
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        read_or_refused(bytes(mutated))


def read_or_refused(content):
    with contextlib.suppress(InputError):
        assert sum(map(len, everything(content).values())) <= len(content) * MAX_RATIO
