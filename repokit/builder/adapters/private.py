"""What in an adapter_config.json is not for others: paths of the machine that trained, tokens, keys that PEFT drops."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError
from repokit.formats.leaks import begins_as_path, has_personal_path, secrets
from repokit.printable import printable
from repokit.schema.adapter_types import source, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_VERSION: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}")


def unread_keys(raw: Mapping[str, Any]) -> list[str]:
    """Keys with a value that are no field of the method, which PEFT drops when it reads them.

    None where a newer PEFT than the one that is known here wrote the file, or where the method is not known.
    """
    if _version(raw.get("peft_version")) > _version(source().removeprefix("peft ")):
        return []
    return [unknown.key for unknown in unknown_keys(raw) if not unknown.null]


def _version(text: object) -> tuple[int, ...]:
    found = _VERSION.match(text) if isinstance(text, str) else None
    return tuple(map(int, found[0].split("."))) if found else ()


def paths(raw: Mapping[str, Any], besides: Collection[str]) -> list[str]:
    """JSON Pointers of values that are or have paths of a machine, in the order of the document.

    Args:
        raw: The document.
        besides: Keys at its top under which nothing is looked at.
    """
    looked_at = {key: value for key, value in raw.items() if key not in besides}
    found = [place for place, text in _strings(looked_at) if begins_as_path(text) or has_personal_path(text)]
    return list(dict.fromkeys(found))


def is_of_a_cache(mapping: object) -> bool:
    """Whether an auto_mapping names a module of the machine that trained, which is called after its folder there.

    transformers dynamic_module_utils.py: code that came with a model is copied into the package transformers_modules.
    """
    library = mapping.get("parent_library") if isinstance(mapping, dict) else None
    return isinstance(library, str) and library.partition(".")[0] == "transformers_modules"


def refuse_token(raw: Mapping[str, Any], path: str) -> None:
    """Refuses a document with what looks like a token.

    Args:
        raw: What is to be published.
        path: The file, for the message.

    Raises:
        InputError: Naming the place.
    """
    for place, text in _strings(raw):
        for secret in secrets(text.encode(errors="replace")):
            what = f"holds {secret.what}: {printable(secret.shown)}…"
            hint = "take it out of the file, and revoke it: whoever has the checkpoint has it"
            told = None if any(secrets(place.encode(errors="replace"))) else place  # a key may be one
            raise InputError(what, path=path, place=told, hint=hint)


def _strings(value: object, pointer: str = "") -> Iterator[tuple[str, str]]:
    """JSON Pointers of strings and of members, in objects and lists of any depth, with the strings and the keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        place = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield from ((place, text) for text in (key, inner) if isinstance(text, str))
        yield from _strings(inner, place)
