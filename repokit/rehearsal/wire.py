"""HTTP/1.1 on 127.0.0.1: requests in, answers out. Nothing here knows what a repository is."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import sys
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import parse_qs

from repokit.rehearsal.refusals import HubError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from email.message import Message
    from pathlib import Path

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Slice:
    """`size` bytes of a file from `offset` on."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back.

    Attributes:
        after: For `Hub.intercept` only: let the Hub do what it was asked for, then send this in place of its answer.
    """

    status: int = 200
    body: bytes | Slice = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks.

    Attributes:
        after: Only once the Hub has done what it was asked for: the change is made, and nobody is told.
        sent: How many bytes of the Hub's answer still get through (with `after`); None: not even its headers.
    """

    after: bool = False
    sent: int | None = None


def answer_json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status, json.dumps(value).encode(), {**kind, **(headers or {})})


class Request:
    """What a client asks for.

    Attributes:
        origin: The address it came to, `http://127.0.0.1:PORT`.
        path: As sent, still quoted, without the query.
    """

    def __init__(self, origin: str, method: str, target: str, headers: Message, stream: BinaryIO) -> None:
        self.origin = origin
        self.method = method
        self.path, _, query = target.partition("?")
        self.query: dict[str, list[str]] = parse_qs(query, keep_blank_values=True)
        self.headers = headers
        self._body: bytes | None = None
        self._chunks = _body_chunks(headers, stream)

    def header(self, name: str) -> str:
        """The value, or "" where it was not sent."""
        return str(self.headers.get(name, ""))

    def option(self, name: str) -> str:
        """The first value of a query parameter, or "" where it was not sent."""
        return self.query.get(name, [""])[0]

    def chunks(self) -> Iterator[bytes]:
        """The body, a piece at a time, once. Not a generator: one that is abandoned would close what it reads from."""
        return self._chunks if self._body is None else iter([self._body])

    def read(self) -> bytes:
        """The whole body. May be called again."""
        if self._body is None:
            self._body = b"".join(self._chunks)
        return self._body

    def json(self) -> dict[str, object]:
        """The body as a JSON object.

        Raises:
            HubError: It is something else.
        """
        return parsed_object(self.read() or b"{}")


def parsed_object(text: bytes) -> dict[str, object]:
    """A JSON object.

    Raises:
        HubError: It is something else, or does not parse.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise HubError("The body is not JSON") from None
    if not isinstance(value, dict):
        raise HubError("The body is not a JSON object")
    return value


def _body_chunks(headers: Message, stream: BinaryIO) -> Iterator[bytes]:
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        yield from _chunked(stream)
        return
    yield from _exactly(stream, _length(headers.get("Content-Length", "0"), 10))


def _chunked(stream: BinaryIO) -> Iterator[bytes]:
    while size := _length(stream.readline(_CHUNK).partition(b";")[0].decode("latin-1").strip(), 16):
        yield from _exactly(stream, size)
        stream.readline(_CHUNK)
    while stream.readline(_CHUNK).strip():  # trailers
        pass


def _exactly(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        chunk = stream.read(min(size, _CHUNK))
        if not chunk:
            raise ConnectionError("the client went away")
        size -= len(chunk)
        yield chunk


def _length(text: str, base: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or any(character not in digits for character in text.lower()):
        raise HubError("The length of the body makes no sense", Connection="close")
    return int(text, base)


class Origin(socketserver.ThreadingTCPServer):
    """One address that answers. `close` ends every connection and waits for every thread."""

    # Not http.server.HTTPServer: it looks up a name for 127.0.0.1, which takes seconds on a machine without a resolver.
    allow_reuse_address = True
    daemon_threads = False
    request_queue_size = 128

    def __init__(
        self, port: int, handle: Callable[[Request], tuple[Answer, Drop | None]], failures: list[Exception]
    ) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.handle = handle
        self.bytes_sent = 0
        self._failures = failures
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, name=f"rehearsal-{self.url}")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, sent: int) -> None:
        with self._lock:
            self.bytes_sent += sent

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        with self._lock:
            waiting = list(self._open)
        for connection in waiting:
            _hang_up(connection)
        self.server_close()

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - socketserver's signature
        """A connection that the client broke is no news; anything else is a bug, to be looked at and not printed."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self._failures.append(error)


class _Connection(BaseHTTPRequestHandler):
    server: Origin
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a small answer in two packets would wait 40 ms for the client's acknowledgement
    wbufsize = 64 * 1024

    def do_GET(self) -> None:
        request = Request(self.server.url, self.command, self.path, self.headers, self.rfile)  # type: ignore[arg-type]
        try:
            answer, drop = self.server.handle(request)
        except HubError as error:
            answer, drop = answer_json({"error": error.message}, error.status, error.headers), None
        if drop is None:
            self._drain(request)
        if drop is None or drop.sent is not None:
            self._send(answer, None if drop is None else drop.sent)
        if drop is not None:
            self.close_connection = True
            _hang_up(self.connection)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - the names that http.server calls

    def _drain(self, request: Request) -> None:
        """What the Hub did not care to read must not be taken for the next request."""
        try:
            for _ in request.chunks():
                pass
        except (HubError, ConnectionError):
            self.close_connection = True

    def _send(self, answer: Answer, limit: int | None) -> None:
        body = answer.body
        size = body.size if isinstance(body, Slice) else len(body)
        self.send_response_only(answer.status)
        for name, value in {"Content-Length": str(size), **answer.headers}.items():
            self.send_header(name, value)  # http.server closes the connection for `Connection: close`
        self.end_headers()
        self.wfile.flush()
        if self.command == "HEAD":
            return
        allowed = size if limit is None else min(limit, size)
        self.server.count(allowed)
        if isinstance(body, Slice):
            with body.path.open("rb") as file:
                if allowed:
                    self.connection.sendfile(file, body.offset, allowed)
        else:
            self.wfile.write(body[:allowed])
            self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server says about a request that it cannot parse, in JSON and on one line."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = self.protocol_version  # http.server falls back to 0.9, which has no status line
        self._send(
            answer_json({"error": explain or message or "Bad request"}, int(code), {"Connection": "close"}), None
        )

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server gives it
        """Nothing: a Hub in a test or a demonstration has no log."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client was faster
        connection.shutdown(socket.SHUT_RDWR)
