"""Renews licenses.json: the license ids that the Hub accepts in a model card.

    python repokit/data/renew/licenses.py HUB_DOCS

HUB_DOCS is a clone of the GitHub repository huggingface/hub-docs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from table import write_ids

PAGE = "docs/hub/repositories-licenses.md"


def main(clone: Path) -> None:
    """Takes the second column of the table between the region comments."""
    text = _git(clone, "show", f"HEAD:{PAGE}")
    region = text.partition("<!-- region licenses -->")[2].partition("<!-- endregion -->")[0]
    ids = re.findall(r"^\|[^|\n]*\| `([^`|\n]+)` *\|", region, re.MULTILINE)
    date = _git(clone, "log", "-1", "--format=%cs").strip()
    write_ids("licenses", source=f"huggingface/hub-docs {PAGE}", date=date, ids=ids)


def _git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
