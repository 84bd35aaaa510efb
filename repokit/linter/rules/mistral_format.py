"""WGT, CFG: Mistral's own format: params.json against its weights, and against the config.json beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Change, Example, Tensors, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.config import PARAMS
from repokit.printable import count

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

TEKKEN: Final = "tekken.json"
CONSOLIDATED: Final = "consolidated.safetensors"
_WEIGHTS: Final = re.compile(r"consolidated(?:-\d+-of-\d+)?\.safetensors")
_EMBEDDING: Final = "tok_embeddings.weight"  # a part of a checkpoint, such as a head for drafts, has none
_LAYER: Final = re.compile(r"layers\.(\d+)\.")

# What params.json of the examples says; the base's config.json says the same.
SIZES: Final = {
    "dim": 16,
    "head_dim": 8,
    "hidden_dim": 24,
    "n_heads": 2,
    "n_kv_heads": 1,
    "n_layers": 2,
    "rope_theta": 10000.0,
    "vocab_size": 32,
}
# mistral-common and vLLM transformers_utils/configs/mistral.py `_remap_mistral_config`.
_SAME: Final = {
    "dim": "hidden_size",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "vocab_size": "vocab_size",
}


def tensors(layers: int = 2) -> Tensors:
    """The names that mistral-inference gives the tensors of the base."""
    found = {"tok_embeddings.weight": (32, 16), "norm.weight": (16,), "output.weight": (32, 16)}
    for number in range(layers):
        block = f"layers.{number}."
        found |= {block + "attention_norm.weight": (16,), block + "ffn_norm.weight": (16,)}
        found |= {f"{block}attention.{name}.weight": (16, 16) for name in ("wq", "wo")}
        found |= {f"{block}attention.{name}.weight": (8, 16) for name in ("wk", "wv")}
        found |= {f"{block}feed_forward.{name}.weight": (24, 16) for name in ("w1", "w3")}
        found |= {f"{block}feed_forward.w2.weight": (16, 24)}
    return {name: ("BF16", shape) for name, shape in found.items()}


def in_its_format(
    params: Mapping[str, object] = SIZES, layers: int = 2, files: Mapping[str, Change] | None = None
) -> dict[str, Change]:
    """A change that puts Mistral's format beside the base's."""
    weights = safetensors(tensors(layers))
    plain = '{"config": {}, "vocab": []}'
    return {PARAMS: json.dumps(params), CONSOLIDATED: weights, TEKKEN: plain, **(files or {})}


class ContradictedParams(Rule):
    """The consolidated weights have other shapes, or other layers, than params.json says.

    mistral-inference and vLLM build the model by params.json, and stop at the first tensor that does not fit.
    """

    code = "WGT154"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a layer was lost", in_its_format(layers=1)),
        Example("the parameters of a wider model", in_its_format({**SIZES, "hidden_dim": 32}), also=("CFG252",)),
    )
    good = (Example("both formats", in_its_format()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        params = repository.document(PARAMS)
        files = [path for path in repository.files if _WEIGHTS.fullmatch(path)]
        if params is None or not files:
            return
        held = {tensor.name: tensor.shape for path in files for tensor in repository.header(path).tensors}
        number = params.integer("n_layers")
        layers = {int(match[1]) for name in held if (match := _LAYER.match(name))}
        if number is not None and _EMBEDDING in held and layers and layers != set(range(number)):
            message = f"holds {count(len(layers), 'layer')} of the {number:,} that {PARAMS} counts"
            yield self.finding(files[0], message, place=f"layers.{min(layers ^ set(range(number)))}")
        wrong = {name: shape for name, shape in expected(params).items() if held.get(name, shape) != shape}
        if wrong:
            name, shape = next(iter(wrong.items()))
            message = f"has {list(held[name])} in {name}; {PARAMS} gives {list(shape)}"
            yield self.finding(files[0], message, names=tuple(wrong), place=name)


def expected(params: Document) -> dict[str, tuple[int, ...]]:
    """Shapes of the first layer, and of the embedding, as far as params.json says them."""
    dim, heads, width = params.integer("dim"), params.integer("n_heads"), params.integer("head_dim")
    if dim is None or heads is None or "lora" in params or "quantization" in params:
        return {}
    width = width or dim // max(heads, 1)
    rows = {
        _EMBEDDING: params.integer("vocab_size"),
        "layers.0.attention.wq.weight": heads * width,
        "layers.0.attention.wk.weight": (params.integer("n_kv_heads") or heads) * width,
        "layers.0.feed_forward.w1.weight": params.integer("hidden_dim"),
    }
    return {name: (number, dim) for name, number in rows.items() if number is not None}


class DivergingParams(Rule):
    """params.json and config.json describe two models.

    Loaders of Mistral's format build the one, transformers the other; one of the two does not fit the weights.
    """

    code = "CFG252"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the parameters of a model with more heads",
            {PARAMS: json.dumps({**SIZES, "n_kv_heads": 2})},
        ),
    )
    good = (Example("the same sizes in both", in_its_format()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        params, config = repository.document(PARAMS), repository.config
        if params is None or config is None or "dim" not in params or "n_layers" not in params:
            return  # params.json is a name that other programs use too
        for key, name in _SAME.items():
            ours, theirs = params.integer(key), config.text.integer(name)
            if ours is not None and theirs is not None and ours != theirs:
                place = config.text.at(name)
                message = f"has {key} {ours:,}; {config.path} {place} is {theirs:,}"
                yield self.finding(PARAMS, message, place=params.at(key))


OF_CONFIG: Final = (DivergingParams(),)
RULES: Final = (ContradictedParams(),)
