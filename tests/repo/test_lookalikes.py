from __future__ import annotations

import pytest

from repokit.repo.lookalikes import invisible, seen_as


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<s\u200b>", "<s>"),
        ("</\u0455>", "</s>"),
        ("m\u0435ta-ll\u0430ma", "meta-llama"),
        ("<\uff5cUser\uff5c>", "<\uff5cUser\uff5c>"),
        ("日本", "日本"),
    ],
)
def test_text_is_seen_as_what_it_looks_like(text: str, seen: str) -> None:
    assert seen_as(text) == seen


@pytest.mark.parametrize(
    ("text", "expected"), [("plain", False), ("é日", False), ("a\u200bb", True), ("\u202e", True), ("\U000e0061", True)]
)
def test_what_no_screen_shows_is_invisible(text: str, expected: bool) -> None:  # noqa: FBT001
    assert invisible(text) is expected
