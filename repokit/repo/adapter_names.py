"""How PEFT names the tensors of a saved adapter, and what other names tell of how it was saved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "base_model.model."

# Where parameters of the methods end, and what may follow (peft 0.21 PEFT_TYPE_TO_PREFIX_MAPPING and the layers'
# adapter_layer_names). Behind them stands the adapter's name while it is in memory.
NAMED: Final = re.compile(
    r"\.(?:lora_(?:embedding_)?[AB]|lora_E|lora_magnitude_vector|ia3_l|hada_[wt][12](?:_[ab])?|lokr_(?:[wt][12])(?:_[ab])?"
    r"|vera_lambda_[bd]|oft_R|boft_[Rs]|hra_u|miss_block|fourierft_spectrum|ln_tuning_layers|randlora_(?:lambda|gamma)"
    r"|delora_(?:A|B|lambda|w_norm)|hira_[AB]|trainable_tokens_delta|modules_to_save)"
    r"\.(?!weight$|bias$)(?P<adapter>[^.]+)(?:\.[^.]+)*$"
)


def is_shared(name: str) -> bool:
    """Whether a tensor belongs to the adapter as a whole: `base_model.vera_A`, and never to a module."""
    return name.startswith("base_model.") and not NAMED_PART.search(name)


NAMED_PART: Final = re.compile(r"\.(?:lora_|ia3_|hada_|lokr_|vera_lambda_|oft_|boft_)")

# How the tensors of a method begin, behind the module's path (peft 0.21 PEFT_TYPE_TO_PREFIX_MAPPING); of VeRA and its
# kin the matrices that all modules share too.
PARTS: Final[Mapping[str, str]] = {
    "ADALORA": "lora_",
    "ADAMSS": "adamss_",
    "ADAPTION_PROMPT": "adaption_",
    "BEFT": "beft_",
    "BOFT": "boft_",
    "C3A": "c3a_",
    "DEFT": "deft_",
    "DELORA": "delora_",
    "FOURIERFT": "fourierft_",
    "FROD": "frod_",
    "GLORA": "glora_",
    "GRALORA": "gralora_",
    "HIRA": "hira_",
    "HRA": "hra_",
    "IA3": "ia3_",
    "LILY": "lily_",
    "LN_TUNING": "ln_tuning_",
    "LOHA": "hada_",
    "LOKR": "lokr_",
    "LORA": "lora_",
    "MISS": "miss_",
    "OFT": "oft_",
    "OSF": "osf_",
    "PEANUT": "peanut_",
    "POLY": "poly_",
    "PSOFT": "psoft_",
    "PVERA": "pvera_",
    "RANDLORA": "randlora_",
    "ROAD": "road_",
    "SHADOW": "shadow_",
    "SHIRA": "shira_",
    "SUPERTUNING": "supertuning_",
    "TINYLORA": "tinylora_",
    "TRAINABLE_TOKENS": "trainable_tokens_",
    "UNILORA": "unilora_",
    "VBLORA": "vblora_",
    "VERA": "vera_",
    "WAVEFT": "waveft_",
    "XLORA": "xlora_",
}
