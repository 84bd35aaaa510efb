"""Who is asking, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.rehearsal.refusals import InvalidToken, LoginRequired, NotAllowed, RepositoryNotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from repokit.rehearsal.storage import Key, State


@dataclass(frozen=True, slots=True)
class Account:
    """A user, as one token lets them act.

    Attributes:
        namespaces: The user's own and those of the user's organizations, in this order.
        may_write: Whether the token's role is `write`.
    """

    name: str
    namespaces: tuple[str, ...]
    may_write: bool


class Accounts:
    """The tokens of this Hub."""

    def __init__(
        self, tokens: Mapping[str, str], organizations: Mapping[str, Collection[str]], read_only: Collection[str]
    ) -> None:
        self._by_token = {
            token: Account(
                name,
                (name, *(organization for organization, members in organizations.items() if name in members)),
                token not in read_only,
            )
            for token, name in tokens.items()
        }

    def of(self, authorization: str) -> Account | None:
        """The account behind an `Authorization` header; None where none was sent.

        Raises:
            InvalidToken: Nobody was given this token.
        """
        if not authorization:
            return None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token not in self._by_token:
            raise InvalidToken
        return self._by_token[token]


def check_login(account: Account | None) -> Account:
    """The account.

    Raises:
        LoginRequired: There is none.
    """
    if account is None:
        raise LoginRequired
    return account


def check_read(account: Account | None, key: Key, state: State | None) -> None:
    """Passes who may see the repository.

    Raises:
        LoginRequired: A visitor asks for what is private or absent; the answer does not tell which.
        RepositoryNotFound: A user asks for what is private to others, or absent.
    """
    if state is not None and (not state.private or is_member(account, key)):
        return
    if account is None:
        raise LoginRequired
    raise RepositoryNotFound


def check_write(account: Account | None, namespace: str) -> Account:
    """The account, if it may change what is in `namespace`.

    Raises:
        LoginRequired: Nobody is logged in.
        NotAllowed: Another's namespace, or a token that only reads.
    """
    writer = check_login(account)
    if not writer.may_write:
        raise NotAllowed("You must use a token with write access")
    if namespace not in writer.namespaces:
        raise NotAllowed(f"You don't have the rights to write under the namespace {namespace!r}")
    return writer


def is_member(account: Account | None, key: Key) -> bool:
    """Whether the repository lies in one of the account's namespaces."""
    return account is not None and key.namespace in account.namespaces
