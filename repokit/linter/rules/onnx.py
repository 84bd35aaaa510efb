"""WGT: ONNX models: the files that hold their tensors, and the names that transformers.js looks for."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from repokit.formats.paths import unsafe
from repokit.formats.signature import LFS_POINTER
from repokit.linter.examples import Example
from repokit.linter.examples_onnx import onnx_model
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.printable import count, printable, size
from repokit.repo.card import README
from repokit.repo.onnx import data_files, models

if TYPE_CHECKING:
    from repokit.repo.onnx import DataFile
    from repokit.repo.repository import Repository

MODEL: Final = "onnx/model.onnx"
DATA: Final = "model.onnx_data"


class MissingExternalData(Rule):
    """An ONNX model keeps tensors in a file that is not there, or that is too short.

    Runtimes open the model, look for the file beside it, and stop.
    """

    code = "WGT151"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the data was not uploaded", {MODEL: onnx_model((DATA, 64))}),
        Example("a second file of data", {MODEL: onnx_model((DATA, 64), (f"{DATA}_1", 64)), f"onnx/{DATA}": bytes(64)}),
        Example("the data was cut off", {MODEL: onnx_model((DATA, 64)), f"onnx/{DATA}": bytes(60)}),
        Example("a folder of the machine that exported it", {MODEL: onnx_model(("/tmp/model.data", 64))}),  # noqa: S108 - the defect
        Example(
            "the model was renamed, and its data too", {MODEL: onnx_model(("old.data", 64)), f"onnx/{DATA}": bytes(64)}
        ),
    )
    good = (
        Example("the data is beside it", {MODEL: onnx_model((DATA, 64)), f"onnx/{DATA}": bytes(64)}),
        Example("everything in one file", {MODEL: onnx_model()}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in models(repository):
            for data in data_files(repository, path):
                if what := lack(repository, path, data):
                    message = f"keeps {count(len(data.tensors), 'tensor')} in {printable(data.location, 80)!r}, {what}"
                    hint = "upload it into the folder of the model, under this name"
                    place = printable(data.location, 200)
                    yield self.finding(path, message, place=place, names=data.tensors, hint=hint)


def lack(repository: Repository, path: str, data: DataFile) -> str | None:
    """What is wrong with a file that holds tensors, as the end of a sentence."""
    target = normpath(path.rpartition("/")[0] + "/" + data.location) if "/" in path else normpath(data.location)
    if unsafe(data.location.removeprefix("./")) or unsafe(target):
        return "which is no file of its folder"
    entry = repository.files.get(target)
    if entry is None:
        return "which is not there"
    if entry.size >= data.end or repository.head(target).startswith(LFS_POINTER):  # a pointer is another rule's
        return None
    return f"which has {size(entry.size)} of the {size(data.end)} that it must have"


class MissingOnnxModel(Rule):
    """The card says transformers.js, and there is no ONNX model in the folder `onnx`.

    pipeline() and from_pretrained() of transformers.js look for `onnx/model_quantized.onnx` and its kin there, and stop
    with "Could not locate file".
    """

    code = "WGT152"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("weights of another format", {README: with_lines("tags:\n- transformers.js\n")}),
        Example(
            "the model lies at the top", {README: with_lines("tags:\n- transformers.js\n"), "model.onnx": onnx_model()}
        ),
    )
    good = (
        Example("where it is looked for", {README: with_lines("tags:\n- transformers.js\n"), MODEL: onnx_model()}),
        Example(
            "a tokenizer alone",
            {
                README: with_lines("tags:\n- transformers.js\n", drop="pipeline_tag"),
                **dict.fromkeys(("config.json", "generation_config.json", "model.safetensors")),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is None or not {card.library_name, *card.tags} & {JS}:
            return
        named = [path for path in repository.files if path.endswith((".onnx", ".safetensors", ".ort"))]
        if named and not any("/onnx/" in f"/{path}" for path in named):
            key = "library_name" if card.library_name == JS else "tags"
            message = f"names {JS}, and there is no onnx/*.onnx"
            hint = "export it: optimum-cli export onnx --model DIR onnx, or take the name out of the card"
            yield self.finding(README, message, place=card.place(key), hint=hint)


class UnannouncedExternalData(Rule):
    """An ONNX model for transformers.js keeps its tensors in other files, and config.json does not say so.

    transformers.js fetches such files only where `use_external_data_format` asks for them: in config.json, or in the
    call of everyone who uses the model.
    """

    code = "WGT350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "only the card can tell",
            {
                README: with_lines("tags:\n- transformers.js\n"),
                MODEL: onnx_model((DATA, 64)),
                f"onnx/{DATA}": bytes(64),
            },
        ),
    )
    good = (
        Example(
            "announced",
            {
                README: with_lines("tags:\n- transformers.js\n"),
                "config.json": {"transformers.js_config": {"use_external_data_format": {"model.onnx": 1}}},
                MODEL: onnx_model((DATA, 64)),
                f"onnx/{DATA}": bytes(64),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, config = repository.card, repository.config
        if card is None or config is None or not {card.library_name, *card.tags} & {JS}:
            return
        settings = config.mapping("transformers.js_config")
        if settings is not None and settings.raw.get("use_external_data_format"):
            return
        split = [path for path in models(repository) if path.startswith("onnx/") and data_files(repository, path)]
        if split:
            message = f"has no use_external_data_format, and {count(len(split), 'model')} keep tensors in other files"
            hint = '"transformers.js_config": {"use_external_data_format": true}'
            yield self.finding(config.path, message, names=split, hint=hint)


JS: Final = "transformers.js"

RULES: Final = (MissingExternalData(), MissingOnnxModel(), UnannouncedExternalData())
