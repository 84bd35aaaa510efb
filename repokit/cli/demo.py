"""repokit demo."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, QuietOption


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Work in this new folder and leave everything there.")
    ] = None,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take a real small checkpoint from init to a pushed, tagged, verified revision, on this machine alone."""
    from repokit import api
    from repokit.errors import UsageError

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is not an empty folder", hint="name a new one")
    with tempfile.TemporaryDirectory(prefix="repokit-demo-") as temporary:
        workspace = (keep or Path(temporary)).absolute()
        workspace.mkdir(parents=True, exist_ok=True)
        compared = api.demo(workspace, lambda line: console.say(console.style_message(f"\n{line}", "stage")))
    where = f"; look around in {keep}" if keep else ""
    files = f"{compared.files} files of revision {compared.revision}"
    console.result(
        f"\n{files} downloaded: every one equals the built one by sha256{where}",
        {"files": compared.files, "revision": compared.revision, "folder": None if keep is None else str(keep)},
        quiet=compared.revision,
    )
