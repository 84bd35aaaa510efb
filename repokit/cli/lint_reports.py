"""The formats of `repokit lint`, on stdout and in files."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from repokit.cli.console import Console, Format
from repokit.cli.files import write
from repokit.errors import UsageError
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repokit.api import Linted
    from repokit.errors import RepokitError
    from repokit.linter.reporters.context import Context


class LintFormat(StrEnum):
    """What stdout carries, or a file."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    QUIET = "quiet"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"
    MARKDOWN = "markdown"


_IN_FILES: Final = [format_ for format_ in LintFormat if format_ not in {LintFormat.AUTO, LintFormat.QUIET}]
_COUNTED: Final = frozenset({LintFormat.TEXT, LintFormat.JSON})  # those that `--statistics` changes


def chosen(format_: LintFormat, *, json_: bool, quiet: bool) -> LintFormat:
    """The format that `--format`, `--json`, `-q` and REPOKIT_FORMAT ask for; the short flags win."""
    if json_ or quiet:
        return LintFormat.JSON if json_ else LintFormat.QUIET
    if format_ is LintFormat.AUTO:
        wanted = os.environ.get("REPOKIT_FORMAT", "")
        return LintFormat(wanted) if wanted in set(LintFormat) - {LintFormat.AUTO} else LintFormat.TEXT
    return format_


class _Annotating(Console):
    """Tells an error that ends the command as an annotation too."""

    def error(self, error: RepokitError) -> None:
        from repokit.linter.reporters import github

        self.data(github.failure(error))
        super().error(error)


def console_for(format_: LintFormat) -> Console:
    """What speaks beside the report."""
    if format_ is LintFormat.GITHUB:
        return _Annotating()
    return Console(Format(format_) if format_ in {LintFormat.JSON, LintFormat.QUIET} else Format.TEXT)


def check_statistics(format_: LintFormat) -> None:
    """Refuses `--statistics` with a format that has no place for counts.

    Raises:
        UsageError: The format is one of findings alone.
    """
    if format_ not in _COUNTED:
        raise UsageError(f"--statistics does not go with --format {format_}", hint="use --format text or json")


def files_of(values: list[str] | None) -> list[tuple[LintFormat, Path]]:
    """The formats and files of `--report FORMAT=FILE`.

    Raises:
        UsageError: No such format, no file, or one file for two of them.
    """
    files = [_file_of(value) for value in values or ()]
    paths = [path for _, path in files]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise UsageError(f"{printable(twice[0])} is to be written twice", hint="name a file for each --report")
    return files


def check_folders(paths: Iterable[Path]) -> None:
    """Refuses files for which there is no folder, before anything is changed on the way to them.

    Raises:
        UsageError: There is none.
    """
    for path in paths:
        if not path.parent.is_dir():
            raise UsageError(f"{printable(path, 400)} cannot be written: there is no such folder", hint="make it first")


def _file_of(value: str) -> tuple[LintFormat, Path]:
    name, _, path = value.partition("=")
    if name not in set(_IN_FILES) or not path:
        known = ", ".join(_IN_FILES)
        hint = f"write --report FORMAT=FILE; formats: {known}"
        raise UsageError(f"{printable(value)!r} is no report", hint=hint)
    return LintFormat(name), Path(path)


def context_of(target: str, fail_on: str) -> Context:
    """Where the target lies in the checkout that a CI system made, or else in the current folder; what fails."""
    from repokit.linter.finding import Severity
    from repokit.linter.reporters.context import Context, folder_in

    root = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or "."
    threshold = None if fail_on == "never" else Severity[fail_on.upper()]
    return Context(folder_in(Path(root), Path(target)) if Path(target).is_dir() else None, threshold)


def show(linted: Linted, format_: LintFormat, context: Context, console: Console, *, statistics: bool) -> None:
    """Prints the report, and in a job of GitHub Actions its summary too."""
    if format_ is LintFormat.QUIET:
        for finding in linted.report.findings:
            console.data(f"{finding.code} {printable(finding.path, 4096)}")
        return
    console.data(_rendered(linted, format_, context, console, statistics=statistics))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if format_ is LintFormat.GITHUB and summary:
        _append(Path(summary), _rendered(linted, LintFormat.MARKDOWN, context), console)


def save(linted: Linted, files: list[tuple[LintFormat, Path]], context: Context) -> None:
    """Writes the reports that files were named for.

    Raises:
        UsageError: A folder is not there, or may not be written to.
    """
    for format_, path in files:
        write(path, _rendered(linted, format_, context))


def _rendered(
    linted: Linted, format_: LintFormat, context: Context, console: Console | None = None, *, statistics: bool = False
) -> str:
    report, locate = linted.report, linted.locate
    match format_:
        case LintFormat.JSON:
            from repokit.linter.reporters import json  # Pydantic models, which the others do without

            fixed = linted.mended.fixed if linted.mended else ()
            return json.render(report, locate, with_statistics=statistics, fixed=fixed)
        case LintFormat.SARIF:
            from repokit.linter.reporters import sarif

            return sarif.render(report, locate, context)
        case LintFormat.GITHUB:
            from repokit.linter.reporters import github

            return github.render(report, locate, context)
        case LintFormat.JUNIT:
            from repokit.linter.reporters import junit

            return junit.render(report, locate, context)
        case LintFormat.MARKDOWN:
            from repokit.linter.reporters import markdown

            return markdown.render(report, locate, context)
    from repokit.linter.reporters import text

    style = console.style if console else lambda words, _kind: words
    return text.render_statistics(report, style) if statistics else text.render(report, locate, style)


def _append(path: Path, summary: str, console: Console) -> None:
    """The summary is an extra: a report that was printed is not lost with it."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(summary + "\n")
    except OSError as error:
        console.warn(f"the summary of the job is not written: {error.strerror}")
