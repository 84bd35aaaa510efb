"""`repokit demo`: what a person does with a checkpoint, done once on a real small one, without an account or a network.

Every step is a command of its own process, as it would be typed; the Hub is the rehearsal Hub on 127.0.0.1.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from repokit.errors import InternalError, VerificationFailed
from repokit.printable import printable
from repokit.rehearsal.server import Hub
from repokit.resources import folder

CHECKPOINT: Final = "trainer-output/checkpoint-200"
REPO: Final = "rehearsal/demo"
TAG: Final = "v1.0"

# What `init` leaves to a person, as a person would fill it in.
_ANSWERS: Final = (
    (r"^repo: null .*$", f"repo: {REPO}"),
    (r"^  name: .*$", "  name: Demo"),
    (r"^  id: null .*$", "  id: apache-2.0"),
    (r"^  dtype: auto .*$", "  dtype: bfloat16"),
    (r"^  summary: null .*$", '  summary: "A tiny decoder that answers six questions about model repositories."'),
    (r"^  language: .*$", "  language: en"),
    (r"^  tag: null .*$", f"  tag: {TAG}"),
    (r"^output: .*$", "output: ./dist/demo"),
)


@dataclass(frozen=True)
class Compared:
    """The end of the demo: how many files of the downloaded revision equal the built directory by sha256."""

    files: int
    revision: str


Show = Callable[[str], None]  # told of every command before it runs


def run(workspace: Path, show: Show) -> Compared:
    """Goes through init, build, lint and push, downloads the pushed revision and compares it.

    Args:
        workspace: An empty directory; everything happens in it.
        show: Prints commands and what they are for.

    Raises:
        VerificationFailed: The downloaded revision is not the built directory.
        InternalError: A step failed, which only a bug or a broken installation explains.
    """
    shutil.copytree(folder("data") / "demo" / "trainer-output", workspace / "trainer-output")
    with Hub(workspace / "hub") as hub:
        environment = _environment(workspace, hub)
        repokit = [sys.executable, "-m", "repokit"]

        def step(command: Sequence[str], words: str) -> None:
            show(f"$ {words}")
            _run(command, workspace, environment)

        step([*repokit, "init", CHECKPOINT], f"repokit init {CHECKPOINT}")
        show("# repokit.yaml: repo, license, dtype, summary and tag filled in, as only a person can")
        _answer(workspace / "repokit.yaml")
        step([*repokit, "build"], "repokit build")
        step([*repokit, "lint", "dist/demo"], "repokit lint dist/demo")
        push = ["push", "dist/demo", "--create", "--yes"]
        step([*repokit, *push], f"repokit {' '.join(push)}")
        download = ["download", REPO, "--revision", TAG, "--local-dir", "downloaded", "--quiet"]
        hf = [sys.executable, "-c", "from huggingface_hub.cli.hf import main; main()"]
        step([*hf, *download], f"hf {' '.join(download)}")
    return _compared(workspace / "dist" / "demo", workspace / "downloaded")


def _environment(workspace: Path, hub: Hub) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE_"))}
    return {
        **kept,
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(workspace / "hf-home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": str(folder("data").parent.parent),  # a checkout that is not installed works too
    }


def _answer(recipe: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    for pattern, answer in _ANSWERS:
        text, number = re.subn(pattern, answer, text, flags=re.MULTILINE)
        if number == 0:
            raise InternalError(f"the recipe that init wrote has no line for {printable(answer)!r}")
    recipe.write_text(text, encoding="utf-8")


def _run(command: Sequence[str], workspace: Path, environment: dict[str, str]) -> None:
    code = subprocess.run(command, cwd=workspace, env=environment, check=False).returncode
    if code:
        raise InternalError(f"the demo's step ended with exit code {code}", hint="report what it printed above")


def _compared(built: Path, downloaded: Path) -> Compared:
    wanted = _hashes(built, without={"repokit-manifest.json"})  # kept beside the files, not pushed
    found = _hashes(downloaded, without={".gitattributes"})  # the Hub's own
    if wanted != found:
        differing = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
        raise VerificationFailed(
            f"differs from what was built: {printable(', '.join(differing))}", path=str(downloaded)
        )
    return Compared(len(wanted), TAG)


def _hashes(directory: Path, *, without: set[str]) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    names = {path.relative_to(directory).as_posix(): path for path in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in names.items()
        if name not in without and not name.startswith(".cache/")
    }
