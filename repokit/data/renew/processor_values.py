"""Renews data/processor_values.json.z: what the processor classes of transformers take.

    python repokit/data/renew/processor_values.py

    defaults  class -> fields that it writes, with the values that it takes where a file lacks them; null is left out
    refused   class -> field -> sorts of values with which it stops: at loading, or at the first image, sound or batch
    parts     class of a whole processor -> what it is made of, the tokenizer left out
    required  class of a whole processor -> fields that it computes with, and has no value of its own for

Sorts: `null`, `list` and `text` (of the number that it takes), `zero`, `negative`, `more` (one more than its own
value), `empty` (an object), `without KEY`, and `SORT KEY` of a member of an object. Each is tried on the class itself,
with all of its other values as they are, and once more on the class of the other backend where there are two: what one
of them takes is not refused.

Needs transformers, torch, pillow and torchvision; torchaudio, where it is there, adds classes.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import re
import signal
import warnings
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import transformers
from PIL import Image
from table import DATA

RANDOM = np.random.default_rng(0)
IMAGE = Image.fromarray(RANDOM.integers(0, 255, (40, 48, 3), dtype=np.uint8))
FRAMES = [np.asarray(IMAGE)] * 8
SOUND = RANDOM.normal(size=8000).astype(np.float32)
ENDINGS = ("ImageProcessor", "VideoProcessor", "FeatureExtractor")
SECONDS = 5  # for one small image
LARGEST = 20  # items of a list that may be a setting; longer ones are tables that the class computes


def main() -> None:
    """Writes the table."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    defaults: dict[str, Any] = {}
    refused: dict[str, Any] = {}
    for name in sorted(name for name in dir(transformers) if name.endswith(ENDINGS)):
        backends = [getattr(transformers, one, None) for one in (name, f"{name}Pil")]
        found = [(cls, settings) for cls in backends if cls is not None and (settings := own_values(cls)) is not None]
        if found:
            print(name, flush=True)
            defaults[name] = found[0][1]
            tried = [sorts for cls, settings in found if (sorts := refusals(cls, settings)) is not None]
            refused[name] = agreed(tried)
    parts, required = wholes(defaults, refused)
    document = {
        "source": f"transformers {transformers.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
        "defaults": defaults,
        "refused": {name: sorts for name, sorts in refused.items() if sorts},
        "parts": parts,
        "required": required,
    }
    packed = zlib.compress(json.dumps(document, sort_keys=True, separators=(",", ":")).encode(), 9)
    (DATA / "processor_values.json.z").write_bytes(packed)
    print(f"processor_values.json.z: {len(defaults)} classes, {len(packed):,} bytes")


def own_values(cls: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a class of transformers
    """What the class writes when nothing was said to it; None where it has to be told something."""
    with contextlib.suppress(Exception):
        written = json.loads(json.dumps(cls().to_dict(), default=_plain))
        return {key: value for key, value in written.items() if is_setting(key, value)}
    return None


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever an attribute holds
    return value.tolist() if hasattr(value, "tolist") else None


def is_setting(key: str, value: object) -> bool:
    """Whether a member of a processor's file is a setting of it that is said."""
    is_table = isinstance(value, list) and (len(value) > LARGEST or any(isinstance(item, list) for item in value))
    return (
        value is not None and not key.endswith(("_type", "processor_class", "device", "data_format")) and not is_table
    )


def refusals(cls: Any, settings: dict[str, Any]) -> dict[str, set[str]] | None:  # noqa: ANN401 - as above
    """Field -> sorts that stop the class; None where it cannot be tried."""
    working = [call for call in calls(cls, settings) if works(cls, settings, call)]
    if not working:
        return None
    found: dict[str, set[str]] = {}
    for key, value in settings.items():
        for sort, other in variants(value):
            if not all(works(cls, {**settings, key: other}, call) for call in working):
                found.setdefault(key, set()).add(sort)
    return found


def calls(cls: Any, settings: dict[str, Any]) -> Iterator[Callable[[Any], object]]:  # noqa: ANN401 - as above
    """What a processor of this sort is asked for."""
    if cls.__name__.endswith("FeatureExtractor"):
        given = {"sampling_rate": settings.get("sampling_rate"), "return_tensors": "np"}
        yield lambda loaded: loaded(SOUND, **given)
        yield lambda loaded: loaded([SOUND, SOUND[:4000]], padding=True, **given)
    elif cls.__name__.endswith("VideoProcessor"):
        yield lambda loaded: loaded(videos=np.stack(FRAMES), return_tensors="pt", do_sample_frames=False)
    else:
        yield lambda loaded: loaded(images=IMAGE, return_tensors="pt")


def works(cls: Any, settings: dict[str, Any], call: Callable[[Any], object]) -> bool:  # noqa: ANN401 - as above
    """Whether a call gives something, with these settings in the file."""
    signal.alarm(SECONDS)
    try:
        call(cls.from_dict(dict(settings)))
    except Exception:  # noqa: BLE001 - whatever is raised is a refusal, and so is what does not end
        return False
    finally:
        signal.alarm(0)
    return True


def _late(_number: int, _frame: object) -> None:
    raise TimeoutError


def variants(value: object) -> Iterator[tuple[str, object]]:
    """Other sorts of values than this one. Booleans and texts are taken as they are by most."""
    yield "null", None
    match value:
        case bool() | str():
            return
        case int() | float():
            yield from (("list", [value]), ("text", str(value)), ("zero", 0 * value))
            yield from (("negative", -value if value else -1), ("more", value + 1))
        case dict():
            yield "empty", {}
            for key, item in value.items():
                if len(value) > 1:
                    yield f"without {key}", {other: kept for other, kept in value.items() if other != key}
                for sort, other in variants(item):
                    if sort != "more":
                        yield f"{sort} {key}", {**value, key: other}


def agreed(tried: list[dict[str, set[str]]]) -> dict[str, list[str]]:
    """What every backend refuses."""
    fields = set.intersection(*map(set, tried)) if tried else set()
    shared = {key: set.intersection(*(sorts[key] for sorts in tried)) for key in fields}
    return {key: sorted(sorts) for key, sorts in sorted(shared.items()) if sorts}


def wholes(defaults: dict[str, Any], refused: dict[str, Any]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Parts and required fields of whole processors; adds their own values to `defaults`, and to `refused`."""
    parts, required = {}, {}
    for name in sorted(name for name in dir(transformers) if name.endswith("Processor") and name not in defaults):
        cls = getattr(transformers, name)
        with contextlib.suppress(Exception):
            of_class = [part for part in cls.get_attributes() if "tokenizer" not in part]
            given = inspect.signature(cls.__init__).parameters
            parts[name] = sorted(part for part in of_class if part in given)
            own = {key: one.default for key, one in given.items() if isinstance(one.default, int | float | str)}
            defaults[name] = dict(sorted(own.items()))
            source = inspect.getsource(cls)
            numbers = [key for key, value in own.items() if not isinstance(value, bool | str)]
            refused[name] = {key: ["list", "null", "text"] for key in numbers if is_computed_with(key, source)}
            nothing = [key for key, one in given.items() if one.default is None and key.endswith("_size")]
            if needed := [key for key in nothing if is_computed_with(key, source) and not is_asked(key, source)]:
                required[name] = needed
    return parts, required


def is_computed_with(field: str, source: str) -> bool:
    """Whether the code divides, multiplies or adds with a field."""
    return re.search(rf"(?://|\*|%|[+-]=) *(?:self\.)?{field}\b|\b{field} *(?://|\*[^*]|%)", source) is not None


def is_asked(field: str, source: str) -> bool:
    """Whether the code looks first whether the field is there."""
    return re.search(rf"\b{field} is (?:not )?None|if (?:self\.)?{field}\b", source) is not None


if __name__ == "__main__":
    main()
