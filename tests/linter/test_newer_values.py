"""What may be newer than we are is told and is no failure, and what needs not know it is still looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.finding import Report, Severity
from repokit.linter.rules.card import with_lines
from repokit.repo.weights import ADAPTER, SINGLE

CONFIG = "config.json"
EMPTY = {SINGLE: edited(add={"model.norm.weight": ("BF16", (0,))})}
EMPTY_FACTOR = {ADAPTER: edited(add={"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": ("F32", (0,))})}


class Newer(NamedTuple):
    """A repository with a value of tomorrow: by the code of the note, or the words in the coverage, that tell of it."""

    told: str
    example: Example
    broken: Example


def newer(told: str, change: dict, base: str = "single") -> Newer:
    broken = EMPTY_FACTOR if base == "lora" else EMPTY
    return Newer(told, Example("newer", change, base), Example("newer, and broken", {**change, **broken}, base))


def licensed(word: str) -> dict:
    return {"README.md": with_lines(f"license: {word}\n", drop="license")}


NEWER: Final = {
    "model_type": newer("model_type", {CONFIG: {"model_type": "frobnicate", "architectures": ["FrobnicateModel"]}}),
    "dtype": newer("CFG350", {CONFIG: {"dtype": "float6_e3m2fn"}}),
    "torch_dtype": newer("CFG350", {CONFIG: {"dtype": DELETE, "torch_dtype": "float8_e3m4"}}),
    "quant_method": newer("QNT301", {CONFIG: {"quantization_config": {"quant_method": "frobnicate"}}}),
    "peft_type": newer("ADP302", {"adapter_config.json": {"peft_type": "FROBNICATE"}}, "lora"),
    "license": newer("LIC351", licensed("llama5")),
    "a first version of a license": newer("LIC351", licensed("gemma5")),
}
REFUSED: Final = {
    word: Example("no id", licensed(word))
    for word in ("foo-1.0", "gpl-3.0-or-later", "Apache-3.0", "llama-2", "our-own-terms", "mit-")
}

ReportOf = Callable[[Example], Report]


@pytest.mark.parametrize("value", NEWER.values(), ids=NEWER.keys())
def test_it_is_told(value: Newer, report_of: ReportOf) -> None:
    report = report_of(value.example)
    notes = {finding.code for finding in report.findings if finding.severity is Severity.NOTE}
    assert value.told in notes or any(value.told in unknown for unknown in report.coverage.unknown)


@pytest.mark.parametrize("value", NEWER.values(), ids=NEWER.keys())
def test_it_is_no_failure(value: Newer, report_of: ReportOf) -> None:
    report = report_of(value.example)
    assert (report.at_least(Severity.WARNING), report.exit_code()) == ((), 0)


@pytest.mark.parametrize("value", NEWER.values(), ids=NEWER.keys())
def test_headers_are_still_looked_at(value: Newer, report_of: ReportOf) -> None:
    assert "WGT101" in {finding.code for finding in report_of(value.broken).findings}


@pytest.mark.parametrize("example", REFUSED.values(), ids=REFUSED.keys())
def test_a_license_that_is_none_is_refused(example: Example, report_of: ReportOf) -> None:
    assert "LIC101" in {finding.code for finding in report_of(example).findings}
