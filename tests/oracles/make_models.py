"""Writes the oracles: tiny model repositories as transformers and peft themselves write them.

    python tests/oracles/make_models.py OUT [NAME] [--jobs 2]

OUT gets one folder a case; with NAME, only the cases whose name contains it. No network. The same library versions
write the same weights; the vocabularies of WordPiece and Unigram differ from run to run, because the trainers of the
tokenizers library break ties at random.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import shutil
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tiny_models import adapters, media, text, training, variations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiny_models.case import Case

# Needed to write and to load the cases, as they are called when imported.
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "PIL")

CASES: dict[str, Case] = text.CASES | media.CASES | variations.CASES | training.CASES | adapters.CASES

MODELS = tuple(name for name, case in CASES.items() if case.kind != "adapter")
ADAPTERS = tuple(name for name, case in CASES.items() if case.kind == "adapter")

# Facts about what the libraries write, for tests that would otherwise take them for faults of ours.
KNOWN: dict[str, frozenset[str]] = {
    # config.json or generation_config.json keeps the default special ids of the full-size architecture.
    "special ids beyond the vocabulary": frozenset({"idefics3", "modernbert", "qwen2_5_vl", "qwen2_vl", "siglip"}),
    "more embedding rows than tokens": frozenset(
        {"llama-untied-embeds-bigger-than-tokenizer", "qwen2-added-tokens-padded-vocab"}
    ),
    # No tokenizer.json: images only, or a slow tokenizer.
    "no fast tokenizer": frozenset({"vit", "dinov2", "swin", "wav2vec2"}),
    # truncation and padding of the last call stayed in tokenizer.json.
    "padding in tokenizer.json": frozenset({"trainer-output-dir"}),
}

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # two processes on two cores; threads would only fight
    "PYTHONHASHSEED": "0",  # peft writes sets in the order in which Python iterates over them
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}


def write_cases(cases: Iterable[Case], directory: Path, *, jobs: int) -> dict[str, float | str]:
    """Write each case into its folder. A folder that is there is replaced.

    Returns:
        By name, the seconds that a case took, or the traceback of one that failed.
    """
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers"])  # the imports cost more than all cases
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker) as pool:
        futures = {case.name: pool.submit(write_case, case.name, directory / case.name) for case in cases}
        return {name: future.result() for name, future in futures.items()}


def write_case(name: str, directory: Path) -> float | str:
    """One case: the seconds that it took, or its traceback."""
    shutil.rmtree(directory, ignore_errors=True)
    start = time.perf_counter()
    try:
        CASES[name].write(directory)
    except Exception:  # noqa: BLE001 - reported by the caller, after the other cases
        return traceback.format_exc()
    return time.perf_counter() - start


def _start_worker() -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    torch.set_num_threads(1)
    disable_progress_bar()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("name", nargs="?", default="", help="only the cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    chosen = [case for case in CASES.values() if arguments.name in case.name]
    start = time.perf_counter()
    results = write_cases(chosen, arguments.out.resolve(), jobs=arguments.jobs)
    return _report(results, time.perf_counter() - start)


def _report(results: dict[str, float | str], seconds: float) -> int:
    failed = {name: result for name, result in results.items() if isinstance(result, str)}
    for name, result in results.items():
        print(f"{'FAILED':>7}" if name in failed else f"{result:6.2f}s", name)
    for name, trace in failed.items():
        print(f"\n{name}\n{trace}", file=sys.stderr)
    print(f"{len(results) - len(failed)} written, {len(failed)} failed, {seconds:.1f} s")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
