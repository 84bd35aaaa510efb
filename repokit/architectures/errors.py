"""What can keep a skeleton from being given."""

from __future__ import annotations

from repokit.errors import InputError
from repokit.printable import printable


class NotCovered(InputError):
    """This version of repokit has no skeleton for the class: it can say nothing about the tensors."""


class ConfigUnusable(InputError):
    """config.json says something from which no tensors follow: a negative size, text for a number, 10^12 layers.

    Attributes:
        key: The dotted key that it is about; None where it takes several.
    """

    def __init__(self, what: str, *, key: str | None = None) -> None:
        super().__init__(
            printable(what),
            why="no loader can build a model from it",
            hint="correct the value in config.json",
            path="config.json",
            place=None if key is None else "/" + key.replace(".", "/"),
        )
        self.key = key
