"""Which ids the tokens of a tokenizer.json really get.

The tokenizers library does not honour the ids that are written beside added tokens: a token that the model's own
vocabulary lacks gets the next free id, in file order, without a word (tokenizers' serialization.rs and
added_vocabulary.rs of tokenizers 0.23; measured).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from repokit.errors import MalformedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repokit.repo.document import Document

TOKENIZER_JSON: Final = "tokenizer.json"


class Ids:
    """Tokens and their ids, as the library fills its vocabulary.

    Attributes:
        vocabulary: Of the model alone.
        count: Entries of the model's vocabulary. The first added token gets it as its id, even where that is taken.
        added: Token to id, for the added tokens.
    """

    def __init__(self, vocabulary: Mapping[str, int], count: int) -> None:
        self.vocabulary = vocabulary
        self.count = count
        self.added: dict[str, int] = {}

    def add(self, tokens: Iterable[str]) -> None:
        """One call of the library's `add_tokens`: loading is one, and transformers makes another."""
        following = max(self.count, max(self.added.values(), default=-1) + 1)
        for token in tokens:
            if not token or token in self.added:
                continue
            known = self.vocabulary.get(token)
            self.added[token] = following if known is None else known
            following += known is None

    def get(self, token: str) -> int | None:
        return self.added.get(token, self.vocabulary.get(token))

    def merged(self) -> dict[str, int]:
        return {**self.vocabulary, **self.added}


def ids_of(document: Document) -> Ids:
    """The vocabulary of the model in a tokenizer.json; the added tokens are still to be added.

    Raises:
        MalformedFile: It has none.
    """
    model = document.mapping("model")
    match None if model is None else model.raw.get("vocab"):
        case dict(vocabulary):
            return Ids(integer_ids(vocabulary), len(vocabulary))
        case list(pieces):  # Unigram: [piece, score], and the position is the id
            named = ((piece[0], index) for index, piece in enumerate(pieces) if isinstance(piece, list) and piece)
            return Ids({piece: index for piece, index in named if isinstance(piece, str)}, len(pieces))
    raise MalformedFile("has no vocabulary", why="no text can be tokenized", path=document.path, place="/model/vocab")


def integer_ids(vocabulary: dict[str, Any]) -> dict[str, int]:
    """The entries that are ids. The ordinary vocabulary, where all are, is not copied."""
    if set(map(type, vocabulary.values())) <= {int}:
        return vocabulary
    return {token: value for token, value in vocabulary.items() if type(value) is int}


def post_processor_tokens(document: Document) -> Iterator[tuple[str, int, str]]:
    """Every special token that the post-processor puts around a text: the token, its id, the JSON Pointer to it."""
    outermost = document.mapping("post_processor")
    pending = [] if outermost is None else [outermost]
    while pending:
        step = pending.pop()
        pending.extend(step.objects("processors"))
        for key in ("sep", "cls"):  # BertProcessing and RobertaProcessing
            match step.raw.get(key):
                case [str(token), int(number)]:
                    yield token, number, step.at(key)
        yield from _template_tokens(step)


def _template_tokens(step: Document) -> Iterator[tuple[str, int, str]]:
    special = step.mapping("special_tokens")
    for name in special.raw if special is not None else ():
        entry = special.mapping(name) if special is not None else None
        if entry is not None:
            tokens = entry.strings("tokens")
            for index, number in enumerate(entry.integers("ids")):
                yield tokens[index] if index < len(tokens) else name, number, entry.at("ids", index)
