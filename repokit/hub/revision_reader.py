"""Reading one revision: its commit, its tree, whole files and ranges of files. No answer is believed unchecked.

A whole file is held against its git or LFS hash, a range against `Content-Range` and what the redirect says of the
file. So a proxy's page, a mirror that is behind, or a server that knows no ranges is an error, and never a finding.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from repokit.errors import HubUnreachable, LimitExceeded, NotAuthorized, RepokitError, RevisionNotFound
from repokit.hub.address import LONGEST_REVISION, without_password
from repokit.hub.errors import Unanswered, translated
from repokit.hub.remote_file import RemoteFile, is_folder, remote_file
from repokit.hub.session import LONGEST_WAIT
from repokit.hub.transport import Abandoned, Answer, NotAnAnswer, get
from repokit.printable import count, printable, size
from repokit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.hub.address import Address

MAX_FILES: Final = 100_000  # the Hub's own limit (hub-docs storage-limits.md)
# Seconds before each new try of a request that a busy Hub or a broken connection left unanswered.
WAITS: Final = (1.0, 2.0, 4.0)
_PATIENCE: Final = 60.0  # seconds after which a request is not tried again
_MOST_JSON: Final = 64 * 1024 * 1024  # a page of a tree has 0.3 MB, a revision's siblings a few MB
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")
# What the Hub says a repository is called today; old names end in ways that it takes no more.
_REPO_ID: Final = re.compile(r"(?!\.)[\w.-]{1,100}(?:/(?!\.\.?$)[\w.-]{1,100})?", re.ASCII)
_QUERY: Final = re.compile(r"[!-~]{1,4000}")
_MOST_PAGES: Final = 1_000  # of a tree; the Hub puts a thousand entries on each
_MOST_VALUES: Final = 4_000_000  # in one answer of JSON: a hundred times what a page of a tree has
_MOST_NAMES: Final = 1_000  # branches and tags, among which the nearest is looked for
_NEXT: Final = re.compile(r'<([^<>]*)>;\s*rel="?next"?')
# A compressed answer would be neither of the promised length nor a range of the file.
_PLAIN: Final = {"Accept-Encoding": "identity"}
_PACKED: Final = {"Accept-Encoding": "gzip"}


class Commit(NamedTuple):
    """What a revision stood for when it was looked up.

    Attributes:
        repo_id: The name of today: a repository that was renamed answers to its old one too.
    """

    repo_id: str
    id: str


class RevisionReader:
    """Reads from one Hub; may be used by several threads.

    Attributes:
        endpoint: Of the Hub, without a slash at the end.
        requests: Requests to the Hub so far; redirects to its storage belong to the request that they answer.
        bytes_read: Bodies of answers so far.
    """

    def __init__(
        self,
        target: str,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Asks nothing of the network yet.

        Args:
            target: For messages: `org/name@main`.
            endpoint: HF_ENDPOINT's by default.
            token: That of HF_TOKEN or a login by default, and none where there is none.
            sleep: Called with seconds; by default it ends early when the reader is stopped.
        """
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, not seen by mypy

        self.target = target
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self._place = printable(without_password(self.endpoint))
        self.requests = 0
        self.bytes_read = 0
        self._headers = build_hf_headers(token=token, library_name="repokit", library_version=__version__)
        self._reached = False
        self._stopped = Event()
        self._sleep = sleep or self._stopped.wait
        self._lock = Lock()

    @property
    def offline(self) -> bool:
        """Whether HF_HUB_OFFLINE forbids to ask."""
        from huggingface_hub import constants

        return bool(constants.is_offline_mode())

    def stop(self) -> None:
        """No new request from now on; those of other threads end when they would be tried again."""
        self._stopped.set()

    # ---------------------------------------------------------------- what can be asked

    def commit(self, address: Address) -> Commit:
        """The commit behind a revision.

        Raises:
            RevisionNotFound, NotAuthorized, HubUnreachable: See their hints.
        """
        url = f"{self.endpoint}/api/models/{address.repo_id}"
        if address.revision is not None:
            url += f"/revision/{quote(address.revision, safe='')}"
        try:
            answer = self._json("read the commit", url)
        except RevisionNotFound as error:
            raise self._not_found(address, error) from None
        match answer:
            case {"sha": str(sha), **rest} if _COMMIT_ID.fullmatch(sha):
                repo_id = rest.get("id") or address.repo_id
                if not (isinstance(repo_id, str) and _REPO_ID.fullmatch(repo_id)):
                    raise self._not_the_hub("read the commit", "the name in it is that of no repository")
                return Commit(repo_id, sha)
            case {"id": str()}:
                raise RevisionNotFound(f"{self.target} has no commit", why="the repository is empty")
        raise self._not_the_hub("read the commit", "no commit id in it")

    def tree(self, commit: Commit) -> list[RemoteFile]:
        """Every file at a commit, in one request a thousand files.

        Raises:
            LimitExceeded: More files than the Hub takes.
            HubUnreachable: No tree came.
        """
        files = dict[str, RemoteFile]()
        url = f"{self.endpoint}/api/models/{quote(commit.repo_id)}/tree/{commit.id}"
        query, asked = "recursive=true&expand=false", set[str]()
        while query:
            asked.add(query)
            answer = self._get(_LISTING, f"{url}?{query}", limit=_MOST_JSON)
            self._check_commit(_LISTING, answer, commit)
            for file in self._page(answer):
                if files.setdefault(file.path, file) is not file:
                    raise self._not_the_hub(_LISTING, f"{printable(file.path, 100)} is listed twice")
            if len(files) > MAX_FILES:
                what = f"has more than {MAX_FILES:,} files, which the Hub does not take"
                raise LimitExceeded(what, path=self.target)
            query = self._next_query(answer)
            if query in asked or len(asked) == _MOST_PAGES:
                raise self._not_the_hub(_LISTING, "the pages of the list have no end")
        return list(files.values())

    def _page(self, answer: Answer) -> list[RemoteFile]:
        entries = self._parsed(_LISTING, answer)
        if not isinstance(entries, list):
            raise self._not_the_hub(_LISTING, "what came is no list of files")
        files = [remote_file(entry) for entry in entries if not is_folder(entry)]
        if None in files:
            raise self._not_the_hub(_LISTING, "an entry that is no file")
        return [file for file in files if file is not None]

    def _next_query(self, answer: Answer) -> str:
        """Of the address of the next page, which alone is followed: the token stays with this Hub."""
        found = _NEXT.search(answer.headers.get("link", ""))
        if found is None:
            return ""
        query = found[1].partition("#")[0].partition("?")[2]
        if _QUERY.fullmatch(query):
            return query
        raise self._not_the_hub(_LISTING, "the address of the next page is none")

    def whole(self, commit: Commit, file: RemoteFile) -> bytes:
        """The content of a file, equal to its hash in the tree.

        Raises:
            HubUnreachable: Something else came, or nothing.
        """
        doing = f"read {printable(file.path, 100)}"
        answer = self._get(doing, self._address(commit, file), headers=_PLAIN, limit=file.size)
        self._check_commit(doing, answer, commit)
        if len(answer.content) != file.size:
            came = count(len(answer.content), "byte") if len(answer.content) < file.size else "more"
            raise self._not_the_hub(doing, f"{came} came and the file has {file.size:,}")
        if not file.holds(answer.content):
            raise self._not_the_hub(doing, "what came is not the file that the tree lists")
        return answer.content

    def range(self, commit: Commit, file: RemoteFile, begin: int, end: int) -> bytes:
        """The bytes of a file from `begin` to before `end`, which lies inside of it.

        Raises:
            HubUnreachable: Something else came, or nothing.
        """
        if begin == 0 and end == file.size:
            return self.whole(commit, file)
        doing = f"read {printable(file.path, 100)}"
        headers = {**_PLAIN, "Range": f"bytes={begin}-{end - 1}"}
        answer = self._get(doing, self._address(commit, file), headers=headers, limit=end - begin)
        self._check_commit(doing, answer, commit)
        linked = answer.headers.get("x-linked-etag", "").strip('W/"')
        if linked and file.sha256 and linked != file.sha256:
            raise self._not_the_hub(doing, "what came is of another file than the one that the tree lists")
        if fault := _fault_of_range(answer, file, begin, end):
            raise self._not_the_hub(doing, fault)
        return answer.content[: end - begin]

    # ---------------------------------------------------------------- how it is asked

    def _address(self, commit: Commit, file: RemoteFile) -> str:
        return f"{self.endpoint}/{quote(commit.repo_id)}/resolve/{commit.id}/{quote(file.path)}"

    def _json(self, doing: str, url: str) -> Any:  # noqa: ANN401 - whatever the Hub says
        return self._parsed(doing, self._get(doing, url, limit=_MOST_JSON))

    def _parsed(self, doing: str, answer: Answer) -> Any:  # noqa: ANN401 - whatever the Hub says
        if len(answer.content) > _MOST_JSON:
            raise LimitExceeded(f"could not {doing} of {self.target}: an answer of more than {size(_MOST_JSON)}")
        if answer.content.count(b",") > _MOST_VALUES:  # `[],[],[]`: each takes thirty times its bytes in memory
            raise LimitExceeded(f"could not {doing} of {self.target}: an answer of more than {_MOST_VALUES:,} values")
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            kind = "a web page" if answer.content.lstrip()[:1] == b"<" else "no JSON"
            raise self._not_the_hub(doing, f"{kind} came") from None

    def _get(self, doing: str, url: str, *, limit: int, headers: Mapping[str, str] | None = None) -> Answer:
        """An answer, after a few tries where nobody answers; at most a chunk more of its body than `limit`."""
        started, tries = time.monotonic(), 0
        while not self._stopped.is_set():
            try:
                with translated(doing, self.target):
                    return self._once(url, {**_PACKED, **self._headers, **(headers or {})}, limit)
            except Abandoned:
                break
            except NotAnAnswer as error:
                raise self._not_the_hub(doing, str(error)) from None
            except Unanswered as error:
                self._reached |= error.connected
                absent = not self._reached
                error.hint = "check the network, and HF_ENDPOINT where it is set" if absent else _AGAIN
                if absent or tries == len(WAITS) or time.monotonic() - started > _PATIENCE:
                    raise
                self._sleep(max(WAITS[tries], min(error.retry_after or 0.0, LONGEST_WAIT)))
                tries += 1
            except RepokitError as error:
                self._explain(error)
                raise
        raise HubUnreachable(f"could not {doing} of {self.target}: another request failed")

    def _once(self, url: str, headers: Mapping[str, str], limit: int) -> Answer:
        with self._lock:
            self.requests += 1
        answer = get(url, headers, limit, self._stopped)
        self._reached = True
        with self._lock:
            self.bytes_read += len(answer.content)
        return answer

    # ---------------------------------------------------------------- what is said when it fails

    def _check_commit(self, doing: str, answer: Answer, commit: Commit) -> None:
        said = answer.headers.get("x-repo-commit", commit.id)
        if said != commit.id:
            raise self._not_the_hub(doing, f"commit {printable(said, 40)} came and {commit.id} was asked for")

    def _not_the_hub(self, doing: str, what: str) -> HubUnreachable:
        why = "a proxy, a mirror that is behind, or another service may stand where the Hub should"
        hint = f"run the same command again; if it stays so, look what answers at {self._place}"
        return HubUnreachable(f"could not {doing} of {self.target}: {what}", why=why, hint=hint)

    def _explain(self, error: RepokitError) -> None:
        """Hints for a reader: those of the translation are for whoever pushes."""
        if isinstance(error, NotAuthorized) and "gated" in (error.why or ""):
            error.hint = f"accept its conditions at {self._place}/{self.target.partition('@')[0]}"
            error.hint += "" if "authorization" in self._headers else ", then: hf auth login, or set HF_TOKEN"
        elif isinstance(error, NotAuthorized):
            error.hint = "hf auth login, or set HF_TOKEN, with a token that may read this repository"

    def _not_found(self, address: Address, error: RevisionNotFound) -> RevisionNotFound:
        """The same, with what else could be meant."""
        if "revision not found" not in error.what:
            logged_in = "authorization" in self._headers
            why = "there is none of this name, or " + (
                "the token may not see it" if logged_in else "it is private and nobody is logged in"
            )
            hint = "check the name" + ("" if logged_in else "; for a private one: hf auth login, or set HF_TOKEN")
            return RevisionNotFound(error.what, why=why, hint=hint)
        names = self._names(address)
        near = difflib.get_close_matches(address.revision or "", names, n=1) or names[:3]
        meant = ", ".join(printable(f"{address.repo_id}@{name}", 100) for name in near)
        why = "it is not a branch, a tag, a commit or a pull request"
        return RevisionNotFound(error.what, why=why, hint=f"did you mean {meant}?" if meant else None)

    def _names(self, address: Address) -> list[str]:
        """Branches and tags; none where the Hub does not say."""
        try:
            answer = self._json("read the branches", f"{self.endpoint}/api/models/{address.repo_id}/refs")
        except RepokitError:
            return []
        lists = [answer.get(kind) for kind in ("branches", "tags")] if isinstance(answer, dict) else []
        entries = [entry for found in lists if isinstance(found, list) for entry in found if isinstance(entry, dict)]
        names = [name for entry in entries[:_MOST_NAMES] if isinstance(name := entry.get("name"), str)]
        return [name for name in names if len(name) <= LONGEST_REVISION]


_LISTING: Final = "list the files"
_AGAIN: Final = "run the same command again; what was read is kept"


def _fault_of_range(answer: Answer, file: RemoteFile, begin: int, end: int) -> str | None:
    """Why an answer is not the range that was asked for; None where it is."""
    if answer.status == 206:
        said, asked = answer.headers["content-range"].strip(), f"bytes {begin}-{end - 1}/"
        if said not in {f"{asked}{file.size}", f"{asked}*"}:
            return f"the range {printable(said, 80)!r} came and {asked}{file.size} was asked for"
        exact = len(answer.content) == end - begin
        return None if exact else f"{count(len(answer.content), 'byte')} came of the {end - begin:,} promised"
    # A server that knows no ranges sends the file from its beginning, of which the first part will do.
    if (
        answer.status == 200
        and begin == 0
        and answer.headers["content-length"] == str(file.size)
        and len(answer.content) >= end
    ):
        return None
    return "the server sends no ranges of files"
