"""Merges against PEFT: what `merge_and_unload` gives, and what the model gives that was not merged."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from adapter_cases import ALL, BASES, CAUSAL, LABELS, SEQ2SEQ
from loading import load_report

from repokit.builder.build import carry_out
from repokit.builder.planner import make_plan
from repokit.schema.recipe import Recipe

pytestmark = pytest.mark.oracle

DTYPES = ("float32", "bfloat16", "float16")
OTHER_BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "whisper": (
        "WhisperForConditionalGeneration",
        {
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "vocab_size": 100,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 20,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
}


@dataclass(frozen=True)
class Merge:
    """An adapter on a small base."""

    base: str
    config: dict[str, Any] = field(default_factory=dict)
    method: str = "LORA"


MERGES: dict[str, Merge] = {
    "lora": Merge("llama", {"target_modules": ALL}),
    "rslora": Merge("llama", {"use_rslora": True, "r": 5}),
    "rank and alpha patterns": Merge(
        "llama",
        {
            "target_modules": ALL,
            "rank_pattern": {"q_proj": 2, r"layers\.1\..*(up|down)_proj": 6},
            "alpha_pattern": {"^model.layers.0.self_attn.k_proj": 3, "v_proj": 32},
        },
    ),
    "dora": Merge("llama", {"target_modules": "all-linear", "use_dora": True}),
    "bias": Merge("llama biased", {"target_modules": ["q_proj"], "bias": "all", "lora_bias": True}),
    "bias of the adapted": Merge("llama biased", {"target_modules": ["q_proj"], "bias": "lora_only"}),
    "modules to save": Merge(
        "llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens", "norm"]}
    ),
    "layers to transform": Merge(
        "llama", {"target_modules": ALL, "layers_to_transform": [1], "layers_pattern": "layers"}
    ),
    "embedding and head": Merge("llama", {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
    "dora of embedding and head": Merge(
        "llama", {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "use_dora": True}
    ),
    "trainable tokens": Merge(
        "llama", {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 7], "lm_head": [1]}}
    ),
    "tokens of a tied embedding": Merge(
        "llama tied", {"target_modules": ["q_proj"], "trainable_token_indices": [3, 1]}
    ),
    "fan in fan out": Merge("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"]}),
    "dora, fan in fan out": Merge("gpt2", {"target_modules": "all-linear", "use_dora": True, "bias": "all"}),
    "convolution": Merge("resnet", {"target_modules": ["convolution"], "task_type": None}),
    "convolution of one dimension": Merge(
        "whisper", {"target_modules": ["conv1", "conv2", "q_proj"], "task_type": SEQ2SEQ}
    ),
    "convolution of three dimensions": Merge("qwen2.5-vl", {"target_modules": ["patch_embed.proj", "v_proj"]}),
    "classifier": Merge("bert", {"task_type": LABELS}),
    "encoder and decoder": Merge("t5", {"task_type": SEQ2SEQ, "target_modules": "all-linear"}),
    "vision model": Merge("qwen2.5-vl", {"target_modules": "all-linear", "modules_to_save": ["merger"]}),
    "experts in one parameter": Merge(
        "mixtral", {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}
    ),
    "transposed experts": Merge(
        "gpt-oss", {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}
    ),
    "experts as they were in transformers 4": Merge(
        "mixtral", {"target_modules": ["q_proj", "w1", "w2", "w3", "gate"]}
    ),
    "a single parameter": Merge("llama", {"target_modules": ["q_proj"], "target_parameters": ["mlp.up_proj.weight"]}),
    "adalora": Merge("llama", {"total_step": 10, "target_modules": "all-linear", "init_r": 6}, "ADALORA"),
    "new tokens alone": Merge("llama tied", {"token_indices": [1, 2, 5]}, "TRAINABLE_TOKENS"),
}
# In F32 PEFT's norm of the output of a convolution, or the product that a convolution library makes of the factors, may
# be further from the exact result than the bound; what is built is then the nearer one.
DORA_OF_CONVOLUTIONS = Merge("resnet", {"target_modules": ["convolution"], "use_dora": True, "task_type": None})


def made(name: str) -> tuple[Any, Any]:
    """The class of a base, and its config."""
    import transformers

    architecture, config = {**BASES, **OTHER_BASES}[name]
    model = getattr(transformers, architecture)
    return model, model.config_class(**config)


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def train(model: Any, seed: int) -> None:
    """Values as training could have left them: no factor is zero."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad or "lora_" in name:
            values = torch.randn(parameter.shape, generator=generator) * 0.05
            trained = parameter * (1 + 2 * values) if "magnitude" in name else values
            with torch.no_grad():
                parameter.copy_(trained.to(parameter.dtype))


@dataclass
class Forge:
    """A folder with a base and adapters, and what PEFT makes of them."""

    folder: Path
    model: Any

    def loaded(self) -> Any:
        return self.model.from_pretrained(self.folder / "base", dtype="auto").eval()

    def adapter(self, merge: Merge, name: str = "adapter", seed: int = 1) -> None:
        import peft
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

        config = {kind.value: config for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}[merge.method]
        own = {"r": 4, "lora_alpha": 9} if merge.method == "LORA" else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.get_peft_model(self.loaded(), config(**{"task_type": CAUSAL, **own, **merge.config}))
            train(model, seed)
            model.save_pretrained(self.folder / name)

    def unmerged(self, name: str = "adapter") -> Any:
        import peft

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peft.PeftModel.from_pretrained(self.loaded(), self.folder / name).eval()

    def theirs(self, name: str = "adapter") -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.unmerged(name).merge_and_unload().state_dict()

    def build(self, **keys: Any) -> Path:
        """A merge by us; the source is the adapter unless it is said otherwise."""
        recipe = {
            "version": 1,
            "kind": "full",
            "source": str(self.folder / "adapter"),
            "output": str(self.folder / "out"),
            "license": {"id": "apache-2.0"},
            "base": {"path": str(self.folder / "base"), "id": "org/base"},
            **keys,
        }
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        carry_out(make_plan(Recipe.model_validate(recipe), folder=self.folder), gate=lambda _source, _stage: None)
        return self.folder / "out"


@cache
def forge(folder: Path, base: str, dtype: str, **save: Any) -> Forge:
    import torch

    folder = folder / f"{base}-{dtype}"
    model, config = made(base)
    torch.manual_seed(0)
    model(config).to(torch_dtype(dtype)).save_pretrained(folder / "base", **save)
    return Forge(folder, model)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("merges")


def beyond(ours: Any, theirs: Any, before: Any, dtype: str) -> Any:
    """Which elements differ by more than 2 x eps(stored dtype) x (abs(W) + abs(change))."""
    import torch

    weight, one, other = before.double(), ours.double(), theirs.double()
    return (one - other).abs() > 2 * torch.finfo(torch_dtype(dtype)).eps * (weight.abs() + (other - weight).abs())


def check(forge: Forge, dtype: str, output: Path, theirs: dict[str, Any]) -> None:
    """Holds what was built against PEFT, tensor by tensor; and what no adapter changes against the base."""
    import torch

    report = load_report(output)
    assert report.clean, (report.missing, report.unexpected, report.mismatched)
    before = forge.loaded().state_dict()
    assert report.tensors.keys() == theirs.keys() == before.keys()
    changed = {name for name in theirs if not torch.equal(theirs[name], before[name])}
    assert changed
    far = {name for name in changed if beyond(report.tensors[name], theirs[name], before[name], dtype).any()}
    assert not far
    assert not {name for name in theirs.keys() - changed if not torch.equal(report.tensors[name], before[name])}


# Every kind in one of the dtypes in every run, in each of them under `-m full`.
KINDS = [
    pytest.param(name, dtype, marks=() if place == number % len(DTYPES) else pytest.mark.full)
    for number, name in enumerate(MERGES)
    for place, dtype in enumerate(DTYPES)
]


@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_a_merge_is_what_peft_gives(folder, name, dtype):
    merge = MERGES[name]
    place = forge(folder, merge.base, dtype)
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(merge)
    check(place, dtype, place.build(), place.theirs())


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_dora_of_convolutions_is_what_peft_gives(folder, dtype):
    place = forge(folder, DORA_OF_CONVOLUTIONS.base, dtype)
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(DORA_OF_CONVOLUTIONS)
    check(place, dtype, place.build(), place.theirs())


def test_dora_of_convolutions_is_no_further_from_the_exact_result_than_peft(folder):
    import peft

    place = forge(folder, DORA_OF_CONVOLUTIONS.base, "float32")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(DORA_OF_CONVOLUTIONS)
    ours, theirs, before = load_report(place.build()).tensors, place.theirs(), place.loaded().state_dict()
    whole = peft.PeftModel.from_pretrained(place.loaded().double(), place.folder / "adapter").double()
    exact = whole.merge_and_unload().state_dict()
    for name, tensor in theirs.items():
        far = beyond(ours[name], tensor, before[name], "float32")
        assert (ours[name] - exact[name]).abs()[far].le((tensor - exact[name]).abs()[far]).all(), name


@pytest.mark.parametrize("saved", ["bfloat16", "float16"])
def test_factors_of_16_bits_are_merged_as_peft_does(folder, saved):
    from safetensors.torch import load_file, save_file

    place = forge(folder, "llama", "bfloat16")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(MERGES["lora"])
    path = place.folder / "adapter/adapter_model.safetensors"
    halved = {name: tensor.to(torch_dtype(saved)) for name, tensor in load_file(path).items()}
    save_file(halved, path, {"format": "pt"})
    check(place, "bfloat16", place.build(), place.theirs())


def test_an_adapter_in_a_pickle_is_merged(folder):
    import torch
    from safetensors.torch import load_file

    place = forge(folder, "llama", "bfloat16")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(MERGES["rank and alpha patterns"])
    theirs = place.theirs()
    path = place.folder / "adapter/adapter_model.safetensors"
    # A transposed view, as a trainer may leave it.
    tensors = {name: tensor.T.contiguous().T for name, tensor in load_file(path).items()}
    torch.save(tensors, path.with_suffix(".bin"))
    path.unlink()
    check(place, "bfloat16", place.build(), theirs)


def test_a_base_in_shards_and_pickles_is_merged_into(folder, tmp_path):
    import torch

    place = forge(folder, "llama", "float16")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(MERGES["lora"])
    theirs = place.theirs()
    other = Forge(tmp_path, place.model)
    shutil.copytree(place.folder / "adapter", tmp_path / "adapter")
    (tmp_path / "base").mkdir()
    for file in ("config.json", "generation_config.json"):
        shutil.copy(place.folder / "base" / file, tmp_path / "base")
    torch.save(place.loaded().state_dict(), tmp_path / "base/pytorch_model.bin")
    check(place, "float16", other.build(weights={"max_shard_size": "20KB"}), theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_adapters_are_what_peft_gives_for_all_of_them(folder, dtype):
    """PEFT rounds to the stored dtype after each of them, so the bound counts the change that each makes alone."""
    import peft
    import torch

    place = forge(folder, "llama", dtype)
    names = [f"adapter-{number}" for number in range(3)]
    for name, merge in zip(names, ("lora", "rank and alpha patterns", "dora"), strict=True):
        shutil.rmtree(place.folder / name, ignore_errors=True)
        place.adapter(MERGES[merge], name, seed=int(name[-1]))
    model = peft.PeftModel.from_pretrained(place.loaded(), place.folder / names[0], adapter_name=names[0])
    for name in names[1:]:
        model.load_adapter(place.folder / name, adapter_name=name)
    for module in model.modules():
        if hasattr(module, "set_scale"):
            module.set_scale(names[1], 0.5)
    theirs = model.merge_and_unload(adapter_names=names).state_dict()
    adapters = [{"path": names[0]}, {"path": names[1], "weight": 0.5}, {"path": names[2]}]
    output = place.build(source=str(place.folder / "base"), base={}, merge={"adapters": adapters})
    ours, before = load_report(output).tensors, place.loaded().state_dict()
    alone = [place.theirs(name) for name in names]
    for name, tensor in theirs.items():
        changes = sum((merged[name].double() - before[name].double()).abs() for merged in alone)
        bound = 2 * torch.finfo(torch_dtype(dtype)).eps * (before[name].double().abs() + changes)
        assert ((ours[name].double() - tensor.double()).abs() <= bound).all(), name


def logits(model: Any) -> Any:
    import torch

    tokens = torch.arange(18).reshape(2, 9)
    with torch.no_grad():
        return model(input_ids=tokens).logits


TIED = {
    "the embedding alone": Merge("llama tied", {"target_modules": ["q_proj", "embed_tokens"]}),
    "the head alone": Merge("llama tied", {"target_modules": ["q_proj", "lm_head"]}),
    "both, apart": Merge("llama tied", {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
    "both, as one": Merge(
        "llama tied", {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "ensure_weight_tying": True}
    ),
    "the embedding in full": Merge("llama tied", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "the embedding in full, as one": Merge(
        "llama tied",
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ),
    "the head in full": Merge("llama tied", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "of Conv1D": Merge("gpt2", {"target_modules": ["c_attn", "wte"]}),
}


@pytest.mark.parametrize("name", TIED)
def test_a_merge_into_a_tied_model_answers_as_the_adapter_did(folder, name):
    """merge_and_unload adds to one weight what was trained for the other, or adds it twice: no oracle for these."""
    place = forge(folder, TIED[name].base, "float32")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(TIED[name])
    wanted = logits(place.unmerged())
    assert (logits(place.loaded()) - wanted).abs().max() > 0.01
    output = place.build()
    assert load_report(output).clean
    assert (logits(place.model.from_pretrained(output).eval()) - wanted).abs().max() < 1e-5


def test_names_of_transformers_4_are_found(folder):
    """Adapters of vision models were trained when the language model was at another place."""
    from safetensors.torch import load_file, save_file

    place = forge(folder, "qwen2.5-vl", "bfloat16")
    shutil.rmtree(place.folder / "adapter", ignore_errors=True)
    place.adapter(Merge("qwen2.5-vl", {"target_modules": ALL}))
    theirs = place.theirs()
    path = place.folder / "adapter/adapter_model.safetensors"
    tensors = load_file(path)
    older = {
        name.replace("model.model.language_model.", "model.model.").replace(
            "model.model.visual.", "model.visual."
        ): tensor
        for name, tensor in tensors.items()
    }
    assert older.keys() != tensors.keys()
    save_file(older, path, {"format": "pt"})
    check(place, "bfloat16", place.build(), theirs)


def test_a_resized_vocabulary_is_merged(folder, tmp_path):
    import peft

    place = forge(folder, "llama", "float32")
    model = place.loaded()
    model.resize_token_embeddings(108)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type=CAUSAL, target_modules=["q_proj"]))
    train(model, 1)
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=True)
    theirs = model.merge_and_unload().state_dict()
    shutil.copytree(place.folder / "base", tmp_path / "base")
    output = Forge(tmp_path, place.model).build()
    report = load_report(output)
    assert report.clean
    assert json.loads((output / "config.json").read_bytes())["vocab_size"] == 108
    assert {name: tuple(tensor.shape) for name, tensor in report.tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in theirs.items()
    }
    assert (report.tensors["model.embed_tokens.weight"] == theirs["model.embed_tokens.weight"]).all()
