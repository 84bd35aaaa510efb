from __future__ import annotations

import pytest

from repokit.hub.references import is_reference_name


@pytest.mark.parametrize("name", ["main", "v1.0", "release/v1", "a-b", "x@y", "ünï"])
def test_a_name_that_a_branch_can_have(name):
    assert is_reference_name(name)


@pytest.mark.parametrize(
    "name", ["", "a b", "a..b", "-v", ".a", "a.lock", "a/.b", "a/", "/a", "a//b", "@", "a@{b", "a~1", "a^", "a:b", "a*"]
)
def test_a_name_that_git_refuses(name):
    assert not is_reference_name(name)


def test_a_full_reference_is_not_a_short_name():
    assert not is_reference_name("refs/heads/main")
