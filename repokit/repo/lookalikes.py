"""Text that reads as other text: letters of other scripts, and characters that cannot be seen."""

from __future__ import annotations

import unicodedata
from typing import Final

# Cyrillic and Greek letters and the Latin ones that they look like: the pairs of Unicode's confusables.txt that whole
# words can be written with.
_CYRILLIC: Final = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425"
)
_GREEK: Final = "\u03bf\u03b9\u03bd\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
_LATIN: Final = str.maketrans(_CYRILLIC + _GREEK, "aeopcyxijsdhqwABEKMHOPCTX" + "oivABEZHIKMNOPTYX")


def invisible(text: str) -> bool:
    """Whether it holds zero-width, bidirectional or tag characters, which no screen shows."""
    return not text.isascii() and any(unicodedata.category(letter) == "Cf" for letter in text)


def seen_as(text: str) -> str:
    """The text as it looks: what cannot be seen left out, letters replaced by the Latin ones that they look like."""
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return visible.translate(_LATIN)
