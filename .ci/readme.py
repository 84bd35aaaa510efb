"""Writes what README.md takes from the code: the recipe reference and the table of rules.

    python .ci/readme.py            brings README.md up to date
    python .ci/readme.py --check    writes nothing; exit 1 where it is not

What stands between `<!-- NAME: made by .ci/readme.py -->` and `<!-- end of NAME -->` is made here; the rest is a
person's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repokit.linter import explain
from repokit.schema.recipe import Recipe
from repokit.schema.variants import RecipeFile

README = Path(__file__).resolve().parent.parent / "README.md"


def recipe_reference() -> str:
    """Every key of repokit.yaml, nested ones by their path."""
    # With variants a key may stand in each of them; what a recipe must have by the end is what a Recipe says.
    required = Recipe.model_json_schema(by_alias=True)["required"]
    schema = {**RecipeFile.model_json_schema(by_alias=True), "required": required}
    rows = (f"| `{key}` | {values} | {default} | {words} |" for key, values, default, words in _keys(schema, schema))
    return "\n".join(["| key | values | default | what |", "|---|---|---|---|", *rows]) + "\n"


def _keys(schema: dict[str, Any], node: dict[str, Any], above: str = "") -> Iterator[tuple[str, str, str, str]]:
    for name, raw in node["properties"].items():
        key = f"{above}{name}"
        part = _resolved(schema, raw)
        part = next((option for option in _options(schema, part) if option.get("properties")), part)
        if part.get("properties"):
            yield from _keys(schema, part, f"{key}.")
            continue
        items = _resolved(schema, part.get("items", {}))
        default = "required" if name in node.get("required", ()) else _default(raw.get("default", {}))
        described = next((of["description"] for of in (raw, items, node) if "description" in of), "")
        yield key, _values(schema, raw), default, described.replace("|", "\\|")
        if items.get("properties"):
            yield from _keys(schema, items, f"{key}[].")


def _options(schema: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    """What a value may be, where it may be several things."""
    return [_resolved(schema, option) for option in node.get("anyOf", [])]


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """What a reference points to; the node itself where it is none."""
    if "$ref" in node:
        found: dict[str, Any] = schema["$defs"][node["$ref"].rpartition("/")[2]]
        return found
    return node


def _values(schema: dict[str, Any], node: dict[str, Any]) -> str:
    node = _resolved(schema, node)
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_values(schema, option) for option in node["anyOf"]))
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if node.get("type") == "array":
        of = _values(schema, node.get("items", {}))
        return "list" if of in {"string", "mapping"} else f"list of {of}"
    return {"object": "mapping", "null": "null", None: "anything"}.get(node.get("type"), str(node.get("type")))


def _default(value: object) -> str:
    match value:
        case None:
            return "null"
        case [] | {}:
            return "none"
    return f"`{value}`"


BLOCKS = {
    "recipe": recipe_reference,
    "rules": lambda: f"{len(explain.everything())} rules.\n\n{explain.as_markdown(explain.everything())}",
}


def renewed(text: str) -> str:
    """The README with every block made anew.

    Raises:
        SystemExit: A block is not there.
    """
    for name, make in BLOCKS.items():
        begin, end = f"<!-- {name}: made by .ci/readme.py -->", f"<!-- end of {name} -->"
        block = f"{begin}\n\n{make()}\n{end}"
        text, number = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, text, flags=re.DOTALL)  # noqa: B023 - used at once
        if number != 1:
            raise SystemExit(f"README.md has {number} blocks called {name}")
    return text


def main() -> None:
    text = README.read_text(encoding="utf-8")
    wanted = renewed(text)
    if "--check" in sys.argv[1:]:
        raise SystemExit("README.md is stale; run: python .ci/readme.py" if text != wanted else 0)
    README.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
