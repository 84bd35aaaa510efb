"""PRC: settings of processors that cannot be worked with, or that no model was trained with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Change, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.processor import IMAGE_PROCESSOR, vit
from repokit.linter.rules.slips import misspelt
from repokit.printable import printable
from repokit.repo.processor import Processors
from repokit.repo.processor_classes import effective, refusals
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository


def of_image(**settings: object) -> dict[str, Change]:
    """A change that makes the base an image classifier whose processor has these settings beside the usual ones."""
    return vit({**IMAGE_PROCESSOR, **settings})


class UnusableProcessorValue(Rule):
    """A setting of a processor has a value with which no image or sound can be prepared.

    The first call stops: a size that is none, a mean for two of three channels, a filter that does not exist.
    """

    code = "PRC130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a channel short", of_image(image_mean=[0.5, 0.5])),
        Example("half of a size", of_image(size={"height": 8})),
        Example("no size", of_image(size={"height": 0, "width": 8}), also=("PRC150",)),
        Example("a filter that pillow does not have", of_image(resample=9)),
        Example("divided by zero", of_image(image_std=[0.5, 0.5, 0])),
    )
    good = (
        Example("one number for all channels", of_image(image_mean=0.5, image_std=0.5)),
        Example("a size as one number", of_image(size=8)),
        Example("two edges", of_image(size={"shortest_edge": 8, "longest_edge": 16})),
        Example("switched off", of_image(do_normalize=False, image_mean=None, image_std=None)),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.config is not None and "auto_map" in repository.config:
            return
        processors = Processors(repository)
        for document in processors.single:
            if not document.raw:
                yield self.finding(document.path, "is empty", place=document.pointer or None)
        for document in processors.documents:
            if "auto_map" not in document:
                found = dict(refused(document))
                if document in processors.single:
                    found |= dict(unusable(document, channels(repository, document)))
                for place, message in found.items():
                    yield self.finding(document.path, message, place=place)


class MisspelledProcessorKey(Rule):
    """A key of a processor file is nearly a setting that processors have, and that one is not there.

    The setting takes the default of its class; the misspelt one is kept, and nobody reads it.
    """

    code = "PRC230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "two letters swapped", vit({key.replace("mean", "maen"): value for key, value in IMAGE_PROCESSOR.items()})
        ),
    )
    good = (
        Example("a key of someone's own", of_image(comment="trained on 8 x 8")),
        Example("both are there", of_image(image_means=[0.5, 0.5, 0.5])),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = frozenset(data("processor_keys")["ids"])
        for document in Processors(repository).documents:
            yield from self._of_sizes(document)
            for key, meant in misspelt(document.raw, known) if "auto_map" not in document else ():
                message = f"is no setting of a processor; {meant} is, and is not there"
                yield self.finding(document.path, message, place=document.at(key), hint=f"rename it to {meant}")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import renamed

        return renamed(repository, finding)

    def _of_sizes(self, document: Document) -> Iterator[Finding]:
        for size in filter(None, (document.mapping(key) for key in ("size", "crop_size"))):
            for key, meant in misspelt(size.raw, SIDES):
                message = f"is no side of an image; {meant} is, and is not there"
                yield self.finding(document.path, message, place=size.at(key), hint=f"rename it to {meant}")


class ImplausibleNormalization(Rule):
    """Images are scaled into numbers that no model was trained with.

    Pixels become 0 to 1, and mean and deviation are given for that; a number outside of it has a slip in it, or is of a
    processor that scales otherwise.
    """

    code = "PRC231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a mean of bytes", of_image(image_mean=[123.7, 116.3, 103.5])),
        Example("a scale that is none", of_image(rescale_factor=255)),
        Example("a deviation above one", of_image(image_std=[1.5, 0.5, 0.5])),
    )
    good = (
        Example("of bytes, which are not scaled", of_image(image_mean=[123.7, 116.3, 103.5], do_rescale=False)),
        Example("to both sides of zero", of_image(rescale_factor=1 / 127.5, image_mean=[0, 0, 0], image_std=[1, 1, 1])),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).single:
            if is_of_pictures(document) and document.raw.get("do_rescale") is not False:
                for place, message in implausible(document):
                    yield self.finding(document.path, message, place=place)


RULES: Final[tuple[Rule, ...]] = (
    UnusableProcessorValue(),
    MisspelledProcessorKey(),
    ImplausibleNormalization(),
)

FILTERS: Final = range(6)  # pillow's Resampling
POSITIVE: Final = (
    *("chunk_length", "feature_size", "hop_length", "merge_size", "n_fft", "patch_size", "sampling_rate"),
    "temporal_patch_size",
)
SIZES: Final = (
    frozenset({"height", "width"}),
    frozenset({"shortest_edge"}),
    frozenset({"longest_edge"}),
    frozenset({"shortest_edge", "longest_edge"}),
    frozenset({"max_height", "max_width"}),
)


SIDES: Final = frozenset().union(*SIZES)


def is_of_pictures(document: Document) -> bool:
    """Whether an object describes what happens to images or videos."""
    return any(document.raw.get(key) is not None for key in ("image_processor_type", "video_processor_type"))


def is_number(value: object) -> bool:
    """Whether a value is a number, and no boolean."""
    return type(value) in {int, float}


def refused(document: Document) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of what the class stops with; wrong types of usual settings are FIL104's."""
    for refusal in refusals(document):
        if refusal.sort not in {"flag", "list", "text"} or not is_typed(refusal.keys):
            shown = printable(refusal.value, 60)
            message = WRONG[refusal.sort].format(value=shown, by=refusal.by, key=refusal.keys[-1])
            there = refusal.keys if refusal.sort != "missing" else refusal.keys[:-1]
            yield document.at(*there), message


WRONG: Final = {
    "null": "is null, with which {by} stops",
    "list": "is {value}; {by} takes one number",
    "text": "is the text {value}; {by} takes a number",
    "zero": "is {value}; {by} takes a number above 0",
    "negative": "is {value}; {by} takes a number above 0",
    "more": "is {value}; {by} takes 1",
    "empty": "is empty",
    "flag": "is the text {value}, which counts as true",
    "object": "is {value}; {by} takes an object",
    "missing": "has no {key}, without which {by} stops",
}


def is_typed(keys: tuple[str, ...]) -> bool:
    """Whether the schema of the file says what type a setting has."""
    from repokit.schema.processor import Preprocessor

    several = {"patch_size"}  # of some classes a list or an object
    return keys[0] in Preprocessor.model_fields and keys[0] not in several


def unusable(document: Document, counts: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there."""
    raw = document.raw
    if raw.get("do_normalize") is not False and is_of_pictures(document):
        yield from wrong_channels(document, counts)
    if raw.get("do_rescale") is True and "rescale_factor" in raw and raw["rescale_factor"] is None:
        yield document.at("rescale_factor"), "is null, and do_rescale is true"
    for key in ("size", "crop_size"):
        if (size := document.mapping(key)) is not None:
            yield from wrong_size(size)
    if type(filter_ := raw.get("resample")) is int and filter_ not in FILTERS:
        yield document.at("resample"), f"is {printable(filter_)}; pillow's filters are 0 to 5"
    if (side := document.string("padding_side")) not in {None, "left", "right"}:
        yield document.at("padding_side"), f"is {printable(side, 40)!r}; it must be left or right"
    for key in POSITIVE:
        if (value := document.number(key)) is not None and value <= 0:
            yield document.at(key), f"is {printable(value)}; it must be above 0"


def wrong_channels(document: Document, counts: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of the mean and the deviation of each channel."""
    for key in ("image_mean", "image_std"):
        if isinstance(value := document.raw.get(key), list) and not is_of_channels(value, counts):
            yield document.at(key), f"is {printable(value, 60)}; it must hold a number for each channel"
    deviations = document.raw.get("image_std")
    if isinstance(deviations, list) and 0 in deviations:
        yield document.at("image_std"), "holds a zero, which every pixel is divided by"


def is_of_channels(value: list[Any], counts: frozenset[int]) -> bool:
    """Whether a list has a number for each channel of an image."""
    return len(value) in counts and all(map(is_number, value))


def channels(repository: Repository, document: Document) -> frozenset[int]:
    """How many channels images may have: colours where all are converted, else grey too, or what config.json says."""
    if effective(document).get("do_convert_rgb") is True:
        return frozenset({1, 3})
    levels = () if repository.config is None else repository.config.levels
    said = (level.integer(key) for level in levels for key in ("num_channels", "in_channels", "in_chans"))
    return frozenset({1, 3, *(number for number in said if number is not None)})


def wrong_size(size: Document) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of a size or crop_size. Other keys are of families with sizes of their own."""
    given = frozenset(key for key, value in size.raw.items() if value is not None)
    if given <= SIDES and given not in SIZES and not any(option < given for option in SIZES):
        shown = " and ".join(sorted(given)) or "nothing"
        yield size.pointer, f"has {shown}; it must have height and width, or an edge"
    for key in sorted(SIDES & size.raw.keys()):
        value = size.number(key)
        if value is not None and value <= 0:
            yield size.at(key), f"is {printable(value)}; it must be above 0"


def implausible(document: Document) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there."""
    factor = document.number("rescale_factor")
    if factor is not None and not 0 < factor < 0.1:
        yield document.at("rescale_factor"), f"is {printable(factor)}; bytes are scaled by 1/255 = 0.0039"
    is_usual = factor is None or factor < 1 / 200
    normalizes = effective(document).get("do_normalize") is not False
    for key, (least, most) in {"image_mean": (0.0, 1.0), "image_std": (0.0, 1.0)}.items() if normalizes else ():
        values = document.raw.get(key)
        numbers = [value for value in values if is_number(value)] if isinstance(values, list) else []
        if is_usual and any(not least <= value <= most for value in numbers):
            yield document.at(key), f"is {printable(values, 60)}; pixels lie from 0 to 1"
        elif len(numbers) == COLOURS and are_apart(key, numbers):
            yield document.at(key), f"is {printable(values, 60)}; no pictures differ so much in one colour"
    if is_of_half_the_range(document):
        yield document.at("rescale_factor"), f"is {printable(factor)}; mean and deviation are of pixels from 0 to 1"


COLOURS: Final = 3
# Of what people publish, pictures of stained tissue lie farthest apart: means 0.58 to 0.71, deviations 0.18 to 0.23.
FARTHEST_MEANS: Final = 0.35
FARTHEST_DEVIATIONS: Final = 1.9


def are_apart(key: str, numbers: list[float]) -> bool:
    """Whether the numbers of three colours cannot be of one set of pictures."""
    if key == "image_mean":
        return max(numbers) - min(numbers) > FARTHEST_MEANS
    return 0 < min(numbers) * FARTHEST_DEVIATIONS < max(numbers)


def is_of_half_the_range(document: Document) -> bool:
    """Whether pixels are scaled to twice the range that mean and deviation are of, and nothing is taken off."""
    factor, settings = document.number("rescale_factor"), effective(document)
    shifted = any(settings.get(key) is True for key in ("offset", "do_offset", "rescale_offset"))
    if factor is None or not 1 / 200 < factor < 0.1 or settings.get("do_normalize") is not True or shifted:
        return False
    mean, deviation = (document.raw.get(key) for key in ("image_mean", "image_std"))
    lists = [value for value in (mean, deviation) if isinstance(value, list) and value and all(map(is_number, value))]
    return len(lists) == 2 and all(0.2 < one < 0.65 for one in lists[0]) and max(lists[1]) < 0.7
