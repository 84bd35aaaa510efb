"""The oracle repositories of tests/oracles, and what the libraries showed of mutants in earlier runs."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ORACLES = HERE.parent / "oracles"
sys.path[:0] = [str(HERE), str(ORACLES)]  # the modules here import each other by these names

os.environ.update(
    HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error"
)

_SPEC = importlib.util.spec_from_file_location("oracles_conftest", ORACLES / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_ORACLES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_ORACLES)

models = _ORACLES.models
pytest_runtest_setup = _ORACLES.pytest_runtest_setup


@pytest.fixture(scope="session")
def cache_folder(models: Path) -> Path:
    """Where it is kept, once for each combination of libraries, what they showed."""
    return models.parent


@pytest.fixture
def quiet() -> Iterator[None]:
    """One thread, no bars and no warnings: mutants give thousands."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    threads, level = torch.get_num_threads(), logging.root.manager.disable
    torch.set_num_threads(1)
    disable_progress_bar()
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(level)
    torch.set_num_threads(threads)
