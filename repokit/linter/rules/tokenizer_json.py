"""TOK: tokenizer.json by itself: what the tokenizers library makes of it, and what it does to every text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.patterns import patterns_in, repeats
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer_trial import trial

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

MOST_REPEATS: Final = 1_000_000
BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer that splits by a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def truncated(length: int, stride: int) -> dict[str, Any]:
    """A change to tokenizer.json: a frozen truncation."""
    return {"truncation": {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": stride}}


class RefusedTokenizer(Rule):
    """The tokenizers library does not load tokenizer.json.

    transformers, vLLM, TGI and llama.cpp's converter all read it through that library.
    """

    code = "TOK102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a merge of a deleted token", {TOKENIZER_JSON: {"model": {"merges": [["a", "zz"]]}}}, also=("TOK240",)),
        Example("a key that the library does not know", {TOKENIZER_JSON: {"comment": "ours"}}, also=("FIL104",)),
        Example("a kind of model that it does not know", {TOKENIZER_JSON: {"model": {"type": "Syllables"}}}),
    )
    good = (Example("merges as lists", {TOKENIZER_JSON: {"model": {"merges": [["a", "s"], ["e", "r"], ["u", "s"]]}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.load:
            message = f"is refused by the tokenizers library: {printable(found.load.message)}"
            yield self.finding(TOKENIZER_JSON, message)


class FailingTokenizer(Rule):
    """tokenizer.json loads, and then fails on ordinary text.

    What it names is not there: a post-processor's token, the unknown token. The library panics at the first prompt.
    """

    code = "TOK103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a post-processor without its tokens",
            {
                TOKENIZER_JSON: {
                    "post_processor": {
                        "type": "TemplateProcessing",
                        "single": [
                            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}},
                        ],
                        "pair": [],
                        "special_tokens": {},
                    }
                }
            },
            also=("TOK143",),
        ),
    )
    good = (Example("text becomes ids"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.encode:
            message = f"loads, but cannot tokenize ordinary text: {printable(found.encode.message)}"
            yield self.finding(TOKENIZER_JSON, message)


class ExplodingPattern(Rule):
    """A regular expression in tokenizer.json repeats repeats a million times.

    The library unfolds it: loading the file takes the machine's memory, or a text does.
    """

    code = "TOK112"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "counts inside counts",
            {TOKENIZER_JSON: {"pre_tokenizer": split("((a{1,1000}){1,1000}){1,100}")}},
            also=("TOK141",),
        ),
    )
    good = (
        Example(
            "digits in threes",
            {
                TOKENIZER_JSON: {
                    "pre_tokenizer": {
                        "type": "Sequence",
                        "pretokenizers": [split("\\p{N}{1,3}| ?\\p{L}+"), BYTES],
                    }
                }
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        document = repository.document(TOKENIZER_JSON)
        for key in ("normalizer", "pre_tokenizer", "decoder") if document is not None else ():
            for pattern in patterns_in(document.raw.get(key)) if document is not None else ():
                if document is not None and (number := repeats(pattern)) > MOST_REPEATS:
                    message = f"repeats {number:,} times in one pattern: {printable(pattern, 60)}"
                    yield self.finding(document.path, message, place=document.at(key))


class ImpossibleTruncation(Rule):
    """The truncation in tokenizer.json leaves nothing of a text, or steps back as far as it goes.

    The tokenizers library panics at the first text that is longer: "stride must be strictly less than max_len".
    """

    code = "TOK113"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("a stride as long as the text", {TOKENIZER_JSON: truncated(16, 16)}, also=("TOK201",)),)
    good = (Example("a stride of half", {TOKENIZER_JSON: truncated(16, 8), "modules.json": "[]"}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        document = repository.document(TOKENIZER_JSON)
        truncation = None if document is None else document.mapping("truncation")
        length = None if truncation is None else truncation.integer("max_length")
        if truncation is not None and length is not None and length <= (truncation.integer("stride") or 0):
            message = f"truncates to {length} tokens with a stride of {truncation.integer('stride') or 0}"
            yield self.finding(truncation.path, message, place=truncation.pointer)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import without_steps_back

        return without_steps_back(repository, finding)


class FrozenEncodingState(Rule):
    """tokenizer.json holds the truncation or padding of somebody's last call, or the dropout of a training.

    Whoever loads it with the tokenizers library or a binding of it gets every text cut, or filled, or other tokens each
    time, without a word.
    """

    code = "TOK201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "texts are cut at 16 tokens",
            {TOKENIZER_JSON: truncated(16, 0)},
        ),
        Example("merges are left out at random", {TOKENIZER_JSON: {"model": {"dropout": 0.1}}}),
    )
    good = (
        Example(
            "sentence-transformers means it",
            {TOKENIZER_JSON: truncated(16, 0), "modules.json": "[]"},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        document = repository.document(TOKENIZER_JSON)
        card = repository.card
        if document is None or repository.has("modules.json"):
            return
        if card is not None and "sentence-transformers" in {card.library_name, *card.tags}:
            return
        for key, verb in (("truncation", "cuts"), ("padding", "fills")):
            if document.mapping(key) is not None:
                hint = f"set {key} to null; users ask for it in the call"
                yield self.finding(document.path, f"{verb} every text: {key} is set", place=document.at(key), hint=hint)
        model = document.mapping("model")
        if model is not None and model.number("dropout"):
            message = "makes other tokens of a text each time: dropout is set"
            yield self.finding(document.path, message, place=model.at("dropout"), hint="set dropout to null")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import nulled

        return nulled(repository, finding)


class FragileTokenizer(Rule):
    """A short hostile text makes the tokenizer fail, or use up a machine's time and memory.

    A regular expression that backtracks, or a normalizer that grows text: whoever serves the model can be stopped by
    one prompt.
    """

    code = "TOK202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a pattern that backtracks",
            {TOKENIZER_JSON: {"pre_tokenizer": split("(a+)+$")}},
            also=("TOK141",),
        ),
    )
    good = (Example("the pattern of GPT-2"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (found := trial(repository)) and found.hostile and not found.encode:
            message = f"fails on a text of 40 to 200 repeated characters: {printable(found.hostile.message)}"
            yield self.finding(TOKENIZER_JSON, message)


RULES: Final = (
    RefusedTokenizer(),
    FailingTokenizer(),
    ExplodingPattern(),
    ImpossibleTruncation(),
    FrozenEncodingState(),
    FragileTokenizer(),
)
