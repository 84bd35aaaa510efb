from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

# Read when huggingface_hub is imported; `real_client` sets them once more for a process that imported it before.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from huggingface_hub import HfApi

from repokit.publisher.push import push

if TYPE_CHECKING:
    from pathlib import Path

    from repokit.rehearsal import Hub

REPO = "rehearsal/model"

FILES = {
    "README.md": b"---\nlicense: mit\nlanguage: en\n---\n# Model\n",
    "config.json": b'{"model_type": "llama"}\n',
    "model-00001-of-00002.safetensors": b"\x08\0\0\0\0\0\0\0{}      " + bytes(range(256)) * 20,
    "model-00002-of-00002.safetensors": b"\x08\0\0\0\0\0\0\0{}      " + bytes(reversed(range(256))) * 30,
    "assets/deep/note.txt": b"a note\n",
    "empty.txt": b"",
}


@pytest.fixture(autouse=True)
def _alone(real_client: None) -> None:
    """Every test here talks to a Hub on this machine, or to none."""


@pytest.fixture
def api(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=hub.token)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A finished repository: three folders deep, two large files, one that is empty."""
    for path, content in FILES.items():
        place = tmp_path / "dist" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return tmp_path / "dist"


@pytest.fixture
def waits() -> list[float]:
    """The seconds for which a push would have slept."""
    return []


@pytest.fixture
def go(hub: Hub, directory: Path, waits: list[float], transfer: str) -> partial:
    """`push` of `directory` to `REPO`, without sleeping; large files go by LFS, in tests marked with both ways by both."""
    return partial(push, directory, REPO, endpoint=hub.endpoint, token=hub.token, sleep=waits.append)


@pytest.fixture
def published(go: partial, hub: Hub) -> str:
    """The commit of a push that is done; the requests it took are forgotten."""
    commit = go(create=True).commit
    hub.requests.clear()
    return commit
