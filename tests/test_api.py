"""What the command line cannot show of the API."""

from __future__ import annotations

import pytest

from repokit import api
from repokit.errors import InputError, InternalError, Stopped
from repokit.linter import engine
from repokit.linter.examples import single
from repokit.linter.finding import Coverage, Finding, Report
from repokit.repo.memory import Memory

ERROR = Finding("CFG101", "missing-model-type", api.Severity.ERROR, "config.json", "has no model_type")


@pytest.fixture
def gate(monkeypatch):
    """A gate whose linter answers what the test says."""

    def make(*findings, **coverage):
        report = Report("memory", findings, Coverage(**coverage))
        monkeypatch.setattr(engine, "lint", lambda *_, **_options: report)
        return api.Gate(api.Selection())

    return make


def test_findings_stop_a_gate_even_where_a_rule_is_broken(gate):
    with pytest.raises(Stopped):
        gate(ERROR, broken={"TOK101": "ZeroDivisionError"})(Memory(single()), "push")


def test_a_broken_rule_is_a_bug_and_stops_a_gate(gate):
    with pytest.raises(InternalError, match="TOK101"):
        gate(broken={"TOK101": "ZeroDivisionError"})(Memory(single()), "push")


def test_what_could_not_be_read_stops_a_gate(gate):
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        gate(unread=("tokenizer.json: cannot be read",))(Memory(single()), "push")


def test_a_clean_repository_passes():
    api.Gate(api.Selection())(Memory(single()), "push")
