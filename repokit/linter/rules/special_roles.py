"""TOK: special tokens that are there and have no role, or lack a flag that all others have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.strict_json import dumps, loads
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.special_tokens import STANDARD_ROLES
from repokit.repo.stopping import EOS, Stopping
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.tokenizer import Tokenizer

# What tokens with a role are called, in the files of the families that have them.
USUAL: Final = {
    "bos_token": frozenset({"<s>", "<bos>", "<|bos|>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>"}),
    "eos_token": frozenset({"</s>", "<eos>", "<|eos|>", "[EOS]"}),
    "unk_token": frozenset({"<unk>", "[UNK]", "<|unk|>"}),
    "sep_token": frozenset({"[SEP]"}),
    "pad_token": frozenset({"<pad>", "[PAD]", "<|pad|>"}),
    "cls_token": frozenset({"[CLS]"}),
    "mask_token": frozenset({"<mask>", "[MASK]"}),
}
_OF_ENCODERS: Final = frozenset({"cls_token", "sep_token", "mask_token"})
# Classes without tokens of their own: what tokenizer_config.json does not name has no role.
GENERIC: Final = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})


def flagged(number: int, **flags: bool) -> Callable[[bytes], bytes]:
    """A change to tokenizer.json: flags of one added token."""

    def change(before: bytes) -> bytes:
        document = loads(before, TOKENIZER_JSON)
        document["added_tokens"][number].update(flags)
        return dumps(document)

    return change


class UnnamedRole(Rule):
    """tokenizer.json has a special token for a purpose, and tokenizer_config.json names none for it.

    Programs ask the tokenizer for its end, its padding, its unknown token, and are told that there is none: batches
    fail, and code that stops at eos_token never does.
    """

    code = "TOK245"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no end, though generation has one", {TOKENIZER_CONFIG: {"eos_token": None}}),
        Example("no padding", {TOKENIZER_CONFIG: {"pad_token": None}}),
    )
    good = (
        Example("a role for each"),
        Example("no beginning, by design", {TOKENIZER_CONFIG: {"bos_token": None}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer = repository.tokenizer_config, repository.tokenizer
        if config is None or tokenizer is None or tokenizer.document is None or "auto_map" in config:
            return
        is_generic = config.string("tokenizer_class") in GENERIC
        for role in STANDARD_ROLES:
            is_open = role not in tokenizer.roles and (role in config or is_generic)
            token = meant(repository, tokenizer, role) if is_open else None
            if token is not None and not (role in config and is_meant_so(tokenizer, role, token)):
                message = f"names no {role}, and tokenizer.json has {printable(token, 40)!r}"
                hint = f"set {role} to {printable(token, 40)}"
                yield self.finding(config.path, message, place=config.at(role), hint=hint)


class OddTokenFlag(Rule):
    """One special token is matched otherwise than all the others.

    It takes in the spaces beside it, is found in whole words alone, or in a text that was changed before: a chat or a
    mask is then tokenized otherwise than in training.
    """

    code = "TOK248"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("whole words alone", {TOKENIZER_JSON: flagged(3, single_word=True)}),
        Example("the space behind it", {TOKENIZER_JSON: flagged(4, rstrip=True)}),
    )
    good = (
        Example("all of them alike"),
        Example(
            "spaces behind every one", {TOKENIZER_JSON: lambda old: old.replace(b'"rstrip":false', b'"rstrip":true')}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        document = None if tokenizer is None else tokenizer.document
        entries = [] if document is None else [one for one in document.objects("added_tokens") if one.flag("special")]
        for flag in ("single_word", "lstrip", "rstrip", *(("normalized",) if _lowers(document) else ())):
            odd = [entry for entry in entries if entry.flag(flag) is True]
            if len(odd) != 1 or len(entries) < MANY:
                continue
            name = odd[0].string("content") or ""
            if flag != "lstrip" or "mask" not in name.lower():  # `<mask>` takes in the space before it, by design
                message = f"sets {flag} for {printable(name, 40)!r} alone, of {len(entries)} special tokens"
                yield self.finding(odd[0].path, message, place=odd[0].at(flag))


RULES: Final[tuple[Rule, ...]] = (UnnamedRole(), OddTokenFlag())

MANY: Final = 3


def meant(repository: Repository, tokenizer: Tokenizer, role: str) -> str | None:
    """The special token that must have a role which no file gives."""
    special = {token.content: token.id for token in tokenizer.added if token.special}
    if role in _OF_ENCODERS and len(_OF_ENCODERS & tokenizer.roles.keys()) < len(_OF_ENCODERS) - 1:
        return None  # a decoder has these tokens for nothing
    if named := next((token for token in special if token in USUAL[role]), None):
        return named
    if role == "eos_token" and Stopping(repository).generates:
        ends = {number for declared in Stopping(repository).declared(EOS) for number in declared.ids}
        return next((token for token, number in special.items() if number in ends), None)
    if role in _OF_ENCODERS:
        return next(iter(_put(tokenizer, role)), None)
    return None


def is_meant_so(tokenizer: Tokenizer, role: str, token: str) -> bool:
    """Whether a role that is null is so by design: Qwen's texts have no beginning, though there is a token for one."""
    used = {name for name, _, _ in tokenizer.post_processor} | {named.content for named in tokenizer.roles.values()}
    return role == "bos_token" and token not in used


def _put(tokenizer: Tokenizer, role: str) -> Iterator[str]:
    """What a post-processor of BERT's or RoBERTa's kind calls `cls` and `sep`."""
    processor = None if tokenizer.document is None else tokenizer.document.mapping("post_processor")
    match None if processor is None else processor.raw.get(role.removesuffix("_token")):
        case [str(token), int()]:
            yield token


def _lowers(document: Document | None) -> bool:
    """Whether texts are put into lower case before added tokens that are normalized are looked for."""
    normalizer = None if document is None else document.mapping("normalizer")
    return normalizer is not None and normalizer.flag("lowercase") is True
