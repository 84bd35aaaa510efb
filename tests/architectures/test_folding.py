"""The short form of a member says what the long one says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from repokit.architectures.folding import folded, unfolded

NAMES = st.sampled_from(["model.layers.{i}.up.weight", "model.norm.weight", "lm_head.weight", "score.weight"])
ENTRIES = st.lists(st.tuples(NAMES, st.lists(st.sampled_from(["width", "3", None]), max_size=2)).map(list), min_size=1)
BLOCKS = st.lists(
    st.tuples(st.sampled_from(["True", "bias", None]), st.just(["layers"]), st.booleans(), ENTRIES).map(list)
)
RECORDS = st.fixed_dictionaries(
    {"evidence": st.just("verified"), "configs": st.integers(20, 30), "blocks": BLOCKS},
    optional={
        "prefix": st.sampled_from(["model", ""]),
        "memory": BLOCKS,
        "tied": st.just([["lm_head.weight", "model.norm.weight"]]),
        "names": st.just({"renames": [["a", "b"]]}),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["One", "Two", "Three", "Four"]), RECORDS))
def test_folding_loses_nothing(classes: dict[str, Any]) -> None:
    short = folded({"format": 1, "classes": classes})
    assert {name: unfolded(record, short) for name, record in short["classes"].items()} == classes


def test_classes_share_the_blocks_of_their_base_model() -> None:
    def trunk(prefix: str) -> list[Any]:
        return [["True", ["layers"], False, [[f"{prefix}layers.{{i}}.up.weight", ["width", "width"]]]]]

    record = {"evidence": "verified", "configs": 24, "prefix": "model"}
    short = folded(
        {"classes": {"Base": {**record, "blocks": trunk("")}, "Head": {**record, "blocks": trunk("model.")}}}
    )
    assert len(short["parts"]) == 1
    assert short["classes"]["Head"]["blocks"] == ["model.", 0]


def test_a_document_that_was_not_folded_is_read_as_it_is() -> None:
    record = {"evidence": "partial", "configs": 20, "blocks": [["True", [], False, [["a", ["1"]]]]]}
    assert unfolded(record, {"classes": {"One": record}}) == record
