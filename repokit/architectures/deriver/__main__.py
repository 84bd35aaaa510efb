"""python -m repokit.architectures.deriver WORK [--types NAME ...] [--again] [--jobs N] [--pack] [--diff].

Derives the skeletons of every model class of the installed transformers (derive, verify with counterexamples), and
writes them into data/architectures (--pack) or says what would change there (--diff).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from repokit.architectures.deriver.classes import model_types
from repokit.architectures.deriver.running import SECONDS, USUAL, current, derive_all, whole


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder of the records; a run that was stopped goes on from them")
    parser.add_argument("--types", nargs="*", help="config classes (LlamaConfig); all unless given")
    parser.add_argument("--again", action="store_true", help="also those that were derived and are not wholly verified")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit for one config class")
    parser.add_argument("--patient", action="store_true", help="several times slower; for types that came out partial")
    parser.add_argument("--singly", action="store_true", help="with --again: what is not verified, class by class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pack", action="store_true", help="write data/architectures from the records")
    parser.add_argument("--diff", action="store_true", help="say what --pack would change")
    options = parser.parse_args()
    if options.pack or options.diff:
        from repokit.architectures.deriver.packing import pack

        for line in pack(options.work, write=options.pack):
            print(line)  # noqa: T201
        return 0
    budget = replace(USUAL, patient=options.patient, singly=options.singly, fit=12.0 if options.patient else USUAL.fit)
    names = options.types or list(model_types())
    if options.again:
        open_names = [name for name in names if not whole(options.work, name)]
    else:
        open_names = [name for name in names if not current(options.work, name)]
    for line in derive_all(
        options.work, open_names, jobs=options.jobs, seconds=options.seconds, seed=options.seed, budget=budget
    ):
        print(line, flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
