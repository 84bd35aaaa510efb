"""Flags that several verbs share, spelled as in `hf`."""

from __future__ import annotations

from typing import Annotated

import typer

from repokit.cli.console import Format

FormatOption = Annotated[Format, typer.Option("--format", help="What stdout carries.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only the one value that a script needs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
LiveOption = Annotated[
    bool,
    typer.Option("--live-skeleton", help="Ask the installed transformers which tensors an uncovered class has."),
]
TokenOption = Annotated[str | None, typer.Option("--token", help="Instead of HF_TOKEN or `hf auth login`.")]
