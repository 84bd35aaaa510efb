"""The tensors that PEFT's other methods save for one module, by its inputs and outputs and the config.

Source: peft 0.21.2 tuners/*/layer.py and model.py. A method whose tensors follow from the values of the base's weights
(ADAMSS) or from another model (SHADOW, XLORA) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from repokit.architectures.adapters_blocks import Refused, boft, hra, known, loha, lokr, number, oft, whole
from repokit.architectures.adapters_lora import Parts, adalora, lora, rank
from repokit.architectures.adapters_modules import LINEAR, Module
from repokit.architectures.adapters_targets import Settings, by_pattern, decided
from repokit.architectures.member import Kind
from repokit.resources import data

Method = Callable[[Module, Settings], Parts | None]
"""The tensors of one module; None where the method does not take such a module.

Raises TypeError where a size that it needs is not known, and ValueError where the method refuses the sizes.
"""


def _linear(shapes: Callable[[int, int, Settings], Parts]) -> Method:
    """A method for linear modules whose shapes follow from inputs and outputs."""

    def method(module: Module, settings: Settings) -> Parts | None:
        return shapes(*known(module), settings) if module.kind in LINEAR else None

    return method


def _beft(_inputs: int, outputs: int, _settings: Settings) -> Parts:
    return {"beft_bias": (1, outputs)}


def _c3a(module: Module, settings: Settings) -> Parts | None:
    if module.kind is not Kind.LINEAR:
        return None
    inputs, outputs = known(module)
    size = by_pattern(settings.mapping("block_size_pattern"), module.path) or number(settings, "block_size")
    return {"c3a_kernel": (whole(outputs, size), whole(inputs, size), size)}


def _deft(inputs: int, outputs: int, settings: Settings) -> Parts:
    size = min(number(settings, "r"), outputs)
    factors = {"deft_P": (outputs, size)}
    return factors if settings["para"] else {**factors, "deft_R": (size, inputs)}


def _delora(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in LINEAR:
        return None
    inputs, outputs = known(module)
    size = rank(settings, module.path)
    return {
        "delora_A": (size, inputs),
        "delora_B": (outputs, size),
        "delora_lambda": (1,),
        "delora_w_norm": (module.weight[1],),
    }


def _fourier(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in LINEAR:
        return None
    count = by_pattern(settings.mapping("n_frequency_pattern"), module.path) or settings.number("n_frequency")
    return {"fourierft_spectrum": (count,)}


def _glora(module: Module, settings: Settings) -> Parts | None:
    """Five paths: A and B beside the weight, C its product with the bias, D and E beside the bias."""
    if module.kind is not Kind.LINEAR:
        return None
    inputs, outputs = known(module)
    size, biased = number(settings, "r"), "bias" in module.own
    parts: dict[str, tuple[int, ...]] = {}
    for path in "AB":
        parts |= _glora_path(f"glora_{path}", str(settings["config_A_B"]), outputs, inputs, size)
    product = str(settings["config_C"]) if biased and settings["config_C"] in {"lora", "vector"} else "none"
    parts |= _glora_path("glora_C", product, inputs, 1, size)
    for path in "DE":
        filled = {"vector": "X", "constant": "X"}.get(str(settings["config_D_E"])) if biased else None
        length = 1 if filled and settings["config_D_E"] == "constant" else outputs
        parts[f"glora_{path}.{filled or 'zeros'}"] = (length,)
    return parts


def _glora_path(name: str, kind: str, rows: int, columns: int, size: int) -> dict[str, tuple[int, ...]]:
    match kind:
        case "lora":
            return {f"{name}.Xd": (rows, size), f"{name}.Xu": (size, columns)}
        case "vector":
            return {f"{name}.X": (rows, 1)}
        case "constant":
            return {f"{name}.X": (1,)}
        case _:
            return {f"{name}.zeros": (rows, columns)}


def _gralora(inputs: int, outputs: int, settings: Settings) -> Parts:
    blocks, size, hybrid = number(settings, "gralora_k"), number(settings, "r"), settings.whole("hybrid_r")
    parts = {
        "gralora_A": (blocks, whole(inputs, blocks), size),
        "gralora_B": (blocks, size, whole(outputs, blocks)),
    }
    general = {"gralora_A_general.weight": (hybrid, inputs), "gralora_B_general.weight": (outputs, hybrid)}
    return {**parts, **general} if hybrid else parts


def _hira(module: Module, settings: Settings) -> Parts | None:
    size = None if settings.mapping("rank_pattern") else settings.number("r")  # PEFT 0.21 reads the pattern in vain
    inputs, outputs = module.sizes
    match module.kind:
        case Kind.EMBEDDING:
            return {"hira_embedding_A": (size, inputs), "hira_embedding_B": (outputs, size)}
        case Kind.CONVOLUTION:
            ones = (1,) * (len(module.weight) - 2)
            return {"hira_A": (size, *module.weight[1:]), "hira_B": (outputs, size, *ones)}
        case kind if kind in LINEAR:
            return {"hira_A": (size, inputs), "hira_B": (outputs, size)}
        case _:
            return None


def _ia3(module: Module, settings: Settings) -> Parts | None:
    """One number for every output, or for every input of a feed-forward module."""
    if module.kind not in {*LINEAR, Kind.CONVOLUTION}:
        return None
    inputs, outputs = module.sizes
    forward = _is_feedforward(module.path, settings)
    if module.kind is Kind.CONVOLUTION:
        return {"ia3_l": (1, inputs if forward else outputs, *(1,) * (len(module.weight) - 2))}
    return {"ia3_l": (1, inputs) if forward else (outputs, 1)}


def _is_feedforward(path: str, settings: Settings) -> bool:
    names = settings["feedforward_modules"]
    if isinstance(names, str):
        return decided(names, path)
    if not isinstance(names, list):
        names = data("peft_adapters")["feedforward"].get(settings.model_type, ())
    return any(isinstance(name, str) and path.endswith(name) for name in names)


def _lily(inputs: int, outputs: int, settings: Settings) -> Parts:
    size, experts = number(settings, "r"), number(settings, "num_B")
    return {
        "lily_A.weight": (size, inputs),
        "lily_B.weight": (size * experts, outputs),
        "lily_router.weight": (experts, size),
    }


def _layer_norm(module: Module, _settings: Settings) -> Parts | None:
    """A copy of the module, whichever it is."""
    return {f"ln_tuning_layers.{name}": shape for name, shape in module.own.items()} or None


def _miss(inputs: int, outputs: int, settings: Settings) -> Parts:
    size, how = number(settings, "r"), settings["init_weights"]
    if size > inputs:
        raise Refused(f"r {size} is more than the {inputs} inputs")
    match how:
        case "bat":
            return {"miss_block": (whole(outputs, size), size, size)}
        case "mini":
            return {"miss_block": (size, number(settings, "mini_r"))}
        case _:
            return {"miss_block": (size, outputs)}


def _osf(module: Module, settings: Settings) -> Parts | None:
    if module.kind is not Kind.LINEAR:
        return None
    inputs, outputs = known(module)
    if settings.mapping("rank_pattern"):
        raise TypeError("its patterns are searched for, not matched")
    least, wanted = min(inputs, outputs), settings["effective_rank"]
    if wanted is None:
        size = least // 2
    else:
        size = int(least * wanted) if isinstance(wanted, float) and 0 < wanted <= 1 else int(wanted)
    size = least - min(size, least)  # the largest values stay as they are
    low = {"U_low": (outputs, size), "S_low": (size,), "V_low": (size, inputs)}
    return {f"osf_svd_params.{name}": shape for name, shape in low.items()}


def _peanut(_inputs: int, outputs: int, settings: Settings) -> Parts:
    size, depth = number(settings, "r"), settings.whole("depth")
    inner = {f"peanut_{side}.{n}.weight": (size, size) for side in ("encoders", "decoders") for n in range(depth)}
    return {"peanut_A.weight": (size, outputs), "peanut_B.weight": (outputs, size), **inner}


def _poly(inputs: int, outputs: int, settings: Settings) -> Parts:
    size, tasks, skills, splits = (number(settings, key) for key in ("r", "n_tasks", "n_skills", "n_splits"))
    return {
        "poly_router.module_logits": (tasks, splits * skills),
        "poly_lora_A": (splits, skills, inputs // splits, size),
        "poly_lora_B": (splits, skills, size, outputs // splits),
    }


def _psoft(_inputs: int, _outputs: int, settings: Settings) -> Parts:
    size = number(settings, "r")
    parts = {"psoft_R.weight": (size * (size - 1) // 2,) if settings["psoft_orth"] else (size, size)}
    vectors = {f"psoft_R.vector_{side}": (size,) for side in "ab" if settings[f"psoft_mag_{side}"]}
    return {**parts, **vectors}


def _pvera(_inputs: int, outputs: int, settings: Settings) -> Parts:
    return {"pvera_lambda_b": (outputs,), "pvera_lambda_d": (2 * number(settings, "r"),)}


def _randlora(inputs: int, outputs: int, settings: Settings) -> Parts:
    size, least = number(settings, "r"), min(inputs, outputs)
    bases = -(-least // size)
    return {"randlora_lambda": (size, bases), "randlora_gamma": (bases, least)}


def _road(_inputs: int, outputs: int, settings: Settings) -> Parts:
    whole(outputs, number(settings, "group_size"))
    length = {"road_1": outputs // 2, "road_2": outputs, "road_4": outputs * 2}[str(settings["variant"])]
    return {"road_theta": (length,), "road_alpha": (length,)}


def _shira(module: Module, settings: Settings) -> Parts | None:
    if module.kind is not Kind.LINEAR:
        return None
    inputs, outputs = known(module)
    count = number(settings, "r") * (inputs + outputs)
    if count > inputs * outputs:
        raise Refused(f"{count:,} values are more than the weight has")
    return {"shira_weight": (count,), "shira_indices": (2, count)}


def _supertuning(inputs: int, outputs: int, settings: Settings) -> Parts:
    count = int(inputs * outputs * (1 - settings["sparsity"]))
    parts: dict[str, tuple[int, ...]] = {"supertuning_values": (count,)}
    if settings["save_precomputed_indices"]:
        parts["supertuning_indices"] = (count,)
    if size := settings.number("r"):
        parts |= {"supertuning_lora_A.weight": (size, inputs), "supertuning_lora_B.weight": (outputs, size)}
    return parts


def _tinylora(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in {*LINEAR, Kind.EMBEDDING}:
        return None
    inputs, outputs = known(module)
    if module.kind is Kind.EMBEDDING:
        inputs, outputs = outputs, inputs
    size = min(number(settings, "r"), inputs, outputs)
    parts: dict[str, tuple[int, ...]] = {"tinylora_A": (size, inputs), "tinylora_B": (outputs, size)}
    return {**parts, "tinylora_P": (number(settings, "u"), size, size)} if settings["save_projection"] else parts


def _tokens(module: Module, settings: Settings) -> Parts | None:
    tokens = settings["token_indices"]
    count = len(tokens) if isinstance(tokens, list) else None
    return {"trainable_tokens_delta": (count, module.weight[1])} if len(module.weight) == 2 else None


def _vblora(inputs: int, outputs: int, settings: Settings) -> Parts:
    size, length, bank = (number(settings, key) for key in ("r", "vector_length", "num_vectors"))
    logits = {
        "vblora_logits_A": (size, whole(inputs, length), bank),
        "vblora_logits_B": (whole(outputs, length), size, bank),
    }
    if not settings["save_only_topk_weights"]:
        return logits
    chosen = number(settings, "topk")
    saved = {f"{name}_topk_indices": (*shape[:2], chosen) for name, shape in logits.items()}
    return saved | {f"{name}_topk_weights": (*shape[:2], chosen - 1) for name, shape in logits.items()}


def _vera(_inputs: int, outputs: int, settings: Settings) -> Parts:
    return {"vera_lambda_b": (outputs,), "vera_lambda_d": (number(settings, "r"),)}


def _waveft(module: Module, settings: Settings) -> Parts | None:
    if module.kind not in LINEAR:
        return None
    if settings["proportional_parameters"]:
        return {"waveft_spectrum": (None,)}
    count = by_pattern(settings.mapping("n_frequency_pattern"), module.path) or settings.number("n_frequency")
    return {"waveft_spectrum": (count,)}


METHODS: Final[Mapping[str, Method]] = {
    "ADALORA": adalora,
    "BEFT": _linear(_beft),
    "BOFT": boft,
    "C3A": _c3a,
    "DEFT": _linear(_deft),
    "DELORA": _delora,
    "FOURIERFT": _fourier,
    "GLORA": _glora,
    "GRALORA": _linear(_gralora),
    "HIRA": _hira,
    "HRA": hra,
    "IA3": _ia3,
    "LILY": _linear(_lily),
    "LN_TUNING": _layer_norm,
    "LOHA": loha,
    "LOKR": lokr,
    "LORA": lora,
    "MISS": _linear(_miss),
    "OFT": oft,
    "OSF": _osf,
    "PEANUT": _linear(_peanut),
    "POLY": _linear(_poly),
    "PSOFT": _linear(_psoft),
    "PVERA": _linear(_pvera),
    "RANDLORA": _linear(_randlora),
    "ROAD": _linear(_road),
    "SHIRA": _shira,
    "SUPERTUNING": _linear(_supertuning),
    "TINYLORA": _tinylora,
    "TRAINABLE_TOKENS": _tokens,
    "UNILORA": _linear(lambda _inputs, _outputs, _settings: {}),
    "VBLORA": _linear(_vblora),
    "VERA": _linear(_vera),
    "WAVEFT": _waveft,
}
