"""`repokit lint org/name` over the headers of a terabyte, beside a bare loop of range requests for the same shards.

    python tests/bench/remote.py [--folder DIR]

The Hub is the one of the tests, on 127.0.0.1 in this process: no network is measured, only what is asked of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import MEGABYTE, REPOKIT, Line, Run, best, run, seconds, show
from models import write_terabyte

from repokit.formats.safetensors import FIRST_READ
from repokit.rehearsal import Hub
from repokit.rehearsal.commits import Add, Message, large_file, regular_file
from repokit.rehearsal.storage import Key

_SHARDS = 200
_ROUNDS = 3
_REPO = "rehearsal/terabyte"

_LOOP = f"""
import sys
from huggingface_hub import get_session
for part in range(1, {_SHARDS} + 1):
    address = f"{{sys.argv[1]}}/{_REPO}/resolve/main/model-{{part:05}}-of-{_SHARDS:05}.safetensors"
    answer = get_session().get(address, headers={{"Range": "bytes=0-{FIRST_READ - 1}"}})
    assert answer.status_code == 206 and len(answer.content) == {FIRST_READ}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, help="where the files are made; the temporary folder by default")
    arguments.add_argument("--json", action="store_true", help="for test_budgets.py")
    with tempfile.TemporaryDirectory(dir=arguments.parse_args().folder) as work, Hub(Path(work) / "hub") as hub:
        tensors = write_terabyte(Path(work) / "terabyte", shards=_SHARDS)
        _publish(hub, Path(work) / "terabyte")
        show(_lines(hub, Path(work), tensors))


def _publish(hub: Hub, folder: Path) -> None:
    """Past the protocol: nobody hashes a terabyte of holes. The Hub calls shards by their number."""
    key = Key("models", *_REPO.split("/"))
    hub.storage.create(key, author="rehearsal", private=False)
    additions = []
    for number, path in enumerate(sorted(folder.iterdir())):
        if path.suffix == ".safetensors":
            place = hub.storage.objects.path(f"{number:064x}")
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, place)
            additions.append(Add(path.name, large_file(f"{number:064x}", path.stat().st_size)))
        else:
            content = path.read_bytes()
            additions.append(Add(path.name, regular_file(content, hub.storage.objects.add(content))))
    hub.storage.commit(key, "main", additions, Message("rehearsal", "a terabyte"))


def _lines(hub: Hub, work: Path, tensors: int) -> list[Line]:
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(work / "home"), "HF_HUB_OFFLINE": "0"}
    settings["HF_HUB_DISABLE_TELEMETRY"] = "1"
    lint = [*REPOKIT, "lint", f"{_REPO}@main", "--fail-on", "never"]
    caches = iter(range(10**6))

    def first() -> Run:
        return run(lint, variables={**settings, "REPOKIT_CACHE_DIR": str(work / f"cache{next(caches)}")})

    before = hub.bytes_sent, len(hub.requests)
    first()
    sent = hub.bytes_sent - before[0]
    asked = [path for _, path in hub.requests[before[1] :] if not path.startswith("/objects/")]
    small = [path for path in (work / "terabyte").iterdir() if path.suffix != ".safetensors"]
    texts = sum(path.stat().st_size for path in small)
    again = partial(run, lint, variables={**settings, "REPOKIT_CACHE_DIR": str(work / "cache0")})
    loop = partial(run, [sys.executable, "-c", _LOOP, hub.endpoint], variables=settings)
    loops, linted, repeated = best(loop, first, again, rounds=_ROUNDS)
    # One request more than a file: the Hub's own .gitattributes, a page of the tree, and the commit.
    allowed = _SHARDS + len(small) + 3
    listing = 0.3 * _SHARDS / 1000 + 0.1  # MB: about 300 bytes a file, and the commit's answer
    budget = texts / MEGABYTE + _header_bytes(work / "terabyte") / MEGABYTE + _SHARDS * FIRST_READ / MEGABYTE + listing
    return [
        Line(f"lint of {_SHARDS} shards, {tensors:,} tensors on a Hub: requests", len(asked), allowed, "requests"),
        Line("its bytes", sent / MEGABYTE, budget, "MB"),
        Line("beside a loop of range requests", linted.seconds / loops.seconds, 4, detail=seconds(linted, loops)),
        Line("the second time", repeated.seconds / loops.seconds, 3, detail=seconds(repeated, loops)),
        Line("its peak memory", linted.peak / MEGABYTE, 250, "MB"),
    ]


def _header_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as stream:
            total += 8 + int.from_bytes(stream.read(8), "little")
    return total


if __name__ == "__main__":
    main()
