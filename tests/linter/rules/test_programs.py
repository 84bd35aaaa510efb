"""Programs, code, notebooks, archives and values of strangers beside a model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from repokit.linter.examples import Example
from repokit.linter.finding import Finding
from repokit.linter.rule import Rule
from repokit.linter.rules import RULES
from repokit.linter.rules.archives import zipped
from repokit.linter.rules.programs import ELF
from repokit.linter.rules.untrusted_values import _explodes
from repokit.repo.repository import Repository


def findings(code: str, change: dict[str, object], base: str = "single") -> list[Finding]:
    (rule,) = (rule for rule in RULES if rule.code == code)
    return _checked(rule, Repository(Example("x", change, base).source()))


def _checked(rule: Rule, repository: Repository) -> list[Finding]:
    with repository:
        return list(rule.check(repository))


# ---------------------------------------------------------------- programs

PE = b"MZ" + bytes(58) + (0x80).to_bytes(4, "little")
PROGRAMS = {"ELF": ELF, "Mach-O": b"\xcf\xfa\xed\xfe" + bytes(60), "PE": PE}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.parametrize("name", ["merges.txt", "extra/logo.PNG", "vocab.json"])
def test_a_program_under_another_name_is_found(program: bytes, name: str) -> None:
    assert [finding.path for finding in findings("SEC150", {name: program})] == [name]


def test_libraries_are_one_finding() -> None:
    (finding,) = findings("SEC250", {"a.so": ELF, "b.so.1": ELF})
    assert finding.names == ("a.so", "b.so.1")


@pytest.mark.parametrize("path", ["sub/usercustomize.py", "tests/sitecustomize.py", "conftest.py"])
def test_code_that_tools_run_is_found_in_any_folder(path: str) -> None:
    assert [finding.path for finding in findings("SEC251", {path: ""})] == [path]


def test_code_that_nothing_names_is_one_note() -> None:
    (finding,) = findings("SEC350", {"a.py": "", "scripts/b.sh": ""})
    assert finding.names == ("a.py", "scripts/b.sh")


@pytest.mark.parametrize("content", ["[]", "{}", '{"cells": 1}', '{"cells": [1]}', "no notebook"])
def test_what_is_no_notebook_has_no_output(content: str) -> None:
    assert findings("FIL350", {"x.ipynb": content}) == []


# ---------------------------------------------------------------- archives


def test_a_layer_of_compiled_python_is_found_at_any_depth() -> None:
    config = {"a": [{"b": {"class_name": "__lambda__", "config": {}}}]}
    assert findings("SEC252", {"m.keras": zipped({"config.json": json.dumps(config).encode()})})


def test_a_name_in_a_text_is_no_layer() -> None:
    config = {"notes": "__lambda__"}
    assert findings("SEC252", {"m.keras": zipped({"config.json": json.dumps(config).encode()})}) == []


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "C:/x", "..\\x"])
def test_a_way_out_of_an_archive_is_found(name: str) -> None:
    assert findings("FIL251", {"x.zip": zipped({name: b""})})[0].names == (name,)


# ---------------------------------------------------------------- expressions

EXPLODING = ["(a+)+", "(?:a*)*b", "(.*)*x", "((a+))*", "(?:a|.)+z", "(?:a*b*)*c", r"x(?:\w+){1,99}y"]
HARMLESS = [
    ".*",
    r"(?:\w+\.)+[qv]_proj",
    "(?:a|b)*",
    "(?:a+b)+",
    "(?:a+){2}",
    r".*\.(?:q|k|v)_proj",
    r"^(?!.*visual).*(?:proj|fc\d+).*",
    "(?:language_model|model)\\.layers\\.\\d+\\.(?:self_attn|mlp)\\.\\w+",
]


@pytest.mark.parametrize("text", EXPLODING)
def test_repeats_that_multiply_are_found(text: str) -> None:
    assert _explodes(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_repeats_are_not(text: str) -> None:
    assert not _explodes(text)


@given(st.text("ab.*+?()[]|\\{}1,^$", max_size=30))
def test_any_text_is_judged(text: str) -> None:
    assert _explodes(text) in {True, False}


@pytest.mark.parametrize("library", ["os", "__main__", "evil_module", "subprocess"])
def test_a_module_of_no_library_is_found(library: str) -> None:
    mapping = {"base_model_class": "X", "parent_library": library}
    assert findings("SEC254", {"adapter_config.json": {"auto_mapping": mapping}}, "lora")


@pytest.mark.parametrize("mapping", [None, [], {}, {"parent_library": None}, {"parent_library": "timm.models.vit"}])
def test_other_mappings_are_left_alone(mapping: object) -> None:
    assert findings("SEC254", {"adapter_config.json": {"auto_mapping": mapping}}, "lora") == []
