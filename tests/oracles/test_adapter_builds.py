"""Adapters that PEFT wrote are built, and PEFT loads what was built onto the base: the same answers, the same names."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adapter_cases import BASES, CASES

from repokit import api
from repokit.errors import PlanError
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.adapter_names import PARTS
from repokit.schema.recipe import Recipe

pytestmark = pytest.mark.oracle

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
# One of every method and of every variant of LoRA on a language model. `-m full` takes every case.
TEXT = ("llama", "llama biased", "llama tied", "llama classifier", "gpt2", "bert", "mixtral", "t5")
METHODS = dict.fromkeys(method for method, _, _ in CASES)
FIRST = {next(number for number, case in enumerate(CASES) if case[0] == method) for method in METHODS}
ALWAYS = sorted({number for number, case in enumerate(CASES) if case[0] == "LORA" and case[1] in TEXT} | FIRST)
# What PEFT itself does not load again as it was.
NOT_LOADED = {
    "MULTITASK_PROMPT_TUNING": "with PEFT 0.21 no T5 answers through it: its forward joins prompts and None",
    "SHADOW": "a second model",
    "XLORA": "other adapters, by their folders",
}
# What PEFT saves of it is more than its tensors in memory, or other ones.
UNLIKE = ("ADAPTION_PROMPT", "SHIRA", "VBLORA")
# Methods that are told of which task a question is.
OF_TASKS = ("POLY",)


@pytest.fixture(autouse=True)
def _scikit_learn(monkeypatch):
    """AdaMSS only looks whether it is there when its config is made."""
    import peft  # noqa: F401 - transformers, below it, asks for the versions of what it finds

    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))


def name_of(number: int) -> str:
    method, base, _ = CASES[number]
    return f"{method}-{base}-{number}"


@cache
def base_folder(name: str, root: Path) -> Path:
    """A base of adapter_cases.py, saved."""
    import torch
    import transformers

    architecture, config = BASES[name]
    torch.manual_seed(0)
    made = getattr(transformers, architecture)
    folder = root / name.replace(" ", "-")
    made(made.config_class(**config)).save_pretrained(folder)
    return folder


def load_base(folder: Path) -> Any:
    import transformers

    made = getattr(transformers, json.loads((folder / "config.json").read_bytes())["architectures"][0])
    return made.from_pretrained(folder, local_files_only=True).eval()


def trained(number: int, base: Path) -> Any:
    """A model with an adapter whose every tensor was moved, as training does it."""
    import peft
    import torch
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    method, _, config = CASES[number]
    made = {kind.value: made for kind, made in PEFT_TYPE_TO_CONFIG_MAPPING.items()}[method]
    torch.manual_seed(number)
    model = peft.get_peft_model(load_base(base), made(**{"task_type": "CAUSAL_LM", **config}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("adapter-builds")


@cache
def written(number: int, root: Path) -> tuple[Path, Path]:
    """The base of a case, and what PEFT saved of a trained adapter on it."""
    base = base_folder(CASES[number][1], root)
    folder = root / str(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained(number, base).save_pretrained(folder)
    return base, folder


def build(source: Path, output: Path, base: Path | None = None, **keys: Any) -> api.Plan:
    recipe = Recipe.model_validate(
        {
            "version": 1,
            "source": str(source),
            "output": str(output),
            "license": {"id": "apache-2.0"},
            "base": {"id": "example/base", "revision": "b" * 40, "path": None if base is None else str(base)},
            **keys,
        }
    )
    gate = api.Gate(api.Selection())
    plan = api.plan(recipe)
    api.build(plan, gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING), gate.last.report.findings
    return plan


def answers(model: Any) -> Any:
    """What a model says to a fixed question, whatever kind it is."""
    import torch

    config = model.config
    torch.manual_seed(0)
    if hasattr(config, "num_channels") and not hasattr(config, "vocab_size"):
        inputs = {"pixel_values": torch.randn(1, config.num_channels, 32, 32)}
    else:
        ids = torch.tensor([[5, 17, 3, 42, 8]])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if config.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids[:, :3]
    if getattr(model, "active_peft_config", None) and model.active_peft_config.peft_type in OF_TASKS:
        inputs["task_ids"] = torch.tensor([0])
    with torch.no_grad():
        found = model(**inputs)
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


def loaded(base: Path, adapter: Path) -> Any:
    """The adapter on its base, as people load it; PEFT says in a warning which tensors it did not find."""
    import peft

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(load_base(base), adapter).eval()
    assert not [str(one.message) for one in said if "adapter keys" in str(one.message)]
    return model


def check_answers(number: int, root: Path, output: Path) -> None:
    import torch

    base, source = written(number, root)
    build(source, output)
    wanted, found = answers(loaded(base, source)), answers(loaded(base, output))
    assert torch.equal(wanted, found)
    assert not torch.equal(answers(load_base(base)), found), "the adapter does something"


def tensors_of(path: Path) -> dict[str, bytes]:
    import safetensors

    return {name: bytes(found["data"]) for name, found in safetensors.deserialize(path.read_bytes())}


SILENT = "gpt-oss"  # the base of adapter_cases.py asks for four of its three experts
LOADABLE = [number for number, case in enumerate(CASES) if case[0] not in NOT_LOADED and case[1] != SILENT]


# A seeded sample in every run.
ANSWERING = sorted(random.Random(1).sample([number for number in ALWAYS if number in LOADABLE], 24))


@pytest.mark.parametrize("number", ANSWERING, ids=name_of)
def test_what_was_built_answers_as_what_was_trained(root, tmp_path, number):
    check_answers(number, root, tmp_path / "out")


@pytest.mark.full
@pytest.mark.parametrize("number", sorted({*LOADABLE} - {*ANSWERING}), ids=name_of)
def test_every_adapter_answers_as_it_was_trained(root, tmp_path, number):
    check_answers(number, root, tmp_path / "out")


@pytest.mark.parametrize(
    "number",
    # One of each method in every run, all of them under `-m full`.
    [pytest.param(number, marks=[] if number in FIRST else [pytest.mark.full]) for number in range(len(CASES))],
    ids=name_of,
)
def test_the_names_of_peft_stay(root, tmp_path, number):
    _, source = written(number, root)
    plan = build(source, tmp_path / "out")
    assert plan.summary.renamed == 0
    assert tensors_of(tmp_path / "out" / ADAPTER) == tensors_of(source / ADAPTER)


# ------------------------------------------------------------------------------------------------ as trainings leave it


def state_of(number: int, base: Path, folder: Path, wrap: Any) -> None:
    """The whole state of a training, base and all, and the config of its adapter."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = trained(number, base)
    folder.mkdir()
    model.peft_config["default"].save_pretrained(folder)
    torch.save(wrap(model.state_dict()), folder / "last.ckpt")


MODULES = [number for number in ALWAYS if CASES[number][0] not in {*PROMPTS, *UNLIKE}]


@pytest.mark.parametrize("number", MODULES, ids=name_of)
def test_an_adapter_is_taken_out_of_the_state_of_a_lightning_module(root, tmp_path, number):
    base, source = written(number, root)
    state_of(
        number,
        base,
        tmp_path / "run",
        lambda state: {
            "state_dict": {f"model.{name}": value for name, value in state.items()},
            "pytorch-lightning_version": "2.5.0",
        },
    )
    build(tmp_path / "run" / "last.ckpt", tmp_path / "out", kind="adapter")
    assert tensors_of(tmp_path / "out" / ADAPTER) == tensors_of(source / ADAPTER)


WRAPPED = {
    "DDP": lambda name: f"module.{name}",
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "FSDP": lambda name: name.replace(".layers.", ".layers._fsdp_wrapped_module."),
}


@pytest.mark.parametrize("how", WRAPPED)
def test_names_of_wrappers_become_those_of_peft(root, tmp_path, how):
    """A state dict that was saved by hand, as adapter_model.bin."""
    import torch

    base, source = written(1, root)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CONFIG).write_bytes((source / CONFIG).read_bytes())
    import peft

    state = peft.get_peft_model_state_dict(trained(1, base))
    torch.save({WRAPPED[how](name): value for name, value in state.items()}, tmp_path / "run" / "adapter_model.bin")
    build(tmp_path / "run", tmp_path / "out")
    assert tensors_of(tmp_path / "out" / ADAPTER) == tensors_of(source / ADAPTER)


def test_several_adapters_are_each_loaded_from_their_folder(root, tmp_path):
    import peft
    import torch

    base, _ = written(0, root)
    model = trained(0, base)
    torch.manual_seed(1)
    model.add_adapter("sql", peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["k_proj"], init_lora_weights=False))
    model.save_pretrained(tmp_path / "run")
    build(tmp_path / "run", tmp_path / "out")
    found = loaded(base, tmp_path / "out")
    found.load_adapter(tmp_path / "out" / "sql", adapter_name="sql")
    for name in ("default", "sql"):
        model.set_adapter(name)
        found.set_adapter(name)
        assert torch.equal(answers(model), answers(found)), name


def test_a_cast_gives_what_torch_gives(root, tmp_path):
    import safetensors.torch
    import torch

    _, source = written(0, root)
    build(source, tmp_path / "out", weights={"dtype": "bfloat16"})
    wanted = safetensors.torch.load_file(source / ADAPTER)
    found = safetensors.torch.load_file(tmp_path / "out" / ADAPTER)
    assert all(torch.equal(found[name], value.to(torch.bfloat16)) for name, value in wanted.items())


FITTING = {"llama": (0, 1, 4, 8), "bert": (20,)}


@pytest.mark.parametrize(
    ("base", "number"), [(base, number) for base, numbers in FITTING.items() for number in numbers]
)
def test_an_adapter_fits_the_base_that_it_was_trained_on(root, tmp_path, base, number):
    folder, source = written(number, root)
    assert CASES[number][1] == base
    plan = build(source, tmp_path / "out", folder)
    assert not [line for line in plan.warnings if "base" in line and "trained whole" not in line]


def test_an_adapter_of_another_base_is_refused(root, tmp_path):
    _, source = written(0, root)
    other = base_folder("llama biased", root)
    with pytest.raises((api.Stopped, PlanError)):
        build(source, tmp_path / "out", narrow(other, tmp_path / "narrow"))


def narrow(folder: Path, output: Path) -> Path:
    """The same architecture at half the width."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    config.hidden_size //= 2
    config.head_dim = 4
    transformers.LlamaForCausalLM(config).save_pretrained(output)
    return output


@pytest.mark.parametrize(
    "name", ["peft-lora-all-linear-dora", "peft-lora-modules-to-save", "peft-lora-qwen2", "peft-lora-seqcls-bert"]
)
def test_the_snippet_of_the_card_runs(models, tmp_path, monkeypatch, name):
    """On the oracles of make_models.py, whose tokenizers lie beside them; their zeros are made values first."""
    source = moved(models / name, tmp_path / "source")
    recipe = Recipe.model_validate(
        {
            "version": 1,
            "repo": "me/out",
            "source": str(source),
            "output": str(tmp_path / "out"),
            "license": {"id": "mit"},
        }
    )
    api.build(api.plan(recipe))
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]
    id_ = json.loads((source / CONFIG).read_bytes())["base_model_name_or_path"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code.replace(id_, str(models / id_.rpartition("/")[2])), "README.md", "exec"), names)  # noqa: S102 - our own snippet: that it runs is what is tested
    assert type(names["model"]).__name__.startswith("Peft")


def moved(source: Path, output: Path) -> Path:
    """A copy of an adapter whose every tensor was moved."""
    import safetensors.torch
    import torch

    shutil.copytree(source, output)
    tensors = {
        name: value + torch.rand_like(value) * 0.01
        for name, value in safetensors.torch.load_file(output / ADAPTER).items()
    }
    safetensors.torch.save_file(tensors, output / ADAPTER, {"format": "pt"})
    return output


def test_the_beginnings_of_names_are_those_of_peft():
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING

    theirs = {kind.value: prefix for kind, prefix in PEFT_TYPE_TO_PREFIX_MAPPING.items()}
    prompts = {*PROMPTS, "CARTRIDGE"}
    assert theirs.keys() - prompts == PARTS.keys()
    assert not [name for name, part in PARTS.items() if not theirs[name].startswith(part)]
