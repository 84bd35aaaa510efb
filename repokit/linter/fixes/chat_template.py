"""Chat templates: one text in every place, no place that is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.formats.paths import unsafe
from repokit.linter.fix import DeleteFile, DropJson, Fix, SetJson, WriteFile
from repokit.linter.fixes.token_ids import ending_at
from repokit.linter.rules.conversation import converses
from repokit.printable import printable
from repokit.repo.chat_template import FOLDER, JINJA, LEGACY
from repokit.repo.stopping import Stopping

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.repository import Repository


def as_preferred(repository: Repository, finding: Finding) -> Fix | None:
    """The other place with the template that a tokenizer takes."""
    for preferred, other in repository.chat_templates.differing:
        if (preferred.path, preferred.place, (other.path,)) != (finding.path, finding.place, finding.names):
            continue
        title = f"write the template of {preferred.path} to {printable(other.path, 80)} as well"
        return Fix(title, (_written(repository, other, preferred.source),))
    return None


def _written(repository: Repository, template: ChatTemplate, source: str) -> SetJson | WriteFile:
    """A place with another text. In a list of named templates the text is a value of its entry."""
    if template.place is None:
        return WriteFile(template.path, source.encode())
    document = repository.document(template.path)
    raw = None if document is None else document.raw.get("chat_template")
    inside = "/template" if isinstance(raw, list) else ""
    return SetJson(template.path, template.place + inside, source)


def without_mark(repository: Repository, finding: Finding) -> Fix | None:
    """A template without the byte order mark."""
    for template in repository.chat_templates.all:
        if template.path == finding.path and template.source.startswith("\ufeff"):
            if template.place is None:
                content = repository.content(template.path) or b""
                edit: SetJson | WriteFile = WriteFile(template.path, content.removeprefix("\ufeff".encode()))
            elif template.place == finding.place:
                edit = _written(repository, template, template.source.removeprefix("\ufeff"))
            else:
                continue
            return Fix("remove the byte order mark", (edit,))
    return None


def without_empty(repository: Repository, finding: Finding) -> Fix | None:
    """No template where an empty one was; a model for conversations needs one, and who trained it knows which."""
    templates = repository.chat_templates.all
    found = [one for one in templates if (one.path, one.place) == (finding.path, finding.place)]
    if len(found) != 1 or (len(templates) == 1 and converses(repository)):
        return None
    if found[0].place is None:
        return Fix(f"delete {printable(finding.path, 80)}, which is empty", (DeleteFile(finding.path),))
    return Fix("remove the empty chat template", (DropJson(finding.path, found[0].place),))


def as_file(repository: Repository, finding: Finding) -> Fix | None:
    """A named template in the folder in which named templates are read."""
    for template in repository.chat_templates.hidden:
        path = f"{FOLDER}/{template.name}.jinja"
        if (template.path, template.place) == (finding.path, finding.place) and unsafe(path) is None:
            if template.name == "default":
                path = JINJA
            title = f"write the template {printable(template.name, 40)} to {printable(path, 80)}"
            return Fix(title, (WriteFile(path, template.source.encode()),))
    return None


def without_given_up_place(repository: Repository, finding: Finding) -> Fix | None:
    """The .jinja files alone, where they have every template of this place."""
    files = {template.name: template for template in repository.chat_templates.all if template.place is None}
    here = [template for template in repository.chat_templates.all if template.path == finding.path]
    if not all(one.name in files and files[one.name].body == one.body for one in here):
        return None
    document = repository.document(finding.path)
    if finding.path == LEGACY and document is not None and document.raw.keys() == {"chat_template"}:
        return Fix(f"delete {LEGACY}, a copy of the .jinja files", (DeleteFile(LEGACY),))
    return Fix("remove the copy of the .jinja files", (DropJson(finding.path, "/chat_template"),))


def ending_at_turn(repository: Repository, _finding: Finding) -> Fix | None:
    """The token with which the template ends a turn among the ids that end a generation."""
    return ending_at(repository, terminator(repository))


def terminator(repository: Repository) -> str | None:
    """The special token with which the default template ends a turn and that ends no generation yet."""
    template, tokenizer = repository.chat_templates.default, repository.tokenizer
    if template is None or tokenizer is None:
        return None
    suffix = repository.chat_templates.terminator(template) or ""
    ends = [token for token in tokenizer.special if token and token in suffix]
    first = min(ends, key=lambda token: (suffix.index(token), token), default=None)
    ids = Stopping(repository).ids or frozenset()
    return None if first is None or tokenizer.id_of(first) in ids else first
