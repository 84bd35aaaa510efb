"""CFG: the token at which CLIP reads what it has understood of a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


END: Final = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
FIRST, SECOND = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
ENDING: Final = {
    "type": "TemplateProcessing",
    "single": [FIRST, END],
    "pair": [FIRST, END, SECOND, END],
    "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [4], "tokens": ["<|im_end|>"]}},
}


def clip(**text: object) -> dict[str, Any]:
    """A change that makes config.json one of CLIP, with these keys in its text model."""
    gone = dict.fromkeys(("bos_token_id", "eos_token_id", "head_dim", "pad_token_id", "rope_parameters"), DELETE)
    parts = {"text_config": {"model_type": "clip_text_model", "vocab_size": 32, **text}}
    files = dict.fromkeys(("generation_config.json", "chat_template.jinja", SINGLE))
    config = {**gone, "architectures": DELETE, "model_type": "clip", **parts}
    return {CONFIG: config, "tokenizer.json": {"post_processor": ENDING}, **files}


class UnreadEnd(Rule):
    """CLIP looks for another end of text than the one that the tokenizer writes.

    It takes the vector at that token for the meaning of the text; where there is none, the first token's, which is the
    same for all texts.
    """

    code = "CFG234"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the id of another token", clip(eos_token_id=3)),
        Example("the default, of another vocabulary", clip()),
    )
    good = (
        Example("the tokenizer's", clip(eos_token_id=4)),
        Example("as it was written before 2023, for which the largest id is taken", clip(eos_token_id=2)),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, tokenizer = repository.config, repository.tokenizer
        eos = None if tokenizer is None else tokenizer.roles.get("eos_token")
        number = None if tokenizer is None or eos is None else tokenizer.id_of(eos.content)
        for level in () if config is None or number is None or "auto_map" in config else config.levels:
            if level.string("model_type") != "clip_text_model":
                continue
            said = level.raw.get("eos_token_id", DEFAULT)
            if type(said) is int and said not in {OF_OLD_FILES, number}:
                shown = printable(eos.content, 40) if eos else ""
                message = f"reads a text at {said}; the tokenizer ends it with {number}, {shown!r}"
                place = level.at("eos_token_id") if "eos_token_id" in level else level.pointer
                yield self.finding(CONFIG, message, place=place, hint=f'"eos_token_id": {number}')


RULES: Final[tuple[Rule, ...]] = (UnreadEnd(),)

# transformers 5.24 models/clip: the default of CLIPTextConfig, and the id that older files had by mistake.
DEFAULT: Final = 49407
OF_OLD_FILES: Final = 2
