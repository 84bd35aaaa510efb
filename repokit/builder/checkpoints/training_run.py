"""What a trainer wrote about its run: trainer_state.json, and the checkpoints inside an output directory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from repokit.errors import InputError
from repokit.repo.remote_files import content

if TYPE_CHECKING:
    from repokit.formats.urls import Place

_USUAL_METRIC = "eval_loss"  # transformers TrainingArguments.metric_for_best_model, where nothing else is asked for


@dataclass(frozen=True)
class Nested:
    """A `checkpoint-N` folder inside an output directory, or an `epoch_N` of torchtune.

    Attributes:
        path: `checkpoint-40`.
        step: 40.
        metric: `eval_loss 0.4213`: what the run was judged by, at that step; "" where trainer_state.json has none.
        best: Whether the trainer recorded it as the best one.
    """

    path: str
    step: int
    metric: str
    best: bool


class TrainerState:
    """trainer_state.json with typed accessors. Whatever is absent, or not what a trainer writes, is None."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    @classmethod
    def read(cls, folder: Place) -> Self:
        """The state in a folder; an empty one where there is none that can be read."""
        try:
            raw = json.loads(content(folder / "trainer_state.json"))
        except (InputError, ValueError, RecursionError):
            raw = None
        return cls(raw if isinstance(raw, dict) else {})

    def __bool__(self) -> bool:
        return bool(self._raw)

    def number(self, key: str) -> float | None:
        return _number(self._raw.get(key))

    def integer(self, key: str) -> int | None:
        value = self._raw.get(key)
        return value if type(value) is int and 0 <= value < 2**53 else None

    @property
    def best_folder(self) -> str | None:
        """`checkpoint-40`: the end of a path of the machine that trained, which may have been a Windows one."""
        recorded = self._raw.get("best_model_checkpoint")
        return re.split(r"[/\\]", recorded.rstrip("/\\"))[-1] if isinstance(recorded, str) else None

    @property
    def best_metric_name(self) -> str:
        """The metric that chose the best checkpoint.

        The name itself is in training_args.bin, a pickle; the log has the value under it, as `eval_<name>`.
        """
        best = self.number("best_metric")
        step = self.integer("best_global_step")
        for entry in self._log(step) if best is not None else ():
            for name, value in entry.items():
                if name.startswith("eval_") and _number(value) == best:
                    return name
        return _USUAL_METRIC

    def logged(self, name: str, step: int) -> float | None:
        """The last value of a metric at a step."""
        values = [_number(entry[name]) for entry in self._log(step) if name in entry]
        return values[-1] if values else None

    def _log(self, step: int | None) -> list[dict[str, Any]]:
        """The entries of a step, or all of them."""
        history = self._raw.get("log_history")
        entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
        return [entry for entry in entries if step is None or entry.get("step") == step]


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def nested_checkpoints(root: Place, folders: Collection[str], state: TrainerState) -> tuple[Nested, ...]:
    """The `checkpoint-N` folders of an output directory, by step.

    Args:
        root: The output directory.
        folders: Their names.
        state: The output directory's own state; where there is none, that of the last checkpoint speaks for the run.
    """
    steps = sorted((int(re.split("[-_]", folder)[1]), folder) for folder in folders)
    states = {folder: TrainerState.read(root / folder) for _, folder in steps}
    run = state or (states[steps[-1][1]] if steps else state)
    name = run.best_metric_name
    values = {folder: states[folder].logged(name, step) for step, folder in steps}
    metrics = {folder: "" if value is None else f"{name} {value:.4f}" for folder, value in values.items()}
    return tuple(Nested(folder, step, metrics[folder], folder == run.best_folder) for step, folder in steps)
