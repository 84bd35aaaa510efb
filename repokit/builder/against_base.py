"""What a planned repository lost or changed against its base, where the base is at hand.

What is lost becomes a warning: nobody asked for it. What is changed is said in the summary: a fine-tuned model differs.
The facts are those of repo/compare.py; which of them count depends on the kind.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.kinds import Kind
from repokit.builder.preview import Preview
from repokit.errors import InputError
from repokit.printable import count, printable, some
from repokit.repo.compare import Changed, changed_config, compare_tokenizers, ending_ids
from repokit.repo.compared_tensors import compare_tensors
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from repokit.builder.plan import Plan
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.compared_tensors import Part
    from repokit.repo.config import Config
    from repokit.repo.gguf import GgufModel

_MOST: Final = 6  # of one sort, in a line
_PROCESSORS: Final = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
# Where draft layers are counted that come behind the last layer (transformers and vLLM: DeepSeek-V3, GLM-4.5, MiMo).
_DRAFTS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_LAYERS: Final = re.compile(r"(?:.*\.)?layers\.(\d+)(?:-(\d+))?(?:\..*)?")
_DRAFT_STACK: Final = re.compile(r"(?:.*\.)?(?:mtp|nextn)(?:_\w+)?(?:\..*)?")

# What a kind is compared in. An adapter has no weights of its base and no config; GGUF files hold all of it themselves.
_COMPARED: Final = {
    Kind.FULL: ("weights", "config", "generation config", "tokenizer", "chat template", "processor"),
    Kind.QUANTIZED: ("weights", "config", "generation config", "tokenizer", "chat template", "processor"),
    Kind.ADAPTER: ("tokenizer", "chat template"),
    Kind.GGUF: ("GGUF files",),
}

# The same in words for people.
_HELD: Final = {
    Kind.FULL: "layers, shapes, config, tokens and template",
    Kind.QUANTIZED: "layers, shapes, config, tokens and template",
    Kind.ADAPTER: "tokens and template",
    Kind.GGUF: "number of tokens and layers",
}


def compared(plan: Plan, base: Repository, kind: Kind, path: str) -> Plan:
    """The plan with what it loses against the base among its warnings, and what it changes in its summary.

    What cannot be read of either is a warning too: what was not compared is not equal.

    Args:
        plan: What will be built.
        base: What it was made from.
        kind: Of what is built.
        path: Where the base lies.
    """
    with Repository(Preview(plan)) as ours:
        comparison = _Comparison(ours, base, plan.summary.dropped)
        for subject in _COMPARED[kind]:
            comparison.of(subject)
    lost = f"against the base ({printable(path)}) it lacks {'; '.join(comparison.lost)}"
    told = ([lost] if comparison.lost else []) + comparison.unread
    summary = plan.summary.model_copy(
        update={"lost": tuple(comparison.lost), "changed": tuple(comparison.changed), "base": path}
        | ({} if comparison.unread else {"held": _HELD[kind]})
    )
    return plan.model_copy(update={"warnings": (*plan.warnings, *told), "summary": summary})


class _Comparison:
    """One look at both.

    Attributes:
        lost: What the base has and the result has not, in words.
        changed: What is another thing in both, in words.
        unread: What could not be compared, and why.
    """

    def __init__(self, ours: Repository, base: Repository, dropped: Iterable[str]) -> None:
        self._ours, self._base, self._dropped = ours, base, tuple(dropped)
        self.lost: list[str] = []
        self.changed: list[str] = []
        self.unread: list[str] = []

    def of(self, subject: str) -> None:
        """Compares one part of a repository."""
        parts: dict[str, Callable[[], None]] = {
            "weights": self._weights,
            "config": self._config,
            "generation config": self._generation,
            "tokenizer": self._tokenizer,
            "chat template": self._template,
            "processor": self._processor,
            "GGUF files": self._gguf,
        }
        try:
            parts[subject]()
        except InputError as error:
            self.unread.append(f"the {subject} was not compared with the base's: {error}")

    def _weights(self) -> None:
        found = compare_tensors(self._ours, self._base, dropped=self._dropped)
        if not found.alike:
            self.lost.append("every tensor, by its names: it is another architecture")
            return
        self.lost += _shown([_lost(part, self._base.config) for part in found.lost])
        if found.renamed:
            names = [f"{printable(part.name, 120)} ({part.count:,})" for part in found.renamed]
            self.changed.append(f"other tensors in the place of {some(names, _MOST)}")
        if found.reshaped:
            shapes = [f"{printable(part.name, 120)} ({part.count:,})" for part in found.reshaped]
            self.changed.append(f"other shapes of {some(shapes, _MOST)}")
        self._stored()

    def _stored(self) -> None:
        ours, base = self._ours.weights, self._base.weights
        if ours.embedding and base.embedding and ours.embedding.shape[:1] != base.embedding.shape[:1]:
            rows = f"{base.embedding.shape[0]:,} became {ours.embedding.shape[0]:,}"
            self.changed.append(f"rows of the vocabulary: {rows}")
        mine, other = ours.stored.dtype, base.stored.dtype
        if mine and other and mine != other and not ours.quantized:
            self.changed.append(f"stored as {mine}, the base as {other}")

    def _config(self) -> None:
        ours, base = self._ours.config, self._base.config
        if ours is None or base is None:
            return
        found = changed_config(ours, base)
        self.lost += [f"{printable(change.key, 80)} in config.json" for change in found if change.ours is None]
        words = [_change(change) for change in found if change.ours is not None]
        if words:
            self.changed.append(f"config.json: {some(words, _MOST)}")

    def _generation(self) -> None:
        ours, base = ending_ids(self._ours), ending_ids(self._base)
        if base and ours != base:
            self.changed.append(f"eos_token_id: {_ids(base)} became {_ids(ours) or 'none'}")

    def _tokenizer(self) -> None:
        if self._ours.tokenizer is None:
            if self._base.tokenizer is not None and self._ours.adapter_config is None:
                self.lost.append("the tokenizer")
            return
        found = compare_tokenizers(self._ours, self._base)
        if found is None:
            return
        told = [
            f"{count(len(tokens), 'token')} {word} ({some([repr(printable(token, 40)) for token in tokens])})"
            for word, tokens in (("removed", found.removed), ("renumbered", found.renumbered), ("added", found.added))
            if tokens
        ]
        told += [f"{part} differs" for part in found.sections]
        told += ["merges differ"] if found.merges else []
        told += ["its file differs"] if found.unread else []
        if told:
            self.changed.append(f"tokenizer: {', '.join(told)}")

    def _template(self) -> None:
        ours, base = self._ours.chat_templates, self._base.chat_templates
        names = [template.name for template in ours.all]
        gone = list(dict.fromkeys(template.name for template in base.all if template.name not in names))
        if ours.all and base.default is not None and _body(ours.default) != base.default.body:
            self.changed.append("the chat template")
        if gone and self._ours.adapter_config is None:
            self.lost.append("the chat template" if not names else f"chat templates {some(gone)}")

    def _processor(self) -> None:
        gone = [path for path in _PROCESSORS if self._base.has(path) and not self._ours.has(path)]
        if gone and not any(self._ours.has(path) for path in _PROCESSORS):  # newer versions write one for all
            self.lost += gone

    def _gguf(self) -> None:
        config = self._base.config
        for model in self._ours.gguf.models:
            self.changed += [f"{printable(model.head.path, 120)}: {what}" for what in _gguf(model, self._base, config)]


def _lost(part: Part, config: Config | None) -> str:
    """`model.visual (390 tensors)`; draft layers are named as such, because their numbers go on from the others'."""
    drafts = " of multi-token prediction" if _is_draft(part.name, config) else ""
    return f"{printable(part.name, 120)} ({count(part.count, 'tensor')}{drafts})"


def _is_draft(name: str, config: Config | None) -> bool:
    if _DRAFT_STACK.fullmatch(name):
        return True
    layer = _LAYERS.fullmatch(name)
    if layer is None or config is None:
        return False
    levels = list(config.levels)
    layers = next((number for level in levels if (number := level.integer("num_hidden_layers")) is not None), None)
    return (
        layers is not None
        and int(layer[1]) >= layers
        and any(level.integer(key) for level in levels for key in _DRAFTS)
    )


def _shown(words: list[str]) -> list[str]:
    rest = len(words) - _MOST
    return words if rest <= 0 else [*words[:_MOST], f"{rest:,} more groups of tensors"]


def _change(change: Changed) -> str:
    return f"{printable(change.key, 80)} {_value(change.theirs)} became {_value(change.ours)}"


def _value(value: Any) -> str:  # noqa: ANN401 - whatever a document holds
    if type(value) is int:
        return f"{value:,}"
    return printable(value if isinstance(value, str) else json.dumps(value, sort_keys=True), 60)


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def _body(template: ChatTemplate | None) -> str | None:
    return None if template is None else template.body


def _gguf(model: GgufModel, base: Repository, config: Config | None) -> Iterator[str]:
    """Tokens and blocks of a GGUF model: converters fill the vocabulary up to the rows, and count draft layers."""
    tokens = model.head.tokens
    tokenizer = base.tokenizer
    if tokens is not None and tokenizer is not None and tokenizer.is_read:
        rows = None if config is None else config.vocab_size
        if len(tokens) not in {tokenizer.size, tokenizer.max_id + 1, rows}:
            yield f"{len(tokens):,} tokens, the base has {tokenizer.size:,}"
    layers = None if config is None else config.text.integer("num_hidden_layers")
    drafts = 0 if config is None else next((number for key in _DRAFTS if (number := config.text.integer(key))), 0)
    blocks = len(model.blocks)
    if layers and model.is_whole and blocks not in {layers, layers + drafts}:
        yield f"{count(blocks, 'block')}, the base has {count(layers, 'layer')}"
