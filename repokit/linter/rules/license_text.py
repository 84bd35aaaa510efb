"""LIC: the license that the card names against the text beside it, and against that of the base model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import LICENSE as TEXT, Change, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.license import LICENSE, LICENSE_FILE
from repokit.printable import printable
from repokit.repo.card import README
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.card import ModelCard
    from repokit.repo.repository import Repository

MIT: Final = (
    "MIT License\n\nCopyright (c) 2026 Example\n\nPermission is hereby granted, free of charge, to any person "
    "obtaining a copy\nof this software and associated documentation files (the Software), to deal ...\n"
)
LLAMA: Final = "LLAMA 3.1 COMMUNITY LICENSE AGREEMENT\nLlama 3.1 Version Release Date: July 23, 2024\n"


def licensed(license_id: str, base: str = "example/base", text: str = "", **files: Change) -> dict[str, Change]:
    """A change to the card's license, its base model and the text of the license."""

    def change(old: bytes) -> bytes:
        card = with_lines(f"license: {license_id}\n", drop="license")(old)
        return card.replace(b"base_model: example/base", f"base_model: {base}".encode())

    return {README: change, **({LICENSE: text} if text else {}), **files}


class ContradictedLicense(Rule):
    """The text in the license file is that of another license than the card names.

    The Hub and its filters go by the card, lawyers by the text: nobody can tell which of the two was meant.
    """

    code = "LIC250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the text of the base model stayed", licensed("mit")),
        Example("the text of the code", licensed("llama3.1", text=MIT)),
    )
    good = (
        Example("the text of the license", licensed("mit", text=MIT)),
        Example(
            "an agreement of its own, and the license of the code", licensed("mit", **{"LICENSE-CODE": MIT}, text=MIT)
        ),
        Example("a text that is not known", licensed("mit", text="Do as you please.\n")),
        Example("two licenses in one file", licensed("mit", text=f"{TEXT}\n{MIT}")),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, titles = repository.card, data("license_titles")["titles"]
        if card is None or not card.license_ids or not set(card.license_ids) <= {*titles.values()}:
            return
        texts = {path: recognised(repository.glance(path) or b"") for path in license_files(repository)}
        known = {path: found for path, found in texts.items() if found}
        if not known or any(len(found) > 1 or found & {*card.license_ids} for found in known.values()):
            return
        path, found = next(iter(known.items()))
        message = f"is the text of {', '.join(found)}; the card says {', '.join(card.license_ids)}"
        hint = "keep the license that holds for these weights, and make the other agree"
        yield self.finding(path, message, hint=hint)


class RelicensedBase(Rule):
    """The card names a license that gives more than that of the base model.

    Weights that were made from others stay under the terms of those. Users who rely on the card break them.
    """

    code = "LIC251"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a Llama as Apache", licensed("apache-2.0", "meta-llama/Llama-3.1-8B-Instruct")),
        Example("weights that are not for business, as MIT", licensed("mit", "CohereLabs/c4ai-command-r-v01", MIT)),
    )
    good = (
        Example("the license of the base", licensed("llama3.1", "meta-llama/Llama-3.1-8B", LLAMA)),
        Example("a base with a license that allows it", licensed("apache-2.0", "Qwen/Qwen3-8B")),
        Example(
            "terms of its own, with a name",
            licensed("other\nlicense_name: ours\nlicense_link: LICENSE", "meta-llama/Llama-3.1-8B"),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, known = repository.card, data("base_licenses")
        if card is None or repository.adapter_config is not None or not card.license_ids:
            return  # whether an adapter without its base is made from it, lawyers disagree
        if not set(card.license_ids) <= {*known["permissive"]}:
            return
        for base, license_id in licenses_of_bases(repository, card):
            terms = "a license of its own" if license_id == "other" else license_id
            message = f"says license: {card.license_ids[0]}; its base {printable(base, 80)} is under {terms}"
            hint = f"license: {license_id}" + (", with license_name and license_link" if license_id == "other" else "")
            yield self.finding(README, message, place=card.place("license"), hint=hint)


class MissingAttribution(Rule):
    """A model that was made from Llama 3 or later does not show that it was.

    The license asks for "Built with Llama" where the model is described, and for "Llama" at the beginning of its name.
    """

    code = "LIC350"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("neither", licensed("llama3.1", "meta-llama/Llama-3.1-8B", LLAMA)),
        Example(
            "a name of its own",
            licensed("llama3.2\nmodel_name: Example\ntags: [x]\ndescription: Built with Llama", text="Our text.\n"),
        ),
    )
    good = (
        Example(
            "both",
            {
                **licensed("llama3.1\nmodel_name: Llama-Example", "meta-llama/Llama-3.1-8B", LLAMA),
                README: with_lines(
                    "license: llama3.1\nmodel_name: Llama-Example\n", drop="license", body="\nBuilt with Llama.\n"
                ),
            },
        ),
        Example("Llama 2, which asks for neither", licensed("llama2", text="Our text.\n")),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        found = None if card is None else next((name for name in card.license_ids if _NAMED.fullmatch(name)), None)
        if card is None or found is None or not card.base_models:
            return
        if not _BUILT_WITH.search(card.body):
            message = f'does not say "Built with Llama", as {found} asks for'
            yield self.finding(README, message, place=card.place("license"))
        name = card.string("model_name")
        if name is not None and not name.lower().startswith(("llama", "meta-llama", "meta llama")):
            message = f"calls the model {printable(name, 60)!r}; {found} asks for a name that begins with Llama"
            yield self.finding(README, message, place=card.place("model_name"))


# Section 1.b.i of the agreements of Llama 3, 3.1, 3.2, 3.3 and 4; that of Llama 2 has no such words.
_NAMED: Final = re.compile(r"llama(?:3|3\.\d|4)")
_BUILT_WITH: Final = re.compile(r"built\s+with\s+(?:meta\s+)?llama", re.IGNORECASE)

RULES: Final = (ContradictedLicense(), RelicensedBase(), MissingAttribution())

_OPENING: Final = 1_500  # characters: a name, a year, and who is not a law firm
_MOST: Final = 256 * 1024  # bytes; the longest text, the GPL's, has 35 KB
_NOT_OF_WEIGHTS: Final = re.compile(r"code|third|notice|data", re.IGNORECASE)


def license_files(repository: Repository) -> Iterator[str]:
    """The files at the top whose text may be the license of the weights."""
    for path, entry in repository.files.items():
        if LICENSE_FILE.fullmatch(path) and not _NOT_OF_WEIGHTS.search(path) and entry.size <= _MOST:
            yield path


def recognised(content: bytes) -> set[str]:
    """Ids of the licenses whose title or opening words stand in a text; none where it does not begin with one.

    What is bundled stands further down, after a license that may not be known here.
    """
    words = " ".join(content.decode("utf-8", "replace").lower().split())
    titles = data("license_titles")["titles"]
    found = list(_titles().finditer(words))
    return {titles[match[0]] for match in found} if found and found[0].start() < _OPENING else set()


def _titles() -> re.Pattern[str]:
    """The titles, the longest first, so that none is found inside of another."""
    titles = sorted(data("license_titles")["titles"], key=len, reverse=True)
    return re.compile("|".join(map(re.escape, titles)))


def licenses_of_bases(repository: Repository, card: ModelCard) -> Iterator[tuple[str, str]]:
    """The bases that ask for more than a permissive license, with the license of each."""
    known = data("base_licenses")
    for base in card.base_models:
        license_id = next((name for pattern, name in known["bases"].items() if re.match(pattern, base)), None)
        if license_id is not None:
            yield base, license_id
            return
    beside = None if repository.base_model is None else repository.base_model.card
    for license_id in () if beside is None else beside.license_ids:
        if license_id in known["restrictive"]:
            yield (card.base_models or ("model",))[0], license_id
            return
