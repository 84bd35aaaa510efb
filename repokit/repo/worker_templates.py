"""Chat templates in the child process of the worker: the checks before a template runs, and transformers' environment.

Loaded by worker_child.py, from its path, when the first template arrives. Imports jinja2 and nothing of repokit.
"""

from __future__ import annotations

import json
import random
import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import Template, ext, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jinja2.parser import Parser
    from jinja2.runtime import Context

SEQUENCE_LIMIT = 1 << 20  # items or characters that one `*` may make, or columns that one `%` may fill
BITS_LIMIT = 4096  # bits of an integer that `*` and `**` may make
INDENT_LIMIT = 16  # of tojson

# Filters that take the name of an attribute, or of a filter that does.
LOOKUPS = frozenset({"attr", "map", "selectattr", "rejectattr", "groupby", "sort", "unique", "min", "max", "sum"})
FRAMES = frozenset({"gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "f_globals", "f_builtins"})
DUNDER = re.compile(r"__\w|\w__")
PRIVATE_FIELD = re.compile(r"\{[^{}]*[.\[]\s*_")  # "{0.__class__}" given to str.format


class Forbidden(Exception):
    """The template reaches for Python's internals or for other files; it is not run."""

    def __init__(self, message: str, lineno: int) -> None:
        super().__init__(message)
        self.lineno = lineno


@lru_cache(maxsize=4)
def compiled(source: str) -> Template:
    """The template, checked before a line of it runs.

    Raises:
        Forbidden: See `_objection`.
        jinja2.TemplateSyntaxError: It is not a template, or uses a filter, test or tag that does not exist.
    """
    tree = ENVIRONMENT.parse(source)
    for node in tree.find_all(nodes.Node):
        if objection := _objection(node):
            raise Forbidden(objection, node.lineno)
    return ENVIRONMENT.from_string(tree)


def rendered(template: Template, variables: Mapping[str, Any], limit: int) -> str:
    """The text, of at most `limit` characters.

    Not through `Template.render`, whose rewriting of tracebacks takes long for the deep ones of a runaway macro.
    """
    random.seed(0)  # the filter `random` must not make two runs differ
    pieces = []
    for piece in template.root_render_func(template.new_context(dict(variables))):
        limit -= len(piece)
        if limit < 0:
            raise OverflowError("the rendered text is larger than the limit")
        pieces.append(piece)
    return "".join(pieces)


def running_line(error: BaseException) -> int | None:
    """The line of the template that was running, from the innermost frame of its generated code."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


# --- what is not run ---------------------------------------------------------------------------------------------


def _objection(node: nodes.Node) -> str | None:
    """What is wrong with a node that no chat template needs and that attacks on Jinja's sandbox are made of."""
    match node:
        case nodes.Include() | nodes.Import() | nodes.FromImport() | nodes.Extends():
            return f"{type(node).__name__.lower()} of another template"
        case nodes.Name(name=name) | nodes.Getattr(attr=name) | nodes.NSRef(attr=name) | nodes.Keyword(key=name):
            if name.startswith("__") or name in FRAMES:
                return f"use of Python's internal name {name!r}"
        case nodes.Const(value=str(text)) if PRIVATE_FIELD.search(text):
            return f"format field with a private attribute in {text[:100]!r}"
    constant = next(filter(DUNDER.search, _looked_up(node)), None)
    return None if constant is None else f"lookup of Python's internal name {constant[:100]!r}"


def _looked_up(node: nodes.Node) -> Iterator[str]:
    """The string constants out of which the name of an attribute could be made."""
    parts: Sequence[nodes.Node] = ()
    match node:
        case nodes.Getitem():
            parts = (node.arg,)
        case nodes.Getattr(attr="format" | "format_map"):
            parts = (node.node,)
        case nodes.Filter() if node.name in LOOKUPS:
            parts = (*node.args, *node.kwargs)
    for part in parts:
        for const in (part, *part.find_all(nodes.Const)):
            if isinstance(const, nodes.Const) and isinstance(const.value, str):
                yield const.value


# --- the environment: transformers' (utils/chat_template_utils.py, 5.24), with limits added -------------------------


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})  # what is intercepted is not computed while compiling, either

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - jinja2's
        refuse_large(operator, left, right)
        return super().call_binop(context, operator, left, right)


class Generation(ext.Extension):
    """`{% generation %}` marks what the assistant says, for training; it renders as what it encloses."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares an instance variable

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_enclosed"), [], [], body).set_lineno(line)

    def _enclosed(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """`dict` without its other attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:  # noqa: ANN401 - dict's own
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:  # noqa: ANN401 - dict's own
        return dict.fromkeys(*args)


class TemplateNamespace(Namespace):
    """A namespace that refuses underscore-prefixed names."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - without `self`, which may be a keyword
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value of a template
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace of a chat template cannot store the underscore-prefixed {name!r}")


def raise_exception(message: str) -> None:
    raise TemplateError(message)


def strftime_now(format: str) -> str:  # noqa: A002 - transformers' signature
    """On 2024-01-01 for ever: a template must render alike today and tomorrow to be compared."""
    return datetime(2024, 1, 1).strftime(format)  # noqa: DTZ001 - naive, as transformers' is


def tojson(
    x: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - transformers' signature
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - transformers' signature
) -> str:
    if isinstance(indent, int) and indent > INDENT_LIMIT:
        raise OverflowError(f"tojson with an indent of more than {INDENT_LIMIT}")
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse_large(operator: str, left: Any, right: Any) -> None:  # noqa: ANN401 - operands of a template
    """Refuses what would fill the memory in one step, before RLIMIT_AS has to, and where there is none."""
    if operator == "%":
        large = isinstance(left, str) and _widest(left, right) > SEQUENCE_LIMIT
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        large = (bits * right if operator == "**" else bits + right.bit_length()) > BITS_LIMIT
    else:
        large = operator == "*" and _length(left) * _length(right) > SEQUENCE_LIMIT
    if large:
        raise OverflowError(f"the result of {operator!r} is larger than the limit")


def _length(operand: object) -> int:
    return (
        operand if isinstance(operand, int) else len(operand) if isinstance(operand, (str, bytes, list, tuple)) else 0
    )


def _widest(text: str, values: object) -> int:
    """The largest width or precision that a printf-style format asks for, `%*d` included."""
    widths = [int(digits[:10]) for digits in re.findall(r"%[^%a-zA-Z]*?(\d+)", text)]
    if re.search(r"%[^%a-zA-Z]*\*", text):
        widths += [value for value in (values if isinstance(values, tuple) else (values,)) if isinstance(value, int)]
    return max(widths, default=0)


def _environment() -> Sandbox:
    sandbox = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])
    del sandbox.globals["lipsum"]  # makes text of any size
    sandbox.filters["tojson"] = tojson
    sandbox.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, dict=TemplateDict(), namespace=TemplateNamespace
    )
    return sandbox


ENVIRONMENT = _environment()
