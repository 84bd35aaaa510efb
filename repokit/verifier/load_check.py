"""Whether transformers loads a repository: decides what there is to load, asks the child, reads its answers."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from repokit.errors import InputError, MissingInput, UsageError
from repokit.printable import printable
from repokit.repo.directory import Directory
from repokit.repo.processor import PREPROCESSOR, PROCESSOR, VIDEO
from repokit.repo.repository import Repository
from repokit.verifier.load_process import PROGRAM, ChildProcess, Lost
from repokit.verifier.load_report import Keys, LoadReport, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS: Final = 600.0

_LIBRARIES: Final = ("torch", "transformers", "accelerate")
_ADAPTER: Final = "adapter_config.json"

# Any of these is a vocabulary or says which class reads one (transformers tokenization_*.py `VOCAB_FILES_NAMES`).
_TOKENIZER: Final = re.compile(
    r"tokenizer\.json|tokenizer_config\.json|tokenizer\.model|tekken\.json|vocab\.(?:json|txt|bpe)|spiece\.model"
    r"|source\.spm|sentencepiece\.(?:bpe\.)?model|spm\.model|bpe\.codes|merges\.txt|[^/]+\.tiktoken"
)
_WEIGHTS: Final = re.compile(r"[^/]+\.(?:safetensors|bin|pt|pth|ckpt)")
_PLAIN: Final = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_VARIANT: Final = re.compile(
    r"(?:model|pytorch_model)(?:\.([^.]+)\.(?:safetensors|bin)|\.(?:safetensors|bin)\.index\.([^.]+)\.json)"
)


@dataclass(frozen=True)
class Target:
    """A repository to load.

    Attributes:
        directory: Where it lies.
        label: How the user calls it.
        base: The base model of an adapter, where it is at hand.
    """

    directory: Path
    label: str
    base: Path | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    steps: tuple[Step, ...]
    keys: Keys
    seconds: float


def require_libraries(
    what: str = "a load check", why: str = "it asks the library itself whether it loads the repository"
) -> None:
    """Says what to install where the extra is not: before anything else is done.

    Args:
        what: What needs it.
        why: What for.

    Raises:
        UsageError: With the command.
    """
    if absent := [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]:
        raise UsageError(f"{what} needs {', '.join(absent)}", why=why, hint="pip install 'repokit[load]'")


def check_load(
    targets: Sequence[Target], *, seconds: float = SECONDS, threads: int = 2, program: Path = PROGRAM
) -> list[LoadReport]:
    """Loads repositories one after the other, in one child process as long as it lives.

    Args:
        targets: The repositories.
        seconds: For the import of the libraries, and then for each repository, until the child is killed.
        threads: Of torch.
        program: What the child runs.

    Returns:
        A report for each, in order.

    Raises:
        MissingInput: A directory is not there.
        InputError: The libraries do not work here, or a directory is none that can be listed.
    """
    reports: dict[int, LoadReport] = {}
    pending: list[tuple[int, Mapping[str, Any]]] = []
    for number, target in enumerate(targets):
        request = _request(target)
        if isinstance(request, str):
            reports[number] = _only(target, "child", "unchecked", request)
        else:
            pending.append((number, request))
    while pending:
        answered = _asked([request for _, request in pending], seconds, threads, program)
        for (number, _), answer in zip(pending, answered, strict=False):
            reports[number] = _report(targets[number], answer)
        pending = pending[len(answered) :]
    return [reports[number] for number in range(len(targets))]


# ---------------------------------------------------------------- what there is to load


def _request(target: Target) -> Mapping[str, Any] | str:
    """What the child is asked, or why it is not asked."""
    for directory in (target.directory, *([target.base] if target.base else [])):
        if not directory.is_dir():
            raise MissingInput(
                "is not a directory", path=printable(directory), hint="name the directory of a repository"
            )
    with Repository(Directory(target.directory, label=target.label)) as repository:
        top = {path for path in repository.files if "/" not in path}
    weights = {path for path in top if _WEIGHTS.fullmatch(path)}
    adapter = _ADAPTER in top and all(path.startswith("adapter_model.") for path in weights)
    if reason := _unchecked(top, weights, target.base, adapter=adapter):
        return reason
    return {
        "directory": str(target.directory.absolute()),
        "kind": "adapter" if adapter else "model",
        "variant": _variant(top),
        "base": str(target.base.absolute()) if adapter and target.base else None,
        "tokenizer": any(_TOKENIZER.fullmatch(path) for path in top),
        "processor": bool(top & {PREPROCESSOR, PROCESSOR, VIDEO}),
        "note": "modules.json: what follows the transformer (pooling, normalization) is not loaded"
        if "modules.json" in top
        else None,
    }


def _unchecked(top: set[str], weights: set[str], base: Path | None, *, adapter: bool) -> str | None:
    if adapter:
        return None if base else "an adapter loads on top of its base model, which is not at hand: --base DIR"
    if "model_index.json" in top:
        return "a pipeline of diffusers, which is not loaded here"
    if not weights and any(path.endswith(".gguf") for path in top):
        return "GGUF, which llama.cpp loads and transformers does not"
    if "config.json" not in top:
        if "modules.json" in top:
            return "sentence-transformers with its model in a folder, which is not loaded here"
        return "there is no config.json, without which transformers loads nothing"
    return None


def _variant(top: set[str]) -> str | None:
    """What stands in the names of the weights where there are no others: `fp16` of model.fp16.safetensors."""
    if any(path in top for path in _PLAIN):
        return None
    return next((found[1] or found[2] for path in sorted(top) if (found := _VARIANT.fullmatch(path))), None)


# ---------------------------------------------------------------- what the child answers

_Raw = tuple["_Answer | Lost", dict[str, str]]


def _asked(requests: list[Mapping[str, Any]], seconds: float, threads: int, program: Path) -> list[_Raw]:
    """The answers until the child is lost, that included: at least one."""
    answered: list[_Raw] = []
    try:
        child = ChildProcess({"threads": threads, "repositories": requests}, threads=threads, program=program)
    except Lost as lost:
        raise _unusable(lost) from None
    with child:
        try:
            libraries = _libraries(child.answer(seconds))
        except Lost as lost:
            raise _unusable(lost) from None
        for _ in requests:
            try:
                answered.append((_parsed(child.answer(seconds)), libraries))
            except Lost as lost:
                return [*answered, (lost, libraries)]
    return answered


def _unusable(lost: Lost) -> InputError:
    what = f"torch and transformers could not be imported: {printable(lost, 400)}"
    return InputError(what, why="without them nothing can be loaded", hint="python -c 'import torch, transformers'")


class _Libraries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    libraries: dict[str, str] = {}
    unusable: str | None = None


def _libraries(line: bytes) -> dict[str, str]:
    try:
        answer = _Libraries.model_validate_json(line)
    except ValidationError:
        raise Lost("crash", "the child process answered what is no report") from None
    if answer.unusable is not None:
        raise Lost("crash", answer.unusable)
    return answer.libraries


def _parsed(line: bytes) -> _Answer:
    try:
        return _Answer.model_validate_json(line)
    except ValidationError:
        raise Lost("crash", "the child process answered what is no report") from None


def _report(target: Target, raw: _Raw) -> LoadReport:
    answer, libraries = raw
    if isinstance(answer, Lost):
        return _only(target, "child", "unchecked", str(answer))
    place = str(target.directory.absolute())
    steps = tuple(step.model_copy(update={"what": step.what.replace(place, target.label)}) for step in answer.steps)
    return LoadReport(
        directory=target.label, steps=steps, keys=answer.keys, seconds=answer.seconds, libraries=libraries
    )


def _only(target: Target, name: str, outcome: Any, what: str) -> LoadReport:  # noqa: ANN401 - see Step
    return LoadReport(directory=target.label, steps=(Step(name=name, outcome=outcome, what=what),))
