"""Faults of published repositories: ONNX models.

Each id is the kind of fault and the public thread that reports it.
"""

from __future__ import annotations

from typing import Final

import pytest

from repokit.linter.examples import Example
from repokit.linter.examples_onnx import onnx_model
from repokit.linter.finding import Severity
from repokit.linter.rules.card import with_lines

ERROR: Final = Severity.ERROR
JS: Final = {"README.md": with_lines("tags:\n- transformers.js\n")}

FAULTS: Final[dict[str, tuple[str, Severity, Example]]] = {
    "LY03 huggingface/transformers.js#760": (
        "WGT151",
        ERROR,
        Example("no data", {**JS, "onnx/model_q4.onnx": onnx_model(("model_q4.onnx_data", 64))}),
    ),
    "LY03 huggingface/transformers.js#1460": (
        "WGT151",
        ERROR,
        Example(
            "one of two files of data",
            {
                **JS,
                "onnx/model_q4f16.onnx": onnx_model(("model_q4f16.onnx_data", 64), ("model_q4f16.onnx_data_1", 64)),
                "onnx/model_q4f16.onnx_data": bytes(64),
            },
        ),
    ),
    "LY03 (no model)": ("WGT152", ERROR, Example("no model", JS)),
    "LY03 (no model, by library_name)": (
        "WGT152",
        ERROR,
        Example("no model", {"README.md": with_lines("library_name: transformers.js\n", drop="library_name")}),
    ),
    "LY03 (at the top)": (
        "WGT151",
        ERROR,
        Example("no data", {"model.onnx": onnx_model(("model.onnx.data", 64))}),
    ),
    "LY03 (not a model)": (
        "FIL101",
        ERROR,
        Example("a page of an error", {"onnx/model.onnx": b"<!DOCTYPE html><html></html>"}),
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_known_fault_is_found(fault, report_of):
    code, severity, example = fault
    assert (code, severity) in {(finding.code, finding.severity) for finding in report_of(example).findings}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_rule_breaks_over_a_known_fault(fault, report_of):
    assert report_of(fault[2]).coverage.broken == {}
