"""Renews pipeline_tags.json and languages.json: words that the Hub knows in a model card.

    python repokit/data/renew/hub_words.py

Needs npm and node: the Hub's own lists are published as the packages @huggingface/tasks and @huggingface/languages.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from typing import Any

from table import write_ids

TASKS = "@huggingface/tasks"
LANGUAGES = "@huggingface/languages"

# What the Hub takes for a language beside ISO codes (hub-docs modelcard.md).
NO_LANGUAGES = ["code", "multilingual"]

DUMP = """
const tasks = require("@huggingface/tasks");
const languages = require("@huggingface/languages");
console.log(JSON.stringify({
  pipelines: Object.keys(tasks.PIPELINE_DATA),
  languages: [...Object.keys(languages.LANGUAGES_ISO_639_1), ...Object.keys(languages.LANGUAGES_ISO_639_3)],
}));
"""


def main() -> None:
    """Installs both packages into a folder that is thrown away, and asks them."""
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", TASKS, LANGUAGES)
        words: dict[str, list[str]] = json.loads(_run(folder, "node", "-e", DUMP))
        installed: dict[str, Any] = json.loads(_run(folder, "npm", "ls", "--json"))["dependencies"]
        tasks, languages = (_version(folder, name, installed[name]["version"]) for name in (TASKS, LANGUAGES))
    _write("pipeline_tags", tasks, words["pipelines"])
    _write("languages", languages, words["languages"] + NO_LANGUAGES)


def _write(name: str, version: tuple[str, str], ids: list[str]) -> None:
    source, date = version
    write_ids(name, source=source, date=date, ids=ids)


def _version(folder: str, name: str, version: str) -> tuple[str, str]:
    """The package with its version, and the day on which that was published."""
    times = json.loads(_run(folder, "npm", "view", name, "time", "--json"))
    return f"npm {name} {version}", times[version][:10]


def _run(folder: str, *command: str) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
