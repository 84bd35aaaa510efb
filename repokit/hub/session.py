"""huggingface_hub's shared client, with an end to its patience for as long as repokit uses it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from repokit.hub.errors import asked_wait, safe, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

# Seconds. huggingface_hub sets none, and a silent server would hold us for ever.
TIMEOUT: Final = 30.0
# huggingface_hub sleeps as long as a busy server tells it to; a day is not what anyone waits.
LONGEST_WAIT: Final = 60


@contextmanager
def asking(doing: str, repo_id: str, revision: str | None = None, timeout: float | None = None) -> Iterator[None]:
    """A block of calls to the Hub: bounded in time, and nothing leaves it but a RepokitError, or a bug.

    Args:
        doing: What is tried: `read the branches`.
        repo_id: Of which repository.
        revision: At which branch, tag or commit, where it matters.
        timeout: Seconds without an answer; TIMEOUT where it is left open.
    """
    target = repo_id if revision is None else f"{repo_id}@{safe(revision)}"
    with translated(doing, target), _bounded(TIMEOUT if timeout is None else timeout), warnings.catch_warnings():
        # What huggingface_hub warns of (remarks on the card, .parquet in a model) was told already, or linted.
        warnings.simplefilter("ignore", UserWarning)
        yield


@contextmanager
def _bounded(timeout: float) -> Iterator[None]:
    """Limits on the client that all of huggingface_hub shares, and takes them off again."""
    from huggingface_hub import get_session

    session = get_session()
    before = session.timeout
    session.timeout = timeout
    session.event_hooks["response"].append(_shorten_wait)
    try:
        yield
    finally:
        session.timeout = before
        session.event_hooks["response"].remove(_shorten_wait)


class _Answer(Protocol):
    headers: MutableMapping[str, str]


def _shorten_wait(response: _Answer) -> None:
    if (asked_wait(response.headers) or 0) > LONGEST_WAIT:
        response.headers.pop("RateLimit", None)
        response.headers["Retry-After"] = str(LONGEST_WAIT)
