"""What quantizers wrote is built, and the method's own library loads what was built: the same tensors.

Where a library needs a GPU to load, safetensors reads the tensors and transformers' class of the method its config.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from loading import differing_tensors, load_report
from quantized_models import MODELS, NEEDS, NOT_LOADED, PARAMETERS

from repokit import api
from repokit.schema.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

pytestmark = pytest.mark.oracle

LOADED = [name for name in MODELS if name not in NOT_LOADED]
BASE = {"id": "org/base", "revision": "0123456789abcdef0123456789abcdef01234567"}


@pytest.fixture(scope="module")
def source(models, tmp_path_factory) -> Callable[[str], Path]:
    """The directory that a quantizer left, with a tokenizer; each is written once."""
    root = tmp_path_factory.mktemp("quantized")

    @cache
    def write(name: str) -> Path:
        if name in NEEDS:
            pytest.importorskip(NEEDS[name])
        (root / name).mkdir()
        MODELS[name](root / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(models / "llama" / file, root / name / file)
        return root / name

    return write


@pytest.fixture(scope="module")
def built(source, tmp_path_factory) -> Callable[..., tuple[Path, Any]]:
    """What is built of it, whole or in files of at most some size, and what the linter says of that."""
    root = tmp_path_factory.mktemp("built")

    @cache
    def build(name: str, limit: str = "auto") -> tuple[Path, Any]:
        output = root / f"{name}-{limit}"
        recipe = Recipe.model_validate(
            {
                "version": 1,
                "source": str(source(name)),
                "output": str(output),
                "base": BASE,
                "license": {"id": "apache-2.0"},
                "weights": {"max_shard_size": limit},
            }
        )
        gate = api.Gate(api.Selection())
        api.build(api.plan(recipe), gate=gate)
        return output, gate.last.report

    return build


def tensors(root: Path) -> dict[str, Tensor]:
    """With safetensors' own reader."""
    from safetensors.torch import load_file

    found: dict[str, Tensor] = {}
    for path in sorted(root.glob("*.safetensors")):
        shard = load_file(path)
        assert not shard.keys() & found.keys(), "a tensor lies in two files"
        found |= shard
    return found


@pytest.mark.parametrize("limit", ["auto", "40KB"])
@pytest.mark.parametrize("name", MODELS)
def test_the_tensors_are_those_of_the_source(source, built, name, limit):
    output, _ = built(name, limit)
    assert not differing_tensors(tensors(output), tensors(source(name)))


@pytest.mark.parametrize("name", LOADED)
def test_the_library_loads_the_same_from_source_and_output(source, built, name):
    output, _ = built(name, "40KB")
    wanted, found = load_report(source(name)), load_report(output)
    assert found.clean, (found.missing, found.unexpected, found.mismatched)
    assert wanted.clean
    assert not differing_tensors(plain(found.tensors), plain(wanted.tensors))


def plain(state: dict[str, Any]) -> dict[str, Tensor]:
    """Tensors that only stand for others, as those of torchao, made whole."""
    return {name: value.dequantize() if hasattr(value, "tensor_data_names") else value for name, value in state.items()}


@pytest.mark.parametrize("name", MODELS)
def test_no_module_lies_in_two_files(built, name):
    """A module is what a name has before its last dot; the experts of gpt-oss share one that is larger."""
    output, _ = built(name, "40KB")
    weight_map = json.loads((output / "model.safetensors.index.json").read_text())["weight_map"]
    files: dict[str, set[str]] = {}
    for tensor, file in weight_map.items():
        module = tensor.partition(".weight")[0].rpartition("_proj")[0] if "_proj" in tensor else tensor
        files.setdefault(module, set()).add(file)
    assert len(set(weight_map.values())) > 3
    assert {module: own for module, own in files.items() if len(own) > 1} == {}


@pytest.mark.parametrize("limit", ["auto", "40KB"])
@pytest.mark.parametrize("name", MODELS)
def test_the_linter_has_no_complaint(built, name, limit):
    _, report = built(name, limit)
    assert not report.at_least(api.Severity.WARNING)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"mxfp4"}))
def test_parameters_are_those_of_the_model_before(built, name):
    output, _ = built(name, "40KB")
    metadata = json.loads((output / "model.safetensors.index.json").read_text())["metadata"]
    assert metadata["total_parameters"] == PARAMETERS


@pytest.mark.parametrize("name", MODELS)
def test_transformers_reads_the_quantization_config(built, name):
    from transformers.quantizers import AutoQuantizationConfig

    output, _ = built(name)
    declared = json.loads((output / "config.json").read_text())["quantization_config"]
    assert AutoQuantizationConfig.from_dict(declared).to_dict()
