"""repokit lint."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli import lint_reports as reports
from repokit.cli.console import Console
from repokit.cli.files import write
from repokit.cli.fixes import show_diff, show_fixed
from repokit.cli.lint_reports import LintFormat
from repokit.cli.options import JsonOption, LiveOption, QuietOption, TokenOption
from repokit.cli.report import known_from, show_read
from repokit.errors import UsageError
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.api import Ignore, Linted
    from repokit.linter.baseline import Baseline, Known


class FailOn(StrEnum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


def lint(
    target: Annotated[str, typer.Argument(help="A directory, org/name[@revision], or an address on the Hub.")] = ".",
    select: Annotated[
        list[str] | None, typer.Option("--select", help="Only these rules: codes, families or names.")
    ] = None,
    extend_select: Annotated[
        list[str] | None, typer.Option("--extend-select", help="These rules as well, in preview or not.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="Not these rules.")] = None,
    per_file_ignore: Annotated[
        list[str] | None, typer.Option("--per-file-ignore", metavar="GLOB:CODE", help="Not these rules in these files.")
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="Exit 1 from this severity on; without it: the settings', error.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="File of findings that are known: new ones speak.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write what is found now as the baseline.")
    ] = None,
    report: Annotated[
        list[str] | None, typer.Option("--report", metavar="FORMAT=FILE", help="Also write the report to a file.")
    ] = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Counts by rule instead of findings; with json, beside them.")
    ] = False,
    live_skeleton: LiveOption = False,
    base: Annotated[
        Path | None, typer.Option("--base", help="The folder of the base model, to hold an adapter against it.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every value: NaN, zeros, tied copies, the manifest's hashes.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Threads that read values, with --deep.")] = 2,
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed safely; report what remains.")] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option("--unsafe-fixes", help="With --fix or --diff: also fixes that choose or discard; look at them."),
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what --fix would change, change nothing; exit 1 if anything would.")
    ] = False,
    token: TokenOption = None,
    format_: Annotated[LintFormat, typer.Option("--format", help="What stdout carries.")] = LintFormat.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a repository: index and shards, weights and config, tokenizer, chat template, card and license."""
    from repokit import api

    chosen = reports.chosen(format_, json_=json_, quiet=quiet)
    console = reports.console_for(chosen)
    files = reports.files_of(report)
    if statistics:
        reports.check_statistics(chosen)
    if unsafe_fixes and not (fix or diff):
        raise UsageError("--unsafe-fixes alone fixes nothing", hint="add --fix or --diff")
    if diff and (files or statistics or write_baseline is not None):
        raise UsageError("--diff goes with neither --report, --statistics nor --write-baseline", hint="run them apart")
    reports.check_folders([*(path for _, path in files), *([] if write_baseline is None else [write_baseline])])
    settings = api.settings_for(target)
    if settings.origin is not None:
        console.stage("settings", f"{settings.origin}, {count(len(settings.selection.waivers), 'waiver')}")
    ignored = (*(api.Ignore(word) for word in _words(ignore)), *_of_files(per_file_ignore))
    selection = settings.selection.narrowed(_words(select), _words(extend_select), ignored)
    known = _known(baseline or settings.baseline, write_baseline)
    with console.progress("lint") as progress:
        linted = api.lint(
            target,
            selection=selection,
            token=token,
            progress=progress,
            live_skeleton=live_skeleton,
            base=base,
            deep=deep,
            jobs=jobs,
            fixes=api.Fixes(unsafe=unsafe_fixes, write=not diff) if fix or diff else None,
        )
    show_read(linted.read, console)
    if linted.base is not None:
        console.stage("base", printable(linted.base))
    if live_skeleton:
        console.stage("skeleton", known_from(linted.report.coverage.skeleton))
    if diff:
        raise typer.Exit(show_diff(linted, console))
    show_fixed(linted, console)
    _tell_waivers(linted, console)
    if write_baseline is not None:
        known, text = api.new_baseline(linted, write_baseline)
        write(write_baseline, text)
        written = count(sum(known.values()), "finding")
        console.stage("baseline", f"{written} written to {printable(write_baseline, 400)}")
    if known is not None:
        linted, stale = api.without_known(linted, known)
        _tell_stale(stale, console)
    context = reports.context_of(target, fail_on or settings.fail_on or FailOn.ERROR)
    reports.save(linted, files, context)
    reports.show(linted, chosen, context, console, statistics=statistics)
    raise typer.Exit(linted.report.exit_code(context.fail_on))


def _known(baseline: Path | None, write_baseline: Path | None) -> Baseline | None:
    """The findings that are known, read before the work begins; a new baseline is made of all that is found."""
    from repokit import api

    return None if baseline is None or write_baseline is not None else api.read_baseline(baseline)


def _tell_waivers(linted: Linted, console: Console) -> None:
    """A waiver that has ended, or that nothing needs any more, is to go."""
    for expired in linted.report.expired:
        console.warn(expired)
    for unused in linted.report.unused:
        console.stage("settings", unused)


def _tell_stale(stale: tuple[Known, ...], console: Console) -> None:
    """What was found less often than the baseline says: it is to be written again, so that it shrinks."""
    if stale:
        gone = some([str(entry) for entry in stale])
        console.stage("baseline", f"no longer found: {gone}; write it again with --write-baseline")


def _words(values: list[str] | None) -> tuple[str, ...]:
    """Flags may be repeated, or carry several words with commas between them."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def _of_files(values: list[str] | None) -> Iterator[Ignore]:
    """The waivers of `--per-file-ignore GLOB:CODE,CODE`.

    Raises:
        UsageError: One of the two is not there.
    """
    from repokit import api

    for value in values or ():
        paths, _, words = value.rpartition(":")
        codes = _words([words])
        if not paths or not codes:
            hint = "write --per-file-ignore GLOB:CODE, as in 'checkpoint-*:FIL201'"
            raise UsageError(f"{printable(value)!r} names no files and rules", hint=hint)
        yield from (api.Ignore(code, paths=paths) for code in codes)
