"""`kind: gguf`: the files that llama.cpp wrote, as a repository: copied byte for byte, with a card and a license.

A GGUF file holds config, tokenizer and chat template itself: none of these is published beside it, and none is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.builder.card import README, unused
from repokit.builder.checkpoints.sources import Role
from repokit.builder.gguf.card import write_card
from repokit.builder.gguf.files import GgufEntry, gguf_entries
from repokit.builder.plan import LeftOut, Summary
from repokit.builder.planner import Planner
from repokit.builder.quantized import card as quantized_card
from repokit.builder.weights import PlannedWeights
from repokit.errors import RecipeError
from repokit.formats.gguf import GgufArray
from repokit.formats.leaks import begins_as_path, has_personal_path
from repokit.formats.paths import is_local
from repokit.operations import WriteText
from repokit.printable import printable, some
from repokit.schema.recipe import Recipe, Weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from repokit.formats.urls import Place
    from repokit.operations import CopyFile, WriteShard
    from repokit.repo.gguf import GgufFile

_INSIDE: Final = "each GGUF file has its own inside"
_MATRIX: Final = "an importance matrix, with which files are quantized"
_INSIDE_ROLES: Final = frozenset({Role.CONFIG, Role.TOKENIZER, Role.PROCESSOR, Role.CHAT_TEMPLATE})


class GgufPlanner(Planner):
    """Plans a repository of GGUF files."""

    entries: tuple[GgufEntry, ...] = ()

    def check(self) -> None:
        """Reads the header of every file.

        Raises:
            InputError: A file is broken, a part is missing, or there is no model.
            RecipeError: The recipe asks for a change of weights, which are copied as they are.
        """
        self._check_recipe()
        if README in self.checkpoint.roles:
            self.checkpoint.place(README)
        self.entries = gguf_entries(self.checkpoint)

    def _check_recipe(self) -> None:
        changed = [key for key, value in self.recipe.weights if value != getattr(Weights(), key)]
        if changed:
            what = f"weights.{changed[0]}: GGUF files are copied byte for byte"
            raise RecipeError(what, place=f"weights.{changed[0]}", hint="convert or quantize again, with llama.cpp")
        inside = ("generation_config", "config", "tokenizer", "processor", "chat_template")
        for key in inside:
            if getattr(self.recipe, key) != Recipe.model_fields[key].get_default():
                what = "GGUF files have their own inside, and nothing beside them"
                raise RecipeError(what, place=key, hint="leave it out, or name files in files.include")

    # ---------------------------------------------------------------- files

    def weights(self) -> PlannedWeights:
        """None: they are in files that are copied."""
        return PlannedWeights({})

    def written(self, planned: PlannedWeights) -> Iterator[WriteShard | WriteText | CopyFile]:  # noqa: ARG002 - as Planner has it
        """Nothing: they are copied."""
        yield from ()

    def documents(self, planned: PlannedWeights, carried: dict[str, tuple[Place, str]]) -> Iterator[WriteText]:  # noqa: ARG002 - as Planner has it
        """None: what config.json would say is in the files."""
        yield from ()

    def carried(self) -> dict[str, tuple[Place, str]]:
        """The GGUF files, notices, and what the recipe names."""
        self._tell()
        # Their headers were read as GGUF, so that a link to where there is room for them may be followed.
        found = {path: (self.checkpoint.root / path, "source") for one in self._published for path in one.paths}
        found |= {path: (self.checkpoint.place(path), "source") for path in self.checkpoint.files(Role.NOTICE)}
        return found | {path: (self.checkpoint.place(path), "source") for path in self.included(found)}

    @property
    def _published(self) -> list[GgufEntry]:
        """Without importance matrices, which the recipe may name."""
        return [entry for entry in self.entries if entry.what != "importance matrix"]

    def _tell(self) -> None:
        unnamed = [entry.head.path for entry in self._published if entry.what == "model" and entry.label is None]
        if unnamed:
            told = "does" if len(unnamed) == 1 else "do"
            self.warnings.append(
                f"{some(unnamed)} {told} not say in the name which quantization it holds: "
                "`llama-cli -hf` and ollama choose by it; rename it to NAME-Q4_K_M.gguf"
            )
        self._tell_paths()
        for entry in self._published:
            if entry.contradicts:
                told = f"general.file_type of {printable(entry.head.path)} is {entry.claimed}, and its tensors are"
                self.warnings.append(f"{told} {entry.method}: the card says {entry.method}")
        licenses = {found for entry in self._published if (found := entry.head.string("general.license"))}
        if other := sorted(licenses - {self.recipe.license.id or ""}):
            stated = printable(self.recipe.license.id)
            self.warnings.append(f"general.license in the files is {some(other)}, the license of the recipe {stated}")

    def _tell_paths(self) -> None:
        found = {file.path: keys for entry in self._published for file in entry.files if (keys := paths_in(file))}
        if found:
            named = ", ".join(dict.fromkeys(printable(key, 80) for own in found.values() for key in own))
            holds = "holds a path" if len(found) == 1 else "hold paths"
            told = f"{some(list(found))} {holds} of the machine that made it ({named})"
            self.warnings.append(f"{told}: it is published with the file, which is copied as it is")

    def card(self, planned: PlannedWeights, published: Collection[str], license_file: str | None) -> WriteText:  # noqa: ARG002 - as Planner has it
        """README.md."""
        self.warnings.extend(unused(self.recipe, self.checkpoint))
        self.warnings.extend(quantized_card.unused(self.recipe, self.checkpoint))
        entries = [entry for entry in self.entries if set(entry.paths) <= set(published)]
        if not any(entry.what in {"model", "LoRA adapter"} for entry in entries):
            raise RecipeError("files.exclude leaves no model", place="files.exclude", hint="narrow it")
        base = None if self.base is None else self.base.config
        content = write_card(self.recipe, self.checkpoint, entries, base=base, license_file=license_file)
        return WriteText(path=README, content=content, origin="recipe")

    def summary(self, planned: PlannedWeights) -> Summary:  # noqa: ARG002 - as Planner has it
        """The files in numbers."""
        size = sum(entry.size for entry in self._published)
        return Summary(
            tensors=sum(len(file.header.tensors) for entry in self._published for file in entry.files),
            parameters=max(entry.parameters for entry in self._published),
            weight_bytes=size,
            source_bytes=size,
            shards=sum(len(entry.paths) for entry in self._published),
        )

    def left_out(self, published: Collection[str], excluded: Collection[str]) -> Iterator[LeftOut]:
        """What stays behind."""
        matrices = {path for entry in self.entries if entry.what == "importance matrix" for path in entry.paths}
        for left in super().left_out(published, excluded):
            reason = None
            if left.path in excluded:
                pass
            elif self.checkpoint.roles.get(left.path) in _INSIDE_ROLES:
                reason = _INSIDE
            elif left.path in matrices or left.path.endswith(".imatrix") or "imatrix" in left.path.rpartition("/")[2]:
                reason = _MATRIX
            yield left if reason is None else left.model_copy(update={"reason": reason})


def paths_in(file: GgufFile) -> list[str]:
    """Keys whose value is a path of the machine that made the file, or a list with one in it."""
    found = file.header.metadata.items()
    return [key for key, entry in found if not key.startswith("tokenizer.") and any(map(_is_path, _texts(entry.value)))]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, GgufArray):
        yield from (text.decode("utf-8", "replace") for text in value.strings)
    elif isinstance(value, str):
        yield value


def _is_path(text: str) -> bool:
    """Prose has slashes too (and/or): without a blank, or at its start."""
    blank = any(character.isspace() for character in text)
    return begins_as_path(text) or has_personal_path(text) or (not blank and is_local(text))
