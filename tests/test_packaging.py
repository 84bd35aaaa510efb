"""What reaches users: the wheel holds code, data, schemas and templates, finds them, and brings nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed")

# Prints the resource folders that the repokit on PYTHONPATH finds, and that they are not empty.
_RESOURCES = """
from repokit.resources import data, folder
for name in ("schemas", "templates", "data"):
    print(folder(name), len(list(folder(name).iterdir())) > 0)
assert data("model_types")
"""


def _built(checkout: Path, folder: Path, target: str) -> Path:
    """One artifact, as a build front end would have it made; no network."""
    program = f"from hatchling.build import build_{target}; print(build_{target}({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(checkout, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 - made by the fixture above
    return folder


def _tree(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in paths}


@pytest.mark.parametrize("name", ["schemas", "templates"])
def test_the_wheel_carries_what_stands_at_the_top_of_a_checkout(checkout: Path, unpacked: Path, name: str) -> None:
    assert _tree(unpacked / "repokit" / name) == _tree(checkout / name) != set()


def test_the_wheel_carries_the_whole_package(checkout: Path, unpacked: Path) -> None:
    resources = ("schemas/", "templates/")
    carried = {path for path in _tree(unpacked / "repokit") if not path.startswith(resources)}
    assert carried == _tree(checkout / "repokit") - {"architectures/COVERAGE.md"}  # for who reads the repository


@pytest.mark.parametrize(
    "path",
    [
        "repokit/py.typed",
        "repokit/data/licenses.json",
        "repokit/data/demo/make_checkpoint.py",
        "repokit/data/demo/trainer-output/checkpoint-200/model.safetensors",
    ],
)
def test_the_wheel_carries(unpacked: Path, path: str) -> None:
    assert (unpacked / path).is_file()


def test_the_wheel_brings_nothing_beside_the_package(unpacked: Path) -> None:
    assert {path.name.partition("-")[0] for path in unpacked.iterdir()} == {"repokit"}


def test_the_wheel_states_version_license_and_command(unpacked: Path) -> None:
    import repokit

    (info,) = unpacked.glob("*.dist-info")
    metadata = (info / "METADATA").read_text(encoding="utf-8")
    assert f"\nVersion: {repokit.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert (info / "licenses" / "LICENSE").is_file()
    assert "repokit = repokit.__main__:main" in (info / "entry_points.txt").read_text(encoding="utf-8")


def _found(python_path: Path, elsewhere: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RESOURCES],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(python_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_resources_are_found_in_an_installed_wheel(unpacked: Path, tmp_path: Path) -> None:
    inside = unpacked / "repokit"
    assert _found(unpacked, tmp_path) == [f"{inside / name} True" for name in ("schemas", "templates", "data")]


def test_resources_are_found_in_a_checkout(checkout: Path, tmp_path: Path) -> None:
    places = [checkout / "schemas", checkout / "templates", checkout / "repokit" / "data"]
    assert _found(checkout, tmp_path) == [f"{place} True" for place in places]


def test_the_source_archive_builds_the_same_wheel(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    archive = _built(checkout, tmp_path, "sdist")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    again = _built(folder, tmp_path, "wheel")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
