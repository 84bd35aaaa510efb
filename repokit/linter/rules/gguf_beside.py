"""GGF: what a GGUF file puts around a text, against its chat template and the tokenizer that it was converted from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, tokenizer_json
from repokit.linter.examples_gguf import CHAT, MODEL, gguf, gguf_edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.gguf_tokenizer import NEW, templates_of, with_tokens
from repokit.printable import printable
from repokit.repo.gguf import EOS, TEMPLATE
from repokit.repo.token_ids import TOKENIZER_JSON

if TYPE_CHECKING:
    from repokit.repo.gguf import GgufFile
    from repokit.repo.repository import Repository

ADD_BOS: Final = "tokenizer.ggml.add_bos_token"
ADD_EOS: Final = "tokenizer.ggml.add_eos_token"
SEP: Final = "tokenizer.ggml.seperator_token_id"  # as docs/gguf.md spells it


def appending(token: str, number: int) -> bytes:
    """The tokenizer of the examples with a post-processor that puts a token after every text."""
    after = {"SpecialToken": {"id": token, "type_id": 0}}
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    processor = {
        "type": "TemplateProcessing",
        "single": [one, after],
        "pair": [one, after, other, after],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
    spelled = json.dumps(processor).encode()
    return tokenizer_json().replace(b'"post_processor": null', b'"post_processor": ' + spelled)


class OtherAppendedToken(Rule):
    """A GGUF file puts another token after a text than the tokenizer.json beside it.

    The converter took the end of a text from tokenizer_config.json, and training appended what the post-processor of
    tokenizer.json appends. An embedding is read at that token: it comes out wrong, without an error.
    """

    code = "GGF150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "an embedding model whose texts end with the token of the base",
            {MODEL: gguf_edited({ADD_EOS: True}), TOKENIZER_JSON: appending("</s>", 2)},
            "gguf",
        ),
        Example("the same, left to llama.cpp", {TOKENIZER_JSON: appending("</s>", 2)}, "gguf"),
    )
    good = (
        Example(
            "the same token",
            {MODEL: gguf_edited({ADD_EOS: True}), TOKENIZER_JSON: appending("<|im_end|>", 4)},
            "gguf",
        ),
        Example("nothing is appended", {MODEL: gguf_edited({ADD_EOS: True})}, "gguf"),
        Example(
            "by llama.cpp neither", {MODEL: gguf_edited({ADD_EOS: False}), TOKENIZER_JSON: appending("</s>", 2)}, "gguf"
        ),
        Example(
            "an encoder, whose texts end with a separator",
            {MODEL: gguf_edited({"tokenizer.ggml.seperator_token_id": 2}), TOKENIZER_JSON: appending("</s>", 2)},
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        files = [file for file in with_tokens(repository) if EOS in file and is_set(file, ADD_EOS) is not False]
        tokenizer = repository.tokenizer if files else None
        appended = None if tokenizer is None else appended_token(tokenizer.document)
        for file in files:
            own = file.text_of(file.integer(EOS))
            if appended is not None and own is not None and appended not in {own, file.text_of(file.integer(SEP))}:
                message = f"ends a text with {printable(own, 60)!r}, {TOKENIZER_JSON} with {printable(appended, 60)!r}"
                hint = f"{NEW} --special-token eos {printable(appended, 60)!r}"
                yield self.finding(file.path, message, place=EOS, hint=hint)


class DoubledGgufBos(Rule):
    """The chat template in a GGUF file begins with the token that the file also asks to put before every text.

    Readers that tokenize a rendered chat with the defaults begin with two of them, which the model has not seen so.
    llama.cpp takes one away since 2025.
    """

    code = "GGF250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("both add it", {MODEL: gguf_edited({ADD_BOS: True, TEMPLATE: "{{ bos_token }}" + CHAT})}, "gguf"),)
    good = (
        Example("only the template", {MODEL: gguf_edited({ADD_BOS: False, TEMPLATE: "<s>" + CHAT})}, "gguf"),
        Example("only the file", {MODEL: gguf_edited({ADD_BOS: True})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        files = {file.path: file for file in with_tokens(repository)}
        for template, templates, paths in templates_of(repository):
            file = files[template.path]
            bos = file.roles.get("bos_token")
            if not bos or not is_set(file, ADD_BOS) or template.name != "default" or templates.problem(template):
                continue
            texts = [probe.rendered.text for probe in templates.probes(template)]
            if any(text.startswith(bos) for text in texts if text is not None):
                message = f"begins with {printable(bos, 40)!r}, which {ADD_BOS} adds too"
                yield self.finding(template.path, message, place=template.place, names=paths)


# llama.cpp include/llama.h `llama_ftype`, without those that name no width: bits of a weight by number.
BITS: Final = {
    **dict.fromkeys((0,), 32),
    **dict.fromkeys((1, 32), 16),
    **dict.fromkeys((7,), 8),
    **dict.fromkeys((18,), 6),
    **dict.fromkeys((8, 9, 16, 17), 5),
    **dict.fromkeys((2, 3, 14, 15, 25, 30), 4),
    **dict.fromkeys((11, 12, 13, 22, 23, 26, 27), 3),
    **dict.fromkeys((10, 19, 20, 21, 28, 29), 2),
    **dict.fromkeys((24, 31), 1),
}
TYPE: Final = "general.file_type"
_NAMED: Final = re.compile(
    r"(?:^|[-._])(?:(?:B?F(?P<float>16|32))|I?Q(?P<bits>[1-8])_[A-Z0-9_]+)(?=[-.])", re.IGNORECASE
)


class MisnamedGguf(Rule):
    """A GGUF file is called after another number of bits than its weights have.

    Everyone chooses a file of such a repository by that name: one takes more memory, or loses more, than they chose.
    """

    code = "GGF350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a file that was copied", {"example-Q8_0.gguf": gguf_edited({TYPE: 15})(gguf()[MODEL])}, "gguf"),
        Example("converted again under the old name", {MODEL: gguf_edited({TYPE: 1})}, "gguf"),
    )
    good = (
        Example("as it is called", {"example-Q4_K_M.gguf": gguf_edited({TYPE: 15})(gguf()[MODEL])}, "gguf"),
        Example(
            "a mixture with a name of its own", {"x-UD-Q4_K_XL.gguf": gguf_edited({TYPE: 15})(gguf()[MODEL])}, "gguf"
        ),
        Example("no type", {MODEL: gguf_edited({TYPE: None})}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for model in repository.gguf.models:
            found = list(_NAMED.finditer(model.head.path.rpartition("/")[2]))
            kind = model.head.integer(TYPE)
            bits = None if kind is None else BITS.get(kind)
            if len(found) != 1 or bits is None:
                continue
            named = int(found[0]["float"] or found[0]["bits"])
            if named != bits:
                message = f"is named after {named} bits; {TYPE} is {kind}, of {bits} bits"
                yield self.finding(model.head.path, message, place=TYPE, hint="rename it, or convert it again")


RULES: Final = (OtherAppendedToken(), DoubledGgufBos(), MisnamedGguf())


def is_set(file: GgufFile, key: str) -> bool | None:
    """A boolean; None where it is not there, or something else."""
    entry = file.header.metadata.get(key)
    return entry.value if entry is not None and isinstance(entry.value, bool) else None


def appended_token(tokenizer: object) -> str | None:
    """The token that a post-processor of tokenizer.json puts after a single text; None where there is none."""
    processor = getattr(tokenizer, "raw", {}).get("post_processor")
    steps = processor.get("processors") if isinstance(processor, dict) else None
    for step in (processor, *(steps if isinstance(steps, list) else ())):
        match step:
            case {"type": "TemplateProcessing", "single": [*_, {"SpecialToken": {"id": str() as token}}]}:
                return token
    return None
