"""The tensors that each method of PEFT saves for a module, and their shapes by adapter_config.json.

Source: peft 0.21.2 tuners/*/layer.py, measured on what save_pretrained writes for a two-layer llama. Only methods
whose shapes follow from numbers in the config are here; of the others nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.adapter import Adapter
    from repokit.repo.document import Document

_TUCKER: Final = frozenset({"hada_t1", "hada_t2", "lokr_t2"})  # convolutions: the other factors are transposed

Size: TypeAlias = int | None  # None: any
Shapes: TypeAlias = Mapping[str, tuple[Size, ...]]


class Kind(NamedTuple):
    """A method.

    Attributes:
        parts: The tensors of a module that this method is judged by, and those that come together.
        together: Parts of which a module has all or none.
        shapes: The shapes of parts, by config and module; a part that is not given may have any.
    """

    parts: frozenset[str]
    together: frozenset[str]
    shapes: Callable[[Document, Size], Shapes]


def kind_of(adapter: Adapter) -> Kind | None:
    """The method of an adapter, or None where it is not known here."""
    return KINDS.get(adapter.config.string("peft_type") or "")


def modules(adapter: Adapter, kind: Kind) -> Mapping[str, Mapping[str, TensorInfo]]:
    """The parts of every module that has one; the module is "" for what stands at the top."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in adapter.tensors:
        module, _, part = tensor.name.rpartition(".")
        if part in {"weight", "bias"}:
            module, _, parent = module.rpartition(".")
            part = f"{parent}.{part}"
        if part in kind.parts:
            found.setdefault(module, {})[part] = tensor
    return found


def wrong_shapes(adapter: Adapter, kind: Kind) -> Iterator[tuple[TensorInfo, tuple[Size, ...]]]:
    """Tensors of another shape than the config gives, each with that shape."""
    for module, parts in modules(adapter, kind).items():
        if parts.keys() & _TUCKER or _is_convolution(parts):
            continue
        wanted = kind.shapes(adapter.config, adapter.rank_of(module) or None)  # 0 is a finding of its own
        judged = {part: tensor for part, tensor in parts.items() if part in wanted}
        for part, tensor in judged.items():
            if not fits(tensor.shape, wanted[part]) and not _is_adjusted(adapter.config, part, tensor):
                yield tensor, wanted[part]


def _is_convolution(parts: Mapping[str, TensorInfo]) -> bool:
    """Whether both factors of HiRA have the dimensions of a kernel beside the two of a matrix."""
    factors = [parts[part] for part in ("hira_A", "hira_B") if part in parts]
    return len(factors) > 1 and all(len(factor.shape) > 2 for factor in factors)


def fits(shape: tuple[int, ...], wanted: tuple[Size, ...]) -> bool:
    """Whether a shape has as many dimensions, and each of the size that is wanted."""
    return len(shape) == len(wanted) and all(size in (None, length) for length, size in zip(shape, wanted, strict=True))


def _positive(config: Document, key: str) -> Size:
    """A number of the config, or None where it is absent, or 0 for `worked out from the other`."""
    return config.integer(key) or None


def _ada(_: Document, rank: Size) -> Shapes:
    return {"lora_A": (rank, None), "lora_B": (None, rank), "lora_E": (rank, 1)}


def _loha(_: Document, rank: Size) -> Shapes:
    down, up = (None, rank), (rank, None)
    return {"hada_w1_a": down, "hada_w1_b": up, "hada_w2_a": down, "hada_w2_b": up}


def _lokr(_: Document, rank: Size) -> Shapes:
    down, up = (None, rank), (rank, None)
    return {"lokr_w1_a": down, "lokr_w1_b": up, "lokr_w2_a": down, "lokr_w2_b": up}


def _vera(_: Document, rank: Size) -> Shapes:
    return {
        "vera_lambda_b": (None,),
        "vera_lambda_d": (rank,),
        "vera_A": (rank, None),
        "vera_B": (None, rank),
    }


def _oft(config: Document, _: Size) -> Shapes:
    """Blocks are skew-symmetric: b (b - 1) / 2 numbers. With r there are r of them, with block_share one."""
    size, blocks = _positive(config, "oft_block_size"), _positive(config, "r")
    blocks = 1 if config.flag("block_share") else blocks
    return {"oft_R.weight": (blocks, None if size is None else size * (size - 1) // 2)}


def _is_adjusted(config: Document, part: str, tensor: TensorInfo) -> bool:
    """Whether OFT took other blocks than were asked for, as it does where those do not divide a module's inputs."""
    if part != "oft_R.weight" or len(tensor.shape) != 2:
        return False
    blocks, numbers = tensor.shape
    inputs = blocks * (1 + isqrt(1 + 8 * numbers)) // 2
    asked = _positive(config, "oft_block_size") or _positive(config, "r") or 1
    return config.flag("block_share") is True or inputs % asked != 0


def _boft(config: Document, _: Size) -> Shapes:
    """Scales are a column in a linear module and a row in a convolution."""
    size, blocks = _positive(config, "boft_block_size"), _positive(config, "boft_block_num")
    return {"boft_R": (None, blocks, size, size), "boft_s": (None, None)}


def _hira(_config: Document, _rank: Size) -> Shapes:
    """Any rank: PEFT 0.21 reads rank_pattern in vain."""
    return {"hira_A": (None, None), "hira_B": (None, None)}


def _delora(_: Document, rank: Size) -> Shapes:
    return {"delora_A": (rank, None), "delora_B": (None, rank), "delora_lambda": (1,), "delora_w_norm": (None,)}


def _hra(_: Document, rank: Size) -> Shapes:
    return {"hra_u": (None, rank)}


def _vblora(config: Document, rank: Size) -> Shapes:
    bank = (_positive(config, "num_vectors"), _positive(config, "vector_length"))
    return {
        "vblora_logits_A": (rank, None, bank[0]),
        "vblora_logits_B": (None, rank, bank[0]),
        "vblora_vector_bank": bank,
    }


def _randlora(_: Document, rank: Size) -> Shapes:
    return {"randlora_lambda": (rank, None), "randlora_gamma": (None, None)}


def _poly(_: Document, rank: Size) -> Shapes:
    return {"poly_lora_A": (None, None, None, rank), "poly_lora_B": (None, None, rank, None)}


def _fourier(config: Document, _: Size) -> Shapes:
    count = None if config.raw.get("n_frequency_pattern") else _positive(config, "n_frequency")
    return {"fourierft_spectrum": (count,)}


def _norm(_config: Document, _rank: Size) -> Shapes:
    return {"ln_tuning_layers.weight": (None,), "ln_tuning_layers.bias": (None,)}


def _tokens(config: Document, _: Size) -> Shapes:
    return {"trainable_tokens_delta": (len(config.integers("token_indices")) or None, None)}


def _prompt(config: Document, _: Size) -> Shapes:
    """Encoder-decoders have a prompt for each of their two parts."""
    tokens, parts = _positive(config, "num_virtual_tokens"), _positive(config, "num_transformer_submodules")
    rows = None if tokens is None or parts is None else tokens * parts
    return {"prompt_embeddings": (rows, _positive(config, "token_dim"))}


def _prefix(config: Document, _: Size) -> Shapes:
    """A key and a value in every layer."""
    layers, width = _positive(config, "num_layers"), _positive(config, "token_dim")
    columns = None if layers is None or width is None else layers * 2 * width
    return {"prompt_embeddings": (_positive(config, "num_virtual_tokens"), columns)}


def _cpt(config: Document, _: Size) -> Shapes:
    return {"prompt_embeddings": (_positive(config, "num_virtual_tokens"), _positive(config, "token_dim"))}


def _kind(parts: str, shapes: Callable[[Document, Size], Shapes], together: str = "") -> Kind:
    return Kind(frozenset(parts.split()), frozenset(together.split()), shapes)


_PROMPT: Final = _kind("prompt_embeddings", _prompt)

KINDS: Final[Mapping[str, Kind]] = {
    "ADALORA": _kind("lora_A lora_B lora_E", _ada, "lora_A lora_B lora_E"),
    "BOFT": _kind("boft_R boft_s", _boft, "boft_R boft_s"),
    "CPT": _kind("prompt_embeddings", _cpt),
    "DELORA": _kind("delora_A delora_B delora_lambda delora_w_norm", _delora, "delora_A delora_B"),
    "FOURIERFT": _kind("fourierft_spectrum", _fourier),
    "HIRA": _kind("hira_A hira_B", _hira, "hira_A hira_B"),
    "HRA": _kind("hra_u", _hra),
    "IA3": _kind("ia3_l", lambda _config, _rank: {}),
    "LN_TUNING": _kind("ln_tuning_layers.weight ln_tuning_layers.bias", _norm),
    "LOHA": _kind(
        "hada_w1_a hada_w1_b hada_w2_a hada_w2_b hada_t1 hada_t2", _loha, "hada_w1_a hada_w1_b hada_w2_a hada_w2_b"
    ),
    "LOKR": _kind("lokr_w1 lokr_w2 lokr_w1_a lokr_w1_b lokr_w2_a lokr_w2_b lokr_t2", _lokr),
    "MULTITASK_PROMPT_TUNING": _PROMPT,
    "OFT": _kind("oft_R.weight oft_embedding_R.weight", _oft),
    "POLY": _kind("poly_lora_A poly_lora_B", _poly, "poly_lora_A poly_lora_B"),
    "PREFIX_TUNING": _kind("prompt_embeddings", _prefix),
    "PROMPT_TUNING": _PROMPT,
    "P_TUNING": _PROMPT,
    "RANDLORA": _kind("randlora_lambda randlora_gamma", _randlora, "randlora_lambda randlora_gamma"),
    "TRAINABLE_TOKENS": _kind("trainable_tokens_delta", _tokens),
    "VBLORA": _kind("vblora_logits_A vblora_logits_B vblora_vector_bank", _vblora),
    "VERA": _kind("vera_lambda_b vera_lambda_d vera_A vera_B", _vera, "vera_lambda_b vera_lambda_d"),
}
PROMPTS: Final = frozenset(
    {"CPT", "MULTITASK_PROMPT_TUNING", "PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "CARTRIDGE"}
)
