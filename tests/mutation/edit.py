"""What a mutation is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One way to spoil one file.

    Attributes:
        operation: What was done, the same word for all places: "delete key".
        place: Where in the file: a JSON Pointer, a tensor; empty for the whole file.
        content: The file's new bytes; None where it is gone.
        more: Changes to other files that belong to this one.
    """

    operation: str
    place: str
    content: bytes | None
    more: tuple[tuple[str, bytes | None], ...] = ()
