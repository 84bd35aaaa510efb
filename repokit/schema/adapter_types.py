"""What adapter_config.json holds for each method of PEFT: data/peft_types.json, generated from its config classes.

PEFT drops keys that are none of the method's fields, with a warning (peft 0.21 config.py, from_peft_type), and older
versions stop at them (before 0.14: huggingface/peft#2275). So such a key is never wrong, and may still be worth a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from repokit.resources import data

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where PEFT's annotations say less than its code, or more. A mapping of names to ranks is annotated as `dict`;
# tuners_utils.py check_target_module_exists() takes a list where some methods annotate a string; and every alpha is
# only ever divided, so that it may be a fraction although most are annotated as `int`.
_SHARPER: Final[Mapping[str, str]] = {
    "alpha": "float",
    "alpha_pattern": "dict[str, float]",
    "layers_pattern": "list[str] | str",
    "lora_alpha": "float",
    "psoft_alpha": "float",
    "randlora_alpha": "float",
    "rank_pattern": "dict[str, int]",
}
# AdaLoRA writes which singular values it kept: adalora/model.py resize_modules_by_rank_pattern().
_SHARPER_IN: Final[Mapping[str, Mapping[str, str]]] = {
    "ADALORA": {"rank_pattern": "dict[str, int | list[bool]]"},
    "OSF": {"rank_pattern": "dict[str, float | int]"},
}

# What the more frequent fields mean. The others have the docstrings of PEFT.
MEANINGS: Final[Mapping[str, str]] = {
    "r": "Rank of the update.",
    "alpha": "Scale: the update is multiplied by alpha / r.",
    "lora_alpha": "Scale: the update is multiplied by lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.",
    "lora_dropout": "Probability, 0 to 1; has no effect after training.",
    "target_modules": 'Names or ends of module paths; as a string a regular expression, or "all-linear".',
    "exclude_modules": "Names or ends of module paths that are left alone; as a string a regular expression.",
    "target_parameters": "Names of parameters that are adapted themselves, as the fused experts of a layer.",
    "modules_to_save": "Modules that were trained in full; their weights lie beside the adapter's.",
    "layers_to_transform": "Numbers of the layers that are adapted, from 0; null for all.",
    "layers_pattern": "Name of the list of layers in module paths (`layers`, `h`); with layers_to_transform only.",
    "layer_replication": "[[first layer, one past the last], ...]: the base's layers in the order of the new stack.",
    "rank_pattern": "Regular expression for the end of a module path -> rank, instead of r.",
    "alpha_pattern": "Regular expression for the end of a module path -> alpha.",
    "trainable_token_indices": "Ids of tokens whose embeddings were trained; or module -> ids.",
    "bias": "Which biases were trained: none, all, or those of the adapted modules (lora_only).",
    "lora_bias": "Whether lora_B has a bias.",
    "fan_in_fan_out": "Whether the base stores weights as (in, out), as GPT-2 does.",
    "use_rslora": "Whether the scale is lora_alpha / sqrt(r).",
    "use_dora": "Whether weights are split into magnitude and direction (DoRA).",
    "use_qalora": "Whether the update is pooled over groups of qalora_group_size inputs (QA-LoRA).",
    "init_lora_weights": "How weights were initialised: true, false, gaussian, pissa, olora, eva, corda, loftq, ...",
    "loftq_config": "Settings of LoftQ's initialisation; {} without.",
    "eva_config": "Settings of EVA's initialisation.",
    "corda_config": "Settings of CorDA's initialisation.",
    "megatron_config": "Settings of Megatron's parallel layers.",
    "megatron_core": "Name of Megatron's module.",
    "alora_invocation_tokens": "Token ids after which the adapter is active (aLoRA).",
    "ensure_weight_tying": "Whether tied weights of the base stay tied.",
    "target_r": "Rank that AdaLoRA aimed for, on average.",
    "init_r": "Rank with which AdaLoRA began.",
    "total_step": "Steps of the training that AdaLoRA planned for.",
    "feedforward_modules": "Those of target_modules that are feed-forward: IA3 scales their inputs.",
    "num_virtual_tokens": "Length of the prompt that was learnt, in tokens.",
    "token_dim": "Width of the base's embeddings.",
    "num_transformer_submodules": "1 for decoders, 2 for encoder-decoders.",
    "num_attention_heads": "Number of attention heads of the base.",
    "num_layers": "Number of layers of the base.",
    "prefix_projection": "Whether the prefix was reparameterised by an MLP.",
    "encoder_hidden_size": "Width of the prompt encoder.",
    "prompt_tuning_init": "RANDOM, TEXT or SAMPLE_VOCAB.",
    "prompt_tuning_init_text": "The text that the prompt began as.",
    "tokenizer_name_or_path": "Id of the tokenizer that split the initial text.",
    "token_indices": "Ids of the tokens whose embeddings were trained.",
    "projection_prng_key": "Seed of the shared random matrices.",
    "save_projection": "Whether the shared random matrices lie in the file.",
    "oft_block_size": "Size of the orthogonal blocks; 0 where r is given.",
    "boft_block_size": "Size of the butterfly's blocks; 0 where boft_block_num is given.",
    "boft_block_num": "Number of the butterfly's blocks; 0 where boft_block_size is given.",
    "n_frequency": "Number of Fourier coefficients per module.",
    "adapters": "Name -> id or path of an adapter that is mixed in.",
}


@dataclass(frozen=True, slots=True)
class AdapterType:
    """One method of PEFT.

    Attributes:
        name: Its peft_type, such as `LORA`.
        known: Whether the version of PEFT in `source()` has it. A newer one may.
        fields: Field -> type, in the notation of data/peft_types.json; empty where the method is not known.
    """

    name: str
    known: bool
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of an adapter_config.json that is no field of its method.

    Attributes:
        key: The key.
        null: Whether its value is null: a newer or older PEFT wrote it, and it means nothing.
        meant: The field of this method that is spelled almost so, and is not set.
        types: The methods that have such a field.
    """

    key: str
    null: bool
    meant: str | None
    types: tuple[str, ...]


def source() -> str:
    """The version that the table speaks of: `peft 0.21.2`."""
    return str(data("peft_types")["source"]).partition(",")[0]


def type_names() -> tuple[str, ...]:
    """Every known peft_type, sorted."""
    return tuple(data("peft_types")["types"])


@cache
def adapter_type(name: str) -> AdapterType:
    """The method of a peft_type. PEFT looks it up as it is spelled; `lora` is no method."""
    table = data("peft_types")
    own: Mapping[str, str] | None = table["types"].get(name)
    if own is None:
        return AdapterType(name, known=False, fields=MappingProxyType({}))
    sharper = {**_SHARPER, **_SHARPER_IN.get(name, {})}
    fields = {key: sharper.get(key, spelled) for key, spelled in own.items()}
    return AdapterType(name, known=True, fields=MappingProxyType({**table["common"], **fields}))


def types_with(field: str) -> tuple[str, ...]:
    """The methods that have a field, sorted."""
    return tuple(name for name in type_names() if field in adapter_type(name).fields)


def unknown_keys(raw: Mapping[str, Any]) -> tuple[UnknownKey, ...]:
    """Keys that are no field of the method that `peft_type` names, in the file's order; () where that is not known."""
    name = raw.get("peft_type")
    kind = adapter_type(name) if isinstance(name, str) else None
    if kind is None or not kind.known:
        return ()
    free = [field for field in kind.fields if field not in raw]
    keys = (key for key in raw if key not in kind.fields)
    return tuple(UnknownKey(key, raw[key] is None, _near(key, free), types_with(key)) for key in keys)


def _near(key: str, fields: list[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(key, fields, n=1, cutoff=0.85)), None)
