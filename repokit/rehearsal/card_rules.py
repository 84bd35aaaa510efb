"""What the Hub asks of the front matter of a README.md, before an upload and at the commit.

Reported by people whose pushes were refused: license ids huggingface_hub#4218; local paths as `base_model` or
`datasets` transformers#33922, peft#2124, autotrain-advanced#648; languages and keys without a value
espnet_model_zoo#94, #102; `metric` for `metrics` mteb#912. The sentences are the Hub's, as quoted there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from repokit import resources
from repokit.errors import RepokitError
from repokit.formats.front_matter import parse_card

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REPO_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_NO_METADATA: Final = "empty or missing yaml metadata in repo card"


@dataclass(frozen=True, slots=True)
class CardReport:
    """Errors refuse the card, warnings do not."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judged(content: str) -> CardReport:
    """What the Hub says about a README.md."""
    try:
        metadata = parse_card(content.encode(errors="surrogatepass"), "README.md").metadata
    except RepokitError as error:
        return CardReport(errors=[f"YAML error: {error.place or ''} {error.what}"])
    if not metadata:
        return CardReport(warnings=[_NO_METADATA])
    return CardReport(errors=[*_license(metadata), *_languages(metadata), *_ids(metadata), *_model_index(metadata)])


def _license(metadata: Mapping[str, object]) -> Iterator[str]:
    known = resources.data("licenses")["ids"]
    for place, value in _values(metadata, "license"):
        if value not in known:
            yield f'"{place}" must be one of [{", ".join(known)}]'


def _languages(metadata: Mapping[str, object]) -> Iterator[str]:
    known = {*resources.data("languages")["ids"], "code", "multilingual"}
    for place, value in _values(metadata, "language"):
        # Not a string: YAML 1.1 reads the Norwegian `no` as false, and an empty value as null.
        if not isinstance(value, str) or value not in known:
            yield (
                f'"{place}" with value "{value}" is not valid. It must be an ISO 639-1, 639-2 or 639-3 code '
                '(two/three letters), or a special value like "code", "multilingual".'
            )


def _ids(metadata: Mapping[str, object]) -> Iterator[str]:
    for key, kind in (("base_model", "model"), ("datasets", "dataset"), ("new_version", "model")):
        for place, value in _values(metadata, key):
            if not isinstance(value, str) or not _REPO_ID.fullmatch(value):
                yield f'"{place}" with value "{value}" is not valid. Use a {kind} id from the Hub.'


def _values(metadata: Mapping[str, object], key: str) -> Iterator[tuple[str, object]]:
    """A key's value, or the values of its list, each under the name that the Hub gives it: `datasets[0]`."""
    if key not in metadata:
        return
    value = metadata[key]
    if isinstance(value, list):
        yield from ((f"{key}[{number}]", item) for number, item in enumerate(value))
    else:
        yield key, value


def _model_index(metadata: Mapping[str, object]) -> Iterator[str]:
    for place, model in _values(metadata, "model-index"):
        if not isinstance(model, dict) or not isinstance(model.get("results"), list):
            yield f'"{place}.results" is required'
            continue
        for number, result in enumerate(model["results"]):
            yield from _result(f"{place}.results[{number}]", result)


def _result(place: str, result: object) -> Iterator[str]:
    fields = result if isinstance(result, dict) else {}
    for name, wanted in (("task", dict), ("dataset", dict), ("metrics", list)):
        if not isinstance(fields.get(name), wanted):
            yield f'"{place}.{name}" is required'
