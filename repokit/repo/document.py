"""A parsed JSON object with typed accessors.

An accessor gives None where a value is absent *or of the wrong type*: a rule that computes with an integer never sees
a string, and one wrong value is one finding, of the field-type rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Document:
    """One JSON object of one file.

    Attributes:
        path: The file, relative to the repository.
        raw: The object as parsed: key order and unknown keys kept. Never change it.
        pointer: The JSON Pointer (RFC 6901) of this object in the file; "" for the whole document.
    """

    def __init__(self, path: str, raw: Mapping[str, Any], pointer: str = "") -> None:
        self.path = path
        self.raw = raw
        self.pointer = pointer

    def __contains__(self, key: str) -> bool:
        return key in self.raw

    def at(self, *keys: str | int) -> str:
        """The JSON Pointer of a value below this object."""
        parts = (str(key).replace("~", "~0").replace("/", "~1") for key in keys)
        return self.pointer + "".join(f"/{part}" for part in parts)

    def integer(self, key: str) -> int | None:
        value = self.raw.get(key)
        return value if type(value) is int else None

    def number(self, key: str) -> float | None:
        value = self.raw.get(key)
        return value if type(value) in {int, float} else None

    def string(self, key: str) -> str | None:
        value = self.raw.get(key)
        return value if isinstance(value, str) else None

    def flag(self, key: str) -> bool | None:
        value = self.raw.get(key)
        return value if isinstance(value, bool) else None

    def strings(self, key: str) -> tuple[str, ...]:
        """The strings of a list; () where the value is absent or not a list."""
        value = self.raw.get(key)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def integers(self, key: str) -> tuple[int, ...]:
        """One integer or a list of them, as `eos_token_id` may be either; () where it is neither."""
        value = self.raw.get(key)
        values = value if isinstance(value, list) else [value]
        return tuple(item for item in values if type(item) is int)

    def mapping(self, key: str) -> Document | None:
        value = self.raw.get(key)
        return Document(self.path, value, self.at(key)) if isinstance(value, dict) else None

    def objects(self, key: str) -> Iterator[Document]:
        """The objects of a list, each with its pointer."""
        value = self.raw.get(key)
        for index, item in enumerate(value if isinstance(value, list) else []):
            if isinstance(item, dict):
                yield Document(self.path, item, self.at(key, index))
