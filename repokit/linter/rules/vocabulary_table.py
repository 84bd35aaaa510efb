"""TOK: the rows of a vocabulary: one that is missing, one that no text reaches, two that changed places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.strict_json import dumps, loads
from repokit.linter.examples import VOCABULARY, Change, Example, tokenizer_json
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.token_ids import with_rows
from repokit.printable import count, printable, some
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.vocabulary_table import holes, merge_table, misplaced_piece

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

# More than a slip leaves behind: vocabularies that were made by hand or cut down.
MOST: Final = 3


def of_model(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """A change to the model of tokenizer.json."""

    def changed(before: bytes) -> bytes:
        document = loads(before, TOKENIZER_JSON)
        change(document["model"])
        return dumps(document)

    return changed


def renamed(old: str, new: str) -> Callable[[bytes], bytes]:
    """A change to tokenizer.json: a token of the vocabulary is spelled otherwise."""
    return of_model(lambda model: model["vocab"].update({new: model["vocab"].pop(old)}))


def alphabetical(*exchanged: int) -> dict[str, Change]:
    """A change to the base: a vocabulary of sixty letters in order, of which two may be exchanged."""
    letters = [chr(0x100 + number) for number in range(60)]
    for first, last in [exchanged] if len(exchanged) == 2 else []:
        letters[first], letters[last] = letters[last], letters[first]
    vocabulary = (*VOCABULARY[:6], *letters)
    document = loads(tokenizer_json(vocabulary), TOKENIZER_JSON)
    document["model"]["merges"] = []
    return {TOKENIZER_JSON: dumps(document), **with_rows(len(vocabulary))}


class LostMerges(Rule):
    """The vocabulary has tokens of several letters, and tokenizer.json has no merges.

    Every text is taken apart into single characters: the model was trained on something else.
    """

    code = "TOK140"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the list was emptied", {TOKENIZER_JSON: {"model": {"merges": []}}}),)
    good = (Example("a merge for each of them"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        table = merge_table(repository)
        if table is not None and not table.count and table.unmade:
            message = f"has no merges, and {count(len(table.unmade), 'token')} that only merges make"
            yield self.finding(TOKENIZER_JSON, message, place="/model/merges", names=table.unmade)


class UnreachableToken(Rule):
    """No merge makes a token of the vocabulary, although one makes every other.

    A merge was lost, or the token's spelling changed: no text becomes it, and what it stood for is taken apart.
    """

    code = "TOK240"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a merge was lost", {TOKENIZER_JSON: {"model": {"merges": ["a s", "e r"]}}}),
        Example("a letter became two", {TOKENIZER_JSON: renamed("b", "bx")}),
    )
    good = (
        Example("a merge for each"),
        Example("words that are looked up whole", {TOKENIZER_JSON: {"model": {"merges": [], "ignore_merges": True}}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        table = merge_table(repository)
        if table is not None and table.count and 0 < len(table.unmade) <= MOST:
            message = f"has {count(len(table.unmade), 'token')} that no merge makes: {some(table.unmade, MOST)}"
            yield self.finding(TOKENIZER_JSON, message, place="/model/merges", names=table.unmade)


class ExchangedTokens(Rule):
    """Two tokens of the vocabulary, or two merges, have changed places, or a piece has the score of another.

    All others stand in the order of their training. The model takes each of the two for the other.
    """

    code = "TOK241"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("two letters", alphabetical(20, 41)),)
    good = (Example("an order of someone's own"), Example("in order", alphabetical()))

    def check(self, repository: Repository) -> Iterator[Finding]:
        table = merge_table(repository)
        if table is not None and table.exchanged:
            one, other = (repr(printable(token, 40)) for token in table.exchanged)
            message = f"has {one} and {other} in each other's place"
            yield self.finding(TOKENIZER_JSON, message, place="/model/vocab", names=table.exchanged)
        if piece := misplaced_piece(repository):
            message = f"has {printable(piece, 40)!r} among pieces with other scores; all others stand in their order"
            yield self.finding(TOKENIZER_JSON, message, place="/model/vocab", names=(piece,))


class MissingRow(Rule):
    """An id between those of the vocabulary belongs to no token.

    Vocabularies are numbered without gaps: a token was deleted, and its row of the embedding is reached by nothing.
    """

    code = "TOK242"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a letter was deleted", {TOKENIZER_JSON: of_model(lambda model: model["vocab"].pop("b"))}),)
    good = (Example("no gaps"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None:
            return
        if 0 < len(gaps := holes(tokenizer)) <= MOST:
            message = f"has no token for {count(len(gaps), 'id')}: {some(tuple(map(str, gaps)), MOST)}"
            yield self.finding(TOKENIZER_JSON, message, place="/model/vocab", names=tuple(map(str, gaps)))


RULES: Final[tuple[Rule, ...]] = (LostMerges(), UnreachableToken(), ExchangedTokens(), MissingRow())
