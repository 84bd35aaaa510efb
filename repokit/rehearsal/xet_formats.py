"""What a xet client uploads, as far as a Hub has to look inside: xorbs hold chunks, shards say which chunks a file is.

Both formats: xet-core, `xet_core_structures/src/metadata_shard/file_structs.rs` and `xorb_object/xorb_chunk_format.rs`;
the npm package @huggingface/hub writes the same (`utils/uploadShards.ts`). Chunks stay compressed here: whoever
downloads them unpacks them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from repokit.rehearsal.refusals import HubError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = b"HFRepoMetaData\0"
_HEADER_SIZE: Final = 48
_RECORD: Final = 48  # every record of a shard has this size: a hash of 32 bytes, and 16 more
_NO_MORE: Final = b"\xff" * 32
_HAS_VERIFICATION: Final = 1 << 31
_HAS_SHA256: Final = 1 << 30
_CHUNK_HEADER: Final = 8
_FOOTER: Final = b"X"  # of "XETBLOB"; a chunk starts with the version of its header, which is 0


@dataclass(frozen=True, slots=True)
class Term:
    """Consecutive chunks of one xorb.

    Attributes:
        first: The first chunk.
        end: The chunk after the last.
        size: Of what they hold, unpacked, in bytes.
    """

    xorb: str
    first: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class XetFile:
    """A file as the chunks that it is made of.

    Attributes:
        name: Its xet hash.
        sha256: What the client says it is; None where the client did not say.
    """

    name: str
    sha256: str | None
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        return sum(term.size for term in self.terms)


def files_in(shard: bytes) -> list[XetFile]:
    """The files that a shard describes.

    Raises:
        HubError: It is no shard, or ends early.
    """
    if not shard.startswith(_MAGIC):
        raise HubError("This is not a shard")
    try:
        return list(_files(shard))
    except struct.error:
        raise HubError("The shard ends early") from None


def _files(shard: bytes) -> Iterator[XetFile]:
    at = _HEADER_SIZE
    while (record := struct.unpack_from("<32sIIQ", shard, at))[0] != _NO_MORE:
        name, flags, number, _ = record
        at += _RECORD
        # Read as they come: a number that is made up must not become a length of anything here.
        terms = tuple(_term(shard, at + index * _RECORD) for index in range(number))
        at += number * _RECORD * (2 if flags & _HAS_VERIFICATION else 1)
        sha256 = None
        if flags & _HAS_SHA256:
            sha256 = _hex(struct.unpack_from("<32s16x", shard, at)[0])
            at += _RECORD
        yield XetFile(_hex(name), sha256, terms)


def _term(shard: bytes, at: int) -> Term:
    xorb, _, size, first, end = struct.unpack_from("<32sIIII", shard, at)
    return Term(_hex(xorb), first, end, size)


def _hex(raw: bytes) -> str:
    """Xet writes a hash as four numbers of 64 bits: the bytes of each stand in the order of this machine."""
    return "".join(raw[at : at + 8][::-1].hex() for at in range(0, 32, 8))


def chunk_ends(xorb: bytes) -> list[int]:
    """Where each chunk of a xorb ends, header included; the next one starts there.

    Raises:
        HubError: It is no xorb, or ends early.
    """
    ends: list[int] = []
    at = 0
    while at < len(xorb) and not xorb.startswith(_FOOTER, at):
        at += _CHUNK_HEADER + int.from_bytes(xorb[at + 1 : at + 4], "little")
        if at > len(xorb):
            raise HubError("The xorb ends early")
        ends.append(at)
    if not ends:
        raise HubError("The xorb holds no chunk")
    return ends
