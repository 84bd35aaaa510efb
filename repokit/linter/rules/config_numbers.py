"""CFG: numbers in config.json with which no model can be built or run, although each has the right type.

Beside what config classes check (CFG114): what torch and the code of the models refuse, later and far from the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import DELETE, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.config_slips import judged
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.schema.field_types import Level

BERT: Final = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2}
MIXTRAL: Final = {"model_type": "mixtral", "rope_theta": 10000.0, "num_local_experts": 4, "num_experts_per_tok": 2}


def as_family(config: dict[str, Any]) -> dict[str, Any]:
    """A change that makes config.json one of another family, and leaves the weights out of it."""
    return {CONFIG: {"architectures": DELETE, "head_dim": DELETE, **config}, "model.safetensors": None}


def in_sections(sections: list[int]) -> dict[str, Any]:
    """A change that makes config.json one of Qwen2-VL's text model with these sections."""
    rope = {"mrope_section": sections, "rope_theta": 1000000.0}
    return as_family({"model_type": "qwen2_vl_text", "rope_parameters": rope, "rope_theta": 1000000.0})


class ImpossibleProbability(Rule):
    """A dropout in config.json is no probability.

    torch refuses to build such a layer: "dropout probability has to be between 0 and 1".
    """

    code = "CFG132"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("in per cent", {CONFIG: {"attention_dropout": 10.0}}),
        Example("below zero", as_family({**BERT, "hidden_dropout_prob": -0.1})),
    )
    good = (Example("the ends of the range", {CONFIG: {"attention_dropout": 1.0}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key, value in level.raw.items():
                is_probability = key in level.cls.fields and PROBABILITY.search(key) is not None
                if is_probability and type(value) in {int, float} and not 0 <= value <= 1:
                    yield self.finding(CONFIG, f"is {printable(value)}; it must lie from 0 to 1", place=level.at(key))


class UnusableRopeValue(Rule):
    """The rotary embedding is given by values with which nothing can be computed.

    The model stops while it is built, or every position becomes a NaN.
    """

    code = "CFG133"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("no base period", {CONFIG: {"rope_parameters": {"rope_theta": 0}}}, also=("CFG205",)),
        Example("sections of a wider head", in_sections([4, 6, 6])),
        Example("more than a whole head", {CONFIG: {"rope_parameters": {"partial_rotary_factor": 2.0}}}),
        Example("a list", {CONFIG: {"rope_parameters": {"rope_theta": [10000.0]}}}),
        Example("nothing", {CONFIG: {"rope_parameters": {"rope_theta": None}}}),
        Example("a type that is no word", {CONFIG: {"rope_parameters": {"rope_type": 7}}}),
    )
    good = (
        Example("an integer", {CONFIG: {"rope_parameters": {"rope_theta": 10000}}}),
        Example("sections of half a head", in_sections([1, 1, 2])),
        Example(
            "one block for each kind of layer",
            as_family({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_type": "default"}}}),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        for level in () if config is None or "auto_map" in config else config.levels:
            whole = level.mapping("rope_parameters")
            for place, message in () if whole is None else (*unusable(whole), *uneven_sections(level, whole)):
                yield self.finding(CONFIG, message, place=place)


class ImpossibleRouting(Rule):
    """Experts are chosen in a way that their number does not allow.

    Routing stops at the first token: "selected index k out of range".
    """

    code = "CFG134"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("more than there are", as_family({**MIXTRAL, "num_experts_per_tok": 8})),
        Example("none", as_family({**MIXTRAL, "num_experts_per_tok": 0})),
        Example("the default of the class, of fewer experts", as_family({"model_type": "qwen3_moe", "num_experts": 4})),
    )
    good = (
        Example("all of them", as_family({**MIXTRAL, "num_experts_per_tok": 4})),
        Example(
            "none, of no experts",
            as_family({"model_type": "qwen3_moe", "num_experts": 0, "num_experts_per_tok": 0, "mlp_only_layers": [0]}),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key, many in (*[("num_experts_per_tok", name) for name in EXPERTS], ("topk_group", "n_group")):
                chosen, there = value_of(level, key), value_of(level, many)
                told = next((name for name in (key, many) if name in level.raw), None)
                if chosen is None or there is None or there < 1 or told is None:
                    continue
                if not 1 <= chosen <= there:
                    message = f"asks for {shown(level, key)} of {shown(level, many)}"
                    yield self.finding(CONFIG, message, place=level.at(told), names=(key, many))


class UnevenHeads(Rule):
    """The heads of attention do not divide the width of the model, and nothing else says how wide a head is.

    The model is refused while it is built, or its first step stops with a size that does not come out.
    """

    code = "CFG135"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("of an encoder", as_family({**BERT, "num_attention_heads": 3})),
        Example("the number of the default", as_family({**BERT, "num_attention_heads": DELETE})),
        Example("of GPT-2", as_family({"model_type": "gpt2", "n_embd": 16, "n_head": 5})),
    )
    good = (
        Example("even", as_family(BERT)),
        Example("a family with a width for each head", as_family({"model_type": "t5", "d_model": 16, "num_heads": 3})),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.linter.rules.config import IndivisibleHeads

        told = {finding.place for finding in IndivisibleHeads().check(repository)}
        for level in judged(repository):
            if level.cls.name not in data("even_heads")["classes"]:
                continue
            says_width = any(level.raw.get(key) is not None for key in HEAD_WIDTHS)
            for wide, heads in () if says_width else data("even_heads")["classes"][level.cls.name]:
                width, number = value_of(level, wide), value_of(level, heads)
                place = level.at(heads if heads in level.raw else wide)
                # Without a width in the file the class may know another key for it, as BLOOM's does.
                if wide in level.raw and width and number and width % number and place not in told:
                    message = f"has {shown(level, heads)}, which do not divide {shown(level, wide)}"
                    yield self.finding(CONFIG, message, place=place, names=(heads, wide))


class ImplausibleEpsilon(Rule):
    """The term that keeps a norm from dividing by zero is none, or as large as what it is added to.

    Every model has between 1e-12 and 1e-3 there: another one has a slip in it, and each layer is scaled wrongly.
    """

    code = "CFG232"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a sign lost", {CONFIG: {"rms_norm_eps": 1.0}}),
        Example("zero", {CONFIG: {"rms_norm_eps": 0.0}}),
    )
    good = (
        Example("the largest in use", {CONFIG: {"rms_norm_eps": 1e-3}}),
        Example("the smallest", {CONFIG: {"rms_norm_eps": 1e-12}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key, value in level.raw.items():
                is_epsilon = key in level.cls.fields and EPSILON.search(key) is not None
                if is_epsilon and type(value) in {int, float} and not 0 < value < LARGEST_EPSILON:
                    yield self.finding(CONFIG, f"is {printable(value)}", place=level.at(key))


RULES: Final[tuple[Rule, ...]] = (
    ImpossibleProbability(),
    UnusableRopeValue(),
    ImpossibleRouting(),
    UnevenHeads(),
    ImplausibleEpsilon(),
)

PROBABILITY: Final = re.compile(r"(?:^|_)(?:dropout|pdrop)(?:_prob|_rate|_p|_prob_rate)?$")
EPSILON: Final = re.compile(r"(?:^|_)(?:layer_?norm|rms_norm|norm|ln|batch_norm)_?(?:eps|epsilon)$")
LARGEST_EPSILON: Final = 0.05
IN_SECTIONS: Final = frozenset({"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"})
HEADS: Final = "num_attention_heads"
SCALES: Final = ("beta_fast", "beta_slow", "factor", "partial_rotary_factor", "original_max_position_embeddings")
HEAD_WIDTHS: Final = ("head_dim", "d_kv", "kv_channels", "d_head")
EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts")


def value_of(level: Level, key: str) -> int | None:
    """What a class takes for a key: the file's value, or else its own default; None where it is no integer."""
    if key not in level.cls:
        return None
    defaults: dict[str, int] = data("even_heads")["defaults"].get(level.cls.name, {})
    value = level.raw.get(key, defaults.get(key))
    return value if type(value) is int else None


def shown(level: Level, key: str) -> str:
    """`num_attention_heads 12`, and that it is the default where the file does not say."""
    whence = "" if key in level.raw else " (the default)"
    return f"{key} {printable(value_of(level, key))}{whence}"


def uneven_sections(level: Document, whole: Document) -> Iterator[tuple[str, str]]:
    """Of positions in time, height and width: sections that are not half of what is rotated of a head."""
    sections, width, heads = whole.integers("mrope_section"), level.integer("hidden_size"), level.integer(HEADS)
    head = level.integer("head_dim") or (width // heads if width and heads and heads > 0 else None)
    share = whole.number("partial_rotary_factor") or level.number("partial_rotary_factor") or 1.0
    if level.string("model_type") in IN_SECTIONS and sections and head and 2 * sum(sections) != int(head * share):
        message = f"adds up to {sum(sections)}; half of what is rotated of a head is {int(head * share) // 2}"
        yield whole.at("mrope_section"), message


def unusable(whole: Document) -> Iterator[tuple[str, str]]:
    """Place and what is wrong there, of one block, or of one for each kind of layer."""
    is_nested = any(isinstance(value, dict) for value in whole.raw.values()) and "rope_type" not in whole
    for key, value in whole.raw.items() if is_nested else ():
        part = whole.mapping(key)
        if part is not None:
            yield from unusable(part)
        elif key.endswith("_attention"):
            yield whole.at(key), f"is {printable(value, 40)}, and no description of positions"
    theta = whole.raw.get("rope_theta", 1.0)
    if type(theta) not in {int, float} or theta <= 0:
        yield whole.at("rope_theta"), f"is {printable(theta, 40)}; it must be a number above 0"
    for key in SCALES:
        value = whole.raw.get(key, 1.0)
        if value is not None and (type(value) not in {int, float} or value <= 0):
            yield whole.at(key), f"is {printable(value, 40)}; it must be a number above 0"
    if (whole.number("partial_rotary_factor") or 0) > 1:
        yield whole.at("partial_rotary_factor"), "is more than 1, the whole of a head"
    if not isinstance(whole.raw.get("rope_type", ""), str):
        yield whole.at("rope_type"), f"is {printable(whole.raw['rope_type'], 40)}, and no word"
