"""Names of files: gitignore patterns as the uploader reads them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from repokit.linter.rules.names import is_ignored


@pytest.mark.parametrize(
    ("path", "patterns", "ignored"),
    [
        ("model.safetensors", ["*.safetensors"], True),
        ("unet/model.safetensors", ["*.safetensors"], True),
        ("unet/model.safetensors", ["unet/"], True),
        ("unet/model.safetensors", ["unet"], True),
        ("unet/model.safetensors", ["/unet"], True),
        ("a/unet/model.safetensors", ["/unet"], False),
        ("model.safetensors", ["model.safetensors/"], False),
        ("unet/model.safetensors", ["vae/*.safetensors"], False),
        ("config.json", ["*.json", "!config.json"], False),
        ("config.json", ["!config.json", "*.json"], True),
        ("config.json", [], False),
    ],
)
def test_the_last_pattern_decides(path: str, patterns: list[str], *, ignored: bool) -> None:
    assert is_ignored(path, patterns) is ignored


@given(st.text("ab*?[]/!.", max_size=20), st.lists(st.text("ab*?[]/!.", max_size=8), max_size=4))
def test_any_pattern_can_be_asked(path: str, patterns: list[str]) -> None:
    assert is_ignored(path, patterns) in {True, False}
