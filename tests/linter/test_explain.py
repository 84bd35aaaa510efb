"""What a rule says of itself: page, table, JSON, incidents."""

from __future__ import annotations

import importlib.util
import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from repokit.errors import UsageError
from repokit.linter import explain
from repokit.linter.example_changes import changes, middle_cut
from repokit.linter.examples import DELETE, Example, edited
from repokit.linter.finding import Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.incidents import incidents
from repokit.linter.page import READS, WIDTH, page
from repokit.linter.rule import Rule
from repokit.linter.rules import RULES
from repokit.repo.source import Kind
from repokit.resources import data
from repokit.schema.recipe import Lint

EVERY = [pytest.param(rule, id=rule.code) for rule in RULES]
FAULTS = Path(__file__).parent.parent / "faults"
HEADINGS = ("Why", "Breaks it", "Does not", "Fix", "Ignore", "Reads")
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")

rendered = cache(page)


def rule_of(code: str) -> Rule:
    (rule,) = explain.find(code)
    return rule


def section(text: str, heading: str) -> str:
    """What stands under a heading, without its indent."""
    below = re.search(rf"^{heading}\n((?:(?:  .*)?\n)+)", text, re.MULTILINE)
    assert below is not None
    return re.sub(r"^  ", "", below[1], flags=re.MULTILINE).rstrip("\n")


# ---------------------------------------------------------------- the page of every rule


@pytest.mark.parametrize("rule", EVERY)
def test_a_page_has_every_section(rule: Rule) -> None:
    lines = rendered(rule).splitlines()
    assert [line for line in lines if line in HEADINGS] == list(HEADINGS)


@pytest.mark.parametrize("rule", EVERY)
def test_a_page_fits_a_terminal(rule: Rule) -> None:
    assert [line for line in rendered(rule).splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("rule", EVERY)
def test_a_page_has_no_control_characters(rule: Rule) -> None:
    unsafe = {character for character in rendered(rule) if unicodedata.category(character) in {"Cc", "Cf", "Cs"}}
    assert unsafe == {"\n"}


@pytest.mark.parametrize("rule", EVERY)
def test_a_page_shows_what_lint_says_of_every_bad_example(rule: Rule) -> None:
    said = " ".join(section(rendered(rule), "Breaks it").split()).count(f": {rule.severity.word} {rule.code}")
    assert said >= len(rule.bad)


# ---------------------------------------------------------------- three pages


def test_the_page_of_a_rule_about_files() -> None:
    assert (
        section(rendered(rule_of("IDX101")), "Breaks it")
        == """\
sharded is a small llama in three shards with an index.

* the second shard was not uploaded (sharded)
    - model-00002-of-00003.safetensors
  model.safetensors.index.json:6:17: error IDX101 names 1 shard that the repository does not
    have

* an index that lists one more shard (sharded)
    model.safetensors.index.json: weight_map/model.norm.weight:
      "model-00003-of-00003.safetensors" -> "model-00004-of-00004.safetensors"
  model.safetensors.index.json:6:17: error IDX101 names 1 shard that the repository does not
    have"""
    )


def test_the_page_of_a_rule_about_values() -> None:
    assert section(rendered(rule_of("CFG103")), "Breaks it").startswith("""\
single is a llama of two layers in one file, with tokenizer, chat template, card and license.

* a padding id beside the last row (single)
    config.json: pad_token_id: 0 -> 32
  config.json:18:19: error CFG103 is 32; the vocabulary has 32 rows
  TOK212 speaks of it too
""")


def test_the_page_of_a_rule_about_tensors() -> None:
    assert section(rendered(rule_of("WGT103")), "Breaks it").startswith("""\
single is a llama of two layers in one file, with tokenizer, chat template, card and license.

* saved from inside torch.compile (single)
    model.safetensors:
        lm_head.weight -> _orig_mod.lm_head.weight
        model.embed_tokens.weight -> _orig_mod.model.embed_tokens.weight
        and 19 more tensors renamed
  model.safetensors _orig_mod.lm_head.weight: error WGT103 has '_orig_mod.' in 21 names
""")


def test_a_page_begins_with_code_name_and_severity() -> None:
    assert rendered(rule_of("IDX101")).startswith("IDX101 missing-shard  error, since 0.1\n")


def test_a_page_tells_where_the_defect_was_met() -> None:
    assert "sgl-project/sglang#32279: A missing shard" in section(rendered(rule_of("IDX101")), "Seen")


def test_a_page_says_what_the_rule_reads() -> None:
    rule = rule_of("IDX101")
    assert section(rendered(rule), "Reads") == READS[rule.reads]


def test_headings_are_set_off() -> None:
    text = page(rule_of("IDX101"), lambda text, kind: f"<{kind}>{text}</>")
    assert "\n<path>Ignore</>\n" in text


# ---------------------------------------------------------------- fixes


class Deletes(type(rule_of("FIL208"))):  # type: ignore[misc]
    """A file is what an operating system left behind.

    It is of no use to anybody.
    """

    def fix(self, repository: object, finding: object) -> Fix:
        return Fix("delete what the system left", ())


def test_a_fix_is_told_by_its_title() -> None:
    rule = Deletes()
    rule.fixes = Safety.SAFE
    wanted = "`repokit lint --fix` repairs it; in the first example: delete what the system left."
    assert section(page(rule), "Fix") == wanted


def test_an_unsafe_fix_names_its_flag() -> None:
    rule = Deletes()
    rule.fixes = Safety.UNSAFE
    assert "--fix --unsafe-fixes" in section(page(rule), "Fix")


# ---------------------------------------------------------------- ignoring


def test_the_waiver_of_a_page_is_one_for_a_recipe() -> None:
    import yaml

    lines = re.sub(r"^repokit.yaml", " " * 12, section(rendered(rule_of("IDX101")), "Ignore")).splitlines()[:3]
    lint = Lint.model_validate(yaml.safe_load("\n".join(lines))["lint"])
    assert (lint.ignore[0].code, lint.per_file) == ("IDX101", {"extra/*": ("IDX101",)})


def test_the_waiver_of_a_page_is_one_for_pyproject() -> None:
    import tomllib

    lines = section(rendered(rule_of("IDX101")), "Ignore").splitlines()[3:6]
    settings = tomllib.loads("\n".join(line[len("pyproject.toml") :].strip() for line in lines))
    lint = Lint.model_validate(settings["tool"]["repokit"]["lint"])
    assert (lint.ignore[0].code, lint.per_file) == ("IDX101", {"extra/*": ("IDX101",)})


# ---------------------------------------------------------------- changes of an example

CHANGES = {
    "a value": (Example("x", {"config.json": {"vocab_size": 33}}), ("config.json: vocab_size: 32 -> 33",)),
    "a type": (Example("x", {"config.json": {"vocab_size": 32.0}}), ("config.json: vocab_size: 32 -> 32.0",)),
    "a key that is gone": (Example("x", {"config.json": {"dtype": DELETE}}), ("config.json: - dtype",)),
    "a key that is new": (Example("x", {"config.json": {"x": [1]}}), ("config.json: + x: [1]",)),
    "an item": (
        Example("x", {"generation_config.json": {"eos_token_id": [4]}}),
        ("generation_config.json: - eos_token_id/2",),
    ),
    "a file that is gone": (Example("x", {"model.safetensors": None}), ("- model.safetensors",)),
    "a file that is a link": (Example("x", {"LICENSE": Kind.BROKEN_LINK}), ("LICENSE: now a broken link",)),
    "a new text": (Example("x", {"notes.txt": "one\ntwo\n"}), ("+ notes.txt", "    one", "    two")),
    "a line": (
        Example("x", {"README.md": lambda card: card.replace(b"apache-2.0", b"mit")}),
        ("README.md:", "    - license: apache-2.0", "    + license: mit"),
    ),
    "a cut file": (
        Example("x", {"model.safetensors": lambda content: content[:1000]}),
        ("model.safetensors: cut after 1,000 of 11,968 bytes",),
    ),
    "a tensor that is gone": (
        Example("x", {"model.safetensors": edited(drop=("lm_head.weight",))}),
        ("model.safetensors: - lm_head.weight BF16 [32, 16]",),
    ),
    "a tensor of another shape": (
        Example("x", {"model.safetensors": edited(add={"model.norm.weight": ("F32", (8,))})}),
        ("model.safetensors: model.norm.weight: BF16 [16] -> F32 [8]",),
    ),
    "other values": (
        Example("x", {"model.safetensors": lambda content: content[:-1] + b"\xff"}),
        ("model.safetensors: other values in 1 tensor: model.norm.weight",),
    ),
    "nothing": (Example("x", {"LICENSE": lambda content: content}), ()),
}


@pytest.mark.parametrize(("example", "lines"), CHANGES.values(), ids=CHANGES.keys())
def test_changes_are_told_in_lines(example: Example, lines: tuple[str, ...]) -> None:
    assert changes(example) == lines


def test_a_key_of_gguf_that_is_gone_is_told() -> None:
    assert changes(rule_of("GGF101").bad[0]) == ("example-F32.gguf: - general.architecture",)


@given(st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.text(), st.lists)))
def test_what_json_changes_is_told_without_control_characters(values: dict[str, object]) -> None:
    lines = changes(Example("x", {"config.json": values}))
    assert not {character for line in lines for character in line if unicodedata.category(character) == "Cc"}


@given(st.binary(max_size=200))
def test_any_bytes_can_be_told(content: bytes) -> None:
    assert all(line.isprintable() for line in changes(Example("x", {"model.safetensors": content})))


@given(st.lists(st.text("abc"), max_size=30), st.integers(3, 12))
def test_a_cut_in_the_middle_counts_what_it_leaves_out(lines: list[str], limit: int) -> None:
    told = middle_cut(lines, limit)
    left = sum(int(match[1]) - 1 for line in told if (match := re.fullmatch(r"\((\d+) more lines?\)", line)))
    assert (len(told) <= limit, len(told) + left) == (True, len(lines))


# ---------------------------------------------------------------- incidents


def test_incidents_are_of_rules_that_exist() -> None:
    assert set(data("incidents")["incidents"]) <= {rule.code for rule in RULES}


def test_threads_are_named_as_github_does() -> None:
    threads = [entry["thread"] for entries in data("incidents")["incidents"].values() for entry in entries]
    assert [thread for thread in threads if not THREAD.fullmatch(thread)] == []


def test_incidents_are_told_in_a_sentence() -> None:
    told = [entry["what"] for entries in data("incidents")["incidents"].values() for entry in entries]
    assert [what for what in told if not what.endswith(".") or not 20 <= len(what) <= 160] == []


def recipes() -> Iterator[tuple[str, str]]:
    """Code and thread of every fault that has a recipe."""
    codes = {rule.code for rule in RULES}
    for path in sorted(FAULTS.glob("test_faults_*.py")):
        spec = importlib.util.spec_from_file_location(f"recipes_of_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for table in (value for value in vars(module).values() if isinstance(value, dict)):
            for key, recipe in table.items():
                thread = THREAD.search(key) if isinstance(key, str) and isinstance(recipe, tuple) else None
                if thread is not None and isinstance(recipe[1], Severity) and recipe[0] in codes:
                    yield recipe[0], thread[0]


def test_every_thread_of_a_recipe_is_an_incident_of_its_rule() -> None:
    missing = {
        (code, thread) for code, thread in recipes() if thread not in {incident.thread for incident in incidents(code)}
    }
    assert missing == set()


def test_a_rule_without_a_known_thread_has_no_incident() -> None:
    assert incidents("XXX999") == ()


# ---------------------------------------------------------------- finding rules, table, JSON


@pytest.mark.parametrize("word", ["IDX101", "idx101", "missing-shard", "Missing-Shard"])
def test_a_rule_is_found_by_code_and_by_name(word: str) -> None:
    assert [rule.code for rule in explain.find(word)] == ["IDX101"]


@pytest.mark.parametrize("word", ["IDX", "idx", "IDX1"])
def test_the_beginning_of_codes_finds_a_family(word: str) -> None:
    codes = [rule.code for rule in explain.find(word)]
    assert codes == sorted(rule.code for rule in RULES if rule.code.startswith(word.upper()))


@pytest.mark.parametrize("word", ["I", "ID", "", "shard"])
def test_less_than_a_family_finds_nothing(word: str) -> None:
    with pytest.raises(UsageError):
        explain.find(word)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(UsageError) as raised:
        explain.find("mising-shard")
    assert raised.value.hint == "did you mean missing-shard?"


def test_an_unknown_family_names_the_others() -> None:
    with pytest.raises(UsageError) as raised:
        explain.family("XYZ")
    assert "IDX" in (raised.value.hint or "")


def test_json_tells_what_examples_change() -> None:
    (document,) = json.loads(explain.as_json([rule_of("CFG103")]))
    assert document["examples"]["bad"][0] == {
        "title": "a padding id beside the last row",
        "base": "single",
        "changes": ["config.json: pad_token_id: 0 -> 32"],
        "also": ["TOK212"],
    }


def test_json_tells_incidents() -> None:
    (document,) = json.loads(explain.as_json([rule_of("IDX101")]))
    assert "sgl-project/sglang#32279" in [incident["thread"] for incident in document["incidents"]]
