"""The data of a model type: a member that was damaged or changed is an error that names it."""

from __future__ import annotations

import json
import lzma
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repokit.architectures import Evidence, NotCovered, archive as archives, member as members, skeleton
from repokit.architectures.skeleton import covered, evidence
from repokit.errors import InternalError

DOCUMENT: dict[str, Any] = {
    "format": 1,
    "model_type": "tiny",
    "transformers": "5.24.0",
    "date": "2026-11-30",
    "source": "0123456789abcdef",
    "config": {
        "class": "TinyConfig",
        "defaults": {"hidden_size": 4, "num_layers": 2, "head_dim": None},
        "aliases": [["num_layers", "n_layer"]],
        "derive": {"head_dim": {"given": True, "expr": "hidden_size // 2"}},
        "subs": {},
    },
    "classes": {
        "TinyModel": {
            "evidence": "verified",
            "configs": 24,
            "blocks": [
                ["True", [], False, [["embed.weight", ["10", "hidden_size"], "e"]]],
                ["True", ["num_layers"], False, [["layers.{i}.weight", ["hidden_size", "head_dim"]]]],
            ],
            "prefix": "model",
        }
    },
}
CONFIG = {"model_type": "tiny", "architectures": ["TinyModel"]}

Write = Callable[[bytes], None]


def packed(document: Any) -> bytes:
    return zlib.compress(json.dumps(document).encode())


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The document of the tiny model type with a change made in it."""
    document = json.loads(json.dumps(DOCUMENT))
    change(document)
    return packed(document)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Puts a member of the model type `tiny`, a file of its own, into another folder, and reads from there."""

    def forget() -> None:
        members.member.cache_clear()
        archives.archive.cache_clear()

    def put(content: bytes) -> None:
        forget()
        (tmp_path / "tiny.json.z").write_bytes(content)

    monkeypatch.setattr(members, "folder", lambda: tmp_path)
    forget()
    yield put
    forget()


def test_a_member_gives_its_tensors(write: Write) -> None:
    write(packed(DOCUMENT))
    found = skeleton(CONFIG)
    assert found.shapes == {"embed.weight": (10, 4), "layers.0.weight": (4, 2), "layers.1.weight": (4, 2)}
    assert (found.evidence, found.prefix) == (Evidence.VERIFIED, "model")


DAMAGED = {
    "empty": b"",
    "no stream": b"not zlib at all",
    "cut off": packed(DOCUMENT)[:-10],
    "something behind it": packed(DOCUMENT) + b"more",
    "no JSON": zlib.compress(b"{"),
    "no text": zlib.compress(b"\xff\xfe"),
    "a list": packed([]),
    "null": packed(None),
    "another format": changed(lambda document: document.update(format=2)),
    "another model type": changed(lambda document: document.update(model_type="other")),
    "no config": changed(lambda document: document.pop("config")),
    "a default that is an object": changed(lambda document: document["config"]["defaults"].update(hidden_size={})),
    "a derivation outside of the grammar": changed(
        lambda document: document["config"]["derive"]["head_dim"].update(expr="__import__('os').getpid()")
    ),
    "deep": zlib.compress(b"[" * 200_000),
    "a bomb": zlib.compress(b" " * (256 << 20), 9),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_member_is_an_error_that_names_it(write: Write, content: bytes) -> None:
    write(content)
    with pytest.raises(InternalError, match=r"data/architectures/tiny\.json\.z .* damaged"):
        skeleton(CONFIG)


def block(*parts: Any) -> bytes:
    return changed(lambda document: document["classes"]["TinyModel"].update(blocks=[list(parts)]))


DAMAGED_CLASSES = {
    "a dimension outside of the grammar": block("True", [], False, [["x", ["hidden_size.bit_length()"]]]),
    "a condition outside of the grammar": block("[y for y in (1,)]", [], False, []),
    "a number for an expression": block("True", [5], False, []),
    "too few parts": block("True", []),
    "an unknown kind": block("True", [], False, [["x", [], "?"]]),
    "no list": changed(lambda document: document["classes"]["TinyModel"].update(blocks="x")),
    "unknown evidence": changed(lambda document: document["classes"]["TinyModel"].update(evidence="certain")),
    "no blocks": changed(lambda document: document["classes"]["TinyModel"].pop("blocks")),
    "no object": changed(lambda document: document["classes"].update(TinyModel=[])),
}


@pytest.mark.parametrize("content", DAMAGED_CLASSES.values(), ids=DAMAGED_CLASSES)
def test_a_damaged_class_is_an_error_that_names_its_member(write: Write, content: bytes) -> None:
    write(content)
    with pytest.raises(InternalError, match=r"member tiny,? .* damaged"):
        skeleton(CONFIG)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_is_noticed_or_changes_nothing(write: Write, seed: int) -> None:
    """zlib ends with a checksum."""
    write(packed(DOCUMENT))
    right = skeleton(CONFIG).shapes
    content = bytearray(packed(DOCUMENT))
    place = random.Random(seed).randrange(len(content) * 8)
    content[place // 8] ^= 1 << place % 8
    write(bytes(content))
    try:
        found = skeleton(CONFIG).shapes
    except InternalError as error:
        assert "tiny.json.z" in str(error)  # noqa: PT017 - or nothing is wrong
    else:
        assert found == right


@pytest.mark.parametrize("model_type", ["../tiny", "/etc/passwd", "", "a" * 5000, "tiny\0", "tiny.json", "TINY "])
def test_a_model_type_leads_to_no_other_file(write: Write, model_type: str) -> None:
    write(packed(DOCUMENT))
    with pytest.raises(NotCovered):
        skeleton({**CONFIG, "model_type": model_type})


def test_a_class_that_is_not_there_is_not_covered(write: Write) -> None:
    write(packed(DOCUMENT))
    with pytest.raises(NotCovered, match="no skeleton of Other among those of tiny"):
        skeleton(CONFIG, "Other")
    assert evidence("tiny", "Other") is Evidence.NONE


def test_verified_classes_come_first(write: Write) -> None:
    partial = {**DOCUMENT["classes"]["TinyModel"], "evidence": "partial"}
    write(changed(lambda document: document["classes"].update(Another=partial)))
    assert covered("tiny") == ("TinyModel", "Another")


# ---------------------------------------------------------------- the archive of all


def in_archive(content: bytes, relative: str | None = None, words: bytes = b"") -> bytes:
    """An archive that holds one member."""
    said = {key: DOCUMENT[key] for key in ("source", "transformers", "date")}
    return archives.written({"tiny": (content, relative)}, {"tiny": said}, words, "5.24.0", "2026-11-30")


@pytest.fixture
def write_archive(write: Write, tmp_path: Path) -> Write:
    """Makes an archive of the model type `tiny` alone, and reads from there."""

    def put(content: bytes) -> None:
        archives.archive.cache_clear()
        members.member.cache_clear()
        (tmp_path / members.ARCHIVE).write_bytes(content)

    return put


@pytest.mark.parametrize("words", [b"", json.dumps(DOCUMENT).encode()], ids=["alone", "against words"])
def test_a_member_is_read_from_the_archive(write_archive: Write, words: bytes) -> None:
    write_archive(in_archive(archives.packed(json.dumps(DOCUMENT).encode(), words), words=words))
    assert (len(skeleton(CONFIG).shapes), members.known()) == (3, ("tiny",))


RIGHT = in_archive(packed(DOCUMENT))
DAMAGED_ARCHIVES = {
    "empty": b"",
    "another file": b"x" * 200,
    "cut off in its index": RIGHT[:40],
    "cut off in its member": RIGHT[:-10],
    "a relative that is not there": in_archive(packed(DOCUMENT), "other"),
    "its own relative": in_archive(packed(DOCUMENT), "tiny"),
    "a bomb": in_archive(zlib.compress(b" " * (256 << 20), 9)),
    "a bomb in xz": in_archive(lzma.compress(b" " * (256 << 20), preset=0)),
}


@pytest.mark.parametrize("content", DAMAGED_ARCHIVES.values(), ids=DAMAGED_ARCHIVES)
def test_a_damaged_archive_is_an_error_that_names_it(write_archive: Write, content: bytes) -> None:
    write_archive(content)
    with pytest.raises(InternalError, match=r"data/architectures/skeletons\.bin.* damaged"):
        skeleton(CONFIG)


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_of_the_archive_is_noticed_or_changes_nothing(write_archive: Write, seed: int) -> None:
    write_archive(RIGHT)
    right = skeleton(CONFIG).shapes
    content = bytearray(RIGHT)
    place = random.Random(seed).randrange(len(content) * 8)
    content[place // 8] ^= 1 << place % 8
    write_archive(bytes(content))
    try:
        found = skeleton(CONFIG).shapes
    except InternalError as error:
        assert "skeletons.bin" in str(error)  # noqa: PT017 - or nothing is wrong
    else:
        assert found == right


def test_every_member_of_the_wheel_can_be_read() -> None:
    """Every expression, that is; `architecture` compiles those of one class."""
    assert members.known()
    for model_type in members.known():
        found = members.member(model_type)
        for name in found.raw:
            assert found.architecture(name).name == name
