"""GGF: the vocabulary, the special tokens and the chat templates inside GGUF files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.linter.examples import Example
from repokit.linter.examples_gguf import CHAT, MODEL, TOKENS, gguf_edited, in_parts
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.chat_template import JINJA, PASSED
from repokit.repo.gguf import EOS, TEMPLATE, GgufFile, Templates, vocabulary_of
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository

PRE: Final = "tokenizer.ggml.pre"
MERGES: Final = "tokenizer.ggml.merges"
LIST: Final = "tokenizer.ggml.tokens"
CONVERT_AGAIN: Final = "convert the original model again with a current convert_hf_to_gguf.py"
NEW: Final = "gguf_new_metadata.py of llama.cpp writes a copy:"
LLAMA_3: Final = (b"<|begin_of_text|>", b"<|start_header_id|>", b"<|end_header_id|>", b"<|eot_id|>")
LLAMA_3_TOKENS: Final = [*TOKENS[:-4], *(token.decode() for token in LLAMA_3)]


class MissingPreTokenizer(Rule):
    """A GGUF file with a BPE vocabulary does not say how text is cut before the merges.

    llama.cpp falls back on a default that is nearly always another: "generation quality will be degraded". Numbers and
    punctuation become tokens that the model has not seen so.
    """

    code = "GGF103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("converted before May 2024", {MODEL: gguf_edited({PRE: None})}, "gguf"),)
    good = (
        Example("SentencePiece needs none", {MODEL: gguf_edited({PRE: None, "tokenizer.ggml.model": "llama"})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            if file.string("tokenizer.ggml.model") == "gpt2" and PRE not in file:
                yield self.finding(file.path, f"has no {PRE}", hint=CONVERT_AGAIN)


class MismatchedPreTokenizer(Rule):
    """A GGUF file has the vocabulary of Llama 3 and cuts text by the rules of another model.

    A tokenizer.json that was edited is no longer recognised by the converter: numbers and words are cut otherwise than
    in training.
    """

    code = "GGF201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "Llama 3 taken for Smaug",
            {MODEL: gguf_edited({PRE: "smaug-bpe", LIST: LLAMA_3_TOKENS})},
            "gguf",
        ),
    )
    good = (
        Example(
            "Smaug itself",
            {MODEL: gguf_edited({PRE: "smaug-bpe", LIST: LLAMA_3_TOKENS, "general.name": "Smaug Llama 3"})},
            "gguf",
        ),
        Example("Llama 3", {MODEL: gguf_edited({PRE: "llama-bpe", LIST: LLAMA_3_TOKENS})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            pre = file.string(PRE)
            if pre not in {"smaug-bpe", "default"} or file.string("tokenizer.ggml.model") != "gpt2":
                continue
            named = f"{file.string('general.name')} {file.string('general.basename')} {file.path}".lower()
            vocabulary = vocabulary_of(repository, file)
            if "smaug" not in named and all(token in vocabulary for token in LLAMA_3):
                message = f"is {pre}; the vocabulary is Llama 3's, which llama-bpe cuts text for"
                yield self.finding(file.path, message, place=PRE, hint=f"{NEW} --pre-tokenizer llama-bpe")


class UnknownPreTokenizer(Rule):
    """A GGUF file names a pre-tokenizer that is not in the table of llama.cpp that repokit has.

    A llama.cpp that does not know it stops: "unknown pre-tokenizer type".
    """

    code = "GGF301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a name of someone's own", {MODEL: gguf_edited({PRE: "my-bpe"})}, "gguf"),)
    good = (Example("one that llama.cpp knows", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = data("gguf_names")["pre_tokenizers"]
        for file in with_tokens(repository):
            pre = file.string(PRE)
            if file.string("tokenizer.ggml.model") == "gpt2" and pre and pre not in known:
                message = f"is {printable(pre, 60)!r}, which this version has not heard of"
                yield self.finding(file.path, message, place=PRE)


class MissingMerges(Rule):
    """A GGUF file with a BPE vocabulary has no merges.

    llama.cpp and Ollama stop: "cannot find tokenizer merges in model file". An old converter met merges written as
    pairs and wrote none.
    """

    code = "GGF104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("a converter that did not understand them", {MODEL: gguf_edited({MERGES: None})}, "gguf"),)
    good = (
        Example("Kimi K2 has none by right", {MODEL: gguf_edited({MERGES: None, PRE: "kimi-k2"})}, "gguf"),
        Example(
            "SentencePiece has scores", {MODEL: gguf_edited({MERGES: None, "tokenizer.ggml.model": "llama"})}, "gguf"
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            merges = file.array(MERGES)
            if file.string("tokenizer.ggml.model") not in {"gpt2", "gemma4"} or file.string(PRE) == "kimi-k2":
                continue
            if MERGES not in file or (merges is not None and not len(merges)):
                yield self.finding(file.path, f"has no {MERGES}", hint=CONVERT_AGAIN)


class TokenIdOutOfVocabulary(Rule):
    """A special token of a GGUF file has an id that no token has.

    4294967295 is -1 in 32 bits: the converter wrote "none" as a number. llama.cpp ignores the key and takes a default
    that belongs to another model; stricter readers stop.
    """

    code = "GGF108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("none as a number", {MODEL: gguf_edited({"tokenizer.ggml.padding_token_id": 2**32 - 1})}, "gguf"),
        Example("the id of a larger vocabulary", {MODEL: gguf_edited({EOS: 151_645})}, "gguf"),
    )
    good = (
        Example("the last token", {MODEL: gguf_edited({"tokenizer.ggml.padding_token_id": len(TOKENS) - 1})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            tokens = file.tokens
            if tokens is None:
                continue
            wrong = {key: number for key, number in file.token_ids if not 0 <= number < len(tokens)}
            for key, number in wrong.items():
                none = number == 2**32 - 1
                message = f"is {number}{', which is -1,' if none else ''} and there are {count(len(tokens), 'token')}"
                hint = f"{NEW} --remove-metadata {key}" if none else "gguf_set_metadata.py sets it in place"
                why = None if none else "llama.cpp ignores the key and takes a default that belongs to another model."
                yield self.finding(file.path, message, place=key, hint=hint, why=why)


class ShortTokenTable(Rule):
    """A GGUF file has fewer types or scores than tokens.

    llama.cpp stops: "index out of array bounds"; older ones read whatever lies behind the table.
    """

    code = "GGF109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("types of an older vocabulary", {MODEL: gguf_edited({"tokenizer.ggml.token_type": [3, 3, 1]})}, "gguf"),
        Example("scores of an older vocabulary", {MODEL: gguf_edited({"tokenizer.ggml.scores": [0.0]})}, "gguf"),
    )
    good = (
        Example("a score for each token", {MODEL: gguf_edited({"tokenizer.ggml.scores": [0.0] * len(TOKENS)})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            tokens = file.tokens
            for key in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
                table = file.array(key)
                if tokens is not None and table is not None and len(table) < len(tokens):
                    message = f"has {count(len(table), 'entry', 'entries')} for {count(len(tokens), 'token')}"
                    yield self.finding(file.path, message, place=key, hint=CONVERT_AGAIN)


class DuplicateToken(Rule):
    """Two tokens of a GGUF file have the same text.

    llama.cpp keeps one id for each text and stops at the difference: "duplicate token in vocabulary".
    """

    code = "GGF110"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a token that was added once more", {MODEL: gguf_edited({LIST: [*TOKENS[:-1], "<|im_end|>"]})}, "gguf"),
    )
    good = (Example("tokens without a text", {MODEL: gguf_edited({LIST: [*TOKENS[:-2], "", ""]})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in with_tokens(repository):
            vocabulary, tokens = vocabulary_of(repository, file), file.tokens
            if tokens is None or len(vocabulary) == len(tokens):
                continue
            twice = [token for token, number in Counter(tokens.strings).items() if number > 1 and token]
            if twice:
                names = [printable(token.decode("utf-8", "replace"), 60) for token in twice]
                yield self.finding(file.path, f"has {count(len(twice), 'token')} twice", place=LIST, names=names)


# ---------------------------------------------------------------- chat templates


class UnusableGgufTemplate(Rule):
    """The chat template in a GGUF file is not a template, or renders none of the ordinary conversations.

    llama.cpp, Ollama and LM Studio take it from there and from nowhere else: every chat fails, or never begins.
    """

    code = "GGF113"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a loop that does not end", {MODEL: gguf_edited({TEMPLATE: "{% for m in messages %}"})}, "gguf"),
        Example(
            "more than a chat can take",
            {MODEL: gguf_edited({TEMPLATE: "{% for i in range(1000000000) %}{% endfor %}"})},
            "gguf",
        ),
    )
    good = (
        Example("a comment in it", {MODEL: gguf_edited({TEMPLATE: CHAT + "{# one #}"})}, "gguf"),
        Example("no template", {MODEL: gguf_edited({TEMPLATE: None, EOS: 2})}, "gguf"),
        Example("a variable that llama.cpp passes", {MODEL: gguf_edited({TEMPLATE: "{{ functions + 'x' }}"})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, templates, paths in templates_of(repository):
            problem = templates.problem(template)
            if problem is None:
                problems = [probe.rendered.error for probe in templates.probes(template)]
                stopped = next((one for one in problems if one and one.kind in {"limit", "crash"}), None)
                problem = stopped or (problems[0] if all(problems) else None)
            if problem is not None and problem.kind != "forbidden" and problem.message not in PASSED:
                message = f"cannot be used: {printable(problem.message)}"
                yield self.finding(template.path, message, place=template.place, names=paths)


class ForbiddenGgufTemplate(Rule):
    """The chat template in a GGUF file reaches for Python's internals or for other files.

    That is how templates attack whoever renders them; an honest one has no use for it. It was not run.
    """

    code = "GGF114"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a way out of the sandbox", {MODEL: gguf_edited({TEMPLATE: CHAT + "{{ ''.__class__.__mro__ }}"})}, "gguf"
        ),
    )
    good = (Example("what chats are made of", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template, templates, paths in templates_of(repository):
            problem = templates.problem(template)
            if problem is not None and problem.kind == "forbidden":
                message = f"is not run: {printable(problem.message)}"
                yield self.finding(template.path, message, place=template.place, names=paths)


class DifferingGgufTemplate(Rule):
    """The chat template in a GGUF file is another one than the repository's own.

    The same repository is two models: one for llama.cpp, one for transformers. Instructions were hidden so.
    """

    code = "GGF115"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the template was changed afterwards", {JINJA: CHAT.replace("user", "human") + "!"}, "gguf"),)
    good = (Example("an equal copy", {JINJA: CHAT + "\n"}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        own = repository.chat_templates.default
        for template, _, paths in templates_of(repository):
            if own is not None and template.name == own.name and template.source.strip() != own.source.strip():
                message = f"is another chat template than the one in {own.path}"
                hint = f"{NEW} --chat-template-file {JINJA}"
                yield self.finding(template.path, message, place=template.place, names=paths, hint=hint)


class UnstoppedTurn(Rule):
    """The token with which the chat template of a GGUF file ends a turn does not end a generation.

    The model writes it and goes on: it answers itself until the length limit.
    """

    code = "GGF116"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the id of a base model",
            {
                MODEL: gguf_edited(
                    {
                        EOS: 2,
                        LIST: [token.replace("<|im_end|>", "<|turn_end|>") for token in TOKENS],
                        TEMPLATE: CHAT.replace("<|im_end|>", "<|turn_end|>"),
                    }
                )
            },
            "gguf",
        ),
    )
    good = (
        Example(
            "a second id for the turn",
            {MODEL: gguf_edited({EOS: 2, "tokenizer.ggml.eot_token_id": 4})},
            "gguf",
        ),
        Example("the parts of a split file", in_parts(2), "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for end in turn_ends(repository):
            if not end.is_guessed:
                message = f"ends a turn with {printable(end.text, 60)!r}, id {end.number}, which ends no generation"
                hint = f"{NEW} --special-token-by-id eot {end.number}"
                yield self.finding(end.template.path, message, place=TEMPLATE, hint=hint)


class GuessedTurnEnd(Rule):
    """A GGUF file does not declare the token that ends a turn; llama.cpp guesses it by its text.

    Readers that go by eos_token_id alone do not stop there.
    """

    code = "GGF304"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the id of a base model, and ChatML", {MODEL: gguf_edited({EOS: 2})}, "gguf"),)
    good = (Example("declared", base="gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for end in turn_ends(repository):
            if end.is_guessed:
                message = f"ends a turn with {printable(end.text, 60)!r}, id {end.number}, which no key declares"
                hint = f"{NEW} --special-token-by-id eot {end.number}"
                yield self.finding(end.template.path, message, place=TEMPLATE, hint=hint)


class TurnEnd(NamedTuple):
    """A token that ends a turn and is not declared to.

    Attributes:
        is_guessed: Whether llama.cpp knows it by its text.
    """

    template: ChatTemplate
    text: str
    number: int
    is_guessed: bool


def turn_ends(repository: Repository) -> Iterator[TurnEnd]:
    """Of every GGUF file whose template ends turns with special tokens of which none is declared to end them."""
    known = data("gguf_names")["end_tokens"]
    for file in with_tokens(repository):
        template = next((one for one in file.templates if one.name == "default"), None)
        templates = Templates(repository, file)
        if template is None or is_encoder(file) or templates.problem(template) is not None:
            continue
        key = ("gguf terminator", f"{sorted(file.roles.items())}{template.source}")
        suffix = repository.remember(key, lambda t=templates, one=template: t.terminator(one)) or ""  # type: ignore[misc]
        ends = {text: number for text, number in file.special.items() if text in suffix}
        if ends and file.ending.isdisjoint(ends.values()):
            text = next((text for text in ends if text in known), min(ends, key=suffix.index))
            yield TurnEnd(template, text, ends[text], text in known)


def is_encoder(file: GgufFile) -> bool:
    """Whether it makes embeddings: no turn ever ends."""
    return f"{file.architecture}.pooling_type" in file


def with_tokens(repository: Repository) -> Iterator[GgufFile]:
    """The head of every model, which holds the vocabulary."""
    return (model.head for model in repository.gguf.models)


def templates_of(repository: Repository) -> Iterator[tuple[ChatTemplate, Templates, tuple[str, ...]]]:
    """Every chat template once, with the file that renders it and all the files that have it."""
    found: dict[tuple[str, str], list[tuple[GgufFile, ChatTemplate]]] = {}
    for file in with_tokens(repository):
        for template in file.templates:
            found.setdefault((template.name, template.source), []).append((file, template))
    for copies in found.values():
        file, template = copies[0]
        paths = tuple(other.path for other, _ in copies)
        yield template, Templates(repository, file), paths if len(paths) > 1 else ()


RULES: Final = (
    MissingPreTokenizer(),
    MismatchedPreTokenizer(),
    UnknownPreTokenizer(),
    MissingMerges(),
    TokenIdOutOfVocabulary(),
    ShortTokenTable(),
    DuplicateToken(),
    UnusableGgufTemplate(),
    ForbiddenGgufTemplate(),
    DifferingGgufTemplate(),
    UnstoppedTurn(),
    GuessedTurnEnd(),
)
