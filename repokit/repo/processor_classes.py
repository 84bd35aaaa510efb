"""What the classes of transformers take for what a processor file does not say, and with what they stop.

Measured by repokit/data/renew/processor_values.py: data/processor_values.json.z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.repo.processor import CLASS_KEYS, PROCESSOR
from repokit.resources import packed

if TYPE_CHECKING:
    from repokit.repo.document import Document

TABLE: Final = "processor_values"

# What a setting is for: where the switch is off, nobody reads it (transformers 5.24 image_utils.py
# validate_preprocess_arguments).
SWITCHES: Final = {
    "crop_size": "do_center_crop",
    "image_mean": "do_normalize",
    "image_std": "do_normalize",
    "pad_size": "do_pad",
    "resample": "do_resize",
    "rescale_factor": "do_rescale",
    "size": "do_resize",
}
# Sounds of one channel alone; others have as many as `feature_size` says, and were tried with one.
_MONO: Final = frozenset({"Wav2Vec2FeatureExtractor"})
_AREAS: Final = frozenset({"min_pixels", "max_pixels"})  # fill in what `size` lacks


class Refusal(NamedTuple):
    """A value with which a class stops.

    Attributes:
        keys: Where it is: ("size", "longest_edge").
        by: The class.
        sort: null, list, text, zero, negative, more, empty, missing, or object and flag: where
            those should be.
        value: The value itself; None where it is missing.
    """

    keys: tuple[str, ...]
    by: str
    sort: str
    value: object


def classes_of(document: Document) -> tuple[str, ...]:
    """The classes that read a processor's object and that the table has: one, or two where two share a file."""
    is_whole = document.path == PROCESSOR and not document.pointer
    keys = ("processor_class",) if is_whole else CLASS_KEYS
    named = (known_name(document.string(key)) for key in keys if "auto_map" not in document)
    return tuple(dict.fromkeys(name for name in named if name is not None))


def known_name(name: str | None) -> str | None:
    """A class of the table by any of its names; None for others."""
    stem = (name or "").removesuffix("Fast").removesuffix("Pil")
    names = (stem, stem.replace("FeatureExtractor", "ImageProcessor"))
    return next((one for one in names if one in packed(TABLE)["defaults"]), None)


def own_values(document: Document) -> Mapping[str, Any]:
    """What the classes of an object take for the settings that it lacks; {} where the class is not known."""
    own: dict[str, Any] = {}
    for name in reversed(classes_of(document)):
        own |= packed(TABLE)["defaults"][name]
    return own


def effective(document: Document) -> dict[str, Any]:
    """The settings of an object and, for those that it lacks, the values of its class."""
    return {**own_values(document), **document.raw}


def is_read(document: Document, key: str) -> bool:
    """Whether a setting matters: nothing that it is for is switched off."""
    switch = SWITCHES.get(key)
    return switch is None or effective(document).get(switch) is True


def refusals(document: Document) -> Iterator[Refusal]:
    """The values of an object with which its class stops."""
    names = classes_of(document)
    if len(names) != 1:  # of two that share a file, either may be the one that reads a key
        return
    own, sorts = own_values(document), packed(TABLE)["refused"].get(names[0], {})
    flags = (key for key, value in own.items() if isinstance(value, bool) and isinstance(document.raw.get(key), str))
    yield from (Refusal((key,), names[0], "flag", document.raw[key]) for key in flags)
    for key in (key for key in sorts if key in document and is_read(document, key)):
        yield from _of_value((key,), document.raw[key], own[key], frozenset(sorts[key]), names[0])
        if isinstance(own[key], Mapping):
            yield from _of_object(document, key, own[key], names[0])


def _of_value(keys: tuple[str, ...], value: object, own: object, sorts: frozenset[str], by: str) -> Iterator[Refusal]:
    """At most one, of a value and the sorts that are refused there."""
    found = next(iter(_sorts(value, own) & sorts), None)
    if found is not None and (found != "more" or by in _MONO):
        yield Refusal(keys, by, found, value)


def _sorts(value: object, own: object) -> set[str]:
    """What a value is, seen from the one that a class has by itself."""
    is_of_number = type(own) in {int, float}
    match value:
        case None:
            return {"null"}
        case list() if is_of_number:
            return {"list"}
        case str() if is_of_number:
            return {"text"}
        case {} if isinstance(own, Mapping) and not value:
            return {"empty"}
        case bool():
            return set()
        case int() | float() if is_of_number and value <= 0:
            return {"zero" if value == 0 else "negative"}
        case int() if own == 1 and value > 1:
            return {"more"}
    return set()


def _of_object(document: Document, key: str, own: Mapping[str, Any], by: str) -> Iterator[Refusal]:
    sorts, value = packed(TABLE)["refused"][by][key], document.raw[key]
    has_forms = key in SWITCHES  # a size may be told by other members, or by one number
    if not isinstance(value, Mapping):
        if isinstance(value, list | str) and not has_forms and "empty" in sorts:
            yield Refusal((key,), by, "object", value)
        return
    for member, of_class in own.items() if own.keys() >= value.keys() or not has_forms else ():
        within = frozenset(sort.removesuffix(f" {member}") for sort in sorts if sort.endswith(f" {member}"))
        needed = "without" in within or (not has_forms and len(own) == 1 and "empty" in sorts)
        if member in value:
            yield from _of_value((key, member), value[member], of_class, within, by)
        elif value and needed and _AREAS.isdisjoint(document.raw):
            yield Refusal((key, member), by, "missing", None)
