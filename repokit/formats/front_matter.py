"""The YAML block at the top of a model card, and YAML read strictly.

PyYAML keeps the last of two equal keys, follows aliases into exponential growth and turns unquoted `no` into False.
Here duplicate keys, tags and alias bombs are errors with a line; implicit types stay as the Hub's own client reads
them, because that is what the model card will mean.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import LimitExceeded, MalformedFile
from repokit.printable import printable, size

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import yaml

# A card with the evaluation results of MTEB 1 has 132 kB and 12,300 values (e5-small); MTEB 2 has five times as many.
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 400_000
MAX_DEPTH: Final = 50

# huggingface_hub/repocard.py REGEX_YAML_BLOCK, which is that of the Hub: white space, a line of exactly `---`, YAML,
# a line `---` that may end in blanks.
_BLOCK: Final = re.compile(r"\A\s*---(?:\r\n|\r|\n)(.*?)(?:\r\n|\r|\n)---[ \t]*(?:\r\n|\n|\Z)", re.DOTALL)
# What looks as if it were to be one: a fence, and a key on the next line that has anything. Without a key it is a
# horizontal rule of Markdown.
_MEANT: Final = re.compile(r"\A\s*---([ \t]*)(?:\r\n|\r|\n)\s*[A-Za-z_][\w-]*[ \t]*:(?:\s|\Z)")
_BREAK: Final = re.compile(r"\r\n|\r|\n")
# yaml/reader.py: what YAML allows in a document is all but these, escapes aside; a surrogate is among them.
_NOT_YAML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_NO_METADATA: Final = "the Hub reads no metadata from it: no license, no pipeline tag, no base model"


@dataclass(frozen=True, slots=True)
class Card:
    """A README.md taken apart.

    Attributes:
        metadata: The front matter as parsed, key order kept; None where the file has no front matter.
        body: Everything after the closing fence, byte for byte as text.
        lines: The line (from 1) of each top-level key of the front matter.
        body_line: The line on which the body begins.
    """

    metadata: Mapping[str, Any] | None
    body: str
    lines: Mapping[str, int] = field(default_factory=dict)
    body_line: int = 1


def parse_card(data: bytes, path: str) -> Card:
    """Splits a model card into front matter and body.

    Raises:
        MalformedFile: Not UTF-8, or a front matter that the Hub does not see, or that is not a YAML mapping.
        LimitExceeded: A front matter larger or deeper than any real one.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MalformedFile("is not UTF-8", path=path, place=f"line {line}") from None
    marked = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    found = _BLOCK.match(text)
    if marked and (found or _MEANT.match(text)):
        what = "has a byte order mark before the front matter"
        raise MalformedFile(what, why=_NO_METADATA, path=path, place="line 1", hint="save it as UTF-8 without a BOM")
    if found is None:
        _refuse_unseen(text, path)
        return Card(None, text)
    first = len(_BREAK.findall(text, 0, found.start(1))) + 1
    metadata, lines = load_mapping(found[1], path, first_line=first)
    return Card(metadata, text[found.end() :], lines, len(_BREAK.findall(text, 0, found.end())) + 1)


def _refuse_unseen(text: str, path: str) -> None:
    if (meant := _MEANT.match(text)) is None:
        return
    what = "has blanks behind the opening ---" if meant[1] else "opens a front matter with --- and never closes it"
    line = len(_BREAK.findall(text, 0, meant.start(1))) + 1
    raise MalformedFile(what, why=_NO_METADATA, path=path, place=f"line {line}")


def load_mapping(text: str, path: str, *, first_line: int = 1) -> tuple[dict[str, Any], dict[str, int]]:
    """A YAML mapping and the line of each of its top-level keys; both empty where the text holds nothing.

    Args:
        text: The YAML.
        path: For messages.
        first_line: The line of the file on which `text` begins.

    Raises:
        MalformedFile: A syntax error, a tag, a duplicate key, a key that is not a string, or not a mapping.
        LimitExceeded: More than MAX_BYTES, MAX_NODES or MAX_DEPTH.
    """
    places = _Places(text, path, first_line)
    root, value = _loaded(text, places)
    if root is None:
        return {}, {}
    if not isinstance(value, dict):
        raise MalformedFile("is not a mapping of keys to values", path=path, place=places.of(root))
    return value, {key.value: places.number(key.start_mark.index) for key, _ in root.value}


def load_list(data: bytes, path: str) -> list[Any]:
    """A file of YAML that is a list, such as one of `.eval_results/`; [] where it holds nothing.

    Raises:
        MalformedFile: Not UTF-8, not a list, or what `load_mapping` refuses.
        LimitExceeded: More than MAX_BYTES, MAX_NODES or MAX_DEPTH.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MalformedFile("is not UTF-8", path=path, place=f"line {line}") from None
    places = _Places(text, path, 1)
    root, value = _loaded(text, places)
    if root is not None and not isinstance(value, list):
        raise MalformedFile("is not a list", path=path, place=places.of(root))
    return value or []


def _loaded(text: str, places: _Places) -> tuple[yaml.Node | None, Any]:
    """The root node and what it says; None and None where the text holds nothing."""
    import yaml

    path = places.path
    if len(text) > MAX_BYTES:
        raise LimitExceeded(f"has {size(len(text))} of YAML; no real file has more than {size(MAX_BYTES)}", path=path)
    if bad := _NOT_YAML.search(text):
        raise MalformedFile(f"has the character {printable(bad[0])}", path=path, place=places.line(bad.start()))
    loader = _loader_class()(text)
    try:
        root = loader.get_single_node()
        if root is None or root.tag == "tag:yaml.org,2002:null":
            return None, None
        _Checker(places, loader.yaml_constructors).check(root)
        value = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = places.exactly(mark.index) if mark else None
        if "nesting depth" in str(error.problem):  # libyaml looks ahead, and has a limit of its own
            raise LimitExceeded(f"is nested deeper than {MAX_DEPTH} levels", path=path, place=place) from None
        raise MalformedFile(f"is not YAML: {printable(error.problem)}", path=path, place=place) from None
    except yaml.YAMLError as error:
        raise MalformedFile(f"is not YAML: {printable(error)}", path=path) from None
    except _TooMuch as limit:
        what = f"has more than {MAX_NODES:,} values or {MAX_DEPTH} levels, aliases followed"
        raise LimitExceeded(what, path=path, place=places.of(limit.node)) from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:  # 2026-13-45, and `!!bool maybe`
        raise MalformedFile(f"has a value that YAML cannot read: {printable(error)}", path=path) from None
    finally:
        loader.dispose()
    return root, value


class _TooMuch(Exception):
    def __init__(self, node: yaml.Node) -> None:
        super().__init__()
        self.node = node


class _Places:
    """Lines of the file. YAML also counts U+0085 and U+2028 as line breaks, which no editor does."""

    def __init__(self, text: str, path: str, first_line: int) -> None:
        self.path = path
        self._first = first_line
        self._breaks = [0, *(found.end() for found in _BREAK.finditer(text))]

    def number(self, index: int) -> int:
        return self._first - 1 + bisect_right(self._breaks, index)

    def line(self, index: int) -> str:
        return f"line {self.number(index)}"

    def exactly(self, index: int) -> str:
        column = index - self._breaks[bisect_right(self._breaks, index) - 1] + 1
        return f"{self.line(index)} column {column}"

    def of(self, node: yaml.Node) -> str:
        return self.line(node.start_mark.index)


@cache
def _loader_class() -> Any:  # noqa: ANN401 - the stubs do not know how PyYAML mixes its classes
    """PyYAML's safe loader, ten times faster where it was built with libyaml, that counts while it composes."""
    import yaml
    from yaml.composer import Composer

    class Counting:
        """Stops before a hostile document has cost more than it may."""

        composed = 0
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:  # noqa: ANN401 - a node or a number
            self.composed += 1
            self.depth += 1
            if parent is not None and (self.composed > MAX_NODES or self.depth > MAX_DEPTH):
                raise _TooMuch(parent)
            node: yaml.Node = super().compose_node(parent, index)  # type: ignore[misc]
            self.depth -= 1
            return node

    if not yaml.__with_libyaml__:
        return type("Loader", (Counting, yaml.SafeLoader), {})

    class FastLoader(Counting, Composer, yaml.CSafeLoader):
        def __init__(self, stream: str) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)

    return FastLoader


class _Checker:
    """Walks the nodes once, before any value is built. Aliases share nodes: each visit counts, so bombs run out."""

    def __init__(self, places: _Places, known: Container[str]) -> None:
        self.places = places
        self.known = known
        self.visits = 0

    def check(self, node: yaml.Node, depth: int = 1) -> None:
        self.visits += 1
        if self.visits > MAX_NODES or depth > MAX_DEPTH:
            raise _TooMuch(node)
        if node.tag not in self.known:
            self._refuse(node, f"has the tag {printable(node.tag)!r}, which names a type that no card has")
        if isinstance(node.value, list):
            self._check_children(node, depth)

    def _check_children(self, node: yaml.Node, depth: int) -> None:
        seen: set[str] = set()
        for child in node.value:
            if not isinstance(child, tuple):
                self.check(child, depth + 1)
                continue
            key, value = child
            if key.tag != "tag:yaml.org,2002:str":
                self._refuse(key, f"has the key {_shown(key)}, which YAML does not read as a string")
            if key.value in seen:
                self._refuse(key, f"has the key {printable(key.value)!r} twice")
            seen.add(key.value)
            self.check(value, depth + 1)

    def _refuse(self, node: yaml.Node, what: str) -> None:
        raise MalformedFile(what, path=self.places.path, place=self.places.of(node))


def _shown(key: yaml.Node) -> str:
    return repr(printable(key.value, 60)) if isinstance(key.value, str) else "of several values"
