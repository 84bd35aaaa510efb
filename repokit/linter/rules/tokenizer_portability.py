"""TOK: what other readers make of tokenizer.json: of its flags, its merges, and the SentencePiece model beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.sentencepiece import count_pieces
from repokit.formats.strict_json import dumps, loads
from repokit.linter.examples import VOCABULARY, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.files import is_pointer
from repokit.printable import count, printable
from repokit.repo.stopping import EOS, Stopping
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import is_tiktoken
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

SENTENCEPIECE: Final = "tokenizer.model"
PIECE: Final = b"\x0a\x08\x0a\x01a\x15\0\0\0\0"  # "a", score 0


def ordinary(token: str) -> Callable[[bytes], bytes]:
    """A change to tokenizer.json: an added token is no longer special."""

    def change(before: bytes) -> bytes:
        document = loads(before, TOKENIZER_JSON)
        for entry in document["added_tokens"]:
            entry["special"] = entry["special"] and entry["content"] != token
        return dumps(document)

    return change


def split_by(expression: str) -> dict[str, object]:
    """A change to tokenizer.json: texts are cut by an expression."""
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]}}


_QWEN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class OrdinaryRoleToken(Rule):
    """A token with a role, such as the end of a text, is not special in tokenizer.json.

    Readers of tokenizer.json leave it in the text when they decode and are asked to skip special tokens: users read
    `<|im_end|>` at the end of every answer.
    """

    code = "TOK217"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("flags of a training run", {TOKENIZER_JSON: ordinary("<|im_end|>")}),
        Example("one that ends a generation too", {TOKENIZER_JSON: ordinary("</s>")}),
    )
    good = (Example("a token without a role", {TOKENIZER_JSON: ordinary("<|im_start|>")}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None:
            return
        roles = {token.content: role for role, token in tokenizer.roles.items()}
        ends = {number for declared in Stopping(repository).declared(EOS) for number in declared.ids}
        for token in tokenizer.added:
            if not token.special and token.id in ends:
                roles.setdefault(token.content, "end of a generation")
        for token in tokenizer.added:
            if not token.special and token.content in roles:
                message = f"says that {printable(token.content, 40)!r}, the {roles[token.content]}, is not special"
                yield self.finding(token.path, message, place=f"{token.place}/special", hint='"special": true')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import special

        return special(repository, finding)


class StaleSentencepiece(Rule):
    """tokenizer.model has pieces whose ids no token of tokenizer.json has.

    Slow tokenizers and converters read the one, fast tokenizers the other: what the first produce, the second cannot
    decode.
    """

    code = "TOK218"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a model with more pieces", {SENTENCEPIECE: PIECE * (len(VOCABULARY) + 2)}),)
    good = (
        Example("as many", {SENTENCEPIECE: PIECE * len(VOCABULARY)}),
        Example("tokens added behind the pieces", {SENTENCEPIECE: PIECE * 8}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None or not repository.has(SENTENCEPIECE):
            return
        content = b"" if is_pointer(repository, SENTENCEPIECE) else repository.content(SENTENCEPIECE) or b""
        if not content or is_tiktoken(content):
            return
        pieces = count_pieces(content, SENTENCEPIECE)
        if lost := sorted(set(range(pieces)) - set(tokenizer.ids.values())):
            message = (
                f"has {count(pieces, 'piece')}; {TOKENIZER_JSON} has no token for {count(len(lost), 'id')} of them"
            )
            names = [str(number) for number in lost]
            yield self.finding(SENTENCEPIECE, message, names=names, hint="save the tokenizer again, and compare")


class MergesAsPairs(Rule):
    """The merges in tokenizer.json are lists of two.

    tokenizers 0.20 and later write and read them so; older versions, and several readers in other languages, know only
    text with a space.
    """

    code = "TOK303"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("as tokenizers writes it", {TOKENIZER_JSON: {"model": {"merges": [[*"as"], [*"er"], [*"us"]]}}}),)
    good = (Example("text with a space", {TOKENIZER_JSON: {"model": {"merges": ["a s", "e r", "u s"]}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        model = _model(repository)
        merges = None if model is None else model.raw.get("merges")
        if model is not None and isinstance(merges, list) and merges and isinstance(merges[0], list):
            message = f"has {count(len(merges), 'merge')} as lists, which tokenizers before 0.20 does not read"
            yield self.finding(model.path, message, place=model.at("merges"))


class UnknownSplit(Rule):
    """The pre-tokenizer cuts texts by a regular expression that llama.cpp does not have.

    Its converter tells pre-tokenizers by their results and stops at another one: "BPE pre-tokenizer was not
    recognized". Whoever wants the model as GGUF must teach it to llama.cpp first.
    """

    code = "TOK304"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("an expression of one's own", {TOKENIZER_JSON: split_by(r"\p{L}+|[0-9]{5}|.")}),)
    good = (
        Example("Qwen's", {TOKENIZER_JSON: split_by(_QWEN)}),
        Example("GPT-2's, which is built in"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        model, document = _model(repository), repository.document(TOKENIZER_JSON)
        if model is None or document is None or model.raw.get("type", "BPE") != "BPE" or model.raw.get("byte_fallback"):
            return  # of the others llama.cpp converts the vocabulary as SentencePiece or WordPiece
        if repository.config is None or not any(_GENERATES.search(name) for name in repository.config.architectures):
            return  # nobody wants those as GGUF; CLIP's expression is one of its own
        known = data("gguf_names")["splits"]
        for place, expression in split_expressions(document.raw.get("pre_tokenizer")):
            if without_flags(expression) not in known:
                message = "cuts texts by an expression that no pre-tokenizer of llama.cpp has"
                yield self.finding(TOKENIZER_JSON, message, place=f"/pre_tokenizer{place}/pattern/Regex")


RULES: Final = (OrdinaryRoleToken(), StaleSentencepiece(), MergesAsPairs(), UnknownSplit())

_GENERATES: Final = re.compile(r"For(?:CausalLM|ConditionalGeneration)$")
_CASELESS: Final = re.compile(r"\(\?i:([^()]*)\)")


def without_flags(expression: str) -> str:
    r"""An expression as llama.cpp spells it, which has no flags and no possessive repeats.

    `(?i:'s|'t)` becomes `(?:'[sS]|'[tT])`, and `\p{L}++` becomes `\p{L}+`.
    """
    plain = expression.replace("\r", "\\r").replace("\n", "\\n")
    plain = _CASELESS.sub(lambda found: f"(?:{re.sub('[a-z]', _either, found[1])})", plain)
    return re.sub(r"([+*?}])\+", r"\1", plain)


def _either(letter: re.Match[str]) -> str:
    return f"[{letter[0]}{letter[0].upper()}]"


def split_expressions(pre_tokenizer: object, place: str = "") -> Iterator[tuple[str, str]]:
    """The regular expressions of `Split` steps, with their places in the pre-tokenizer; sequences may be nested."""
    pending = [(place, pre_tokenizer)]
    while pending:
        place, step = pending.pop()
        if not isinstance(step, dict):
            continue
        pattern, steps = step.get("pattern"), step.get("pretokenizers")
        if step.get("type") == "Split" and isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
            yield place, pattern["Regex"]
        if isinstance(steps, list):
            pending += [(f"{place}/pretokenizers/{number}", inner) for number, inner in enumerate(steps)][::-1]


def _model(repository: Repository) -> Document | None:
    document = repository.document(TOKENIZER_JSON)
    return None if document is None else document.mapping("model")
