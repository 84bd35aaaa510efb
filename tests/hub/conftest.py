from __future__ import annotations

import os

import pytest

# Read when huggingface_hub is imported; `real_client` sets them once more for a process that imported it before.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture(autouse=True)
def _alone(real_client: None) -> None:
    """Every test here talks to a Hub on this machine, or to none."""
