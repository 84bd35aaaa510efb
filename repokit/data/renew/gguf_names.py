"""Renews data/gguf_names.json: what llama.cpp knows by name in a GGUF file.

    python repokit/data/renew/gguf_names.py llama.cpp/src/llama-vocab.cpp 00ad355

Needs the package `gguf`, for the tensors of each architecture, and llama.cpp's source at the revision that is named,
for its pre-tokenizers and for the tokens that it takes for the end of a turn by their text.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from table import DATA

from repokit.linter.rules.tokenizer_portability import without_flags

PRE = re.compile(r'tokenizer_pre == "([^"]+)"')
# A line that holds one string and nothing else: `regex_exprs` has one expression a line.
EXPRESSION = re.compile(r'^\s*(?:// *)?"((?:[^"\\]|\\.)+)",?\s*$', re.MULTILINE)
TEXT = re.compile(r't\.first == "([^"]+)"')


def main(source: Path, revision: str) -> None:
    """Writes the table beside this folder."""
    text = source.read_text(encoding="utf-8")
    ends = text[text.index("special_eog_ids.clear()") : text.index("quick hack for gpt-oss")]
    table = {
        "source": f"gguf {version('gguf')} MODEL_TENSORS; ggml-org/llama.cpp {revision} src/llama-vocab.cpp",
        "date": datetime.now(UTC).date().isoformat(),
        "pre_tokenizers": sorted(set(PRE.findall(text))),
        "splits": splits(text),
        "end_tokens": sorted(set(TEXT.findall(ends))),
        "tensors": tensors(),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    lines[-1] = f' "tensors": {{\n{by_line(tensors())}\n }}'
    (DATA / "gguf_names.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"gguf_names.json: {len(tensors())} architectures, {len(table['pre_tokenizers'])} pre-tokenizers")


def splits(text: str) -> list[str]:
    """The expressions by which its pre-tokenizers cut, and the original ones that stand beside them in comments."""
    written = [f'"{found}"' for found in EXPRESSION.findall(text)]
    return sorted({without_flags(json.loads(found)) for found in written})


def tensors() -> dict[str, list[str]]:
    """Architecture to the names of its tensors, without their suffix, blocks as `*`."""
    from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES

    return {
        MODEL_ARCH_NAMES[architecture]: sorted({TENSOR_NAMES[tensor].replace("{bid}", "*") for tensor in found})
        for architecture, found in sorted(MODEL_TENSORS.items(), key=lambda item: MODEL_ARCH_NAMES[item[0]])
    }


def by_line(names: dict[str, list[str]]) -> str:
    """One architecture a line, so that a renewal is a diff that people can read."""
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(' '.join(found))}" for name, found in names.items())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
