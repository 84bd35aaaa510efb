"""Every way in which huggingface_hub 2.4 fails, as one of repokit's errors.

Eight families reach a caller: HfHubHTTPError with its subclasses, the transport errors of httpx2, RuntimeError around
an upload, ValueError for refused cards and objects, the builtin ConnectionError of hf_xet, and JSONDecodeError,
KeyError or AttributeError where an answer is not the Hub's at all, some of them *after* a commit was made.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from repokit.errors import (
    HubUnreachable,
    NotAuthorized,
    ParentMoved,
    PublishError,
    RepokitError,
    RevisionNotFound,
    UsageError,
)
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from huggingface_hub.errors import HfHubHTTPError

LOGIN_HINT: Final = "hf auth login, or set HF_TOKEN (lint and build need no login)"

# Tokens as the Hub gives them out, and what follows `Bearer`: httpx2 quotes a header that it cannot send.
_TOKEN: Final = re.compile(r"(?:hf|api_org)_[A-Za-z0-9]{20,}|(?i:bearer)\s+\S+")
# The statuses that http_backoff retries: the Hub is busy, or something before it is.
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
# `Network error: Request error: HTTP status client error (404 Not Found), domain: ...`; hf_xet 1.8.
_XET_SAID: Final = re.compile(
    r"(?:Network|Server|I/O|Authentication|Internal|Task) error: (?:.*HTTP status \w+ error \((?P<status>\d{3}))?",
)
_NOT_AN_ANSWER: Final = (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError)


class Unanswered(HubUnreachable):
    """Nothing is known about what the Hub did: it may have done what it was asked for, or not.

    Attributes:
        retry_after: How many seconds the Hub asks to be left alone; None where it does not say.
        connected: Whether anything answered at all.
    """

    def __init__(
        self, what: str, *, retry_after: float | None = None, why: str | None = None, connected: bool = True
    ) -> None:
        super().__init__(what, why=why, hint="run the same command again; what arrived is not sent twice")
        self.retry_after = retry_after
        self.connected = connected


@contextmanager
def translated(doing: str, target: str) -> Iterator[None]:
    """Nothing leaves the block but a RepokitError, or a bug.

    Args:
        doing: What was tried: `read the branches`.
        target: Of what: `org/name` or `org/name@main`.
    """
    try:
        yield
    except RepokitError:
        raise
    except Exception as error:
        found = translation(error, doing, target)
        if found is None:
            raise
        raise found from (None if _TOKEN.search(str(error)) else error)


def translation(error: BaseException, doing: str, target: str) -> RepokitError | None:
    """The repokit error for what huggingface_hub raised; None for what it never raises."""
    from huggingface_hub import errors

    # The base of every error of its HTTP library, which repokit does not import.
    transport_error = errors.HfHubHTTPError.__bases__[0]
    match error:
        case errors.HfHubHTTPError():
            return _from_answer(error, doing, target)
        case _ if (found := _unsendable(error, doing, target)) is not None:
            return found
        case errors.OfflineModeIsEnabled():
            return HubUnreachable(f"could not {doing} of {target}: offline", hint="unset HF_HUB_OFFLINE")
        case errors.LocalTokenNotFoundError():
            return NotAuthorized("not logged in", why="only members may write to a repository", hint=LOGIN_HINT)
        case errors.HFValidationError():
            return UsageError(safe(error), hint="a repository is named ORG/NAME")
        case _ if isinstance(error, transport_error):
            return _broken(error, doing, target)
        case OSError():
            return _from_system(error, doing, target)
        case _ if isinstance(error, (*_NOT_AN_ANSWER, errors.HfUriError)):
            why = f"a proxy, or another service, may stand where the Hub should ({type(error).__name__})"
            return Unanswered(f"could not {doing} of {target}: the answer is not the Hub's", why=why)
        case RuntimeError() | ValueError():
            return _from_cause(error, doing, target)
    return None


def _unsendable(error: BaseException, doing: str, target: str) -> RepokitError | None:
    """For what is in the way of a request before anything is sent, and will be so the next time."""
    failed = f"could not {doing} of {target}"
    match type(error).__name__:  # the classes belong to an HTTP library that repokit does not import
        case "UnsupportedProtocol" | "InvalidURL":
            hint = "set HF_ENDPOINT to the address of a Hub, https:// and all, or unset it"
            return UsageError(f"{failed}: {safe(error)}", why="no request can be sent to such an address", hint=hint)
        case "LocalProtocolError" if "header" in str(error):
            return _bad_token(failed)
        case "UnicodeEncodeError" if isinstance(error, UnicodeEncodeError) and error.encoding == "ascii":
            return _bad_token(failed)
    return None


def _bad_token(failed: str) -> NotAuthorized:
    hint = "set HF_TOKEN, or --token, to the token alone: hf_ and letters and digits"
    return NotAuthorized(
        f"{failed}: the token cannot be sent", why="it is empty or has characters no token has", hint=hint
    )


def _broken(error: BaseException, doing: str, target: str) -> Unanswered:
    said = f"{safe(error)} ({type(error).__name__})" if str(error) else type(error).__name__
    # By name: the class belongs to an HTTP library that repokit does not import.
    connected = type(error).__name__ != "ConnectError" and not isinstance(error, ConnectionRefusedError)
    why = "the connection broke" if connected else "nobody answers at this address"
    if "CERTIFICATE_VERIFY_FAILED" in said:
        why = "the certificate of whoever answers is not trusted: a proxy may stand between, or the clock be wrong"
    return Unanswered(f"could not {doing} of {target}: {said}", why=why, connected=connected)


def _from_system(error: OSError, doing: str, target: str) -> RepokitError:
    if error.errno is None and (found := _XET_SAID.match(str(error))):
        return _from_xet(error, found, doing, target)
    if isinstance(error, ConnectionError | TimeoutError):
        return _broken(error, doing, target)
    return PublishError(f"cannot be read: {error.strerror}", path=str(error.filename or target))


def _from_xet(error: OSError, said: re.Match[str], doing: str, target: str) -> RepokitError:
    """hf_xet has no classes for what went wrong; its sentences begin with the kind, and may hold a status."""
    failed = f"could not {doing} of {target}: {safe(error)}"
    match int(said["status"] or 0):
        case 401:
            return NotAuthorized(failed, why="the token is wrong or has expired", hint=LOGIN_HINT)
        case 403:
            return NotAuthorized(failed, why="the token may not do this", hint="use a token with write access")
        case 404:
            why = "the Hub gives out no token for xet storage"
            return PublishError(failed, why=why, hint="send large files the older way: set HF_HUB_DISABLE_XET=1")
        case status if status in _BUSY:
            return Unanswered(failed, why=f"HTTP {status}")
        case 0 if "decoding" in str(error):
            return Unanswered(failed, why="a proxy, or another service, may stand where the xet storage should")
        case 0 if isinstance(error, ConnectionError):
            return Unanswered(failed, why="the connection to the xet storage broke")
    hint = "run the same command again, or set HF_HUB_DISABLE_XET=1 to send large files the older way"
    return PublishError(failed, why="the xet storage did not take it", hint=hint)


def _from_cause(error: BaseException, doing: str, target: str) -> RepokitError:
    """`RuntimeError: Error while uploading 'x' to the Hub.` tells nothing; what it was raised from does."""
    if str(error).startswith("Unexpected response from the hub"):  # the address of a pull request that is none
        return Unanswered(f"could not {doing} of {target}: the answer is not the Hub's", why=safe(error))
    inner = translation(error.__cause__, doing, target) if error.__cause__ else None
    if inner is not None:
        inner.what = f"{safe(error)} {inner.what}"
        return inner
    hint = "run the same command again; what arrived is not sent twice"
    return PublishError(f"could not {doing} of {target}: {safe(error)}", why="huggingface_hub gave up", hint=hint)


def _from_answer(error: HfHubHTTPError, doing: str, target: str) -> RepokitError:
    from huggingface_hub import errors

    said = safe(error.server_message or f"HTTP {error.response.status_code}")
    failed = f"could not {doing} of {target}: {said}"
    match error:
        case errors.GatedRepoError():
            return NotAuthorized(failed, why="the repository is gated", hint="accept its conditions on its web page")
        case errors.RepositoryNotFoundError():
            why = "there is none of this name, or the token may not see it"
            return RevisionNotFound(f"{target}: repository not found", why=why, hint=f"check the name; {LOGIN_HINT}")
        case errors.RevisionNotFoundError():
            return RevisionNotFound(f"{target}: revision not found")
    match error.response.status_code:
        case 401:
            return NotAuthorized(failed, why="the token is wrong or has expired", hint=LOGIN_HINT)
        case 403:
            hint = "use a token with write access to this namespace (a fine-grained one needs `repo.write`)"
            return NotAuthorized(failed, why="the token may not do this", hint=hint)
        case 412:
            return ParentMoved(failed, why="someone else committed since the changes were worked out")
        case status if status in _BUSY:
            return Unanswered(failed, why=f"HTTP {status}", retry_after=asked_wait(error.response.headers))
    return PublishError(failed, why=f"the Hub refused it (HTTP {error.response.status_code})")


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """How many seconds the Hub asks to be left alone: `Retry-After: 30`, or `RateLimit: "api";r=0;t=55`."""
    plain = re.fullmatch(r"\s*(\d{1,9})\s*", headers.get("Retry-After", ""))
    limit = re.search(r";\s*r=0\s*;\s*t=(\d{1,9})", headers.get("RateLimit", ""))
    found = plain or limit
    return float(found[1]) if found else None


def safe(text: object) -> str:
    """Foreign text on one line, with anything that looks like a token blotted out."""
    return printable(_TOKEN.sub("***", " ".join(str(text).split())), 400)
