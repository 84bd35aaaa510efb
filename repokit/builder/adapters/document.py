"""adapter_config.json: what is not for others is changed in it or taken out; all else stays byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.errors import InputError, RecipeError
from repokit.formats.json_edit import with_value, without
from repokit.formats.paths import is_local, is_repo_id
from repokit.printable import count, printable, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.schema.recipe import Base

BASE: Final = "base_model_name_or_path"
# Of the machine that trains, by peft's own word: "runtime_config ... only used for the current runtime".
_OF_THE_RUN: Final = ("runtime_config",)
# Where the tokenizer of a prompt's first words lay (peft 0.21 PromptTuningConfig): null is refused beside them.
_TOKENIZER: Final = "tokenizer_name_or_path"
# Names of modules and expressions: what looks like a path there is none.
_PATTERNS: Final = frozenset(
    {
        *("target_modules", "exclude_modules", "modules_to_save", "layers_pattern", "target_parameters"),
        *("rank_pattern", "alpha_pattern", "feedforward_modules", "block_size_pattern", "n_frequency_pattern"),
        *("trainable_token_indices", "auto_mapping", BASE, _TOKENIZER),
    }
)
_PATH: Final = re.compile(r"(?:/|~/|\.{1,2}/|file:|[A-Za-z]:[/\\]|\\\\)")
# The folder of a model in the cache of huggingface_hub: it says which model and which commit.
_CACHED: Final = re.compile(
    r"(?:.*[/\\])?models--(?P<owner>[^/\\]+?)--(?P<name>[^/\\]+)[/\\]snapshots[/\\](?P<sha>[0-9a-f]{40})[/\\]?"
)


class Known(NamedTuple):
    """A base model: its id on the Hub, the commit where it is known."""

    id: str
    revision: str | None


def on_the_hub(name: str | None) -> bool:
    """Whether the name of a base model is one that others can load."""
    return bool(name) and name != "None" and is_repo_id(name or "") and not is_local(name or "")


def cached(path: str | None) -> Known | None:
    """The model whose folder in a cache this is: the folder's name says so."""
    found = _CACHED.fullmatch(path or "")
    if found is None or not is_repo_id(name := f"{found['owner']}/{found['name']}"):
        return None
    return Known(name, found["sha"])


def base_of(base: Base, adapters: Iterable[StoredAdapter]) -> Known:
    """The base model of all adapters: the recipe's word, or what they name.

    Raises:
        RecipeError: Neither says a model that others can load.
    """
    adapters = list(adapters)
    if base.id is not None:
        return Known(base.id, base.revision or _revision(adapters))
    named = {one.config.string(BASE) for one in adapters}
    name = next(iter(named)) if len(named) == 1 else None
    if name is not None and on_the_hub(name):
        return Known(name, base.revision or _revision(adapters))
    told = some(sorted(printable(name, 100) for name in named if name)) or "no model"
    what = f"does not say which base model the adapter is for; adapter_config.json names {told}"
    why = "nobody else can load that, and the Hub refuses a card that names it"
    meant = cached(name)
    hint = "set base.id to its repository on the Hub: base: {id: org/name}"
    if meant is not None:
        hint = f"if it is that: base: {{id: {meant.id}, revision: {meant.revision}}}"
    raise RecipeError(what, why=why, place="base.id", hint=hint)


def _revision(adapters: list[StoredAdapter]) -> str | None:
    """The one that they state; PEFT itself asks the Hub for it."""
    stated = {one.config.string("revision") for one in adapters}
    return stated.pop() if len(stated) == 1 else None


class Edited(NamedTuple):
    """The bytes of a published adapter_config.json, and what was done to them, in words."""

    content: bytes
    notes: tuple[str, ...]


def published_config(adapter: StoredAdapter, base: Known) -> Edited:
    """adapter_config.json as others can use it.

    Args:
        adapter: Whose it is.
        base: What it is for.

    Raises:
        InputError: It needs adapters of the machine that trained.
    """
    path, raw = adapter.config.path, adapter.config.raw
    if adapter.method == "XLORA":
        _check_mixed(adapter)
    content, notes = adapter.content, []
    values = {BASE: base.id, "revision": base.revision, "inference_mode": True}
    if is_local(str(raw.get(_TOKENIZER) or "")):
        values[_TOKENIZER] = base.id
    for key, value in values.items():
        if value is not None and raw.get(key) != value:
            content = with_value(content, f"/{key}", value, path)
    named = adapter.config.string(BASE)
    if named is not None and named != base.id and on_the_hub(named):
        notes.append(f"{path} names the base {printable(named, 100)}; the recipe's {base.id} is written")
    dropped = [*(f"/{key}" for key in _OF_THE_RUN if key in raw), *_paths(raw)]
    for pointer in dropped:
        content = without(content, pointer, path)
    if dropped:
        notes.append(
            f"{path}: {some([printable(place[1:]) for place in dropped])} left out: of the machine that trained"
        )
    return Edited(content, tuple(notes))


def _check_mixed(adapter: StoredAdapter) -> None:
    """Refuses a mixture of adapters of which one lies on the machine that trained.

    Raises:
        InputError: Naming it.
    """
    mixed = adapter.config.mapping("adapters")
    lost = [] if mixed is None else [name for name in mixed.raw if not on_the_hub(mixed.string(name))]
    if mixed is not None and lost:
        what = f"mixes {count(len(lost), 'adapter')} that nobody else has: {some(lost)}"
        hint = "publish each of them first, and write its id on the Hub in the place of the path"
        raise InputError(what, path=adapter.config.path, place=mixed.at(lost[0]), hint=hint)


def _paths(raw: Any, pointer: str = "") -> Iterator[str]:  # noqa: ANN401 - any part of the document
    """JSON Pointers of values that are paths of a machine, in objects of any depth."""
    for key, value in raw.items() if isinstance(raw, dict) else ():
        place = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
        if not pointer and (key in _PATTERNS or key in _OF_THE_RUN):
            continue
        if isinstance(value, str) and _PATH.match(value):
            yield place
        yield from _paths(value, place)
