"""Whether an output is what a plan would write: of a build in tasks that is asked for once more.

Its manifest lists the paths and sizes of the plan, its headers and texts are the plan's, and every tensor and file
begins as the sources of the plan have it. Another checkpoint of the same model differs there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO, Final

from repokit.builder.execution.execute import check_sources, sources_of
from repokit.builder.execution.staging import manifest_of
from repokit.builder.reading import Reader
from repokit.builder.transforms.cast import DoesNotFitError, cast
from repokit.errors import RepokitError
from repokit.operations import CopyFile, DeleteFile, Piece, WriteShard, WriteText

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repokit.builder.plan import Plan
    from repokit.operations import Content, Operation
    from repokit.schema.manifest import ManifestFile

_BEGINNING: Final = 4096  # bytes of a tensor that are compared: a whole number of elements of any dtype


def holds(target: Path, plan: Plan) -> bool:
    """Whether the output is there already. False where that cannot be told, as where the sources are gone."""
    manifest = None if target.is_symlink() else manifest_of(target)
    if manifest is None:
        return False
    listed = {file.path: file for file in manifest.files}
    wanted = [operation for operation in plan.operations if not isinstance(operation, DeleteFile)]
    if {path: file.size for path, file in listed.items()} != {one.path: one.size for one in wanted}:
        return False
    reader = Reader([source.path for source in plan.sources])
    try:
        check_sources(sources_of(plan, wanted), None)
        return all(_begins(target, operation, listed, reader) for operation in wanted)
    except (OSError, MemoryError, RepokitError, DoesNotFitError):
        return False


def _begins(target: Path, operation: Operation, listed: Mapping[str, ManifestFile], reader: Reader) -> bool:
    place = target / operation.path
    if place.is_symlink() or not place.is_file() or place.stat().st_size != listed[operation.path].size:
        return False
    with place.open("rb") as stream:
        match operation:
            case WriteText(content=content):
                known = hashlib.sha256(content).hexdigest() == listed[operation.path].sha256
                return known and stream.read() == content
            case CopyFile(source=source, size=size):
                return _follows(stream, Piece(source=source, offset=0, length=size), reader)
            case WriteShard(header=header, pieces=pieces):
                return stream.read(len(header)) == header and all(_follows(stream, one, reader) for one in pieces)
    return True


def _follows(stream: BinaryIO, content: Content, reader: Reader) -> bool:
    """Whether a tensor begins at the position of a file, which is then moved to its end."""
    end = stream.tell() + content.size
    first = content
    if isinstance(content, Piece) and content.view is None:
        first = content.model_copy(update={"length": min(content.length, _BEGINNING)})
    part = next(reader.contents(first), memoryview(b""))[:_BEGINNING]
    wanted = cast(part, content.cast) if content.cast and part else part
    same = stream.read(len(wanted)) == wanted
    stream.seek(end)
    return same
