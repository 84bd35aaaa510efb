"""What a handler is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repokit.rehearsal.accounts import check_login, check_write, is_member
from repokit.rehearsal.refusals import GatedForVisitors, GatedRepository, NotAllowed
from repokit.rehearsal.storage import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.rehearsal.accounts import Account, Accounts
    from repokit.rehearsal.commits import Commit
    from repokit.rehearsal.storage import State, Storage
    from repokit.rehearsal.wire import Request


@dataclass(frozen=True, slots=True)
class Site:
    """The Hub, as handlers see it.

    Attributes:
        endpoint: The address of the Hub.
        bucket: The address where large files lie: another origin.
        part_size: Uploads larger than this many bytes come in parts; None: never.
        parts: The sha256 of each part uploaded so far, by the sha256 of the whole and the number of the part.
    """

    storage: Storage
    accounts: Accounts
    endpoint: str
    bucket: str
    part_size: int | None
    parts: dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, with what its address and its token say.

    Attributes:
        values: The parts of the address that the routing table names, unquoted.
        account: Who asks; None for a visitor.
    """

    site: Site
    request: Request
    values: Mapping[str, str]
    account: Account | None

    @property
    def storage(self) -> Storage:
        return self.site.storage

    @property
    def user(self) -> str:
        """The name of whoever is logged in."""
        return check_login(self.account).name

    @property
    def key(self) -> Key:
        """The repository in the address: `/api/models/...`, `/datasets/...`, or no word for models."""
        kind = self.values.get("kind") or self.values.get("prefix", "").rstrip("/") or "models"
        return Key(kind, self.values["namespace"], self.values["name"])

    @property
    def state(self) -> State:
        return self.storage.state(self.key)

    @property
    def revision(self) -> str:
        return self.values.get("revision", "HEAD")

    @property
    def proposes(self) -> bool:
        """Whether the request opens a pull request."""
        return self.request.option("create_pr") == "1"

    def check_commits(self) -> str:
        """The author's name. Whoever sees a repository may propose changes to it, and add to their proposal.

        Raises:
            LoginRequired: Nobody is logged in.
            NotAllowed: Another's namespace, or a token that only reads.
        """
        account = check_login(self.account)
        if not (self.proposes or self.state.proposed_by(self.revision) == account.name):
            return check_write(account, self.key.namespace).name
        if not account.may_write:
            raise NotAllowed("You must use a token with write access")
        return account.name

    def check_gate(self) -> None:
        """Passes who may have the content of files.

        Raises:
            GatedRepository: The conditions were not accepted.
        """
        if self.state.gated and not is_member(self.account, self.key):
            refusal = GatedRepository if self.account else GatedForVisitors
            raise refusal(f"Access to model {self.key.repo_id} is restricted and you are not in the authorized list.")

    def head(self) -> tuple[str, Commit]:
        """The commit that the address asks for, under its id.

        Raises:
            RevisionNotFound: There is none.
        """
        oid = self.storage.resolve(self.key, self.revision)
        return oid, self.storage.commits[oid]

    def web_address(self, key: Key | None = None) -> str:
        """Where a browser would look at the repository."""
        shown = key or self.key
        prefix = "" if shown.kind == "models" else f"{shown.kind}/"
        return f"{self.site.endpoint}/{prefix}{shown.repo_id}"
