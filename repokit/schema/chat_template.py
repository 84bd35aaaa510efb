"""Chat templates where they stand inside JSON; chat_template.jinja is plain text and has no model."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from repokit.schema.document import Document


class NamedTemplate(Document):
    """One of several templates, such as `default`, `tool_use` or `rag`."""

    name: str = Field(description="What apply_chat_template(chat_template=...) calls it.")
    template: str = Field(description="Jinja, as transformers' chat_template_utils.py renders it.")


# transformers 5.23 tokenization_utils_base.py: one template, or a list of named ones (to_dict writes that form).
ChatTemplates: TypeAlias = str | list[NamedTemplate]


class ChatTemplateFile(Document):
    """chat_template.json, which processors wrote before chat_template.jinja; they still prefer it over that."""

    chat_template: ChatTemplates | dict[str, str] | None = Field(None, description="One template, or several by name.")
