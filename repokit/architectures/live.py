"""A skeleton for exactly one config, from the installed transformers: for classes that the data does not cover.

transformers builds the class on the meta device, in a process of its own (live_child.py), and says what it would save.
How that process is run, and where answers are kept, is decided above: this module asks, and reads the answer. Code of
a repository is never run: a class that comes with one is refused by name.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from repokit.architectures.completion import Completed
from repokit.architectures.errors import ConfigUnusable, NotCovered
from repokit.architectures.expansion import Expanded, Shape
from repokit.architectures.grammar import INDICES, expression
from repokit.architectures.member import FORMAT, Evidence, Kind, Member, Template, frozen, parsed
from repokit.architectures.skeleton import Skeleton, evidence, first_architecture, skeleton
from repokit.errors import InputError
from repokit.printable import printable

PROGRAM: Final = Path(__file__).with_name("live_child.py")
SECONDS: Final = 30.0  # for one class; a mixture of experts with 45,000 tensors takes two
IMPORT: Final = 600.0  # for the libraries, as in a load check: on a busy machine it takes minutes
MEMORY: Final = 4 << 30  # bytes for it; the same one takes 0.1 GB
SOURCE: Final = "live"  # in the place of the hash of the sources, in a member that was derived here

_FORMAT: Final = "1"  # of the answers: another one is another key of the cache
_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
# What changes no tensor and would make transformers look for code, kernels or other files, at every level.
_LEFT_OUT: Final = re.compile(
    r"auto_map|quantization_config|compression_config|(?:torch_)?dtype|_?name_or_path|transformers_version|_commit_hash"
    r"|.*(?:attn|experts)_implementation(?:_internal)?|kernel_config|custom_pipelines"
)


class NoAnswer(Exception):
    """The process gave no answer; the message says why, in words that follow "transformers"."""


class Kept(Protocol):
    """Where answers are kept. What it cannot give back whole it does not give back."""

    def get(self, *key: str) -> bytes | None:
        """What was kept under the key, or None."""

    def put(self, *key: str, content: bytes) -> None:
        """Keeps a content, if it can."""


Ask = Callable[[Mapping[str, Any], float], bytes]  # a request for live_child.py and its seconds -> its line of JSON


@dataclass(frozen=True)
class LiveSkeleton(Skeleton):
    """A skeleton that holds for one config and no other."""

    @property
    def origin(self) -> str:
        """Where it comes from, for reports."""
        return f"derived live with transformers {self.member.transformers}"


@dataclass(frozen=True)
class Live:
    """Derives skeletons with the installed transformers.

    Attributes:
        ask: Runs the process.
        kept: The cache.
    """

    ask: Ask
    kept: Kept

    def best(self, config: Mapping[str, Any], architecture: str | None = None) -> Skeleton:
        """The skeleton in the data where that is verified, else a live one, else what the data has.

        Raises:
            NotCovered: There is neither; it says why there is no live one.
            ConfigUnusable, InputError: See `skeleton`.
        """
        known = evidence(*_named(config, architecture))
        if known is Evidence.VERIFIED:
            return skeleton(config, architecture)
        try:
            return self.skeleton(config, architecture)
        except NotCovered:
            if known is Evidence.NONE:
                raise
            return skeleton(config, architecture)

    def skeleton(self, config: Mapping[str, Any], architecture: str | None = None) -> LiveSkeleton:
        """The skeleton of this config; from the cache, where this class of it was asked for before.

        Raises:
            NotCovered: The installed transformers has no such class, or not all that the class needs; or it is one
                that comes with the repository.
            ConfigUnusable: transformers refuses the config, or it asks for more than there can be.
            InputError: torch or transformers do not work here.
        """
        model_type, name = _named(config, architecture)
        refuse_remote_code(config, name)
        refuse_endless(config)
        wanted = without_what_changes_no_tensor(config)
        question = {"config": wanted, "architecture": name}
        key = self._key(question)
        if (known := self._known(key, model_type, name)) is not None:
            return known
        line = self._asked({**question, "seconds": SECONDS, "memory": MEMORY})
        answer = _answer(line)
        found = _skeleton(answer, model_type, name)
        self.kept.put(*key, content=line)
        return found

    def _known(self, key: tuple[str, ...], model_type: str, name: str) -> LiveSkeleton | None:
        """What the cache has; a damaged entry is none."""
        line = self.kept.get(*key)
        try:
            return None if line is None else _skeleton(json.loads(line), model_type, name)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _asked(self, request: Mapping[str, Any]) -> bytes:
        try:
            return self.ask(request, IMPORT + 3 * SECONDS)  # config, model, and what is said of it
        except NoAnswer as error:
            raise NotCovered(f"transformers did not say which tensors it has: {error}") from None

    @staticmethod
    def _key(question: Mapping[str, Any]) -> tuple[str, ...]:
        canonical = json.dumps(question, sort_keys=True)
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        return "skeleton", _FORMAT, importlib.metadata.version("transformers"), digest


def _named(config: Mapping[str, Any], architecture: str | None) -> tuple[str, str]:
    """Model type and class."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise NotCovered("config.json names no model_type")
    return model_type, architecture or first_architecture(config)


def refuse_remote_code(config: Mapping[str, Any], architecture: str) -> None:
    """Refuses a class that is defined in the repository.

    Raises:
        NotCovered: `auto_map` says where its code lies.
    """
    stated = config.get("auto_map")
    for value in stated.values() if isinstance(stated, Mapping) else ():
        for reference in value if isinstance(value, list) else [value]:
            if isinstance(reference, str) and reference.rpartition(".")[2] == architecture:
                what = f"{printable(architecture)} comes with the repository ({printable(reference)})"
                raise NotCovered(f"{what}, and code of a repository is never run")


_COUNT: Final = re.compile(r"\w*(?:layers?|blocks?|experts|depths?|layer_types)")
_MOST: Final = 100_000  # the most in a published model: 384 experts, 160 layers


def refuse_endless(config: Any, path: str = "") -> None:  # noqa: ANN401 - a JSON value
    """Refuses numbers of layers and experts that nobody has the time to build.

    Raises:
        ConfigUnusable: Naming the key.
    """
    for key, value in config.items() if isinstance(config, Mapping) else ():
        here = f"{path}{key}"
        number = len(value) if isinstance(value, list) else value
        if isinstance(number, int | float) and number > _MOST and _COUNT.fullmatch(str(key)):
            raise ConfigUnusable(f"{here} asks for more than {_MOST:,} layers, experts or the like", key=here)
        refuse_endless(value, f"{here}.")


def without_what_changes_no_tensor(config: Any) -> Any:  # noqa: ANN401 - a JSON value
    """The config without its dtype, quantization, remote code and choice of kernels, at every level."""
    if isinstance(config, Mapping):
        kept = {str(key): value for key, value in config.items() if not _LEFT_OUT.fullmatch(str(key))}
        return {key: without_what_changes_no_tensor(value) for key, value in kept.items()}
    if isinstance(config, list):
        return [without_what_changes_no_tensor(value) for value in config]
    return config


# ---------------------------------------------------------------- the answer


def _answer(line: bytes) -> Mapping[str, Any]:
    """The answer that says which tensors there are.

    Raises:
        NotCovered, ConfigUnusable, InputError: It says why there are none.
    """
    answer: Mapping[str, Any] = json.loads(line)
    match answer["outcome"]:
        case "derived":
            return answer
        case "unknown":
            raise NotCovered(printable(answer["what"], 400))
        case "refused":
            raise ConfigUnusable(answer["what"])
    what = f"torch and transformers could not be imported: {printable(answer['what'], 400)}"
    raise InputError(what, why="without them nothing can be derived", hint="python -c 'import torch, transformers'")


def _skeleton(answer: Mapping[str, Any], model_type: str, architecture: str) -> LiveSkeleton:
    known = _member(answer, model_type, architecture)
    kinds, fused = answer["kinds"], answer["memory"]
    return LiveSkeleton(
        architecture=architecture,
        model_type=model_type,
        evidence=Evidence.VERIFIED,
        environment=Completed(_flat(answer["config"], "")),
        expanded=_expanded(answer["disk"], kinds),
        facts=known.architecture(architecture),
        member=known,
        second=None if fused is None else _expanded(fused, kinds),
    )


def _member(answer: Mapping[str, Any], model_type: str, architecture: str) -> Member:
    """A member that holds the one class, without its tensors."""
    facts = {**answer["facts"], "evidence": Evidence.VERIFIED, "configs": 1, "blocks": []}
    document = {
        "format": FORMAT,
        "model_type": model_type,
        "transformers": answer["version"].removeprefix("transformers "),
        "date": answer["date"],
        "source": SOURCE,
        "config": {"class": "", "defaults": {}, "aliases": [], "derive": {}, "subs": {}},
        "classes": {architecture: facts},
    }
    return parsed(model_type, document)


def _flat(config: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            try:
                yield f"{path}{key}", frozen(value)
            except TypeError:
                continue  # a list of objects: no tensor depends on one as a value


def _expanded(shapes: Mapping[str, list[int]], kinds: Mapping[str, str]) -> Expanded:
    """The tensors with templates: names that differ in their numbers, and in the size of some dimension perhaps."""
    sized: dict[str, Shape] = {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}
    alike: dict[tuple[str, str], list[str]] = {}
    for name in sized:
        alike.setdefault((_NUMBER.sub("#", name), kinds[name]), []).append(name)
    templates: dict[str, Template] = {}
    for (pattern, letter), names in alike.items():
        template = _template(pattern, letter, [sized[name] for name in names])
        templates.update(dict.fromkeys(names, template))
    return Expanded(sized, {name: templates[name] for name in sized})


def _template(pattern: str, letter: str, shapes: list[Shape]) -> Template:
    numbered = pattern.replace("#", "{}", len(INDICES)).replace("#", "0")
    name = numbered.format(*(f"{{{index}}}" for index in INDICES))
    same = [set(sizes) for sizes in zip(*shapes, strict=False)] if len(set(map(len, shapes))) == 1 else []
    shape = tuple(expression(str(sizes.pop())) if len(sizes) == 1 else None for sizes in same)
    return Template(name, shape, Kind(letter.lower()), letter.isupper())
