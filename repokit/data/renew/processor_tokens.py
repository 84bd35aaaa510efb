"""Renews data/processor_tokens.json: the tokens that each processor class of transformers asks its tokenizer for.

    python repokit/data/renew/processor_tokens.py

Reads the source of transformers. Files with a class that looks for its tokens with hasattr or getattr are left out, and
so is a token that a tokenizer of the same model defines in its code: no repository need name it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

DATA = Path(__file__).resolve().parents[1]
STANDARD = frozenset(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
OPTIONAL = re.compile(r"(?:hasattr|getattr)\(\s*\w*\.?tokenizer,\s*[\"']\w+[\"']")


def main() -> None:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise SystemExit("transformers is not installed")
    models = Path(spec.origin).parent / "models"
    found = {name: tokens for path in sorted(models.glob("*/processing_*.py")) for name, tokens in of_file(path)}
    document = {
        "source": f"transformers {version('transformers')} models/*/processing_*.py",
        "date": datetime.now(UTC).date().isoformat(),
        "tokens": dict(sorted(found.items())),
    }
    (DATA / "processor_tokens.json").write_text(json.dumps(document, indent=1) + "\n")


def of_file(path: Path) -> list[tuple[str, list[str]]]:
    """The processor classes of one file, each with the attributes that its constructor must find."""
    source = path.read_text()
    own = "".join(other.read_text() for other in path.parent.glob("tokenization_*.py"))
    if OPTIONAL.search(source):
        return []
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Processor"):
            read = sorted(name for name in attributes(node) - STANDARD if name not in own)
            if read:
                found.append((node.name, read))
    return found


def attributes(node: ast.ClassDef) -> set[str]:
    """What `__init__` reads of its argument `tokenizer`, by the names of tokens."""
    functions = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    reads = (one for function in functions for one in ast.walk(function) if isinstance(one, ast.Attribute))
    plain = (one for one in reads if isinstance(one.value, ast.Name) and one.value.id == "tokenizer")
    return {one.attr for one in plain if one.attr.endswith("_token") and not one.attr.startswith("add_")}


if __name__ == "__main__":
    main()
