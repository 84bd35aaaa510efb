"""ADP: an adapter against the model that it is for, where the config of that model is at hand.

The skeleton of the base (repokit.architectures) says which modules it has, and so which tensors the adapter must hold.
A rule here speaks only of what no rule with a closer view has spoken of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from repokit.architectures.grouping import summary
from repokit.linter.examples import Change, Example, edited, lora, single
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules import adapter as pairs, adapter_names
from repokit.linter.rules.expected_adapter import held, without
from repokit.printable import count, printable, some
from repokit.repo.adapter import ADAPTER_CONFIG
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.adapter_names import PREFIX
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from repokit.architectures.adapters import AdapterComparison
    from repokit.linter.rules.expected_adapter import Held
    from repokit.repo.repository import Repository

LAYER: Final = PREFIX + "model.layers."
EMBEDDING: Final = PREFIX + "model.embed_tokens"
HEAD: Final = PREFIX + "lm_head"


def beside(**changes: object) -> dict[str, bytes]:
    """The config of the base, changed, and its tokenizer beside the adapter."""
    config = json.loads(single()["config.json"])
    return {"config.json": json.dumps({**config, **changes}).encode(), **tokenizer()}


def tokenizer() -> dict[str, bytes]:
    """The tokenizer of the base, which has 32 ids, beside the adapter."""
    return {path: content for path, content in single().items() if path.startswith("tokenizer")}


def embedded(rows: int) -> Callable[[bytes], bytes]:
    """Embedding and head of so many rows in the adapter."""
    return edited(add={f"{module}.weight": ("F32", (rows, 16)) for module in (EMBEDDING, HEAD)})


def in_a_folder(change: Callable[[bytes], bytes] = bytes, **changes: object) -> dict[str, Change]:
    """The adapter and the config of its base in a folder, the tokenizer at the top."""
    files, folder = lora(), "adapter/"
    return {
        ADAPTER: None,
        ADAPTER_CONFIG: None,
        folder + ADAPTER: change(files[ADAPTER]),
        folder + ADAPTER_CONFIG: files[ADAPTER_CONFIG],
        folder + "config.json": beside(**changes)["config.json"],
        **tokenizer(),
    }


class AdapterOfAnotherBase(Rule):
    """Tensors of an adapter do not fit the shapes of its base model.

    Loading stops with a size mismatch: the adapter was trained on a model of another size.
    """

    code = "ADP116"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the config of a wider base", beside(hidden_size=32, num_attention_heads=4, head_dim=4), "lora"),
        Example("more heads for the values", beside(num_key_value_heads=4), "lora"),
    )
    good = (Example("the config of its base lies beside", beside(), "lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one, rest in differing(repository, verified=True):
            if rest.misshapen:
                yield self.finding(
                    one.path,
                    misshapen(one, rest),
                    names=[name for name, _, _ in rest.misshapen],
                    place=rest.misshapen[0][0],
                    hint=one.hint,
                )


class UnplacedAdapterTensor(Rule):
    """An adapter holds tensors for modules that its base model does not have, or that are not adapted.

    PEFT passes them over with a warning among others: what was trained in them is lost.
    """

    code = "ADP117"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a base with fewer layers", beside(num_hidden_layers=1), "lora"),
        Example(
            "a module that target_modules does not name",
            {**beside(), ADAPTER_CONFIG: {"target_modules": ["q_proj"]}},
            "lora",
        ),
        Example(
            "the names of a model inside of another",
            {
                **beside(),
                ADAPTER: edited(rename=lambda name: name.replace(".model.layers.", ".language_model.layers.")),
            },
            "lora",
        ),
    )
    good = (
        Example(
            "the embeddings, trained as well",
            {**beside(), ADAPTER: edited(add={f"{EMBEDDING}.weight": ("F32", (32, 16))})},
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one, rest in differing(repository, verified=True):
            if rest.unexpected:
                names = rest.unexpected
                yield self.finding(one.path, unexpected(one, rest), names=names, place=names[0], hint=one.hint)


class MissingAdapterTensor(Rule):
    """An adapter lacks tensors for modules of its base model that adapter_config.json chooses.

    PEFT leaves them at their initial values, with a warning among others: those modules are not adapted.
    """

    code = "ADP118"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a base with more layers", beside(num_hidden_layers=3), "lora"),
        Example(
            "one module was lost",
            {
                **beside(),
                ADAPTER: edited(
                    drop=(f"{LAYER}1.self_attn.v_proj.lora_A.weight", f"{LAYER}1.self_attn.v_proj.lora_B.weight")
                ),
            },
            "lora",
        ),
        Example(
            "a module trained in full was not saved",
            {**beside(), ADAPTER_CONFIG: {"modules_to_save": ["lm_head"]}},
            "lora",
        ),
    )
    good = (
        Example(
            "only the first layer",
            {**beside(num_hidden_layers=3), ADAPTER_CONFIG: {"layers_to_transform": [0, 1]}},
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one, rest in differing(repository, verified=True):
            if rest.missing:
                names = rest.missing
                yield self.finding(one.path, missing(one, rest), names=names, place=names[0], hint=one.hint)


class UntargetableBase(Rule):
    """adapter_config.json chooses no module that the base model has.

    PEFT stops: it finds nothing to adapt.
    """

    code = "ADP119"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "an expression for another architecture",
            {**beside(), ADAPTER_CONFIG: {"target_modules": r".*\.(?:c_attn|c_proj)"}},
            "lora",
        ),
    )
    good = (
        Example(
            "an expression that chooses the same modules",
            {**beside(), ADAPTER_CONFIG: {"target_modules": r"model\.layers\.\d+\.self_attn\.(q|v)_proj"}},
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one in held(repository):
            if one.verified and is_untargetable(one) and not closer(repository):
                config = one.adapter.config
                message = f"chooses no module of {one.architecture}"
                if one.wanted.unmatched:
                    message += f": it has no {some(one.wanted.unmatched)}"
                yield self.finding(config.path, message, place=config.at("target_modules"))


class UnembeddedToken(Rule):
    """The tokenizer beside an adapter has ids beyond the embedding.

    The embedding was resized for training and not saved with the adapter, or a token was added only to pad: the first
    of these ids that comes up stops a run with an index out of range.
    """

    code = "ADP205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("tokens were added, the embedding was not saved", in_a_folder(vocab_size=30), "lora"),
        Example("the embedding was saved before tokens were added", in_a_folder(embedded(31), vocab_size=30), "lora"),
    )
    good = (
        Example("the resized embedding lies in the adapter", in_a_folder(embedded(32), vocab_size=30), "lora"),
        Example("a vocabulary as large as the embedding", in_a_folder(), "lora"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if repository.config is not None:
            return  # then vocab_size speaks of the model as it was resized, and another rule of the ids beyond it
        for one in held(repository):
            found, rows = repository.tokenizer, embedding_rows(one)
            if found is not None and rows is not None and found.max_id >= rows:
                message = f"has ids up to {found.max_id:,}, and the embedding has {rows:,} rows"
                hint = "save the adapter with save_embedding_layers=True, or do not add tokens to its tokenizer"
                yield self.finding(found.path, message, hint=hint)


class DoubledEmbedding(Rule):
    """An adapter holds the embedding of its base model, or the head that shares its weight, more than once.

    One copy of a large vocabulary is larger than most adapters; which of two counts depends on the loader.
    """

    code = "ADP206"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "under both of its names",
            {
                **beside(),
                ADAPTER_CONFIG: {"target_modules": ["q_proj", "v_proj"]},
                ADAPTER: edited(
                    add={f"{EMBEDDING}.{name}": ("F32", (32, 16)) for name in ("weight", "base_layer.weight")}
                ),
            },
            "lora",
        ),
        Example("a head that is the embedding", {**beside(tie_word_embeddings=True), ADAPTER: embedded(32)}, "lora"),
    )
    good = (Example("embedding and head, which are two", {**beside(), ADAPTER: embedded(32)}, "lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one in held(repository):
            if one.adapter.config.flag("ensure_weight_tying"):
                continue  # then PEFT trains the two as one, and writes both
            if len(copies := embeddings_twice(one)) > 1:
                message = f"holds the embedding {count(len(copies), 'time')}: {some(copies)}"
                yield self.finding(one.path, message, names=copies, place=copies[0])


class DoubtfulAdapter(Rule):
    """An adapter does not seem to fit its base model.

    The adapter does not say on which class of that model it was trained, or this version knows the class only in part:
    what differs may be right. If it is not, PEFT passes it over with a warning among others.
    """

    code = "ADP204"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a base with more layers, and no task",
            {**beside(num_hidden_layers=3), ADAPTER_CONFIG: {"task_type": None}},
            "lora",
        ),
    )
    good = (Example("no task, and all fits", {**beside(), ADAPTER_CONFIG: {"task_type": None}}, "lora"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for one, rest in differing(repository, verified=False):
            names = [*(name for name, _, _ in rest.misshapen), *rest.unexpected, *rest.missing]
            if names:
                message = "; ".join(say(one, rest) for say in (misshapen, unexpected, missing) if say(one, rest))
                yield self.finding(one.path, message, names=names, place=names[0], hint=one.hint)


RULES: Final = (
    AdapterOfAnotherBase(),
    UnplacedAdapterTensor(),
    MissingAdapterTensor(),
    UntargetableBase(),
    DoubtfulAdapter(),
    UnembeddedToken(),
    DoubledEmbedding(),
)

# Rules with a closer view of the same tensors. What one of their findings names is theirs.
CLOSER: Final = (*pairs.RULES, *adapter_names.RULES)
# Those after which no tensor has the name that it must have, so that all seem to be missing.
OF_NAMES: Final = frozenset({"ADP105", "ADP106", "ADP107", "ADP108", "ADP109"})


def closer(repository: Repository) -> tuple[Finding, ...]:
    """What those rules say of this repository."""
    return repository.remember(
        ("adapters", "closer"), lambda: tuple(finding for rule in CLOSER for finding in rule.check(repository))
    )


def differing(repository: Repository, *, verified: bool) -> Iterator[tuple[Held, AdapterComparison]]:
    """Adapters that differ from what their base asks for, and what is left for this module's rules."""
    for one in held(repository):
        if one.comparison.clean or one.verified is not verified or is_untargetable(one):
            continue
        findings = closer(repository)
        named = {name for finding in findings for name in (*finding.names, finding.place or "")}
        rest = without(one.comparison, named)
        renamed = one.suggestion is not None and one.suggestion.names
        if renamed or any(finding.code in OF_NAMES for finding in findings):
            rest = replace(rest, missing=())
        yield one, rest


def is_untargetable(one: Held) -> bool:
    """Whether adapter_config.json chooses nothing that the base has."""
    by_module = one.adapter.config.string("peft_type") not in PROMPTS
    return by_module and not one.wanted.targets and "target_modules" in one.adapter.config


def misshapen(one: Held, rest: AdapterComparison) -> str:
    """The first wrong shape; empty where there is none."""
    if not rest.misshapen:
        return ""
    name, held_shape, wanted = rest.misshapen[0]
    said = " x ".join("any" if size is None else f"{size:,}" for size in wanted)
    message = f"has {count(len(rest.misshapen), 'tensor')} of another shape than {one.architecture} asks for: "
    return f"{message}{list(held_shape)}, not {said}, in {printable(name, 120)}"


def unexpected(one: Held, rest: AdapterComparison) -> str:
    """The tensors that have no place; empty where there are none."""
    if not rest.unexpected:
        return ""
    message = (
        f"holds {count(len(rest.unexpected), 'tensor')} for modules that {one.architecture} does not have, or that "
    )
    return f"{message}are not adapted: {summary(rest.unexpected, one.adapter.names)}"


def missing(one: Held, rest: AdapterComparison) -> str:
    """The tensors that are missing; empty where there are none."""
    if not rest.missing:
        return ""
    told = summary(rest.missing, one.wanted.required)
    return f"lacks {count(len(rest.missing), 'tensor')} for modules of {one.architecture} that are adapted: {told}"


def embedding_rows(one: Held) -> int | None:
    """Rows of the embedding with which the adapter runs: its own, or that of the base."""
    module = one.wanted.modules.embedding
    if module is None:
        return None
    saved = [tensor.shape[0] for tensor in one.adapter.tensors if tensor.name in spellings(module) and tensor.shape]
    return saved[0] if saved else one.wanted.modules.found[module].weight[0]


def spellings(module: str) -> tuple[str, ...]:
    """The names under which the weight of a module may lie in an adapter."""
    return f"{PREFIX}{module}.weight", f"{PREFIX}{module}.base_layer.weight"


def embeddings_twice(one: Held) -> list[str]:
    """The names of tensors that are one weight of the base."""
    modules = one.wanted.modules
    if modules.embedding is None:
        return []
    paths = [modules.embedding, *(path for path, source in modules.tied.items() if source == modules.embedding)]
    names = {name for path in paths for name in spellings(path)}
    return [name for name in one.adapter.names if name in names]
