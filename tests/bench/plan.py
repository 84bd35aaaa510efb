"""`repokit build --plan` of a terabyte: 100,000 tensors in 200 files of holes; and what a task of it costs to begin.

    python tests/bench/plan.py [--folder DIR]

It takes about 100 MB of disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, Run, best, run, show
from models import write_recipe, write_terabyte

_SHARDS, _EXPERTS = 200, 553  # 100,083 tensors
_ROUNDS = 5


def planned(recipe: Path) -> Run:
    """Recipe -> plan, linted, in a file beside it."""
    return run([*REPOKIT, "build", recipe, "--plan", recipe.with_name("plan.json"), "-q"])


def begun(recipe: Path) -> Run:
    """A task without files, of more tasks than there are files: reads the plan, and knows that nothing is to be done."""
    return run([*REPOKIT, "build", "--apply", recipe.with_name("plan.json"), "--task", "9999/9999", "-q"])


def without_tokenizer(recipe: Path) -> Path:
    """The same recipe, for weights and config.json alone."""
    document = json.loads(recipe.read_text(encoding="utf-8"))
    document["lint"] = {"ignore": [{"code": "TOK", "reason": "weights alone"}]}
    recipe.write_text(json.dumps(document), encoding="utf-8")
    return recipe


def measured(work: Path) -> list[Line]:
    """As it is divided in the source, and divided anew, so that nothing that is read lies side by side."""
    tensors = write_terabyte(work / "source", shards=_SHARDS, experts=_EXPERTS)
    same = without_tokenizer(write_recipe(work / "same", work / "source", shards="auto"))
    anew = without_tokenizer(write_recipe(work / "anew", work / "source", shards="5GB", dtype="float16"))
    plans = best(partial(planned, same), partial(planned, anew), rounds=_ROUNDS)
    begins = best(partial(begun, same), partial(begun, anew), rounds=_ROUNDS)
    lines = []
    for what, recipe, plan, begin in zip(
        ("planned as it is", "divided anew and cast"), (same, anew), plans, begins, strict=True
    ):
        size = recipe.with_name("plan.json").stat().st_size
        lines += [
            Line(f"1 TB in {tensors:,} tensors, {what}", plan.seconds, 5, "s"),
            Line("its peak memory", plan.peak / MEGABYTE, 500, "MB"),
            Line("bytes of its file for each tensor", size / tensors, 400, "B"),
            Line("a task begins", begin.seconds, 1.5, "s"),
        ]
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as work:
        show(measured(Path(work)))


if __name__ == "__main__":
    main()
