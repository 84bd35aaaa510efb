"""What an adapter holds beside its modules' own tensors: matrices that all share, biases, modules trained in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.architectures.adapters_modules import LINEAR, Module, Modules, is_embedding
from repokit.architectures.adapters_targets import Settings, saved_modules
from repokit.architectures.errors import NotCovered
from repokit.architectures.member import Kind

if TYPE_CHECKING:
    from repokit.architectures.expansion import Shape

Named = Iterator[tuple[str, "Shape"]]
PREFIX: Final = "base_model.model."


def shared(modules: Iterable[Module], settings: Settings) -> Named:
    """The tensors of the adapter as a whole; their names are not under `base_model.model.`."""
    modules = list(modules)
    adapted = [module for module in modules if module.kind in LINEAR]
    if settings.method == "TINYLORA" and modules:
        yield from _vectors(settings, len(modules))
    if not adapted:
        return
    widest = _largest(module.sizes[0] for module in adapted), _largest(module.sizes[1] for module in adapted)
    match settings.method:
        case "VERA" | "PVERA" if settings["save_projection"]:
            yield from _projections(settings, *widest)
        case "RANDLORA" if settings["save_projection"]:
            yield from ((f"base_model.{name}", shape) for name, shape in _bases(settings, *widest).items())
        case "VBLORA":
            yield "base_model.vblora_vector_bank", (settings.number("num_vectors"), settings.number("vector_length"))
        case "UNILORA":
            yield "base_model.unilora_theta_d", (settings.number("theta_d_length"),)


def copies(module: Module, modules: Iterable[Module], settings: Settings) -> Mapping[str, Shape]:
    """Copies of what all share that PEFT also writes for a module, and does not need."""
    match settings.method:
        case "RANDLORA":
            adapted = [module for module in modules if module.kind in LINEAR]
            return _bases(
                settings,
                _largest(module.sizes[0] for module in adapted),
                _largest(module.sizes[1] for module in adapted),
            )
        case "UNILORA" if settings["save_indices"]:
            inputs, outputs = module.sizes
            sides = {"A": (settings.number("r"), inputs), "B": (outputs, settings.number("r"))}
            return {f"unilora_{what}_{side}": shape for what in ("indices", "scales") for side, shape in sides.items()}
        case _:
            return {}


def _largest(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else max(size for size in known if size is not None)


def _projections(settings: Settings, inputs: int | None, outputs: int | None) -> Named:
    name, size = settings.method.lower(), settings.number("r")
    rows = None if size is None else size * (2 if settings.method == "PVERA" else 1)
    yield f"base_model.{name}_A", (rows, inputs)
    yield f"base_model.{name}_B", (outputs, size)


def _bases(settings: Settings, inputs: int | None, outputs: int | None) -> Mapping[str, Shape]:
    size = settings.number("r")
    if inputs is None or outputs is None or size is None:
        return {"randlora_A": (size, 1, None), "randlora_B": (None, None, size)}
    least, most = min(inputs, outputs), max(inputs, outputs)
    return {"randlora_A": (size, 1, least), "randlora_B": (most, -(-least // size), size)}


def _vectors(settings: Settings, count: int) -> Named:
    """TinyLoRA: one vector for each group of modules (peft 0.21 tuners/tinylora/model.py _create_and_replace)."""
    tying = settings["weight_tying"]
    groups = max(1, round(count * (1.0 - (tying if isinstance(tying, (int, float)) else 0.0))))
    length = max(1, count // groups)
    for group in range(min((count - 1) // length, groups - 1) + 1):
        yield f"base_model.tinylora_v.{group}", (settings.number("u"),)


def biases(modules: Modules, adapted: Iterable[str], settings: Settings) -> Named:
    """The biases that were trained beside: `bias` is all, or ends in `_only`: those of the adapted modules."""
    mode, targets = settings["bias"], set(adapted)
    if not isinstance(mode, str) or mode == "none":
        return
    saved = tuple(saved_modules(modules, settings))
    for path, module in modules.found.items():
        if (shape := module.own.get("bias")) is None:
            continue
        if path in targets:
            yield f"{path}.base_layer.bias", shape
        elif mode == "all" and (outer := next((outer for outer in saved if f"{path}.".startswith(f"{outer}.")), None)):
            for copy in ("original_module", "modules_to_save"):
                yield f"{outer}.{copy}{path[len(outer) :]}.bias", shape
        elif mode == "all":
            yield f"{path}.bias", shape


def tied_copies(modules: Modules, adapted: Iterable[str], settings: Settings) -> Iterator[Module]:
    """Modules that PEFT adapts with the embedding that they share a weight with."""
    targets = set(adapted)
    if settings["ensure_weight_tying"] or settings.method == "TRAINABLE_TOKENS":
        for path, source in modules.tied.items():
            if source in targets and path not in targets and path in modules.found:
                yield modules.found[path]


def trained_in_full(modules: Modules, settings: Settings) -> Named:
    """The tensors of the modules that were trained in full, under their own names."""
    for path in saved_modules(modules, settings):
        for name, shape in modules.below(path):
            yield f"{path}.{name}", shape


def trained_tokens(modules: Modules, settings: Settings) -> Named:
    """`trainable_token_indices`: new rows for single tokens of an embedding; a tied head has them from there."""
    given = settings["trainable_token_indices"]
    wanted = given if isinstance(given, Mapping) else {modules.embedding or "embed_tokens": given} if given else {}
    for name, tokens in wanted.items():
        for path, module in modules.found.items():
            if path.endswith(name) and path not in modules.tied and len(module.weight) == 2:
                yield (
                    f"{path}.token_adapter.trainable_tokens_delta",
                    (
                        len(tokens) if isinstance(tokens, list) else None,
                        module.weight[1],
                    ),
                )


def embeddings(modules: Modules) -> Named:
    """What may lie beside any adapter: embeddings, and the head, whole. With more tokens they have more rows."""
    for path, module in modules.found.items():
        if len(module.weight) == 2 and (module.kind is Kind.EMBEDDING or is_embedding(path) or path == modules.head):
            for before in ("", "base_layer."):
                yield f"{path}.{before}weight", (None, module.weight[1])
                if path == modules.head and "bias" in module.own:
                    yield f"{path}.{before}bias", (None,)


def frod(modules: Iterable[Module], settings: Settings) -> Named:
    """FRoD: modules of one role share a projection (peft 0.21 tuners/frod/model.py)."""
    rate = settings["sparse_rate"]
    categories: dict[str, int | None] = {}
    for module in modules:
        inputs = module.sizes[0]
        count = None if inputs is None or not isinstance(rate, (int, float)) else _off_diagonal(inputs, rate)
        categories[_category(module.path)] = inputs
        yield f"{PREFIX}{module.path}.frod_lambda_l", (inputs,)
        yield f"{PREFIX}{module.path}.frod_lambda_s_values", (count,)
    for category, inputs in categories.items() if settings["save_projection"] else ():
        count = None if inputs is None or not isinstance(rate, (int, float)) else _off_diagonal(inputs, rate)
        yield f"base_model.frod_V.{category}", (inputs, inputs)
        yield f"base_model.frod_s_indices.{category}", (2, count)
        yield f"base_model.frod_s_size.{category}", (2,)


def _off_diagonal(width: int, rate: float) -> int:
    most = width * width - width
    count = min(int(width * width * rate), most)
    return max(1, count) if rate > 0 and most else count


def _category(path: str) -> str:
    parts = path.split(".")
    if len(parts) == 1 or parts[-2].isdigit():
        return parts[-1]
    category = f"{parts[-2]}_{parts[-1]}"
    return "attention_output" if category == "output_dense" and parts[-3:-2] == ["attention"] else category


# peft 0.21 tuners/adaption_prompt/config.py TRANSFORMERS_MODEL_CONFIG.
_ATTENTION: Final = {"llama": "self_attn", "mistral": "self_attn", "gpt2": "attn"}


def adaption_prompt(modules: Modules, settings: Settings) -> Named:
    """Prompts for the attention of the last layers."""
    name = settings["target_modules"] or _ATTENTION.get(modules.model_type)
    count, length = settings.number("adapter_layers"), settings.number("adapter_len")
    if modules.model_type not in _ATTENTION or not isinstance(name, str) or count is None:
        raise NotCovered(f"PEFT has no adaption prompts for {modules.model_type}")
    width = modules.value("hidden_size") or modules.value("n_embd")
    layers = [path for path in modules.paths if path.rpartition(".")[2] == name]
    for path in layers[-count:]:
        yield f"{PREFIX}{path}.adaption_prompt", (1, length, width if isinstance(width, int) else None)
        yield f"{PREFIX}{path}.adaption_gate", (1,)
