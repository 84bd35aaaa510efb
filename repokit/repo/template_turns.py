"""What a chat template makes of conversations whose every word is known, so that what is lost can be seen.

The words hold what HTML escapes and Jinja trims at the ends only: a template that changes them changes every prompt.
Each conversation goes through with contents as text, and as lists where that loses the question, because templates for
pictures read lists alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository

Message = Mapping[str, Any]

SYSTEM: Final = "Answer <briefly> & well."
QUESTION: Final = "Which <quolls> & 'dogs' smile?"
REPLY: Final = "quokkas <do> & so."
NEXT: Final = "Where do they live?"
PLACE: Final = "Rottnest"
RESULT: Final = "12000 quokkas"

_ASKED: Final[Message] = {"role": "user", "content": QUESTION}
_CALL: Final[Message] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "abcdef123", "type": "function", "function": {"name": "count_animals", "arguments": {"place": PLACE}}}
    ],
}
_RESULT: Final[Message] = {"role": "tool", "tool_call_id": "abcdef123", "name": "count_animals", "content": RESULT}
_CONVERSATIONS: Final[Mapping[str, tuple[Message, ...]]] = {
    "asked": (_ASKED,),
    "prompted": (_ASKED,),
    "instructed": ({"role": "system", "content": SYSTEM}, _ASKED),
    "answered": (_ASKED, {"role": "assistant", "content": REPLY}),
    "asked twice": (_ASKED, {"role": "user", "content": REPLY}),
    "continued": (_ASKED, {"role": "assistant", "content": REPLY}, {"role": "user", "content": NEXT}),
    "equipped": (_ASKED,),
    "called": (_ASKED, _CALL, _RESULT),
}
# A marker such as <|im_start|>, [INST] or <start_of_turn>, a word, or any other character.
_PART: Final = re.compile(r"<[^<>\s]{1,42}>|\[/?[A-Z_]{2,20}\]|\w+|\s|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turns:
    """One template's renderings; None where it refuses a conversation.

    Attributes:
        asked: One question.
        prompted: The same with add_generation_prompt.
        instructed: A system message before it.
        answered: The question and its answer.
        asked_twice: The words of `answered`, both said by the user.
        continued: A second question behind the answer.
        equipped: The question with a tool at hand.
        called: The tool called, and its result.
    """

    asked: str | None
    prompted: str | None
    instructed: str | None
    answered: str | None
    asked_twice: str | None
    continued: str | None
    equipped: str | None
    called: str | None

    @property
    def header(self) -> str | None:
        """What stands between a question and its answer, once the question's turn has ended."""
        if self.asked is None or self.answered is None or not self.answered.startswith(self.asked):
            return None
        behind = self.answered[len(self.asked) :]
        return behind.partition(REPLY)[0] if REPLY in behind else None

    @property
    def prompt(self) -> str | None:
        """What add_generation_prompt adds behind the question; None where it changes what stands before."""
        if self.asked is None or self.prompted is None or not self.prompted.startswith(self.asked):
            return None
        return self.prompted[len(self.asked) :]

    @property
    def user_header(self) -> str | None:
        """What stands before a question that is not the first."""
        if self.answered is None or self.continued is None or not self.continued.startswith(self.answered):
            return None
        behind = self.continued[len(self.answered) :]
        return behind.partition(NEXT)[0] if NEXT in behind else None

    @property
    def takes_tools(self) -> bool:
        """Whether a tool at hand is told to the model."""
        return self.equipped is not None and "count_animals" in self.equipped


def turns(repository: Repository, template: ChatTemplate) -> Turns:
    """The renderings of a template that compiles, in the form of contents that it reads."""
    return repository.remember(("turns", template.source), lambda: _turns(repository, template))


def _turns(repository: Repository, template: ChatTemplate) -> Turns:
    as_text = _rendered(repository, template, as_list=False)
    if as_text.asked is not None and QUESTION in as_text.asked:
        return as_text
    as_lists = _rendered(repository, template, as_list=True)
    return as_lists if as_lists.asked is not None else as_text


def _rendered(repository: Repository, template: ChatTemplate, *, as_list: bool) -> Turns:
    cases = [
        repository.chat_templates.variables(
            conversation,
            as_list=as_list,
            prompt=name in {"prompted", "equipped", "called"},
            with_tools=name in {"equipped", "called"},
        )
        for name, conversation in _CONVERSATIONS.items()
    ]
    return Turns(*(result.text for result in repository.worker.render_many(template.source, cases)))


def alike(first: str, second: str) -> int:
    """How many markers, words and other characters two texts have in common at their beginning."""
    pairs = zip(_PART.findall(first.strip()), _PART.findall(second.strip()), strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), _shorter(first, second))


def _shorter(first: str, second: str) -> int:
    return min(len(_PART.findall(first.strip())), len(_PART.findall(second.strip())))
