"""WGT: the tensors of the weights against those that the architecture has under this config.json.

The skeleton of an architecture (repokit.architectures) says every name and shape. A rule here speaks only of what no
rule with a closer view has spoken of: a lost layer, an unsaved head, a wrapper's prefix have codes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from repokit.architectures.grouping import summary
from repokit.linter.examples import LABELS_IN_CARD, Example, edited
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.expected_tensors import judgement, unusable
from repokit.linter.rules.index import NORM
from repokit.linter.rules.skeleton_remainder import (
    foreign_heads,
    is_impossible,
    misshapen_tensors,
    missing_tensors,
    unclaimed,
    unexpected_tensors,
    verified,
)
from repokit.linter.rules.weights_against_config import EMBEDDING, HEAD
from repokit.printable import count, printable, size
from repokit.repo.config import CONFIG
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.architectures.comparison import Misshapen
    from repokit.repo.repository import Repository

DOWN: Final = "model.layers.1.mlp.down_proj.weight"
BIASES: Final = {
    f"model.layers.{layer}.self_attn.{name}_proj.bias": ("BF16", (8 if name in "kv" else 16,))
    for layer in range(2)
    for name in "qkvo"
}

# Its widths are rounded from layer to layer, which the expressions of skeletons do not say.
MOBILE: Final = {
    "architectures": ["MobileNetV1ForImageClassification"],
    "model_type": "mobilenet_v1",
    "depth_multiplier": 0.25,
    "id2label": {"0": "no", "1": "yes"},
    "label2id": {"no": 0, "yes": 1},
}


class MissingTensor(Rule):
    """Tensors are missing that the architecture has under this config.json.

    transformers fills them with random values and prints a report instead of an error; servers stop.
    """

    code = "WGT111"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("one matrix was not saved", {SINGLE: edited(drop=(DOWN,))}),
        Example("a norm", {SINGLE: edited(drop=(NORM,))}),
        Example("config.json asks for biases that were not trained", {CONFIG: {"attention_bias": True}}),
        Example("the embedding", {SINGLE: edited(drop=(EMBEDDING,))}, "tied"),
    )
    good = (Example("everything is there"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = verified(repository)
        if judged is None:
            return
        if missing := missing_tensors(repository, judged):
            message = f"lacks {count(len(missing), 'tensor')} of {judged.skeleton.architecture}: "
            message += summary(missing, judged.skeleton.shapes)
            yield self.finding(main(repository), message, names=missing, place=missing[0], hint=judged.explanation)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.suggested import by_suggestion

        return by_suggestion(repository, finding)


class UnexpectedTensor(Rule):
    """Tensors are there that the architecture has no place for under this config.json.

    Loaders drop them without an error: what was trained in them is lost, or what config.json says is wrong.
    """

    code = "WGT112"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("biases that config.json says nothing of", {SINGLE: edited(add=BIASES)}),
        Example("fewer layers in config.json", {CONFIG: {"num_hidden_layers": 1}}),
        Example("the prefix of another library", {SINGLE: edited(rename=lambda name: f"net.{name}")}),
    )
    good = (
        Example("a value head beside", {SINGLE: edited(add={"v_head.summary.weight": ("BF16", (1, 16))})}),
        Example("no tensor too many"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = verified(repository)
        if judged is None:
            return
        if misnamed := unclaimed(repository, judged.misnamed):
            message = f"has {count(len(misnamed), 'name')} with a prefix that {judged.skeleton.architecture} does not"
            message += f" have: {summary(misnamed, judged.held)}"
            yield self.finding(main(repository), message, names=misnamed, place=misnamed[0], hint=judged.explanation)
        if unexpected := unexpected_tensors(repository, judged):
            message = f"holds {count(len(unexpected), 'tensor')} that {judged.skeleton.architecture} has no place for "
            message += f"under this config: {summary(unexpected, judged.held)}"
            yield self.finding(
                main(repository), message, names=unexpected, place=unexpected[0], hint=judged.explanation
            )

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.suggested import by_suggestion

        return by_suggestion(repository, finding)


class MisshapenTensor(Rule):
    """Tensors have other shapes than the architecture gives them under this config.json.

    Loading stops with a size mismatch: config.json is of another model, or was edited.
    """

    code = "WGT113"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("an intermediate size of another model", {CONFIG: {"intermediate_size": 48}}),
        Example("more heads for keys and values", {CONFIG: {"num_key_value_heads": 2}}),
        Example("one matrix was cut", {SINGLE: edited(add={DOWN: ("BF16", (16, 20))})}),
        Example("a matrix was transposed", {SINGLE: edited(add={DOWN: ("BF16", (24, 16))})}),
    )
    good = (Example("every shape as config.json has it", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = verified(repository)
        if judged is None:
            return
        if wrong := misshapen_tensors(repository, judged):
            names = [one.name for one in wrong]
            message = f"has {count(len(wrong), 'tensor')} of another shape than config.json gives: {shapes(wrong)}"
            yield self.finding(main(repository), message, names=names, place=names[0], hint=judged.explanation)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.suggested import by_suggestion

        return by_suggestion(repository, finding)


class MistakenArchitecture(Rule):
    """The weights are those of another class than config.json names.

    transformers builds the class of config.json, gives the parts that the weights do not have random values, and drops
    the others, with a report instead of an error.
    """

    code = "WGT114"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a classifier in config.json, a language model in the weights",
            {
                **LABELS_IN_CARD,
                CONFIG: {"architectures": ["LlamaForSequenceClassification"]},
                "generation_config.json": None,
            },
        ),
    )
    good = (Example("the class that was saved"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = judgement(repository)
        found = None if judged is None or is_impossible(repository) else judged.mistaken
        if judged is None or found is None or not judged.verified:
            return
        message = f"is {judged.skeleton.architecture}; {found.text}"
        names = judged.comparison.missing
        hint = f'"architectures": ["{found.architecture}"]' + (
            f", and {found.part} as config.json" if found.part else ""
        )
        yield self.finding(CONFIG, message, place="/architectures/0", names=names, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.suggested import by_class

        return by_class(repository, finding)


class DoubtfulTensor(Rule):
    """The tensors are not those that the architecture seems to have under this config.json.

    Of this architecture not every tensor is known to this version: what is missing here may be right so. If it is not,
    transformers goes on with random values.
    """

    code = "WGT205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "an image model without one of its norms",
            {
                **LABELS_IN_CARD,
                CONFIG: MOBILE,
                SINGLE: weights_of(MOBILE, drop=("mobilenet_v1.conv_stem.normalization.weight",)),
                "preprocessor_config.json": '{"image_processor_type": "MobileNetV1ImageProcessor"}',
                "chat_template.jinja": None,
                "generation_config.json": None,
            },
        ),
    )
    good = (Example("an architecture of which every tensor is known"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = judgement(repository)
        if judged is None or judged.verified or is_impossible(repository):
            return
        name, expected = judged.skeleton.architecture, judged.skeleton.shapes
        for word, names, among in (
            ("lacks", missing_tensors(repository, judged), list(expected)),
            ("holds, beside what is known,", unexpected_tensors(repository, judged), list(judged.held)),
        ):
            if names:
                message = f"{word} {count(len(names), 'tensor')} of {name}: {summary(names, among)}"
                yield self.finding(main(repository), message, names=names, place=names[0], hint=judged.explanation)
        if wrong := misshapen_tensors(repository, judged):
            names = [one.name for one in wrong]
            message = f"has {count(len(wrong), 'tensor')} of another shape than config.json seems to give: "
            yield self.finding(
                main(repository), message + shapes(wrong), names=names, place=names[0], hint=judged.explanation
            )


class TiedCopy(Rule):
    """The weights hold a copy of a tensor that is tied to another one.

    Everyone downloads it twice. Where its values differ, transformers 5 unties the two, other loaders drop the copy.
    """

    code = "WGT303"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the head of a tied model", {SINGLE: edited(add={HEAD: ("BF16", (32, 16))})}, "tied"),)
    good = (Example("left out", base="tied"), Example("not tied"))

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = judgement(repository)
        if judged is None or not (copies := {**judged.rest.duplicates, **judged.rest.respelled}):
            return
        if repository.deep:  # then tied_values says whether they are equal
            from repokit.linter.rules.tied_values import tied_pairs

            copies = {name: source for name, source in copies.items() if name not in tied_pairs(repository)}
        if not copies:
            return
        tensors = repository.weights.tensors
        wasted = sum(tensors[name].end - tensors[name].begin for name in copies if name in tensors)
        name, source = next(iter(copies.items()))
        message = f"holds {printable(name, 120)} beside {printable(source, 120)}, which is to be the same tensor"
        message += f", and {count(len(copies) - 1, 'more copy', 'more copies')}" if len(copies) > 1 else ""
        hint = "save it once, or set tie_word_embeddings to false if the two were trained apart"
        yield self.finding(main(repository), f"{message}: {size(wasted)}", names=list(copies), place=name, hint=hint)


class LegacyBuffer(Rule):
    """The weights hold buffers that older versions of transformers stored.

    Newer ones compute them and pass these over; strict loaders refuse the names.
    """

    code = "WGT304"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "frequencies of a version of 2023",
            {
                SINGLE: edited(
                    add={f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": ("F32", (4,)) for layer in range(2)}
                )
            },
        ),
    )
    good = (Example("as versions of today save it"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = judgement(repository)
        if judged is not None and (names := judged.rest.legacy):
            message = f"holds {count(len(names), 'buffer')} of older versions: {summary(names, judged.held)}"
            yield self.finding(main(repository), message, names=names, place=names[0])

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import without_buffers

        return without_buffers(repository, finding)


class ForeignHead(Rule):
    """The weights hold a head that the class in config.json does not have, and another class of the model does.

    Loaders of the class pass it over, with a line in their report.
    """

    code = "WGT305"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the head for tokens, in a classifier",
            {
                **LABELS_IN_CARD,
                CONFIG: {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}},
                SINGLE: edited(add={"score.weight": ("BF16", (2, 16))}),
                "generation_config.json": None,
            },
        ),
    )
    good = (Example("one head"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        judged = judgement(repository)
        if judged is None or judged.mistaken is not None or not (heads := foreign_heads(judged)):
            return
        name, other = next(iter(heads.items()))
        message = f"holds {summary(heads, judged.held)}: of {other}, not of {judged.skeleton.architecture}"
        yield self.finding(main(repository), message, names=list(heads), place=name)


class UnusableConfig(Rule):
    """No model can be built from config.json: the sizes of its tensors do not come out.

    A value is of a wrong type, negative, or beyond every model. Loading stops.
    """

    code = "CFG113"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a size below zero", {CONFIG: {"intermediate_size": -24}}),
        Example("heads of no model", {CONFIG: {"head_dim": 2**80}}),
    )
    good = (Example("sizes that are numbers"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if (error := unusable(repository)) is not None and not is_impossible(repository):
            yield self.finding(CONFIG, error.what, place=error.place, hint=error.hint)


RULES: Final = (
    MissingTensor(),
    UnexpectedTensor(),
    MisshapenTensor(),
    MistakenArchitecture(),
    DoubtfulTensor(),
    TiedCopy(),
    LegacyBuffer(),
    ForeignHead(),
)
OF_CONFIG: Final = (UnusableConfig(),)


def main(repository: Repository) -> str:
    """The file that a finding about all of the weights is about."""
    return repository.weights.main or SINGLE


def shapes(wrong: list[Misshapen], limit: int = 3) -> str:
    """`a.weight is [16, 20], not [16, 24]`, of the first ones."""
    told = [f"{printable(name, 120)} is {list(held)}, not {sizes(wanted)}" for name, held, wanted in wrong[:limit]]
    return "; ".join(told) + (f"; {len(wrong) - limit:,} more" if len(wrong) > limit else "")


def sizes(shape: Iterable[int | None]) -> str:
    """A shape as text; `?` for a size that is not known."""
    return f"[{', '.join('?' if one is None else str(one) for one in shape)}]"
