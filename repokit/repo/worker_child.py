"""The program in which chat templates render and tokenizers run: started by worker.py, in a process of its own.

Both come out of repositories that anyone may have written. A template can loop for hours or build a string of
gigabytes; a tokenizer.json can make Rust panic, abort or backtrack. Here that ends this process and nothing else.

Messages, both ways: two big-endian 32-bit lengths, then that many bytes of JSON, then that many of raw payload.
A request names its `operation`; the answer is a list of results, each an object with a `problem` or without one.
The program imports nothing of repokit, and jinja2 or tokenizers only when it is told to: a bare start takes 10 ms.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

try:
    import resource
except ImportError:  # Windows has no such limits; see worker.py
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tokenizers import Tokenizer

    Result = dict[str, Any]

HEADER = struct.Struct(">II")
MESSAGE_LIMIT = 2000  # characters of an error that are passed on: one may quote the whole document
OPEN_FILES = 16
TEMPLATES = "worker_templates"  # the module beside this file that needs jinja2

# By the name of the exception class, so that jinja2 need not be loaded to look; the nearest base class decides.
KINDS = {
    "Forbidden": "forbidden",
    "TemplateSyntaxError": "syntax",
    "UndefinedError": "undefined",
    "SecurityError": "security",
    "TemplateRuntimeError": "failed",
    "TemplateNotFound": "failed",
    "TemplateError": "raised",  # what raise_exception raises; jinja2 itself raises only the subclasses above
    "TypeError": "type",
    "MemoryError": "limit",
    "RecursionError": "limit",
    "OverflowError": "limit",
    "SyntaxError": "limit",  # Python's own, for generated code: blocks or parentheses nested too deep
    "Exception": "failed",
}


def results(do: Callable[[Any], tuple[Result, int]], items: Iterable[Any], room: int) -> list[Result]:
    """One result for each item: what `do` makes of it, or the problem that stopped it.

    `do` also tells how large its result is; together they may be as large as `room`.
    """
    made: list[Result] = []
    for item in items:
        try:
            result, size = do(item)
            room -= size
            if room < 0:
                raise OverflowError("the answer is larger than the limit")  # noqa: TRY301 - one way out for problems
        except BaseException as error:  # noqa: BLE001 - a Rust panic is a BaseException
            made.append({"problem": problem(error)})
        else:
            made.append(result)
    return made


def problem(error: BaseException) -> dict[str, Any]:
    """What worker.py makes a problem of; a class that KINDS does not know (a Rust panic) is a crash."""
    kind = next((KINDS[base.__name__] for base in type(error).__mro__ if base.__name__ in KINDS), "crash")
    message = str(getattr(error, "message", None) or error)[:MESSAGE_LIMIT]
    line = getattr(error, "lineno", None) if kind in ("syntax", "forbidden") else None
    if line is None and TEMPLATES in sys.modules:
        line = sys.modules[TEMPLATES].running_line(error)
    return {
        "kind": kind,
        "message": message or ("out of memory" if kind == "limit" else type(error).__name__),
        "line": line,
    }


def compile_template(request: Mapping[str, Any], _payload: bytes) -> list[Result]:
    def compiled(template: str) -> tuple[Result, int]:
        sys.modules[TEMPLATES].compiled(template)
        return {}, 0

    return results(compiled, [request["template"]], 0)


def render(request: Mapping[str, Any], _payload: bytes) -> list[Result]:
    templates, source, room = sys.modules[TEMPLATES], request["template"], request["output"]

    def rendered(variables: Mapping[str, Any]) -> tuple[Result, int]:
        text = templates.rendered(templates.compiled(source), variables, room)
        return {"text": text}, len(text)

    return results(rendered, request["cases"], room)


_loaded: list[Tokenizer] = []


def load(request: Mapping[str, Any], document: bytes) -> list[Result]:
    from tokenizers import Tokenizer

    _loaded.clear()  # the memory of the one before is needed

    def loaded(document: bytes) -> tuple[Result, int]:
        tokenizer = Tokenizer.from_buffer(document)
        tokenizer.no_truncation()  # as transformers does before each call that does not ask for them
        tokenizer.no_padding()
        ids = {token: _id_of(tokenizer, token) for token in request["special"]}
        _loaded.append(tokenizer)
        return {"size": tokenizer.get_vocab_size(with_added_tokens=True), "ids": ids}, 0

    return results(loaded, [document], 0)


def _id_of(tokenizer: Tokenizer, token: str) -> int | None:
    try:
        return tokenizer.token_to_id(token)
    except UnicodeEncodeError:  # a lone surrogate is in no vocabulary
        return None


def encode(request: Mapping[str, Any], _payload: bytes) -> list[Result]:
    (tokenizer,) = _loaded  # ends the process, which is then a crash, if the one that had loaded it is gone

    def encoded(text: str) -> tuple[Result, int]:
        plain, special = (tokenizer.encode(text, add_special_tokens=flag).ids for flag in (False, True))
        return {"plain": plain, "special": special}, len(plain) + len(special)

    return results(encoded, request["probes"], request["output"])


OPERATIONS = {"compile": compile_template, "render": render, "load": load, "encode": encode}


def prepare(module: str) -> None:
    """Imports what the next requests need, free of limits because it is not the repository's."""
    if module != TEMPLATES:
        importlib.import_module(module)
        return
    spec = importlib.util.spec_from_file_location(module, Path(__file__).with_name(f"{module}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(module)
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def confine(memory: int, cpu: float) -> None:
    """Sets the limits of one request: `memory` in bytes of address space, `cpu` in seconds from now.

    The timer counts what RLIMIT_CPU counts, but in fractions of a second. Both end the process by the default action
    of their signal, which no code of a template or tokenizer can catch.
    """
    if resource is None:
        return
    signal.setitimer(signal.ITIMER_PROF, cpu)
    for which, soft, hard in (
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (resource.RLIMIT_CPU, int(time.process_time() + cpu) + 1, resource.RLIM_INFINITY),
        (resource.RLIMIT_AS, memory, resource.RLIM_INFINITY),
    ):
        _set_limit(which, soft, hard)


def _set_limit(which: int, soft: int, hard: int) -> None:
    """Keeps a hard limit that is lower already: only root may raise it."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
    try:
        resource.setrlimit(which, (soft, hard))
    except (ValueError, OSError):  # macOS refuses RLIMIT_AS
        return


def answer(request: Mapping[str, Any], payload: bytes) -> list[Result]:
    if request["operation"] == "import":
        prepare(request["module"])
        return [{}]
    confine(request["memory"], request["cpu"])
    try:
        return OPERATIONS[request["operation"]](request, payload)
    finally:
        if resource is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    while header := requests.read(HEADER.size):
        length, extra = HEADER.unpack(header)
        request = json.loads(requests.read(length))
        payload = requests.read(extra)
        reply = json.dumps(answer(request, payload)).encode("ascii")
        answers.write(HEADER.pack(len(reply), 0) + reply)
        answers.flush()


if __name__ == "__main__":
    sys.path.extend(sys.argv[1:])  # where worker_process.py found jinja2 and tokenizers; there is no `site` here
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print is not an answer
    serve(sys.stdin.buffer, channel)
