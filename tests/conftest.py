"""What tests of several packages share: the checkout, and the command line as a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from repokit.linter.examples import Example
    from repokit.linter.finding import Report
    from repokit.rehearsal import Hub
    from repokit.repo.worker import Worker

# No test is failed by a busy machine.
settings.register_profile("repokit", deadline=None)
settings.load_profile("repokit")

CHECKOUT = Path(__file__).resolve().parent.parent

# What would change how a command behaves: the settings of whoever runs the tests.
_SETTINGS = ("HF_", "HUGGING_FACE_", "REPOKIT_", "NO_COLOR", "PYTHON")
_KEPT = {"PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"}  # where bytecode goes changes no answer

# The discard port: a call that forgot its endpoint fails instead of leaving the machine.
NOWHERE = "http://127.0.0.1:9"

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Publish = Callable[..., str]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout."""
    return CHECKOUT


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """An environment in which Python finds this checkout first, and no setting of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_SETTINGS)}
    return {**kept, "PYTHONPATH": str(CHECKOUT)}


@pytest.fixture
def command(tmp_path: Path, environment: dict[str, str]) -> Command:
    """Runs `repokit ARGUMENTS` in `tmp_path`, or in `cwd`, with the given variables set."""

    def run(*arguments: str | Path, cwd: Path = tmp_path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "repokit", *map(str, arguments)],
            cwd=cwd,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the checkpoint that `repokit demo` starts from: a Trainer wrote it, leftovers included."""
    shutil.copytree(CHECKOUT / "repokit" / "data" / "demo" / "trainer-output", tmp_path / "run")
    return tmp_path / "run" / "checkpoint-200"


@pytest.fixture
def real_client(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """huggingface_hub with a home of its own, no token, no xet, and no address but the one that a test gives it."""
    import huggingface_hub
    from huggingface_hub import constants

    home = tmp_path_factory.mktemp("hugging-face-home")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    template = NOWHERE + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(home / "stored_tokens"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    yield
    huggingface_hub.close_session()


@pytest.fixture
def hub(tmp_path: Path, real_client: None) -> Iterator[Hub]:
    """A Hub of this test's own, on 127.0.0.1: rehearsal writes, reader reads, stranger sees what is public."""
    from repokit.rehearsal import Hub

    tokens = {"hf_rehearsal": "rehearsal", "hf_reader": "rehearsal", "hf_stranger": "stranger"}
    organizations = {"lab": ["rehearsal"]}
    with Hub(tmp_path / "hub", tokens, organizations=organizations, read_only=["hf_reader"]) as running:
        yield running
    assert running.failures == []


@pytest.fixture
def transfer(request: pytest.FixtureRequest, real_client: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How large files travel: `lfs`, or `xet` where a test asks for it (parametrize, indirect)."""
    from huggingface_hub import constants
    from huggingface_hub.utils._xet import abort_xet_session

    chosen = getattr(request, "param", "lfs")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", chosen == "lfs")
    if chosen == "lfs":
        yield chosen
        return
    # hf_xet reads HF_HOME and this where its session starts: a test waits milliseconds before a new try, not seconds.
    monkeypatch.setenv("HF_XET_CLIENT_RETRY_BASE_DELAY", "1ms")
    abort_xet_session()
    yield chosen
    abort_xet_session()


@pytest.fixture
def publish(hub: Hub) -> Publish:
    """Puts files into a repository on the Hub past its protocol, and gives the commit id. Weights are large files."""
    from repokit.rehearsal.commits import Add, Message, large_file, regular_file
    from repokit.rehearsal.refusals import AlreadyExists
    from repokit.rehearsal.storage import Key

    def publish(repo_id: str, files: Mapping[str, bytes], revision: str = "main", *, private: bool = False) -> str:
        key = Key("models", *repo_id.split("/"))
        with contextlib.suppress(AlreadyExists):
            hub.storage.create(key, author="rehearsal", private=private)
        additions = []
        for path, content in files.items():
            sha256 = hub.storage.objects.add(content)
            large = path.endswith((".safetensors", ".gguf", ".bin", ".pt"))
            additions.append(Add(path, large_file(sha256, len(content)) if large else regular_file(content, sha256)))
        return hub.storage.commit(key, revision, additions, Message("rehearsal", "files"))

    return publish


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """One worker for all examples: starting one takes longer than most rules."""
    from repokit.repo.worker import Worker

    with Worker() as shared:
        yield shared


@pytest.fixture(scope="session")
def report_of(worker: Worker) -> Callable[[Example], Report]:
    """What the whole table of rules says about an example; worked out once for all tests that ask."""
    from repokit.linter.engine import lint
    from repokit.repo.repository import Repository

    known: dict[int, Report] = {}

    def report(example: Example) -> Report:
        if id(example) not in known:
            repository = Repository(example.source())
            repository._worker, repository.identity = worker, example.identity
            known[id(example)] = lint(repository)
        return known[id(example)]

    return report


@pytest.fixture(scope="session")
def deep_report_of() -> Callable[[Example], Report]:
    """What the rules over values of tensors say about an example, and only they; worked out once."""
    from repokit.linter.engine import lint
    from repokit.linter.examples import Example
    from repokit.linter.rule import Reads
    from repokit.linter.rules import RULES
    from repokit.repo.repository import Repository

    rules = [rule for rule in RULES if rule.reads is Reads.TENSORS]
    known: dict[int, Report] = {}

    def report(example: Example) -> Report:
        if id(example) not in known:
            repository = Repository(example.source())
            if example.against is not None:
                repository.base_model = Repository(Example("base", base=example.against).source())
            known[id(example)] = lint(repository, rules=rules, deep=True)
        return known[id(example)]

    return report
