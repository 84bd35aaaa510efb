"""adapter_config.json: what is not for others is changed in it or taken out; all else stays byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.builder.adapters.private import is_of_a_cache, paths, refuse_token, unread_keys
from repokit.errors import InputError, RecipeError
from repokit.formats.json_edit import with_value, without
from repokit.formats.paths import is_local, is_repo_id
from repokit.formats.strict_json import loads
from repokit.printable import count, printable, some
from repokit.schema.recipe import is_revision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.schema.recipe import Base

BASE: Final = "base_model_name_or_path"
# Of the machine that trains, by peft's own word: "runtime_config ... only used for the current runtime".
_OF_THE_RUN: Final = ("runtime_config",)
# Where the tokenizer of a prompt's first words lay (peft 0.21 PromptTuningConfig): null is refused beside them.
_TOKENIZER: Final = "tokenizer_name_or_path"
# Names of modules, expressions and prose: what looks like a path there is none. Or it is written anew.
_PATTERNS: Final = frozenset(
    {
        *("target_modules", "exclude_modules", "modules_to_save", "layers_pattern", "target_parameters"),
        *("rank_pattern", "alpha_pattern", "feedforward_modules", "block_size_pattern", "n_frequency_pattern"),
        *("trainable_token_indices", "prompt_tuning_init_text", "revision", BASE, _TOKENIZER),
    }
)
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
        return Known(base.id, base.revision or _revision(adapters, base.id))
    named = {one.config.string(BASE) for one in adapters}
    name = next(iter(named)) if len(named) == 1 else None
    if name is not None and on_the_hub(name):
        return Known(name, base.revision or _revision(adapters, name))
    told = some(sorted(printable(name, 100) for name in named if name)) or "no model"
    what = f"does not say which base model the adapter is for; adapter_config.json names {told}"
    why = "nobody else can load that, and the Hub refuses a card that names it"
    meant = cached(name)
    hint = "set base.id to its repository on the Hub: base: {id: org/name}"
    if meant is not None:
        hint = f"if it is that: base: {{id: {meant.id}, revision: {meant.revision}}}"
    raise RecipeError(what, why=why, place="base.id", hint=hint)


def _revision(adapters: list[StoredAdapter], base: str) -> str | None:
    """The one that they state; PEFT itself asks the Hub for it."""
    stated = {stated_revision(one, base) for one in adapters}
    return stated.pop() if len(stated) == 1 else None


def stated_revision(adapter: StoredAdapter, base: str) -> str | None:
    """The revision that an adapter states of its base; None where it is of another repository, or can be of none."""
    named, stated = adapter.config.string(BASE) or "", adapter.config.string("revision")
    if stated is None or not is_revision(stated) or not on_the_hub(named):
        return None
    return stated if named.casefold() == base.casefold() else None


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
        InputError: It needs adapters of the machine that trained, or holds a secret.
    """
    path, raw = adapter.config.path, adapter.config.raw
    if adapter.method == "XLORA":
        _check_mixed(adapter)
    content, notes = adapter.content, []
    for key, value in _written(adapter, base).items():
        content = with_value(content, f"/{key}", value, path)
    named = adapter.config.string(BASE)
    if named is not None and named != base.id and on_the_hub(named):
        notes.append(f"{path} names the base {printable(named, 100)}; the recipe's {base.id} is written")
    notes.extend(_changes(adapter, base))
    unread = [key for key in unread_keys(raw) if key not in _OF_THE_RUN]
    dropped = [
        *(adapter.config.at(key) for key in _OF_THE_RUN if key in raw),
        *paths(raw, {*_PATTERNS, *_OF_THE_RUN, *unread}),
    ]
    for pointer in (*map(adapter.config.at, unread), *reversed(dropped)):  # an item before those in front of it
        content = without(content, pointer, path)
    if dropped:
        notes.append(f"{path}: {some([place[1:] for place in dropped])} left out: of the machine that trained")
    if unread:
        notes.append(f"{path}: {some(unread)} left out: PEFT reads no such field of {adapter.method}")
    refuse_token(loads(content, path, infinity=True), path)
    return Edited(content, tuple(notes))


def _written(adapter: StoredAdapter, base: Known) -> dict[str, object]:
    """What stands in the place of values that others cannot use."""
    raw = adapter.config.raw
    values: dict[str, object] = {BASE: base.id, "inference_mode": True}
    if base.revision is not None:
        values["revision"] = base.revision
    elif _is_foreign(adapter, base):
        values["revision"] = None
    if is_local(str(raw.get(_TOKENIZER) or "")):
        values[_TOKENIZER] = base.id
    if is_of_a_cache(raw.get("auto_mapping")):
        values["auto_mapping"] = None  # PEFT takes both of its keys, or none
    return {key: value for key, value in values.items() if key not in raw or raw[key] != value}


def _is_foreign(adapter: StoredAdapter, base: Known) -> bool:
    """Whether it states a revision that is none of the base."""
    return adapter.config.raw.get("revision") is not None and stated_revision(adapter, base.id) is None


def _changes(adapter: StoredAdapter, base: Known) -> Iterator[str]:
    """What of this a person should know."""
    config = adapter.config
    if _is_foreign(adapter, base):
        named, stated = printable(config.string(BASE) or "no model", 100), printable(config.raw["revision"], 60)
        why = f"it is of {named}" if is_revision(config.string("revision") or "") else "it can be none of the Hub's"
        yield f"{config.path} states the revision {stated}, which is left out: {why}"
    if is_of_a_cache(config.raw.get("auto_mapping")):
        yield f"{config.path}: auto_mapping left out: it names a module of the machine that trained"


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
