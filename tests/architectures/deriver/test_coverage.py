"""The table says of every class what is known of it, and why not more."""

from __future__ import annotations

from repokit.architectures.deriver.coverage import table

RECORDS = {
    "LlamaConfig": {
        "classes": ["LlamaModel", "LlamaForCausalLM"],
        "document": {
            "model_type": "llama",
            "classes": {
                "LlamaModel": {"evidence": "verified", "blocks": []},
                "LlamaForCausalLM": {
                    "evidence": "partial",
                    "blocks": [[None, [], False, [["a", ["1"]], ["b", ["1"]]]]],
                },
            },
        },
    },
    "OddConfig": {"classes": ["OddModel"], "error": "needs | what is\nnot there"},
}


def test_classes_are_counted_by_evidence() -> None:
    text = table(RECORDS, "5.24.0", "2026-11-30")
    assert "| attempted | 3 |\n| verified | 1 |\n| partial | 1 |\n| none | 1 |" in text


def test_what_is_unknown_of_a_partial_class_is_counted() -> None:
    assert "| llama | LlamaModel | LlamaForCausalLM (2 unknown) |  |" in table(RECORDS, "5.24.0", "2026-11-30")


def test_a_reason_stays_in_its_cell() -> None:
    assert "| OddConfig |  |  | OddModel (needs / what is not there) |" in table(RECORDS, "5.24.0", "2026-11-30")
