"""What this Hub says no with: the status, the code that clients match on, and the sentence that people read.

HubError                400  the request makes no sense
├── InvalidToken        401  a token that nobody was given
├── LoginRequired       401  the same answer for "absent" and "private", so that names do not leak
├── NotAllowed          403  a known user, without the right to do this
├── GatedRepository     403  conditions were not accepted
│   └── GatedForVisitors 401  the same, and nobody is logged in
├── RepositoryNotFound  404
├── RevisionNotFound    404
├── EntryNotFound       404
├── NotServed           404  no such address
├── WrongMethod         405  the address is served, with other methods
├── AlreadyExists       409  names are never silently taken over, tags never moved
├── StaleParent         412  the branch moved since its head was read
├── RangeNotSatisfiable 416
└── Unprocessable       422  well-formed, and still not to be stored: a path, a hash, a size

Codes and sentences are those that huggingface_hub 2.4.0 tells its exceptions apart by (`utils/_http.py`).
"""

from __future__ import annotations

from typing import ClassVar


class HubError(Exception):
    """A refusal, to be answered as JSON.

    Attributes:
        status: The HTTP status.
        code: The value of `X-Error-Code`, where the Hub sends one.
        headers: Further headers of the answer.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str | None] = None

    def __init__(self, message: str, **headers: str) -> None:
        super().__init__(message)
        self.message = message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class InvalidToken(HubError):
    status = 401

    def __init__(self) -> None:
        super().__init__("Invalid credentials in Authorization header")


class LoginRequired(HubError):
    status = 401
    code = "RepoNotFound"

    def __init__(self) -> None:
        super().__init__("Invalid username or password.")


class NotAllowed(HubError):
    status = 403


class GatedRepository(HubError):
    status = 403
    code = "GatedRepo"


class GatedForVisitors(GatedRepository):
    status = 401


class RepositoryNotFound(HubError):
    status = 404
    code = "RepoNotFound"

    def __init__(self) -> None:
        super().__init__("Repository not found")


class RevisionNotFound(HubError):
    status = 404
    code = "RevisionNotFound"

    def __init__(self, revision: str) -> None:
        super().__init__(f"Invalid rev id: {revision}")


class EntryNotFound(HubError):
    status = 404
    code = "EntryNotFound"


class NotServed(HubError):
    status = 404


class WrongMethod(HubError):
    status = 405


class AlreadyExists(HubError):
    status = 409


class StaleParent(HubError):
    status = 412

    def __init__(self) -> None:
        super().__init__("The branch was updated since you opened this page. Please refresh and try again.")


class RangeNotSatisfiable(HubError):
    status = 416


class Unprocessable(HubError):
    status = 422
