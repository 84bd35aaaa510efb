from __future__ import annotations

import json

from repokit.linter.engine import lint
from repokit.linter.examples import single
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository


def test_thousands_of_wrong_values_of_one_kind_are_one_finding():
    files = {**single(), "added_tokens.json": json.dumps({f"<{n}>": str(n) for n in range(3000)}).encode()}
    findings = [finding for finding in lint(Repository(Memory(files))).findings if finding.code == "FIL104"]
    assert [len(finding.names) for finding in findings] == [3000]
