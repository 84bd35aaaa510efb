"""Which tensor of an adapter goes to which tensor of the base, and what it does there."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Final, NoReturn

from repokit.architectures.adapters_lora import is_transposed
from repokit.architectures.adapters_shared import PREFIX
from repokit.architectures.member import Kind
from repokit.builder.merging.experts import FUSED, Experts
from repokit.builder.merging.weights import MatrixAt, ProductAt, ReplacedBy, RowsAt, Step, SumAt
from repokit.builder.transforms.tie import same_bytes
from repokit.errors import MalformedFile, PlanError, UnsupportedSource
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.architectures.adapters_targets import Settings
    from repokit.builder.checkpoints.stored import TensorAt
    from repokit.builder.merging.lora import Adapter
    from repokit.builder.merging.places import Move, Places

_WRAPPED: Final = ".base_layer"


class Steps:
    """What one adapter does to the tensors of a base, by their stored names.

    Attributes:
        replaced: Tensors that the adapter has whole. Names that the base does not have are new ones.
        steps: What is changed in the others, or in these, in order.
        experts: Names of tensors whose rows are those of experts, one after another.
        move: What was changed in the names of the adapter, so that the base has them.
    """

    def __init__(
        self, adapter: Adapter, places: Places, model_type: str, heads: frozenset[str], new: frozenset[str]
    ) -> None:
        """Finds a place for every tensor of the adapter.

        Args:
            adapter: What is to be merged.
            places: The base.
            model_type: Of the base.
            heads: Names of tensors that the base stores as the embedding alone.
            new: Names of tensors that the model lacks: an adapter may bring them whole.

        Raises:
            InputError, PlanError: One has no place, or is of another size than its place.
        """
        self.adapter = adapter
        self.settings: Settings = adapter.settings(model_type)
        self.replaced: dict[str, ReplacedBy] = {}
        self.steps: defaultdict[str, list[Step]] = defaultdict(list)
        self.experts: set[str] = set()
        self._places = places
        self._model_type = model_type
        self._heads, self._new = heads, new
        self._nowhere: dict[str, None] = {}
        self._parameters = dict(self._wrapped())
        self.move = places.move(self._paths(), self._has)
        self._replace()
        for module, parts in adapter.factors.items():
            self._adapt(module, parts)
        self._new_rows()
        self._refuse_nowhere()

    # ------------------------------------------------------------ names

    def _paths(self) -> Iterator[str]:
        yield from (module for module in self.adapter.factors if module not in self._parameters)
        yield from self.adapter.tokens

    def _has(self, path: str, move: Move) -> bool:
        moved = move.of(path)
        return moved is not None and self._stored(moved) is not None

    def _stored(self, path: str, attribute: str = "weight") -> str | None:
        """The stored name of a parameter; of a head that is stored as the embedding alone, its own."""
        name = f"{path}.{attribute}" if path else attribute
        found = self._places.find(name)
        if found is None and attribute == "weight":  # torch's MultiheadAttention
            found = self._places.find(f"{path}.in_proj_weight")
        return found if found is not None or name not in self._heads else name

    def _moved(self, path: str) -> str:
        return self.move.of(path) or path

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self.replaced:
            return self.replaced[name].tensor.shape
        tensors = self._places.tensors
        embedding = self._places.embedding() or ""
        return tensors[name].shape if name in tensors else tensors[embedding].shape

    def _refuse_nowhere(self) -> None:
        if not self._nowhere:
            return
        names = list(self._nowhere)
        what = f"has {count(len(names), 'module')} that the base does not have: {some(names)}"
        trained = self.adapter.config.string("base_model_name_or_path")
        near = self._places.near(f"{names[0]}.weight")
        hint = f"the base has {printable(near)}" if near else "check base.path"
        hint = f"it was trained on {printable(trained)}; {hint}" if trained else hint
        raise PlanError(what, why="what was trained there would be lost", path=self.adapter.weights_path, hint=hint)

    # ------------------------------------------------------------ whole tensors

    def _replace(self) -> None:
        for name, tensor in self.adapter.plain.items():
            path, _, attribute = name.rpartition(".")
            stored = self._places.find(self.move.of(name) or name) or self._stored(self._moved(path), attribute)
            if stored is None and name not in self._new:
                self._nowhere[path or name] = None
            elif name not in self.adapter.inside or not self._is_the_bases(stored or name, tensor):
                self.replaced[stored or name] = ReplacedBy(self.adapter.stored, tensor)

    def _is_the_bases(self, name: str, tensor: TensorAt) -> bool:
        """Whether it is the base's own: PEFT saves the weight of an adapted embedding or head beside its factors."""
        tensors = self._places.tensors
        base = tensors.get(name) or tensors.get(self._places.embedding() or "")
        return base is not None and same_bytes(self.adapter.stored, tensor, base, self._places.stored)

    def _new_rows(self) -> None:
        for module, tensor in self.adapter.tokens.items():
            stored = self._stored(self._moved(module))
            if stored is None:
                self._nowhere[module] = None
                continue
            rows = self._token_indices(module)
            shape = self._shape(stored)
            if len(shape) != 2 or tensor.shape != (len(rows), shape[1]):
                wanted = [len(rows), *shape[1:]]
                self._refuse(module, f"has new rows of the shape {list(tensor.shape)} where {wanted} is needed")
            if max(rows, default=0) >= shape[0]:
                self._refuse(module, f"has a row for the token {max(rows)}, and the base has {shape[0]:,} rows")
            if self.steps[stored]:
                self._unsupported(module, "is adapted and has new rows for single tokens at once")
            self.steps[stored].append(RowsAt(rows, self._matrix(tensor)))

    def _token_indices(self, module: str) -> tuple[int, ...]:
        """Which tokens have new rows (peft 0.21 utils/other.py set_additional_trainable_modules)."""
        single = self.adapter.method == "TRAINABLE_TOKENS"
        given = self.settings["token_indices" if single else "trainable_token_indices"]
        if isinstance(given, dict):
            given = next((tokens for name, tokens in given.items() if f".{module}".endswith(f".{name}")), None)
        if not isinstance(given, list) or not all(type(token) is int and token >= 0 for token in given):
            self._refuse(module, "has new rows, and adapter_config.json does not say of which tokens")
        if len(set(given)) != len(given):
            self._refuse(module, "has two new rows for one token")
        return tuple(given)

    # ------------------------------------------------------------ factors

    def _adapt(self, module: str, parts: Mapping[str, TensorAt]) -> None:
        if module in self._parameters:
            path, parameter = self._parameters[module]
            self._adapt_parameter(self._moved(path), parameter, module, parts)
            return
        path = self._moved(module)
        stored = self._stored(path)
        if stored is None or module.endswith(_WRAPPED):
            self._nowhere[module] = None
            return
        self.steps[stored].append(self._product(module, path, parts, self._shape(stored)))
        if "lora_B.bias" in parts:
            self._add_bias(module, path, parts)

    def _add_bias(self, module: str, path: str, parts: Mapping[str, TensorAt]) -> None:
        bias, added = self._stored(path, "bias"), parts["lora_B.bias"]
        if bias is None:
            self._refuse(module, "has a bias (lora_bias), and the base has none there that it could be added to")
        if self._shape(bias) != added.shape:
            self._refuse(module, f"has a bias of the shape {list(added.shape)}, the base {list(self._shape(bias))}")
        _, scale = self.adapter.rank_and_scale(self.settings, module)
        values = MatrixAt(self.adapter.stored, added, (prod(added.shape), 1))
        self.steps[bias].append(SumAt(values, scale * self.adapter.weight))

    def _product(self, module: str, path: str, parts: Mapping[str, TensorAt], shape: tuple[int, ...]) -> ProductAt:
        embedded = "lora_embedding_A" in parts
        a, b = (parts[f"lora_embedding_{side}" if embedded else f"lora_{side}"] for side in "AB")
        scale = self._scale(module, a, b)
        transposed = self._is_transposed(module, path, a, b, shape, embedded=embedded)
        magnitude = parts.get("lora_magnitude_vector")
        outputs = b.shape[0]
        if magnitude is not None and prod(magnitude.shape) != outputs:
            self._refuse(module, f"has magnitudes of the shape {list(magnitude.shape)} for {outputs:,} outputs")
        diagonal = parts.get("lora_E")
        if diagonal is not None and prod(diagonal.shape) != a.shape[0]:
            self._refuse(module, f"has a lora_E of the shape {list(diagonal.shape)} for the rank {a.shape[0]}")
        stored = self.adapter.stored
        return ProductAt(
            a=self._matrix(a),
            b=self._matrix(b),
            scale=scale * self.adapter.weight,
            transposed=transposed,
            diagonal=None if diagonal is None else MatrixAt(stored, diagonal, (a.shape[0], 1)),
            magnitude=None if magnitude is None else MatrixAt(stored, magnitude, (outputs, 1)),
        )

    def _scale(self, module: str, a: TensorAt, b: TensorAt) -> float:
        if len(b.shape) < 2 or b.shape[1] != a.shape[0]:
            self._refuse(module, f"has factors that do not fit: A {list(a.shape)}, B {list(b.shape)}")
        if self.adapter.method == "ADALORA":
            return self.adapter.adalora_scale(self.settings, a.shape[0])
        rank, scale = self.adapter.rank_and_scale(self.settings, module)
        if rank != a.shape[0]:
            what = f"has the rank {a.shape[0]}, and adapter_config.json says {rank} (r, rank_pattern)"
            self._refuse(module, what)
        return scale

    def _is_transposed(
        self, module: str, path: str, a: TensorAt, b: TensorAt, shape: tuple[int, ...], *, embedded: bool
    ) -> bool:
        """Whether the base has [inputs, outputs]; told by the sizes, and where they are equal by the class."""
        inputs, outputs = a.shape[1:], b.shape[:1]
        if embedded:
            possible = [True] if shape == (*inputs, *outputs) else []
        else:
            ones = b.shape[2:] == (1,) * (len(shape) - 2)
            straight = ones and shape == (*outputs, *inputs)
            turned = len(shape) == 2 and shape == (*inputs, *outputs)
            possible = [way for way, fits in ((False, straight), (True, turned)) if fits]
        if not possible:
            grouped = len(shape) > 2 and shape[:1] == outputs and shape[2:] == inputs[1:]
            if grouped:
                self._unsupported(module, "is a convolution in groups, which PEFT does not merge either")
            what = f"has factors for [{prod(outputs)}, {', '.join(map(str, inputs))}]"
            self._refuse(module, f"{what}, and the base has {list(shape)} there")
        if len(possible) == 1:
            return possible[0]
        kind = self._places.kind(path)
        return kind is Kind.TRANSPOSED if kind is not None else self.settings["fan_in_fan_out"] is True

    def _matrix(self, tensor: TensorAt) -> MatrixAt:
        return MatrixAt(self.adapter.stored, tensor, (tensor.shape[0], prod(tensor.shape[1:])))

    # ------------------------------------------------------------ parameters of several experts

    def _wrapped(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Modules of the adapter that wrap a parameter -> the module that has it, and its name.

        Each parameter wraps its module once more: the factors of the last stand outermost (peft 0.21
        tuners_utils.py _inject_parameters).
        """
        wanted = self.adapter.settings(self._model_type).texts("target_parameters")
        containers: defaultdict[str, list[str]] = defaultdict(list)
        for module in self.adapter.factors if wanted else ():
            containers[module.partition(_WRAPPED)[0]].append(module)
        for container, modules in containers.items():
            names = {name.rpartition(".")[2] for name in wanted if self._is_of(name, container)}
            if names:
                yield from self._told_apart(container, modules, names)

    def _is_of(self, wanted: str, container: str) -> bool:
        """Whether a name of target_parameters may be that of a parameter of a module."""
        path, _, name = wanted.rpartition(".")
        if name == "weight" or not f".{container}".endswith(f".{path}" if path else ""):
            return False
        known = self._places.parameters(container)
        if known:
            return name in known
        return self._places.find(f"{container}.{name}") is not None or bool(self._places.experts(container))

    def _told_apart(self, container: str, modules: list[str], names: set[str]) -> Iterator[tuple[str, tuple[str, str]]]:
        order = [name for name in self._places.parameters(container) if name in names] or sorted(names)
        if len(order) > 1 and not self._places.parameters(container):
            self._unsupported(container, "has several parameters adapted, and the order of them is not known")
        if len(order) != len(modules):
            what = f"has factors for {count(len(modules), 'parameter')}, and adapter_config.json names {some(order)}"
            self._refuse(container, what)
        outermost_first = sorted(modules, key=lambda module: module.count(_WRAPPED))
        for module, name in zip(outermost_first, reversed(order), strict=True):
            yield module, (container, name)

    def _adapt_parameter(self, path: str, name: str, module: str, parts: Mapping[str, TensorAt]) -> None:
        rank, scale = self.adapter.rank_and_scale(self.settings, f"{module.partition(_WRAPPED)[0]}.{name}")
        factors = Experts(self.adapter, module, parts, rank, scale * self.adapter.weight)
        stored = self._places.find(f"{path}.{name}")
        if stored is not None:
            self._adapt_fused(stored, factors)
            return
        experts = self._places.experts(path)
        fused = next((names for names in FUSED.get(name, ()) if experts and set(names) <= experts[0].keys()), None)
        if fused is None:
            self._nowhere[f"{path}.{name}"] = None
            return
        for number, expert in enumerate(experts):
            self._adapt_expert(number, len(experts), [expert[part] for part in fused], factors)

    def _adapt_fused(self, stored: str, factors: Experts) -> None:
        shape = self._shape(stored)
        experts = shape[0] if len(shape) == 3 else 1
        rows, columns = shape[-2:] if len(shape) in {2, 3} else (0, 0)
        ways = [way for way, size in ((False, (rows, columns)), (True, (columns, rows))) if size == factors.sizes]
        if not ways or not factors.of(experts):
            self._refuse(factors.module, f"has factors for {list(factors.sizes)}, and the base has {list(shape)} there")
        transposed = ways[0] if len(ways) == 1 else len(shape) == 3 and is_transposed(self._model_type)
        for number in range(experts):
            a, b = factors.expert(number, experts, 0, factors.sizes[0])
            step = ProductAt(a, b, factors.scale, transposed=transposed, first=number * rows)
            self.steps[stored].append(step)
        self.experts.add(stored)

    def _adapt_expert(self, number: int, experts: int, names: list[str], factors: Experts) -> None:
        """Parts of one expert that memory has one after another, in a file of their own."""
        shapes = [self._shape(name) for name in names]
        outputs = sum(shape[0] for shape in shapes)
        if not factors.of(experts) or any((outputs, shape[1]) != factors.sizes for shape in shapes):
            what = f"has factors for {list(factors.sizes)}, and the base has {some([str(list(s)) for s in shapes])}"
            self._refuse(factors.module, what)
        first = 0
        for name, shape in zip(names, shapes, strict=True):
            a, b = factors.expert(number, experts, first, shape[0])
            self.steps[name].append(ProductAt(a, b, factors.scale))
            first += shape[0]

    # ------------------------------------------------------------ errors

    def _refuse(self, module: str, what: str) -> NoReturn:
        raise MalformedFile(what, path=self.adapter.weights_path, place=module, hint="check base.path and the adapter")

    def _unsupported(self, module: str, what: str) -> NoReturn:
        hint = "merge it where it was trained: model.merge_and_unload(), then save_pretrained"
        raise UnsupportedSource(what, path=self.adapter.weights_path, place=module, hint=hint)


def held(adapter: Adapter, move: Move) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor under the name that PEFT saves it by, with its shape.

    Args:
        adapter: Whose.
        move: What was changed in its names.
    """
    for module, parts in adapter.factors.items():
        for part, tensor in parts.items():
            name, _, bias = part.partition(".")
            plain = name in {"lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector", "lora_E"}
            plain = plain or adapter.method == "ADALORA"
            yield (
                f"{PREFIX}{move.of(module) or module}.{name}" + (".bias" if bias else "" if plain else ".weight"),
                tensor.shape,
            )
    for module, tensor in adapter.tokens.items():
        between = "" if adapter.method == "TRAINABLE_TOKENS" else ".token_adapter"
        yield f"{PREFIX}{move.of(module) or module}{between}.trainable_tokens_delta", tensor.shape
    for name, tensor in adapter.plain.items():
        yield f"{PREFIX}{move.of(name) or name}", tensor.shape
