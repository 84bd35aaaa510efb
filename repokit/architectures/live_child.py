"""Builds one class for one config on the meta device and says which tensors it has: a program of its own.

The only module of the runtime that imports torch and transformers, and repokit never imports it. One JSON request on
stdin, one line of JSON on stdout; whatever else is printed goes to stderr. Nothing is allocated, nothing is
downloaded, and no code of a repository runs: the config is given as values, and classes are those of transformers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Answer: TypeAlias = dict[str, Any]
    # What the libraries are and make: the type checker does not follow them.
    Loaded: TypeAlias = Any

LONGEST: Final = 300  # characters of what a library says
MOST_TENSORS: Final = 2_000_000  # as many as a skeleton may have
_NO_MEMORY: Final = re.compile(r"\bbad_alloc\b|can't allocate memory")


class NotKnown(Exception):
    """There is no such class here; nothing is said about the config."""


def answer(request: Mapping[str, Any]) -> Answer:
    """What is sent back: `derived`, or `unusable` (the libraries), `unknown` (the class), `refused` (the config).

    What takes too long is unknown: the machine may be slow.
    """
    try:
        import transformers

        from repokit.architectures.deriver import truth
    except BaseException as error:  # noqa: BLE001 - a broken installation raises what it likes
        return {"outcome": "unusable", "what": told(error)}
    version = f"transformers {transformers.__version__}"
    limit(request["seconds"], request["memory"])
    try:
        return {"outcome": "derived", **derived(request, version)}
    except truth.Refused as refused:
        outcome, what = outcome_of(refused, request["memory"])
        return {"outcome": outcome, "what": f"{version} {what}"}


def outcome_of(refused: Exception, memory: int) -> tuple[str, str]:
    """Whether a refusal speaks of the config, and its words, which follow the name of the library."""
    match refused.__cause__:
        case None:
            return "unknown", f"gives up on it: {refused}"
        case NotKnown() as cause:
            return "unknown", str(cause)
        case ImportError() as cause if (package := missing_package(cause)) is not None:
            return "unknown", f"needs {package} for it: pip install {package}"
        case ImportError() | OSError() as cause:  # files of another repository, which are not fetched
            return "unknown", f"needs what is not here: {told(cause)}"
        # A class half made where memory ended is a SystemError; where it ended in C++, torch repeats what that said.
        case cause if isinstance(cause, MemoryError | SystemError) or _NO_MEMORY.search(str(cause)):
            return "refused", f"gives up on it: took more than {memory >> 20} MB"
        case cause:
            return "refused", f"refuses it: {told(cause)}"


def derived(request: Mapping[str, Any], version: str) -> Answer:
    """The tensors in both forms, and what a member says of a class beside them.

    Raises:
        Refused: There is no such class, or it does not take the config within the limits.
    """
    from repokit.architectures.deriver import facts, truth

    seconds, architecture = request["seconds"], request["architecture"]
    with truth.guarded(seconds):
        model_class, config = chosen(request["config"], architecture)
    found = truth.truth(model_class, config, seconds=seconds, most=MOST_TENSORS)
    try:
        with truth.guarded(seconds):
            return {
                "version": version,
                "date": datetime.now(UTC).date().isoformat(),
                "disk": found.disk,
                "memory": found.memory if found.memory != found.disk else None,
                "kinds": facts.kinds(found.model, found.disk, found.memory),
                "facts": facts.facts(model_class, [found.model]),
                "config": found.model.config.to_dict(),
            }
    except truth.Refused as refused:  # the model could be built: nothing is wrong with the config
        raise truth.Refused(str(refused)) from NotKnown(
            f"builds it, and what it says of it is not understood: {refused}"
        )


def chosen(raw: dict[str, Any], architecture: str) -> tuple[Loaded, Loaded]:
    """The class and its config; only what transformers itself has.

    Raises:
        NotKnown: It has no such class, or the class is of another model type.
    """
    import transformers

    model_type = raw["model_type"]
    if model_type not in transformers.CONFIG_MAPPING:
        raise NotKnown(f"does not know the model type {model_type}")
    found = getattr(transformers, architecture, None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise NotKnown(f"has no class {architecture}")
    config = transformers.CONFIG_MAPPING[model_type].from_dict(raw)
    wanted = getattr(found, "config_class", None)
    if wanted is None or not isinstance(config, wanted):
        raise NotKnown(f"has {architecture} for another model type than {model_type}")
    return found, config


def missing_package(error: ImportError) -> str | None:
    """What must be installed, as transformers says it (`requires_backends`)."""
    named = re.search(r"requires the (?:\S+ )?([\w-]+) library|pip install (?:-U )?[`'\"]?([\w.-]+)", str(error))
    return (named[1] or named[2]).lower() if named else None


def told(error: BaseException) -> str:
    """The first line of an error, and the next where it only announces that."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return f"{type(error).__name__}: {first}"[:LONGEST]


def limit(seconds: float, memory: int) -> None:
    """Bounds memory, beyond what the libraries take, and processor time: models catch much, alarms too."""
    taken = 0
    with contextlib.suppress(OSError):  # proc_pid_statm(5); without it the limit is that of the whole
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
        taken = int(pages) * resource.getpagesize()
    for what, most in ((resource.RLIMIT_AS, taken + memory), (resource.RLIMIT_CPU, 4 * int(seconds) + 60)):
        with contextlib.suppress(ValueError, OSError):  # more than a limit that is there already
            resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:  # a checkout: this repokit, not one that is installed beside it
        sys.path.insert(0, root)
    channel = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no answer
    asked = json.load(sys.stdin.buffer)
    try:
        found = answer(asked)
    except BaseException:  # noqa: BLE001 - the alarm rings until it is heard, and may do so where nobody listens
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        found = {"outcome": "unknown", "what": f"transformers gives up on it: took more than {asked['seconds']:g} s"}
    json.dump(found, channel, default=str)
    channel.write("\n")
    channel.flush()
    os._exit(0)  # what a model has registered for the end is none of ours
