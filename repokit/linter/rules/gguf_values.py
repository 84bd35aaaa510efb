"""GGF: values in GGUF files that are possible, and cannot be meant: sizes, special tokens, names with a slip."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.examples_gguf import MODEL, TOKENS, gguf_edited, tensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.conversation import TURN_ENDS
from repokit.linter.rules.gguf import CONVERT_AGAIN
from repokit.linter.rules.gguf_tensors import is_known, known_models
from repokit.linter.rules.gguf_tokenizer import MERGES, NEW, PRE, with_tokens
from repokit.linter.rules.slips import is_slip, meant_by
from repokit.linter.rules.vocabulary_table import MOST
from repokit.printable import count, printable, some
from repokit.repo.card import README
from repokit.repo.gguf import TEMPLATE
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.gguf import GgufFile
    from repokit.repo.repository import Repository

TYPE: Final = "tokenizer.ggml.token_type"
KINDS: Final = (2, 3, 3, 3, 3, *[1] * (len(TOKENS) - 5))  # of the tokens of the base
# llama.cpp src/llama-vocab.cpp, the kinds of vocabulary that it loads.
VOCABULARIES: Final = ("llama", "gpt2", "bert", "t5", "rwkv", "plamo2", "gemma4", "none", "no_vocab", "replit")
SIZES: Final = ("context_length", "embedding_length", "attention.head_count")
ORDINARY: Final = 1  # llama.h, LLAMA_TOKEN_TYPE_NORMAL; types go from 1 to 6
LARGEST: Final = 6

ROLES: Final = frozenset(f"tokenizer.ggml.{role}_token_id" for role in ("bos", "eos", "eot", "unknown"))

_MARKER: Final = re.compile(r"<.*>|\[.*\]", re.DOTALL)
_UNKNOWN: Final = frozenset({"<unk>", "[UNK]"})
_BEGIN: Final = frozenset({"<s>", "<bos>", "<|begin_of_text|>"})
_END: Final = frozenset({"</s>", "<eos>", "<|end_of_text|>"})
_TURN: Final = frozenset({"<|im_start|>", "<|start_header_id|>", "<start_of_turn>"})
# What the token of a role is never called, because it is the usual name of another.
OTHERS: Final[Mapping[str, frozenset[str]]] = {
    "bos": _UNKNOWN | _END | {"<pad>", "[PAD]"},
    "eos": _UNKNOWN | _BEGIN | _TURN | {"<pad>", "[PAD]"},
    "unknown": _BEGIN | _TURN,
}


class ZeroGgufSize(Rule):
    """A size in the metadata of a GGUF file is 0.

    llama.cpp divides by it, or makes no room for a single token.
    """

    code = "GGF140"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("no heads", {MODEL: gguf_edited({"llama.attention.head_count": 0})}, "gguf"),)
    good = (Example("sizes", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            for size in SIZES:
                key = f"{model.head.architecture}.{size}"
                if model.head.integer(key) == 0 and next(model.tensors, None) is not None:
                    yield self.finding(model.head.path, "is 0", place=key, hint=CONVERT_AGAIN)


class ForeignGgufRole(Rule):
    """A GGUF file gives a special role to a token that is another's by its name.

    Texts begin with what ends them, or never end: llama.cpp takes the id, and not the name.
    """

    code = "GGF141"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("an id too far", {MODEL: gguf_edited({"tokenizer.ggml.bos_token_id": 2})}, "gguf"),
        Example(
            "the beginning of a turn for its end", {MODEL: gguf_edited({"tokenizer.ggml.eos_token_id": 3})}, "gguf"
        ),
    )
    good = (
        Example("the end of a text and of a turn", {MODEL: gguf_edited({"tokenizer.ggml.bos_token_id": 4})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            for role, others in OTHERS.items():
                key = f"tokenizer.ggml.{role}_token_id"
                text = file.text_of(file.integer(key))
                if text in others:
                    message = f"is {file.integer(key)}, which is the token {printable(text, 40)!r}"
                    yield self.finding(file.path, message, place=key, hint=NEW)


class MisspelledGgufVocabulary(Rule):
    """A GGUF file names a kind of vocabulary, or of pre-tokenizer, with a slip in it.

    llama.cpp stops: "unknown tokenizer", "unknown pre-tokenizer type".
    """

    code = "GGF142"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a letter too many", {MODEL: gguf_edited({"tokenizer.ggml.model": "gpt2x"})}, "gguf"),)
    good = (Example("a pre-tokenizer of a later version", {MODEL: gguf_edited({PRE: "frobnicate"})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = {"tokenizer.ggml.model": VOCABULARIES, PRE: tuple(data("gguf_names")["pre_tokenizers"])}
        for file in with_tokens(repository):
            for key, names in known.items():
                name = file.string(key)
                if name and name not in names and (meant := meant_by(name, names)) is not None:
                    message = f"is {printable(name, 40)!r}, which llama.cpp does not know"
                    yield self.finding(file.path, message, place=key, hint=f"did you mean {meant}?")


class ImpossibleTokenType(Rule):
    """A token of a GGUF file has a type that there is not.

    llama.cpp takes it for no type at all, and prints it or not as it happens.
    """

    code = "GGF143"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a type of nothing", {MODEL: gguf_edited({TYPE: [0, *KINDS[1:]]})}, "gguf"),)
    good = (Example("types from 1 to 6", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            wrong = sorted({kind for kind in kinds(file) if not ORDINARY <= kind <= LARGEST})
            if wrong:
                yield self.finding(file.path, f"has the type {wrong[0]}, which there is not", place=TYPE)


class MisspelledGgufTensor(Rule):
    """A tensor of a GGUF file has a name that is nearly one of its architecture.

    llama.cpp does not find the one, or stops at the other: "wrong number of tensors".
    """

    code = "GGF144"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a letter short",
            {MODEL: gguf_edited(drop=("output.weight",), add={"outut.weight": tensors()["output.weight"]})},
            "gguf",
        ),
    )
    good = (Example("the names of llama", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in known_models(repository):
            known = frozenset(data("gguf_names")["tensors"][model.head.architecture].split())
            there = {tensor.name for tensor in model.tensors}
            for name in there:
                meant = None if is_known(name, known) else _meant(name, known)
                if meant is not None and meant not in there:
                    message = f"holds {printable(name, 60)}, which is not a tensor of {model.head.architecture}"
                    yield self.finding(model.head.path, message, place=name, hint=f"did you mean {meant}?")


class UnnamedGgufRole(Rule):
    """A GGUF file has a token for a role, and no key that gives it the role.

    llama.cpp takes the id that the first model with this kind of vocabulary had.
    """

    code = "GGF240"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("no beginning", {MODEL: gguf_edited({"tokenizer.ggml.bos_token_id": None})}, "gguf"),)
    good = (Example("a key for each", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            if file.string("tokenizer.ggml.model") != "gpt2" or not file.special:
                continue
            for role, names in (("bos", _BEGIN), ("unknown", _UNKNOWN)):
                key = f"tokenizer.ggml.{role}_token_id"
                token = next((name for name in sorted(names) if name in special(file)), None)
                if key not in file and token is not None:
                    message = f"has no {key}, and the special token {token!r}"
                    yield self.finding(file.path, message, place=key, hint=NEW)


class OrdinaryGgufRole(Rule):
    """A token with a role is an ordinary one in a GGUF file.

    llama.cpp prints it at the end of every answer, and does not find it in a chat.
    """

    code = "GGF241"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a type of another vocabulary", {MODEL: gguf_edited({TYPE: [1, *KINDS[1:]]})}, "gguf"),)
    good = (Example("a role for a special token", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            types = kinds(file)
            if not any(kind != ORDINARY for kind in types):
                continue
            for key, number in file.token_ids:
                if key in ROLES and 0 <= number < len(types) and types[number] == ORDINARY:
                    message = f"is {number}, {printable(file.text_of(number), 40)!r}, which is an ordinary token"
                    yield self.finding(file.path, message, place=key, hint=CONVERT_AGAIN)


class UnreachableGgufToken(Rule):
    """No merge of a GGUF file makes a token of its vocabulary, although one makes every other.

    A merge was lost or changed: no text becomes the token, and what it stood for is taken apart.
    """

    code = "GGF242"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a merge was lost", {MODEL: gguf_edited({MERGES: ["a s", "e r"]})}, "gguf"),)
    good = (Example("a merge for each", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            if file.string("tokenizer.ggml.model") != "gpt2":
                continue
            key = ("gguf merges", f"{id(file.tokens)} {id(file.array(MERGES))}")
            lost = repository.remember(key, lambda file=file: unmade(file))  # type: ignore[misc]
            if 0 < len(lost) <= MOST:
                message = f"has {count(len(lost), 'token')} that no merge makes: {some(lost, MOST)}"
                yield self.finding(file.path, message, place=MERGES, names=lost, hint=CONVERT_AGAIN)


class MissingGgufTemplate(Rule):
    """The texts of a GGUF file end as turns of a chat do, and it has no chat template.

    llama.cpp and Ollama put messages together in a form that they guess.
    """

    code = "GGF243"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("it was not converted", {MODEL: gguf_edited({"tokenizer.chat_template": None})}, "gguf"),)
    good = (Example("a template", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            text = file.text_of(file.integer("tokenizer.ggml.eos_token_id"))
            is_misspelt = any(is_slip(key, TEMPLATE) for key in file.header.metadata)  # another rule speaks of it
            if text in TURN_ENDS and not file.templates and not is_misspelt and not repository.chat_templates.all:
                message = f"ends texts with {text!r}, and has no chat template"
                yield self.finding(file.path, message, place="tokenizer.chat_template", hint=CONVERT_AGAIN)


class MissingGgufFile(Rule):
    """The card says that there are GGUF files, and there is none.

    The upload failed, or the file has another ending: the Hub shows no quantisation, and llama.cpp finds nothing.
    """

    code = "GGF244"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the upload failed", {MODEL: None}, "gguf"),
        Example("a letter short", {MODEL: None, "example-F32.guf": "GGUF"}, "gguf"),
    )
    good = (Example("a file", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is not None and "gguf" in card.tags and not any(".gguf" in path for path in repository.files):
            yield self.finding(README, "has the tag gguf, and there is no GGUF file", place=card.place("tags"))


RULES: Final[tuple[Rule, ...]] = (
    ZeroGgufSize(),
    ForeignGgufRole(),
    MisspelledGgufVocabulary(),
    ImpossibleTokenType(),
    MisspelledGgufTensor(),
    UnnamedGgufRole(),
    OrdinaryGgufRole(),
    UnreachableGgufToken(),
    MissingGgufTemplate(),
    MissingGgufFile(),
)


def kinds(file: GgufFile) -> tuple[int, ...]:
    """The type of every token; () where there is no such list."""
    types = file.array(TYPE)
    if types is None or types.kind != "i32":
        return ()
    return struct.unpack(f"<{len(types)}i", types.raw)


def special(file: GgufFile) -> frozenset[str]:
    """The tokens that are not ordinary ones."""
    named = (file.text_of(number) for number, kind in enumerate(kinds(file)) if kind in {2, 3})
    return frozenset(text for text in named if text is not None)


def unmade(file: GgufFile) -> tuple[str, ...]:
    """Ordinary tokens of several letters that no merge makes."""
    tokens, merges, types = file.tokens, file.array(MERGES), kinds(file)
    if tokens is None or merges is None or merges.kind != "string" or not len(merges):
        return ()
    made = {merge.replace(b" ", b"") for merge in merges.strings}
    pairs = zip(tokens.strings, types, strict=False)
    plain = (token for token, kind in pairs if kind == ORDINARY and token not in made)
    lost = (token.decode("utf-8", "replace") for token in plain)
    return tuple(text for text in lost if len(text) > 1 and not _MARKER.fullmatch(text))


def _meant(name: str, known: frozenset[str]) -> str | None:
    """The tensor that a name is a slip of."""
    block = re.search(r"\.(\d+)\.", name)
    number = block[1] if block else "0"
    names = (f"{one.replace('*', number)}.{end}" for one in sorted(known) for end in ("weight", "bias"))
    return next((one for one in names if is_slip(name, one)), None)
