"""A chat template -> its mutants: each tag, each expression, each text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from edit import Edit

TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
LITERAL = re.compile(r"'((?:[^'\\]|\\.)+)'")


def of_template(content: bytes) -> Iterator[Edit]:
    """Mutants of a whole template."""
    text = content.decode()
    for number, match in enumerate(TAG.finditer(text)):
        kind = "statement" if match.group().startswith("{%") else "expression"
        yield Edit(f"{kind} removed", f"tag {number}", (text[: match.start()] + text[match.end() :]).encode())
    for number, match in enumerate(LITERAL.finditer(text)):
        begin, end = match.span(1)
        yield Edit("text removed", f"text {number}", (text[:begin] + text[end:]).encode())
        yield Edit("text altered", f"text {number}", (text[: end - 1] + text[end:]).encode())
