"""Pickles are told by their first 64 bytes, under any name."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest

from repokit.linter.engine import lint
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.pickles import is_torch_zip
from repokit.repo.repository import Repository

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n"


def torch_zip(root: str) -> bytes:
    """What torch.save writes under a file name with this stem."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{root}/data.pkl", pickle.dumps({}, 2))
        archive.writestr(f"{root}/version", "3\n")
    return buffer.getvalue()


def codes(**files: bytes) -> list[str]:
    named = {name.replace("__", "."): content for name, content in files.items()}
    return [finding.code for finding in lint(Repository(Memory(named)), Selection(select=("FIL2",))).findings]


@pytest.mark.parametrize("root", ["archive", "pytorch_model", "pytorch_model-00001-of-00002", "x" * 33])
def test_an_archive_of_torch_is_recognised(root: str) -> None:
    assert is_torch_zip(torch_zip(root)[:64])


@pytest.mark.parametrize("member", ["word/document.xml", "data.pkl", "archive/data.pkl.txt", "a/b/data.pkl"])
def test_other_archives_are_not(member: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, "x")
    assert not is_torch_zip(buffer.getvalue()[:64])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_under_any_name(protocol: int) -> None:
    assert codes(notes__txt=pickle.dumps({"a": 1}, protocol)) == ["FIL204"]


def test_a_pointer_is_taken_by_its_name() -> None:
    assert codes(pytorch_model__bin=POINTER) == ["FIL203"]


def test_weights_in_gguf_make_a_pickle_a_copy() -> None:
    assert codes(pytorch_model__bin=torch_zip("archive"), model__gguf=b"GGUF") == ["FIL202"]


def test_a_bin_file_of_another_library_is_no_pickle() -> None:
    assert codes(openvino_model__bin=b"\x00" * 80, model__bin=b"\x06\x00\x00\x00") == []


def test_training_state_is_left_to_its_own_rule() -> None:
    assert codes(training_args__bin=torch_zip("archive")) == ["FIL201"]


def test_what_says_what_is_in_the_parts_is_not_to_be_deleted() -> None:
    files = {"run/.metadata": pickle.dumps({}, 2), "run/__0_0.distcp": torch_zip("archive")}
    hints = {one.hint for one in lint(Repository(Memory(files)), Selection(select=("FIL204", "FIL205"))).findings}
    assert hints == {"`repokit init FOLDER`, then `repokit build`, which merges the parts of DCP, FSDP and ZeRO"}
