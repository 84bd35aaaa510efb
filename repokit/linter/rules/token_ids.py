"""TOK: ids of tokens, in one file of the tokenizer against the others, and against the embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.strict_json import dumps
from repokit.linter.examples import VOCABULARY, Change, Example, edited, tokenizer_json
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import ADDED_TOKENS, MERGES_TXT, TOKENIZER_CONFIG, VOCAB_JSON, VOCAB_TXT, lost_merges

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

ROWS: Final = len(VOCABULARY)
RESIZE: Final = "resize the embedding and train it, or take the token out of the tokenizer"


def with_added(content: str, number: int, **flags: bool) -> Callable[[bytes], bytes]:
    """A change to tokenizer.json: one more added token."""

    def change(before: bytes) -> bytes:
        document: dict[str, Any] = json.loads(before)
        first = document["added_tokens"][0]
        document["added_tokens"].append({**first, "content": content, "id": number, **flags})
        return dumps(document)

    return change


def with_rows(rows: int) -> dict[str, Change]:
    """A change that gives embedding and head other numbers of rows, and config.json the vocab_size."""
    tensors = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (rows, 16)))
    return {"config.json": {"vocab_size": rows}, "model.safetensors": edited(add=tensors)}


def slow(added: dict[str, int]) -> dict[str, Change]:
    """A change that leaves vocab.json and merges.txt of the tokenizer, with added tokens beside them."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    return {TOKENIZER_JSON: None, VOCAB_JSON: vocabulary, MERGES_TXT: "a s\n", ADDED_TOKENS: added}


class TokenBeyondEmbedding(Rule):
    """Tokens that ordinary use produces have ids beyond the rows of the embedding.

    The model reads past its embedding: IndexError on a CPU, a device-side assert on a GPU, at whichever prompt first
    holds one of them.
    """

    code = "TOK106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a token was added and the embedding not resized",
            {TOKENIZER_JSON: with_added("<image>", ROWS), TOKENIZER_CONFIG: {"image_token": "<image>"}},
        ),
        Example(
            "a vocabulary that is larger", {TOKENIZER_JSON: tokenizer_json((*VOCABULARY, "ab", "ba"))}, also=("TOK240",)
        ),
    )
    good = (Example("rows without a token, up to a multiple of 8", with_rows(ROWS + 8)),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is not None and (names := sorted(tokenizer.produced, key=tokenizer.ids.__getitem__)):
            message = f"has {count(len(names), 'token')} beyond the {tokenizer.rows:,} rows of the embedding"
            place = f"token {printable(names[0], 60)!r}, id {tokenizer.ids[names[0]]}"
            yield self.finding(tokenizer.origin(names[0]), message, place=place, names=names, hint=RESIZE)
        if tokenizer is not None and tokenizer.pieces and tokenizer.rows and tokenizer.pieces > tokenizer.rows:
            message = f"has {count(tokenizer.pieces, 'piece')}, the embedding {count(tokenizer.rows, 'row')}"
            yield self.finding(tokenizer.path, message, hint=RESIZE)


class UnusedTokenBeyondEmbedding(Rule):
    """An added token has an id beyond the rows of the embedding, and nothing in the repository uses it.

    Whoever types it, or pads with it, makes the model read past its embedding.
    """

    code = "TOK207"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the [PAD] of old derivatives of LLaMA", {TOKENIZER_JSON: with_added("[PAD]", ROWS)}),
        Example("an added_tokens.json of another tokenizer", {ADDED_TOKENS: {"<old>": ROWS}}),
    )
    good = (Example("no token beyond it"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is not None and (names := [name for name in tokenizer.beyond if name not in tokenizer.produced]):
            message = f"has {count(len(names), 'unused token')} beyond the {tokenizer.rows:,} rows of the embedding"
            place = f"token {printable(names[0], 60)!r}, id {tokenizer.ids[names[0]]}"
            yield self.finding(tokenizer.origin(names[0]), message, place=place, names=names, hint=RESIZE)


class RenumberedToken(Rule):
    """An added token gets another id than the one written beside it.

    The tokenizers library gives the next free id, in file order, and says nothing: the token the model was trained
    with is another row than the one that is read.
    """

    code = "TOK107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "an id that is another token's",
            {TOKENIZER_JSON: lambda old: old.replace(b'"id": 0,', b'"id": 3,')},
        ),
        Example("a gap before the added token", {TOKENIZER_JSON: with_added("<x>", 40), **with_rows(64)}),
        Example("an empty token, which is left out", {TOKENIZER_JSON: with_added("", 31)}),
        Example("a gap, and no tokenizer.json", {**slow({"<x>": 40}), **with_rows(64)}),
    )
    good = (Example("the next free id", {TOKENIZER_JSON: with_added("<x>", ROWS), **with_rows(64)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or not (moved := tokenizer.renumbered):
            return
        first = moved[0]
        gets = "no id" if first.id is None else f"id {first.id}"
        message = (
            f"writes ids that {count(len(moved), 'added token')} will not have: {_shown(first.content)} gets {gets}"
        )
        place = f"{first.place}/id" if tokenizer.document is not None else first.place
        yield self.finding(first.path, message, place=place, names=[token.content for token in moved])


class TakenTokenId(Rule):
    """A file beside tokenizer.json gives a token the id of another token.

    Readers that believe that file, and llama.cpp's converter does, put the wrong text on a row of the embedding.
    """

    code = "TOK108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("an added_tokens.json that begins at 0", {ADDED_TOKENS: {"<unk>": 0}}),
        Example(
            "an added_tokens_decoder of the base model",
            {TOKENIZER_CONFIG: {"added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True}}}},
        ),
        Example("an id of the vocabulary, and no tokenizer.json", slow({"<x>": 7}), also=("TOK107", "TOK211")),
    )
    good = (Example("the same ids", {ADDED_TOKENS: {"<|im_end|>": 4}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or not tokenizer.is_read:
            return
        known = tokenizer.vocabulary if tokenizer.document is None else tokenizer.ids
        owners = {number: token for token, number in known.items()}
        for token in tokenizer.written_elsewhere:
            owner = owners.get(-1 if token.written is None else token.written, token.content)
            if owner != token.content and known.get(token.content) != token.written:
                message = f"gives {_shown(token.content)} the id {token.written}, which is that of {_shown(owner)}"
                yield self.finding(token.path, message, place=token.place)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import with_real_id

        return with_real_id(repository, finding)


class StaleTokenId(Rule):
    """A file beside tokenizer.json gives a token an id that it does not get.

    The tokenizers library does not honour it; older, slow tokenizers do: one text, two sequences of ids.
    """

    code = "TOK208"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("an id of a smaller vocabulary", {ADDED_TOKENS: {"<pad>": 1000}}),)
    good = (Example("no such file"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None:
            return
        taken = set(tokenizer.ids.values())
        for token in tokenizer.written_elsewhere:
            real = tokenizer.ids.get(token.content)
            if real != token.written and token.written not in taken:
                message = f"gives {_shown(token.content)} the id {token.written}; it gets {real}"
                yield self.finding(token.path, message, place=token.place)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import with_real_id

        return with_real_id(repository, finding)


class StaleVocabulary(Rule):
    """vocab.json or vocab.txt gives tokens other ids than tokenizer.json.

    Fast and slow tokenizers of one repository then turn the same text into different ids.
    """

    code = "TOK109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("the vocabulary before the last change", {VOCAB_JSON: {"a": 4, "zz": 7}}),
        Example("lines out of order", {VOCAB_TXT: "\n".join(sorted(VOCABULARY)) + "\n"}),
    )
    good = (
        Example(
            "a vocabulary without the added tokens", {VOCAB_JSON: dict(zip(VOCABULARY[6:9], (6, 7, 8), strict=True))}
        ),
        Example("the same in lines", {VOCAB_TXT: "\n".join(VOCABULARY) + "\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None:
            return
        for path, vocabulary in tokenizer.copies.items():
            if names := [token for token, number in vocabulary.items() if tokenizer.ids.get(token) != number]:
                message = f"gives {count(len(names), 'token')} other ids than {TOKENIZER_JSON}"
                yield self.finding(path, message, names=names, hint=f"delete {path}, or write it from {TOKENIZER_JSON}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import vocabulary_again

        return vocabulary_again(repository, finding)


class MergeWithoutToken(Rule):
    """merges.txt merges to or from a token that vocab.json does not have.

    Tokens were deleted from one of the files: loading fails with "Token out of vocabulary".
    """

    code = "TOK115"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a deleted product", {VOCAB_JSON: {"a": 6, "s": 20}, MERGES_TXT: "#version: 0.2\na s\n"}),)
    good = (
        Example("parts and product", {VOCAB_JSON: {"a": 6, "s": 20, "as": 28}, MERGES_TXT: "#version: 0.2\na s\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if lost := lost_merges(repository):
            message = f"has {count(len(lost), 'merge')} of tokens that {VOCAB_JSON} lacks"
            yield self.finding(MERGES_TXT, message, names=lost)


class UnfilledRows(Rule):
    """The embedding has a few rows more than the tokenizer has tokens, and they are no padding.

    That is what is left when tokens were added for training and added_tokens.json, or the changed tokenizer.json, was
    not published: the trained tokens cannot be typed.
    """

    code = "TOK210"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("one token more in training", with_rows(ROWS + 1)),)
    good = (
        Example("as many as tokens"),
        Example("padded to a multiple of 8", with_rows(ROWS + 8)),
        Example("padded to a multiple of 64", with_rows(ROWS * 2)),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or not tokenizer.is_read or tokenizer.rows is None:
            return
        spare = tokenizer.rows - tokenizer.max_id - 1
        if 1 <= spare <= 8 and tokenizer.rows % 8:
            verb = "has" if spare == 1 else "have"
            message = f"ends at id {tokenizer.max_id:,}: {count(spare, 'row')} of the embedding {verb} no token"
            yield self.finding(tokenizer.path, message, hint="publish the tokenizer that was used in training")


class SharedTokenId(Rule):
    """Two tokens have one id.

    The model cannot tell them apart, and decoding gives back only one of them.
    """

    code = "TOK211"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a vocabulary merged by hand",
            {TOKENIZER_JSON: lambda old: old.replace(b'"as": 28', b'"as": 27')},
            also=("TOK242",),
        ),
    )
    good = (Example("an id for each"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or len(set(tokenizer.ids.values())) == tokenizer.size:
            return
        owners: dict[int, str] = {}
        twice = [token for token, number in tokenizer.ids.items() if owners.setdefault(number, token) != token]
        message = f"gives {count(len(twice), 'token')} an id that another token has"
        yield self.finding(tokenizer.path, message, names=twice)


RULES: Final = (
    TokenBeyondEmbedding(),
    RenumberedToken(),
    TakenTokenId(),
    StaleVocabulary(),
    MergeWithoutToken(),
    UnusedTokenBeyondEmbedding(),
    StaleTokenId(),
    UnfilledRows(),
    SharedTokenId(),
)


def _shown(token: str) -> str:
    return repr(printable(token, 60))
