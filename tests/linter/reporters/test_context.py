"""Where a target lies in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from repokit.linter.finding import Finding, Severity
from repokit.linter.reporters.context import Context, folder_in


@pytest.mark.parametrize(("target", "folder"), [(".", ""), ("models/a", "models/a"), ("models/../models", "models")])
def test_a_target_below_the_root_has_its_folder(tmp_path: Path, target: str, folder: str) -> None:
    (tmp_path / "models" / "a").mkdir(parents=True)
    assert folder_in(tmp_path, tmp_path / target) == folder


def test_a_hidden_folder_keeps_its_name(tmp_path: Path) -> None:
    assert folder_in(tmp_path, tmp_path / ".cache" / "m") == ".cache/m"


def test_a_target_elsewhere_has_none(tmp_path: Path) -> None:
    assert folder_in(tmp_path / "a", tmp_path / "b") is None


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert folder_in(tmp_path, tmp_path / "link") == "real"


@pytest.mark.parametrize(("folder", "path"), [("", "config.json"), ("m", "m/config.json"), (None, "config.json")])
def test_a_path_is_that_of_the_checkout(folder: str | None, path: str) -> None:
    assert Context(folder).path(Finding("CFG101", "x", Severity.ERROR, "config.json", "is odd")) == path
