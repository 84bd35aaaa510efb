"""CFG: what the config classes of transformers 5 refuse although every type is right.

What they ask for is in repokit/data/field_types.json.z, read off the classes; wrong types themselves are FIL104.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable, some
from repokit.repo.config import CONFIG
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.schema.field_types import Level

CODE: Final = {"auto_map": {"AutoConfig": "configuration_x.X"}}
CODE_FILE: Final = {"configuration_x.py": "class X: ...\n"}


class RefusedArchitecture(Rule):
    """Two values in config.json exclude each other, or one is none that the model can have.

    The config class of transformers checks it when it reads the file, and stops with a validation error.
    """

    code = "CFG114"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a deviation that lies outside of its limits", {CONFIG: {"initializer_range": 2.0}}),
        Example(
            "tied weights, which the class does not have", {CONFIG: {"model_type": "dbrx", "tie_word_embeddings": True}}
        ),
        Example(
            "experts in groups that do not come out even",
            {CONFIG: {"model_type": "axk2", "n_group": 3, "topk_group": 2, "n_routed_experts": 64}},
        ),
    )
    good = (
        Example(
            "a size that the class works out",
            {CONFIG: {"model_type": "bamba", "mamba_d_head": "auto", "mamba_n_heads": 4}},
        ),
        Example(
            "code of the repository", {CONFIG: {"model_type": "dbrx", "tie_word_embeddings": True, **CODE}, **CODE_FILE}
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.field_types import refusals

        for level in judged(repository):
            for condition, values in refusals(level):
                if not is_told_elsewhere(level, frozenset(values)):
                    key = next(name for name in values if name in level.raw)
                    shown = ", ".join(f"{name} = {printable(value, 40)}" for name, value in values.items())
                    message = f"is refused by the config class of {level.cls.name!r}: {condition}, with {shown}"
                    yield self.finding(CONFIG, message, place=level.at(key), names=tuple(values))


class UnknownLayerType(Rule):
    """A word in layer_types or mlp_layer_types is none that transformers has.

    It refuses the config when it reads the file: "entries must be in".
    """

    code = "CFG115"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a word of another library", {CONFIG: {"layer_types": ["global", "full_attention"]}}),
        Example(
            "a kind of MLP",
            {CONFIG: {"layer_types": ["full_attention"] * 2, "mlp_layer_types": ["dense", "moe"]}},
        ),
    )
    good = (
        Example("older words, which are converted", {CONFIG: {"layer_types": ["attention", "mamba"]}}),
        Example(
            "written by a version that is newer than we are",
            {CONFIG: {"layer_types": ["spiral", "full_attention"], "transformers_version": "9.0.0"}},
        ),
        Example("code of the repository", {CONFIG: {"layer_types": ["global", "local"], **CODE}, **CODE_FILE}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key, known in words(level):
                # Without layer_types the other list is not looked at.
                entries = level.raw.get(key) if level.raw.get("layer_types") is not None else None
                strange = [word for word in entries if word not in known] if isinstance(entries, list) else []
                if unknown := sorted({word for word in strange if isinstance(word, str)}):
                    message = f"has {some(tuple(printable(word, 40) for word in unknown))}"
                    hint = f"one of {', '.join(known)}"
                    yield self.finding(CONFIG, message, place=level.at(key), names=unknown, hint=hint)


class OddRotaryHead(Rule):
    """head_dim is odd, and every one of its numbers is rotated.

    Rotary positions take numbers in pairs: transformers refuses the config when it reads the file.
    """

    code = "CFG116"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("a head cut by hand", {CONFIG: {"head_dim": 7}}),)
    good = (Example("code of the repository", {CONFIG: {"head_dim": 7, **CODE}, **CODE_FILE}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            head = level.raw.get("head_dim")
            if "head_dim" in level.cls.checks and type(head) is int and head > 4 and head % 2 and is_whole(level.raw):
                yield self.finding(CONFIG, f"is {head}", place=level.at("head_dim"), hint="an even number")


class RefusedLabels(Rule):
    """The labels in config.json are none that transformers can read.

    It counts them when it reads the file, and stops with ValueError.
    """

    code = "CFG117"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("the two tables were exchanged", {CONFIG: {"id2label": {"no": 0, "yes": 1}}}),
        Example(
            "a choice of one", {CONFIG: {"problem_type": "single_label_classification", "id2label": {"0": "score"}}}
        ),
    )
    good = (Example("one number as the answer", {CONFIG: {"problem_type": "regression", "id2label": {"0": "score"}}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            names = level.raw.get("id2label")
            for key in names if isinstance(names, dict) else ():
                if not is_number(key):
                    message = f"has {printable(key, 40)!r} where a label's number is due"
                    yield self.finding(CONFIG, message, place=level.at("id2label"), hint='{"0": "name", "1": ...}')
                    break
            count = len(names) if isinstance(names, dict) else level.raw.get("num_labels")
            if level.raw.get("problem_type") == "single_label_classification" and type(count) is int and count == 1:
                message = "is single_label_classification, and there is one label"
                yield self.finding(CONFIG, message, place=level.at("problem_type"), hint='"regression"')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import exchanged

        return exchanged(repository, finding)


class ComputedKey(Rule):
    """config.json sets what its class works out itself.

    The class has a property of that name, which cannot be set: reading the file stops with AttributeError.
    """

    code = "CFG118"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("what another reader asks for", {CONFIG: {"model_type": "mamba", "layer_types": ["mamba", "mamba"]}}),
        Example("a dump of every attribute", {CONFIG: {"use_return_dict": True}}),
    )
    good = (Example("a family in which it is a setting", {CONFIG: {"layer_types": ["full_attention"] * 2}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for level in judged(repository):
            for key in level.raw:
                if key in level.cls.computed:
                    message = f"cannot be set: the config class of {level.cls.name!r} works it out"
                    yield self.finding(CONFIG, message, place=level.at(key), hint="delete the key")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.keys import dropped

        return dropped(repository, finding)


RULES: Final = (RefusedArchitecture(), UnknownLayerType(), OddRotaryHead(), RefusedLabels(), ComputedKey())

# Of these another rule speaks where config.json has them all: CFG104 of lists with an entry a layer.
PER_LAYER: Final = frozenset({"layer_types", "mlp_layer_types", "num_hidden_layers"})
HEADS: Final = frozenset({"hidden_size", "num_attention_heads"})


def judged(repository: Repository) -> Iterator[Level]:
    """The objects of config.json whose classes are known; none of a file that a newer transformers wrote."""
    from repokit.schema.field_types import is_newer, levels

    config = repository.config
    if config is not None and not is_newer(config.raw):
        yield from levels(config.raw)


def is_told_elsewhere(level: Level, names: frozenset[str]) -> bool:
    """Whether CFG104, CFG112 or CFG135 speaks of these values."""
    if names != HEADS:
        return names <= PER_LAYER
    if level.cls.name in data("even_heads")["classes"] and "hidden_size" in level.raw and "head_dim" not in level.raw:
        return True
    divided = level.raw.get("model_type") in data("divided_heads")["ids"]
    return divided and names <= level.raw.keys()


def words(level: Level) -> Iterator[tuple[str, list[str]]]:
    """The lists whose words this class checks, with the words that it takes."""
    from repokit.schema.field_types import table

    stored = table()["layer_types"]
    counted = "num_hidden_layers" in level.cls.checks or "num_hidden_layers" in level.raw
    for key in ("layer_types", "mlp_layer_types") if counted else ():
        if key in level.cls.checks:
            yield key, stored[key] + (stored["older"] if key == "layer_types" else [])


def is_whole(raw: Any) -> bool:  # noqa: ANN401 - a JSON object
    """Whether the whole head is rotated, as far as config.json says."""
    blocks = [raw, *(raw[key] for key in ("rope_parameters", "rope_scaling") if isinstance(raw.get(key), dict))]
    nested = [value for block in blocks[1:] for value in block.values() if isinstance(value, dict)]
    return not any("partial_rotary_factor" in block for block in (*blocks, *nested))


def is_number(key: str) -> bool:
    """Whether Python's `int` takes it."""
    try:
        int(key)
    except ValueError:
        return False
    return True
