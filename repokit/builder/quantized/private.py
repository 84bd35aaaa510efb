"""What a quantizer wrote that stays on its machine: paths, and what looks like an access token."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.formats.leaks import secrets
from repokit.formats.paths import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Private = Callable[[str, str], bool]  # of a key and its text

OBJECTS: Final = ("quantization_config", "compression_config")  # of config.json
_KEY_OF_TOKEN: Final = re.compile(r"(?:\w+_)?(?:(?:hf|auth|access|api)_(?:token|key)|password|secret)", re.IGNORECASE)
# Names of modules and expressions for them, in which a backslash is no folder.
_MODULES: Final = frozenset(
    {
        *("ignore", "ignored_layers", "targets", "exclude", "exclude_modules", "exclude_layers"),
        *("modules_to_not_convert", "modules_in_block_to_quantize", "llm_int8_skip_modules", "block_name_to_quantize"),
    }
)


def is_path(key: str, text: str) -> bool:
    """Whether a value is a path of somebody's machine; an expression (`re:...`) is none."""
    return key not in _MODULES and not text.startswith("re:") and is_local(text)


def is_token(key: str, text: str) -> bool:
    """Whether a value gives access to something."""
    return any(secrets(text.encode(errors="replace"))) or (bool(text) and _KEY_OF_TOKEN.fullmatch(key) is not None)


def without(private: Private, raw: Mapping[str, Any]) -> dict[str, Any]:
    """An object with null for such values, however deep they lie."""
    return {key: _cleared(private, key, value) for key, value in raw.items()}


def _cleared(private: Private, key: str, value: object) -> object:
    match value:
        case dict():
            return {name: _cleared(private, key if key in _MODULES else name, item) for name, item in value.items()}
        case list():
            return [_cleared(private, key, item) for item in value]
        case str() if private(key, value):
            return None
    return value


def published(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An object of the quantizer as it may be published."""
    return without(is_token, without(is_path, raw))


def published_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with such objects in it, at the top and in its parts."""
    parts = {key: published_config(value) for key, value in raw.items() if isinstance(value, dict)}
    own = {key: published(raw[key]) for key in OBJECTS if isinstance(raw.get(key), dict)}
    return {**raw, **parts, **own}


def told(path: str, raw: Mapping[str, Any]) -> list[str]:
    """A warning for each kind of value that does not go out with an object.

    Args:
        path: The file, for the message.
        raw: The object as the quantizer wrote it; of config.json its quantization_config.
    """
    found = []
    if without(is_path, raw) != raw:
        found.append(f"{path} names paths of the machine that quantized: null stands in their place")
    if without(is_token, raw) != raw:
        found.append(f"{path} holds what looks like an access token: null stands in its place; revoke the token")
    return found
