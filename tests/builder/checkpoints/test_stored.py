"""What a plan holds of tensors that lie in parts."""

from __future__ import annotations

import pytest

from repokit.builder.checkpoints.stored import InFiles, Part, TensorAt
from repokit.builder.plan import Sources
from repokit.errors import UnsupportedSource


@pytest.mark.parametrize(
    "parts",
    [
        (Part("a", 0, (2, 1), place=(0, 0)), Part("b", 0, (2, 3), place=(0, 1))),
        (Part("a", 0, (2, 2), place=(0, 0)), Part("b", 0, (2, 2), place=(0, 2))),
        (Part("a", 0, (3,)), Part("b", 0, (5,))),
    ],
)
def test_elements_of_4_bits_are_not_cut_through_their_bytes(tmp_path, workshop, parts):
    root = workshop.checkpoint()
    shape = (2, 4) if parts[0].place else (8,)
    weights = InFiles(root, None)
    with pytest.raises(UnsupportedSource, match="is cut through the bytes of F4 elements"):
        weights.pieces(TensorAt("a", "F4", shape, 0, parts=parts), Sources())
