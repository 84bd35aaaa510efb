"""Cards over generated values: whatever stands in them is judged, and shown escaped."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from repokit.linter.engine import lint
from repokit.linter.finding import Report, Severity
from repokit.linter.rules.card import KEYS
from repokit.linter.selection import Selection
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.resources import data

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(st.sampled_from([*KEYS, "licence", "released"]), VALUES, min_size=1, max_size=5)


def report(metadata: str, body: str = "# Title\n") -> Report:
    files = {"README.md": f"---\n{metadata}---\n{body}".encode(), "LICENSE": b"text"}
    return lint(Repository(Memory(files)), Selection(select=("CRD", "LIC")))


def codes(metadata: str, body: str = "# Title\n") -> set[str]:
    return {finding.code for finding in report(metadata, body).at_least(Severity.WARNING)}


# ---------------------------------------------------------------- any card


@settings(deadline=None)
@given(METADATA)
def test_any_metadata_is_judged(metadata: dict[str, object]) -> None:
    assert report(yaml.safe_dump(metadata)).coverage.broken == {}


@settings(deadline=None)
@given(METADATA)
def test_values_reach_no_terminal_as_they_are(metadata: dict[str, object]) -> None:
    parts = ((finding.message, finding.hint or "x") for finding in report(yaml.safe_dump(metadata)).findings)
    assert [part for pair in parts for part in pair if not part.isprintable()] == []


@settings(deadline=None)
@given(METADATA)
def test_findings_stand_at_a_line_of_the_front_matter(metadata: dict[str, object]) -> None:
    text = yaml.safe_dump(metadata)
    places = {finding.place for finding in report(text).findings} - {None}
    assert places <= {f"line {number}" for number in range(2, text.count("\n") + 2)}


# ---------------------------------------------------------------- licenses


@pytest.mark.parametrize("known", data("licenses")["ids"])
def test_every_license_of_the_hub_is_accepted(known: str) -> None:
    named = "license_name: ours\nlicense_link: LICENSE\n" if known == "other" else ""
    assert codes(f"license: {known}\n{named}") == set()


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("gpl-3.0-or-later", "license: gpl-3.0"),
        ("Apache-2.0", "license: apache-2.0"),
        ("MIT", "license: mit"),
        ("cc-by-nc", "license: cc-by-nc-4.0"),
        ("our-own-terms", "license: other, with license_name and license_link"),
    ],
)
def test_a_license_that_is_not_accepted_gets_the_one_that_was_meant(written: str, hint: str) -> None:
    (finding,) = report(f"license: {written}\nlibrary_name: x\n").findings
    assert (finding.code, finding.hint) == ("LIC101", hint)


LICENSED = b"---\nlicense: apache-2.0\n---\n"


@pytest.mark.parametrize(
    "path", ["LICENSE", "LICENSE.md", "LICENCE.txt", "license", "COPYING", "LICENSE-MODEL", "MODEL_LICENSE"]
)
def test_a_license_file_has_many_names(path: str) -> None:
    found = lint(Repository(Memory({path: b"text", "README.md": LICENSED})), Selection(select=("LIC301",)))
    assert found.findings == ()


@pytest.mark.parametrize("path", ["USE_POLICY.md", "licensed_data.csv.txt/x", "docs/LICENSE", "unlicensed.py"])
def test_other_files_are_no_license(path: str) -> None:
    found = lint(Repository(Memory({path: b"text", "README.md": LICENSED})), Selection(select=("LIC301",)))
    assert [finding.code for finding in found.findings] == ["LIC301"]


@pytest.mark.parametrize("link", ["../LICENSE", "/etc/passwd", "LICENSE.md", "a\\b"])
def test_a_license_link_stays_in_the_repository(link: str) -> None:
    assert codes(f"license: other\nlicense_name: ours\nlicense_link: '{link}'\n") == {"LIC203"}


@pytest.mark.parametrize("link", ["LICENSE", "./LICENSE", "LICENSE#section", "https://example.org/x"])
def test_a_license_link_may_lead_to_a_file_or_an_address(link: str) -> None:
    assert codes(f"license: other\nlicense_name: ours\nlicense_link: '{link}'\n") == set()


# ---------------------------------------------------------------- languages and ids


@pytest.mark.parametrize("language", ["en", "yue", "chi", "jw", "code", "multilingual", "EN"])
def test_codes_of_languages_are_accepted(language: str) -> None:
    assert codes(f"license: mit\nlanguage: {language}\n") == set()


@pytest.mark.parametrize("language", ["noinfo", "english", "es-ES", "en_unnorm", "jp", "''"])
def test_other_words_are_no_language(language: str) -> None:
    assert codes(f"license: mit\nlanguage: {language}\n") == {"CRD104"}


def test_one_wrong_value_is_one_finding() -> None:
    assert [finding.code for finding in report("license: mit\nlibrary_name: x\nlanguage: [en, no]\n").findings] == [
        "CRD102"
    ]


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    "body",
    [
        "Use `<script>` with care.\n",
        "~~~html\n<iframe src='x'></iframe>\n~~~\n",
        '<img src="https://example.org/a.png" width="1000" height="100">\n',
        "<!-- Ignore this section for now. -->\n",
        "<details><summary>More</summary>text</details>\n",
    ],
)
def test_bodies_as_people_write_them_pass(body: str) -> None:
    assert codes("license: mit\n", body) == set()


@pytest.mark.parametrize(
    "body",
    [
        "<SCRIPT src=x></SCRIPT>\n",
        "<img src=x onerror=alert(1)>\n",
        "[x](javascript:alert(1))\n",
        "<img height='1' width='1' src='https://example.org/p'>\n",
        "```\ncode\n```\n<iframe src='x'>\n",
    ],
)
def test_active_content_is_named(body: str) -> None:
    assert codes("license: mit\n", body) == {"CRD209"}
