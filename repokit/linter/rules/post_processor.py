"""TOK: what the post-processor of a tokenizer.json puts around every text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.tokenizer import ENCODER
from repokit.printable import printable
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer import TOKENIZER_CONFIG
from repokit.repo.tokenizer_parts import TokenizerParts

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

TEXT: Final = {"Sequence": {"id": "A", "type_id": 0}}
SECOND: Final = {"Sequence": {"id": "B", "type_id": 1}}
BEGIN: Final = {"SpecialToken": {"id": "<s>", "type_id": 0}}
END: Final = {"SpecialToken": {"id": "</s>", "type_id": 0}}


def around(single: list[Any], pair: list[Any] | None = None, **ids: int) -> dict[str, Any]:
    """A change to tokenizer.json: a template of `<s>` and `</s>`."""
    numbers = {"<s>": 1, "</s>": 2} | {name.replace("begin", "<s>").replace("end", "</s>"): ids[name] for name in ids}
    special = {token: {"id": token, "ids": [number], "tokens": [token]} for token, number in numbers.items()}
    whole = [BEGIN, TEXT, END, SECOND, END] if pair is None else pair
    template = {"type": "TemplateProcessing", "single": single, "pair": whole, "special_tokens": special}
    return {TOKENIZER_JSON: {"post_processor": template}}


class MisnumberedPostProcessor(Rule):
    """The post-processor puts another id around texts than the one that its token has.

    Every text begins or ends with another token than the model was trained with, and nothing shows it.
    """

    code = "TOK142"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("an id of another vocabulary", around([BEGIN, TEXT, END], begin=7)),
        Example(
            "no id at all",
            {
                TOKENIZER_JSON: {
                    "post_processor": around([BEGIN, TEXT, END])[TOKENIZER_JSON]["post_processor"]
                    | {
                        "special_tokens": {
                            "<s>": {"id": "<s>", "ids": [], "tokens": []},
                            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]},
                        }
                    }
                }
            },
        ),
    )
    good = (Example("the ids of the vocabulary", around([BEGIN, TEXT, END])),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        tokenizer = repository.tokenizer
        if tokenizer is None or tokenizer.document is None:
            return
        for token, number, place in tokenizer.post_processor:
            real = tokenizer.ids.get(token)
            if real is not None and real != number:
                message = f"puts id {number} for {printable(token, 40)!r}, which has id {real}"
                yield self.finding(TOKENIZER_JSON, message, place=place)
        for template in templates(repository):
            special = template.mapping("special_tokens")
            for name in special.raw if special is not None else ():
                entry = None if special is None else special.mapping(name)
                if entry is not None and len(entry.integers("ids")) != max(len(entry.strings("tokens")), 1):
                    message = f"has other numbers of ids and of tokens for {printable(name, 40)!r}"
                    yield self.finding(TOKENIZER_JSON, message, place=entry.at("ids"))


class LopsidedTemplate(Rule):
    """The post-processor treats a text and two texts otherwise, or leaves one out.

    A text is lost, has a token too many, or lacks the one that it was trained with.
    """

    code = "TOK143"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the end twice", around([BEGIN, TEXT, END, END])),
        Example("no text", around([BEGIN, END])),
        Example("the second text is lost", around([BEGIN, TEXT, END], [BEGIN, TEXT, END])),
        Example("no beginning of two", around([BEGIN, TEXT, END], [TEXT, END, SECOND, END])),
    )
    good = (
        Example("one and two texts", around([BEGIN, TEXT, END])),
        Example("two ends between two texts", around([BEGIN, TEXT, END], [BEGIN, TEXT, END, END, SECOND, END])),
        Example("a beginning of each", around([BEGIN, TEXT], [BEGIN, TEXT, BEGIN, SECOND])),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for template in templates(repository):
            found = fault(template)
            if found is not None:
                key, message = found
                yield self.finding(TOKENIZER_JSON, message, place=template.at(key))


class MissingEnds(Rule):
    """An encoder's tokenizer puts nothing around a text, although it has tokens for that.

    The model was trained with a first and a last token, and often answers with what stands at the first.
    """

    code = "TOK244"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("no post-processor", ENCODER | {TOKENIZER_CONFIG: {"cls_token": "<s>", "sep_token": "</s>"}}),)
    good = (
        Example(
            "both are put",
            ENCODER | around([BEGIN, TEXT, END]) | {TOKENIZER_CONFIG: {"cls_token": "<s>", "sep_token": "</s>"}},
        ),
        Example("a decoder", {TOKENIZER_CONFIG: {"cls_token": "<s>", "sep_token": "</s>"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer, parts = repository.config, repository.tokenizer, TokenizerParts.of(repository)
        if config is None or not config.architectures or tokenizer is None or parts is None or not parts.is_typed:
            return
        wanted = ENDS.get(config.model_type or "", ())
        named = [tokenizer.roles[role].content for role in wanted if role in tokenizer.roles]
        if wanted and len(named) == len(wanted) and not tokenizer.post_processor:
            message = f"puts nothing around a text, and has {' and '.join(printable(token, 40) for token in named)}"
            yield self.finding(TOKENIZER_JSON, message, place=parts.place("post_processor"))


class HalfReadPostProcessor(Rule):
    """A setting of the post-processor is missing or has another type.

    The library tries one kind after the other: it takes the one that fits what is left, and says nothing.
    """

    code = "TOK148"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "RoBERTa's without its flag",
            {
                TOKENIZER_JSON: {
                    "post_processor": {
                        "type": "RobertaProcessing",
                        "sep": ["</s>", 2],
                        "cls": ["<s>", 1],
                        "add_prefix_space": True,
                    }
                }
            },
        ),
    )
    good = (
        Example(
            "both flags",
            {
                TOKENIZER_JSON: {
                    "post_processor": {
                        "type": "RobertaProcessing",
                        "sep": ["</s>", 2],
                        "cls": ["<s>", 1],
                        "trim_offsets": True,
                        "add_prefix_space": True,
                    }
                }
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        parts = TokenizerParts.of(repository)
        for step in parts.steps("post_processor") if parts is not None else ():
            # tokenizers 0.23 processors/mod.rs: untagged; BertProcessing takes what has `sep` and `cls`.
            for key in ("trim_offsets", "add_prefix_space") if step.string("type") == "RobertaProcessing" else ():
                if step.flag(key) is None:
                    message = f"is a RobertaProcessing without {key}, which the library reads as a BertProcessing"
                    yield self.finding(TOKENIZER_JSON, message, place=step.at(key))


RULES: Final[tuple[Rule, ...]] = (
    MisnumberedPostProcessor(),
    LopsidedTemplate(),
    MissingEnds(),
    HalfReadPostProcessor(),
)

_BOTH: Final = ("cls_token", "sep_token")
_END: Final = ("eos_token",)
# What the tokenizer of a family puts around every text (transformers 5.24 models/*/tokenization_*.py).
ENDS: Final = {
    **dict.fromkeys(("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"), _BOTH),
    **dict.fromkeys(("layoutlm", "longformer", "mobilebert", "mpnet", "roberta", "squeezebert"), _BOTH),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl"), _BOTH),
    **dict.fromkeys(("bart", "clip", "t5", "mt5", "longt5", "umt5"), _END),
}


class Half(NamedTuple):
    """One of the two templates: the special tokens before the first text and behind the last, and the texts."""

    before: tuple[str, ...]
    behind: tuple[str, ...]
    texts: tuple[str, ...]
    names: frozenset[str]


def templates(repository: Repository) -> Iterator[Document]:
    """The TemplateProcessing steps of tokenizer.json."""
    parts = TokenizerParts.of(repository)
    for step in parts.steps("post_processor") if parts is not None else ():
        if step.string("type") == "TemplateProcessing":
            yield step


def fault(template: Document) -> tuple[str, str] | None:
    """Which of its keys is at fault, and how."""
    single, pair, special = half(template, "single"), half(template, "pair"), template.mapping("special_tokens")
    if single is None or pair is None or special is None:
        return None  # in the short form, or of another type
    if single.texts != ("A",):
        return "single", f"holds {len(single.texts)} texts instead of the one that is given"
    if sorted(pair.texts) != ["A", "B"]:
        return "pair", "does not hold the two texts that are given once each"
    if lost := (single.names | pair.names) - special.raw.keys():
        return "special_tokens", f"lacks {printable(min(lost), 40)!r}, which the template puts"
    if single.before != pair.before or single.behind != pair.behind:
        return "pair", "puts other tokens around two texts than around one"
    return None


def half(template: Document, key: str) -> Half | None:
    """What a template says; None where it is not a list of pieces."""
    pieces = list(template.objects(key))
    raw = template.raw.get(key)
    if not isinstance(raw, list) or len(pieces) != len(raw):
        return None
    named = [_piece(piece) for piece in pieces]
    texts = [index for index, (kind, _) in enumerate(named) if kind == "Sequence"]
    first, last = (texts[0], texts[-1]) if texts else (len(named), len(named))
    return Half(
        tuple(name for _, name in named[:first]),
        tuple(name for _, name in named[last + 1 :]),
        tuple(named[index][1] for index in texts),
        frozenset(name for kind, name in named if kind == "SpecialToken"),
    )


def _piece(piece: Document) -> tuple[str, str]:
    for kind in ("Sequence", "SpecialToken"):
        inner = piece.mapping(kind)
        if inner is not None:
            return kind, inner.string("id") or ""
    return "", ""
