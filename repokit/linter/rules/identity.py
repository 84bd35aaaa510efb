"""CRD: what the recipe, or the address, calls the model, against its config, its weights and its card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.linter.rules.layouts import PIPELINE
from repokit.printable import printable
from repokit.repo.card import README
from repokit.repo.config import CONFIG
from repokit.repo.identity import Identity, sizes
from repokit.repo.stored_weights import stored_weights
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class ContradictedSize(Rule):
    """The model is called after a number of parameters that it does not have.

    People choose hardware, and compare, by that number; the weights or the name are those of another model.
    """

    code = "CRD250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the variant of a sibling", identity=Identity(variant="7b-instruct")),
        Example("the name of a sibling", identity=Identity(name="Example 70B")),
    )
    good = (
        Example("no number", identity=Identity(name="Example 2", variant="instruct")),
        Example("an adapter is called after its base", base="lora", identity=Identity(name="Example 7B SQL")),
        Example("packed weights are not counted", base="awq", identity=Identity(name="Example 7B AWQ")),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        said = repository.identity
        words = None if said is None else said.variant if sizes(said.variant or "") else said.name
        if said is None or not words or not (named := sizes(words)) or repository.adapter_config is not None:
            return
        if repository.has(PIPELINE) or (repository.config is not None and repository.config.experts is not None):
            return  # the size of one part of several, or of the experts that are active
        found = stored_weights(repository)
        if found is None or found.packed or not found.elements or not repository.weights.whole:
            return
        if all(far(size.parameters, found.elements) for size in named):
            message = f"holds {found.elements:,} parameters; {said.origin} calls the model {printable(words, 60)!r}"
            yield self.finding(repository.weights.main or SINGLE, message, hint="correct the name, or the source")


def far(one: int, other: int) -> bool:
    """Whether two counts are those of two models: names round, and leave embeddings and image encoders out."""
    return max(one, other) > 2.5 * min(one, other)


class ContradictedFamily(Rule):
    """The model is called after a family whose architecture it does not have.

    Users look for the settings, the template and the license of that family, and get another model's.
    """

    code = "CRD251"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a recipe that was copied",
            {
                CONFIG: {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "attention_bias": False},
                SINGLE: None,
            },
            identity=Identity(family="Llama 3.1"),
        ),
    )
    good = (
        Example("the family", identity=Identity(family="Llama 3.1")),
        Example("a family of one's own", identity=Identity(family="Tiger")),
        Example("distilled from one into another", identity=Identity(family="DeepSeek R1 Distill Llama")),
        Example("a model that was rewritten as a Llama", identity=Identity(family="Qwen 1.5")),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        said, config = repository.identity, repository.config
        if said is None or not said.family or config is None or not (model_type := config.model_type):
            return
        named = {word for word in FAMILIES if word in re.sub(r"[^a-z]", "", said.family.lower())}
        own = {word for word in FAMILIES if word in re.sub(r"[^a-z]", "", model_type)}
        if named and own and "llama" not in own and not named & own:  # many families are published as Llamas
            message = f"has the model_type {printable(model_type, 60)!r}; {said.origin} says the family"
            message += f" {printable(said.family, 60)!r}"
            yield self.finding(CONFIG, message, place=config.at("model_type"))


# Names of families that are also in the model_types of their architectures, and in no other's.
FAMILIES: Final = frozenset(
    (
        *("bart", "bert", "bloom", "clip", "cohere", "deepseek", "exaone", "falcon", "gemma", "granite", "idefics"),
        *("llama", "mamba", "mistral", "olmo", "phi", "qwen", "siglip", "smollm", "stablelm", "starcoder", "whisper"),
    )
)


class OtherModelName(Rule):
    """`model_name` in the card is another name than the recipe's.

    The Hub shows the one from the card, and tools that find models by name find the other.
    """

    code = "CRD252"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the card of an earlier model",
            {README: with_lines("model_name: Example 1\n")},
            identity=Identity(name="Example 2"),
        ),
    )
    good = (
        Example(
            "spelled another way",
            {README: with_lines("model_name: example-2\n")},
            identity=Identity(name="Example 2", repo="lab/example-2"),
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        said, card = repository.identity, repository.card
        name = None if card is None else card.string("model_name")
        if said is None or card is None or not said.name or not name:
            return
        known = [said.name, (said.repo or "").rpartition("/")[2], said.repo or ""]
        if plain(name) not in map(plain, known):
            message = f"has the model_name {printable(name, 60)!r}; {said.origin} says {printable(said.name, 60)!r}"
            yield self.finding(README, message, place=card.place("model_name"))


def plain(name: str) -> str:
    """A name without case, spaces and punctuation."""
    return re.sub(r"[\W_]", "", name.lower())


class OwnBase(Rule):
    """The card names the repository itself as its base model, or as its successor.

    The Hub's tree of models has a loop there: the page shows no base, and sends readers to itself.
    """

    code = "CRD253"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a base of itself", identity=Identity(repo="example/base")),
        Example(
            "a successor of itself",
            {README: with_lines("new_version: example/base\n", drop="base_model")},
            identity=Identity(repo="example/base"),
        ),
    )
    good = (Example("another repository", identity=Identity(repo="example/tuned")),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        said, card = repository.identity, repository.card
        if said is None or card is None or said.repo is None:
            return
        for key in ("base_model", "new_version"):
            if said.repo.lower() in (value.lower() for value in card.one_or_many(key)):
                message = f"names {printable(said.repo, 80)} as its own {key}"
                yield self.finding(README, message, place=card.place(key))


RELATIONS: Final = ("adapter", "finetune", "merge", "quantized")


class ContradictedRelation(Rule):
    """`base_model_relation` says that the model is something else than it is.

    The Hub lists it under the wrong heading of its base: nobody who looks for an adapter finds it there.
    """

    code = "CRD254"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a word that the Hub does not know", {README: with_lines("base_model_relation: finetuned\n")}),
        Example("a merged model", {README: with_lines("base_model_relation: adapter\n")}),
        Example("weights in 16 bits", {README: with_lines("base_model_relation: quantized\n")}),
        Example("an adapter", {README: with_lines("base_model_relation: finetune\n")}, "lora"),
    )
    good = (
        Example("a model", {README: with_lines("base_model_relation: finetune\n")}),
        Example("an adapter", {README: with_lines("base_model_relation: adapter\n")}, "lora"),
        Example("packed weights", {README: with_lines("base_model_relation: quantized\n")}, "awq"),
        Example("a GGUF file of any type", base="gguf"),
        Example(
            "a conversion for MLX in 16 bits",
            {README: lambda old: with_lines("base_model_relation: quantized\n")(old.replace(b"transformers", b"mlx"))},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        said = None if card is None else card.string("base_model_relation")
        if card is None or said is None:
            return
        known = ", ".join(RELATIONS[:-1]) + " and " + RELATIONS[-1]
        what = f"the Hub knows {known}" if said not in RELATIONS else contradiction(repository, said)
        if what:
            message = f"says base_model_relation: {printable(said, 40)}; {what}"
            yield self.finding(README, message, place=card.place("base_model_relation"))


def contradiction(repository: Repository, said: str) -> str | None:
    """What the repository is, where that is not what a relation says, as the end of a sentence."""
    weights, card = repository.weights, repository.card
    adapter = repository.adapter_config is not None
    if adapter and repository.config is None:
        return None if said == "adapter" else "it is an adapter"
    of_transformers = card is not None and card.library_name in {None, "transformers"} and weights.whole
    if adapter or not of_transformers or repository.gguf.paths or repository.config is None:
        return None
    if said == "adapter":
        return "it holds a whole model, and no adapter"
    plain_weights = not weights.quantized and not weights.stored.packed and "quantization" not in repository.config
    only = not any(path.endswith((".onnx", ".xml", ".bin", ".pte", ".tflite")) for path in repository.files)
    return "no weight is quantized" if said == "quantized" and plain_weights and only else None


# Heads that answer with labels or spans, and tasks whose answer is a text, a picture or a sound.
_LABELS: Final = re.compile(r"For(?:SequenceClassification|TokenClassification|QuestionAnswering|ImageClassification)$")
_CREATED: Final = frozenset(
    {"text-generation", "image-text-to-text", "any-to-any", "text-to-image", "text-to-speech", "text-to-audio"}
    | {"automatic-speech-recognition", "translation", "summarization", "image-to-image", "text-to-video"}
)


class ContradictedTask(Rule):
    """pipeline_tag is a task that the class in config.json cannot do.

    The Hub lists the model, and runs its widget, under that task: a classifier gives labels, and no text.
    """

    code = "CRD255"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "the card of the base of a reward model",
            {CONFIG: {"architectures": ["LlamaForSequenceClassification"]}, SINGLE: None},
        ),
    )
    good = (
        Example("a generator"),
        Example(
            "a classifier that ranks",
            {
                CONFIG: {"architectures": ["LlamaForSequenceClassification"]},
                SINGLE: None,
                README: lambda old: old.replace(b"text-generation", b"text-ranking"),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, config = repository.card, repository.config
        if card is None or config is None or "auto_map" in config or not config.architectures:
            return
        if card.pipeline_tag in _CREATED and all(map(_LABELS.search, config.architectures)):
            message = f"says pipeline_tag: {card.pipeline_tag}; config.json names {config.architectures[0]}"
            message = printable(message, 200)
            yield self.finding(README, message, place=card.place("pipeline_tag"))


RULES: Final = (
    ContradictedSize(),
    ContradictedFamily(),
    OtherModelName(),
    OwnBase(),
    ContradictedRelation(),
    ContradictedTask(),
)
