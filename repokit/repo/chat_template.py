"""Every place in which a chat template can live, and which of them wins.

A tokenizer reads chat_template.jinja and additional_chat_templates/, and without them tokenizer_config.json. A
processor reads processor_config.json, then chat_template.json, then the .jinja files (transformers 5.24
tokenization_utils_base.py and processing_utils.py). Where two places differ, the same repository is two models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.repo import special_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.worker import Rendered, TemplateProblem

JINJA: Final = "chat_template.jinja"
FOLDER: Final = "additional_chat_templates"
LEGACY: Final = "chat_template.json"
PROCESSOR: Final = "processor_config.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
DEFAULT: Final = "default"

# What a caller has to pass beside the messages, as Firefunction's card and llama.cpp do.
PASSED: Final = ("'functions' is undefined", "'datetime' is undefined")

Conversation = tuple[Mapping[str, Any], ...]

# What the assistant says in the probes: a word that no template has, so that what follows it is found again.
REPLY: Final = "quokkas"
CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    "user": ({"role": "user", "content": "Which animals smile?"},),
    "system, user": (
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Which animals smile?"},
    ),
    "user, assistant, user": (
        {"role": "user", "content": "Which animals smile?"},
        {"role": "assistant", "content": REPLY},
        {"role": "user", "content": "Where do they live?"},
    ),
}
TOOL: Final = {
    "type": "function",
    "function": {
        "name": "count_animals",
        "description": "How many of them live somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Where."}},
            "required": ["place"],
        },
    },
}
ANSWERED: Final[Conversation] = CONVERSATIONS["user, assistant, user"][:2]

# Characters. The longest default system prompts of real templates have some 20,000.
LONGEST_PROMPT: Final = 200_000

# Variables that stand for tokens where no file names any: a template alone is judged with them.
_STAND_INS: Final = {"bos_token": "<s>", "eos_token": "</s>"}


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One template in one place.

    Attributes:
        name: `default`, or what `apply_chat_template(chat_template=...)` calls it.
        source: Jinja, with the line ends that Python's text mode gives it.
        path: The file.
        place: JSON Pointer in that file; None where the file is the template.
    """

    name: str
    source: str
    path: str
    place: str | None = None

    @property
    def body(self) -> str:
        """What decides whether two copies are the same: Jinja drops one line end at the end of a template."""
        return self.source.removesuffix("\n")

    def line(self, number: int | None) -> str | None:
        """`line 3` where the file is the template; the JSON Pointer to it in JSON, where it is one line."""
        if self.place is not None:
            return self.place
        return None if number is None else f"line {number}"

    def line_at(self, position: int) -> str | None:
        """The line of a position in the source, in the same words."""
        return self.line(self.source.count("\n", 0, position) + 1)


class Malformed(NamedTuple):
    """An entry that no reader takes for a template; `what` goes on from "a chat template"."""

    path: str
    place: str
    what: str


class Probe(NamedTuple):
    """One conversation put through one template.

    Attributes:
        conversation: A key of CONVERSATIONS.
        with_tools: Whether a tool was passed; templates for tools alone render nothing without.
        rendered: What came out.
    """

    conversation: str
    with_tools: bool
    rendered: Rendered


class ChatTemplates:
    """The chat templates of a repository.

    Attributes:
        all: Every template in every place, those that a tokenizer prefers first.
        malformed: Entries that are not templates.
    """

    def __init__(self, repository: Repository, found: Sequence[ChatTemplate | Malformed]) -> None:
        self._repository = repository
        self.all = tuple(item for item in found if isinstance(item, ChatTemplate))
        self.malformed = tuple(item for item in found if isinstance(item, Malformed))

    @classmethod
    def of(cls, repository: Repository) -> ChatTemplates:
        """All of them; none where there is no template.

        Raises:
            MalformedFile: A .jinja file is not UTF-8, or a JSON file does not parse.
        """
        return cls(repository, (*_jinja_files(repository), *_json_places(repository)))

    @cached_property
    def default(self) -> ChatTemplate | None:
        """What a tokenizer uses when it is not told another name.

        With extra .jinja files and no chat_template.jinja it has none: the files hide what tokenizer_config.json says.
        """
        files = [template for template in self.all if template.place is None]
        preferred = files or [template for template in self.all if template.path == TOKENIZER_CONFIG]
        candidates = preferred or list(self.all)
        return next((template for template in candidates if template.name == DEFAULT), None)

    @cached_property
    def differing(self) -> tuple[tuple[ChatTemplate, ChatTemplate], ...]:
        """For each name, the preferred template and every other place that has another one under this name."""
        preferred: dict[str, ChatTemplate] = {}
        for template in self.all:
            preferred.setdefault(template.name, template)
        pairs = ((preferred[template.name], template) for template in self.all)
        return tuple(
            (winner, other) for winner, other in pairs if winner.path != other.path and winner.body != other.body
        )

    @cached_property
    def hidden(self) -> tuple[ChatTemplate, ...]:
        """Named templates in tokenizer_config.json that no one reads, because .jinja files without them win."""
        files = {template.name for template in self.all if template.place is None}
        listed = (template for template in self.all if template.path == TOKENIZER_CONFIG)
        return tuple(template for template in listed if files and template.name not in files)

    def problem(self, template: ChatTemplate) -> TemplateProblem | None:
        """Why transformers cannot, or repokit will not, render it at all; None where it compiles."""
        key = ("compiled", template.source)
        return self._repository.remember(key, lambda: self._repository.worker.compile(template.source))

    def probes(self, template: ChatTemplate) -> tuple[Probe, ...]:
        """CONVERSATIONS, with text and with list contents, without and with add_generation_prompt and a tool."""
        return self._repository.remember(("probes", template.source), lambda: self._probes(template))

    def terminator(self, template: ChatTemplate) -> str | None:
        """What follows the last word of an assistant's turn; None where that cannot be told."""
        for as_list in (False, True):
            case = self.variables(ANSWERED, as_list=as_list)
            text = self._repository.worker.render(template.source, case).text
            if text is not None and REPLY in text:
                return text.rpartition(REPLY)[2]
        return None

    def _probes(self, template: ChatTemplate) -> tuple[Probe, ...]:
        forms = list(product(CONVERSATIONS, (False, True), (False, True), (False, True)))
        cases = [
            self.variables(CONVERSATIONS[name], with_tools=with_tools, as_list=as_list, prompt=prompt)
            for name, with_tools, as_list, prompt in forms
        ]
        results = self._rendered(template, cases)
        return tuple(Probe(form[0], form[1], result) for form, result in zip(forms, results, strict=True))

    def _rendered(self, template: ChatTemplate, cases: list[dict[str, Any]]) -> list[Rendered]:
        """All cases; the first alone, so that a template that never ends is stopped once and not for each of them.

        The limits are for a whole request. What meets one among others gets a request of its own.
        """
        worker = self._repository.worker
        first = _sized(worker.render(template.source, cases[0]))
        if _stopped(first):
            return [first] * len(cases)
        results = [first, *worker.render_many(template.source, cases[1:])]
        for index, case in enumerate(cases):
            if _stopped(results[index]):
                results[index] = _sized(worker.render(template.source, case))
                if _stopped(results[index]):
                    return [*results[: index + 1], *[results[index]] * (len(cases) - index - 1)]
        return [_sized(result) for result in results]

    def variables(
        self, conversation: Conversation, *, as_list: bool = False, prompt: bool = False, with_tools: bool = False
    ) -> dict[str, Any]:
        """The variables that apply_chat_template passes (transformers 5.24 chat_template_utils.py)."""
        messages = [
            _with_parts(message) if as_list and message["content"] else dict(message) for message in conversation
        ]
        tools = [TOOL] if with_tools else None
        fixed = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt}
        return {**self._tokens, **fixed}

    @cached_property
    def _tokens(self) -> Mapping[str, str]:
        config = self._repository.tokenizer_config
        if config is None:
            return _STAND_INS
        named = special_tokens.roles(config, self._repository.special_tokens_map)
        return {role: token.content for role, token in named.items()}


def _stopped(result: Rendered) -> bool:
    return result.error is not None and result.error.kind in {"limit", "crash"}


def _sized(result: Rendered) -> Rendered:
    """The result, or a problem where a few words became a book."""
    from repokit.repo.worker import Rendered, TemplateProblem

    if result.text is None or len(result.text) <= LONGEST_PROMPT:
        return result
    return Rendered(error=TemplateProblem("limit", f"a few words become {len(result.text):,} characters"))


def _with_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _jinja_files(repository: Repository) -> Iterator[ChatTemplate]:
    if (source := _text(repository, JINJA)) is not None:
        yield ChatTemplate(DEFAULT, source, JINJA)
    for path in repository.under(FOLDER):
        name = path.removeprefix(f"{FOLDER}/").removesuffix(".jinja")
        if path.endswith(".jinja") and "/" not in name and (source := _text(repository, path)) is not None:
            yield ChatTemplate(name, source, path)


def _json_places(repository: Repository) -> Iterator[ChatTemplate | Malformed]:
    documents = (repository.tokenizer_config, repository.document(LEGACY), repository.document(PROCESSOR))
    for document in documents:
        if document is not None and document.raw.get("chat_template") is not None:
            yield from _templates(document)


def _templates(document: Document) -> Iterator[ChatTemplate | Malformed]:
    """A string, a list of {name, template}, or in chat_template.json an object of name to template."""
    place = document.at("chat_template")
    match document.raw["chat_template"]:
        case str(source):
            yield ChatTemplate(DEFAULT, source, document.path, place)
        case dict(named) if document.path != TOKENIZER_CONFIG:
            for name, source in named.items():
                yield _named(name, source, document.path, document.at("chat_template", name))
        case list(entries):
            yield from _listed(document, entries)
        case _:
            yield Malformed(document.path, place, "that is neither text nor a list of named ones")


def _listed(document: Document, entries: list[Any]) -> Iterator[ChatTemplate | Malformed]:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        fields = entry if isinstance(entry, dict) else {}
        found = _named(fields.get("name"), fields.get("template"), document.path, document.at("chat_template", index))
        if isinstance(found, ChatTemplate) and found.name in seen:
            found = Malformed(found.path, document.at("chat_template", index), "with the name of another one")
        elif isinstance(found, ChatTemplate):
            seen.add(found.name)
        yield found


def _named(name: object, source: object, path: str, place: str) -> ChatTemplate | Malformed:
    if not isinstance(name, str) or not isinstance(source, str):
        return Malformed(path, place, "without a name or a text")
    if name in {"", ".", ".."} or "/" in name or "\\" in name:
        # transformers writes additional_chat_templates/NAME.jinja, and refuses a name that leads elsewhere
        return Malformed(path, place, "with a name that is no file name")
    return ChatTemplate(name, source, path, place)


def _text(repository: Repository, path: str) -> str | None:
    """A template file as Python's text mode reads it: every kind of line end becomes a newline."""
    text = repository.text(path)
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")
