"""Line and column of a finding, looked for only when it is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from repokit.errors import InputError
from repokit.formats.strict_json import offset

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository

Position = tuple[int, int | None]  # line and column, from 1; a column may be unknown
Locate = Callable[["Finding"], "Position | None"]

# Characters of JSON that are walked through for one report before findings go without a line: the last entries of a
# tokenizer.json of 35 MB, with 400,000 tokens and as many merges, take 1.2 s together. One walk may pass it.
BUDGET: Final = 20_000_000

_LINE: Final = re.compile(r"(?:header, )?line (\d+)(?: column (\d+))?")
_TOKEN: Final = re.compile(r"token (?P<quote>['\"])(?P<token>.*)(?P=quote), id (?P<id>\d+)", re.DOTALL)
_ITEM: Final = re.compile(r"^- ?", re.MULTILINE)

# Files that are lists of tokens or pairs of them: a name that a finding speaks of is a key, or a line, of the file.
_VOCABULARIES: Final = frozenset({"vocab.json", "added_tokens.json"})
_LISTS: Final = frozenset({"vocab.txt", "merges.txt"})


def locator(repository: Repository) -> Locate:
    """A function that finds line and column of a finding in this repository."""
    texts: dict[str, _Json] = {}
    left = BUDGET

    def find(finding: Finding) -> Position | None:
        nonlocal left
        if found := _LINE.fullmatch(finding.place or ""):
            return int(found[1]), int(found[2]) if found[2] else None
        name = finding.path.rpartition("/")[2]
        try:
            if name in _LISTS:
                return _line_of(_text(repository, finding.path), finding)
            if finding.path.endswith((".yaml", ".yml")):
                return _item_of(_text(repository, finding.path), finding.place or "")
            pointers = _pointers(repository, finding, name)
            if not pointers or left <= 0:
                return None
            if finding.path not in texts:
                texts[finding.path] = _Json(_text(repository, finding.path))
            place, walked = texts[finding.path].find(pointers)
        except (InputError, ValueError, IndexError, RecursionError):  # a file that is no JSON: that is another finding
            return None
        left -= walked
        return place

    return find


def _text(repository: Repository, path: str) -> str:
    return (repository.content(path) or b"").decode()


def _pointers(repository: Repository, finding: Finding, name: str) -> tuple[str, ...]:
    """Where in a JSON file a finding may stand, the likeliest first; () where nothing says so."""
    place = finding.place or ""
    if not name.endswith(".json"):
        return ()
    if place.startswith("/"):
        return (place,)
    if name.endswith(".index.json"):
        return (f"/weight_map/{_escaped(place or finding.names[0])}",) if place or finding.names else ()
    if found := _TOKEN.fullmatch(place):
        return _of_token(repository, finding.path, finding.names[0] if finding.names else found["token"], found["id"])
    if name in _VOCABULARIES and finding.names:
        return (f"/{_escaped(finding.names[0])}",)
    return ()


def _of_token(repository: Repository, path: str, token: str, number: str) -> tuple[str, ...]:
    """The places in which tokenizer.json, or a file of added tokens, can have a token."""
    document = repository.json(path)
    added = document.get("added_tokens") if isinstance(document, dict) else None
    ids = [entry.get("id") if isinstance(entry, dict) else None for entry in added] if isinstance(added, list) else []
    if int(number) in ids:
        return (f"/added_tokens/{ids.index(int(number))}",)
    return (f"/model/vocab/{_escaped(token)}", f"/{_escaped(token)}")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class _Json:
    """A JSON text, and where what was asked for before begins in it: siblings are not walked to from the top again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[str, int] = {"": 0}

    def find(self, pointers: tuple[str, ...]) -> tuple[Position | None, int]:
        """The place of the first pointer that leads to a value, else of what is deepest above it; and the cost."""
        if not self._text.strip():
            return None, 0
        walked = 0
        best = ""
        for pointer in pointers:
            reached, cost = self._walk(pointer)
            walked += cost
            best = max(best, reached, key=len)
            if reached == pointer:
                break
        whole = best in pointers or len(pointers) == 1
        return (self._place(self._known[best]) if whole else None), walked

    def _walk(self, pointer: str) -> tuple[str, int]:
        """The longest part of a pointer that there is, and how many characters were read to know it."""
        reached, walked = "", 0
        for prefix in list(accumulate(pointer.split("/")[1:], lambda above, step: f"{above}/{step}", initial="")):
            if prefix not in self._known:
                start = self._known[reached]
                position = offset(self._text, prefix[len(reached) :], start)
                walked += (len(self._text) if position is None else position) - start
                if position is None:
                    break
                self._known[prefix] = position
            reached = prefix
        return reached, walked

    def _place(self, position: int) -> Position:
        # The first value of a file may have white space before it.
        position += len(self._text[position : position + 1000]) - len(self._text[position : position + 1000].lstrip())
        return self._text.count("\n", 0, position) + 1, position - self._text.rfind("\n", 0, position)


def _line_of(text: str, finding: Finding) -> Position | None:
    """The line that is what the finding speaks of, of a file with one token or merge a line."""
    wanted = finding.place or (finding.names[0] if finding.names else None)
    if wanted is None or "\n" in wanted:
        return None
    found = re.search(rf"^{re.escape(wanted)}\r?$", text, re.MULTILINE)
    return (text.count("\n", 0, found.start()) + 1, 1) if found else None


def _item_of(text: str, place: str) -> Position | None:
    """The item that a pointer `/3` or `/3/key` names in YAML that is a list, one item below the other."""
    head, _, rest = place.removeprefix("/").partition("/")
    items = [found.start() for found in _ITEM.finditer(text)]
    if not place.startswith("/") or not head.isdecimal() or int(head) >= len(items):
        return None
    start, end = items[int(head)], [*items, len(text)][int(head) + 1]
    key = re.compile(rf"^(?:- |  ){re.escape(rest)}[ \t]*:", re.MULTILINE).search(text, start, end) if rest else None
    position = key.start() + 2 if key else start
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
