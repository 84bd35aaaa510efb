"""huggingface_hub's shared client, with an end to its patience for as long as repokit uses it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

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
    from huggingface_hub.utils import _http

    factory = _http._GLOBAL_CLIENT_FACTORY  # noqa: SLF001 - to set one has a function, to read it has none
    clients = [_Limited(get_session(), timeout)]

    def limited() -> Any:  # noqa: ANN401 - a client of an HTTP library that repokit does not import
        clients.append(_Limited(factory(), timeout))
        return clients[-1].client

    # Where nobody answers at once, huggingface_hub throws its client away and makes another for the next try.
    _http._GLOBAL_CLIENT_FACTORY = limited  # noqa: SLF001 - set_client_factory would close the connections too
    try:
        yield
    finally:
        _http._GLOBAL_CLIENT_FACTORY = factory  # noqa: SLF001 - as above
        for client in clients:
            client.release()


class _Limited:
    """A client with limits on it, and what it was like before."""

    def __init__(self, client: Any, timeout: float) -> None:  # noqa: ANN401 - of an HTTP library that repokit does not import
        self.client = client
        self._before = client.timeout
        client.timeout = timeout
        client.event_hooks["response"].append(_shorten_wait)

    def release(self) -> None:
        self.client.timeout = self._before
        self.client.event_hooks["response"].remove(_shorten_wait)


class _Answer(Protocol):
    headers: MutableMapping[str, str]


def _shorten_wait(response: _Answer) -> None:
    if (asked_wait(response.headers) or 0) > LONGEST_WAIT:
        response.headers.pop("RateLimit", None)
        response.headers["Retry-After"] = str(LONGEST_WAIT)
