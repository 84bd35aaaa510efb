"""Declarations of quantized weights, by what is stored."""

from __future__ import annotations

from repokit.linter.examples import edited
from repokit.linter.rules.quantization import KEY, UP
from repokit.repo.weights import SINGLE

CONFIG = "config.json"


def test_an_entry_that_stands_for_plain_modules_too_stays(mend):
    plain = edited(drop=(f"{UP}.weight_scale_inv",), add={f"{UP}.weight": ("BF16", (24, 16))})
    change = {CONFIG: {KEY: {"modules_to_not_convert": ["mlp.up_proj"]}}, SINGLE: plain}
    assert not mend("QNT104", change, "fp8").changed


def test_other_entries_of_a_list_stay(mend):
    found = mend("QNT104", {CONFIG: {KEY: {"ignore": ["lm_head", UP]}}}, "float-quantized").json(CONFIG)
    assert found[KEY]["ignore"] == ["lm_head"]


def test_a_module_that_is_stored_plain_is_listed_by_its_name(mend):
    plain = edited(drop=(f"{UP}.qweight", f"{UP}.qzeros", f"{UP}.scales"), add={f"{UP}.weight": ("F16", (24, 16))})
    assert mend("QNT104", {SINGLE: plain}, "awq").json(CONFIG)[KEY]["modules_to_not_convert"] == [UP]


def test_groups_that_no_single_size_explains_stay(mend):
    both = edited(add={f"{UP}.scales": ("F16", (1, 24)), f"{UP}.qzeros": ("I32", (1, 3))})
    assert not mend("QNT106", {CONFIG: {KEY: {"group_size": 4}}, SINGLE: both}, "gptq").changed


def test_a_float_for_an_integer_is_the_same_number(mend):
    found = mend("QNT107", {CONFIG: {KEY: {"llm_int8_threshold": 6}}}, "bnb8").text(CONFIG)
    assert '"llm_int8_threshold": 6.0' in found


def test_a_width_that_the_method_does_not_have_is_not_guessed(mend):
    assert not mend("QNT107", {CONFIG: {KEY: {"bits": 5}}}, "gptq").changed
