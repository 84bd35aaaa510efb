""".gitattributes as Git reads it, and the headers of NumPy's arrays."""

from __future__ import annotations

import io

import numpy as np
import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Change, Example
from repokit.linter.selection import Selection
from repokit.repo.repository import Repository


def codes(**files: Change) -> list[str]:
    change = {path.replace("_dot_", "."): content for path, content in files.items()}
    selection = Selection(select=("FIL127", "FIL128", "FIL221", "FIL222"))
    return [finding.code for finding in lint(Repository(Example("", change).source()), selection).findings]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*.safetensors filter=lfs diff=lfs merge=lfs -text\n", []),
        ("model* filter=lfs\n", []),
        ("# *.safetensors filter=lfs\n", ["FIL221"]),
        ("*.safetensors filter=lfs\n*.safetensors !filter\n", ["FIL221"]),
        ("*.safetensors -text filter=lfs\n*.ipynb filter=nbstripout\n", ["FIL127"]),
        ("", ["FIL221"]),
    ],
)
def test_the_last_line_that_matches_decides(text: str, found: list[str]) -> None:
    assert codes(_dot_gitattributes=text) == found


def saved(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(2, dtype=np.float32), []),
        (np.array(["a", "b"]), []),
        (np.zeros(2, dtype="i4,f8"), []),
        (np.array([{"a": 1}], dtype=object), ["FIL128"]),
    ],
    ids=["numbers", "text", "named fields", "objects"],
)
def test_arrays_that_numpy_writes(array: np.ndarray, found: list[str]) -> None:
    assert codes(x_dot_npy=saved(array)) == found
