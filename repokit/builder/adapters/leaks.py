"""What in an adapter_config.json is not for others: paths of the machine that trained, tokens, keys that PEFT drops."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError
from repokit.printable import printable
from repokit.schema.adapter_types import source, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

# A value that is a path, and one that has a path below the folders of people's files in it: `file=/home/me/x`.
_PATH: Final = re.compile(r"(?:/|~/|\.{1,2}/|file:|[A-Za-z]:[/\\]|\\\\)")
_WITH_PATH: Final = re.compile(
    r"(?<![\w./-])(?:~/|file:/|[A-Za-z]:\\|/(?:home|Users|root|mnt|data|workspace|tmp|content|kaggle|scratch|gpfs|opt"
    r"|var|srv|fsx|nfs|media|lustre)/)"
)
# The beginnings that their makers give tokens (gitleaks has the same), with as many characters as tell them from words.
_TOKEN: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40,}"
    r"|sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|xox[abposr]-[A-Za-z0-9-]{20,}"
    r"|AIza[A-Za-z0-9_-]{35})|://[^\s/:@\"']{1,64}:[^\s/:@\"']{6,64}@"
)
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
    found = [place for place, text in _strings(looked_at) if _PATH.match(text) or _WITH_PATH.search(text)]
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
        if found := _TOKEN.search(text):
            what = f"holds what looks like a secret: {printable(found[0][:4])}…"
            hint = "take it out of the file, and revoke it: whoever has the checkpoint has it"
            raise InputError(what, path=path, place=None if found[0] in place else place, hint=hint)


def _strings(value: object, pointer: str = "") -> Iterator[tuple[str, str]]:
    """JSON Pointers of strings and of members, in objects and lists of any depth, with the strings and the keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        place = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield from ((place, text) for text in (key, inner) if isinstance(text, str))
        yield from _strings(inner, place)
