"""The Hub: which addresses it answers, and how a request finds its way.

What is answered, and with what, follows huggingface_hub 2.4.0. The client decides how large files travel: by xet, which
is what hf_xet does where it is installed, or by LFS (`HF_HUB_DISABLE_XET=1`); what came by either can be had by both.
Addresses are matched as they are sent, and unquoted afterwards, because a revision is one part of an address even where
it has a slash in it: `release%2Fv1`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

from repokit.rehearsal import discussions, reading, repositories, uploading, xet
from repokit.rehearsal.accounts import Accounts, check_login, check_read, check_write
from repokit.rehearsal.call import Call, Site
from repokit.rehearsal.refusals import HubError, NotServed, RepositoryNotFound, WrongMethod
from repokit.rehearsal.storage import Storage
from repokit.rehearsal.wire import Answer, Drop, Origin, answer_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from repokit.rehearsal.wire import Request


class Who(Enum):
    """Who may call."""

    ANYONE = auto()
    USER = auto()  # whoever is logged in
    READER = auto()  # whoever may see the repository
    WRITER = auto()  # whoever may change it
    HOLDER = auto()  # whoever has a token of the xet storage, which is not the Hub's; the handler looks at it


API = "/api/{kind}/{namespace}/{name}"  # kind: models, datasets or spaces
WEB = "/{prefix}{namespace}/{name}"  # prefix: nothing for models, datasets/ or spaces/
XET = "/xet/{storage}"  # of the other origin

ROUTES = (
    ("GET", "/api/agent-harnesses", Who.ANYONE, repositories.agent_harnesses),
    ("GET", "/api/whoami-v2", Who.ANYONE, repositories.whoami),
    ("POST", "/api/repos/create", Who.USER, repositories.create),
    ("DELETE", "/api/repos/delete", Who.USER, repositories.delete),
    ("PUT", f"{API}/settings", Who.WRITER, repositories.configure),
    ("GET", API, Who.READER, repositories.info),
    ("GET", f"{API}/revision/{{revision}}", Who.READER, repositories.info),
    ("GET", f"{API}/refs", Who.READER, repositories.references),
    ("POST", f"{API}/branch/{{branch}}", Who.WRITER, repositories.create_branch),
    ("DELETE", f"{API}/branch/{{branch}}", Who.WRITER, repositories.delete_branch),
    ("POST", f"{API}/tag/{{revision}}", Who.WRITER, repositories.create_tag),
    ("DELETE", f"{API}/tag/{{tag}}", Who.WRITER, repositories.delete_tag),
    ("POST", f"{API}/super-squash/{{branch}}", Who.WRITER, repositories.squash),
    ("GET", f"{API}/tree/{{revision}}{{below}}", Who.READER, reading.list_tree),
    ("POST", f"{API}/paths-info/{{revision}}", Who.READER, reading.paths_info),
    ("GET", f"{API}/commits/{{revision}}", Who.READER, reading.list_commits),
    ("GET", f"{WEB}/resolve/{{revision}}{{below}}", Who.READER, reading.resolve),
    ("GET", f"{WEB}/raw/{{revision}}{{below}}", Who.READER, reading.raw),
    ("POST", "/api/validate-yaml", Who.ANYONE, uploading.validate_yaml),
    ("POST", f"{API}/preupload/{{revision}}", Who.READER, uploading.preupload),  # pull requests: any reader
    ("POST", f"{WEB}.git/info/lfs/objects/batch", Who.READER, uploading.lfs_batch),  # pull requests: any reader
    ("POST", "/api/complete_multipart/{sha256}", Who.ANYONE, uploading.complete_multipart),  # called without a token
    ("POST", f"{WEB}.git/info/lfs/verify", Who.READER, uploading.lfs_verify),
    ("GET", f"{API}/xet-write-token/{{revision}}", Who.READER, xet.write_token),  # pull requests: any reader
    ("GET", f"{API}/xet-read-token/{{revision}}", Who.READER, xet.read_token),
    ("POST", f"{API}/commit/{{revision}}", Who.READER, uploading.commit),  # pull requests: any reader
    ("GET", f"{API}/discussions", Who.READER, discussions.listed),
    ("POST", f"{API}/discussions", Who.READER, discussions.create),
    ("GET", f"{API}/discussions/{{number}}", Who.READER, discussions.details),
    ("POST", f"{API}/discussions/{{number}}/status", Who.READER, discussions.set_status),  # its author may
    ("POST", f"{API}/discussions/{{number}}/merge", Who.WRITER, discussions.merge),
)

# The other origin, where large files lie. Whoever has the address may use it, as with addresses signed in advance.
BUCKET_ROUTES = (
    ("GET", "/objects/{sha256}", Who.ANYONE, reading.read_object),
    ("PUT", "/objects/{sha256}", Who.ANYONE, uploading.write_object),
    ("PUT", "/parts/{sha256}/{number}", Who.ANYONE, uploading.write_part),
    ("POST", f"{XET}/v1/xorbs/default/{{hash}}", Who.HOLDER, xet.add_xorb),
    ("POST", f"{XET}/v1/shards", Who.HOLDER, xet.add_shard),
    ("GET", f"{XET}/v1/chunks/{{group}}/{{hash}}", Who.HOLDER, xet.find_chunk),
    ("POST", f"{XET}/v1/telemetry", Who.HOLDER, xet.telemetry),
    ("GET", f"{XET}/v2/reconstructions/{{hash}}", Who.HOLDER, xet.reconstruction),
    ("GET", f"{XET}/xorbs/{{hash}}", Who.ANYONE, xet.read_xorb),
)

_PLACEHOLDERS = {"kind": "models|datasets|spaces", "prefix": "(?:datasets/|spaces/)?", "below": "(?:/.*)?"}


@dataclass(frozen=True, slots=True)
class Route:
    """One line of a table, its address as a pattern."""

    method: str
    address: re.Pattern[str]
    who: Who
    handler: Callable[[Call], Answer]


def _compiled(table: tuple[tuple[str, str, Who, Callable[[Call], Answer]], ...]) -> tuple[Route, ...]:
    return tuple(Route(method, _address(template), who, handler) for method, template, who, handler in table)


def _address(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    parts[::2] = [re.escape(literal) for literal in parts[::2]]
    parts[1::2] = [f"(?P<{name}>{_PLACEHOLDERS.get(name, '[^/]+')})" for name in parts[1::2]]
    return re.compile("".join(parts))


class Hub:
    """A Hub on 127.0.0.1, kept in a folder. A context manager: on leaving, every connection and thread is gone.

    ```python
    with Hub(folder, tokens={"hf_rehearsal": "rehearsal"}) as hub:
        HfApi(endpoint=hub.endpoint, token=hub.token).create_repo("rehearsal/model")
    ```

    Attributes:
        endpoint: `http://127.0.0.1:PORT`.
        bucket: The other origin, to which large files are redirected.
        storage: What the Hub holds, for a look past the protocol, or a change that no request makes.
        requests: Method and unquoted path of every request to either origin, in order of arrival.
        failures: What went wrong inside the Hub itself; its clients got a 500. Empty, or there is a bug here.
        intercept: Called with every request before it is handled, to break things on purpose: gives an `Answer` or a
            `Drop` to be seen instead of the Hub's answer (with `after=True`: once the Hub has done its work), or None.
    """

    def __init__(
        self,
        folder: Path,
        tokens: Mapping[str, str] | None = None,
        *,
        organizations: Mapping[str, Collection[str]] | None = None,
        read_only: Collection[str] = (),
        port: int = 0,
        part_size: int | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            folder: Where everything is kept; made if absent. Another start over it finds everything again.
            tokens: The user's name, by token.
            organizations: The names of the members, by organization.
            read_only: The tokens that may not change anything.
            port: Of the endpoint; 0: one that is free.
            part_size: Large files of more bytes than this are uploaded in parts.
        """
        self._tokens = dict(tokens or {"hf_rehearsal": "rehearsal"})
        self._accounts = Accounts(self._tokens, organizations or {}, read_only)
        self._port = port
        self._part_size = part_size
        self.storage = Storage(folder)
        self.requests: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.intercept: Callable[[Request], Answer | Drop | None] | None = None

    def start(self) -> Self:
        self._main = Origin(self._port, lambda request: self._handle(request, _ROUTES), self.failures)
        self._bucket = Origin(0, lambda request: self._handle(request, _BUCKET_ROUTES), self.failures)
        self.endpoint = self._main.url
        self.bucket = self._bucket.url
        self._site = Site(self.storage, self._accounts, self.endpoint, self.bucket, self._part_size, {})
        return self

    def close(self) -> None:
        self._main.close()
        self._bucket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def token(self) -> str:
        """The first of the tokens."""
        return next(iter(self._tokens))

    @property
    def bytes_sent(self) -> int:
        """Bodies of answers, from both origins, so far."""
        return self._main.bytes_sent + self._bucket.bytes_sent

    def _handle(self, request: Request, routes: tuple[Route, ...]) -> tuple[Answer, Drop | None]:
        if request.header(xet.OWN_REQUEST):
            return self._answered(request, routes), None
        self.requests.append((request.method, unquote(request.path)))
        fault = self.intercept(request) if self.intercept else None
        if isinstance(fault, Answer) and not fault.after:
            return fault, None
        if isinstance(fault, Drop) and not fault.after:
            return Answer(), fault
        answer = self._answered(request, routes)
        if isinstance(fault, Answer):
            return fault, None
        return answer, fault

    def _answered(self, request: Request, routes: tuple[Route, ...]) -> Answer:
        try:
            answer = self._routed(request, routes)
        except HubError as error:
            answer = _refusal(error)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug here must not look like a broken network; tests look at failures
            self.failures.append(error)
            answer = answer_json({"error": "Internal error"}, 500)
        return Answer(answer.status, answer.body, {"X-Request-Id": _request_id(request), **answer.headers})

    def _routed(self, request: Request, routes: tuple[Route, ...]) -> Answer:
        method = "GET" if request.method == "HEAD" else request.method
        served = [(route, found) for route in routes if (found := route.address.fullmatch(request.path))]
        for route, found in served:
            if route.method == method:
                values = {name: unquote(value) for name, value in found.groupdict().items()}
                token = "" if route.who is Who.HOLDER else request.header("Authorization")
                call = Call(self._site, request, values, self._accounts.of(token))
                _check_access(call, route.who)
                return route.handler(call)
        if served:
            raise WrongMethod(f"{request.method} is not allowed here")
        raise NotServed(f"This Hub does not serve {unquote(request.path)}")


_ROUTES = _compiled(ROUTES)
_BUCKET_ROUTES = _compiled(BUCKET_ROUTES)


def _check_access(call: Call, who: Who) -> None:
    if who is Who.USER:
        check_login(call.account)
    if who in {Who.READER, Who.WRITER}:
        try:
            state = call.state
        except RepositoryNotFound:
            state = None
        check_read(call.account, call.key, state)
    if who is Who.WRITER:
        check_write(call.account, call.key.namespace)


def _refusal(error: HubError) -> Answer:
    headers = {**error.headers, "X-Error-Message": _one_line(error.message)}
    if error.code is not None:
        headers["X-Error-Code"] = error.code
    return answer_json({"error": error.message}, error.status, headers)


def _one_line(text: str) -> str:
    """What a header may carry."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def _request_id(request: Request) -> str:
    """Equal for equal requests, so that no message of a client differs from run to run."""
    return hashlib.sha256(f"{request.method} {request.path}".encode(errors="replace")).hexdigest()[:16]
