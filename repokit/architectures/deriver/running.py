"""Runs derivations side by side, each in a process of its own, and keeps what they gave: a run can be stopped any time.

Every config class has one file in the work folder: its member document and the log of how it came about. A class whose
sources are those of that file is not derived again unless it is asked for.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from repokit.architectures.deriver.classes import model_types, source_hash
from repokit.architectures.deriver.deriving import Budget, Derivation
from repokit.architectures.deriver.sampling import Underivable
from repokit.architectures.deriver.truth import prepare
from repokit.architectures.member import Evidence

USUAL: Final = Budget()
SECONDS: Final = 180.0  # for one config class; what takes longer is given up


@dataclass(slots=True)
class _Running:
    process: BaseProcess
    name: str
    since: float


def derive_all(
    work: Path, names: Sequence[str], *, jobs: int, seconds: float = SECONDS, seed: int = 0, budget: Budget = USUAL
) -> Iterator[str]:
    """Derives config classes; yields a line for each when it is done.

    Args:
        work: Where the records lie.
        names: Config classes.
        jobs: How many at the same time.
        seconds: The limit for one of them.
        seed: Of the samples.
        budget: Of each.
    """
    work.mkdir(parents=True, exist_ok=True)
    model_types()  # imports every model, once and here: the processes are forked
    context = multiprocessing.get_context("fork")
    waiting, running = list(names), list[_Running]()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            process = context.Process(target=_derive, args=(work, name, seed, budget), daemon=True)
            process.start()
            running.append(_Running(process, name, time.monotonic()))
        time.sleep(0.05)
        for one in list(running):
            late = time.monotonic() - one.since > seconds
            if late:
                one.process.kill()
                one.process.join()
                _keep(work, one.name, {"error": f"took more than {seconds:g} s"})
            if not one.process.is_alive():
                running.remove(one)
                yield f"{len(waiting) + len(running):4} {one.name} {summary(record(work, one.name))}"


def _derive(work: Path, name: str, seed: int, budget: Budget) -> None:
    prepare()
    start = time.monotonic()
    derivation = Derivation(name, model_types()[name], budget, seed)
    before = record(work, name)
    found: dict[str, Any]
    try:
        if budget.singly and before and "document" in before:
            found = {"document": singly(before, name, budget, seed)}
            derivation.log.update(before.get("log", {}))
        else:
            found = {"document": derivation.run()}
    except Underivable as why:
        found = {"error": str(why)[:300]}
    except BaseException as error:  # noqa: BLE001 - a class may fail in any way; the others go on
        found = {"error": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()[-1500:]}
    _keep(work, name, {**found, "log": derivation.log, "seconds": round(time.monotonic() - start, 1)})
    os._exit(0)  # nothing of the parent's is to be cleaned up here


def singly(before: Mapping[str, Any], name: str, budget: Budget, seed: int) -> dict[str, Any]:
    """A document in which each class that is not verified has been derived alone, with all the samples for itself.

    What is found is taken over where it reads config.json as the rest of the document does.
    """
    document = {**before["document"], "classes": dict(before["document"]["classes"])}
    for one in before["classes"]:
        if document["classes"].get(one, {}).get("evidence") == Evidence.VERIFIED:
            continue
        alone = Derivation(name, [one], budget, seed).run()
        if alone["classes"].get(one, {}).get("evidence") != Evidence.VERIFIED:
            continue
        if (config := _together(document["config"], alone["config"])) is not None:
            document = {**document, "config": config, "classes": {**document["classes"], one: alone["classes"][one]}}
    return document


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """Two readings of config.json in one; None where they differ about a key."""
    joined: dict[str, Any] = dict(one)
    for part in ("defaults", "derive", "initial"):
        both = one[part].keys() & other[part].keys()
        if any(one[part][key] != other[part][key] for key in both):
            return None
        joined[part] = {**one[part], **other[part]}
    ruled = joined["derive"].keys()
    if any(key in ruled and key not in side["derive"] for side in (one, other) for key in side["defaults"]):
        return None  # what one computes, the other takes as it stands
    joined["aliases"] = [*one["aliases"], *(pair for pair in other["aliases"] if pair not in one["aliases"])]
    return joined


def _keep(work: Path, name: str, found: Mapping[str, Any]) -> None:
    """Writes a record, unless an earlier one of the same sources is better."""
    now = {**found, "source": source_hash(name), "classes": list(model_types()[name])}
    before = record(work, name)
    if before and before["source"] == now["source"] and worth(before) > worth(now):
        return
    temporary = work / f".{name}.json"
    temporary.write_text(json.dumps(now), encoding="utf-8")
    temporary.replace(work / f"{name}.json")


def record(work: Path, name: str) -> dict[str, Any] | None:
    """What is kept of a config class; None: nothing."""
    path = work / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def worth(kept: Mapping[str, Any]) -> tuple[int, int]:
    """How many classes a record verifies, and how many it knows partly."""
    evidence = [entry["evidence"] for entry in kept.get("document", {}).get("classes", {}).values()]
    return evidence.count(Evidence.VERIFIED), evidence.count(Evidence.PARTIAL)


def summary(kept: Mapping[str, Any] | None) -> str:
    """One line about a record."""
    if kept is None:
        return "died"
    verified, partial = worth(kept)
    none = len(kept["classes"]) - verified - partial
    return (
        f"{verified} verified, {partial} partial, {none} none, {kept.get('seconds', 0)} s {kept.get('error', '')[:90]}"
    )


def current(work: Path, name: str) -> bool:
    """Whether what is kept of a class was derived from the sources that are installed."""
    kept = record(work, name)
    return kept is not None and kept["source"] == source_hash(name)


def whole(work: Path, name: str) -> bool:
    """Whether every class of the type is verified."""
    kept = record(work, name)
    return kept is not None and worth(kept)[0] == len(kept["classes"])
