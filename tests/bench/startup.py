"""How long the first answer takes, beside a bare interpreter.

python tests/bench/startup.py
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import CHECKOUT, REPOKIT, Line, best, run, seconds, show

_ROUNDS = 20


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        tiny = Path(work) / "tiny"
        recipe = Path(work) / "repokit.yaml"
        source = CHECKOUT / "repokit/data/demo/trainer-output/checkpoint-200"
        recipe.write_text(
            f"version: 1\nsource: {source}\noutput: {tiny}\nlicense: {{id: apache-2.0}}\n", encoding="utf-8"
        )
        run([*REPOKIT, "build", recipe, "-q"])
        bare, helped, linted = best(
            partial(run, [sys.executable, "-c", "pass"]),
            partial(run, [*REPOKIT, "--help"]),
            partial(run, [*REPOKIT, "lint", tiny]),
            rounds=_ROUNDS,
        )
    # 0.5 s on a machine whose bare interpreter takes 0.025 s, and longer on a slower one.
    allowed = 0.5 * max(1.0, bare.seconds / 0.025)
    helping = Line("--help, beside python -c pass", helped.seconds / bare.seconds, 8, detail=seconds(helped, bare))
    linting = Line("lint of a tiny repository", linted.seconds, allowed, "s", detail=seconds(linted, bare))
    show([helping, linting])


if __name__ == "__main__":
    main()
