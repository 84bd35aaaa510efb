"""Untrusted text made safe to show.

Names and values out of a repository reach terminals, logs and CI annotations. An escape sequence there can rewrite
the screen, a newline can forge a log line, a bidirectional mark can reverse a name.
"""

from __future__ import annotations

import unicodedata

# Cc: C0 and C1 controls; Cf: bidirectional and zero-width marks, tag characters; Cs: lone surrogates;
# Co/Cn: glyphs that no font has; Zl/Zp: line separators that some terminals honour; Zs: spaces that look like the
# ordinary one and are not.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})


def printable(text: object, limit: int = 200) -> str:
    r"""One line of at most `limit` characters, every unsafe character written as \xNN, \uNNNN or \UNNNNNNNN."""
    whole = str(text)
    shown = whole if len(whole) <= limit else whole[: limit - 1] + "…"
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(_escaped(character) for character in shown)


def _escaped(character: str) -> str:
    if character == " " or unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 tensor`, `60,000 tensors`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: int) -> str:
    """Bytes in decimal units, as the Hub and huggingface_hub count them: `1.5 GB` is 1,500,000,000 bytes."""
    if number < 1000:
        return count(number, "byte")
    value = float(number)
    for unit in ("kB", "MB", "GB", "TB", "PB"):  # pragma: no branch
        value /= 1000
        if value < 999.95 or unit == "PB":
            break
    return f"{value:.1f} {unit}"


def some(names: list[str] | tuple[str, ...], limit: int = 3) -> str:
    """`a, b, c and 297 more`: what a sentence can carry of a long list."""
    shown = ", ".join(printable(name, 120) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"
