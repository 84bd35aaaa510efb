from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, strategies as st

from repokit.rehearsal.refusals import HubError
from repokit.rehearsal.xet_formats import Term, XetFile, chunk_ends, files_in

HEADER = b"HFRepoMetaData\0".ljust(48, b"\0")
NO_MORE = b"\xff" * 32 + bytes(16)
VERIFIED, NAMED = 1 << 31, 1 << 30
ONE = bytes.fromhex("0000000000000001" * 4)  # as a program writes it down; the file has its bytes the other way round


def words(number):
    return struct.pack("<4Q", number, number, number, number)


def record(raw, *numbers):
    return struct.pack("<32s4I", raw, *numbers)


def test_a_shard_names_files_and_their_chunks():
    shard = HEADER + record(words(1), 0, 2, 0, 0) + record(words(2), 0, 70, 3, 5) + record(words(3), 0, 30, 0, 1)
    (file,) = files_in(shard + NO_MORE)
    hashes = {number: f"{number:016x}" * 4 for number in (1, 2, 3)}
    assert file == XetFile(hashes[1], None, (Term(hashes[2], 3, 5, 70), Term(hashes[3], 0, 1, 30)))
    assert file.size == 100


def test_the_sha256_stands_behind_the_verification():
    shard = HEADER + record(words(1), VERIFIED | NAMED, 1, 0, 0) + record(words(2), 0, 7, 0, 1)
    (file,) = files_in(shard + record(words(9), 0, 0, 0, 0) + record(words(4), 0, 0, 0, 0) + NO_MORE)
    assert file.sha256 == f"{4:016x}" * 4


def test_a_shard_may_hold_no_file():
    assert files_in(HEADER + NO_MORE) == []


@pytest.mark.parametrize(
    "shard",
    [
        b"",
        HEADER,
        HEADER + record(words(1), 0, 1, 0, 0),
        HEADER + record(words(1), 0, 4_000_000_000, 0, 0) + NO_MORE,
        HEADER + record(words(1), NAMED, 0, 0, 0),
    ],
    ids=["empty", "no records", "no chunks", "more chunks than bytes", "no sha256"],
)
def test_a_shard_that_ends_early(shard):
    with pytest.raises(HubError):
        files_in(shard)


def test_chunks_end_where_their_headers_say():
    first, second = b"\0\3\0\0\0\3\0\0abc", b"\0\1\0\0\1\1\0\0x"
    assert chunk_ends(first + second) == [11, 20]
    assert chunk_ends(first + second + b"XETBLOB...") == [11, 20]


@pytest.mark.parametrize("xorb", [b"", b"XETBLOB", b"\0\3\0\0\0\3\0\0ab", b"\0\3"])
def test_a_xorb_that_ends_early(xorb):
    with pytest.raises(HubError):
        chunk_ends(xorb)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(content):
    for read in (lambda: files_in(HEADER + content), lambda: files_in(content), lambda: chunk_ends(content)):
        with contextlib.suppress(HubError):
            read()
