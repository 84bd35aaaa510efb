"""Faults of published repositories: pickled weights, and what else is pickled.

Each id is the kind of fault and the public thread that reports it. What a build makes of aliases, views and nested
containers is tested beside the builder; here lint must read them and say that they are pickles.
"""

from __future__ import annotations

import io
from typing import Final
from zipfile import ZipFile, ZipInfo

import pytest

from repokit.linter.examples import Example, single, tensors_of
from repokit.linter.examples_torch import called, torch_file
from repokit.linter.finding import Severity
from repokit.repo.weights import SINGLE

ERROR, WARNING = Severity.ERROR, Severity.WARNING
BIN: Final = "pytorch_model.bin"
TENSORS: Final = tensors_of(single()[SINGLE])
EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
FACTOR: Final = "base_model.model.model.layers.{}.self_attn.q_proj.lora_A.weight"

# What training_args.bin of older versions of transformers names, beside its own classes.
ARGUMENTS: Final = b"\x80\x02" + called("builtins", "getattr", "TrainingArguments") + b"N."
SKLEARN: Final = b"\x80\x02csklearn.linear_model._logistic\nLogisticRegression\n)R."


def repickled(change) -> bytes:
    """The weights of the base as torch.save writes them, with a change to the opcodes."""
    plain = ZipFile(io.BytesIO(torch_file(TENSORS)))
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name in plain.namelist():
            content = plain.read(name)
            archive.writestr(ZipInfo(name), change(content) if name.endswith("data.pkl") else content)
    return buffer.getvalue()


def nested(*keys: str) -> bytes:
    """A checkpoint whose state dict lies in dictionaries with these keys, the outermost first."""

    def change(pickle: bytes) -> bytes:
        inner = pickle.removeprefix(b"\x80\x02").removesuffix(b".")
        for key in reversed(keys):
            inner = b"}X" + len(key).to_bytes(4, "little") + key.encode() + inner + b"s"
        return b"\x80\x02" + inner + b"."

    return repickled(change)


def transposed() -> bytes:
    """A checkpoint in which one matrix is the transpose of what lies in memory."""
    rows, columns = b"(J\x10\x00\x00\x00J\x01\x00\x00\x00t", b"(J\x01\x00\x00\x00J\x10\x00\x00\x00t"
    return repickled(lambda pickle: pickle.replace(rows, columns, 1))


def pickled(content: bytes, **change: object) -> dict[str, object]:
    """The base with pickled weights in the place of its own."""
    return {SINGLE: None, BIN: content, **change}


FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "FM01 huggingface/diffusers#1811": ("FIL202", WARNING, Example("both formats", {BIN: torch_file(TENSORS)})),
    "FM01 huggingface/diffusers#1811 (a shape differs)": (
        "FIL109",
        ERROR,
        Example("two models", {BIN: torch_file({**TENSORS, EMBEDDING: ("BF16", (40, 16))})}),
    ),
    "FM01 huggingface/diffusers#1811 (a layer is missing)": (
        "FIL109",
        ERROR,
        Example(
            "two models", {BIN: torch_file({name: info for name, info in TENSORS.items() if "layers.1" not in name})}
        ),
    ),
    "FM01 (an adapter)": (
        "FIL109",
        ERROR,
        Example(
            "another rank",
            {"adapter_model.bin": torch_file({FACTOR.format(layer): ("F32", (8, 16)) for layer in range(2)})},
            "lora",
        ),
    ),
    "FM05 huggingface/transformers#28580": (
        "SEC103",
        ERROR,
        Example("arguments of a run", {"training_args.bin": ARGUMENTS}),
    ),
    "FM05 huggingface/transformers#28580 (nothing that runs)": (
        "FIL201",
        ERROR,
        Example("arguments of a run", {"training_args.bin": b"\x80\x02}."}),
    ),
    "FM05 huggingface/setfit#224": ("FIL204", WARNING, Example("a head", {"model_head.pkl": SKLEARN})),
    "FM05 (argparse)": (
        "FIL204",
        WARNING,
        Example("options of a run", {"options.pkl": b"\x80\x02cargparse\nNamespace\n)R."}),
    ),
    "FM05 (a class of nobody)": (
        "SEC202",
        WARNING,
        Example("settings of a run", pickled(torch_file(TENSORS, b"cours.train\nSettings\n)R0"))),
    ),
    "FM07 diStyApps/Safe-and-Stable-Ckpt2Safetensors-Conversion-Tool-GUI#3": (
        "FIL203",
        ERROR,
        Example("a container in a container", pickled(nested("state_dict", "state_dict"))),
    ),
    "FM07 PriorLabs/TabPFN#950": ("FIL203", ERROR, Example("a container", pickled(nested("state_dict")))),
    "KY01 karpathy/nanoGPT#325": (
        "WGT103",
        ERROR,
        Example(
            "a compiled model",
            {SINGLE: None, "ckpt.pt": torch_file({f"_orig_mod.{name}": info for name, info in TENSORS.items()})},
        ),
    ),
    "BL01 safetensors/safetensors#98": (
        "FIL203",
        ERROR,
        Example("tied in memory", pickled(torch_file(TENSORS, names={HEAD: EMBEDDING}))),
    ),
    "BL01 safetensors/safetensors#501": (
        "FIL203",
        ERROR,
        Example(
            "tied in memory, without a config",
            pickled(torch_file(TENSORS, names={HEAD: EMBEDDING}), **{"config.json": None}),
        ),
    ),
    "BL02 huggingface/transformers#34623": ("FIL203", ERROR, Example("a transpose", pickled(transposed()))),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
