"""Composed models, whose parts may be of other model types than those that their skeleton was derived with.

LlavaForConditionalGeneration builds its language model by `AutoModel.from_config(config.text_config)`: with a
`text_config` of the type mistral the files hold a MistralModel below `language_model.model.`, with one of the type
qwen2 a Qwen2Model. So a part of another type than the derived one is replaced by the skeleton of the class that the
Auto class chooses for that type.

The "references" of a class in a data file, one for each part:

    {"path": "text_config", "prefix": "language_model.model.", "module": "model.language_model.", "auto": "AutoModel",
     "without": ["pooler.", ...]}

path: the nested config that decides, dotted.
prefix: what the part's names have before them in files; module: in memory.
auto: the Auto class that chooses. null: the part's names in files are not simply its own behind a prefix; of a part
    of another type nothing is known then.
instead: the Auto class that chooses for types that `auto` has nothing for, if there is such a one.
without: names of the part alone that it lacks here, by their start, or by their end if that begins with a dot.

"autos" of a class: the Auto classes that choose it for its model type.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from repokit.architectures.errors import NotCovered
from repokit.architectures.expansion import Expanded, Loose, expand
from repokit.architectures.grammar import INDICES, Environment, Expression
from repokit.architectures.member import Block, ClassFacts, ConfigFacts, Evidence, Member, Template, member
from repokit.architectures.names import Names, kept, scoped
from repokit.architectures.nested_configs import flattened, nested_config, other_type

if TYPE_CHECKING:
    from repokit.architectures.skeleton import Skeleton

__all__ = ["Composed", "SkeletonOf", "composed", "flattened"]

_INDEX: Final = re.compile(r"\{[" + INDICES + r"]\}")


class SkeletonOf(Protocol):
    """What gives the skeleton of a part: `repokit.architectures.skeleton.skeleton`, or something that knows more."""

    def __call__(self, config: Mapping[str, Any], architecture: str | None = None) -> Skeleton:
        """The skeleton; raises NotCovered where there is none."""


@dataclass(slots=True)
class Composed:
    """A composed model's tensors.

    Attributes:
        facts: The class's, with the names, ties and ignored patterns of its parts.
        disk: The tensors in the form of files.
        memory: In the second form, if the class or a part has one.
        evidence: That of the class or the least certain part.
        unknown: What canonical names of parts that nothing is known of begin with: any may be there.
        replaced: Path -> class of the parts of another type.
    """

    facts: ClassFacts
    disk: Expanded
    memory: Expanded | None
    evidence: Evidence
    unknown: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)


def composed(
    known: Member, facts: ClassFacts, config: Mapping[str, Any], environment: Environment, skeleton: SkeletonOf
) -> Composed:
    """The tensors of a class under a config, each part of the type that the config gives it.

    Args:
        known: The member that the class is of.
        facts: The class.
        config: As `flattened` gives it.
        environment: Of the whole config.
        skeleton: Gives the skeletons of parts.

    Raises:
        ConfigUnusable: As `expand` raises it.
    """
    parts = _other_parts(known, facts, config, skeleton)
    disk = _own(facts.disk, known.config, [(part, (part.prefix,)) for part in parts])
    memory = facts.memory
    if memory is not None:
        memory = _own(memory, known.config, [(part, (part.prefix, part.module)) for part in parts])
    result = Composed(
        facts=facts,
        disk=expand(disk, environment),
        memory=None if memory is None else expand(memory, environment),
        evidence=facts.evidence,
    )
    if any(part.backbone for part in parts) or not _as_many(facts.disk, disk, parts):
        result.evidence = Evidence.PARTIAL
    for part in parts:
        _put_in(result, part)
    return result


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of another type than the derived one.

    Attributes:
        known: Keys of its config that have a value.
        backbone: The class's own tensors follow from how many feature maps it gives, and how wide they are.
        skeleton: None: nothing is known of its tensors.
    """

    path: str
    prefix: str
    module: str
    without: tuple[str, ...]
    known: frozenset[str]
    backbone: bool
    skeleton: Skeleton | None


def _other_parts(known: Member, facts: ClassFacts, config: Mapping[str, Any], skeleton: SkeletonOf) -> list[_Part]:
    parts: list[_Part] = []
    for reference in facts.other.get("references", ()):
        path = str(reference["path"])
        nested = nested_config(config, path)
        if nested is None or any(path.startswith(f"{outer.path}.") for outer in parts):
            continue
        if (own := other_type(nested, path, known.config)) is not None:
            parts.append(
                _Part(
                    path=path,
                    prefix=str(reference["prefix"]),
                    module=str(reference["module"]),
                    without=tuple(map(str, reference.get("without", ()))),
                    known=frozenset(nested),
                    backbone=reference.get("auto") == "AutoBackbone",
                    skeleton=_skeleton_of(nested, own, reference, skeleton),
                )
            )
    return parts


def _skeleton_of(
    nested: Mapping[str, Any], model_type: str, reference: Mapping[str, Any], skeleton: SkeletonOf
) -> Skeleton | None:
    try:
        classes = member(model_type).raw
        for auto in (reference.get("auto"), reference.get("instead")):
            for name, record in classes.items():
                if auto and auto in record.get("autos", ()):
                    return skeleton(nested, name)
    except NotCovered:
        pass
    return None


# ---------------------------------------------------------------- the class's own tensors


def _own(
    blocks: tuple[Block, ...], facts: ConfigFacts, parts: Sequence[tuple[_Part, tuple[str, ...]]]
) -> tuple[Block, ...]:
    """The blocks without what lies below the parts; what a part's other type leaves without a value is unknown."""
    if not parts:
        return blocks
    dropped = tuple(prefix for _, prefixes in parts for prefix in prefixes)
    foreign = _Foreign(facts, [part for part, _ in parts])
    kept = (
        (block, tuple(template for template in block.templates if not template.name.startswith(dropped)))
        for block in blocks
    )
    return tuple(foreign.loosened(block, templates) for block, templates in kept if templates)


class _Foreign:
    """Keys of parts that mean something for the derived type, and nothing that is known for the one in the config.

    The channels of a detector's projections follow from `backbone_config.embed_dim` where the backbone is a Swin, and
    not where it is a ResNet.
    """

    def __init__(self, facts: ConfigFacts, parts: Sequence[_Part]) -> None:
        self.facts, self.parts = facts, parts

    def is_known(self, key: str) -> bool:
        """Whether the config gives a value to the key that means what it meant when the class was derived."""
        rule = self.facts.derived.get(key)
        if rule is None or (rule.given and self._has_value(key)):
            return self._has_value(key)
        return all(map(self._has_value, rule.value.keys | (rule.length.keys if rule.length else frozenset())))

    def _has_value(self, key: str) -> bool:
        for part in self.parts:
            if key.startswith(f"{part.path}."):
                return key.removeprefix(f"{part.path}.").partition(".")[0] in part.known
        return True

    def loosened(self, block: Block, templates: tuple[Template, ...]) -> Block:
        """The block with these templates, foreign expressions unknown."""
        return dataclasses.replace(
            block,
            condition=self._known(block.condition),
            ranges=tuple(map(self._known, block.ranges)),
            templates=tuple(
                dataclasses.replace(template, shape=tuple(map(self._known, template.shape))) for template in templates
            ),
        )

    def _known(self, expression: Expression | None) -> Expression | None:
        return expression if expression is not None and all(map(self.is_known, expression.keys)) else None


def _as_many(before: tuple[Block, ...], after: tuple[Block, ...], parts: Sequence[_Part]) -> bool:
    """Whether nothing of the class's own became unknown."""
    prefixes = tuple(part.prefix for part in parts)
    own = (
        dataclasses.replace(
            block, templates=tuple(one for one in block.templates if not (prefixes and one.name.startswith(prefixes)))
        )
        for block in before
    )
    return _unknowns(tuple(own)) == _unknowns(after)


def _unknowns(blocks: tuple[Block, ...]) -> int:
    return sum(
        [block.condition, *block.ranges, *(size for one in block.templates for size in one.shape)].count(None)
        for block in blocks
        if block.templates
    )


# ---------------------------------------------------------------- the parts' tensors


def _put_in(result: Composed, part: _Part) -> None:
    if part.skeleton is None:
        result.unknown.append(_canonical(result.facts.other.get("names"), part.module) if part.prefix else "")
        return
    first, second = part.skeleton.expanded, part.skeleton.memory
    if second is not None or result.memory is not None:
        result.memory = _copied(result.disk) if result.memory is None else result.memory
        if second is None:
            _add(result.memory, first, part.prefix, part.without)
        else:
            _add(result.memory, second.expanded, part.module, part.without)
    _add(result.disk, first, part.prefix, part.without)
    if part.skeleton.evidence is not Evidence.VERIFIED:
        result.evidence = Evidence.PARTIAL
    result.facts = _with_part(result.facts, part, part.skeleton)
    result.replaced[part.path] = part.skeleton.architecture


def _with_part(facts: ClassFacts, part: _Part, skeleton: Skeleton) -> ClassFacts:
    own = facts.other
    tied = [tie for tie in own.get("tied", ()) if not tie[0].startswith(part.prefix)]
    other = {
        **own,
        "names": _names(own.get("names"), part, skeleton),
        "tied": [*tied, *([part.prefix + target, part.prefix + source] for target, source in skeleton.ties)],
    }
    # transformers takes the patterns of sub-models over as they are (PreTrainedModel.post_init).
    for key in ("ignore_unexpected", "ignore_missing", "legacy", "fp32", "fp32_strict"):
        if patterns := [*own.get(key, ()), *skeleton.facts.other.get(key, ())]:
            other[key] = list(dict.fromkeys(patterns))
    return dataclasses.replace(facts, other=other)


def _names(whole: Mapping[str, Any] | None, part: _Part, skeleton: Skeleton) -> Mapping[str, Any] | None:
    data = scoped(whole, skeleton.names.data, part.module)
    # Renames of the class that were meant for the derived part would spoil names of this one, which loaders prevent.
    renamed, alone = Names(data), Names({**skeleton.names.data, "base": None})
    base = f"{renamed.data.get('base')}."
    plain = {_INDEX.sub("0", template.name) for template in skeleton.expanded.templates.values()}
    memory = {part.module + alone.canonical(name) for name in plain}
    return kept(data, {name for name in memory if renamed.canonical(name) != name.removeprefix(base)})


def _canonical(names: Mapping[str, Any] | None, module: str) -> str:
    mark = "9"
    return Names(names).canonical(module + mark).removesuffix(mark)


def _copied(form: Expanded) -> Expanded:
    return Expanded(dict(form.shapes), dict(form.templates), list(form.loose))


def _add(form: Expanded, part: Expanded, prefix: str, without: Iterable[str]) -> None:
    starts = tuple(text for text in without if not text.startswith("."))
    ends = tuple(text for text in without if text.startswith("."))

    def here(name: str) -> bool:
        return not (name.startswith(starts) or name.endswith(ends))

    renamed = {id(template): _below(template, prefix) for template in part.templates.values()}
    for name, shape in part.shapes.items():
        if here(name):
            form.shapes[prefix + name] = shape
            form.templates[prefix + name] = renamed[id(part.templates[name])]
    form.loose += [_moved(loose, prefix) for loose in part.loose if here(loose.template.name)]


def _below(template: Template, prefix: str) -> Template:
    return dataclasses.replace(template, name=prefix + template.name)


def _moved(loose: Loose, prefix: str) -> Loose:
    pattern = re.compile(re.escape(prefix) + f"(?:{loose.pattern.pattern})")
    return Loose(pattern, loose.shape, _below(loose.template, prefix))
