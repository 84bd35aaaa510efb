"""Members are small because each is packed against one that is like it, and say what went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from repokit.architectures.archive import Archive, archive
from repokit.architectures.deriver import packing
from repokit.architectures.deriver.packing import archived, fitting
from repokit.architectures.folding import folded, unfolded

pytestmark = pytest.mark.oracle
NAMES = ("q", "k", "v", "o", "gate", "up", "down", "norm")


def document(number: int, evidence: str = "verified") -> dict[str, Any]:
    layers = [[f"model.layers.{{i}}.{name}.weight", [f"width_{number % 7}", "hidden_size"]] for name in NAMES]
    record = {"evidence": evidence, "configs": 24, "prefix": "model", "blocks": [["True", ["layers"], False, layers]]}
    config = {"class": f"C{number}", "defaults": {"hidden_size": number}, "aliases": [], "derive": {}, "subs": {}}
    said = {"format": 1, "source": f"{number:016x}", "transformers": "5.24.0", "date": "2026-11-30"}
    return folded({**said, "model_type": f"m{number}", "config": config, "classes": {f"Class{number}": record}})


DOCUMENTS = {f"m{number}": document(number) for number in range(30)}


def read(content: bytes, tmp_path: Path) -> Archive:
    (tmp_path / "skeletons.bin").write_bytes(content)
    archive.cache_clear()
    return archive(tmp_path / "skeletons.bin")


def test_every_member_comes_back(tmp_path: Path) -> None:
    known = read(archived(DOCUMENTS)[0], tmp_path)
    assert {name: known.document(name) for name in known.entries} == DOCUMENTS


def test_relatives_make_members_smaller() -> None:
    together, alone = archived(DOCUMENTS)[1], [archived({name: one})[1][name] for name, one in DOCUMENTS.items()]
    assert sum(together.values()) < 0.6 * sum(alone)


def test_a_member_says_what_was_derived(tmp_path: Path) -> None:
    known = read(archived(DOCUMENTS)[0], tmp_path).document("m7")
    assert unfolded(known["classes"]["Class7"], known)["blocks"][0][3][0] == [
        "model.layers.{i}.q.weight",
        ["width_0", "hidden_size"],
    ]


def test_what_is_only_partial_is_left_out_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = {**DOCUMENTS, **{f"m{number}": document(number, "partial") for number in range(5)}}
    monkeypatch.setattr(packing, "LARGEST", len(archived(mixed)[0]) - 1)
    content, left_out = fitting(mixed)
    assert len(content) <= packing.LARGEST
    assert left_out
    assert set(left_out) <= {f"m{number}" for number in range(5)}
