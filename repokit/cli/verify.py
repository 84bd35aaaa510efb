"""repokit verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.files import directory_of
from repokit.cli.options import FormatOption, JsonOption, QuietOption
from repokit.errors import UsageError
from repokit.printable import count, printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.api import Gate
    from repokit.verifier.load_report import LoadReport
    from repokit.verifier.manifest import FilesReport

_SHOWN = 50  # differences as text; `--json` has all of them

_WORDS = {"passed": "loads", "failed": "does not load", "unchecked": "could not be checked"}


def verify(
    directory: Annotated[str, typer.Argument(help="A repository that was built, or downloaded.")],
    load: Annotated[
        bool, typer.Option("--load", help="Load it with transformers instead, offline, in a process of its own.")
    ] = False,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", help="The manifest, where it does not lie in the directory.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", help="With --load: the base model on which an adapter is loaded.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="With --load: seconds until it is given up.")
    ] = 600,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Files that are read at once; with --load, threads.")
    ] = 2,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check that a directory is what was built, byte for byte; with --load, that transformers loads it."""
    from repokit import api

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    if load and manifest is not None:
        raise UsageError("--load goes without --manifest", hint="verify twice: once with each")
    if base is not None and not load:
        raise UsageError("--base goes with --load", hint="repokit verify DIR --load --base BASE")
    where = directory_of(directory, "verify")
    if load:
        report = api.check_load(where, base=base, timeout=timeout, threads=jobs)
        _show_load(report, console)
        raise typer.Exit(report.exit_code)
    with console.progress("verify") as progress:
        found = api.verify(where, manifest=manifest, jobs=jobs, progress=progress)
    _show_files(found, console)
    raise typer.Exit(found.exit_code)


def _show_files(report: FilesReport, console: Console) -> None:
    files = f"{count(report.files, 'file')}, {size(report.size)}"
    lines = [
        f"{console.style(printable(difference.path, 400), 'path')} {difference.what}"
        for difference in report.differences[:_SHOWN]
    ]
    if (more := len(report.differences) - _SHOWN) > 0:
        lines.append(f"... and {more:,} more")
    verdict = console.style("all as built", "good")
    if report.differences:
        verdict = console.style(count(len(report.differences), "difference"), "error")
    console.result(
        "\n".join([*lines, f"{files}: {verdict}"]),
        {
            "directory": report.directory,
            "files": report.files,
            "bytes": report.size,
            "missing": list(report.of("missing")),
            "changed": list(report.of("changed")),
            "added": list(report.of("added")),
            "unreadable": list(report.of("unreadable")),
        },
        quiet="\n".join(printable(difference.path, 4096) for difference in report.differences),
    )


def _show_load(report: LoadReport, console: Console) -> None:
    verdict = console.style(_WORDS[report.outcome], "good" if report.outcome == "passed" else "error")
    with_what = [f"{name} {version}" for name, version in report.libraries.items()]
    after = ", ".join([*with_what, f"{report.seconds:.1f} s"] if with_what else [])
    summary = f"{printable(report.directory)}: {verdict}{f' ({after})' if after else ''}"
    document = {**report.model_dump(mode="json"), "outcome": report.outcome}
    console.result("\n".join([*load_lines(report, console), summary]), document, quiet=report.outcome)


def load_lines(report: LoadReport, console: Console) -> Iterator[str]:
    """A line for each step, and under the weights a line for each pattern of keys."""
    for step in report.steps:
        name = console.style(f"{step.name:<11}", "stage")
        mark = {"failed": "failed: ", "unchecked": "not checked: "}.get(step.outcome, "")
        styled = console.style(mark.rstrip(" "), "error" if step.outcome == "failed" else "warning")
        yield f"{name}{styled}{' ' if mark else ''}{printable(step.what, 500)}"
        if step.name == "weights":
            yield from (f"{'':<11}  {line}" for line in report.keys.lines())
            if prefix := report.keys.prefix:
                yield f"{'':<11}  the names in the files begin with {printable(prefix)}: which repokit build takes off"


def show_loaded(gate: Gate, console: Console) -> None:
    """What the load check of a build found: one line where all is well, on stderr."""
    from repokit import api

    report = gate.loaded if isinstance(gate, api.LoadGate) else None
    if report is None:
        return
    if report.outcome == "passed":
        told = [printable(step.what) for step in report.steps if step.name in {"weights", "generation", "forward"}]
        console.stage("load", f"{'; '.join(told)}; {report.seconds:.1f} s")
        return
    console.say("\n".join(load_lines(report, console)))
