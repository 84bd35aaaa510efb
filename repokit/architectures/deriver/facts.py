"""What a class's record says beside its shapes: prefix, ties, what loaders pass over, precision, module kinds.

The keys that `facts` writes, all but "prefix" left out where empty:

prefix: `base_model_prefix`.
autos, references: The Auto classes that choose the class, and its parts (repokit.architectures.composition).
names: The renames (repokit.architectures.names).
tied: [target, source] in on-disk names, `{i}` for an index. One tensor in memory when the config ties embeddings; the
    target is then left out of the file, which its blocks say. Listed whether the default config ties or not.
ignore_unexpected, ignore_missing: Patterns that transformers searches for in a file's names after it renamed them.
legacy: Patterns of buffers that older versions wrote and that no loader wants. Searched for in a file's own names.
fp32: Patterns of names that stay in float32 when the model is loaded in float16.
fp32_strict: The same for float16 and bfloat16.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, conversion_mapping, core_model_loading, pytorch_utils

from repokit.architectures.deriver.composition import autos, references
from repokit.architectures.deriver.names import exported_names
from repokit.architectures.deriver.truth import Refused

Shape = tuple[int, ...]
_INDICES = "ijklm"
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_CAUSAL_MASK = re.compile(r"\b(attn|attention)\\?\.bias$")
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase, nn.RMSNorm)  # noqa: SLF001 - no public name


def facts(model_class: type[PreTrainedModel], models: Sequence[PreTrainedModel]) -> dict[str, Any]:
    """The facts of a class that do not depend on shapes.

    Args:
        model_class: The class.
        models: Instances on the meta device, under configs that differ; the first is the one of the default config.
    """
    first = models[0]
    found: dict[str, Any] = {
        "prefix": model_class.base_model_prefix,
        "autos": autos(model_class),
        "references": _references(first),
        "names": exported_names(first),
        "tied": _templates({pair for model in models for pair in ties(model)}),
        "ignore_unexpected": _patterns(models, "_keys_to_ignore_on_load_unexpected"),
        "ignore_missing": _patterns(models, "_keys_to_ignore_on_load_missing"),
        "legacy": sorted({pattern for model in models for pattern in legacy_buffers(model)}),
        "fp32": _patterns(models, "_keep_in_fp32_modules"),
        "fp32_strict": _patterns(models, "_keep_in_fp32_modules_strict"),
    }
    return {key: value for key, value in found.items() if value or key == "prefix"}


def _references(model: PreTrainedModel) -> list[dict[str, Any]]:
    try:
        return references(type(model), copy.deepcopy(model.config))
    except Refused:
        return []


def _patterns(models: Iterable[PreTrainedModel], attribute: str) -> list[str]:
    found: set[str] = set()
    for model in models:
        parts = [type(module) for module in model.modules() if isinstance(module, PreTrainedModel)]
        stated = {pattern for part in parts for pattern in _texts(getattr(part, attribute, None))}
        for pattern in _texts(getattr(model, attribute, None)):
            # Gemma 4 and Step 3.7 add layer numbers that follow from the config: any layer then.
            found.add(pattern if pattern in stated else re.sub(r"(?<=\.)\d+", r"\\d+", pattern))
    return sorted(found)


def _texts(patterns: object) -> list[str]:
    return [text for text in patterns if isinstance(text, str)] if isinstance(patterns, (list, tuple, set)) else []


def ties(model: PreTrainedModel) -> list[tuple[str, str]]:
    """(target, source) of all tensors that are one in memory when every config of the model ties, in on-disk names."""
    with _tying(model):
        try:
            pairs = model.get_expanded_tied_weights_keys(all_submodels=True)
        except ValueError:  # a pattern of ties that this config leaves without a partner
            pairs = model.all_tied_weights_keys
    tensors = set(model.state_dict())
    there = {target: source for target, source in pairs.items() if target in tensors and source in tensors}
    disk = _disk_names(model, {*there, *there.values()})
    return sorted((disk[target], disk[source]) for target, source in there.items())


@contextmanager
def _tying(model: PreTrainedModel) -> Iterator[None]:
    configs = {id(module.config): module.config for module in model.modules() if isinstance(module, PreTrainedModel)}
    before = [(config, config.__dict__.get("tie_word_embeddings")) for config in configs.values()]
    stated = {id(config): "tie_word_embeddings" in config.__dict__ for config, _ in before}
    try:
        for config, _ in before:
            config.__dict__["tie_word_embeddings"] = True
        yield
    finally:
        for config, value in before:
            if stated[id(config)]:
                config.__dict__["tie_word_embeddings"] = value
            else:
                del config.__dict__["tie_word_embeddings"]


def _disk_names(model: PreTrainedModel, names: Collection[str]) -> dict[str, str]:
    """On-disk names of single tensors: those that no converter takes apart."""
    tensors = model.state_dict()
    found = {}
    for name in names:
        try:
            written = list(core_model_loading.revert_weight_conversion(model, {name: tensors[name]}))
        except Exception:  # noqa: BLE001 - a converter that needs its other tensors: then the name stays as it is
            written = []
        found[name] = written[0] if len(written) == 1 else name
    return found


def _templates(pairs: Collection[tuple[str, str]]) -> list[list[str]]:
    """Pairs with `{i}` for a number that differs among pairs of the same pattern."""
    alike: dict[tuple[str, str], list[tuple[list[str], list[str]]]] = defaultdict(list)
    for target, source in sorted(pairs):
        alike[_NUMBER.sub("#", target), _NUMBER.sub("#", source)].append(
            (_NUMBER.findall(target), _NUMBER.findall(source))
        )
    found: list[list[str]] = []
    for (target, source), numbers in alike.items():
        found += _generalised(target, source, numbers)
    return sorted(found)


def _generalised(target: str, source: str, numbers: list[tuple[list[str], list[str]]]) -> list[list[str]]:
    columns = list(zip(*(of_target for of_target, _ in numbers), strict=True))
    variables = [position for position, column in enumerate(columns) if len(set(column)) > 1]
    letters = dict(zip(variables, (f"{{{letter}}}" for letter in _INDICES), strict=False))
    of_target = [letters.get(position, column[0]) for position, column in enumerate(columns)]
    of_source = []
    for column in zip(*(of_source for _, of_source in numbers), strict=True):
        same = next((position for position in letters if columns[position] == column), None)
        if same is None and len(set(column)) > 1:
            return [[_filled(target, left), _filled(source, right)] for left, right in numbers]
        of_source.append(column[0] if same is None else letters[same])
    return [[_filled(target, of_target), _filled(source, of_source)]]


def _filled(template: str, numbers: Iterable[str]) -> str:
    remaining = iter(numbers)
    return re.sub(r"#", lambda _: next(remaining), template)


def legacy_buffers(model: PreTrainedModel) -> set[str]:
    """Patterns of the buffers that the model computes anew: as persistent ones they stand in files of older versions.

    The module that holds such a buffer has moved within several models (rotary embeddings went from every layer to
    the top), so the last two parts of the name count.
    """
    names = [name for name, _ in model.named_non_persistent_buffers(remove_duplicate=False)]
    patterns = {_legacy(name.split(".")[-2:]) for name in names if not name.endswith("original_inv_freq")}
    for pattern in model._keys_to_ignore_on_load_unexpected or ():  # noqa: SLF001 - no public name
        # The causal mask of GPT-2 and its relatives, which had a constant beside it until 2023.
        patterns |= {rf"(^|\.){module}\.masked_bias$" for module in _CAUSAL_MASK.findall(pattern)}
    held = set(model.state_dict())
    return {pattern for pattern in patterns if not any(re.search(pattern, name) for name in held)}


def _legacy(parts: list[str]) -> str:
    # The first two as modeling_utils._adjust_missing_and_unexpected_keys has them.
    if parts == ["rotary_emb", "inv_freq"]:
        return r"rotary_emb\.inv_freq$"
    if parts[-1] == "position_ids":
        return r"(^|\.)position_ids$"
    return r"(^|\.)" + r"\.".join(r"\d+" if part.isdigit() else re.escape(part) for part in parts) + "$"


def kinds(model: PreTrainedModel, disk: Mapping[str, Shape], memory: Mapping[str, Shape]) -> dict[str, str]:
    """The kind of every name of both forms: see `Kind` of repokit.architectures.member; a capital: integers.

    Biases are plain parameters: what chooses modules by kind chooses weights. An expert that was cut out of a fused
    parameter is a linear weight, which it was for every file of that layout.

    Args:
        model: The model on the meta device.
        disk: On-disk names and shapes of the model.
        memory: In-memory names and shapes of it.
    """
    tensors = model.state_dict()
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    found = {name: _cased(_kind(model, name, tensors[name], buffers), tensors[name]) for name in memory}
    origins = _origins(model, [name for name in disk if name not in found])
    for name, origin in origins.items():
        if origin in tensors:
            letter = _cased(_kind(model, origin, tensors[origin], buffers), tensors[origin])
            found[name] = _split(letter, name, disk[name], tuple(tensors[origin].shape))
        else:
            found[name] = "l" if len(disk[name]) == 2 and name.endswith(".weight") else "p"
    return found


def _split(letter: str, name: str, shape: Shape, origin: Shape) -> str:
    """The kind of what a converter makes of a tensor of kind `letter`."""
    weight = name.endswith(".weight")
    if letter == "p" and len(shape) == 2 and len(origin) == 3 and weight:
        return "l"
    return letter


def _cased(letter: str, tensor: torch.Tensor) -> str:
    return letter if tensor.is_floating_point() or tensor.is_complex() else letter.upper()


def _origins(model: PreTrainedModel, names: Iterable[str]) -> dict[str, str]:
    """On-disk name -> the tensor in memory that it becomes, or that it becomes a part of."""
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, core_model_loading.WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, core_model_loading.WeightConverter)]
    tensors = model.state_dict()
    ordered = sorted(names, key=core_model_loading.dot_natural_key)
    return {
        name: core_model_loading.rename_source_key(name, renamings, converters, model.base_model_prefix, tensors)[0]
        for name in ordered
    }


def _kind(model: PreTrainedModel, name: str, tensor: torch.Tensor, buffers: Collection[str]) -> str:
    if name in buffers:
        return "b"
    path, _, own = name.rpartition(".")
    if ".parametrizations." in f".{path}.":  # weight norm: original0 is the length, original1 the direction
        if own == "original0":
            return "p"
        path, own = path.partition("parametrizations.")[0].removesuffix("."), path.rpartition(".")[2]
    module = model.get_submodule(path)
    if isinstance(module, _NORMS) or ("Norm" in type(module).__name__ and not isinstance(module, nn.Linear)):
        return "n" if tensor.dim() <= 1 else "p"
    if own != "weight":
        return "p"
    if isinstance(module, nn.Linear):
        return "l"
    if isinstance(module, pytorch_utils.Conv1D):
        return "t"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return "e"
    return "c" if isinstance(module, nn.modules.conv._ConvNd) else "p"  # noqa: SLF001 - no public name
