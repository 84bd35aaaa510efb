"""What a file is by its first bytes, so that a message can name the culprit instead of "invalid header"."""

from __future__ import annotations

from typing import Final

# What people publish under the wrong name, with what to call it. Order matters: the first match wins.
_SIGNATURES: Final = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file it points to"),
    (b"PK\x03\x04", "a zip archive, as torch.save writes it"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x80\x02", "a pickle, as older torch.save writes it"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\xfd7zXZ\x00", "xz-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstandard-compressed"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\xef\xbb\xbf", "text with a byte order mark"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"<!DOCTYPE", "an HTML page, as a failed download leaves it"),
    (b"<!doctype", "an HTML page, as a failed download leaves it"),
    (b"<html", "an HTML page, as a failed download leaves it"),
    (b"<?xml", "an XML document, as a failed download leaves it"),
    (b"Entry not found", "the text of a failed download"),
    (b"Invalid username", "the text of a failed download"),
)

LFS_POINTER: Final = _SIGNATURES[0][0]


def identify(head: bytes) -> str | None:
    """A noun phrase for the first bytes of a file, or None where they say nothing.

    Args:
        head: At least the first 16 bytes, as far as the file has them.
    """
    if _begins_like_safetensors(head):
        return None
    for signature, description in _SIGNATURES:
        if head.startswith(signature):
            return description
    if head[:16] and not head[:16].strip(b"\x00"):
        return "zeros, as an interrupted copy leaves them"
    return None


def is_pickle(head: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5, or as a zip archive, which torch.save writes."""
    if _begins_like_safetensors(head):
        return False
    return (head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}) or head.startswith(b"PK\x03\x04")


def is_tar(head: bytes) -> bool:
    """Whether a file begins as a tar archive, which the checksum of its first header tells (Lib/tarfile.py).

    Args:
        head: At least the first 512 bytes, as far as the file has them.
    """
    if len(head) < _TAR_BLOCK:
        return False
    if head[257:262] == b"ustar":
        return True
    summed = head[:148] + b" " * 8 + head[156:_TAR_BLOCK]
    signed = sum(summed) - 256 * sum(byte > 127 for byte in summed)  # as old writers added them up
    return _tar_number(head[148:156]) in {sum(summed), signed}


def _tar_number(field: bytes) -> int | None:
    """As Lib/tarfile.py `nti` takes a number: octal digits, or the bytes of it behind 0x80 or 0xff."""
    if field[0] in {0x80, 0xFF}:
        return int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0xFF else 0)
    try:
        return int(field.split(b"\0")[0], 8)
    except ValueError:
        return None


_TAR_BLOCK: Final = 512


def _begins_like_safetensors(head: bytes) -> bool:
    """A header of 640 bytes begins with 0x80 0x02, as a pickle does; one of 67 MB begins with `PK`."""
    return head[5:9] == b"\x00\x00\x00{"
