"""What `import repokit` offers is a list, and this is it. A change here is a change for users: CHANGELOG.md names it."""

from __future__ import annotations

import pytest

import repokit

PUBLIC = [
    "Built",
    "Coverage",
    "Draft",
    "FilesReport",
    "Finding",
    "Fixes",
    "Gate",
    "Ignore",
    "Inspection",
    "Linted",
    "LoadReport",
    "Mended",
    "Plan",
    "PushRequest",
    "PushResult",
    "Recipe",
    "RepokitError",
    "Report",
    "Repository",
    "Rule",
    "Selection",
    "Severity",
    "Source",
    "__version__",
    "build",
    "check_load",
    "check_plan",
    "init",
    "inspect",
    "lint",
    "open_repository",
    "plan",
    "push",
    "push_request",
    "read_plan",
    "read_recipe",
    "verify",
]


def test_the_list_is_the_committed_one() -> None:
    assert repokit.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(repokit, name) is not None


def test_every_name_has_one_home() -> None:
    """A name that is listed and lives nowhere would only be missed by the one who uses it."""
    assert repokit._HOMES.keys() <= set(PUBLIC)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lnit'"):
        repokit.lnit  # noqa: B018 - the access is what is tested


def test_dir_lists_the_public_names() -> None:
    assert dir(repokit) == sorted(PUBLIC)
