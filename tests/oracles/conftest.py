"""The oracle repositories, written once on a machine and kept until the script or a library changes.

They lie in `.oracle-cache/` of the checkout, or in $REPOKIT_ORACLE_CACHE: about 25 MB for each combination of script
and libraries. Both may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # so that tests import make_models and loading under the names that the script uses

from make_models import LIBRARIES  # noqa: E402 - found through the line above

SCRIPT = HERE / "make_models.py"
VERSIONED = ("transformers", "torch", "peft")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("oracle") and (absent := absent_libraries()):
        pytest.skip(f"oracle tests need {', '.join(absent)}: install the dependency group `oracles`")


@cache
def absent_libraries() -> tuple[str, ...]:
    return tuple(name for name in LIBRARIES if find_spec(name) is None)


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder that holds all oracle repositories, by case name. Shared: a test that changes one copies it first."""
    from filelock import FileLock

    cache_folder = Path(os.environ.get("REPOKIT_ORACLE_CACHE") or HERE.parents[1] / ".oracle-cache").resolve()
    cache_folder.mkdir(parents=True, exist_ok=True)
    (cache_folder / ".gitignore").write_text("*\n")
    written = cache_folder / cache_key()
    with FileLock(cache_folder / ".lock"):  # the workers of pytest-xdist start together
        if not written.is_dir():
            write_models(written)
    return written


def cache_key() -> str:
    """The versions of the libraries, and a digest of the script and the modules that it imports."""
    digest = hashlib.sha256()
    for path in (SCRIPT, *sorted((HERE / "tiny_models").glob("*.py"))):
        digest.update(path.read_bytes())
    return "-".join([*(f"{name}-{version(name)}" for name in VERSIONED), digest.hexdigest()[:16]])


def write_models(directory: Path) -> None:
    """All cases. The folder appears only when it is complete."""
    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    done = subprocess.run([sys.executable, SCRIPT, partial], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{SCRIPT.name} failed:\n{done.stdout}\n{done.stderr}", pytrace=False)
    partial.rename(directory)
