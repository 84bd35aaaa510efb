"""One GET, with an end to everything that a server decides: redirects, time, and the bytes of every answer on the way.

huggingface_hub's client would read a redirect or a refusal whole, unpack what was packed a thousandfold, follow twenty
redirects, and wait for headers that drip in for as long as they do.
"""

from __future__ import annotations

import time
import zlib
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.hub.session import TIMEOUT
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event

LONGEST: Final = 600.0  # seconds for one request, however steadily it drips
_MOST_HOPS: Final = 5  # a renamed repository, then the storage, and whatever a mirror adds
_LONGEST_REFUSAL: Final = 64 * 1024  # bytes of an answer that only says no, or go elsewhere
_LOOK_UP: Final = 0.1  # seconds between looks whether it is still wanted
# A refusal is read here and handed on; the client's own remarks on a header would go to stderr as they came.
_DONE_WITH: Final = frozenset({"content-encoding", "content-length", "transfer-encoding", "x-hf-warning"})


class Answer(NamedTuple):
    """Headers are those of the Hub, and under them those of the storage that it may have redirected to."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class NotAnAnswer(Exception):
    """Something answers, and no Hub does so."""


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


def get(url: str, headers: Mapping[str, str], limit: int, stopped: Event) -> Answer:
    """What answers at an address; at most one byte more of it than `limit`, unpacked.

    Raises:
        NotAnAnswer: Redirects without end, or an encoding that was not asked for.
        Abandoned: `stopped` was set meanwhile.
        Exception: Whatever huggingface_hub and its HTTP library raise.
    """
    outcome: Future[Answer] = Future()
    # A thread that nobody has to wait for: neither the look-up of a name nor headers that drip in can be limited or
    # interrupted in any other way.
    ask = partial(_exchange, url, headers, limit, stopped)
    Thread(target=_settle, args=(outcome, ask), name="repokit-hub-request", daemon=True).start()
    ends = time.monotonic() + LONGEST
    while not wait([outcome], timeout=_LOOK_UP).done:
        if stopped.is_set():
            raise Abandoned
        if time.monotonic() > ends:
            raise TimeoutError(f"no end after {LONGEST:.0f} seconds")
    return outcome.result()


def _settle(outcome: Future[Answer], ask: Callable[[], Answer]) -> None:
    try:
        outcome.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
        outcome.set_exception(error)


def _exchange(url: str, headers: Mapping[str, str], limit: int, stopped: Event) -> Answer:
    from huggingface_hub import get_session

    session = get_session()
    # A limit of its own: that of the shared client changes while another thread is in `asking`.
    request = session.build_request("GET", url, headers=dict(headers), timeout=TIMEOUT)
    hops: list[Mapping[str, str]] = []
    while len(hops) <= _MOST_HOPS:
        with closing(session.send(request, stream=True, follow_redirects=False)) as response:
            hops.append(response.headers)
            if response.next_request is None:
                return _answer(response, hops, limit, stopped)
            _body(response, _LONGEST_REFUSAL, stopped)  # a connection whose answer was read is used again
            request = response.next_request  # the client leaves the token out where it leads to another origin
    raise NotAnAnswer(f"it redirects more than {_MOST_HOPS} times")


def _answer(response: Any, hops: list[Mapping[str, str]], limit: int, stopped: Event) -> Answer:  # noqa: ANN401 - of an HTTP library that repokit does not import
    if response.status_code >= 400:
        _refuse(response, _body(response, _LONGEST_REFUSAL, stopped))
    body = _body(response, limit, stopped)
    # Of a redirect, what the Hub said first wins: the storage calls the same bytes by other names.
    merged = {name.lower(): value for hop in reversed(hops) for name, value in hop.items()}
    own = {name: response.headers.get(name, "") for name in ("content-length", "content-range")}
    return Answer(response.status_code, {**merged, **own}, body)


def _refuse(response: Any, body: bytes) -> None:  # noqa: ANN401 - as above
    """Raises what huggingface_hub makes of a refusal, of which it would read the whole body."""
    from huggingface_hub import hf_raise_for_status

    kept = {name: value for name, value in response.headers.items() if name.lower() not in _DONE_WITH}
    kind = type(response)
    hf_raise_for_status(kind(response.status_code, headers=kept, content=body, request=response.request))


def _body(response: Any, limit: int, stopped: Event) -> bytes:  # noqa: ANN401 - as above
    unpack = _unpacker(response.headers.get("content-encoding", "").strip().lower())
    body = bytearray()
    for chunk in response.iter_raw():
        try:
            body += unpack(chunk, limit + 1 - len(body))
        except zlib.error:
            raise NotAnAnswer("what came is called gzip and is not") from None
        if len(body) > limit:
            break
        if stopped.is_set():
            raise Abandoned
    return bytes(body)


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    """Unpacks no more than so many bytes of a chunk."""
    if encoding in {"gzip", "x-gzip"}:
        return zlib.decompressobj(wbits=31).decompress
    if encoding in {"", "identity"}:
        return lambda chunk, most: chunk[:most]
    raise NotAnAnswer(f"it came packed as {printable(encoding, 40)!r}, which nobody asked for")
