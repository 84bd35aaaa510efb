"""The modules of a base model as an adapter sees them: by their names in memory.

Files and memory differ: tensors are renamed on loading, experts are fused, and a tied head is in no file. PEFT looks
for its targets among the modules of the loaded model, so the names of a skeleton, which are those of the file, are
first brought into the form of memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from repokit.architectures.member import Kind
from repokit.architectures.names import Names

if TYPE_CHECKING:
    from repokit.architectures.expansion import Shape
    from repokit.architectures.skeleton import Skeleton

# GPT-2's Conv1D and nn.Linear: what `all-linear` means (peft 0.21 tuners_utils.py _maybe_include_all_linear_layers).
LINEAR: Final = frozenset({Kind.LINEAR, Kind.TRANSPOSED})
# peft 0.21 utils/constants.py EMBEDDING_LAYER_NAMES, and what the embeddings of other classes are called.
EMBEDDINGS: Final = ("embed_tokens", "wte", "word_embeddings", "embed_in", "shared", "tok_embeddings", "embeddings")
_LABELS: Final = "num_labels"


@dataclass(frozen=True, slots=True)
class Module:
    """A module that holds parameters itself.

    Attributes:
        path: `model.layers.0.self_attn.q_proj`.
        kind: Of its `weight`; PARAMETER where it has none.
        own: Its parameters and buffers: name -> shape, in the order in which the class makes them.
    """

    path: str
    kind: Kind
    own: Mapping[str, Shape]

    @property
    def weight(self) -> Shape:
        """The shape of its weight; () where it has none."""
        return self.own.get("weight", ())

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Inputs and outputs; rows and columns of an embedding. None for one that is not known.

        (peft 0.21 tuners_utils.py _get_in_out_features.) The inputs of a convolution with one channel per group may be
        those of many groups.
        """
        shape = self.weight
        if len(shape) < 2:
            return None, None
        if self.kind in {Kind.TRANSPOSED, Kind.EMBEDDING}:
            return shape[0], shape[1]
        grouped = self.kind is Kind.CONVOLUTION and shape[1] == 1
        return (None if grouped else shape[1]), shape[0]


@dataclass(frozen=True)
class Modules:
    """Every module of a model.

    Attributes:
        model_type: Of its config.
        found: Path -> module, for those that hold parameters.
        ties: Module whose weight may be another's -> that other.
        tied: Those of them whose weight is.
        unfused: Modules that the file names and memory does not: single experts.
        spellings: Path by the names of the file -> path in memory, where the two differ.
        value: Reads a key of the completed config.
        memory_name: Name of a tensor in any spelling -> its name in memory.
    """

    model_type: str
    found: Mapping[str, Module]
    ties: Mapping[str, str]
    tied: Mapping[str, str]
    unfused: Mapping[str, Module]
    spellings: Mapping[str, str]
    value: Callable[[str], object]
    memory_name: Callable[[str], str] = field(repr=False)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path, those of modules that only hold others included, outer ones first."""
        paths: dict[str, None] = {}
        for path in self.found:
            parts = path.split(".")
            for length in range(1, len(parts) + 1):
                paths.setdefault(".".join(parts[:length]))
        return tuple(paths)

    @cached_property
    def head(self) -> str | None:
        """The module that gives the logits of a language model, or None."""
        tied = next((path for path in self.ties if not is_embedding(path) and path in self.found), None)
        return tied or next((path for path in HEADS if path in self.found), None)

    @cached_property
    def embedding(self) -> str | None:
        """The module that embeds the tokens."""
        sources = [path for target, path in self.ties.items() if not is_embedding(target) and path in self.found]
        kinds = [path for path, module in self.found.items() if module.kind is Kind.EMBEDDING]
        named = [path for name in EMBEDDINGS for path in kinds if path.rpartition(".")[2] == name]
        return next(iter([*sources, *named]), None)

    def below(self, path: str) -> Iterator[tuple[str, Shape]]:
        """Every tensor of a module and of the modules inside it, by its name inside the module."""
        for inner, module in self.found.items():
            if inner == path or inner.startswith(f"{path}."):
                before = inner[len(path) + 1 :]
                for name, shape in module.own.items():
                    yield (f"{before}.{name}" if before else name), shape


# Heads that are tied in no config; those that may be are known from the ties.
HEADS: Final = ("lm_head", "embed_out", "output_projection", "cls.predictions.decoder", "generator_lm_head")


def is_embedding(path: str) -> bool:
    """Whether a module is one that embeds, by its name."""
    name = path.rpartition(".")[2]
    return name in EMBEDDINGS or "embed" in name


def modules_of(skeleton: Skeleton, *, head: bool = False) -> Modules:
    """The modules of a skeleton.

    Args:
        skeleton: Of the base model.
        head: The number of labels is that of whoever trained the adapter, so it is not known.
    """
    data = skeleton.facts.other.get("names")
    rename = Names({**data, "base": ""} if isinstance(data, Mapping) else None).canonical
    held = skeleton.memory or skeleton
    by_name: Callable[[str], str] = (lambda name: name) if skeleton.memory else rename
    kind = _kinds(held)
    tensors = {by_name(name): (kind(name), _shape(held, name, head=head)) for name in held.shapes}
    ties = dict(_ties(skeleton, rename))
    tied = {target: source for target, source in ties.items() if target not in tensors and source in tensors}
    for target, source in tied.items():
        tensors[target] = (Kind.EMBEDDING if is_embedding(_module(target)) else Kind.LINEAR, tensors[source][1])
    found = _grouped(tensors)
    return Modules(
        model_type=skeleton.model_type,
        found=found,
        ties={_module(target): _module(source) for target, source in ties.items()},
        tied={_module(target): _module(source) for target, source in tied.items()},
        unfused=_unfused(skeleton, rename, found),
        spellings={path: new for path in _paths(skeleton) if (new := _renamed_module(path, rename)) != path},
        value=skeleton.environment.get,
        memory_name=rename,
    )


def _kinds(skeleton: Skeleton) -> Callable[[str], Kind]:
    """The kind of a tensor's module; by name and shape where the data has no kinds."""
    templates = skeleton.templates
    if any(template.kind not in {Kind.LINEAR, Kind.PARAMETER} for template in templates.values()):
        return lambda name: templates[name].kind

    def guessed(name: str) -> Kind:
        match name.endswith(".weight"), len(skeleton.shapes[name]):
            case True, 1:
                return Kind.NORM
            case True, 2:
                return Kind.EMBEDDING if is_embedding(_module(name)) else Kind.LINEAR
            case True, 3 | 4 | 5:
                return Kind.CONVOLUTION
            case _:
                return Kind.PARAMETER

    return guessed


def _paths(skeleton: Skeleton) -> Iterator[str]:
    yield from dict.fromkeys(map(_module, skeleton.shapes))


def _renamed_module(path: str, rename: Callable[[str], str]) -> str:
    return _module(rename(f"{path}.weight"))


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _shape(skeleton: Skeleton, name: str, *, head: bool) -> Shape:
    shape = skeleton.shapes[name]
    if not head:
        return shape
    sizes = skeleton.templates[name].shape
    return tuple(
        None if size is not None and _LABELS in size.keys else length for size, length in zip(sizes, shape, strict=True)
    )


def _grouped(tensors: Mapping[str, tuple[Kind, Shape]]) -> dict[str, Module]:
    own: dict[str, dict[str, Shape]] = {}
    kinds: dict[str, Kind] = {}
    for name, (kind, shape) in tensors.items():
        path, _, attribute = name.rpartition(".")
        own.setdefault(path, {})[attribute] = shape
        if attribute == "weight":
            kinds[path] = kind
    return {path: Module(path, kinds.get(path, Kind.PARAMETER), held) for path, held in own.items()}


def _unfused(skeleton: Skeleton, rename: Callable[[str], str], found: Mapping[str, Module]) -> dict[str, Module]:
    if skeleton.memory is None:
        return {}
    tensors = {rename(name): (skeleton.templates[name].kind, shape) for name, shape in skeleton.shapes.items()}
    return {path: module for path, module in _grouped(tensors).items() if path not in found}


_INDEX: Final = re.compile(r"\\\{([ijklm])\\\}")


def _ties(skeleton: Skeleton, rename: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Names of tensors that are one in memory: (target, source)."""
    for target, source in skeleton.ties:
        if "{" not in source:
            yield rename(target), rename(source)
            continue
        pattern = re.compile(_INDEX.sub(r"(?P<\1>[0-9]+)", re.escape(source)))
        for name in skeleton.shapes:
            if (match := pattern.fullmatch(name)) is not None:
                yield rename(target.format_map(match.groupdict())), rename(name)
