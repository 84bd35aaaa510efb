"""Pickles are found by what a loader would do with them, not by how they begin."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from repokit.formats.pickle_globals import Grade
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

ATTACK = b"cos\nsystem\n(X\x04\x00\x00\x00truetR"


def archive(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members:
            file.writestr(name, content)
    return out.getvalue()


CHECKPOINT = (("archive/version", b"3\n"), ("archive/data.pkl", b"\x80\x02" + ATTACK + b"."))
HIDDEN = {
    "protocol 0": ("pytorch_model.bin", b"cos\nsystem\n(S'true'\ntR."),
    "protocol 0 under a name of its own": ("head.pkl", b"cos\nsystem\n(S'true'\ntR."),
    "a checkpoint whose pickle is not its first member": ("notes.dat", archive(*CHECKPOINT)),
    "the same behind a comment": ("notes.dat", archive(*CHECKPOINT)[:-2] + struct.pack("<H", 2) + b"ab"),
    "the beginning of a safetensors header": ("model.bin", b"\x80\x02U\x05\x00\x00\x00\x00{0" + ATTACK + b"."),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_a_pickle_is_found_that_does_not_begin_like_one(kind: str) -> None:
    path, content = HIDDEN[kind]
    assert Repository(Memory({path: content})).pickles.readable == [path]


def test_what_such_a_pickle_names_is_told() -> None:
    path, content = HIDDEN["protocol 0"]
    (found,) = Repository(Memory({path: content})).pickles.globals(path)
    assert (found.dotted, found.grade) == ("os.system", Grade.EXECUTES)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("ggml-model.bin", b"lmgg" + bytes(100)),
        ("openvino_model.bin", struct.pack("<64f", *range(64))),
        ("figures.zip", archive(("a.png", b"x"), ("b/data.txt", b"y"))),
        ("notes.txt", b"cos\nsystem\n(S'true'\ntR."),
        ("model.bin", b"\x80\x02\x00\x00\x00\x00\x00\x00{" + b" " * 632),
    ],
    ids=["ggml", "weights", "archive", "text", "safetensors"],
)
def test_what_is_no_pickle_is_left_alone(path: str, content: bytes) -> None:
    assert Repository(Memory({path: content})).pickles.readable == []
