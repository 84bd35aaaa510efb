"""CFG: the vocabulary in tekken.json or a tiktoken file, against config.json and tokenizer.json."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.byte_vocabularies import ByteVocabulary, byte_level, tekken, tiktoken
from repokit.linter.examples import VOCABULARY, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.config import PARAMS
from repokit.linter.rules.mistral_format import TEKKEN, in_its_format
from repokit.printable import count, printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import MERGES_TXT, is_tiktoken

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

RANKS: Final = "example.tiktoken"
# The ordinary tokens of the examples, and the spelling of their space and line break.
_ORDINARY: Final = {token.replace("Ġ", " ").replace("Ċ", "\n"): VOCABULARY.index(token) for token in VOCABULARY[6:]}


def of_mistral(first: int = 6, size: int = 32, **special: int) -> str:
    """The vocabulary of the base as a tekken.json."""
    named = {token: number for number, token in enumerate(VOCABULARY[:6])} | special
    tokens = [
        {"rank": number - 6, "token_bytes": base64.b64encode(text.encode()).decode(), "token_str": text}
        for text, number in sorted(_ORDINARY.items(), key=lambda item: item[1])
    ]
    document = {
        "config": {"default_vocab_size": size, "default_num_special_tokens": first, "version": "v13"},
        "special_tokens": [{"rank": rank, "token_str": text, "is_control": True} for text, rank in named.items()],
        "vocab": tokens,
    }
    return json.dumps(document)


def ranks(shift: int = 0) -> str:
    """The same as a tiktoken file, whose ids begin elsewhere."""
    lines = (f"{base64.b64encode(text.encode()).decode()} {number + shift}" for text, number in _ORDINARY.items())
    return "\n".join(lines) + "\n"


class ContradictingVocabulary(Rule):
    """tekken.json, or a tiktoken file, gives tokens other ids than tokenizer.json.

    Which ids the model gets depends on the library that reads the repository: one of the two feeds it other words.
    """

    code = "CFG152"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("special tokens in another order", in_its_format(files={TEKKEN: of_mistral(**{"</s>": 3})})),
        Example("a special token more", in_its_format(files={TEKKEN: of_mistral(first=7, size=33)}), also=("CFG253",)),
        Example("ranks that begin at 7", {RANKS: ranks(1)}),
    )
    good = (
        Example("the same ids", in_its_format(files={TEKKEN: of_mistral()})),
        Example("the same ranks", {RANKS: ranks()}),
        Example("a tokenizer of another kind", {RANKS: "/w== 0\n/g== 1\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        found = list(byte_vocabularies(repository)) if repository.has(TOKENIZER_JSON) else []
        tokenizer = repository.tokenizer if found else None
        if tokenizer is None:
            return
        ids = tokenizer.ids
        for path, vocabulary in found:
            ordinary = {byte_level(token): number for token, number in vocabulary.tokens.items()}
            known = sum(token in ids for token in ordinary)
            if known < _SAME_KIND * len(ordinary):
                continue  # tokenizer.json spells bytes in another way
            said = {**ordinary, **vocabulary.special}
            if wrong := [token for token, number in said.items() if ids.get(token, number) != number]:
                first = wrong[0]
                message = f"gives {count(len(wrong), 'token')} another id than {TOKENIZER_JSON}:"
                message += f" {printable(first, 40)!r} is {said[first]:,} here and {ids[first]:,} there"
                yield self.finding(path, message, names=[printable(token, 60) for token in wrong])


class ContradictingMerges(Rule):
    """merges.txt has other merges than tokenizer.json, or has them in another order.

    Fast and slow tokenizers of one repository then cut the same word into different tokens.
    """

    code = "CFG153"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the merges of another tokenizer", {MERGES_TXT: "#version: 0.2\na s\nu s\ne r\n"}),
        Example("merges without a version", {MERGES_TXT: "e r\na s\n"}),
    )
    good = (
        Example("the same merges", {MERGES_TXT: "#version: 0.2\na s\ne r\nu s\n"}),
        Example("the first of them", {MERGES_TXT: "#version: 0.2\na s\ne r\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        text, document = repository.text(MERGES_TXT), repository.document(TOKENIZER_JSON)
        model = None if document is None else document.mapping("model")
        if not text or model is None or model.string("type") != "BPE":
            return
        lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#version")]
        ours = [tuple(line.rstrip("\r").split(" ")) for line in lines]
        theirs = [pair for entry in model.raw.get("merges") or () if (pair := as_pair(entry)) is not None]
        both = enumerate(zip(ours, theirs, strict=False))
        if (first := next((number for number, (one, other) in both if one != other), None)) is not None:
            one, other = (printable(" ".join(pairs[first]), 60) for pairs in (ours, theirs))
            message = f"has {one!r} as merge {first:,}; {TOKENIZER_JSON} has {other!r}"
            yield self.finding(MERGES_TXT, message, hint="save the tokenizer again, or delete the file that is old")


def as_pair(entry: object) -> tuple[str, ...] | None:
    """A merge of tokenizer.json, which is a text in files of before 2024; None where it is neither."""
    match entry:
        case str():
            return tuple(entry.split(" "))
        case [str() as one, str() as other]:
            return one, other
    return None


class MissizedTekken(Rule):
    """tekken.json has another number of tokens than the model has rows for.

    mistral-common and vLLM take the number from there: ids beyond the embedding stop the model, and ids that stand for
    nothing cannot be shown.
    """

    code = "CFG253"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a vocabulary of an earlier model", in_its_format(files={TEKKEN: of_mistral(size=31)})),)
    good = (Example("as many as rows", in_its_format(files={TEKKEN: of_mistral()})),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        document, params, config = repository.document(TEKKEN), repository.document(PARAMS), repository.config
        settings = None if document is None else document.mapping("config")
        size = None if settings is None else settings.integer("default_vocab_size")
        places = [] if params is None else [(PARAMS, params.integer("vocab_size"))]
        places += [] if config is None else [(config.path, config.vocab_size)]
        for path, rows in places:
            if settings is not None and size is not None and rows is not None and size != rows:
                message = f"has {size:,} tokens; {path} says vocab_size {rows:,}"
                yield self.finding(TEKKEN, message, place=settings.at("default_vocab_size"))
                return


RULES: Final = (ContradictingVocabulary(), ContradictingMerges(), MissizedTekken())

_SAME_KIND: Final = 0.9  # of the tokens that two spellings of one vocabulary share
_RANKS: Final = re.compile(r"[\w.-]*\.tiktoken|tiktoken\.model|tokenizer\.model")


def byte_vocabularies(repository: Repository) -> Iterator[tuple[str, ByteVocabulary]]:
    """The vocabularies at the top whose tokens are bytes."""
    for path in repository.files:
        content = repository.content(path) if _RANKS.fullmatch(path) else None
        if content is not None and is_tiktoken(content):
            yield path, tiktoken(content, path)
    document = repository.document(TEKKEN)
    if document is not None and document.raw.get("vocab"):
        yield TEKKEN, tekken(document.raw, TEKKEN)
