"""The repository that a plan would write, as a Source: it is linted before one byte is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repokit.errors import InternalError, MissingInput
from repokit.formats.urls import Url, place
from repokit.operations import CopyFile, DeleteFile, WriteShard, WriteText
from repokit.repo.remote_files import read
from repokit.repo.source import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.builder.plan import Plan


class Preview:
    """A Source over a plan. Tensor values are not there yet: only headers can be read from a planned shard."""

    def __init__(self, plan: Plan) -> None:
        self.label = plan.output
        self._sources = [place(Path(), source.path) for source in plan.sources]
        self._operations = {
            operation.path: operation for operation in plan.operations if not isinstance(operation, DeleteFile)
        }

    def entries(self) -> Mapping[str, Entry]:
        return {path: Entry(operation.size) for path, operation in self._operations.items()}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        match self._operations.get(path):
            case WriteText(content=content):
                return content[offset:] if length is None else content[offset : offset + length]
            case CopyFile(source=source):
                return self._copied(source, offset, length)
            case WriteShard(header=header) if length is not None and offset < len(header):
                # A reader asks for the usual 256 KiB and looks at the header's part of them.
                return header[offset : offset + length]
            case WriteShard():
                raise InternalError("a rule read tensor values of a repository that is not written yet", path=path)
            case _:
                raise MissingInput("is not in the repository", path=path)

    def _copied(self, source: int, offset: int, length: int | None) -> bytes:
        found = self._sources[source]
        if isinstance(found, Url):
            return read(found, offset, length)
        try:
            with found.open("rb") as stream:
                stream.seek(offset)
                return stream.read() if length is None else stream.read(length)
        except OSError as error:
            raise MissingInput(f"cannot be read: {error.strerror}", path=str(found)) from None
