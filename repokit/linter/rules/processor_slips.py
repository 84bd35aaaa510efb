"""PRC: settings of processors that somebody spoilt: a null, a size that went missing, numbers that contradict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Change, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.processor import IMAGE_PROCESSOR, vit
from repokit.linter.rules.processor_parts import is_of_remote_code
from repokit.printable import printable
from repokit.repo.processor import PREPROCESSOR, Processors
from repokit.repo.processor_classes import SWITCHES, classes_of, effective, own_values, refusals

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

WHISPER: Final = {
    "chunk_length": 30,
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 80,
    "hop_length": 160,
    "n_fft": 400,
    "n_samples": 480000,
    "nb_max_frames": 3000,
    "sampling_rate": 16000,
}
WHOLE: Final = {**IMAGE_PROCESSOR, "do_rescale": True, "resample": 2, "rescale_factor": 1 / 255}


def of_sound(**settings: object) -> dict[str, Change]:
    """A change that puts a feature extractor beside the base, with these settings beside the usual ones."""
    return {PREPROCESSOR: {key: value for key, value in {**WHISPER, **settings}.items() if value is not None}}


class NullSwitch(Rule):
    """A step of a processor is null, which switches it off, and what the step needs is given.

    The class does it where nothing is said; images come out in another size, or in numbers that the model never saw.
    """

    code = "PRC270"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a size for nothing", vit({**WHOLE, "do_resize": None})),)
    good = (
        Example("switched off", vit({**WHOLE, "do_resize": False})),
        Example("null with all that belongs to it", vit({**WHOLE, "do_center_crop": None, "crop_size": None})),
        Example("a flag that files of transformers 4 leave open", vit({**WHOLE, "do_convert_rgb": None})),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).single:
            if not is_of_remote_code(repository, document):
                for key in null_switches(document):
                    message = f"is null, which switches it off; {classes_of(document)[0]} has true by itself"
                    yield self.finding(document.path, message, place=document.at(key))


def null_switches(document: Document) -> Iterator[str]:
    """Steps of the class that are null. A file with more nulls may be of transformers 4, which wrote what it lacked."""
    nulls = [key for key, value in document.raw.items() if value is None]
    refused = {refusal.keys[0] for refusal in refusals(document)}  # PRC130 speaks of them
    for key in (
        key for key in nulls if key not in refused and own_values(document).get(key) is True and key != "do_convert_rgb"
    ):
        has_settings = any(document.raw.get(name) is not None for name, switch in SWITCHES.items() if switch == key)
        if key.startswith("do_") and (has_settings or len(nulls) == 1):
            yield key


class MissingImageSize(Rule):
    """A processor file gives every setting but the size of the images.

    The class takes its own, which is seldom the one that the model was trained with.
    """

    code = "PRC271"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "all but the size",
            vit({key: value for key, value in WHOLE.items() if key != "size"}),
            also=("PRC150",),
        ),
    )
    good = (
        Example("a size", vit(WHOLE)),
        Example(
            "the least and the greatest area, as Qwen2-VL says it",
            {
                PREPROCESSOR: {
                    "do_normalize": True,
                    "do_rescale": True,
                    "do_resize": True,
                    "image_mean": [0.5, 0.5, 0.5],
                    "image_processor_type": "Qwen2VLImageProcessor",
                    "image_std": [0.5, 0.5, 0.5],
                    "max_pixels": 12845056,
                    "merge_size": 2,
                    "min_pixels": 3136,
                    "patch_size": 14,
                    "resample": 3,
                    "temporal_patch_size": 2,
                }
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).images:
            if not is_of_remote_code(repository, document):
                for key in forgotten_sizes(document):
                    if fits(repository, own_values(document)[key]):
                        continue
                    message = (
                        f"has no {key}; {classes_of(document)[0]} takes {printable(own_values(document)[key], 60)}"
                    )
                    yield self.finding(document.path, message, place=document.pointer or None)


def fits(repository: Repository, size: Any) -> bool:  # noqa: ANN401 - a size in any of its forms
    """Whether a size is the one that config.json has for images."""
    levels = () if repository.config is None else repository.config.levels
    sides = set(size.values()) if isinstance(size, dict) else {size}
    return len(sides) == 1 and not sides.isdisjoint(level.integer("image_size") for level in levels)


# Other words for a size, of which one is enough.
SIZES: Final = frozenset({"size", "image_size", "min_pixels", "max_pixels"})
MOST: Final = 3 / 4  # of what the class writes: a file that people wrote says less, and means the rest


def forgotten_sizes(document: Document) -> Iterator[str]:
    """Sizes that the class writes and the file lacks, though it has nearly everything else that the class writes."""
    own = own_values(document)
    others = [key for key in own if key not in {*SIZES, "crop_size", "max_image_size"}]
    if not others or len(document.raw.keys() & set(others)) < MOST * len(others):
        return
    if "size" in own and SIZES.isdisjoint(key for key, value in document.raw.items() if value is not None):
        yield from ("size",) if document.raw.get("do_resize") is True or "size" in document else ()
    for key in ("crop_size", "max_image_size"):
        if key in own and key not in document and (key not in SWITCHES or document.raw.get(SWITCHES[key]) is True):
            yield key


class ImplausibleSound(Rule):
    """A number of a feature extractor is one that no sound is worked with.

    Rates are those of recordings, windows are even, noise has no negative deviation: a digit was lost.
    """

    code = "PRC272"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a rate that nobody records at", of_sound(sampling_rate=16001, chunk_length=None, n_samples=None)),
        Example("an odd window", of_sound(n_fft=401)),
        Example("negative noise", of_sound(dither=-1.0)),
    )
    good = (Example("the usual ones", of_sound()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).single:
            if "feature_extractor_type" in document and not is_of_remote_code(repository, document):
                for key, message in implausible_sound(document):
                    yield self.finding(document.path, message, place=document.at(key))


RATES: Final = 25  # Hz: every rate of recordings from 8,000 to 192,000 is a multiple, 11,025 too


def implausible_sound(document: Document) -> Iterator[tuple[str, str]]:
    """Key and what is wrong there."""
    rate, window, noise = document.integer("sampling_rate"), document.integer("n_fft"), document.number("dither")
    if rate is not None and rate % RATES:
        yield "sampling_rate", f"is {rate:,}, at which nothing is recorded"
    if window is not None and window % 2:
        yield "n_fft", f"is {window:,}; windows are even"
    if noise is not None and noise < 0:
        yield "dither", f"is {printable(noise)}; it is a standard deviation"


class ContradictorySpectrogram(Rule):
    """The numbers of a feature extractor do not follow from each other.

    transformers computes samples and frames anew from the length of a chunk; others take the numbers in the file.
    """

    code = "PRC273"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("another length of a chunk", of_sound(chunk_length=20)),
        Example("another distance of frames", of_sound(hop_length=320)),
    )
    good = (
        Example("30 seconds", of_sound()),
        Example(
            "without the length of a chunk",
            of_sound(chunk_length=None, n_samples=4800000, nb_max_frames=30000),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).single:
            if "WhisperFeatureExtractor" in classes_of(document) and not is_of_remote_code(repository, document):
                for key, message in contradictions(document):
                    yield self.finding(document.path, message, place=document.at(key))


def contradictions(document: Document) -> Iterator[tuple[str, str]]:
    """Key and what is wrong there; the numbers must be in the file, because the class may have changed its own."""
    chunk, rate, samples = (document.integer(key) for key in ("chunk_length", "sampling_rate", "n_samples"))
    hop, frames = document.integer("hop_length"), document.integer("nb_max_frames")
    if chunk is not None and rate is not None and samples is not None and chunk * rate != samples:
        yield "n_samples", f"is {samples:,}; chunk_length x sampling_rate is {chunk * rate:,}"
    if samples is not None and frames is not None and hop and samples // hop != frames:
        yield "nb_max_frames", f"is {frames:,}; n_samples / hop_length is {samples // hop:,}"


class PillowFilter(Rule):
    """Images are resized with a filter that pillow alone has.

    transformers 5 works with torchvision where it is installed, and stops there; without it, the images go through.
    """

    code = "PRC274"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the filter box", vit({**WHOLE, "resample": 4})),)
    good = (Example("lanczos, which is replaced", vit({**WHOLE, "resample": 1})),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for document in Processors(repository).single:
            name = FILTERS.get(document.integer("resample") or 0)
            if name is not None and effective(document).get("do_resize") is True:
                message = f"is {name}, which torchvision does not have"
                yield self.finding(document.path, message, place=document.at("resample"))


# transformers 5.24 image_processing_backends.py, tried with torchvision 0.28: NotImplementedError.
FILTERS: Final = {4: "box", 5: "hamming"}


RULES: Final[tuple[Rule, ...]] = (
    NullSwitch(),
    MissingImageSize(),
    ImplausibleSound(),
    ContradictorySpectrogram(),
    PillowFilter(),
)
