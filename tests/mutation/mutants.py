"""A repository's files -> its mutants. Pure: bytes in, bytes out; the same files give the same mutants.

Every file is deleted, emptied, cut and renamed; every key of a JSON document, at every level, is deleted, renamed and
given other values (json_mutants.py); every tensor is deleted, renamed, reshaped and cast (tensor_mutants.py); so are
the entries of an index, the parts of tokenizer.json (tokenizer_mutants.py) and the pieces of a chat template
(template_mutants.py). Values of tensors are not altered: no header shows them, and `--deep` has tests of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import json_mutants
from edit import Edit

Files: TypeAlias = Mapping[str, bytes]


@dataclass(frozen=True)
class Mutant:
    """A repository with one thing changed.

    Attributes:
        path: The file that was changed.
        artifact: What the file is: "config", "weights".
        operation: See Edit.
        place: See Edit.
        change: Path to new bytes, None where the file is gone.
    """

    path: str
    artifact: str
    operation: str
    place: str
    change: Mapping[str, bytes | None]

    @property
    def kind(self) -> str:
        """By what mutants are counted: "config: delete key"."""
        return f"{self.artifact}: {self.operation}"

    @property
    def title(self) -> str:
        """What identifies it within its repository."""
        return f"{self.path} {self.place} {self.operation}"

    def applied(self, files: Files) -> dict[str, bytes]:
        """All files of the mutant."""
        result = {path: content for path, content in files.items() if path not in self.change}
        return result | {path: content for path, content in self.change.items() if content is not None}


def mutants(files: Files, like: Files | None = None) -> Iterator[Mutant]:
    """Every mutant of a repository, file by file.

    Args:
        files: The repository.
        like: Another one whose mutants are made already: files that both have byte for byte are left alone, and so
            are keys of config.json that both have with one value.
    """
    twin = like or {}
    settled = json_mutants.shared(files, twin, "config.json")
    for path in sorted(path for path in files if files[path] != twin.get(path)):
        for edit in edits(path, files):
            if path == "config.json" and edit.place in settled:
                continue
            change = {path: edit.content, **dict(edit.more)}
            if any(files.get(name) != content for name, content in change.items()):
                yield Mutant(path, artifact(path), edit.operation, edit.place, change)


def edits(path: str, files: Files) -> Iterator[Edit]:
    """Every way to spoil one file."""
    import template_mutants
    import tensor_mutants
    import tokenizer_mutants

    yield from of_file(path, files[path])
    match artifact(path):
        case "weights" | "adapter weights":
            yield from tensor_mutants.of_weights(path, files)
        case "index":
            yield from tensor_mutants.of_index(path, files)
        case "tokenizer.json":
            yield from tokenizer_mutants.of_tokenizer(files[path])
        case "template":
            yield from template_mutants.of_template(files[path])
        case "vocabulary":
            yield from tokenizer_mutants.of_vocabulary(files[path])
        case "gguf":
            yield from tensor_mutants.of_gguf(files[path])
        case _ if path.endswith(".json"):
            yield from json_mutants.of_document(files[path])


def of_file(path: str, content: bytes) -> Iterator[Edit]:
    """What happens to whole files."""
    yield Edit("delete file", "", None)
    yield Edit("empty file", "", b"")
    yield Edit("cut file", "", content[: len(content) // 2])
    yield Edit("rename file", "", None, ((f"{path}.old", content),))
    folder, slash, name = path.rpartition("/")
    middle = len(name.split(".")[0]) // 2
    yield Edit("misspell file", "", None, ((folder + slash + name[:middle] + name[middle + 1 :], content),))


ARTIFACTS: Mapping[str, str] = {
    "adapter_config.json": "adapter config",
    "chat_template.jinja": "template",
    "chat_template.json": "template in JSON",
    "config.json": "config",
    "generation_config.json": "generation config",
    "preprocessor_config.json": "processor",
    "processor_config.json": "processor",
    "vocab.json": "vocabulary",
    "tokenizer.json": "tokenizer.json",
    "tokenizer_config.json": "tokenizer config",
    "special_tokens_map.json": "tokenizer config",
    "added_tokens.json": "tokenizer config",
}


def artifact(path: str) -> str:
    """What a file is, in the words of the report."""
    name = path.rsplit("/", 1)[-1]
    if name.endswith(".safetensors"):
        return "adapter weights" if name.startswith("adapter_") else "weights"
    if name.endswith(".index.json"):
        return "index"
    if name.endswith(".gguf"):
        return "gguf"
    return ARTIFACTS.get(name, "other file")
