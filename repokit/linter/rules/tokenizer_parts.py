"""TOK: the steps of a tokenizer.json against its vocabulary, and against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.strict_json import dumps, loads
from repokit.linter.examples import VOCABULARY, Example, merged, tokenizer_json
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.token_ids import with_rows
from repokit.printable import count, printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG
from repokit.repo.tokenizer_parts import FEW, SPACE, TokenizerParts

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

PREPENDED: Final = {"type": "Prepend", "prepend": SPACE}
MARKED: Final = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
UNMARKED: Final = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
STRIPPED: Final = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def pieces(**parts: object) -> dict[str, Any]:
    """A change to the base: a vocabulary with U+2581 for a space, and the steps of one, some of them others."""
    letters = VOCABULARY[6:-5]
    vocabulary = (*VOCABULARY[:6], *letters, SPACE, *(SPACE + letter for letter in letters[:4]))
    more = tuple(SPACE + letter for letter in letters[4:])
    document = {
        "normalizer": {"type": "Sequence", "normalizers": [PREPENDED, MARKED]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [UNMARKED, {"type": "Fuse"}, STRIPPED]},
        "model": {"merges": [f"{SPACE} {token[1:]}" for token in (*vocabulary[-4:], *more)]},
    }
    whole = (*vocabulary, *more)
    filled = merged(loads(tokenizer_json(whole), TOKENIZER_JSON), {**document, **parts})
    return {TOKENIZER_JSON: dumps(filled), **with_rows(len(whole))}


def words(**parts: object) -> dict[str, Any]:
    """A change to the base: a vocabulary of words and of their parts, as BERT's, and its steps, some of them others."""
    letters = VOCABULARY[6:-6]
    vocabulary = (*VOCABULARY[:6], *letters, *("##" + letter for letter in letters))
    document = loads(tokenizer_json(vocabulary), TOKENIZER_JSON) | {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "<unk>",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
        },
    }
    return {TOKENIZER_JSON: dumps({**document, **parts}), **with_rows(len(vocabulary))}


class UnmarkedSpaces(Rule):
    """The vocabulary spells spaces in its own way, and no step of tokenizer.json does.

    A byte-level vocabulary needs ByteLevel before it, one of SentencePiece something that writes U+2581: without it
    spaces, and whatever is not ASCII, become unknown or are lost. WordPiece needs a step that cuts texts into words.
    """

    code = "TOK141"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("bytes that nothing spells", {TOKENIZER_JSON: {"pre_tokenizer": None}}),
        Example("a step was lost", pieces(normalizer=PREPENDED)),
    )
    good = (
        Example("ByteLevel before and behind"),
        Example("spaces replaced", pieces()),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = TokenizerParts.of(repository)
        if parts is None or not parts.is_typed:
            return
        if parts.is_byte_level and not parts.encodes_bytes:
            yield self.finding(
                TOKENIZER_JSON, "has a byte-level vocabulary, and no ByteLevel step", place=parts.place("pre_tokenizer")
            )
        if parts.marks_spaces and not parts.encodes_bytes and not parts.writes_spaces:
            message = "has a vocabulary with U+2581 for spaces, and no step that writes it"
            yield self.finding(TOKENIZER_JSON, message, place=parts.place("normalizer"))
        if parts.model.string("type") == "WordPiece" and not parts.steps("pre_tokenizer"):
            message = "has a vocabulary of parts of words, and no pre-tokenizer that cuts texts into words"
            yield self.finding(TOKENIZER_JSON, message, place=parts.place("pre_tokenizer"))


class UnreadMarks(Rule):
    """The decoder of tokenizer.json does not undo what is done to a text before its vocabulary.

    Answers are printed with the marks of the vocabulary in them, or without their spaces.
    """

    code = "TOK243"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no decoder", {TOKENIZER_JSON: {"decoder": None}}),
        Example("a space too many at the beginning", pieces(decoder=UNMARKED)),
    )
    good = (Example("ByteLevel behind ByteLevel"), Example("spaces read again", pieces()))

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = TokenizerParts.of(repository)
        if parts is not None and parts.is_typed and (message := unread(parts)):
            yield self.finding(TOKENIZER_JSON, message, place=parts.place("decoder"))


class ContradictingModelSetting(Rule):
    """A setting of the model in tokenizer.json does not fit its vocabulary.

    A mark that no token has, bytes that are not used, no token for what is unknown: tokens are not found, and letters
    vanish from a text without a word.
    """

    code = "TOK147"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a suffix of another vocabulary", {TOKENIZER_JSON: {"model": {"end_of_word_suffix": "</w>"}}}),
        Example("no token for what is unknown", {TOKENIZER_JSON: {"model": {"unk_token": None}}}),
    )
    good = (
        Example("none"),
        Example(
            "an unknown token that nobody names",
            {
                TOKENIZER_JSON: lambda old: old.replace(b"<unk>", b"<any>").replace(b'"unk_token":"<any>",', b""),
                TOKENIZER_CONFIG: {"unk_token": None},
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = TokenizerParts.of(repository)
        for key, message in contradicting(parts) if parts is not None else ():
            if parts is not None:
                yield self.finding(TOKENIZER_JSON, message, place=parts.model.at(key))


class UncasedVocabulary(Rule):
    """The vocabulary has no capital letters, and tokenizer.json does not put texts into lower case.

    Every word with a capital becomes unknown.
    """

    code = "TOK249"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the normalizer was lost",
            words(normalizer=None),
        ),
    )
    good = (Example("small letters made", words()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = TokenizerParts.of(repository)
        if parts is None or parts.model.string("type") != "WordPiece" or not parts.is_typed:
            return
        lowers = "Lowercase" in parts.types("normalizer") or any(
            step.flag("lowercase") for step in parts.steps("normalizer")
        )
        letters = {letter for token in parts.vocabulary if token not in parts.tokenizer.special for letter in token}
        small = sum("a" <= letter <= "z" for letter in letters)
        if not lowers and small >= FEW and not any("A" <= letter <= "Z" for letter in letters):
            message = "has a vocabulary without capital letters, and no step that makes small ones of them"
            yield self.finding(TOKENIZER_JSON, message, place=parts.place("normalizer"))


RULES: Final[tuple[Rule, ...]] = (
    UnmarkedSpaces(),
    UnreadMarks(),
    ContradictingModelSetting(),
    UncasedVocabulary(),
)


def unread(parts: TokenizerParts) -> str | None:
    """What a decoder leaves in a text."""
    kinds, model = parts.types("decoder"), parts.model
    if parts.encodes_bytes and parts.is_byte_level and not parts.decodes_bytes:
        return "spells bytes as letters before the vocabulary, and has no ByteLevel decoder"
    if parts.marks_spaces and not parts.encodes_bytes and not parts.reads_spaces:
        return "has U+2581 for spaces, and no decoder that makes spaces of it"
    if model.flag("byte_fallback") and parts.byte_tokens and "ByteFallback" not in kinds and parts.steps("decoder"):
        return "spells what is unknown in bytes, and has no ByteFallback decoder"
    if parts.prepended is not None and parts.marks_spaces and parts.prepended != SPACE * parts.stripped:
        return f"puts {printable(parts.prepended, 20)!r} before texts, and takes {count(parts.stripped, 'space')} away"
    return _unread_words(parts)


def _unread_words(parts: TokenizerParts) -> str | None:
    prefix = parts.model.string("continuing_subword_prefix") or "##"
    decoders = [step for step in parts.steps("decoder") if step.string("type") == "WordPiece"]
    if parts.model.string("type") != "WordPiece":
        return _other_space(parts)
    if not decoders:
        return "has parts of words, and no WordPiece decoder that joins them"
    said = decoders[0].string("prefix")
    return None if said in {prefix, None} else f"joins words at {printable(said, 20)!r}; the vocabulary has {prefix!r}"


def _other_space(parts: TokenizerParts) -> str | None:
    """Whether two Metaspace steps disagree about spaces."""
    before = [step for step in parts.steps("pre_tokenizer") if step.string("type") == "Metaspace"]
    behind = [step for step in parts.steps("decoder") if step.string("type") == "Metaspace"]
    for key in ("replacement", "prepend_scheme") if before and behind else ():
        one, other = before[0].string(key), behind[0].string(key)
        if one is not None and other is not None and one != other:
            return f"has {printable(one, 20)!r} as {key} before the vocabulary, and {printable(other, 20)!r} behind it"
    return None


def contradicting(parts: TokenizerParts) -> Iterator[tuple[str, str]]:
    """Key of the model and what is wrong with its value."""
    model, vocabulary = parts.model, parts.vocabulary
    letters = [token for token in vocabulary if len(token) == 1 and token.isalpha()]
    suffix, prefix = model.string("end_of_word_suffix"), model.string("continuing_subword_prefix")
    if model.string("type") == "WordPiece" and prefix is None:
        prefix = "##"
    if suffix and rare(letters, lambda letter: letter + suffix in vocabulary):
        yield "end_of_word_suffix", f"is {printable(suffix, 20)!r}, with which letters of the vocabulary do not end"
    if prefix and rare(letters, lambda letter: prefix + letter in vocabulary):
        yield (
            "continuing_subword_prefix",
            f"is {printable(prefix, 20)!r}, with which letters of the vocabulary do not begin",
        )
    if parts.byte_tokens == 256 and model.string("type") in {"BPE", "Unigram"} and not model.flag("byte_fallback"):
        yield "byte_fallback", "is off, and the vocabulary has a token for every byte"
    if model.flag("byte_fallback") and 0 < parts.byte_tokens < 256:
        lost = count(256 - parts.byte_tokens, "byte")
        yield "byte_fallback", f"is on, and the vocabulary has no token for {lost}"
    if model.raw.get("max_input_chars_per_word") == 0:
        yield "max_input_chars_per_word", "is 0: every word is unknown"
    named = parts.tokenizer.roles.get("unk_token")
    number, real = model.integer("unk_id"), None if named is None else vocabulary.get(named.content)
    if number is not None and real is not None and number != real:
        yield "unk_id", f"is {number}; the unknown token has id {real}"
    if loses_unknown(parts):
        yield "unk_token", "is not set: letters that are not in the vocabulary vanish from a text"


def rare(letters: list[str], is_there: Callable[[str], bool]) -> bool:
    """Whether few letters have another form: a trainer makes it for every letter that it meets so."""
    return bool(letters) and sum(map(is_there, letters)) * 5 < len(letters)


def loses_unknown(parts: TokenizerParts) -> bool:
    """Whether a BPE drops what it has no token for, although the repository names a token for that."""
    model = parts.model
    named = parts.tokenizer.roles.get("unk_token")
    if model.string("type") != "BPE" or model.string("unk_token") is not None or model.flag("byte_fallback"):
        return False
    is_complete = parts.is_byte_level and sum(len(token) == 1 for token in parts.vocabulary) >= 200
    return named is not None and named.content in parts.tokenizer.ids and not is_complete
