"""Files that are deleted, and files that are not."""

from __future__ import annotations

from repokit.linter.examples import single, tensors_of
from repokit.linter.examples_torch import torch_file
from repokit.repo.weights import SINGLE


def test_credentials_are_never_deleted(mend):
    assert not mend("FIL107", {".env": "A=1", "id_rsa": "x"}).changed


def test_compiled_code_goes_where_its_source_is(mend):
    change = {"model.py": "", "model.pyc": b"\xa7", "__pycache__/model.cpython-311.pyc": b"\xa7", "alone.pyc": b"\xa7"}
    assert mend("FIL107", change).changed == {"model.pyc", "__pycache__/model.cpython-311.pyc"}


def test_a_core_dump_is_not_deleted(mend):
    assert not mend("FIL208", {".DS_Store": b"x", "core.123": b"x"}).changed


def test_a_pickle_of_other_shapes_is_not_deleted(mend):
    other = {**tensors_of(single()[SINGLE]), "lm_head.weight": ("BF16", (16, 16))}
    assert not mend("FIL202", {"pytorch_model.bin": torch_file(other)}).changed


def test_a_pickle_of_other_dtypes_is_not_deleted(mend):
    other = {name: ("F16", shape) for name, (_, shape) in tensors_of(single()[SINGLE]).items()}
    assert not mend("FIL202", {"pytorch_model.bin": torch_file(other)}).changed


def test_other_lines_of_gitignore_stay(mend):
    found = mend("FIL108", {".gitignore": "# mine\n*.log\n*.safetensors\n"})
    assert found.text(".gitignore") == "# mine\n*.log\n"


def test_other_attributes_of_a_line_stay(mend):
    found = mend("FIL127", {".gitattributes": "*.bin filter=unpack -text\n*.safetensors filter=lfs -text\n"})
    assert found.text(".gitattributes") == "*.bin -text\n*.safetensors filter=lfs -text\n"


def test_files_that_somebody_took_back_from_lfs_stay_so(mend):
    lines = "*.safetensors filter=lfs diff=lfs merge=lfs -text\nmodel.safetensors -filter\n"
    assert not mend("FIL221", {".gitattributes": lines}).changed


def test_a_number_as_text_becomes_the_same_number(mend):
    found = mend("FIL104", {"config.json": {"vocab_size": "32", "rms_norm_eps": "0.00001"}}).json("config.json")
    assert (found["vocab_size"], found["rms_norm_eps"]) == (32, 0.00001)


def test_a_number_of_another_meaning_stays_text(mend):
    assert not mend("FIL104", {"config.json": {"vocab_size": "32k"}}).changed


def test_a_float_with_a_fraction_is_no_integer(mend):
    assert not mend("FIL104", {"config.json": {"vocab_size": 32.5}}).changed


def test_a_path_that_code_may_read_is_not_dropped(mend):
    assert not mend("SEC201", {"config.json": {"mm_vision_tower": "/home/alice/clip"}}).changed


def test_a_secret_is_never_taken_out(mend):
    from repokit.linter.rules.security import FAKE_TOKEN

    assert not mend("SEC101", {"notes.json": {"token": FAKE_TOKEN}}).changed
