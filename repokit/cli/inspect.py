"""repokit inspect."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from repokit.cli.console import Console, Format, chosen
from repokit.cli.options import FormatOption, JsonOption, QuietOption, TokenOption
from repokit.cli.report import show_read
from repokit.printable import count, printable, size, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.inspection import AdapterSummary, Inspection, Vocabulary
    from repokit.repo.stored_weights import StoredWeights, TensorRow


def inspect(
    target: Annotated[str, typer.Argument(help="A directory, org/name[@revision], or an address on the Hub.")] = ".",
    tensors: Annotated[
        str | None, typer.Option("--tensors", help="List the tensors that a glob matches: 'layers.0.*'.")
    ] = None,
    token: TokenOption = None,
    format_: FormatOption = Format.AUTO,
    json_: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what a repository is, here or on the Hub: kind, weights, tokens, template, license. Reads no weights."""
    from repokit import api

    console = Console(chosen(format_, json_=json_, quiet=quiet))
    with console.progress("inspect") as progress:
        found = api.inspected(target, tensors=tensors, token=token, progress=progress)
    show_read(found.read, console)
    inspection = found.inspection
    text = _screen(inspection, console) if tensors is None else _table(inspection.tensors)
    console.result(text, _document(inspection), quiet=printable(inspection.kind))
    if tensors is not None and "tensors" in inspection.unread:
        console.warn(inspection.unread["tensors"])


def _document(inspection: Inspection) -> dict[str, Any]:
    return {**asdict(inspection), "tensors": [row._asdict() for row in inspection.tensors]}


def _screen(inspection: Inspection, console: Console) -> str:
    title = console.style(printable(inspection.target, 100), "path")
    lines = [f"{title}  {printable(inspection.kind)}, {count(inspection.files, 'file')}, {size(inspection.size)}"]
    for label, text in _lines(inspection):
        lines.append(f"  {console.style(f'{label:<14}', 'dim')}{text}")
    for label, reason in inspection.unread.items():
        lines.append(f"  {console.style(f'{_LABELS.get(label, label):<14}', 'warning')}not read: {printable(reason)}")
    return "\n".join(lines)


# What each attribute of an Inspection is called on the screen.
_LABELS: Final = {
    "architectures": "architecture",
    "tied": "output head",
    "stops": "stops at",
    "templates": "template",
    "processors": "processor",
    "adapters": "adapter",
    "licenses": "license",
    "pickled": "pickles name",
}


def _lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Label and text of every line; what could not be read at all has one of its own already."""
    unread = {_LABELS.get(name, name) for name in inspection.unread}
    every = (
        *_model_lines(inspection),
        *(_adapter_line(adapter) for adapter in inspection.adapters[:_MOST]),
        *_token_lines(inspection),
        *_paper_lines(inspection),
    )
    yield from ((label, text) for label, text in every if label not in unread)


_MOST: Final = 4  # of what a screen has room for


def _model_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.architectures or inspection.model_type or not inspection.adapters:
        names = some(inspection.architectures) or "unknown"
        kind = f" ({printable(inspection.model_type, 60)})" if inspection.model_type else ""
        yield "architecture", names + kind
    if inspection.weights is None:
        yield "weights", "none"
    else:
        yield from _weight_lines(inspection.weights)
    if inspection.pickled:
        yield "pickles name", some([f"{name} ({grade})" for name, grade in inspection.pickled.items()], 6)
    if inspection.tied is not None:
        yield "output head", "the embedding (tied)" if inspection.tied else "a matrix of its own"
    elif _generates(inspection):
        yield "output head", "unknown: none is stored, and config.json does not say that it is the embedding"
    if inspection.quantization:
        yield "quantization", _settings(inspection.quantization)


def _generates(inspection: Inspection) -> bool:
    """Whether the name of a class says that the model writes text."""
    return any(name.endswith(("ForCausalLM", "LMHeadModel", "Generation")) for name in inspection.architectures)


def _weight_lines(weights: StoredWeights) -> Iterator[tuple[str, str]]:
    if weights.elements is None or weights.tensors is None:
        yield "parameters", f"unknown: {printable(weights.unread)}"
    else:
        noun = " stored values, packed" if weights.packed else _short(weights.elements)
        yield "parameters", f"{weights.elements:,}{noun} in {count(weights.tensors, 'tensor')}"
        shown = [f"{dtype} {size(number)}" for dtype, number in weights.dtypes.items()]
        yield "dtypes", some(shown, 6) or "none"
    many = f"{count(len(weights.files), 'file')}: {some(weights.files, 2)}"
    yield "weights", f"{weights.format}, {size(weights.size)}, {many}"


def _short(number: int) -> str:
    """` (8.0 B)`, as people call the sizes of models; nothing where the number is as short."""
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= limit:
            return f" ({number / limit:.1f} {unit})"
    return ""


def _adapter_line(adapter: AdapterSummary) -> tuple[str, str]:
    method = printable(adapter.method or "method unknown", 60)
    settings = f", {_settings(adapter.settings)}" if adapter.settings else ""
    base = f"; base {printable(adapter.base, 100)}" if adapter.base else "; base unknown"
    return "adapter", method + settings + base


def _settings(settings: Mapping[str, Any]) -> str:
    """`gptq, bits 4, group_size 128`: the method without its key."""
    shown = []
    for key, value in settings.items():
        text = some([str(item) for item in value], 7) if isinstance(value, list) else printable(value, 60)
        shown.append(text if key == "quant_method" else f"{printable(key, 60)} {text}")
    return some(shown, 9)


def _token_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    vocabulary = inspection.vocabulary
    if vocabulary is None:
        yield "vocabulary", "none"
    else:
        yield "vocabulary", _against_rows(vocabulary)
        yield "special", _roles(vocabulary) or "none named"
    if inspection.stops or _generates(inspection):
        yield "stops at", ", ".join(map(str, inspection.stops)) or "unknown"
    for template in inspection.templates[:_MOST]:
        name = "" if template.name == "default" else f" {printable(template.name, 40)!r}"
        markers = f", writes {some(template.markers, 6)}" if template.markers else ", writes no special tokens"
        yield "template", printable(template.path, 100) + name + markers
    if not inspection.templates:
        yield "template", "none"
    for path, classes in inspection.processors.items():
        yield "processor", f"{path}{': ' + some(classes) if classes else ''}"


def _against_rows(vocabulary: Vocabulary) -> str:
    tokens = "tokens unknown" if vocabulary.tokens is None else count(vocabulary.tokens, "token")
    largest = "" if vocabulary.largest_id is None else f", largest id {vocabulary.largest_id:,}"
    rows = "rows unknown" if vocabulary.rows is None else f"{vocabulary.rows:,} rows"
    beyond = vocabulary.rows is not None and vocabulary.largest_id is not None
    short = "  too few" if beyond and (vocabulary.largest_id or 0) >= (vocabulary.rows or 0) else ""
    return f"{printable(vocabulary.path, 60)}, {tokens}{largest}; {rows}{short}"


def _roles(vocabulary: Vocabulary) -> str:
    """`eos </s> 2, pad <pad>`: what has no id is no token."""
    shown = []
    for role, token in vocabulary.special.items():
        number = f" {vocabulary.ids[role]:,}" if role in vocabulary.ids else ""
        shown.append(f"{printable(role.removesuffix('_token'), 40)} {printable(token, 40)}{number}")
    return some(shown, 7)


def _paper_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.base_models:
        yield "base model", some(inspection.base_models)
    absent = "not named in README.md" if inspection.has_card else "unknown: there is no README.md"
    yield "license", some(inspection.licenses) or absent
    if inspection.library:
        yield "library", printable(inspection.library, 60)
    if inspection.code:
        yield "code", some(inspection.code, 5)
    if inspection.leftovers:
        left = [f"{path} ({size(number)})" for path, number in inspection.leftovers.items()]
        yield "leftovers", some(left, 5)


def _table(rows: tuple[TensorRow, ...]) -> str:
    """Name, dtype, shape, size and file of every tensor, and what they come to."""
    if not rows:
        return "no tensor has such a name"
    cells = [
        (printable(row.name, 1024), row.dtype, str(list(row.shape)), _size(row.size), printable(row.file, 400))
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{name:<{widths[0]}}  {dtype:<{widths[1]}}  {shape:<{widths[2]}}  {held:>{widths[3]}}  {file}"
        for name, dtype, shape, held, file in cells
    ]
    total = sum(row.size or 0 for row in rows)
    files = len({row.file for row in rows})
    return "\n".join([*lines, f"{count(len(rows), 'tensor')}, {size(total)}, in {count(files, 'file')}"])


def _size(number: int | None) -> str:
    return "unknown" if number is None else size(number)
