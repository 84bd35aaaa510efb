"""The tensors of adapters against PEFT: what it writes for every method, on bases whose skeletons are verified or live."""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adapter_cases import BASES, CASES, NOT_WORKED_OUT

from repokit.api.skeletons import live
from repokit.architectures import Skeleton
from repokit.architectures.adapters import AdapterTensors, adapter, compare
from repokit.formats.safetensors import read_header
from repokit.resources import data

pytestmark = pytest.mark.oracle

IDS = [f"{method}-{base}-{number}" for number, (method, base, _) in enumerate(CASES)]


@pytest.fixture(autouse=True)
def _scikit_learn(monkeypatch):
    """AdaMSS only looks whether it is there when its config is made."""
    import peft  # noqa: F401 - transformers, below it, asks for the versions of what it finds

    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))


def base_model(name: str) -> Any:
    import torch
    import transformers

    architecture, config = BASES[name]
    torch.manual_seed(0)
    made = getattr(transformers, architecture)
    return made(made.config_class(**config))


@cache
def base_skeleton(name: str) -> Skeleton:
    document = json.loads(base_model(name).config.to_json_string(use_diff=False))
    return live().best({**document, "architectures": [BASES[name][0]]})


@cache
def written(number: int, folder: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """adapter_config.json and the shapes of the file that PEFT writes for a case."""
    import peft
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    method, base, config = CASES[number]
    made = {kind.value: made for kind, made in PEFT_TYPE_TO_CONFIG_MAPPING.items()}[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(base_model(base), made(**{"task_type": "CAUSAL_LM", **config})).save_pretrained(folder)
    content = (folder / "adapter_model.safetensors").read_bytes()
    header = read_header(lambda offset, length: content[offset : offset + length], len(content), "adapter")
    config = json.loads((folder / "adapter_config.json").read_bytes())
    return config, {tensor.name: tensor.shape for tensor in header.tensors}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(params=range(len(CASES)), ids=IDS)
def case(request, folder) -> tuple[AdapterTensors, dict[str, tuple[int, ...]]]:
    config, held = written(request.param, folder / str(request.param))
    return adapter(base_skeleton(CASES[request.param][1]), config), held


def test_what_peft_writes_is_what_must_be_there(case):
    wanted, held = case
    found = compare(wanted, held)
    assert (found.missing, found.unexpected, found.misshapen) == ((), (), ())


def test_each_tensor_that_is_deleted_or_reshaped_is_noticed(case):
    wanted, held = case
    deleted = [name for name in held if name in wanted.required and compare(wanted, without(held, name)).clean]
    known = {**wanted.optional, **wanted.required}
    reshaped = [name for name in held if None not in known[name] and compare(wanted, grown(held, name)).clean]
    assert (deleted, reshaped) == ([], [])


def without(held, name):
    return {other: shape for other, shape in held.items() if other != name}


def grown(held, name):
    return {**held, name: (*held[name][:-1], held[name][-1] + 1)}


def test_every_method_of_peft_is_worked_out_or_named():
    assert {method for method, _, _ in CASES} | NOT_WORKED_OUT == set(data("peft_adapters")["defaults"])


def test_the_table_is_of_the_installed_peft():
    import peft

    assert data("peft_adapters")["source"].startswith(f"peft {peft.__version__},"), (
        "run: python repokit/data/renew/peft_adapters.py"
    )


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("peft-lora", "base-llama"),
        ("peft-lora-all-linear-dora", "base-llama"),
        ("peft-lora-modules-to-save", "base-llama"),
        ("peft-lora-qwen2", "base-qwen2"),
        ("peft-lora-seqcls-bert", "base-bert"),
        ("peft-vera", "base-llama"),
        ("peft-prefix-tuning", "base-llama"),
    ],
)
def test_an_adapter_in_a_repository_fits_its_base(models, name, base):
    from repokit import api

    found = api.lint(models / name, base=models / base, selection=api.Selection(("ADP",))).report
    loud = [finding for finding in found.findings if finding.code != "ADP301"]
    assert (loud, [line for line in found.coverage.unknown if "adapter" in line]) == ([], [])
