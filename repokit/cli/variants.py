"""One verb for several variants of a recipe: one after the other, with one result."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repokit.cli.console import Console, Format, error_document
from repokit.errors import InternalError, RepokitError
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from repokit.api.recipes import Wanted

VariantOption = Annotated[
    list[str] | None,
    typer.Option("--variant", help="A variant of the recipe, or `all` of them; may be given several times."),
]


def are_several(names: Sequence[str] | None) -> bool:
    """Whether `--variant` asks for more than one, by what was typed."""
    return names is not None and (len(set(names)) > 1 or "all" in names)


def retyped(verb: str, flags: Mapping[str, object]) -> str:
    """A verb with those of its flags that were typed, as a shell reads them.

    Args:
        verb: `repokit build`.
        flags: What each was set to; None and False where it was not typed.
    """
    words = [verb]
    for flag, value in flags.items():
        if value is not None and value is not False:
            words += [flag] if value is True else [flag, shlex.quote(printable(str(value)))]
    return " ".join(words)


class Gathering(Console):
    """A console that keeps what several runs print as JSON, so that it becomes one document."""

    def __init__(self, format_: Format) -> None:
        super().__init__(format_)
        self.documents: list[Mapping[str, Any]] = []

    def result(self, text: str, document: Mapping[str, Any], *, quiet: str) -> None:
        """Keeps the document, or prints the text."""
        if self.format is Format.JSON:
            self.documents.append(document)
        else:
            super().result(text, document, quiet=quiet)


def each(
    wanted: Sequence[Wanted],
    run: Callable[[Wanted, Console], None],
    *,
    format_: Format,
    verb: str,
    done: str,
    go_on: bool,
    undone: str = "",
) -> None:
    """Runs a verb for each variant, and says at the end what was done and what was not.

    Args:
        wanted: The variants, in the order in which they are built.
        run: The verb, for one of them.
        format_: What stdout carries.
        verb: As it was typed, to go on later: `repokit build --dry-run`.
        done: What a variant is afterwards: `built`.
        go_on: Whether the failure of one stops only those that are made from it.
        undone: What a variant is that failed, where that is not `not` and what it would be.

    Raises:
        typer.Exit: One of them failed: with 1 where findings stopped one, else with 2.
    """
    console = Gathering(format_)
    failed: dict[str, RepokitError | None] = {}
    results: list[dict[str, Any]] = []
    for one in wanted:
        name = str(one.variant)
        if failed and not (go_on and failed.keys().isdisjoint(one.needs)):
            failed[name] = None
            needs = [need for need in one.needs if need in failed]
            results.append({"variant": name, "outcome": "not tried", "needs": needs})
            continue
        console.stage("variant", printable(name))
        try:
            run(one, console)
        except InternalError:
            raise
        except RepokitError as error:
            failed[name] = error
            console.tell_error(error)
            results.append({"variant": name, "outcome": "failed", **error_document(error)})
        else:
            documents = console.documents
            results.append({"variant": name, "outcome": done, **(documents.pop() if documents else {})})
    _say(results, failed, format_, verb=verb, done=done, undone=undone or f"not {done}")
    if failed:
        raise typer.Exit(min(error.exit_code for error in failed.values() if error is not None))


def _say(
    results: Sequence[Mapping[str, Any]],
    failed: Mapping[str, RepokitError | None],
    format_: Format,
    *,
    verb: str,
    done: str,
    undone: str,
) -> None:
    console = Console(format_)
    if console.format is Format.JSON:
        console.result("", {"variants": results}, quiet="")
        return
    names = [result["variant"] for result in results if result["variant"] not in failed]
    console.say(f"{done} {len(names)} of {count(len(results), 'variant')}" + (f": {some(names, 20)}" if names else ""))
    if failed:
        left = [_left(result) for result in results if result["variant"] in failed]
        console.say(f"{undone}: {some(left, 20)}")
        console.say(f"next: {verb} {' '.join(f'--variant {name}' for name in failed)}")


def _left(result: Mapping[str, Any]) -> str:
    """A variant that was not done, and why where it is not its own fault."""
    if result["outcome"] != "not tried":
        return str(result["variant"])
    return f"{result['variant']} ({'needs ' + ', '.join(result['needs']) if result['needs'] else 'not tried'})"
