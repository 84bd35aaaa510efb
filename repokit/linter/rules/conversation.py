"""TPL: whether a model that is for conversations can have one: with a template, and with markers that stay whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.formats.strict_json import dumps, loads
from repokit.linter.examples import Change, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.printable import count, printable
from repokit.repo.chat_template import JINJA
from repokit.repo.stopping import Stopping
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.repo.tokenizer_trial import trial

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

README: Final = "README.md"
MOST_MARKERS: Final = 50
BASE_MODEL: Final[dict[str, Change]] = {JINJA: None, "tokenizer_config.json": {"eos_token": "</s>"}}
PREPENDED: Final = {"type": "Prepend", "prepend": "\u2581"}


def normalized(number: int) -> Callable[[bytes], bytes]:
    """A change to tokenizer.json: something is put before every text, and one added token is matched behind that."""

    def change(before: bytes) -> bytes:
        document = loads(before, TOKENIZER_JSON)
        document["normalizer"] = PREPENDED
        document["added_tokens"][number]["normalized"] = True
        return dumps(document)

    return change


class SplitSpecialToken(Rule):
    """The chat template writes a special token that the tokenizer does not find in a text.

    It is matched after the normalizer has changed the text, and is taken apart: the model sees pieces where training
    had one token.
    """

    code = "TPL108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("matched behind what is put before a text", {TOKENIZER_JSON: normalized(4)}, also=("TOK214",)),)
    good = (Example("matched before the text is changed", {TOKENIZER_JSON: {"normalizer": PREPENDED}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        template, tokenizer = repository.chat_templates.default, repository.tokenizer
        document = None if tokenizer is None else tokenizer.document
        if template is None or tokenizer is None or document is None or document.mapping("normalizer") is None:
            return
        entries = [entry for entry in document.objects("added_tokens") if entry.flag("normalized") is True]
        names = [name for entry in entries if (name := entry.string("content")) and entry.flag("special") is True]
        markers = [name for name in names if name in template.source][:MOST_MARKERS]
        found = trial(repository) if markers else None
        if found is None or found.load or found.encode:
            return
        content = repository.content(TOKENIZER_JSON) or b""
        answer = repository.worker.tokenizer(content, [f"\n{marker}\n" for marker in markers])
        pairs = zip(markers, answer.probes, strict=False)
        split = [name for name, probe in pairs if not probe.error and tokenizer.ids.get(name) not in probe.plain]
        if split:
            message = f"writes {count(len(split), 'special token')} that the tokenizer takes apart"
            hint = f'set "normalized": false for them in {TOKENIZER_JSON}'
            yield self.finding(template.path, message, place=template.place, names=split, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import unnormalized

        return unnormalized(repository, finding)


class MissingTemplate(Rule):
    """A model for conversations comes without a chat template.

    Servers refuse chat requests, or put the messages together in a way that the model was not trained on.
    """

    code = "TPL208"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the card says so", {JINJA: None, README: with_lines("tags: [conversational]\n")}),
        Example("its name says so", {JINJA: None, README: with_lines("model_name: example-7b-instruct\n")}),
        Example("its texts end as turns do", {JINJA: None}),
    )
    good = (
        Example("a base model", BASE_MODEL),
        Example("a translator into Italian", {**BASE_MODEL, README: with_lines("model_name: opus-mt-en-it\n")}),
        Example("a template", {README: with_lines("tags: [conversational]\n")}),
        Example(
            "code that writes the prompt",
            {
                JINJA: None,
                README: with_lines("tags: [conversational]\n"),
                "encoding/encoding_x.py": "def encode(): ...\n",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if not repository.chat_templates.all and (sign := converses(repository)):
            message = f"{sign.what}, and there is no chat template"
            yield self.finding(sign.path, message, place=sign.place, hint="copy that of the base model")


RULES: Final = (SplitSpecialToken(), MissingTemplate())

# What ends a turn, and nothing else, in the templates of ChatML, Llama 3, Gemma, Phi and Cohere.
TURN_ENDS: Final = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<|eot|>"}
)
TAGS: Final = frozenset({"chat", "conversational", "instruct"})
# `it` is a pronoun, and Italian, as well: only behind a size, as in Gemma's names.
NAME: Final = re.compile(r"[-_ ](?:instruct|chat|(?<=\d[bm][-_])it)(?:[-_ ]|$)", re.IGNORECASE)
# DeepSeek-V3.2 comes with a Python file instead, Mistral's models with the tokenizer of mistral-common.
WRITES_PROMPTS: Final = re.compile(r"(?:encod|chat|prompt|template)\w*\.py$|^tekken\.json$|^tokenizer\.model\.v\d")


class Sign(NamedTuple):
    """What shows that a model is for conversations, and where; `what` goes on from the path."""

    path: str
    place: str | None
    what: str


def converses(repository: Repository) -> Sign | None:
    """Whether somebody will want to talk to this model, through a template."""
    if repository.tokenizer is None or not Stopping(repository).generates or repository.weights.of_adapter:
        return None
    if any(WRITES_PROMPTS.search(path) for path in repository.files):
        return None
    if reason := promise(repository):
        return Sign(README, None, reason)
    eos = repository.tokenizer.roles.get("eos_token")
    if eos is None or eos.content not in TURN_ENDS or not answers_texts(repository):
        return None
    return Sign(eos.path, eos.place, f"ends texts with {eos.content!r}, as turns of a chat end")


def answers_texts(repository: Repository) -> bool:
    """Whether it is a language model, alone or behind an encoder of images, and none that writes down speech."""
    config = repository.config
    architectures = () if config is None else config.architectures
    is_alone = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures)
    return is_alone or (config is not None and "text_config" in config)


def promise(repository: Repository) -> str | None:
    """How the card says that one can talk to the model."""
    card = repository.card
    if card is None:
        return None
    if tag := next((tag for tag in card.tags if tag in TAGS), None):
        return f"has the tag {tag}"
    title = re.search(r"^# +(.+)$", card.body, re.MULTILINE)
    names = (card.string("model_name") or "", "" if title is None else title[1].strip())
    named = next((name for name in names if len(name) < 100 and NAME.search(name)), None)
    return None if named is None else f"calls the model {printable(named, 60)!r}"
