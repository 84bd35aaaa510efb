"""`repokit init`: a checkpoint looked at; a commented recipe with what was found and what only a person can say."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from repokit.architectures import covered
from repokit.builder import fitting
from repokit.builder.card import pipeline_tag
from repokit.builder.checkpoints.layouts import check_supported
from repokit.builder.checkpoints.sources import Checkpoint, Role, open_checkpoint
from repokit.builder.checkpoints.training_run import Nested
from repokit.builder.kinds import ADAPTER_CONFIG, Kind, found_kind
from repokit.builder.license import NAMES
from repokit.builder.naming import repaired
from repokit.builder.quantized.files import Declaration, declaration_of, is_declared
from repokit.builder.quantized.words import Words, words
from repokit.errors import InputError
from repokit.formats.paths import is_local, is_repo_id
from repokit.formats.tensors import HEADER_NAMES
from repokit.formats.urls import Place, Url
from repokit.printable import count, printable, size, some
from repokit.repo.quantization import GPTQ_FILE
from repokit.resources import folder
from repokit.schema.license import license_ids
from repokit.schema.recipe import QuantizationRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Environment


@dataclass(frozen=True)
class Draft:
    """A recipe that is not written yet.

    Attributes:
        text: The whole file, comments included.
        source: What it builds from: the directory that was asked for, or the best checkpoint inside it.
        found: What the checkpoint holds, a line each.
        nested: The checkpoints inside an output directory.
        missing: Keys that only a person can fill.
    """

    text: str
    source: Place
    found: tuple[str, ...]
    nested: tuple[Nested, ...]
    missing: tuple[str, ...]


def draft(path: Place, *, recipe_folder: Path, base: Place | None = None) -> Draft:
    """Reads headers and documents of a checkpoint and writes nothing.

    Args:
        path: A checkpoint, or the output directory of a run.
        recipe_folder: Where the recipe will lie; its paths are relative to it.
        base: A copy of the base model: what the checkpoint lacks is taken from there.

    Raises:
        InputError: It is not a checkpoint, or one that this version does not build from.
    """
    asked = open_checkpoint(path)
    checkpoint = asked
    if not asked.weights.files and asked.nested:
        best = next((nested for nested in asked.nested if nested.best), asked.nested[-1])
        checkpoint = open_checkpoint(path / best.path)
    _refuse_several(checkpoint)
    match found_kind(checkpoint):
        case Kind.ADAPTER:
            from repokit.builder.adapters.draft import adapter_draft  # which is made of this module

            return adapter_draft(checkpoint, asked.nested, recipe_folder=recipe_folder, base=base)
        case Kind.GGUF:
            from repokit.builder.gguf.draft import gguf_draft  # the same

            return gguf_draft(checkpoint, recipe_folder=recipe_folder, base=base)
        case _:
            pass
    borrowed = () if base is None else _borrowed(checkpoint, open_checkpoint(base))
    check_supported(checkpoint, quantized=is_declared(checkpoint))
    facts = Facts(checkpoint)
    text = rendered(
        "repokit.yaml.jinja",
        facts,
        recipe_folder=recipe_folder,
        base_path=base,
        nested=asked.nested,
        borrowed=borrowed,
        architecture=facts.architecture,
        base=facts.base,
        leftovers=facts.leftovers,
        stored=facts.stored,
        declared=facts.declared,
        cast_to=facts.cast_to,
        wrappers=facts.wrapped,
        unknown=[path for path in checkpoint.files(Role.UNKNOWN) if path not in facts.of_quantizer][:20],
        quantized=facts.quantized,
    )
    missing = ("repo",) if facts.license else ("repo", "license.id")
    return Draft(text, checkpoint.root / (checkpoint.file or ""), tuple(facts.found()), asked.nested, missing)


def _refuse_several(checkpoint: Checkpoint) -> None:
    """Refuses a folder of folders of models: PEFT saves the adapters of one model directly below it.

    Raises:
        InputError: With those that there are.
    """
    if checkpoint.weights.files or ADAPTER_CONFIG in checkpoint.roles:
        return
    unknown = [path for path, role in checkpoint.roles.items() if role is Role.UNKNOWN]
    folders = sorted(path.rpartition("/")[0] for path in unknown if path.endswith(f"/{ADAPTER_CONFIG}"))
    if len(folders) > 1 and any("/" in folder or _OF_SOMETHING_ELSE.fullmatch(folder) for folder in folders):
        hint = f"repokit init {printable(checkpoint.root / folders[0])}"
        raise InputError(f"has several checkpoints, name one: {some(folders)}", path=str(checkpoint.root), hint=hint)


def _borrowed(checkpoint: Checkpoint, base: Checkpoint) -> tuple[str, ...]:
    """Keys of the recipe for what the base has and the checkpoint has not: a Lightning checkpoint is weights alone."""
    keys = {
        Role.CONFIG: "config",
        Role.TOKENIZER: "tokenizer",
        Role.PROCESSOR: "processor",
        Role.CHAT_TEMPLATE: "chat_template",
    }
    found = tuple(key for role, key in keys.items() if base.files(role) and not checkpoint.files(role))
    if "config" in found:
        checkpoint.described_by = base.repository
    return found


def relative(path: Place, folder: Path) -> str:
    """A path as a recipe in a folder spells it: `./run/checkpoint-40`, `../run`, `.`; an address as it is.

    Raises:
        InputError: It holds bytes that are no text, which a recipe cannot spell.
    """
    if isinstance(path, Url):
        return str(path)
    relative = os.path.relpath(path.resolve(), folder.resolve())
    try:
        relative.encode()
    except UnicodeEncodeError:
        raise InputError("has a name that is not UTF-8", path=str(path), hint="rename it") from None
    return relative if relative.startswith("..") or relative == "." else f"./{relative}"


def output_of(facts: Facts, recipe_folder: Path) -> str:
    """`./dist/NAME`; beside the source where that would lie inside it, because a source is only read."""
    root = facts.checkpoint.root.resolve()
    inside = root in (recipe_folder.resolve(), *recipe_folder.resolve().parents)
    return relative(root.parent / "dist" / facts.name, recipe_folder) if inside else f"./dist/{facts.name}"


def rendered(
    template: str, facts: Facts, *, recipe_folder: Path, base_path: Place | None, **of_its_kind: object
) -> str:
    """A recipe of any kind.

    Args:
        template: In templates/.
        facts: What is said of the checkpoint in all of them.
        recipe_folder: Where it will lie.
        base_path: A copy of the base model.
        of_its_kind: What else the template asks for.
    """
    checkpoint = facts.checkpoint
    return (
        _environment()
        .get_template(template)
        .render(
            schema=folder("schemas") / "recipe.schema.json",
            source=relative(checkpoint.root / (checkpoint.file or ""), recipe_folder),
            output=output_of(facts, recipe_folder),
            name=facts.name,
            found=list(facts.found()),
            base_path=None if base_path is None else relative(base_path, recipe_folder),
            license=facts.license,
            license_file=facts.license_file,
            pipeline_tag=facts.pipeline_tag,
            language=facts.language,
            datasets=facts.datasets,
            **of_its_kind,
        )
    )


def _environment() -> Environment:
    """Where templates of recipes are rendered: `yaml`, `yaml_list` and `comment` spell values out of files."""
    import jinja2

    made = jinja2.Environment(  # noqa: S701 - YAML, from our own template; values go through `yaml`
        loader=jinja2.FileSystemLoader(folder("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["yaml"] = _yaml_scalar
    made.filters["yaml_list"] = _yaml_list
    made.filters["comment"] = printable
    return made


# What looks like a word or a path, and the words that YAML 1.1 reads as something else than a string.
_WORD: Final = re.compile(r"(?:\.{0,2}/)*[A-Za-z][A-Za-z0-9._/-]*")
_RESERVED: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _yaml_scalar(value: object) -> str:
    """A string in double quotes wherever YAML could read something else.

    JSON strings are YAML strings, but for characters beyond U+FFFF, which JSON may spell as two halves and YAML not.
    """
    text = str(value)
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(character if character.isprintable() else printable(character) for character in quoted)


def _yaml_list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_yaml_scalar, values))}]"


_OF_SOMETHING_ELSE: Final = re.compile(r"dist|checkpoint-\d+|epoch_\d+")
_OF_THE_RUN: Final = frozenset({Role.TRAINING, Role.LOG, Role.CHECKPOINT, Role.PICKLE})


class Facts:
    """What a checkpoint says about itself, and where it says so."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        repository = checkpoint.repository
        self.config = checkpoint.config
        self._card: dict[str, Any] = {}
        try:
            if repository.card is not None:
                self._card = dict(repository.card.raw)
        except InputError:
            pass  # the build says so; a draft is written all the same
        dtypes: Counter[str] = Counter()
        for tensor in checkpoint.tensors.values():
            dtypes[tensor.dtype] += tensor.size
        if (name := self.architecture) is not None:
            checkpoint.architectures = (name,)
        self.stored = {HEADER_NAMES.get(dtype, dtype): bytes_ for dtype, bytes_ in dtypes.most_common()}

    @property
    def name(self) -> str:
        """A name for the output folder: the run's own, never `checkpoint-40`."""
        root = self.checkpoint.root.resolve()
        return root.parent.name if root.name.startswith(("checkpoint-", "epoch_")) and root.parent.name else root.name

    @property
    def declared(self) -> str | None:
        """The dtype that config.json states, in torch's words."""
        return None if self.config is None or self.config.dtype is None else HEADER_NAMES[self.config.dtype]

    @property
    def cast_to(self) -> str | None:
        """The dtype of half the size that config.json states, where most of what is stored are master weights."""
        is_float32 = next(iter(self.stored), None) == "float32"
        return self.declared if is_float32 and self.declared in {"bfloat16", "float16"} else None

    @property
    def base(self) -> tuple[str, str] | None:
        """The base model's id and where it was found."""
        named = self._card.get("base_model")
        if isinstance(named, str) and is_repo_id(named):
            return named, "README.md"
        path = self.config.string("_name_or_path") if self.config is not None else None
        if path and is_repo_id(path) and "/" in path and not is_local(path):
            return path, "config.json"
        side = self.checkpoint.repository.document(GPTQ_FILE) if self.quantized else None
        path = None if side is None else side.string("model_name_or_path")
        if path and is_repo_id(path) and "/" in path and not is_local(path):
            return path, GPTQ_FILE
        return None

    @cached_property
    def _declaration(self) -> Declaration | None:
        return declaration_of(self.checkpoint) if is_declared(self.checkpoint) else None

    @property
    def quantized(self) -> Words | None:
        """How the weights are quantized, in words; None where they are not."""
        return None if self._declaration is None else words(self._declaration, QuantizationRecipe())

    @property
    def of_quantizer(self) -> tuple[str, ...]:
        """Files of the quantizer that are published beside its weights."""
        return () if self._declaration is None else self._declaration.published

    @property
    def license(self) -> tuple[str, str] | None:
        """The license id and where it was found. Only a stated one: a guess would be a lie."""
        stated = self._card.get("license")
        is_id = isinstance(stated, str) and stated in license_ids() and stated != "unknown"
        return (str(stated), "README.md") if is_id else None

    @property
    def license_file(self) -> str | None:
        """The license text in the checkpoint."""
        return next((name for name in NAMES if name in self.checkpoint.roles), None)

    @property
    def pipeline_tag(self) -> tuple[str, str] | None:
        """The task and where it was found: a person's word counts more than the architecture's name."""
        if isinstance(stated := self._card.get("pipeline_tag"), str):
            return stated, "README.md"
        config = self.checkpoint.config
        found = None if config is None else pipeline_tag(config)
        return (found, "the architecture") if found else None

    @property
    def language(self) -> list[str]:
        value = self._card.get("language")
        return [value] if isinstance(value, str) else [item for item in value or [] if isinstance(item, str)]

    @property
    def datasets(self) -> list[str]:
        value = self._card.get("datasets") or []
        named = [value] if isinstance(value, str) else value
        return [item for item in named if isinstance(item, str) and is_repo_id(item)]

    @cached_property
    def unnamed(self) -> tuple[str, ...]:
        """The classes that the tensors are of, where config.json names none of its model type that is known."""
        config = self.config
        if config is None or config.model_type is None:
            return ()
        if config.architectures and not set(config.architectures).isdisjoint(covered(config.model_type)):
            return ()
        names = repaired(self.checkpoint.tensors, in_module=bool(self.checkpoint.weights.container))
        return fitting.classes(config, {final: self.checkpoint.tensors[name].shape for name, final in names.items()})

    @property
    def architecture(self) -> str | None:
        """The class that the recipe is to name: the one of the tensors, where config.json names none at all."""
        named = () if self.config is None else self.config.architectures
        return self.unnamed[0] if len(self.unnamed) == 1 and not named else None

    @property
    def wrapped(self) -> int:
        """How many names carry the prefix of a wrapper."""
        names = repaired(self.checkpoint.tensors, in_module=bool(self.checkpoint.weights.container))
        return sum(name != final for name, final in names.items())

    @property
    def leftovers(self) -> tuple[int, int, str]:
        """Files of the training run: how many, how many bytes, the first few."""
        roles = self.checkpoint.roles
        weights = self.checkpoint.weights
        read = {*weights.files, weights.index_path}
        left = [path for path, role in roles.items() if role in _OF_THE_RUN and path not in read]
        return len(left), sum(self.checkpoint.repository.files[path].size for path in left), some(left)

    def found(self) -> Iterator[str]:
        """What lies there, a line each, for the screen and for the head of the recipe."""
        checkpoint, config = self.checkpoint, self.config
        if config is not None:
            named = ", ".join(printable(name, 60) for name in config.architectures) or "no architecture stated"
            kind = f" ({printable(config.model_type, 60)})" if config.model_type else ""
            yield f"model         {named}{kind}, from config.json"
            if self.unnamed:
                yield f"class         {' or '.join(self.unnamed)}: its tensors are exactly these"
        tensors = checkpoint.tensors
        total = sum(tensor.size for tensor in tensors.values())
        stored = " + ".join(self.stored)
        files = count(len(checkpoint.weights.files), "file")
        under = f" under {printable(checkpoint.weights.container)}" if checkpoint.weights.container else ""
        yield f"weights       {count(len(tensors), 'tensor')}, {size(total)}, {stored}, in {files}{under}"
        for note in checkpoint.weights.notes:
            yield f"              {note}"
        if self.quantized is not None:
            yield f"quantized     {self.quantized.method}; group size: {self.quantized.group_size}"
        yield from self.beside()

    def beside(self) -> Iterator[str]:
        """What lies beside the weights, a line each."""
        checkpoint = self.checkpoint
        for role in (Role.TOKENIZER, Role.CHAT_TEMPLATE, Role.PROCESSOR, Role.CODE):
            if files_of_role := checkpoint.files(role):
                yield f"{role!s:<14}{some(files_of_role, limit=4)}"
        state = checkpoint.trainer_state
        if (step := state.integer("global_step")) is not None:
            epoch = "" if state.number("epoch") is None else f", epoch {state.number('epoch'):g}"
            yield f"run           step {step:,}{epoch}, from trainer_state.json"
        number, bytes_, names = self.leftovers
        if number:
            yield f"left out      {count(number, 'file')} of the training run, {size(bytes_)}: {names}"
