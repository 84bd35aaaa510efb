"""Renews peft_types.json: the fields that adapter_config.json has for each method of PEFT, with their types.

    python repokit/data/renew/peft_types.py

Needs peft (the dependency group `oracles`); reads the annotations of its config classes and makes no adapter.

A type is written as alternatives with ` | ` between them: `int`, `float`, `bool`, `str`, `list[...]`, `dict[str, ...]`,
`object` for any JSON object, `any`. Null is not written: PEFT's own defaults are null where its annotations are not.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
import types
import typing
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import version
from typing import Any

from table import DATA

# from_json_file() throws it away, and to_dict() does not write it (peft tuners/lora/config.py).
NEVER_IN_A_FILE = {"runtime_config"}
SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}


def main() -> None:
    """Writes the table. Fields that every method has are listed once, as `common`."""
    from peft import PeftConfig
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    common = _fields(PeftConfig)
    found = {kind.value: _fields(config) for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    if any(fields.get(name) != spelled for fields in found.values() for name, spelled in common.items()):
        raise SystemExit("a method has another type for a common field: the table cannot say so")
    own = {kind: {name: fields[name] for name in fields if name not in common} for kind, fields in found.items()}
    _write(f"peft {version('peft')}, PEFT_TYPE_TO_CONFIG_MAPPING", common, own)


def _fields(config: Any) -> dict[str, str]:  # noqa: ANN401 - a dataclass
    hints = typing.get_type_hints(config)
    names = (field.name for field in dataclasses.fields(config) if field.init)
    return {name: _spelled(hints[name]) for name in names if name not in NEVER_IN_A_FILE}


def _spelled(hint: Any) -> str:  # noqa: ANN401 - an annotation
    return " | ".join(sorted(set(_alternatives(hint)))) or "any"


def _alternatives(hint: Any) -> typing.Iterator[str]:  # noqa: ANN401 - an annotation
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        for argument in arguments:
            yield from _alternatives(argument)
    elif origin is typing.Literal:
        yield from (SCALARS[type(value)] for value in arguments)
    elif origin in {list, set, tuple}:
        yield f"list[{_spelled(arguments[0])}]"
    elif origin is dict:
        yield f"dict[str, {_spelled(arguments[1])}]"
    elif hint is not type(None):
        yield _single(hint)


def _single(hint: type) -> str:
    if hint is list:
        return "list[any]"
    if hint is dict or dataclasses.is_dataclass(hint):
        return "object"
    return "str" if issubclass(hint, Enum) else SCALARS[hint]


def _write(source: str, common: dict[str, str], own: dict[str, dict[str, str]]) -> None:
    date = datetime.now(UTC).date().isoformat()
    head = f'{{\n  "source": {json.dumps(source)},\n  "date": "{date}",\n  "common": {_object(common, "  ")},\n'
    kinds = ",\n".join(f"    {json.dumps(kind)}: {_object(own[kind], '    ')}" for kind in sorted(own))
    (DATA / "peft_types.json").write_text(f'{head}  "types": {{\n{kinds}\n  }}\n}}\n', encoding="utf-8")
    print(f"peft_types.json: {len(own)} methods of {source}")


def _object(fields: dict[str, str], indent: str) -> str:
    """One JSON object, wrapped at 110 columns as the other tables are: a renewal is a diff that people can read."""
    # A no-break space keeps a pair on one line.
    pairs = ", ".join(f"{json.dumps(name)}: {json.dumps(fields[name])}".replace(" ", "\xa0") for name in sorted(fields))
    inner = indent + "  "
    lines = textwrap.wrap(pairs, 110, initial_indent=inner, subsequent_indent=inner, break_long_words=False)
    return "{\n" + "\n".join(lines).replace("\xa0", " ") + f"\n{indent}}}"


if __name__ == "__main__":
    main()
