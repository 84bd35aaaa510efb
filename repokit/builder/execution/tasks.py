"""The tasks of a plan: which file is whose, and what they leave beside the output.

.NAME.repokit-DIGEST/           the staging directory, shared by all tasks of the plan with that digest
.NAME.repokit-DIGEST.tasks/     3-of-8.journal: what task 3 has finished; 3-of-8.lock: while it runs

Each file of the plan belongs to one task, by a rule that every machine follows alike, so that tasks need not speak to
each other. Were two processes of one task to run where locks do not work, they would write the same bytes twice.
"""

from __future__ import annotations

import heapq
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from repokit.builder.execution import locking, staging
from repokit.errors import UsageError
from repokit.operations import DeleteFile
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from repokit.operations import Operation

_MOST: Final = 1_000_000  # tasks: more than any scheduler counts
_NAME: Final = re.compile(r"([0-9]{1,7})-of-([0-9]{1,7})\.(journal|lock)(?:\.held)?")
_FROM_ONE: Final = "tasks are counted from 1; an index from 0 needs 1 added: --task $((INDEX + 1))/N"


class Task(NamedTuple):
    """One of the tasks of a plan: `3/8`, counted from 1."""

    number: int
    of: int

    @classmethod
    def parsed(cls, text: str) -> Self:
        """What `--task` says.

        Raises:
            UsageError: It is no such task.
        """
        found = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text.strip(), re.ASCII)
        if found is None:
            raise UsageError(f"--task {printable(text)} is not K/N", hint="--task 1/8 is the first of eight")
        task = cls(int(found[1]), int(found[2]))
        if not 1 <= task.number <= task.of <= _MOST:
            raise UsageError(f"there is no task {task}", hint=_FROM_ONE)
        return task

    @property
    def name(self) -> str:
        """As files are called after it."""
        return f"{self.number}-of-{self.of}"

    @property
    def doing(self) -> str:
        """What its process does, for another one that is refused."""
        return f"task {self} is being carried out"

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def assigned(operations: Sequence[Operation], of: int) -> Mapping[str, Task]:
    """Which task writes which file, by its path: the largest first, each to the task with the fewest bytes so far.

    Where there are more tasks than files, the last tasks have none.
    """
    loads = [(0, number) for number in range(1, min(of, len(operations)) + 1)]
    found = {}
    for operation in sorted(operations, key=lambda operation: (-weight(operation), operation.path)):
        load, number = heapq.heappop(loads)
        found[operation.path] = Task(number, of)
        heapq.heappush(loads, (load + weight(operation), number))
    return found


def weight(operation: Operation) -> int:
    """Bytes that an operation writes."""
    return 0 if isinstance(operation, DeleteFile) else operation.size


def lock_path(folder: Path, task: Task) -> Path:
    """The lock of a task."""
    return folder / f"{task.name}.lock"


def journal_path(folder: Path, task: Task) -> Path:
    """The journal of a task."""
    return folder / f"{task.name}.journal"


def journals(folder: Path) -> dict[Path, Task]:
    """The journals in a folder of tasks, and whose they are."""
    return _found(folder, "journal")


def locks(folder: Path) -> dict[Path, Task]:
    """The locks in a folder of tasks: of those that run, and of those that were killed."""
    return _found(folder, "lock")


def refuse_running(target: Path) -> None:
    """Looks for tasks of any plan for this target. Under the lock of the target, at which a task looks in turn.

    Raises:
        LockHeld: One is running.
    """
    for folder in staging.left_by(target, ".tasks"):
        for task in sorted(set(locks(folder).values())):
            locking.refuse_held(lock_path(folder, task), target, task.doing)


def _found(folder: Path, kind: str) -> dict[Path, Task]:
    try:
        names = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):  # there are no tasks; what cannot be listed may have some that run
        return {}
    matches = ((path, _NAME.fullmatch(path.name)) for path in names)
    return {path: Task(int(found[1]), int(found[2])) for path, found in matches if found and found[3] == kind}
