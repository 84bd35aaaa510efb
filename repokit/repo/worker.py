"""The one limited child process in which chat templates render and tokenizers run.

A template or a tokenizer.json out of a repository is code that a stranger wrote: it may loop, grow, panic or abort.
worker_child.py runs it with an empty environment, in a session of its own, under limits for each request. Whatever
happens to the child is the result of the request (kinds `limit` and `crash`), never an exception, and the next request
gets a new child if it needs one.

Limits: processor time (ITIMER_PROF, RLIMIT_CPU), address space (RLIMIT_AS), no file can grow (RLIMIT_FSIZE 0), 16 open
files, no core file, a wall clock that kills, caps on what is rendered and answered. Windows has none of the RLIMITs
and macOS does not enforce RLIMIT_AS: there the wall clock, the caps and the refusals of worker_templates.py stay.
The network is not closed to the child; nothing in it opens a connection.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from repokit.errors import InputError
from repokit.repo.worker_process import ChildProcess, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    Result = Mapping[str, Any]

Kind = Literal["syntax", "forbidden", "raised", "undefined", "security", "type", "failed", "limit", "crash"]

# The largest real tokenizer.json at hand (262,145 tokens, 33 MB) takes 12 bytes of memory and 0.05 µs per byte to
# load; a Unigram vocabulary of random pieces, which share no prefixes, 75 bytes and 0.1 µs, but real ones have 9 MB.
_MEMORY_PER_BYTE = 40
_SECONDS_PER_BYTE = 0.25e-6

_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """What one request may take. Loading a tokenizer gets more, in proportion to the size of its document.

    Attributes:
        cpu_seconds: Processor time.
        wall_seconds: Until the child is killed; `start_seconds` while it starts and imports, where disks are slow.
        memory_bytes: Address space.
        output: Characters of all texts that one request renders, or ids of all texts that it encodes.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float = 5.0
    start_seconds: float = 60.0
    memory_bytes: int = 512 << 20
    output: int = 1 << 20


@dataclass(frozen=True)
class TemplateProblem:
    """Why a template does not compile or render.

    Attributes:
        kind: `syntax`; `forbidden` (it reaches for Python's internals or other files, so it is not run); `raised` (by
            raise_exception, on purpose); `undefined`; `security` (stopped by Jinja's sandbox); `type` (a TypeError);
            `failed` (any other exception); `limit` (too large, deep or slow); `crash` (the child ended).
        message: As jinja2 or the template words it: untrusted, at most 2,000 characters.
        line: Of the template, from 1; None where it is not known.
    """

    kind: Kind
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Rendered:
    """A rendered text, or the reason why there is none: exactly one of the two is not None."""

    text: str | None = None
    error: TemplateProblem | None = None


@dataclass(frozen=True)
class TokenizerProblem:
    """Why a tokenizer does not load or encode.

    Attributes:
        kind: `failed` or `type` (an ordinary exception), `limit`, or `crash` (a panic; the child ended).
        message: As the tokenizers library words it: untrusted, at most 2,000 characters.
    """

    kind: Kind
    message: str


@dataclass(frozen=True)
class Encoded:
    """The ids of one text, without truncation and padding, as transformers encodes unless it is asked for them."""

    plain: tuple[int, ...] = ()
    with_special_tokens: tuple[int, ...] = ()
    error: TokenizerProblem | None = None


@dataclass(frozen=True)
class TokenizerAnswer:
    """What a tokenizer.json is to the tokenizers library.

    Attributes:
        problem: Why it does not load; None if it does. It may load and still fail to encode: see `probes`.
        vocab_size: Number of token strings, added ones included: not the largest id plus one.
        ids: For each special token asked for, its id, or None if it is not in the vocabulary.
        probes: One for each text, in order; none if the document does not load.
    """

    problem: TokenizerProblem | None = None
    vocab_size: int = 0
    ids: Mapping[str, int | None] = field(default_factory=dict)
    probes: tuple[Encoded, ...] = ()


class Worker:
    """A context manager that starts its child at the first request. Requests of several threads wait for each other.

    Attributes:
        starts: How many children were started so far.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.starts = 0
        self._child: ChildProcess | None = None
        self._largest_document = 0
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child. The worker stays usable: the next request starts another one."""
        with self._lock:
            child, self._child = self._child, None
            if child is not None:
                child.end()

    def warm(self) -> None:
        """Lets the child start and import while the caller does something else; the first request waits for the rest.

        What goes wrong meanwhile is told by that request.
        """
        threading.Thread(target=self._warm, daemon=True).start()

    def _warm(self) -> None:
        with self._lock, suppress(InputError):
            for module in ("worker_templates", "tokenizers"):
                self._ready(module)

    def compile(self, template: str) -> TemplateProblem | None:
        """The first reason why transformers cannot, or repokit will not, render this template."""
        request = {"operation": "compile", "template": template}
        return self._ask("worker_templates", request, 1, _template_problem)[0]

    def render(self, template: str, variables: Mapping[str, Any]) -> Rendered:
        """Renders in transformers' environment; `variables` are JSON values, normalised by the caller."""
        return self.render_many(template, [variables])[0]

    def render_many(self, template: str, cases: Sequence[Mapping[str, Any]]) -> list[Rendered]:
        """Renders once for each case, in one request: a limit that ends the child is the result of all of them."""
        request = {"operation": "render", "template": template, "cases": [dict(case) for case in cases]}
        return self._ask("worker_templates", request, len(cases), _rendered)

    def tokenizer(self, document: bytes, probes: Sequence[str] = (), special: Sequence[str] = ()) -> TokenizerAnswer:
        """Loads a tokenizer.json, looks up the tokens `special`, and encodes each of the `probes`.

        Loading and encoding are two requests, each with its limits, so that an answer tells which of them failed.
        """
        with self._lock:
            self._largest_document = max(self._largest_document, len(document))
            request = {"operation": "load", "special": list(special)}
            answer = self._ask("tokenizers", request, 1, _tokenizer_answer, document)[0]
            if answer.problem or not probes:
                return answer
            request = {"operation": "encode", "probes": list(probes)}
            encoded = self._ask("tokenizers", request, len(probes), _encoded)
        return TokenizerAnswer(None, answer.vocab_size, answer.ids, tuple(encoded))

    def _ask(
        self, module: str, request: dict[str, Any], count: int, decode: Callable[[Result], _T], payload: bytes = b""
    ) -> list[_T]:
        """`count` decoded results; if the child is lost, each of them is the problem that says so."""
        with self._lock:
            try:
                answers, worn = _decoded(self._exchange(module, request, payload), count, decode)
            except Lost as lost:
                self.close()
                return [decode({"problem": {"kind": lost.kind, "message": str(lost), "line": None}})] * count
            except BaseException:  # Ctrl-C before the answer: the next request must not be given this one's
                self.close()
                raise
            if worn:
                self.close()
            return answers

    def _exchange(self, module: str, request: dict[str, Any], payload: bytes) -> bytes:
        limits, extra = self.limits, len(payload) * _SECONDS_PER_BYTE
        request["output"] = limits.output
        request["cpu"] = limits.cpu_seconds + extra
        # A tokenizer stays loaded, and freed memory stays in the child: what the largest document needed, it may keep.
        request["memory"] = limits.memory_bytes + self._largest_document * _MEMORY_PER_BYTE
        child = self._ready(module)
        # JSON makes twelve bytes of a character at most (an escaped surrogate pair), and of an id no more.
        return child.ask(request, payload, seconds=limits.wall_seconds + 2 * extra, largest=12 * limits.output + 2**20)

    def _ready(self, module: str) -> ChildProcess:
        """The child, running, with the module imported; nothing of a repository has reached it yet.

        Raises:
            InputError: It does not start: that says nothing about a template or a tokenizer.
        """
        try:
            if self._child is None or not self._child.alive:
                self.close()
                self._child = ChildProcess()
                self.starts += 1
            self._child.prepare(module, self.limits.start_seconds)
        except Lost as lost:
            self.close()
            what = f"templates and tokenizers could not be tried: {lost}"
            raise InputError(what, why="what was not tried may be broken") from lost
        return self._child


def _decoded(reply: bytes, count: int, decode: Callable[[Result], _T]) -> tuple[list[_T], bool]:
    """The answers, and whether a limit or a panic left the child with a memory that is not to be relied on.

    A child that an attack has taken over may answer anything.
    """
    try:
        results = json.loads(reply)
        answers = [decode(result) for result in results]
        worn = any("problem" in result and result["problem"]["kind"] in ("limit", "crash") for result in results)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Lost("crash", "the child process answered nonsense") from error
    if len(answers) != count:
        raise Lost("crash", "the child process answered something else than it was asked")
    return answers, worn


def _template_problem(result: Result) -> TemplateProblem | None:
    return TemplateProblem(**result["problem"]) if "problem" in result else None


def _rendered(result: Result) -> Rendered:
    error = _template_problem(result)
    return Rendered(error=error) if error else Rendered(text=result["text"])


def _tokenizer_problem(result: Result) -> TokenizerProblem | None:
    return TokenizerProblem(result["problem"]["kind"], result["problem"]["message"]) if "problem" in result else None


def _tokenizer_answer(result: Result) -> TokenizerAnswer:
    problem = _tokenizer_problem(result)
    return TokenizerAnswer(problem) if problem else TokenizerAnswer(None, result["size"], result["ids"])


def _encoded(result: Result) -> Encoded:
    error = _tokenizer_problem(result)
    return Encoded(error=error) if error else Encoded(tuple(result["plain"]), tuple(result["special"]))
