"""Memory that stands at once: whoever needs a tensor whole waits until there is room for it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from repokit.errors import PlanError, UsageError
from repokit.operations import WriteShard
from repokit.printable import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repokit.operations import Operation

# What a build takes whatever it builds (design.md, budgets): 200 MB, and 100 more where a tokenizer of 150,000 tokens
# is parsed. The rest of `--memory` is for tensors.
OWN: Final = 300_000_000


class Reservation:
    """So many bytes for all threads of a process together.

    A thread holds one reservation at a time, so that none waits for another that waits for it.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: bytes that may be reserved at once."""
        self._limit = limit
        self._taken = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, amount: int) -> Iterator[None]:
        """Waits for room, and holds it. What is larger than everything waits until it is alone, and goes on."""
        if not amount:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + amount <= self._limit)
            self._taken += amount
        try:
            yield
        finally:
            with self._changed:
                self._taken -= amount
                self._changed.notify_all()


def for_tensors(operations: Iterable[Operation], memory: int | None) -> int:
    """Bytes that tensors may take at once.

    Args:
        operations: Of the plan.
        memory: Bytes that the whole build may take; None: what its largest tensor needs, whatever the number of jobs.

    Raises:
        PlanError: One tensor needs more.
        UsageError: A build takes more before it has read one.
    """
    if memory is None:
        return max((operation.memory for operation in operations if isinstance(operation, WriteShard)), default=0)
    if memory < OWN:
        what = f"--memory {size(memory)} is less than the {size(OWN)} that a build takes besides its tensors"
        raise UsageError(what, hint=f"--memory {OWN // 10**6}MB is the least")
    for operation in operations:
        if isinstance(operation, WriteShard) and operation.memory > memory - OWN:
            _refuse(operation, memory)
    return memory - OWN


def _refuse(operation: WriteShard, memory: int) -> None:
    position = len(operation.header)
    for content in operation.pieces:
        if content.memory > memory - OWN:
            least = -(-(content.memory + OWN) // 10**6)
            what = f"needs {size(content.memory)} of memory at once, and {size(memory - OWN)} are left for tensors"
            why = f"of --memory {size(memory)} a build takes {size(OWN)} itself; this tensor cannot be written in parts"
            place = operation.tensor_at(position)
            raise PlanError(what, why=why, path=operation.path, place=place, hint=f"--memory {least}MB, or more")
        position += content.size
