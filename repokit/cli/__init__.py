"""The command line: one module per verb, no logic. console.py owns every byte that is printed.

Exit codes: 0 clean or done; 1 findings, or stopped by them; 2 could not run or could not check; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from repokit.cli import build, demo, init, inspect, lint, push, rules, schema, verify
from repokit.cli.console import Console
from repokit.errors import InternalError, RepokitError
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130

# What a disk, a network or the limits of a process answer, wherever they are met: no bug of ours.
_OUTSIDE = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EPERM}
    | {errno.EROFS, errno.ESTALE, errno.ETIMEDOUT}
)

# rich_markup_mode=None: rich's help makes `--help` twice as slow (measured), and says nothing more.
app = typer.Typer(
    name="repokit",
    help="Build, lint and push model repositories.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.init)
app.command("inspect")(inspect.inspect)
app.command("build")(build.build)
app.command("lint")(lint.lint)
app.command("push")(push.push)
app.command("verify")(verify.verify)
app.command("rules")(rules.rules)
app.add_typer(schema.app, name="schema")
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        Console().data(f"repokit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Build, lint and push model repositories."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; every error is printed as what, why and what next."""
    Console.latest = None
    try:
        result = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except KeyboardInterrupt:
        return _interrupted()
    except RepokitError as error:
        Console.of_command().error(error)
        return error.exit_code
    except Exception as error:
        if (code := _usage(error)) is not None:
            return code
        if os.environ.get("REPOKIT_DEBUG"):
            raise
        refused = isinstance(error, OSError) and error.errno in _OUTSIDE
        Console.of_command().error(_refused(error) if refused else _internal(error))  # type: ignore[arg-type]
        return InternalError.exit_code
    if result == INTERRUPTED:  # what typer makes of Ctrl-C inside a command
        return _interrupted()
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    Console().say("interrupted; run the same command again to go on")
    return INTERRUPTED


def _usage(error: Exception) -> int | None:
    """The exit code of typer's own errors, printed as it prints them; None for any other error.

    Told apart by what they have, not by class: typer brings click inside itself in some versions and beside itself in
    others.
    """
    show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
    if type(error).__name__ == "Abort":  # the end of standard input, where something was asked
        return INTERRUPTED
    if show is None or not isinstance(code, int):
        return None
    show(file=sys.stderr)
    return code


def _refused(error: OSError) -> RepokitError:
    path = None if error.filename is None else str(error.filename)
    hint = "run it again; REPOKIT_DEBUG=1 shows what was being done"
    return RepokitError(f"the system refused: {error.strerror}", path=path, hint=hint)


def _internal(error: Exception) -> InternalError:
    return InternalError(
        f"internal error: {type(error).__name__}: {error}",
        why="this is a bug in repokit, not in your files",
        hint="run it again with REPOKIT_DEBUG=1 and report what it prints",
    )
