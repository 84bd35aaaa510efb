"""TOK: special tokens: which they are, whether all files agree on them, and what ends a generation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.token_ids import ROWS, with_added, with_rows
from repokit.printable import count, printable
from repokit.repo.lookalikes import seen_as
from repokit.repo.special_tokens import conflicts, untyped
from repokit.repo.stopping import EOS, Stopping
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import ADDED_TOKENS, TOKENIZER_CONFIG

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

MAP: Final = "special_tokens_map.json"
WITHOUT_BOS: Final = {TOKENIZER_CONFIG: {"bos_token": None}}


class ContradictingSpecialTokens(Rule):
    """special_tokens_map.json and tokenizer_config.json name different tokens for one purpose.

    transformers 5 believes the map wherever tokenizer_config.json has no added_tokens_decoder, other readers believe
    tokenizer_config.json: a model that stops in one never stops in the other.
    """

    code = "TOK104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("a map of the base model", {MAP: {"eos_token": "</s>"}}),)
    good = (
        Example("the same tokens, one spelled out", {MAP: {"eos_token": {"content": "<|im_end|>", "lstrip": False}}}),
        Example("a map that leaves some out", {MAP: {"pad_token": "<pad>"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, special_map = repository.tokenizer_config, repository.special_tokens_map
        if config is None or special_map is None:
            return
        for role, (ours, theirs) in conflicts(config, special_map).items():
            message = (
                f"has {printable(theirs, 40)!r} as {printable(role, 40)}, {config.path} has {printable(ours, 40)!r}"
            )
            yield self.finding(special_map.path, message, place=special_map.at(role), hint=f"delete {special_map.path}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import as_config

        return as_config(repository, finding)


class UntypedToken(Rule):
    """A token in tokenizer_config.json is an object that does not say that it is a token.

    transformers stops: "has to be either str or AddedToken but got: dict". In special_tokens_map.json it would be fine.
    """

    code = "TOK116"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("copied out of special_tokens_map.json", {TOKENIZER_CONFIG: {"pad_token": {"content": "<pad>"}}}),
        Example("in a list", {TOKENIZER_CONFIG: {"additional_special_tokens": ["<s>", {"content": "</s>"}]}}),
    )
    good = (
        Example(
            "as transformers writes it", {TOKENIZER_CONFIG: {"pad_token": {"__type": "AddedToken", "content": "<pad>"}}}
        ),
        Example("text", {TOKENIZER_CONFIG: {"pad_token": "<pad>"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        for place in untyped(config) if config is not None else ():
            if config is not None:
                message = 'has a token that is an object without "__type": "AddedToken"'
                yield self.finding(config.path, message, place=place, hint="write its text alone")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import typed

        return typed(repository, finding)


class IdWithoutToken(Rule):
    """config.json or generation_config.json gives a special role to an id that no token has.

    What the model ends, begins or pads with cannot be written down, and decoding it fails or gives nothing.
    """

    code = "TOK110"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the pad token was not published",
            {**with_rows(64), "config.json": {"pad_token_id": 40, "vocab_size": 64}},
            also=("TOK212",),
        ),
    )
    good = (Example("every id has a token", with_rows(64)),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or not tokenizer.is_read or tokenizer.rows is None:
            return
        known = set(tokenizer.ids.values())
        for key in ("bos_token_id", EOS, "pad_token_id"):
            for declared in Stopping(repository).declared(key):
                lost = [number for number in declared.ids if number < tokenizer.rows and number not in known]
                if lost:
                    message = f"has {key} {', '.join(map(str, lost))}, which is no token of {tokenizer.path}"
                    yield self.finding(declared.path, message, place=declared.place)


class UnlistedEos(Rule):
    """The tokenizer's end-of-text token is not among the ids that end a generation.

    Generation runs on to the length limit: transformers listens to generation_config.json and config.json alone.
    """

    code = "TOK111"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example(
            "chat training changed the tokenizer only",
            {"generation_config.json": {EOS: 2}, "config.json": {EOS: 2}},
        ),
        Example("an empty end-of-text token", {TOKENIZER_CONFIG: {"eos_token": ""}, "chat_template.jinja": None}),
    )
    good = (
        Example("listed in generation_config.json alone", {"config.json": {EOS: 2}}),
        Example(
            "the default of the model's config class",
            {
                "generation_config.json": None,
                "config.json": {EOS: DELETE},
                TOKENIZER_CONFIG: {"eos_token": "</s>"},
                "chat_template.jinja": None,
            },
        ),
        Example("a tokenizer without a token for the beginning", WITHOUT_BOS),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer, stopping = repository.tokenizer, Stopping(repository)
        eos = None if tokenizer is None else tokenizer.roles.get("eos_token")
        if tokenizer is None or eos is None or not stopping.generates or stopping.ids is None:
            return
        if not eos.content:
            yield self.finding(eos.path, "has an empty eos_token", place=eos.place)
        elif (number := tokenizer.id_of(eos.content)) is not None and number not in stopping.ids:
            listed = ", ".join(map(str, sorted(stopping.ids))) or "none"
            said = list(stopping.declared(EOS))
            path, place = (said[-1].path, said[-1].place) if said else ("config.json", None)
            message = f"does not end a generation at {_shown(eos.content)}, id {number}: the ids that do are {listed}"
            yield self.finding(
                path, message, place=place, hint=f"add {number} to eos_token_id of generation_config.json"
            )

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import ending_at_eos

        return ending_at_eos(repository, finding)


class DiscardedSpecialTokens(Rule):
    """tokenizer_config.json has both extra_special_tokens and additional_special_tokens, and they differ.

    transformers 5 reads the first and drops the second: its tokens are split like any other text.
    """

    code = "TOK203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a file that two versions have written",
            {
                TOKENIZER_CONFIG: {
                    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                    "extra_special_tokens": ["<|im_start|>"],
                }
            },
            also=("TOK301",),
        ),
    )
    good = (Example("only the older spelling", {TOKENIZER_CONFIG: {"additional_special_tokens": ["<|im_start|>"]}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.tokenizer_config
        if config is None or not config.raw.get("extra_special_tokens"):
            return
        kept = set(map(str, config.raw["extra_special_tokens"]))
        lost = [token for token in config.strings("additional_special_tokens") if token not in kept]
        if lost:
            message = f"loses {count(len(lost), 'token')} of additional_special_tokens to extra_special_tokens"
            yield self.finding(config.path, message, place=config.at("additional_special_tokens"), names=lost)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import with_all_extras

        return with_all_extras(repository, finding)


class AppendedSpecialToken(Rule):
    """A special token is not in tokenizer.json.

    transformers adds it when it loads, with an id for which no embedding was trained; other readers of tokenizer.json
    split it like any text.
    """

    code = "TOK209"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("named, and never added", {TOKENIZER_CONFIG: {"image_token": "<image>"}, **with_rows(64)}),
        Example(
            "known to the slow tokenizer only",
            {
                TOKENIZER_CONFIG: {"added_tokens_decoder": {str(ROWS): {"content": "<tool>", "special": True}}},
                **with_rows(64),
            },
        ),
    )
    good = (Example("every special token is a token"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        for token in tokenizer.appended if tokenizer is not None else ():
            if token.path != ADDED_TOKENS:
                message = f"names the special token {_shown(token.content)}, which {TOKENIZER_JSON} does not have"
                yield self.finding(token.path, message, place=token.place, hint="save the tokenizer after adding it")


class DisagreeingSpecialId(Rule):
    """An id for the beginning or for padding is not the one that the tokenizer has.

    Code that asks the config and code that asks the tokenizer build different inputs.
    """

    code = "TOK212"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("ids of an earlier tokenizer", {"config.json": {"bos_token_id": 2}}),)
    good = (
        Example("-1, by which LLaMA 1 said none", {"config.json": {"pad_token_id": -1}}),
        Example("a tokenizer without the role", WITHOUT_BOS),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        for role in ("bos_token", "pad_token") if tokenizer is not None else ():
            token = None if tokenizer is None else tokenizer.roles.get(role)
            number = None if tokenizer is None or token is None else tokenizer.id_of(token.content)
            for declared in Stopping(repository).declared(f"{role}_id"):
                if token is not None and number is not None and number not in declared.ids:
                    said = ", ".join(map(str, declared.ids))
                    message = f"has {role}_id {said}; the tokenizer's {_shown(token.content)} is {number}"
                    yield self.finding(declared.path, message, place=declared.place)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.token_ids import as_tokenizer

        return as_tokenizer(repository, finding)


class DisagreeingTokenFlags(Rule):
    """tokenizer.json and added_tokens_decoder describe a token differently.

    Fast and slow tokenizers then match it differently: with or without the space beside it, whole or in pieces.
    """

    code = "TOK213"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a special token that is none in the other file",
            {TOKENIZER_CONFIG: {"added_tokens_decoder": {"4": {"content": "<|im_end|>", "special": False}}}},
        ),
    )
    good = (
        Example(
            "the same flags",
            {TOKENIZER_CONFIG: {"added_tokens_decoder": {"4": {"content": "<|im_end|>", "special": True}}}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is not None and (names := tokenizer.differently_flagged):
            message = f"describes {count(len(names), 'token')} otherwise than {TOKENIZER_JSON}"
            yield self.finding(TOKENIZER_CONFIG, message, place="/added_tokens_decoder", names=names)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import with_flags

        return with_flags(repository, finding)


class NormalizedSpecialToken(Rule):
    """A special token is matched after normalization, and the normalizer puts something before every text.

    The token is then looked for in a text that has changed, and is split into pieces where no space stands before it.
    """

    code = "TOK214"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a token added with the defaults",
            {
                TOKENIZER_JSON: lambda old: with_added("<x>", ROWS, normalized=True)(
                    old.replace(b'"normalizer": null', b'"normalizer": {"type": "Prepend", "prepend": "\xe2\x96\x81"}')
                ),
                **with_rows(64),
            },
        ),
    )
    good = (
        Example(
            "a normalizer that prepends nothing",
            {TOKENIZER_JSON: with_added("<x>", ROWS, normalized=True), **with_rows(64)},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        document = None if tokenizer is None else tokenizer.document
        if document is None or '"type": "Prepend"' not in json.dumps(document.raw.get("normalizer")):
            return
        entries = [entry for entry in document.objects("added_tokens") if entry.flag("special") is True]
        if names := [entry.raw["content"] for entry in entries if entry.flag("normalized") is True]:
            message = f"normalizes {count(len(names), 'special token')}, and the normalizer prepends"
            yield self.finding(document.path, message, place="/added_tokens", names=[str(name) for name in names])

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import unnormalized

        return unnormalized(repository, finding)


class LookalikeToken(Rule):
    """An added token looks like another one, or holds characters that cannot be seen.

    Text that reads as the end of a turn is then not the end of a turn, or the reverse.
    """

    code = "TOK215"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a zero-width space inside", {TOKENIZER_JSON: with_added("<s\u200b>", ROWS), **with_rows(64)}),
        Example("a Cyrillic letter", {TOKENIZER_JSON: with_added("</\u0455>", ROWS), **with_rows(64)}),
    )
    good = (Example("DeepSeek's wide bars", {TOKENIZER_JSON: with_added("<\uff5cUser\uff5c>", ROWS), **with_rows(64)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None:
            return
        plain = {token.content for token in tokenizer.added}
        for token in tokenizer.added:
            seen = seen_as(token.content)
            if seen != token.content and seen in plain:
                message = f"has the added token {printable(ascii(token.content), 60)}, which looks like {_shown(seen)}"
                yield self.finding(tokenizer.path, message, place=token.place)


RULES: Final = (
    ContradictingSpecialTokens(),
    UntypedToken(),
    IdWithoutToken(),
    UnlistedEos(),
    DiscardedSpecialTokens(),
    AppendedSpecialToken(),
    DisagreeingSpecialId(),
    DisagreeingTokenFlags(),
    NormalizedSpecialToken(),
    LookalikeToken(),
)


def _shown(token: str) -> str:
    return repr(printable(token, 60))
