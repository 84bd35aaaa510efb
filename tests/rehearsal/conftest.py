from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

# Read when huggingface_hub is imported; `real_client` sets them once more for a process that imported it before.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from huggingface_hub import CommitOperationAdd, HfApi

if TYPE_CHECKING:
    from repokit.rehearsal import Hub

REPO = "rehearsal/model"


@pytest.fixture(autouse=True)
def _alone(real_client: None) -> None:
    """Every test here talks to a Hub on this machine, or to none."""


@pytest.fixture
def api(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=hub.token)


@pytest.fixture
def stranger(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token="hf_stranger")


@pytest.fixture
def visitor(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=False)


@pytest.fixture
def repo(api: HfApi) -> str:
    """A repository with one regular and one large file beside `.gitattributes`."""
    api.create_repo(REPO)
    additions = [CommitOperationAdd("config.json", b"{}"), CommitOperationAdd("model.safetensors", WEIGHTS)]
    api.create_commit(REPO, additions, commit_message="first")
    return REPO


# The smallest complete file: an empty tensor table, padded, and no values.
HEADER = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(range(16))


@pytest.fixture
def weights() -> bytes:
    """The bytes of `model.safetensors` in `repo`: 104 of table, 16 of values."""
    return WEIGHTS
