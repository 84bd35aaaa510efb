"""The model card: README.md, its front matter with typed accessors, and where in it things stand."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.formats import paths
from repokit.formats.front_matter import parse_card
from repokit.repo.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.front_matter import Card
    from repokit.repo.repository import Repository

README: Final = "README.md"

PLACEHOLDER: Final = "[More Information Needed]"  # huggingface_hub templates/modelcard_template.md

_ID_KEYS: Final = ("base_model", "datasets", "new_version")
# A front matter that something stands before: the Hub sees none.
_MISPLACED: Final = re.compile(
    r"^---[ \t]*\n(?:#.*\n|\n)*(?:license|language|tags|base_model|library_name|pipeline_tag|datasets)[ \t]*:",
    re.MULTILINE,
)


class Value(NamedTuple):
    """A value of the front matter, or one item of a list there.

    Attributes:
        key: `datasets`, or `datasets[0]` as the Hub calls an item in its own errors.
        value: As YAML reads it.
        place: `line 7`.
    """

    key: str
    value: Any
    place: str | None


class ModelCard(Document):
    """README.md. As a Document it is its front matter; an empty one where the file has none.

    Attributes:
        body: Everything after the front matter.
        body_line: The line (from 1) on which the body begins.
        has_front_matter: Whether there is one, empty or not.
        has_metadata: Whether it holds at least one key.
    """

    def __init__(self, card: Card) -> None:
        super().__init__(README, card.metadata or {})
        self.body = card.body
        self.body_line = card.body_line
        self.has_front_matter = card.metadata is not None
        self.has_metadata = bool(card.metadata)
        self._lines = card.lines

    @classmethod
    def of(cls, repository: Repository) -> ModelCard | None:
        """The card, or None where there is no README.md.

        Raises:
            MalformedFile: Not UTF-8, or a front matter that does not parse.
        """
        content = repository.content(README)
        return None if content is None else cls(parse_card(content, README))

    # ---------------------------------------------------------------- places

    def line_of(self, key: str) -> int | None:
        """The line (from 1) of a top-level key, or None where it is absent."""
        return self._lines.get(key)

    def place(self, key: str) -> str | None:
        """`line 7`, for a finding."""
        line = self.line_of(key)
        return None if line is None else f"line {line}"

    def values(self, key: str) -> Iterator[Value]:
        """A key's value, or each item of its list; nothing where the key is absent."""
        if key not in self.raw:
            return
        value, place = self.raw[key], self.place(key)
        if isinstance(value, list):
            yield from (Value(f"{key}[{index}]", item, place) for index, item in enumerate(value))
        else:
            yield Value(key, value, place)

    def one_or_many(self, key: str) -> tuple[str, ...]:
        """A string, or the strings of a list."""
        return tuple(value.value for value in self.values(key) if isinstance(value.value, str))

    # ---------------------------------------------------------------- keys

    @property
    def license_ids(self) -> tuple[str, ...]:
        return self.one_or_many("license")

    @property
    def base_models(self) -> tuple[str, ...]:
        return self.one_or_many("base_model")

    @property
    def languages(self) -> tuple[str, ...]:
        return self.one_or_many("language")

    @property
    def datasets(self) -> tuple[str, ...]:
        return self.one_or_many("datasets")

    @property
    def tags(self) -> tuple[str, ...]:
        return self.strings("tags")

    @property
    def library_name(self) -> str | None:
        return self.string("library_name")

    @property
    def pipeline_tag(self) -> str | None:
        return self.string("pipeline_tag")

    # ---------------------------------------------------------------- judgements

    @cached_property
    def not_ids(self) -> tuple[Value, ...]:
        """Values that should be ids on the Hub and are none: of base_model, datasets and new_version."""
        values = (value for key in _ID_KEYS for value in self.values(key) if value.value is not None)
        return tuple(value for value in values if not is_repo_id(value.value))

    @cached_property
    def placeholders(self) -> int:
        """How often the body still says that information is needed."""
        return self.body.count(PLACEHOLDER)

    @cached_property
    def misplaced_at(self) -> int | None:
        """The line of a front matter that stands below something else, where there is none at the top."""
        found = None if self.has_metadata else _MISPLACED.search(self.body)
        return None if found is None else self.body_line + self.body.count("\n", 0, found.start())


def is_repo_id(value: object) -> bool:
    """Whether the Hub takes this for the id of a repository: `name` or `owner/name`."""
    return isinstance(value, str) and paths.is_repo_id(value)


def is_path(value: str) -> bool:
    """Whether this looks like a path on somebody's machine."""
    return paths.is_local(value)


def flattened(value: object, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar of a parsed value with its JSON Pointer."""
    items: Mapping[Any, Any] | None = None
    if isinstance(value, dict):
        items = value
    elif isinstance(value, list):
        items = dict(enumerate(value))
    if items is None:
        yield pointer, value
        return
    for key, item in items.items():
        yield from flattened(item, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
