"""Reads from transformers how a class's tensors may be spelled, for repokit.architectures.names to repeat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from transformers import conversion_mapping, core_model_loading

from repokit.architectures.names import Names

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def exported_names(model: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a PreTrainedModel
    """The "names" of the model's class, in the format of repokit.architectures.names; None: every name is canonical.

    Args:
        model: An instance on the meta device. Its sub-models decide which renames there are.
    """
    renames: list[list[Any]] = []
    groups = 0
    for transform in conversion_mapping.get_model_conversion_mapping(model):
        if isinstance(transform, core_model_loading.WeightRenaming):
            rows = _rows(transform, groups)
            groups += isinstance(transform, core_model_loading.GroupWeightRename)
            renames += [row for row in rows if row not in renames]
    data: dict[str, Any] = {"renames": renames} if renames else {}
    memory = list(model.state_dict())
    base = model.base_model_prefix
    stripped = Counter(name.removeprefix(f"{base}.") for name in memory)
    if base and max(stripped.values(), default=0) == 1:
        data["base"] = base
    kept = _kept(data, model, memory)
    if kept:
        data["kept"] = kept
    return data or None


def loaded_as(model: Any, names: Iterable[str]) -> dict[str, str]:  # noqa: ANN401 - a PreTrainedModel
    """Under which name `from_pretrained` looks each of a file's names up, before anything is converted.

    Repeats the start of core_model_loading.convert_and_load_state_dict_in_model, converters left out.
    """
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, core_model_loading.WeightRenaming)]
    tensors = model.state_dict()
    prefix = model.base_model_prefix
    found = {}
    for name in sorted(names, key=core_model_loading.dot_natural_key):
        renamed, _ = core_model_loading.rename_source_key(name, renamings, [], prefix, tensors)
        if renamed not in tensors and name in tensors:
            renamed, _ = core_model_loading.rename_source_key(name, [], [], prefix, tensors)
        found[name] = renamed
    return found


def _rows(transform: Any, group: int) -> list[list[Any]]:  # noqa: ANN401 - a WeightRenaming
    prefixes = _prefixes(transform)
    match transform:
        case core_model_loading.LayerPairCollapse():
            # rename_source_key of the class: even blocks are the attention, odd ones the MLP of layer n // 2.
            halves: dict[str, Any] = {"index": [2, 0]}
            return [
                _row(r"layers\.(\d*[02468])\.mixer(?=\.|$)", r"layers.\1.self_attn", prefixes, halves),
                _row(r"layers\.(\d*[13579])\.mixer(?=\.|$)", r"layers.\1.mlp", prefixes, halves),
                _row(r"layers\.(\d+)\.attn_alpha(?=\.|$)", r"layers.\1.lambda_1", prefixes, halves),
                _row(r"layers\.(\d+)\.mlp_alpha(?=\.|$)", r"layers.\1.lambda_2", prefixes, halves),
            ]
        case core_model_loading.GroupWeightRename():
            pairs = zip(transform.source_patterns, transform.target_patterns, strict=True)
            return [
                _row(*_pattern(core_model_loading.WeightRenaming(source, target)), prefixes, {"group": group})
                for source, target in pairs
            ]
        case core_model_loading.Inkling2IndexOffsetWeightRename():
            return [_row(*_pattern(transform), prefixes, {"index": [1, transform.offset]})]
        case _:
            return [_row(*_pattern(transform), prefixes, None)]


def _row(pattern: str, template: str, prefixes: list[str] | None, extra: dict[str, Any] | None) -> list[Any]:
    row: list[Any] = [pattern, template, prefixes, extra]
    while row[-1] is None:
        row.pop()
    return row


def _prefixes(transform: Any) -> list[str] | None:  # noqa: ANN401 - a WeightTransform
    if transform.scope_prefix is None:
        return None
    scope = f"{transform.scope_prefix}." if transform.scope_prefix else ""
    base = f"{transform.base_model_prefix}." if transform.base_model_prefix else ""
    return list(dict.fromkeys([base + scope, scope]))


def _pattern(transform: Any) -> tuple[str, str]:  # noqa: ANN401 - a WeightRenaming
    """Its pattern without the named group around each source, and the replacement as a template of `re`."""
    compiled = transform.compiled_sources
    replacement = transform.target_patterns[0]
    own = sorted(compiled.groupindex.values())
    # The group that \1 means comes first inside the source that matched; of the others none takes part.
    inner = [index + 1 for index in own if index + 1 <= compiled.groups and index + 1 not in own]
    numbers = [index - sum(outer < index for outer in own) for index in inner]
    reference = "".join(rf"\g<{number}>" for number in numbers)
    pattern = re.sub(r"\(\?P<g\d+>", "(?:", compiled.pattern)
    if len(own) == 1:
        pattern = pattern.removeprefix("(?:").removesuffix(")")
    literal = [part.replace("\\", r"\\") for part in replacement.split(r"\1")]
    template = reference.join(literal)
    return pattern, re.sub(r"\\g<(\d)>(?!\d)", r"\\\1", template)


def _kept(data: dict[str, Any], model: Any, memory: list[str]) -> list[str]:  # noqa: ANN401 - a PreTrainedModel
    names = Names(data)
    base = f"{data['base']}." if "base" in data else ""
    targets = loaded_as(model, memory)
    spoilt = [name for name in memory if targets[name] == name and names.canonical(name) != name.removeprefix(base)]
    return sorted({_NUMBER.sub("#", name) for name in spoilt})
