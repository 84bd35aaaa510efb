"""What a repository is, at a glance: nothing is judged here, and nothing is guessed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from repokit.errors import InputError
from repokit.formats.pickle_globals import Grade
from repokit.repo.adapter import adapters
from repokit.repo.card import README
from repokit.repo.processor import CLASS_KEYS, PROCESSOR, Processors
from repokit.repo.stored_weights import GGUF, StoredWeights, TensorRow, is_leftover, matching_tensors, stored_weights
from repokit.repo.tensor_names import is_embedding, is_head

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.repo.adapter import Adapter
    from repokit.repo.chat_template import ChatTemplate
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.tokenizer import Tokenizer

_Value = TypeVar("_Value")

_CHECKPOINT: Final = re.compile(r"(?:.*/)?checkpoint-\d+/")
# What stands around turns, where no tokenizer says which tokens are special.
_MARKER: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?(?:start|end)_of_turn>|\[/?INST\]")
_LONGEST_SCALAR: Final = 60  # characters of a setting


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens against the rows that stand for them.

    Attributes:
        path: The file that decides.
        tokens: How many, added ones included; None where the format is not read.
        largest_id: Of any token.
        rows: Of the embedding, from the weights or else from config.json.
        special: Role to token: `eos_token`.
        ids: Of those tokens, where they are known.
    """

    path: str
    tokens: int | None
    largest_id: int | None
    rows: int | None
    special: Mapping[str, str]
    ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template: where it is, and the tokens that it writes itself, in their order."""

    name: str
    path: str
    markers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdapterSummary:
    """An adapter_config.json and the weights beside it.

    Attributes:
        settings: Rank, alpha, targets and the like, as they are written.
        base: Of which model.
    """

    path: str
    method: str | None
    base: str | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a repository is. None and empty mean: not there, or not known; `unread` says which of the two.

    Attributes:
        target: As it was asked for.
        kind: `model`, `LoRA adapter`, `quantized model` ...
        tied: Whether the output head is the embedding.
        stops: Token ids that end a generation, from generation_config.json or else config.json.
        processors: File to the classes that it names.
        quantization: The settings of its method.
        code: Python files.
        pickled: What its pickles name beside the parts of tensors, with the grade of each.
        leftovers: Bytes by path of what a training run left; checkpoint folders count as one.
        unread: Attribute to the reason why it could not be read.
        tensors: Those that were asked for.
    """

    target: str
    kind: str
    architectures: tuple[str, ...] = ()
    model_type: str | None = None
    weights: StoredWeights | None = None
    tied: bool | None = None
    vocabulary: Vocabulary | None = None
    stops: tuple[int, ...] = ()
    templates: tuple[Template, ...] = ()
    processors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantization: Mapping[str, Any] = field(default_factory=dict)
    adapters: tuple[AdapterSummary, ...] = ()
    base_models: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    library: str | None = None
    has_card: bool = False
    code: tuple[str, ...] = ()
    pickled: Mapping[str, str] = field(default_factory=dict)
    leftovers: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    unread: Mapping[str, str] = field(default_factory=dict)
    tensors: tuple[TensorRow, ...] = ()


def inspect(repository: Repository, tensors: str | None = None) -> Inspection:
    """Looks at a repository; what cannot be read is said in the answer.

    Args:
        repository: From anywhere.
        tensors: A glob over names, or over the ends of names that follow a dot: `layers.0.*`.

    Raises:
        InputError: The repository cannot be listed.
    """
    unread: dict[str, str] = {}
    ask = partial(_ask, unread, repository)
    config, card = ask("architectures", lambda of: of.config), ask("licenses", lambda of: of.card)
    found_adapters = ask("adapters", adapters) or ()
    adapter_summaries = tuple(map(_adapter, found_adapters))
    quantization = ask("quantization", _quantization) or {}
    weights = ask("weights", stored_weights)
    return Inspection(
        target=repository.source.label,
        kind=_kind(repository, adapter_summaries, quantization, weights),
        architectures=() if config is None else config.architectures,
        model_type=None if config is None else config.model_type,
        weights=weights,
        tied=ask("tied", _tied),
        vocabulary=ask("vocabulary", _vocabulary),
        stops=ask("stops", _stops) or (),
        templates=ask("templates", _templates) or (),
        processors=ask("processors", _processors) or {},
        quantization=quantization,
        adapters=adapter_summaries,
        base_models=() if card is None else card.base_models,
        licenses=() if card is None else card.license_ids,
        library=None if card is None else card.library_name,
        has_card=repository.has(README),
        code=tuple(path for path in repository.files if path.endswith(".py") and not is_leftover(path)),
        pickled=ask("pickled", _pickled_names) or {},
        leftovers=_leftovers(repository),
        files=len(repository.files),
        size=sum(entry.size for entry in repository.files.values()),
        tensors=() if tensors is None else ask("tensors", lambda of: matching_tensors(of, tensors)) or (),
        unread=unread,
    )


def _ask(
    unread: dict[str, str], repository: Repository, name: str, build: Callable[[Repository], _Value]
) -> _Value | None:
    try:
        return build(repository)
    except InputError as error:
        unread[name] = str(error)
        return None


def _kind(
    repository: Repository,
    found: tuple[AdapterSummary, ...],
    quantization: Mapping[str, Any],
    weights: StoredWeights | None,
) -> str:
    files = repository.files
    if found and "config.json" not in files:
        method = found[0].method
        return f"{_METHODS.get(method, method)} adapter" if method else "adapter"
    if "model_index.json" in files:
        return "diffusers pipeline"
    if "modules.json" in files:
        return "sentence-transformers model"
    if quantization:
        return "quantized model"
    if weights is not None and weights.format == GGUF:
        return "GGUF model"
    if "config.json" not in files:
        return "weights without a config" if weights is not None else "no model"
    return "model" if weights is not None else "model without weights"


_METHODS: Final = {"LORA": "LoRA", "ADALORA": "AdaLoRA", "LOHA": "LoHa", "LOKR": "LoKr", "VERA": "VeRA"}


def _tied(repository: Repository) -> bool | None:
    weights, config = repository.weights, repository.config
    if not weights.files:
        return _tied_in_pickles(repository)
    if weights.of_adapter:
        return None
    if weights.heads:
        return False
    return True if config is not None and config.tie_word_embeddings and weights.embeddings else None


def _tied_in_pickles(repository: Repository) -> bool | None:
    """Whether the head is a name of the embedding's storage, as a pickle keeps it."""
    try:
        tables = [repository.pickles.table(path) for path in repository.pickles.weights]
    except InputError:
        return None
    named = [tensor for table in tables for tensor in table.tensors.values() if len(tensor.shape) == 2]
    heads = {tensor.storage for tensor in named if is_head(tensor.name)}
    return bool(heads & {tensor.storage for tensor in named if is_embedding(tensor.name)}) if heads else None


def _pickled_names(repository: Repository) -> Mapping[str, str]:
    """The worst first."""
    found = {
        (one.grade, one.dotted)
        for path in repository.pickles.readable
        if not is_leftover(path)
        for one in repository.pickles.globals(path)
        if one.grade is not Grade.SAFE
    }
    worst = list(Grade)[::-1]
    return {name: str(grade) for grade, name in sorted(found, key=lambda item: (worst.index(item[0]), item[1]))}


# ---------------------------------------------------------------- tokens


def _vocabulary(repository: Repository) -> Vocabulary | None:
    tokenizer = repository.tokenizer
    if tokenizer is None:
        return _gguf_vocabulary(repository)
    known = tokenizer.is_read
    special = {role: token.content for role, token in tokenizer.roles.items()}
    ids = {role: tokenizer.ids[token] for role, token in special.items() if token in tokenizer.ids}
    rows = _rows_of(repository)
    if not known:
        return Vocabulary(tokenizer.path, _pieces(tokenizer), None, rows, special, ids)
    return Vocabulary(tokenizer.path, tokenizer.size, tokenizer.max_id, rows, special, ids)


def _pieces(tokenizer: Tokenizer) -> int | None:
    try:
        return tokenizer.pieces
    except InputError:
        return None


def _rows_of(repository: Repository) -> int | None:
    """Broken weights are told of on their own line."""
    try:
        return repository.weights.token_rows
    except InputError:
        return None


def _gguf_vocabulary(repository: Repository) -> Vocabulary | None:
    model = next(repository.gguf.models, None)
    if model is None or (tokens := model.head.tokens) is None:
        return None
    embedding = model.tensor("token_embd.weight")
    rows = None if embedding is None or not embedding.dims else embedding.dims[-1]
    ids = {key.rpartition(".")[2].removesuffix("_id"): number for key, number in model.head.token_ids}
    named = {role: model.head.text_of(number) for role, number in ids.items()}
    special = {role: text for role, text in named.items() if text is not None}
    return Vocabulary(model.head.path, len(tokens), len(tokens) - 1, rows, special, ids)


def _stops(repository: Repository) -> tuple[int, ...]:
    generation, config = repository.generation_config, repository.config
    found = () if generation is None else generation.integers("eos_token_id")
    return found or (() if config is None else config.text.integers("eos_token_id") or config.integers("eos_token_id"))


def _templates(repository: Repository) -> tuple[Template, ...]:
    model = next(repository.gguf.models, None) if repository.gguf.is_all else None
    found = model.head.templates if model is not None else repository.chat_templates.all
    special = _special(repository)
    return tuple(Template(template.name, template.path, _markers(template, special)) for template in found)


def _special(repository: Repository) -> frozenset[str]:
    try:
        return frozenset() if repository.tokenizer is None else repository.tokenizer.special
    except InputError:
        return frozenset()


def _markers(template: ChatTemplate, special: frozenset[str]) -> tuple[str, ...]:
    spelled = {token for token in special if len(token) > 1 and token in template.source}
    spelled |= set(_MARKER.findall(template.source))
    return tuple(sorted(spelled, key=template.source.index))


# ---------------------------------------------------------------- the rest


def _processors(repository: Repository) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for document in Processors(repository).documents:
        keys = ("processor_class", *CLASS_KEYS) if document.path == PROCESSOR else CLASS_KEYS
        names = tuple(name for key in keys if (name := document.string(key)) is not None)
        found[document.path] = (*found.get(document.path, ()), *names)
    return found


def _quantization(repository: Repository) -> dict[str, Any]:
    config = repository.config
    if config is None:
        return {}
    found = config.quantization or config.mapping("compression_config") or config.mapping("quantization")
    return {} if found is None else _scalars(found)


def _scalars(document: Document) -> dict[str, Any]:
    """The settings that fit on a line, the method first."""
    short = {key: value for key, value in document.raw.items() if _is_short(value) and not isinstance(value, list)}
    method = {"quant_method": short.pop("quant_method")} if "quant_method" in short else {}
    return {**method, **short}


def _is_short(value: object) -> bool:
    """Whether it is a setting that JSON has a word for and a line has room for, or a list of names."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, (str, int)) and len(str(value)) <= _LONGEST_SCALAR


_ADAPTER_SETTINGS: Final = (
    *("r", "lora_alpha", "lora_dropout", "use_dora", "use_rslora", "num_virtual_tokens", "target_modules"),
    *("target_parameters", "modules_to_save", "task_type", "bias"),
)


def _adapter(adapter: Adapter) -> AdapterSummary:
    config = adapter.config
    given = {key: config.raw[key] for key in _ADAPTER_SETTINGS if _is_short(config.raw.get(key))}
    settings = {key: value for key, value in given.items() if value not in (False, "", "none")}
    base = config.string("base_model_name_or_path")
    return AdapterSummary(config.path, config.string("peft_type"), base, settings)


def _leftovers(repository: Repository) -> dict[str, int]:
    found: Counter[str] = Counter()
    for path, entry in repository.files.items():
        if is_leftover(path):
            folder = _CHECKPOINT.match(path)
            found[folder[0] if folder else path] += entry.size
    return dict(found)
