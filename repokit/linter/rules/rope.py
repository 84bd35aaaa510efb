"""CFG: rotary position embeddings: what config.json says of them, and which generation of transformers reads it.

transformers 5 keeps everything in `rope_parameters`; 4 has `rope_theta` and `rope_scaling` beside each other
(modeling_rope_utils.py of both; what 5.24 refuses was measured).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

NEW: Final = "rope_parameters"
OLD: Final = "rope_scaling"
LLAMA3: Final[dict[str, Any]] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def older(scaling: dict[str, Any] | None, theta: float = 10000.0) -> dict[str, Any]:
    """A change to config.json: the spelling of transformers 4."""
    return {NEW: DELETE, "rope_theta": theta, OLD: scaling}


class UnknownRopeType(Rule):
    """config.json names a rope_type that transformers does not have.

    Building the model stops with KeyError, before a weight is read.
    """

    code = "CFG108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a misspelt type", {CONFIG: {NEW: {"rope_type": "lama3"}}}),
        Example("in the older spelling", {CONFIG: older({"type": "ntk", "factor": 2.0})}),
    )
    good = (
        Example(
            "written by a version that is newer than we are",
            {CONFIG: {NEW: {"rope_type": "spiral"}, "transformers_version": "9.0.0"}},
        ),
        Example("sections of Qwen2-VL", {CONFIG: older({"type": "mrope", "mrope_section": [1, 1, 2]})}),
        Example(
            "code of the repository",
            {
                CONFIG: {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}, NEW: {"rope_type": "ours"}},
                "modeling_x.py": "class X: ...\n",
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        known = data("rope_types")
        for block in blocks(repository) if is_judged(repository) else ():
            if block.kind not in known["types"] and not block.is_converted:
                reader = known["source"].partition(",")[0]
                message = f"names the rope_type {printable(block.kind, 40)!r}, which {reader} does not have"
                hint = f"one of {', '.join(known['types'])}"
                yield self.finding(CONFIG, message, place=block.place, hint=hint)


class IncompleteRope(Rule):
    """A field that the rope_type needs is not there.

    transformers stops with KeyError when it reads config.json: "Missing required keys".
    """

    code = "CFG109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("scaled by what?", {CONFIG: older({"type": "linear"})}),
        Example("half of Llama 3", {CONFIG: older({"rope_type": "llama3", "factor": 8.0})}),
    )
    good = (
        Example(
            "YaRN without the original length, which has a default",
            {
                CONFIG: {
                    NEW: {"rope_type": "yarn", "factor": 4.0},
                    OLD: {"rope_type": "yarn", "factor": 4.0},
                    "rope_theta": 10000.0,
                }
            },
        ),
        Example(
            "YaRN over a length that is scaled already",
            {CONFIG: older({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        types = data("rope_types")["types"]
        for block in blocks(repository) if is_judged(repository) else ():
            if missing := [field for field in types.get(block.kind, ()) if field not in block.fields]:
                message = f"has the rope_type {printable(block.kind, 40)!r} without {some(tuple(missing))}"
                hint = f"copy {CONFIG}'s {block.fields.pointer.lstrip('/')} from the base model"
                yield self.finding(CONFIG, message, place=block.place, names=missing, hint=hint)


class ConflictingRope(Rule):
    """The two spellings of the rotary embedding in config.json differ.

    transformers 5 believes `rope_parameters`, 4 and most servers what stands beside it: one of them runs the model with
    positions that it was not trained with.
    """

    code = "CFG111"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("two base periods", {CONFIG: {"rope_theta": 500000.0}}),
        Example(
            "two scalings",
            {CONFIG: {NEW: {**LLAMA3}, OLD: {**LLAMA3, "factor": 32.0}, "rope_theta": 10000.0}},
            also=("CFG303",),
        ),
    )
    good = (Example("both spellings, one value", {CONFIG: {"rope_theta": 10000}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in () if repository.config is None else repository.config.levels:
            new, old = level.mapping(NEW), level.mapping(OLD)
            if new is None or is_nested(new):
                continue
            theirs = {"rope_theta": level} | ({} if old is None else {"factor": old})
            for key, document in theirs.items():
                ours, other = new.number(key), document.number(key)
                if ours is not None and other is not None and ours != other:
                    message = f"is {printable(other)}, and {NEW} has {key} {printable(ours)}"
                    hint = "write at both what the model was trained with"
                    yield self.finding(CONFIG, message, place=document.at(key), hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_new_rope

        return with_new_rope(repository, finding)


class RopeOfTransformers5(Rule):
    """Only `rope_parameters` says how positions are embedded, and older readers take a default that is another.

    transformers 4, and servers built on it, do not look there: they run the model with positions that it was not
    trained with, without a word.
    """

    code = "CFG205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("another base period", {CONFIG: {NEW: {"rope_theta": 500000.0}}}),
        Example("a scaling", {CONFIG: {NEW: LLAMA3}}),
    )
    good = (
        Example("the default", {CONFIG: {NEW: {"rope_theta": 10000.0}}}),
        Example("both spellings", {CONFIG: {NEW: {"rope_theta": 500000.0}, "rope_theta": 500000.0}}),
        Example(
            "a family that transformers 4 does not have",
            {CONFIG: {"model_type": "qwen3_5_text", NEW: {"rope_theta": 500000.0}}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        defaults: dict[str, float] = data("older_rope_theta")["rope_theta"]
        for level in () if repository.config is None else repository.config.levels:
            new, default = level.mapping(NEW), defaults.get(level.string("model_type") or "")
            if new is None or default is None or is_nested(new) or level.string("model_type") in SCALED_BY_DEFAULT:
                continue
            theta = new.number("rope_theta")
            if theta not in {None, default} and "rope_theta" not in level:
                message = f"has rope_theta {printable(theta)} in {NEW} alone; transformers 4 takes {default:g}"
                yield self.finding(
                    CONFIG, message, place=new.at("rope_theta"), hint="write rope_theta beside it as well"
                )
            if Block(new).kind in SCALINGS and not level.raw.get(OLD):
                message = f"has its scaling in {NEW} alone; transformers 4 does not scale"
                yield self.finding(CONFIG, message, place=new.pointer, hint=f"write {OLD} beside it as well")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_old_rope

        return with_old_rope(repository, finding)


class ExtendedRopeScaling(Rule):
    """`rope_scaling` of a Llama model has other fields than `type` and `factor`.

    transformers before 4.43 stops: "must be a dictionary with two fields".
    """

    code = "CFG303"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("as Llama 3.1 has it", {CONFIG: older(LLAMA3, 500000.0)}),)
    good = (
        Example("as Llama 2 had it", {CONFIG: older({"type": "linear", "factor": 2.0})}),
        Example("none", {CONFIG: older(None)}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        scaling = None if config is None or config.model_type != "llama" else config.mapping(OLD)
        if scaling is not None and scaling.raw.keys() != {"type", "factor"}:
            message = f"has {some(tuple(scaling.raw))}, which transformers before 4.43 refuses"
            yield self.finding(CONFIG, message, place=scaling.pointer)


RULES: Final = (UnknownRopeType(), IncompleteRope(), ConflictingRope(), RopeOfTransformers5(), ExtendedRopeScaling())

# What transformers 4 has too (modeling_rope_utils.py, 4.57).
SCALINGS: Final = frozenset({"dynamic", "linear", "llama3", "longrope", "yarn"})

# Config classes of transformers 4 whose own default is a scaling.
SCALED_BY_DEFAULT: Final = frozenset({"gpt_oss"})


class Block(NamedTuple):
    """One object that describes a rotary embedding, in either spelling."""

    fields: Document

    @property
    def kind(self) -> str:
        """Its rope_type; `type` is the older key for it."""
        return self.fields.string("rope_type") or self.fields.string("type") or "default"

    @property
    def place(self) -> str:
        key = next((key for key in ("rope_type", "type") if key in self.fields), None)
        return self.fields.pointer if key is None else self.fields.at(key)

    @property
    def is_converted(self) -> bool:
        """Whether a config class takes this name for another: of Qwen2-VL, and of Phi-3."""
        return (self.kind == "mrope" and "mrope_section" in self.fields) or (
            self.kind == "su" and "short_factor" in self.fields
        )


def blocks(repository: Repository) -> Iterator[Block]:
    """Every object that transformers takes for one. `rope_scaling` wins where there are both."""
    for level in () if repository.config is None else repository.config.levels:
        whole = level.mapping(OLD) if level.raw.get(OLD) else level.mapping(NEW)
        if whole is not None and is_nested(whole):
            nested = (whole.mapping(key) for key in whole.raw)
            yield from (Block(document) for document in nested if document is not None)
        elif whole is not None:
            yield Block(whole)


def is_nested(document: Document) -> bool:
    """Whether there is an object for each kind of layer."""
    return any(isinstance(value, dict) for value in document.raw.values())


def is_judged(repository: Repository) -> bool:
    """Whether transformers reads it, and none that is newer than our table."""
    config = repository.config
    if config is None or "auto_map" in config or config.model_type not in data("model_types")["model_types"]:
        return False
    return version(config.string("transformers_version") or "0") <= version(data("rope_types")["source"])


def version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version in a text: (5, 24)."""
    found = re.search(r"(\d{1,6})(?:\.(\d{1,6}))?", text)
    return (0,) if found is None else tuple(int(number) for number in found.groups() if number)
