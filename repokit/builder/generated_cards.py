"""Model cards that a trainer wrote and no one has edited: they are replaced. What a person wrote is never thrown away.

Sources of the sentences: transformers modelcard.py and utils/hub.py, trl templates/*_model_card.md, peft peft_model.py,
huggingface_hub templates/modelcard_template.md.
"""

from __future__ import annotations

import re
from typing import Final

_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING: Final = re.compile(r"#{1,6} +(.*?) *")

# Without one of these, a card is a person's, however short.
_MARKS: Final = (
    "generated automatically according to the information the Trainer had access to",
    "generated automatically according to the information Keras had access to",
    "has been automatically generated",
    "It has been trained using [TRL]",
    "[More Information Needed]",
)

# Lines that a template leaves in any section.
_ANYWHERE: Final = re.compile(
    r"(?:- \*\*[^*]+:\*\* )?\[More Information Needed\]|More information needed"
    r"|- \*\*(?:Model type|Language\(s\) \(NLP\)|License|Finetuned from model \[optional\]):\*\* .*"
    r"|Users \(both direct and downstream\) should be made aware of the risks, biases and limitations of the model\..*"
    r"|Use the code below to get started with the model\."
    r"|Carbon emissions can be estimated using the \[Machine Learning Impact calculator\].*"
    r"|\*\*(?:BibTeX|APA):\*\*"
    r"|This is the model card of a .* model that has been pushed on the Hub\..*"
)
# Lines that a trainer writes into a section, by its heading; the title has none.
_IN_SECTION: Final = {
    "": re.compile(
        r"This model (?:is a fine-tuned version of|was trained from scratch on) .*|It has been trained using \[TRL\].*"
        r"|It achieves the following results on the evaluation set:|- [\w ./-]+: [-\w.+]+"
    ),
    "Training hyperparameters": re.compile(
        r"The following hyperparameters were used during training:|- [a-z0-9_]+: .*"
    ),
    "Training results": re.compile(r"\|.*\|"),
    "Training procedure": re.compile(
        r"\[<img .*|This model was trained with \w+(?:, a method introduced in \[.*\]\(\S*\))?\.|- [a-z0-9_]+: .*"
        r"|The following `bitsandbytes` quantization config was used during training:"
    ),
    "Framework versions": re.compile(r"- \w+:? \S+"),
    "Quick start": re.compile(r".*"),
    "Citations": re.compile(r".*"),
}


def is_generated(body: str) -> bool:
    """Whether every line of a card's body is one that a trainer writes; an empty body is nobody's.

    Args:
        body: Without the front matter.
    """
    lines = [line.strip() for line in _COMMENT.sub("", body).splitlines()]
    if not any(lines):
        return True
    return any(mark in _joined(body) for mark in _MARKS) and not any(_written_by_a_person(lines))


def _joined(body: str) -> str:
    """With line breaks as blanks: the Trainer's comment breaks its sentence."""
    return " ".join(body.split())


def _written_by_a_person(lines: list[str]) -> list[str]:
    section, found = "", []
    for number, line in enumerate(lines):
        if heading := _HEADING.fullmatch(line):
            section = "" if line.startswith("# ") and not any(lines[:number]) else heading[1]
            continue
        known = _IN_SECTION.get(section)
        if line and not _ANYWHERE.fullmatch(line) and not (known and known.fullmatch(line)):
            found.append(line)
    return found
