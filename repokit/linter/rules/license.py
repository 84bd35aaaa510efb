"""LIC: under which license the weights may be used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.paths import unsafe
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.printable import printable
from repokit.repo.card import README
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

LICENSE: Final = "LICENSE"

GPL: Final = "GNU GENERAL PUBLIC LICENSE\nVersion 2, June 1991\n"

# LICENSE, LICENSE.md, LICENCE.txt, LICENSE-MODEL, COPYING, MODEL_LICENSE, USE_POLICY.md is none.
LICENSE_FILE: Final = re.compile(r"(?:[\w.-]*[_-])?(?:licen[cs]es?|copying|unlicense)(?:[._-][\w.-]*)?", re.IGNORECASE)

# What people write for ids of the Hub: SPDX ids, which it does not take (huggingface_hub#4218), and names.
SPELLINGS: Final = {
    "gpl-2.0-or-later": "gpl-2.0",
    "gpl-2.0-only": "gpl-2.0",
    "gpl-3.0-or-later": "gpl-3.0",
    "gpl-3.0-only": "gpl-3.0",
    "agpl-3.0-or-later": "agpl-3.0",
    "agpl-3.0-only": "agpl-3.0",
    "lgpl-3.0-or-later": "lgpl-3.0",
    "apache 2.0": "apache-2.0",
    "apache2.0": "apache-2.0",
    "apache-2": "apache-2.0",
    "apache": "apache-2.0",
    "apache license 2.0": "apache-2.0",
    "mit license": "mit",
    "llama-2": "llama2",
    "llama-3": "llama3",
    "cc-by": "cc-by-4.0",
    "cc-by-nc": "cc-by-nc-4.0",
    "proprietary": "other",
    "custom": "other",
}


class UnknownLicense(Rule):
    """license is not an id that the Hub accepts.

    It refuses the commit, after everything was uploaded. SPDX's `-or-later` ids are not among them.
    """

    code = "LIC101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("an SPDX id", {README: with_lines("license: gpl-2.0-or-later\n", drop="license"), LICENSE: GPL}),
        Example("a name", {README: with_lines("license: Apache 2.0\n", drop="license")}),
    )
    good = (
        Example(
            "an id of the Hub",
            {README: with_lines("license: cc-by-nc-4.0\n", drop="license"), LICENSE: "Attribution-NonCommercial\n"},
        ),
        Example(
            "a license of one's own",
            {README: with_lines("license: other\nlicense_name: ours\nlicense_link: LICENSE\n", drop="license")},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        known = data("licenses")
        for value in card.values("license") if card is not None else ():
            if isinstance(value.value, str) and not is_known_or_newer(value.value, known["ids"]):
                message = (
                    f"{value.key}: {printable(value.value, 60)!r} is not among the ids of the Hub ({known['date']})"
                )
                yield self.finding(README, message, place=value.place, hint=_accepted(value.value, known["ids"]))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_license_id

        return with_license_id(repository, finding)


class NewerLicense(Rule):
    """license is a version that this version of repokit does not know, of a license that it does.

    The Hub may have added it since; if not, it refuses the commit, after everything was uploaded.
    """

    code = "LIC351"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a Llama of tomorrow", {README: with_lines("license: llama5\n", drop="license")}),)
    good = (Example("a version that is known"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, known = repository.card, data("licenses")
        for value in card.values("license") if card is not None else ():
            if isinstance(value.value, str) and is_newer(value.value, known["ids"]):
                said = f"{value.key}: {printable(value.value, 60)!r}"
                message = f"{said} is not among the ids of the Hub ({known['date']})"
                yield self.finding(README, message, place=value.place)


class MissingLicense(Rule):
    """The card names no license.

    Without one nobody may use the weights, whatever a LICENSE file says: the Hub and its filters read the card.
    """

    code = "LIC201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("a LICENSE file is not enough", {README: with_lines(drop="license")}),)
    good = (Example("a license"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is not None and card.has_metadata and card.raw.get("license") is None:
            hint = "license: the id that fits the LICENSE file, the base model and the data; repokit does not guess it"
            yield self.finding(README, "names no license", place=card.place("license"), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_license_of_text

        return with_license_of_text(repository, finding)


class UnnamedLicense(Rule):
    """license is `other`, and the card does not say which.

    The Hub asks for license_name, and for license_link to its text: a file of the repository or an address.
    """

    code = "LIC202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("only other", {README: with_lines("license: other\n", drop="license")}),
        Example("no link", {README: with_lines("license: other\nlicense_name: ours\n", drop="license")}),
    )
    good = (
        Example(
            "both keys",
            {README: with_lines("license: other\nlicense_name: ours\nlicense_link: LICENSE\n", drop="license")},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is None or "other" not in card.license_ids:
            return
        if lacking := [key for key in ("license_name", "license_link") if not card.string(key)]:
            message = f"has license: other without {' and '.join(lacking)}"
            yield self.finding(README, message, place=card.place("license"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_license_link

        return with_license_link(repository, finding)


class BrokenLicenseLink(Rule):
    """license_link leads to a file that is not in the repository.

    The license can then not be read where the card says that it is.
    """

    code = "LIC203"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example(
            "a file that was not published",
            {README: with_lines("license: other\nlicense_name: ours\nlicense_link: LICENSE.md\n", drop="license")},
        ),
    )
    good = (
        Example(
            "an address",
            {
                README: with_lines(
                    "license: other\nlicense_name: ours\nlicense_link: https://example.org/l\n", drop="license"
                )
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        link = None if card is None else card.string("license_link")
        if card is None or not link or "://" in link:
            return
        path = link.partition("#")[0].removeprefix("./")
        if unsafe(path) or not repository.has(path):
            message = f"has the license_link {printable(link, 80)!r}, which is no file of the repository"
            yield self.finding(README, message, place=card.place("license_link"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.card import with_right_license_link

        return with_right_license_link(repository, finding)


class SeveralLicenses(Rule):
    """The card names several licenses.

    It does not say which of them applies to the weights, and filters by license read the first or none.
    """

    code = "LIC204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a list", {README: with_lines("license: [mit, apache-2.0]\n", drop="license")}),)
    good = (Example("a list of one", {README: with_lines("license: [apache-2.0]\n", drop="license")}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is not None and len(card.license_ids) > 1:
            yield self.finding(README, "names several licenses", place=card.place("license"), names=card.license_ids)


class MissingLicenseFile(Rule):
    """There is no file with the text of the license.

    Most licenses ask that their text goes along with every copy; the Hub does not add it. Creative Commons is content
    with a link, which the card's `license` is.
    """

    code = "LIC301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("no LICENSE", {LICENSE: None}),)
    good = (
        Example("LICENSE"),
        Example("another spelling", {LICENSE: None, "licence.txt": "text"}),
        Example("a link is enough", {LICENSE: None, README: with_lines("license: cc-by-4.0\n", drop="license")}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        texts = [] if card is None else [name for name in card.license_ids if not WITHOUT_TEXT.match(name)]
        if card is None or not texts or card.string("license_link"):
            return  # without a license in the card that is another rule's
        if not any(LICENSE_FILE.fullmatch(path) for path in repository.files):
            message = f"is missing: no file holds the text of {printable(texts[0], 40)}"
            yield self.finding(LICENSE, message, hint="copy it from the base model or from its author")


# Waivers, licenses whose condition is a link to them, and what names no license.
WITHOUT_TEXT: Final = re.compile(r"cc(?:0|-by|$)|wtfpl|unlicense|pddl|unknown|other")

_VERSION: Final = re.compile(r"\d+(?:\.\d+)*")


def is_known_or_newer(word: str, known: list[str]) -> bool:
    """Whether the Hub takes an id, or may take it one day."""
    return word in known or is_newer(word, known)


def is_newer(word: str, known: list[str]) -> bool:
    """Whether an id is a later version of a known one: `llama5`, `gemma2`, `cc-by-5.0`; an or-later is none."""
    if word in known or word in SPELLINGS or not (said := _versions(word)):
        return False
    family = _VERSION.sub("#", word)
    siblings = [_versions(name) for name in known if _VERSION.sub("#", name) == family]
    return said > max(siblings) if siblings else family.endswith("#") and family[:-1].rstrip("-") in known


def _versions(word: str) -> list[tuple[int, ...]]:
    return [tuple(int(part[:9]) for part in found.split(".")) for found in _VERSION.findall(word)]


RULES: Final = (
    UnknownLicense(),
    MissingLicense(),
    UnnamedLicense(),
    BrokenLicenseLink(),
    SeveralLicenses(),
    MissingLicenseFile(),
    NewerLicense(),
)


def _accepted(word: str, known: list[str]) -> str | None:
    """The id that was meant, as a hint; an id of its own name is `other`."""
    wanted = SPELLINGS.get(word.lower()) or (word.lower() if word.lower() in known else None)
    near = [wanted] if wanted else difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.8)
    return f"license: {near[0]}" if near else "license: other, with license_name and license_link"
