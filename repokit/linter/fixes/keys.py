"""Single keys of a JSON file: taken out where they say nothing to a reader, set where only one value is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.linter.fix import DeleteFile, DropJson, Fix, SetJson
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.token_ids import TOKENIZER_JSON
from repokit.schema.document import steps

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.repository import Repository


def _set(finding: Finding, value: object, title: str) -> Fix | None:
    return Fix(title, (SetJson(finding.path, finding.place, value),)) if finding.place else None


def _key(finding: Finding) -> str:
    return printable(steps(finding.place or "/")[-1], 60)


def dropped(_repository: Repository, finding: Finding) -> Fix | None:
    """Without the key that a finding is about."""
    return Fix(f"remove {_key(finding)}", (DropJson(finding.path, finding.place),)) if finding.place else None


def nulled(_repository: Repository, finding: Finding) -> Fix | None:
    return _set(finding, None, f"set {_key(finding)} to null")


def zeroed(_repository: Repository, finding: Finding) -> Fix | None:
    return _set(finding, 0, f"set {_key(finding)} to 0")


def special(repository: Repository, finding: Finding) -> Fix | None:
    """An added token as one that is left out of decoded text."""
    document = repository.document(TOKENIZER_JSON)
    entries = () if document is None else document.objects("added_tokens")
    entry = next((one for one in entries if one.at("special") == finding.place), None)
    tokenizer = repository.tokenizer
    named = () if tokenizer is None else [token.content for token in tokenizer.roles.values()]
    if entry is None or entry.raw.get("content") not in named:
        return None  # what ends a generation without a role may be text that a parser reads: </tool_call>
    return _set(finding, True, f"mark {printable(entry.raw.get('content'), 40)!r} as special")


def generic_class(repository: Repository, finding: Finding) -> Fix | None:
    """The class that both generations of transformers have for a tokenizer.json."""
    config = repository.tokenizer_config
    if config is None or "auto_map" in config or not repository.has(TOKENIZER_JSON):
        return None
    if config.string("tokenizer_class") == "SentencePieceBackend":
        return None  # a tokenizer in Python, which reads tokenizer.model
    return _set(finding, "PreTrainedTokenizerFast", "set tokenizer_class to PreTrainedTokenizerFast")


def without_steps_back(repository: Repository, finding: Finding) -> Fix | None:
    """Truncation as it was, without a stride, where it is meant; without truncation elsewhere."""
    document = repository.document(TOKENIZER_JSON)
    truncation = None if document is None else document.mapping("truncation")
    if truncation is None or not finding.place:
        return None
    if not repository.has("modules.json"):
        return nulled(repository, finding)
    if (truncation.integer("max_length") or 0) < 1:
        return None
    return Fix("set stride to 0", (SetJson(finding.path, truncation.at("stride"), 0),))


def float16(repository: Repository, finding: Finding) -> Fix | None:
    """The dtype of the scales, in every spelling, where everything else that is not packed has it too."""
    from repokit.linter.fixes.config import level_at

    config = repository.config
    level = None if config is None else level_at(config, finding.place or "")
    if level is None or repository.weights.stored.dtype not in {"F16", None}:
        return None
    keys = [key for key in ("dtype", "torch_dtype") if level.string(key) is not None]
    edits = tuple(SetJson(CONFIG, level.at(key), "float16") for key in keys)
    return Fix("set the dtype to float16, as the scales are stored", edits) if edits else None


_MEANT: Final = re.compile(r"(?:did you mean|rename it to) (\w+)\??")


def renamed(repository: Repository, finding: Finding) -> Fix | None:
    """A key under the name that its hint says was meant, where it stands."""
    meant = _MEANT.fullmatch(finding.hint or "")
    *parents, key = steps(finding.place or "/")
    owner: Any = repository.json(finding.path)
    for step in parents:
        owner = owner[int(step)] if isinstance(owner, list) else owner.get(step)
    if meant is None or not finding.place or not isinstance(owner, dict) or key not in owner or meant[1] in owner:
        return None
    place = f"{finding.place.rpartition('/')[0]}/{meant[1]}"
    edits = (SetJson(finding.path, place, owner[key]), DropJson(finding.path, finding.place))
    return Fix(f"rename {_key(finding)} to {meant[1]}", edits)


def meant_class(_repository: Repository, finding: Finding) -> Fix | None:
    """The class that the hint names."""
    name = (finding.hint or "").strip('"')
    return _set(finding, name, f"set architectures to {printable(name, 80)}") if name.isidentifier() else None


def from_config(repository: Repository, finding: Finding) -> Fix | None:
    """The ids that config.json has under the same key."""
    config, key = repository.config, steps(finding.place or "/")[-1]
    if config is None or key.startswith("forced_"):
        return None  # where none stands, none is forced: nothing says that it was forgotten
    level = config if config.integers(key) else config.text
    value = level.raw.get(key)
    return _set(finding, value, f"set {key} to {printable(value, 40)}, as {CONFIG} has it")


def exchanged(repository: Repository, finding: Finding) -> Fix | None:
    """A table of labels by number that was written by name."""
    table: Any = repository.json(finding.path)
    for step in steps(finding.place or "/"):
        table = table.get(step) if isinstance(table, dict) else None
    if not isinstance(table, dict) or {type(number) for number in table.values()} != {int}:
        return None
    turned = {str(number): name for name, number in sorted(table.items(), key=lambda item: item[1])}
    if list(turned) != [str(number) for number in range(len(table))]:
        return None
    return _set(finding, turned, f"turn {_key(finding)} round: labels by their numbers")


def unneeded_index(_repository: Repository, finding: Finding) -> Fix | None:
    """Without an index whose shards are gone."""
    return Fix(f"delete {printable(finding.path)}, whose shards are gone", (DeleteFile(finding.path),))
