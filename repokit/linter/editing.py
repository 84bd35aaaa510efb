"""Edits carried out on a view: an overlay in, an overlay out. Nothing is written."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from repokit.formats.json_edit import value_at, with_value, without
from repokit.linter.fix import DeleteFile, DropJson, EditTensors, RebuildIndex, SetJson, SetMetadata, WriteFile
from repokit.repo.overlay import RefusedEditError
from repokit.repo.rebuilt_index import rebuilt_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from repokit.linter.fix import Edit
    from repokit.repo.overlay import Overlay

# A file, and the parts of a pointer into it; () is the whole of it.
Claim = tuple[str, tuple[str, ...]]

_CARD: Final = "metadata"  # what stands in a front matter, as a claim


def applied(overlay: Overlay, edits: Sequence[Edit]) -> Overlay:
    """The overlay once these edits are done, in their order.

    Raises:
        RefusedEditError, NoSuchPlaceError: An edit does not go with what is there.
        InputError: A file that it needs does not parse, or is not there.
    """
    return reduce(_applied, edits, overlay)


def _applied(overlay: Overlay, edit: Edit) -> Overlay:
    match edit:
        case SetJson(path, pointer, value):
            return overlay.with_file(path, with_value(_content(overlay, path), pointer, value, path))
        case DropJson(path, pointer):
            return overlay.with_file(path, without(_content(overlay, path), pointer, path))
        case SetMetadata(path, values, gone):
            from repokit.formats.front_matter_edit import with_metadata  # YAML, which most fixes do without

            card = overlay.read(path) if path in overlay.entries() else b""
            return overlay.with_file(path, with_metadata(card, values, path, without=gone))
        case WriteFile(path, content):
            return overlay.with_file(path, content)
        case DeleteFile(path):
            return overlay.without(path)
        case EditTensors(path, rename, drop, metadata):
            return overlay.with_tensors(path, rename=rename, drop=drop, metadata=metadata)
        case RebuildIndex(path, shards):
            return overlay.with_file(path, rebuilt_index(overlay, path, shards))


def _content(overlay: Overlay, path: str) -> bytes:
    if path not in overlay.entries():
        raise RefusedEditError("is not there, so that nothing in it can be set")
    return overlay.read(path)


def claims(overlay: Overlay, edits: Sequence[Edit]) -> frozenset[Claim]:
    """What edits change or rest on: two fixes of which one claims what lies in a claim of the other exclude each other.

    Keys of one document go together, and whole files do not. An item of an array that is dropped moves those behind
    it, so that it claims the array. An index rests on every shard that it is made of.
    """
    return frozenset(claim for edit in edits for claim in _claims(overlay, edit))


def _claims(overlay: Overlay, edit: Edit) -> Iterator[Claim]:
    match edit:
        case SetJson(path, pointer):
            parts = tuple(pointer.split("/")[1:])
            yield path, parts[:-1] if parts[-1:] == ("-",) else parts
        case DropJson(path, pointer):
            parts = tuple(pointer.split("/")[1:])
            yield path, parts[:-1] if _may_be_an_item(overlay, path, parts) else parts
        case SetMetadata(path, values, gone):
            yield from ((path, (_CARD, key)) for key in (*values, *gone))
        case RebuildIndex(path, shards):
            folder = path.rpartition("/")[0]
            beside = (name for name in overlay.entries() if name.endswith(".safetensors"))
            yield from ((name, ()) for name in shards or beside if name.rpartition("/")[0] == folder or name in shards)
            yield path, ()
        case _:
            yield edit.path, ()


def _may_be_an_item(overlay: Overlay, path: str, parts: tuple[str, ...]) -> bool:
    """Whether a pointer names an item of an array, and not a key that looks like a number."""
    if not parts or not parts[-1].isdecimal():
        return False
    above = value_at(_content(overlay, path), parts[:-1], path)
    return not isinstance(above, dict)


def collide(claim: Claim, taken: Mapping[str, Collection[tuple[str, ...]]]) -> bool:
    """Whether a claim lies in one that is taken, or one of these in it."""
    path, inside = claim
    return any(inside[: len(place)] == place or place[: len(inside)] == inside for place in taken.get(path, ()))
