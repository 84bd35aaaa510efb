"""WGT: what is in the weights, against what config.json says that there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.tensors import FLOATS, HEADER_NAMES
from repokit.linter.examples import LABELS_IN_CARD, Example, edited, safetensors, tensors_of
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.expected_tensors import explanation, judged_right, mistaken
from repokit.printable import count, size
from repokit.repo.config import CONFIG
from repokit.repo.tensor_names import numbers
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.linter.examples import Change
    from repokit.repo.repository import Repository

EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
MOST: Final = 10_000  # layers or experts: a hostile config.json does not decide how long a loop runs


# Their num_hidden_layers counts something else than the blocks of their one stack (transformers 5.24).
COUNTED_OTHERWISE: Final = frozenset({"efficientnet", "dory"})


class MissingLayer(Rule):
    """Layers are missing from the weights.

    A merge with parts of the model offloaded, or a save without the frozen ones, drops whole layers: transformers loads
    the model with random values in their place, and prints a report instead of an error.
    """

    code = "WGT104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("fewer layers than config.json says", {CONFIG: {"num_hidden_layers": 4}}),
        Example(
            "a layer in the middle",
            {SINGLE: edited(rename=lambda name: name.replace("layers.1.", "layers.2."))},
            also=("WGT112",),
        ),
    )
    good = (
        Example(
            "an extra layer that drafts tokens",
            {
                CONFIG: {"num_nextn_predict_layers": 1},
                SINGLE: edited(add={"model.layers.2.eh_proj.weight": ("BF16", (16, 32))}),
            },
        ),
        Example(
            "a Sequential whose activations have no weights",
            {
                CONFIG: {"architectures": ["LlamaWithProjector"]},
                SINGLE: edited(add={f"projector.layers.{number}.weight": ("BF16", (16, 16)) for number in (0, 2)}),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if not weights.whole or weights.of_adapter or judged_right(repository):
            return
        alone = config is not None and not config.composed and len(weights.stacks) == 1
        counted = config is not None and alone and config.model_type not in COUNTED_OTHERWISE
        declared = (config.layers or 0) if config is not None and counted and "auto_map" not in config else 0
        for stack, layers in weights.stacks.items():
            wanted = range(min(max(declared, max(layers) + 1), MOST))
            if missing := [f"{stack}.{layer}" for layer in wanted if layer not in layers]:
                message = f"lacks {count(len(missing), 'layer')} of {stack}, and holds {len(layers):,}"
                hint = explanation(repository)
                yield self.finding(weights.main or SINGLE, message, names=missing, place=missing[0], hint=hint)


MOE: Final = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}


def of_experts(*numbers: int) -> tuple[str, ...]:
    """The names of the tensors of experts with these numbers, in both layers."""
    block = "model.layers.{}.mlp.experts.{}.{}_proj.weight"
    parts = ("gate", "up", "down")
    return tuple(block.format(layer, expert, part) for layer in range(2) for expert in numbers for part in parts)


class MissingExpert(Rule):
    """Experts are missing from a layer.

    transformers loads the layer with random values in their place, and prints a report instead of an error.
    """

    code = "WGT105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("two of four experts", {CONFIG: MOE, SINGLE: weights_of(MOE, drop=of_experts(2, 3))}),
        Example("a gap", {CONFIG: MOE, SINGLE: weights_of(MOE, drop=of_experts(2))}),
        Example(
            "too few in one tensor",
            {
                CONFIG: {"num_local_experts": 4},
                SINGLE: edited(add={"model.layers.0.mlp.experts.down_proj": ("BF16", (2, 16, 24))}),
            },
        ),
    )
    good = (Example("every expert", {CONFIG: MOE, SINGLE: weights_of(MOE)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if not weights.whole or judged_right(repository):
            return
        declared = (config.experts or 0) if config is not None else 0
        for pattern, names in weights.groups.items():
            if (found := EXPERTS.search(pattern)) and (missing := missing_experts(pattern, found, names, declared)):
                message = f"lacks {count(len(missing), 'expert tensor')} of the pattern {pattern}"
                yield self.finding(weights.main or SINGLE, message, names=missing, place=missing[0])
        together = [name for names in fused_groups(repository).values() for name in names]
        if short := [name for name in together if weights.tensors[name].shape[0] < declared and not weights.quantized]:
            message = f"has fewer experts in one tensor than the {declared:,} that {CONFIG} declares"
            yield self.finding(weights.main or SINGLE, message, names=short, place=short[0])


EXPERTS: Final = re.compile(r"(?:^|\.)experts\.\*\.")
FUSED: Final = re.compile(r"(?:^|\.)experts\.(?:gate_up_proj|gate_proj|up_proj|down_proj|w[123])(?:\.weight)?$")


class EmbeddingRows(Rule):
    """The embedding has another number of rows than `vocab_size` says.

    Loading stops with a size mismatch.
    """

    code = "WGT106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("config.json counts a token that was added", {CONFIG: {"vocab_size": 33}}),
        Example("config.json of the base, weights resized", {CONFIG: {"vocab_size": 31, "pad_token_id": 0}}),
    )
    good = (
        Example(
            "rows padded to a multiple of eight, in config.json too",
            {
                CONFIG: {"vocab_size": 40},
                SINGLE: edited(add={EMBEDDING: ("BF16", (40, 16)), HEAD: ("BF16", (40, 16))}),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if config is None or weights.of_adapter or weights.embedding is None or weights.embedding.dtype not in FLOATS:
            return
        rows, allowed = weights.embedding.shape[0], config.embedding_rows
        if allowed and rows not in allowed and not judged_right(repository):
            message = f"has {rows:,} rows; config.json says vocab_size {config.vocab_size:,}"
            hint = "set vocab_size to the number of rows, or resize the embedding"
            yield self.finding(weights.main or SINGLE, message, place=weights.embedding.name, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.suggested import by_suggestion

        return by_suggestion(repository, finding)


class MissingHead(Rule):
    """The weights have no output head, and config.json says that it is not the embedding.

    transformers loads the model with a random head, and prints a report instead of an error.
    """

    code = "WGT107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the head was dropped as a copy of the embedding", {SINGLE: edited(drop=(HEAD,))}),)
    good = (
        Example("tied: no head in the file", base="tied"),
        Example(
            "a head of another name",
            {
                CONFIG: {"architectures": ["GPTNeoXForCausalLM"]},
                SINGLE: edited(rename=lambda name: name.replace("lm_head", "embed_out")),
            },
        ),
        Example("an embedding model", {SINGLE: edited(drop=(HEAD,)), "modules.json": "[]"}),
        Example("a value head beside", {SINGLE: edited(add={"value_head.weight": ("BF16", (1, 16))})}),
        Example(
            "a classifier with its head",
            {
                **LABELS_IN_CARD,
                CONFIG: {"architectures": ["LlamaForSequenceClassification"]},
                SINGLE: edited(drop=(HEAD,), add={"score.weight": ("BF16", (2, 16))}),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if config is None or weights.of_adapter or not weights.whole or judged_right(repository):
            return
        for architecture in () if mistaken(repository) else config.architectures:
            if lacks_head(repository, architecture):
                message = f"has no output head, which {CONFIG} asks for: {architecture}"
                hint = "save the model again with its head" + (
                    "; set tie_word_embeddings to true only if it was trained so" if generates(architecture) else ""
                )
                yield self.finding(weights.main or SINGLE, message, hint=hint)


def classifier(rows: int) -> Callable[[bytes], bytes]:
    """A change that makes a classifier of a language model."""
    return edited(drop=(HEAD,), add={"score.weight": ("BF16", (rows, 16))})


CLASSIFIES: Final = re.compile(r"For(?:Sequence|Token|Image|Audio)Classification$").search
CLASSES: Final = {"architectures": ["LlamaForSequenceClassification"]}
TWO_LABELS: Final = {**CLASSES, "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
CLASSIFIER: Final[Mapping[str, Change]] = {SINGLE: classifier(2), "generation_config.json": None, **LABELS_IN_CARD}


class LabelCount(Rule):
    """The classification head has another number of rows than config.json has labels.

    Loading stops with a size mismatch; without `id2label` readers expect two.
    """

    code = "WGT109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the config.json of another model", {**CLASSIFIER, CONFIG: {**TWO_LABELS, "id2label": {"0": "no"}}}),
        Example("labels were not written", {**CLASSIFIER, CONFIG: CLASSES, SINGLE: classifier(3)}),
    )
    good = (
        Example("a label a row", {**CLASSIFIER, CONFIG: TWO_LABELS}),
        Example("two rows and no labels", {**CLASSIFIER, CONFIG: CLASSES}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights, config = repository.weights, repository.config
        if config is None or weights.of_adapter or not any(CLASSIFIES(name) for name in config.architectures):
            return
        if judged_right(repository):
            return
        labels = config.labels
        for name in ("score.weight", "classifier.weight", "classifier.out_proj.weight"):
            head = weights.tensors.get(name)
            if head is not None and len(head.shape) == 2 and head.dtype in FLOATS and head.shape[0] != labels:
                message = f"has {head.shape[0]:,} rows; config.json has {count(labels, 'label')}"
                yield self.finding(weights.main or SINGLE, message, place=name, hint="write id2label and label2id")


def as_dtype(dtype: str) -> Callable[[bytes], bytes]:
    """A change that stores every tensor in another dtype."""
    return lambda content: safetensors({name: (dtype, shape) for name, (_, shape) in tensors_of(content).items()})


class StoredInFloat32(Rule):
    """The weights are stored in float32, and config.json declares a dtype of half the size.

    Everyone downloads and stores twice what they use: a training run kept its master weights.
    """

    code = "WGT108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the master weights of a training run", {SINGLE: as_dtype("F32")}),)
    good = (
        Example(
            "declared and stored in float32",
            {CONFIG: {"dtype": "float32", "model_type": "gpt2"}, SINGLE: as_dtype("F32")},
        ),
        Example("one matrix in float32", {SINGLE: edited(add={HEAD: ("F32", (32, 16))})}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        declared, stored = dtypes(repository)
        if stored == "F32" and declared in {"BF16", "F16"}:
            total = size(sum(repository.weights.stored.bytes.values()))
            name = HEADER_NAMES[declared]
            message = f"holds {total} of float32 matrices; config.json declares {name}"
            hint = f"`weights.dtype: {name}` in the recipe of `repokit build` casts them; or declare float32"
            yield self.finding(repository.weights.main or SINGLE, message, hint=hint)


class DeclaredDtype(Rule):
    """config.json declares another dtype than the weights are stored in.

    Loaders that ask for `auto` cast: bfloat16 to float16 loses range without a word, float32 takes twice the memory.
    """

    code = "WGT202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("declared float32, stored bfloat16", {CONFIG: {"dtype": "float32"}}),
        Example("declared float16, stored bfloat16", {CONFIG: {"dtype": "float16"}}),
    )
    good = (Example("no dtype declared", {CONFIG: {"dtype": None}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        declared, stored = dtypes(repository)
        if declared is None or stored is None or stored in {declared, "F32"}:
            return
        message = f"declares {HEADER_NAMES[declared]}; most of the weights are stored in {HEADER_NAMES[stored]}"
        place = None if repository.config is None else repository.config.dtype_place
        yield self.finding(CONFIG, message, place=place, hint=f'"dtype": "{HEADER_NAMES[stored]}"')

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.config import with_stored_dtype

        return with_stored_dtype(repository, finding)


RULES: Final = (
    MissingLayer(),
    MissingExpert(),
    EmbeddingRows(),
    MissingHead(),
    LabelCount(),
    StoredInFloat32(),
    DeclaredDtype(),
)


def missing_experts(pattern: str, found: re.Match[str], names: list[str], declared: int) -> list[str]:
    """The names that a pattern of expert tensors lacks: of `declared` experts, or up to the largest of the layer."""
    if declared and are_complete(names, declared):
        return []
    position = pattern.count("*", 0, found.start())
    blocks: dict[tuple[tuple[int, ...], tuple[int, ...]], set[int]] = {}
    for found_numbers in numbers(pattern, names):
        block = found_numbers[:position], found_numbers[position + 1 :]
        blocks.setdefault(block, set()).add(found_numbers[position])
    return [
        filled(pattern, (*before, expert, *behind))
        for (before, behind), there in blocks.items()
        for expert in range(min(max(declared, max(there) + 1), MOST))
        if expert not in there
    ]


def are_complete(names: list[str], declared: int) -> bool:
    """Whether these are `declared` experts of every layer that has expert 0, and no others."""
    firsts = [name.split("experts.0.", 1) for name in names if "experts.0." in name]
    if len(firsts) * declared != len(names):
        return False
    wanted = {f"{before}experts.{expert}.{behind}" for before, behind in firsts for expert in range(declared)}
    return wanted == set(names)


def fused_groups(repository: Repository) -> dict[str, list[str]]:
    """The names of tensors that hold the experts of a layer together, by pattern: those of three dimensions."""
    weights = repository.weights
    found = {pattern: names for pattern, names in weights.groups.items() if FUSED.search(pattern)}
    return {pattern: names for pattern, names in found.items() if len(weights.tensors[names[0]].shape) == 3}


def filled(pattern: str, values: tuple[int, ...]) -> str:
    """A pattern with a number for each `*`."""
    parts = pattern.split("*")
    return "".join(f"{part}{value}" for part, value in zip(parts, [*map(str, values), ""], strict=True))


# Whatever a head may be called in transformers 5.24: nn.Linear(..., vocab_size) and nn.Linear(..., num_labels) in
# models/*/modeling_*.py. Quantized heads keep the names and lose the shape.
HEAD_NAMES: Final = re.compile(
    r"(?:^|[._])(?:head|embed_out|output_projection|proj_out|lm_loss|predictions|cls|generator)(?:[._]|$)|^output\."
)
CLASSIFIER_NAMES: Final = re.compile(
    r"(?:^|[._])(?:classifier|score|head|summary|logits_proj|cls|out_proj|qa_outputs|fc|dense|class\w*)(?:[._]|$)"
)


def generates(architecture: str) -> bool:
    """Whether a class predicts tokens from left to right."""
    return architecture.endswith(("ForCausalLM", "LMHeadModel"))


def lacks_head(repository: Repository, architecture: str) -> bool:
    """Whether no tensor outside of the layers can be the head of this class, by name or by shape."""
    weights, config = repository.weights, repository.config
    plain = [pattern for pattern in weights.groups if "*" not in pattern]
    if architecture.endswith("ForSequenceClassification"):
        return not any(CLASSIFIER_NAMES.search(name) for name in plain if not name.startswith("lm_head"))
    if config is None or not generates(architecture) or config.tie_word_embeddings is not False:
        return False
    if repository.has("modules.json"):  # sentence-transformers loads the body alone
        return False
    embedding = weights.embedding
    if embedding is None or any(HEAD_NAMES.search(name) for name in plain):
        return False
    rows = embedding.shape[0]
    return not any(rows in weights.tensors[name].shape for name in plain if name != embedding.name)


def dtypes(repository: Repository) -> tuple[str | None, str | None]:
    """Declared and stored, as headers spell them; None, None where they may differ: quantized weights, adapters."""
    weights, config = repository.weights, repository.config
    if config is None or not weights.files or weights.of_adapter or weights.quantized:
        return None, None
    return config.dtype, weights.stored.dtype
