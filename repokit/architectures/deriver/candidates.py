"""What to try for a key: changes that keep a config plausible, chosen by the key's type, value and name."""

from __future__ import annotations

import enum
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from transformers.configuration_utils import ALLOWED_ATTN_LAYER_TYPES, ALLOWED_MLP_LAYER_TYPES

from repokit.architectures.deriver.fields import ABSENT, Absent, Inventory, Key, Value


class Op(enum.Enum):
    """How a change makes a new value."""

    SET = "set"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    ADD = "add"
    SCALE = "scale"  # every element of a list of numbers
    SCATTER = "scatter"  # every element by a factor of its own
    KINDS = "kinds"  # a list over the members of the operand, one a layer
    INDICES = "indices"  # some of the indices of the layers
    PATTERN = "pattern"  # a string over the characters of the operand, one a layer


@dataclass(frozen=True, slots=True)
class Change:
    """One way to change one key.

    Attributes:
        op: How.
        operand: The value of SET, the factor, the summand, the members of KINDS, the alphabet of PATTERN.
        length: The key that counts the layers, for lists with one entry a layer.
    """

    op: Op
    operand: Value = None
    length: str | None = None

    @property
    def members(self) -> tuple[Value, ...]:
        """What KINDS and PATTERN draw from, one by one."""
        if isinstance(self.operand, str):
            return tuple(self.operand)
        return self.operand if isinstance(self.operand, tuple) else ()

    @property
    def is_structural(self) -> bool:
        """Whether it switches something on or off rather than resizing it."""
        switches = self.operand is None or isinstance(self.operand, bool | str) or self.operand == 0
        return self.op is Op.SET and switches


LAYERS = re.compile(r"(layers?|depth|n_layer|blocks)$|num_layers|num_hidden_layers")
EXPERTS = re.compile(r"(num|n)_.*experts?$|num_experts$|moe_num_experts|num_local_experts|^n_routed")

# Sizes and counts of what every model has: 0 builds nothing that anyone ships, or divides by zero.
_NEVER_ZERO = re.compile(
    r"(?<!type_)vocab_size$|^hidden_size$|num_hidden_layers|n_embd$|n_layers?$|n_heads?$|num_(attention_)?heads|"
    r"intermediate_size$|patch_size|in_channels|num_channels|^depth$|embed_dim$|head_dim$|d_model$|d_ff$|ffn_dim|"
    r"encoder_layers|decoder_layers|_heads$|position_embeddings|image_size|num_labels|lora_rank|spatial_merge|"
    r"temporal_patch|out_hidden|(?<!type_)(?<!expert_intermediate)_size$"
)
_STRING_LIMIT = 8


def candidates(dotted: str, inventory: Inventory, base: Mapping[str, Value], seen: Mapping[str, Value]) -> list[Change]:
    """The changes worth trying on a key.

    Args:
        dotted: The key.
        inventory: All keys.
        base: What the base config gives.
        seen: What the base config object makes of it, flat.
    """
    key = inventory.keys[dotted]
    context = _Context(dotted, key, base.get(dotted, key.default), seen.get(dotted), inventory, seen)
    found = [*_hidden(context)] if key.hidden else [*_declared(context)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Context:
    """A key with all that tells what to try for it."""

    dotted: str
    key: Key
    value: Value | Absent
    seen: Value
    inventory: Inventory
    all_seen: Mapping[str, Value]

    @property
    def name(self) -> str:
        return self.dotted.rpartition(".")[2]

    @property
    def current(self) -> Value:
        """The given value, or what the class makes of none."""
        return self.seen if self.value is ABSENT or self.value is None else self.value

    def members(self) -> set[str]:
        return member_types(self.key.annotation)


def member_types(annotation: str) -> set[str]:
    """The types that an annotation allows: `int`, `float`, `bool`, `str`, `list`, `dict`, `None`, `Literal`."""
    text = re.sub(r"typing\.|<class '|'>", "", annotation)
    text = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)
    text = re.sub(r"^Union\[(.*)\]$", lambda match: match[1].replace(", ", " | "), text)
    found = {re.split(r"\[", part.strip())[0] for part in _split_union(text)}
    return {"list" if name in {"tuple", "Sequence", "List", "Tuple"} else name for name in found}


def _split_union(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "|" and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _declared(context: _Context) -> Iterator[Change]:
    types = context.members()
    current = context.current
    if isinstance(current, bool):
        yield Change(Op.SET, not current)
    elif isinstance(current, int):
        yield from _integers(context.name, current)
    elif isinstance(current, float):
        yield from (Change(Op.SET, value) for value in (current * 2, current / 2, current + 1))
    elif isinstance(current, str):
        yield from _strings(context, current)
    elif isinstance(current, tuple):
        yield from _lists(context, current)
    yield from _other_types(context, types - {_type_name(current)})
    nothing_stands = context.value is None and not isinstance(current, tuple)
    if "None" in types and not nothing_stands and context.value is not None:
        yield Change(Op.SET, None)


def _type_name(value: Value) -> str:
    return "list" if isinstance(value, tuple) else type(value).__name__


def _integers(name: str, value: int) -> Iterator[Change]:
    if value <= 0:
        yield from (Change(Op.SET, number) for number in (1, 2, 4))
        return
    if value == 1:
        yield from (Change(Op.SET, number) for number in (2, 3, 4))
    else:
        yield from (Change(Op.MULTIPLY, 2), Change(Op.MULTIPLY, 3), Change(Op.DIVIDE, 2))
        yield from (Change(Op.ADD, 1), Change(Op.ADD, -1))
    if not _NEVER_ZERO.search(name):
        yield Change(Op.SET, 0)


def _strings(context: _Context, value: str | None) -> Iterator[Change]:
    found = dict.fromkeys(
        re.findall(r"'([\w\-.]+)'", context.key.annotation) if "Literal" in context.key.annotation else ()
    )
    constants: set[str] = set()
    for line in _lines_with(context.inventory.source(context.dotted), context.name):
        constants.update(re.findall(r"[\"']([\w\-.]{2,30})[\"']", line))
    found.update(dict.fromkeys(sorted(constants)))
    if context.name == "backbone":
        found = dict.fromkeys(("resnet50", "resnet101", "resnet18"))  # names of timm's, which stand in no source here
    yield from (Change(Op.SET, text) for text in list(found)[: 2 * _STRING_LIMIT] if text not in {value, context.name})


def _lines_with(source: str, name: str) -> Iterable[str]:
    word = re.compile(rf"\b{re.escape(name)}\b")
    return (line for line in source.splitlines() if name in line and word.search(line))


def _lists(context: _Context, value: tuple[Value, ...]) -> Iterator[Change]:
    if not value:
        yield from _index_lists(context)
    elif all(isinstance(item, str) for item in value):
        yield from _kind_lists(context, value)
    elif all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        indices = _index_lists(context) if _counts_layers(context, value) else ()
        yield from (Change(Op.SCALE, 2), Change(Op.SCALE, 3), Change(Op.SCATTER), *indices)
    elif all(isinstance(item, bool) for item in value):
        length = layer_count(context.dotted, len(value) or None, context.all_seen)
        yield Change(Op.SET, tuple(not item for item in value))
        if length:
            yield Change(Op.KINDS, (False, True), length)
    elif all(isinstance(item, int | float) for item in value):
        yield Change(Op.SCALE, 2)


def _counts_layers(context: _Context, value: tuple[Value, ...]) -> bool:
    return re.search(r"layers|index|indices|blocks", context.name) is not None and len(set(value)) == len(value)


def _index_lists(context: _Context) -> Iterator[Change]:
    yield from (Change(Op.SET, chosen) for chosen in ((0,), (1,), (0, 2)))
    length = layer_count(context.dotted, None, context.all_seen)
    if length:
        yield Change(Op.INDICES, None, length)


def _kind_lists(context: _Context, value: tuple[Value, ...]) -> Iterator[Change]:
    source = context.inventory.source(context.dotted)
    known = {*ALLOWED_ATTN_LAYER_TYPES, *ALLOWED_MLP_LAYER_TYPES}
    constants = {kind for kind in known if f'"{kind}"' in source}
    for line in source.splitlines():
        if context.name in line or "layer_type" in line or "block_type" in line:
            constants.update(re.findall(r"[\"']([a-z_0-9]{3,30})[\"']", line))
    length = layer_count(context.dotted, len(value) or None, context.all_seen)
    members = tuple(sorted(constants | {str(item) for item in value}))
    if length:
        yield from (Change(Op.KINDS, members, length),)


def layer_count(dotted: str, size: int | None, seen: Mapping[str, Value]) -> str | None:
    """The key beside this one that counts the layers, and that equals `size` if that is given."""
    path = dotted.rpartition(".")[0]
    for name, value in seen.items():
        beside = name.rpartition(".")[0] == path and LAYERS.search(name)
        if beside and isinstance(value, int) and not isinstance(value, bool) and size in {None, value}:
            return name
    return None


def _other_types(context: _Context, types: set[str]) -> Iterator[Change]:
    """Values of the types that the current value is not of."""
    number = context.current if isinstance(context.current, int) else None
    if "bool" in types:
        yield from (Change(Op.SET, value) for value in ((True,) if context.value is None else (True, False)))
    if "int" in types and not isinstance(context.current, float | bool):
        yield from _whole_numbers(context)
    elif "float" in types and context.current is None:
        yield from (Change(Op.SET, 1.0), Change(Op.SET, 2.0))
    if types & {"str", "Literal"} and not isinstance(context.current, str):
        yield from _strings(context, None)
    if "list" in types:
        yield from _new_lists(context, number)


def _whole_numbers(context: _Context) -> Iterator[Change]:
    current = context.current
    if isinstance(current, tuple) and current and isinstance(current[0], int):
        yield from (Change(Op.SET, current[0]), Change(Op.SET, 2 * current[0]))
    elif not isinstance(current, tuple):
        yield from (Change(Op.SET, number) for number in (16, 1, 48, 4, 2))


# Two numbers of these are height and width, never one a layer.
_PIXELS = re.compile(r"patch|image|img|kernel|stride|window|crop|tubelet|grid|pool|frame|input_|dilation|padding")


def _new_lists(context: _Context, number: int | None) -> Iterator[Change]:
    if number is None:
        yield from _index_lists(context)
        yield from _kind_lists(context, ()) if "str" in context.key.annotation else ()
        return
    yield Change(Op.SET, (number, 2 * number) if "size" in context.name else (number, number))
    length = layer_count(context.dotted, None, context.all_seen)
    if length and not _PIXELS.search(context.name):
        yield Change(Op.KINDS, (number, 2 * number, 3 * number), length)


def _hidden(context: _Context) -> Iterator[Change]:
    """Changes for a key without a declared type: its name and the literal where it is read are all there is."""
    name, value = context.name, context.current
    if "pattern" in name and not isinstance(value, int):
        letters = "".join(
            sorted(set(re.findall(r"[\"']([^\s\"'\w]|[A-Za-z])[\"']", context.inventory.source(context.dotted))))
        )
        yield Change(Op.PATTERN, letters)  # its length is the number of layers
    if isinstance(value, bool) or re.match(r"(use_|is_|has_|enable)|.*(bias|norm)$", name):
        yield from (Change(Op.SET, flag) for flag in (True, False) if flag is not value)
    elif isinstance(value, str):
        yield from _strings(context, value)
    elif isinstance(value, tuple):
        yield from _lists(context, value)
    elif isinstance(value, int):
        yield from _integers(name, value)
    elif re.search(r"dim|size|embed|d_model|width", name):
        yield from (Change(Op.SET, number) for number in (*_multiples(context), 16, 48, 96))
    else:
        yield from (Change(Op.SET, number) for number in (2, 4, 3))
        yield from (Change(Op.SET, flag) for flag in (True, False))
        if re.search(r"types?$|layers$", name):
            yield from (*_index_lists(context), *_kind_lists(context, ()))


def _multiples(context: _Context) -> Iterator[int]:
    path = context.dotted.rpartition(".")[0]
    width = context.all_seen.get(f"{path}.hidden_size" if path else "hidden_size")
    if isinstance(width, int) and re.search(r"hidden|embed", context.name):
        yield from (2 * width, 3 * width)


def applied(
    change: Change, current: Value, count: int | None, rng: random.Random, *, factors: tuple[int, ...] = ()
) -> Value:
    """The changed value.

    Args:
        change: The change.
        current: The value in the base config: given, or what the class makes of none.
        count: The number of layers, for lists with one entry a layer.
        rng: For what is drawn.
        factors: Multiply by one of these instead of the operand, and add one of 1, 2, 3 instead of 1.
    """
    operand = change.operand
    if change.op is Op.SET:
        return operand
    if change.op in {Op.KINDS, Op.INDICES, Op.PATTERN}:
        return _drawn(change, count if count is not None else rng.randint(2, 6), rng)
    if isinstance(current, tuple):
        factor = rng.choice(factors) if factors else operand
        return tuple(_times(item, rng.choice((1, 2, 3)) if change.op is Op.SCATTER else factor) for item in current)
    if not isinstance(current, int) or not isinstance(operand, int):
        return current
    if change.op is Op.MULTIPLY:
        return current * (rng.choice(factors) if factors else operand)
    if change.op is Op.DIVIDE:
        return max(1, current // operand)
    return current + (rng.choice((1, 2, 3)) if factors and operand > 0 else operand)


def _times(item: Value, factor: Value) -> Value:
    if isinstance(item, int | float) and isinstance(factor, int):
        return item * factor
    return item


def _drawn(change: Change, count: int, rng: random.Random) -> Value:
    if change.op is Op.INDICES:
        return tuple(index for index in range(count) if rng.random() < 0.5)
    if change.op is Op.PATTERN and isinstance(change.operand, str):
        return "".join(rng.choice(change.operand) for _ in range(count))
    members = change.operand if isinstance(change.operand, tuple) else ()
    return tuple(rng.choice(members) for _ in range(count))


def smaller(inventory: Inventory) -> dict[str, Value]:
    """What makes the default config cheap: four layers, eight experts, or sixteen where eight or more are chosen."""
    standing = {**inventory.defaults, **inventory.initial}
    numbers = {
        name: value for name, value in standing.items() if isinstance(value, int) and not isinstance(value, bool)
    }
    chosen = [value for name, value in numbers.items() if re.search(r"per_tok|top_?k|num_selected", name)]
    experts = 8 if max([*chosen, 4]) < 8 else 16
    found: dict[str, Value] = {}
    for dotted, value in numbers.items():
        name = dotted.rpartition(".")[2]
        if LAYERS.search(name) and value > 4:
            found[dotted] = 4
        elif EXPERTS.search(name) and value > 8 and not re.search(r"per_|tok|shared", name):
            found[dotted] = experts
        elif value > _SMALLER.get(name, value):
            found[dotted] = _SMALLER[name]
    patterns = {name: value for name, value in standing.items() if "pattern" in name and isinstance(value, str)}
    found.update({name: "".join(dict.fromkeys(value)) for name, value in patterns.items()})
    found.update(
        {
            name: value[:4]
            for name, value in standing.items()
            if isinstance(value, tuple) and len(value) > 4 and _is_cut(name, len(value), standing, found)
        }
    )
    return found


def _is_cut(name: str, size: int, standing: Mapping[str, object], found: Mapping[str, Value]) -> bool:
    """Whether a list has one entry for each of the layers that were cut to four."""
    path = name.rpartition(".")[0]
    beside = [key for key in found if key.rpartition(".")[0] == path and LAYERS.search(key)]
    return any(standing[key] == size for key in beside)


# Groups of experts must divide 8 experts; layers before the first expert layer must be fewer than 4.
_SMALLER = {"topk_group": 1, "n_group": 2, "first_k_dense_replace": 1}


def filled_in(dotted: str, inventory: Inventory) -> dict[str, Value]:
    """Values for the keys beside this one that are None by default: what a switch may need to be turned on."""
    path = dotted.rpartition(".")[0]
    found: dict[str, Value] = {}
    for name, key in inventory.keys.items():
        beside = name != dotted and name.rpartition(".")[0] == path
        if beside and key.default is None and "int" in member_types(key.annotation):
            last = name.rpartition(".")[2]
            found[name] = 8 if EXPERTS.search(last) else 2 if re.search(r"top_?k|per_tok", last) else 16
    return found
