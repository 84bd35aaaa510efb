from __future__ import annotations

import json

import pytest

from repokit.builder.checkpoints.training_run import Nested, TrainerState, nested_checkpoints


def state(**values):
    return json.dumps(values)


@pytest.fixture
def output(tmp_path):
    """Writes an output directory: the steps of its checkpoints, and the log that all of them have."""

    def write(steps, log, **run):
        for step in steps:
            folder = tmp_path / f"checkpoint-{step}"
            folder.mkdir()
            history = [entry for entry in log if entry["step"] <= step]
            (folder / "trainer_state.json").write_text(state(global_step=step, log_history=history, **run))
        return nested_checkpoints(tmp_path, {f"checkpoint-{step}" for step in steps}, TrainerState.read(tmp_path))

    return write


LOSSES = [
    {"step": 20, "eval_loss": 2.0},
    {"step": 20, "loss": 9.0},
    {"step": 40, "eval_loss": 1.5},
    {"step": 100, "eval_loss": 1.75},
]


def test_checkpoints_are_sorted_by_step_with_their_metric(output):
    assert output([100, 20, 40], LOSSES, best_model_checkpoint="/somewhere/else/checkpoint-40") == (
        Nested("checkpoint-20", 20, "eval_loss 2.0000", best=False),
        Nested("checkpoint-40", 40, "eval_loss 1.5000", best=True),
        Nested("checkpoint-100", 100, "eval_loss 1.7500", best=False),
    )


def test_the_metric_is_the_one_that_chose_the_best(output):
    log = [
        {"step": 20, "eval_loss": 2.0, "eval_accuracy": 0.5},
        {"step": 40, "eval_loss": 1.0, "eval_accuracy": 0.25},
    ]
    found = output([20, 40], log, best_metric=0.5, best_global_step=20, best_model_checkpoint="out/checkpoint-20")
    assert [nested.metric for nested in found] == ["eval_accuracy 0.5000", "eval_accuracy 0.2500"]


def test_a_checkpoint_that_was_not_evaluated_has_no_metric(output):
    assert [nested.metric for nested in output([20, 30], LOSSES)] == ["eval_loss 2.0000", ""]


def test_the_output_directory_speaks_for_its_run(tmp_path, output):
    (tmp_path / "trainer_state.json").write_text(state(best_model_checkpoint="checkpoint-20"))
    assert [nested.best for nested in output([20, 40], LOSSES)] == [True, False]


@pytest.mark.parametrize(
    "recorded",
    ["out/checkpoint-20", "/a/b/checkpoint-20/", "C:\\out\\checkpoint-20", "checkpoint-20", "..\\checkpoint-20\\"],
)
def test_the_best_is_known_by_the_end_of_its_path(output, recorded):
    assert [nested.best for nested in output([20, 40], LOSSES, best_model_checkpoint=recorded)] == [True, False]


@pytest.mark.parametrize("recorded", [None, "", "/", 7, ["checkpoint-20"], "checkpoint-30"])
def test_no_best_is_made_up(output, recorded):
    assert not any(nested.best for nested in output([20, 40], LOSSES, best_model_checkpoint=recorded))


def test_no_checkpoints_are_no_checkpoints(output):
    assert output([], LOSSES) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b'{"log_history": 7}',
        b'{"log_history": [7, null, {}], "best_metric": "x", "best_global_step": []}',
        b'{"log_history": [{"step": 20, "eval_loss": NaN}], "best_metric": NaN}',
        b'{"log_history": [{"step": 20, "eval_loss": true}], "best_metric": true}',
        b'{"log_history": [{"step": 20, "eval_loss": 1' + b"0" * 400 + b"}]}",
        b'{"log_history": [{"step": 20, "eval_loss": 1' + b"0" * 5000 + b"}]}",
    ],
)
def test_a_state_that_no_trainer_wrote_says_nothing(tmp_path, content):
    (tmp_path / "checkpoint-20").mkdir()
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_bytes(content)
    found = nested_checkpoints(tmp_path, {"checkpoint-20"}, TrainerState.read(tmp_path))
    assert found == (Nested("checkpoint-20", 20, "", best=False),)


@pytest.mark.parametrize("value", [-1, 1.5, True, "7", None, 2**60, float("nan")])
def test_an_integer_is_one_that_a_trainer_counts(value):
    assert TrainerState({"global_step": value}).integer("global_step") is None
