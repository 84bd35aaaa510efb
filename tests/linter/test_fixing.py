"""Fixes in rounds: what is applied together, what one after the other, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from repokit.errors import MalformedFile
from repokit.linter.difference import differences, unified
from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited, shard, sharded, single, tensors_of
from repokit.linter.finding import Finding, Report, Severity
from repokit.linter.fix import (
    DeleteFile,
    DropJson,
    Edit,
    EditTensors,
    Fix,
    RebuildIndex,
    Safety,
    SetJson,
    SetMetadata,
    WriteFile,
)
from repokit.linter.fixing import Fixing, fix
from repokit.linter.proposals import marked
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules import RULES
from repokit.repo.memory import Memory
from repokit.repo.overlay import Overlay
from repokit.repo.repository import Repository

Speaks = Callable[[Repository], bool | list[str]]
INDEX = "model.safetensors.index.json"


def rule(
    speaks: Speaks,
    *edits: Edit,
    code: str = "CFG900",
    severity: Severity = Severity.WARNING,
    fixes: Safety | None = Safety.SAFE,
    path: str = "config.json",
) -> Rule:
    """A rule that speaks of a file while a condition holds, and proposes edits."""

    class Made(Rule):
        """Made.

        For a test.
        """

        reads = Reads.TENSORS
        bad = ()

        def check(self, repository: Repository) -> Iterator[Finding]:
            said = speaks(repository)
            places = [None] if said is True else said or []
            for place in places:
                yield self.finding(path, "is wrong", place=place)

        def fix(self, repository: Repository, finding: Finding) -> Fix | None:
            return Fix("make it right", edits)

    made = Made()
    for name, value in {"code": code, "severity": severity, "fixes": fixes, "since": "0.1"}.items():
        setattr(type(made), name, value)
    return made


def has(key: str, path: str = "config.json") -> Speaks:
    return lambda repository: key in repository.json(path)


def fixed(*rules: Rule, files: dict[str, bytes] | None = None, unsafe: bool = False) -> Fixing:
    content = files or {"config.json": b'{"a": 1, "b": 2, "c": 3}'}
    check = partial(lint, rules=rules, deep=True)
    return fix(Repository(Memory(content)), check, unsafe=unsafe, rules=rules)


def text(done: Fixing, path: str = "config.json") -> str:
    return done.overlay.read(path).decode()


A = rule(has("a"), DropJson("config.json", "/a"), code="CFG901")
B = rule(has("b"), DropJson("config.json", "/b"), code="CFG902")


# ---------------------------------------------------------------- what is applied


def test_what_can_be_fixed_is_fixed() -> None:
    done = fixed(A)
    assert (text(done), [one.title for one in done.fixed]) == ('{"b": 2, "c": 3}', ["make it right"])


def test_the_report_afterwards_is_on_what_remains() -> None:
    person = rule(has("c"), code="CFG903", fixes=None)
    assert [finding.code for finding in fixed(A, person).after.findings] == ["CFG903"]


def test_the_report_before_is_kept() -> None:
    assert [finding.code for finding in fixed(A).before.findings] == ["CFG901"]


def test_keys_of_one_file_go_together() -> None:
    looks: list[Report] = []

    def check(repository: Repository) -> Report:
        looks.append(lint(repository, rules=(A, B), deep=True))
        return looks[-1]

    done = fix(Repository(Memory({"config.json": b'{"a": 1, "b": 2}'})), check, rules=(A, B))
    assert (text(done), len(looks)) == ("{}", 2)


def test_whole_files_go_one_after_the_other() -> None:
    one = rule(has("a"), WriteFile("config.json", b'{"b": 2}'), code="CFG901")
    other = rule(has("b"), WriteFile("config.json", b"{}"), code="CFG902")
    done = fixed(one, other)
    assert (text(done), [one.finding.code for one in done.fixed]) == ("{}", ["CFG901", "CFG902"])


def test_items_of_one_array_go_one_after_the_other() -> None:
    class Ones(Rule):
        """An item is 1.

        For a test.
        """

        code, severity, fixes, since, reads, bad = "CFG901", Severity.WARNING, Safety.SAFE, "0.1", Reads.TENSORS, ()

        def check(self, repository: Repository) -> Iterator[Finding]:
            for number, item in enumerate(repository.json("config.json")["list"]):
                if item == 1:
                    yield self.finding("config.json", "is 1", place=f"/list/{number}")

        def fix(self, repository: Repository, finding: Finding) -> Fix | None:
            return Fix("drop it", (DropJson("config.json", finding.place or ""),))

    done = fixed(Ones(), files={"config.json": b'{"list": [1, 2, 1, 3, 1]}'})
    assert (text(done), len(done.fixed), done.dropped) == ('{"list": [2, 3]}', 3, ())


def test_one_remedy_of_two_findings_is_applied_once_and_counted_twice() -> None:
    drop = DropJson("config.json", "/a")
    done = fixed(rule(has("a"), drop, code="CFG901"), rule(has("a"), drop, code="CFG902"))
    assert [one.finding.code for one in done.fixed] == ["CFG901", "CFG902"]


def test_a_defect_that_another_one_hid_is_fixed_too() -> None:
    hidden = rule(lambda r: "a" not in r.json("config.json") and "b" in r.json("config.json"),
                  DropJson("config.json", "/b"), code="CFG902", severity=Severity.NOTE)  # fmt: skip
    assert text(fixed(A, hidden)) == '{"c": 3}'


def test_an_unsafe_fix_is_left_to_those_who_ask() -> None:
    unsafe = rule(has("a"), DropJson("config.json", "/a"), fixes=Safety.UNSAFE)
    assert (fixed(unsafe).overlay.changed, text(fixed(unsafe, unsafe=True))) == ({}, '{"b": 2, "c": 3}')


def test_a_repair_lets_rules_speak_that_could_not_run() -> None:
    def broken(repository: Repository) -> bool:
        try:
            repository.json("config.json")
        except MalformedFile:
            return True
        return False

    repair = rule(broken, WriteFile("config.json", b'{"a": 1}'), code="FIL900", severity=Severity.ERROR)
    person = rule(has("a"), code="CFG901", fixes=None, severity=Severity.ERROR)
    done = fixed(repair, person, files={"config.json": b"{"})
    assert (text(done), [finding.code for finding in done.after.findings]) == ('{"a": 1}', ["CFG901"])


def test_a_file_that_did_not_parse_before_stops_no_fix() -> None:
    """Once `a` is gone a rule looks at a file that was broken all along."""
    broken = rule(has("x", "broken.json"), code="CFG902", fixes=None)
    late = rule(lambda r: "a" not in r.json("config.json") and "x" in r.json("broken.json"), code="CFG903", fixes=None)
    files = {"config.json": b'{"a": 1}', "broken.json": b"{"}
    assert text(fixed(A, broken, late, files=files)) == "{}"


def test_a_second_run_changes_nothing() -> None:
    done = fixed(A, B)
    again = fix(Repository(done.overlay), partial(lint, rules=(A, B), deep=True), rules=(A, B))
    assert (again.overlay.changed, again.fixed) == ({}, ())


def test_rules_that_undo_each_other_come_to_an_end() -> None:
    one = rule(has("a"), SetJson("config.json", "/b", 1), DropJson("config.json", "/a"), severity=Severity.NOTE)
    other = rule(
        has("b"), SetJson("config.json", "/a", 1), DropJson("config.json", "/b"), severity=Severity.NOTE, code="CFG901"
    )
    done = fixed(one, other, files={"config.json": b'{"a": 1}'})
    assert (len(done.fixed), done.finished) == (10, False)


# ---------------------------------------------------------------- what is left out


def test_a_fix_that_silences_nothing_is_left_out() -> None:
    done = fixed(rule(has("a"), SetJson("config.json", "/x", 1)), B)
    [dropped] = done.dropped
    assert text(done) == '{"a": 1, "c": 3}'
    assert dropped.why.startswith("CFG900 still speaks of config.json; this is a bug")


def test_a_fix_that_makes_another_rule_speak_is_left_out() -> None:
    guard = rule(lambda r: "a" not in r.json("config.json"), code="CFG903", fixes=None)
    done = fixed(A, B, guard)
    assert (text(done), [one.finding.code for one in done.dropped]) == ('{"a": 1, "c": 3}', ["CFG901"])


def test_a_fix_may_make_a_note_speak() -> None:
    guard = rule(lambda r: "a" not in r.json("config.json"), code="CFG903", fixes=None, severity=Severity.NOTE)
    assert fixed(A, guard).dropped == ()


def test_a_fix_that_makes_a_rule_speak_holds_with_the_fix_of_that() -> None:
    bare = rule(lambda r: "a" not in r.json("config.json") and "b" in r.json("config.json"),
                DropJson("config.json", "/b"), code="CFG903")  # fmt: skip
    done = fixed(A, bare)
    assert (text(done), [one.finding.code for one in done.fixed], done.dropped) == (
        '{"c": 3}',
        ["CFG901", "CFG903"],
        (),
    )


def test_a_fix_that_breaks_a_file_is_left_out() -> None:
    done = fixed(rule(has("a"), WriteFile("config.json", b"{")), B)
    assert (text(done), "cannot run" in done.dropped[0].why) == ('{"a": 1, "c": 3}', True)


def test_a_fix_that_changes_nothing_is_left_out() -> None:
    [dropped] = fixed(rule(has("a"), SetJson("config.json", "/a", 1))).dropped
    assert dropped.why.startswith("it changes nothing; this is a bug")


@pytest.mark.parametrize(
    "edit",
    [
        SetJson("config.json", "/none/x", 1),
        SetJson("none.json", "/x", 1),
        DeleteFile("none.json"),
        WriteFile("../x", b""),
        EditTensors("config.json"),
        RebuildIndex(INDEX),
    ],
)
def test_an_edit_that_cannot_be_done_is_left_out(edit: Edit) -> None:
    done = fixed(rule(has("a"), edit), B)
    assert (text(done), len(done.dropped)) == ('{"a": 1, "c": 3}', 1)


def test_half_of_a_fix_is_none() -> None:
    done = fixed(rule(has("a"), DropJson("config.json", "/a"), DeleteFile("none.json")))
    assert (done.overlay.changed, len(done.dropped)) == ({}, 1)


def test_a_rule_whose_fix_fails_is_named() -> None:
    class Planted(Rule):
        """A bug.

        For a test.
        """

        code, severity, fixes, since, reads, bad = "CFG901", Severity.WARNING, Safety.SAFE, "0.1", Reads.TENSORS, ()

        def check(self, repository: Repository) -> Iterator[Finding]:
            yield self.finding("config.json", "is wrong")

        def fix(self, repository: Repository, finding: Finding) -> Fix | None:
            raise ZeroDivisionError

    done = fixed(Planted(), B)
    assert (text(done), "ZeroDivisionError" in done.dropped[0].why) == ('{"a": 1, "c": 3}', True)


# ---------------------------------------------------------------- what findings say


@pytest.mark.parametrize("safety", [Safety.SAFE, Safety.UNSAFE])
def test_a_finding_says_whether_it_can_be_fixed(safety: Safety) -> None:
    one = rule(has("a"), DropJson("config.json", "/a"), fixes=safety)
    repository = Repository(Memory({"config.json": b'{"a": 1}'}))
    report = marked(repository, lint(repository, rules=(one,), deep=True), (one,))
    assert [finding.fixable for finding in report.findings] == [safety]


def test_a_finding_without_a_fix_says_nothing() -> None:
    one = rule(has("a"), fixes=None)
    repository = Repository(Memory({"config.json": b'{"a": 1}'}))
    assert [
        finding.fixable for finding in marked(repository, lint(repository, rules=(one,), deep=True), (one,)).findings
    ] == [None]


# ---------------------------------------------------------------- every kind of edit


def once(*edits: Edit, files: dict[str, bytes]) -> Overlay:
    """What edits make of files: a rule proposes them as long as they change anything."""
    untouched = Memory(files)

    def speaks(repository: Repository) -> bool:
        return all(repository.has(path) and repository.source.read(path) == content for path, content in files.items())

    one = rule(speaks, *edits)
    done = fix(Repository(untouched), partial(lint, rules=(one,), deep=True), rules=(one,))
    assert done.dropped == ()
    return done.overlay


def test_a_card_keeps_comments_and_body() -> None:
    card = b"---\n# mine\nlicense: mit\ntags: [a]\n---\n# Title\n"
    overlay = once(SetMetadata("README.md", {"license": "apache-2.0"}, ("tags",)), files={"README.md": card})
    assert overlay.read("README.md") == b"---\n# mine\nlicense: apache-2.0\n---\n# Title\n"


def test_a_prefix_is_taken_off_and_the_index_follows() -> None:
    files = {
        path: edited(rename=lambda name: f"module.{name}")(content) if path.endswith(".safetensors") else content
        for path, content in sharded().items()
    }
    weight_map = json.loads(files[INDEX])["weight_map"]
    prefixed = {f"module.{name}": where for name, where in weight_map.items()}
    files[INDEX] = json.dumps({"metadata": {}, "weight_map": prefixed}).encode()
    edits = [
        EditTensors(shard(number), {name: name.removeprefix("module.") for name in tensors_of(files[shard(number)])})
        for number in (1, 2, 3)
    ]
    overlay = once(*edits, RebuildIndex(INDEX), files=files)
    assert json.loads(overlay.read(INDEX))["weight_map"] == weight_map


def test_values_of_tensors_survive_a_rename() -> None:
    path, files = "model.safetensors", dict(single())
    overlay = once(EditTensors(path, {"lm_head.weight": "head.weight"}), files=files)
    before, after = (
        {tensor.name: source.read(path, header.data_start + tensor.begin, tensor.end - tensor.begin)}
        for source in (Memory(files), overlay)
        for header in [Repository(source).header(path)]
        for tensor in header.tensors
        if tensor.name in {"lm_head.weight", "head.weight"}
    )
    assert after["head.weight"] == before["lm_head.weight"]


# ---------------------------------------------------------------- how it is shown


def shown(overlay: Overlay) -> dict[str, str]:
    return {one.path: one.text for one in differences(overlay)}


def test_a_text_is_shown_as_a_diff() -> None:
    overlay = once(DropJson("config.json", "/a"), files={"config.json": b'{\n  "a": 1,\n  "b": 2\n}\n'})
    assert shown(overlay)["config.json"] == (
        '--- a/config.json\n+++ b/config.json\n@@ -1,4 +1,3 @@\n {\n-  "a": 1,\n   "b": 2\n }\n'
    )


def test_tensors_are_shown_in_a_line() -> None:
    edit = EditTensors(
        "model.safetensors", {"lm_head.weight": "head"}, frozenset({"model.norm.weight"}), {"format": "x"}
    )
    assert shown(once(edit, files=dict(single()))) == {
        "model.safetensors": "model.safetensors: 1 tensor renamed: lm_head.weight -> head; "
        "1 tensor removed: model.norm.weight; metadata {'format': 'pt'} -> {'format': 'x'}\n"
    }


def test_a_deleted_text_is_shown_whole() -> None:
    assert shown(once(DeleteFile("x.txt"), files={"x.txt": b"one\n"})) == {
        "x.txt": "--- a/x.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    }


def test_a_deleted_binary_is_a_line() -> None:
    assert shown(once(DeleteFile("x.bin"), files={"x.bin": b"\x00\xff"})) == {"x.bin": "x.bin: deleted, 2 bytes\n"}


def test_what_a_terminal_would_obey_is_escaped() -> None:
    text = shown(once(WriteFile("x.txt", b"b\n"), files={"x.txt": b"\x1b[2J\n"}))["x.txt"]
    assert "\\x1b[2J" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("number", [0, 1, 500, 998, 999])
def test_lines_are_numbered_from_the_beginning_of_the_file(number: int) -> None:
    before = [f"line {index}\n" for index in range(1000)]
    after = [*before[:number], "new\n", *before[number + 1 :]]
    import difflib

    expected = "".join(difflib.unified_diff(before, after, "a", "b"))
    assert unified("".join(before), "".join(after), "a", "b") == expected


# ---------------------------------------------------------------- the real table


def test_the_table_fixes_what_it_can_and_reports_the_rest() -> None:
    change: dict[str, Any] = {
        "config.json": {"_name_or_path": "/home/alice/x", "vocab_size": 7},
        INDEX: {"metadata": {"total_size": 1}},
    }
    with Repository(Example("two of three", change, "sharded").source()) as repository:
        done = fix(repository, lint, rules=RULES)
    assert {one.finding.code for one in done.fixed} == {"SEC201", "IDX203"}
    assert done.after.at_least(Severity.WARNING) != ()
