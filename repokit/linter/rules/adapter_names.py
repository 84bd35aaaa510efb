"""ADP: names of the tensors of an adapter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example, edited
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count, printable
from repokit.repo.adapter import ADAPTER_CONFIG, adapters
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.adapter_names import NAMED, PREFIX, is_shared
from repokit.repo.weights import ADAPTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from repokit.repo.adapter import Adapter
    from repokit.repo.repository import Repository


def renamed(old: str, new: str) -> Callable[[bytes], bytes]:
    """A change of a part of every name."""
    return edited(rename=lambda name: name.replace(old, new))


class UnprefixedKey(Rule):
    """Tensors of an adapter do not begin with `base_model.model.`.

    PEFT looks for them under that prefix in vain: the adapter does nothing, with a warning among others.
    """

    code = "ADP106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("saved from the model itself", {ADAPTER: renamed(PREFIX, "")}, "lora"),
        Example("half of it", {ADAPTER: renamed(PREFIX, "model.")}, "lora"),
    )
    good = (
        Example(
            "matrices that all modules share", {ADAPTER: edited(add={"base_model.vera_A": ("F32", (4, 16))})}, "lora"
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in of_peft(repository):
            if names := [name for name in adapter.names if not name.startswith(PREFIX) and not is_shared(name)]:
                message = f"has {count(len(names), 'name')} without the prefix {PREFIX}"
                yield self.finding(path, message, names=names, place=names[0], hint=f"put {PREFIX} before them")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_prefix

        return with_prefix(repository, finding)


class AdapterNameInKey(Rule):
    """Names of tensors have the name of the adapter in them.

    PEFT puts in the name under which it loads; a name that is there already fits only where both are the same, and
    elsewhere the adapter does nothing, with a warning among others.
    """

    code = "ADP107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("saved from the state of the model", {ADAPTER: renamed(".weight", ".default.weight")}, "lora"),
        Example("a second adapter of a pipeline", {ADAPTER: renamed(".weight", ".default_0.weight")}, "lora"),
    )
    good = (
        Example(
            "a bias of the factor",
            {
                ADAPTER_CONFIG: {"lora_bias": True},
                ADAPTER: edited(add={f"{PREFIX}model.q_proj.lora_B.bias": ("F32", (16,))}),
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in of_peft(repository):
            found = {name: match["adapter"] for name in adapter.names if (match := NAMED.search(name)) is not None}
            if found:
                names, first = tuple(found), next(iter(found.values()))
                message = f"has the adapter's name {printable(first, 60)!r} in {count(len(found), 'name')}"
                yield self.finding(path, message, names=names, place=names[0], hint=f"take .{first} out of them")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import without_adapter_name

        return without_adapter_name(repository, finding)


class WrongModuleLevel(Rule):
    """Names of tensors have a level too few or too many for the class that the adapter is for.

    PEFT finds none of the modules in the base model: the adapter does nothing, with a warning among others.
    """

    code = "ADP108"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "trained on the model without its head", {ADAPTER: renamed("model.model.model.", "model.model.")}, "lora"
        ),
        Example("wrapped twice", {ADAPTER: renamed(PREFIX, PREFIX + PREFIX)}, "lora"),
    )
    good = (
        Example(
            "an embedding model, which has no head",
            {
                ADAPTER_CONFIG: {"task_type": "FEATURE_EXTRACTION"},
                ADAPTER: renamed("model.model.model.", "model.model."),
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in of_peft(repository):
            if twice := [name for name in adapter.names if name.startswith(PREFIX * 2)]:
                message = f"has {PREFIX} twice in {count(len(twice), 'name')}"
                yield self.finding(path, message, names=twice, place=twice[0], hint="take one of the two out")
            if adapter.config.string("task_type") not in WITH_HEAD or has_no_head(repository):
                continue
            if short := [name for name in adapter.names if HEADLESS.match(name)]:
                message = f"has {count(len(short), 'name')} of a model without a head; task_type says that it has one"
                yield self.finding(path, message, names=short, place=short[0], hint="put model. before layers.")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_level

        return with_level(repository, finding)


class RenamedVisionModel(Rule):
    """Names of tensors are those that the language model of the base had before transformers 4.52.

    It is a part of `model` since; PEFT renames these adapters not as transformers renames weights, and finds none of
    the modules: the adapter does nothing, with a warning among others.
    """

    code = "ADP109"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "trained with transformers 4.51",
            {
                ADAPTER_CONFIG: {
                    "auto_mapping": {"base_model_class": "Qwen2VLForConditionalGeneration"},
                    "task_type": None,
                }
            },
            "lora",
        ),
    )
    good = (
        Example(
            "trained with transformers 4.52",
            {
                ADAPTER_CONFIG: {"auto_mapping": {"base_model_class": "Qwen2VLForConditionalGeneration"}},
                ADAPTER: renamed("model.layers.", "model.language_model.layers."),
            },
            "lora",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, adapter in of_peft(repository):
            mapping = adapter.config.mapping("auto_mapping")
            base = None if mapping is None else mapping.string("base_model_class")
            if base not in LANGUAGE_MODEL_INSIDE:
                continue
            if names := [name for name in adapter.names if name.startswith(OLD)]:
                message = (
                    f"has {count(len(names), 'name')} that {printable(base)} does not have since transformers 4.52"
                )
                hint = "model.layers is now model.language_model.layers"
                yield self.finding(path, message, names=names, place=names[0], hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.adapter import with_language_model

        return with_language_model(repository, finding)


RULES: Final = (UnprefixedKey(), AdapterNameInKey(), WrongModuleLevel(), RenamedVisionModel())

# Heads of transformers stand beside `model`, so that the layers are one level down.
WITH_HEAD: Final = frozenset({"CAUSAL_LM", "SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS"})
HEADLESS: Final = re.compile(r"base_model\.model\.layers\.[0-9]+\.(?:self_attn|mlp)\.")

# Classes whose language model stands at model.language_model, and for which PEFT 0.21 with transformers 5.24 leaves
# adapters named `model.layers` unloaded (measured). Those named `language_model.model` it renames.
LANGUAGE_MODEL_INSIDE: Final = frozenset(
    f"{name}ForConditionalGeneration" for name in ("Gemma3", "Llava", "PaliGemma", "Qwen2VL", "Qwen2_5_VL", "Qwen3VL")
)
OLD: Final = PREFIX + "model.layers."


def of_peft(repository: Repository) -> Iterator[tuple[str, Adapter]]:
    """Adapters whose tensors are named by module: not prompts, and not those of another library."""
    for adapter in adapters(repository):
        kind = adapter.config.string("peft_type")
        if adapter.weights is not None and kind is not None and kind not in PROMPTS:
            yield adapter.weights, adapter


def has_no_head(repository: Repository) -> bool:
    """Whether the model that is adapted may be one without a head, whatever task_type says."""
    card = repository.card
    embeds = card is not None and card.library_name == "sentence-transformers"
    return repository.config is not None or repository.has("modules.json") or embeds
