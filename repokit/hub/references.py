"""What a branch or a tag may be called."""

from __future__ import annotations

import re
from typing import Final

# git check-ref-format(1), the parts that can be typed.
_REFUSED: Final = re.compile(r"^[/.-]|[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|/\.|[/.]$|\.lock(?:/|$)|^@$")


def is_reference_name(name: str) -> bool:
    """Whether a branch or tag can have this short name: `main`, `v1.0`, `release/v1`."""
    return bool(name) and not name.startswith("refs/") and _REFUSED.search(name) is None
