"""Secrets are found, placeholders are not, and no report shows one."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, strategies as st

from repokit.linter.engine import lint
from repokit.linter.finding import Finding
from repokit.linter.rules.security import is_leak
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

# Assembled from parts, so that no scanner takes this file for a leak.
FILL = "ZkaQwbLmcRtdYpeXvfBngHdhGfiJsjCaEuIoTyNb"
SECRETS = {
    "hugging face": "hf" + "_" + FILL[:34],
    "organisation": "api" + "_org_" + FILL[:34],
    "aws": "AK" + "IA" + "QWERTYUIOPASDFGH",
    "github": "gh" + "p_" + FILL[:36],
    "openai": "sk" + "-proj-" + FILL,
    "google": "AI" + "za" + FILL[:35],
    "slack": "xox" + "b-" + "123456789012-" + FILL[:24],
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxIn0." + FILL,
    "address": "https://user:" + "hunter2x9" + "@example.invalid/x.git",
    "wandb": "wandb_api_key = " + hashlib.sha256(b"repokit").hexdigest()[:40],
    "pem": "-----BEGIN RSA " + "PRIVATE KEY-----",
}
PLACEHOLDERS = [
    "hf_" + "x" * 34,
    "hf_YourTokenYourTokenYourTokenYourTok",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-" + "." * 40,
    "https://user:password@example.org",
    "https://${USER}:${TOKEN}@example.org",
    "https://example.org:8080/a@b",
    "wandb: run at commit " + "a1" * 20,
]


def found(**files: str) -> list[Finding]:
    named = {name.replace("__", "."): content.encode() for name, content in files.items()}
    return [*lint(Repository(Memory(named)), Selection(select=("SEC1",))).findings]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_found_in_a_card(secret: str) -> None:
    assert [(finding.path, finding.place) for finding in found(README__md=f"# A model\n\n{secret}\n")] == [
        ("README.md", "line 3")
    ]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_never_shown(secret: str) -> None:
    (finding,) = found(notes__txt=secret)
    shown = json.dumps([finding.message, finding.place, finding.hint, finding.names])
    assert secret[5:] not in shown


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_none(text: str) -> None:
    assert found(README__md=text) == []


@pytest.mark.parametrize("name", ["train.py", "demo.ipynb", "log.csv", ".env.example", "Makefile", "config.yaml"])
def test_every_text_file_is_read(name: str) -> None:
    repository = Repository(Memory({name: SECRETS["hugging face"].encode()}))
    assert [finding.path for finding in lint(repository, Selection(select=("SEC101",))).findings] == [name]


@given(st.binary(max_size=400))
def test_any_bytes_can_be_searched(content: bytes) -> None:
    report = lint(Repository(Memory({"notes": content})), Selection(select=("SEC",)))
    assert report.coverage.broken == {}


@pytest.mark.parametrize(
    ("pointer", "value", "leaks"),
    [
        ("/_name_or_path", "/home/alice/model", True),
        ("/_name_or_path", "./checkpoint-900", True),
        ("/_name_or_path", "~/models/x", True),
        ("/anything", "/home/alice/model", True),
        ("/anything", "C:\\Users\\alice", True),
        ("/anything", "file:///data/x", True),
        ("/_name_or_path", "org/name", False),
        ("/_name_or_path", "", False),
        ("/anything", "./x", False),
        ("/anything", "/v1/chat", False),
        ("/anything", "see /home/alice", False),
        ("/chat_template", "/home/{{ x }}\n{% if y %}", False),
        ("/base_model_name_or_path", "/home/alice/base", False),
        ("/auto_map/AutoModel", "/data/code.Model", False),
    ],
)
def test_what_is_a_path_of_somebodys_machine(pointer: str, value: str, *, leaks: bool) -> None:
    assert is_leak(pointer, value) is leaks
