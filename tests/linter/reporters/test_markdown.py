"""Markdown: a table for people, in which no name of a repository is markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import markdown_it
from hypothesis import given, settings, strategies as st

from repokit.linter.finding import Coverage, Finding, Report, Severity
from repokit.linter.reporters import markdown
from repokit.linter.reporters.context import Context
from repokit.printable import printable

PARSER = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
OURS = {"<code>", "</code>"}


def rendered(report: Report, context: Context | None = None, place: tuple[int, int] | None = None) -> str:
    return markdown.render(report, lambda _: place, context or Context())


def tokens(text: str) -> list[object]:
    return [inner for token in PARSER.parse(text) for inner in (token, *(token.children or ()))]


def cells(text: str) -> list[str]:
    return [
        token.content for before, token in zip(tokens(text), tokens(text)[1:], strict=False) if before.type == "td_open"
    ]


def test_a_row_says_what_and_where(report: Report) -> None:
    assert unescape(cells(rendered(report, place=(3, 7)))[1]) == "<code>model.safetensors.index.json</code>:3:7"


def test_without_a_line_the_place_stands_there(report: Report) -> None:
    assert unescape(cells(rendered(report))[1]) == (
        "<code>model.safetensors.index.json</code> <code>/weight_map/lm_head.weight</code>"
    )


def test_paths_are_those_of_the_checkout(report: Report) -> None:
    assert "<code>models/a/README&#46;md</code>" in rendered(report, Context("models/a"))


def test_the_heading_counts(report: Report) -> None:
    assert "### repokit: models/a: 1 error, 1 warning, 1 note, 1 waived, 1 in the baseline" in rendered(report)


def test_details_say_why_and_what_to_do(report: Report) -> None:
    assert "- **IDX101** Loading fails half way through&#46; *Fix:* upload them" in rendered(report)


def test_the_reason_of_a_rule_is_given_once(finding: Finding) -> None:
    text = rendered(Report("m", (finding, replace(finding, path="other")), Coverage()))
    assert text.count("- **IDX101**") == 1


def test_gaps_are_told(report: Report) -> None:
    assert "*not checked:* tokenizer&#46;json&#58; is too large (TOK101, TOK102)" in rendered(report)


def test_a_clean_report_has_no_table() -> None:
    text = rendered(Report("m", (), Coverage(("IDX101",))))
    assert "### repokit: m: clean" in text
    assert "|" not in text


def test_a_bot_finds_its_comment(report: Report) -> None:
    assert rendered(report).startswith(markdown.MARKER)


def test_it_fits_into_a_comment_and_counts_what_does_not(finding: Finding) -> None:
    many = tuple(replace(finding, path=f"{'x' * 150}{number}") for number in range(2000))
    text = rendered(Report("m", many, Coverage()))
    rows = text.count("| **error** |")
    assert len(text) <= markdown.LONGEST
    assert f"… and {2000 - rows:,} findings more" in text


def assert_is_text_only(text: str) -> None:
    """One table of three cells a row, no link, no picture, no HTML but ours."""
    found = tokens(text)
    assert not [
        token for token in found if token.type in {"link_open", "image", "s_open", "code_inline", "fence", "hr"}
    ]
    html = [token.content for token in found if token.type == "html_inline"]
    assert set(html) <= OURS
    blocks = [token.content for token in found if token.type == "html_block"]
    assert [re.sub(r"\s", "", block) for block in blocks] == [
        "<!--repokit-->",
        "<details><summary>Why,andwhattodo</summary>",
        "</details>",
    ]
    assert len(cells(text)) == 3


def test_hostile_text_is_text(hostile: Report) -> None:
    assert_is_text_only(rendered(hostile))


def test_hostile_text_mentions_nobody(hostile: Report) -> None:
    shown = "".join(token.content for token in outside_of_code(rendered(hostile)))
    assert not re.search(r"[@#!~%$&][0-9A-Za-z]|GH-\d", shown)


def outside_of_code(text: str) -> list[object]:
    """Texts that GitHub searches for people and issues."""
    kept, inside = [], False
    for token in tokens(text):
        if token.type == "html_inline":
            inside = token.content == "<code>"
        elif token.type == "text" and not inside:
            kept.append(token)
    return kept


def test_hostile_text_holds_no_address(hostile: Report) -> None:
    # What is linked without any markup (GFM, "Autolinks (extension)") is looked for in the source.
    assert not re.search(r"https?://|www\.|[\w.]+@", rendered(hostile))


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_text(text: str) -> None:
    finding = Finding(
        "IDX101", "missing-shard", Severity.ERROR, text, text, place=text, why=text, names=(text, text), hint=text
    )
    assert_is_text_only(rendered(Report(text, (finding,), Coverage())))


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=100))
def test_any_path_is_shown_as_it_is(path: str) -> None:
    finding = Finding("IDX101", "missing-shard", Severity.ERROR, path, "is odd")
    assert unescape(cells(rendered(Report("m", (finding,), Coverage())))[1]) == f"<code>{printable(path)}</code>"
