"""Patience with a Hub that is busy or out of reach, with an end to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from repokit.hub.errors import Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

# Seconds before each new try; a minute in all, longer only where the Hub asks for it.
WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LONGEST_IN_ALL: Final = 15 * 60.0


@dataclass
class Patience:
    """The waiting that one push does, over all of its calls.

    Attributes:
        sleep: Called with seconds.
        spent: Seconds so far.
        reached: Whether the Hub has answered before. An address at which nobody ever was is not waited for.
    """

    sleep: Callable[[float], None]
    spent: float = 0.0
    reached: bool = False

    def wait(self, tries: int, error: Unanswered) -> None:
        """Waits before try number `tries` + 1.

        Raises:
            Unanswered: `error` itself, once there were enough tries or enough waiting.
        """
        if tries > len(WAITS):
            raise error
        seconds = max(WAITS[tries - 1], error.retry_after or 0.0)
        if self.spent + seconds > LONGEST_IN_ALL:
            raise error
        self.spent += seconds
        self.sleep(seconds)

    def persist(self, ask: Callable[[], _Result]) -> _Result:
        """Asks until there is an answer. For what may be asked twice: readings, and changes that are made only once."""
        tries = 0
        while True:
            try:
                answer = ask()
            except Unanswered as error:
                if not (error.connected or self.reached):
                    error.hint = "check the network, and HF_ENDPOINT where it is set"
                    raise
                tries += 1
                self.wait(tries, error)
            else:
                self.reached = True
                return answer
