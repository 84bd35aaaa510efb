from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile

import pytest

from repokit.formats.signature import LFS_POINTER, identify, is_pickle


def zipped():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    return stream.getvalue()


def empty_zip():
    stream = io.BytesIO()
    zipfile.ZipFile(stream, "w").close()
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LFS_POINTER + b"v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
        (zipped(), "zip archive"),
        (empty_zip(), "empty zip archive"),
        *((pickle.dumps({"a": 1}, protocol), "pickle") for protocol in (2, 3, 4, 5)),
        (gzip.compress(b"x", mtime=0), "gzip"),
        (bz2.compress(b"x"), "bzip2"),
        (lzma.compress(b"x"), "xz"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x93NUMPY\x01\0", "NumPy"),
        ("text".encode("utf-8-sig"), "byte order mark"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"<html><head>", "HTML"),
        (b"Entry not found", "failed download"),
        (bytes(64), "zeros"),
    ],
)
def test_a_file_is_known_by_its_first_bytes(content, words):
    assert words in (identify(content[:64]) or "")


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"# Title\n", b"\x08\0\0\0\0\0\0\0{}      "])
def test_what_says_nothing_is_not_guessed(content):
    assert identify(content) is None


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_one(protocol):
    assert is_pickle(pickle.dumps([1, 2], protocol))


def test_what_torch_writes_is_a_pickle():
    assert is_pickle(zipped())


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x01", b"text", bytes(16)])
def test_what_is_no_pickle(content):
    assert not is_pickle(content)


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580, 0x010280, 0x04034B50])
def test_the_length_of_a_safetensors_header_is_no_pickle(length):
    """Its bytes may be those that a pickle or a zip archive begins with."""
    head = length.to_bytes(8, "little") + b'{"__metadata__":'
    assert not is_pickle(head)
    assert identify(head) is None
