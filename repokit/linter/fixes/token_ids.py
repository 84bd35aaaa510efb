"""Ids of tokens in config.json and generation_config.json, by the tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from repokit.linter.fix import DropJson, Edit, Fix, SetJson
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.repo.stopping import EOS, Stopping
from repokit.schema.document import steps

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

GENERATION: Final = "generation_config.json"


def ending_at(repository: Repository, token: str | None) -> Fix | None:
    """One more id that ends a generation, in the file that decides: generation_config.json where there is one."""
    tokenizer = repository.tokenizer
    number = None if tokenizer is None or not token else tokenizer.id_of(token)
    if tokenizer is None or number is None or (tokenizer.rows is not None and number >= tokenizer.rows):
        return None
    said = list(Stopping(repository).declared(EOS))
    generation = repository.generation_config
    default = tuple(sorted(Stopping(repository).ids or ()))  # of the class, which a list would replace
    path, place, ids = said[-1] if said else (CONFIG, f"/{EOS}", default)
    if generation is not None:
        own = next((one for one in said if one.path == GENERATION), None)
        path, place, ids = GENERATION, f"/{EOS}", ids if own is None else own.ids
    if not ids:
        return None
    if number in ids:
        return None
    title = f"add {number}, {printable(token, 40)!r}, to {EOS} of {path}"
    return Fix(title, (SetJson(path, place, [*ids, number]),))


def ending_at_eos(repository: Repository, _finding: Finding) -> Fix | None:
    """The tokenizer's end-of-text token among the ids that end a generation."""
    tokenizer = repository.tokenizer
    eos = None if tokenizer is None else tokenizer.roles.get("eos_token")
    return None if eos is None else ending_at(repository, eos.content)


def role_id(repository: Repository, key: str) -> int | None:
    """The tokenizer's own id for `pad_token_id` and its kin, if the embedding has a row for it."""
    tokenizer, rows = repository.tokenizer, repository.weights.token_rows
    token = None if tokenizer is None else tokenizer.roles.get(key.removesuffix("_id"))
    if tokenizer is None or token is None or not tokenizer.is_read:
        return None
    number = tokenizer.id_of(token.content)
    return number if number is not None and (rows is None or number < rows) else None


def within_rows(repository: Repository, finding: Finding) -> Fix | None:
    """A list without the ids that no token can have; a single one as the tokenizer has it."""
    if not finding.place:
        return None
    said: Any = repository.json(finding.path)
    for step in steps(finding.place):
        said = said.get(step) if isinstance(said, dict) else None
    key, wrong = steps(finding.place)[-1], {int(name) for name in finding.names}
    kept = [number for number in said if number not in wrong] if isinstance(said, list) else []
    if kept:
        title = f"take {', '.join(finding.names)} out of {key}"
        return Fix(title, (SetJson(finding.path, finding.place, kept),))
    config, owner = repository.config, finding.place.rpartition("/")[0]
    if finding.path == CONFIG and config is not None and owner not in {"", config.text.pointer}:
        return None  # of a codebook, perhaps, and not of the text
    return as_tokenizer(repository, finding)


def as_tokenizer(repository: Repository, finding: Finding) -> Fix | None:
    """An id as the tokenizer has it."""
    key = steps(finding.place or "/")[-1]
    number = role_id(repository, key)
    if number is None or not finding.place:
        return None
    title = f"set {key} of {finding.path} to {number}, as the tokenizer has it"
    return Fix(title, (SetJson(finding.path, finding.place, number),))


def media_token(repository: Repository, finding: Finding) -> Fix | None:
    """The id of a placeholder as the tokenizer gives it, which is what a processor writes."""
    from repokit.linter.rules.processor import media_token as token_of

    tokenizer, config = repository.tokenizer, repository.config
    key = steps(finding.place or "/")[-1]
    token = token_of(repository, key.partition("_")[0])
    number = None if tokenizer is None or token is None else tokenizer.id_of(token)
    rows = repository.weights.token_rows
    if config is None or number is None or not finding.place or (rows is not None and number >= rows):
        return None
    title = f"set {key} to {number}, the id of {printable(token, 40)!r}"
    return Fix(title, (SetJson(CONFIG, finding.place, number),))


# ---------------------------------------------------------------- settings of generate()


def savable(repository: Repository, finding: Finding) -> Fix | None:
    """A generation_config.json that can be saved again: sampling switched on, or what nothing reads taken out."""
    from repokit.linter.rules.generation import SAMPLING

    config, keys = repository.generation_config, finding.names
    if config is None or not keys:
        return None
    if keys == ("pad_token_id",):
        number = role_id(repository, "pad_token_id")
        if number is not None:
            return Fix(f"set pad_token_id to {number}", (SetJson(GENERATION, "/pad_token_id", number),))
    elif set(keys) <= SAMPLING.keys() and config.raw.get("do_sample") is None and _is_sampling(config):
        return Fix(f"set do_sample to true, for {', '.join(keys)}", (SetJson(GENERATION, "/do_sample", True),))
    edits = tuple(DropJson(GENERATION, config.at(key)) for key in keys)
    return Fix(f"remove {', '.join(keys)}", edits)


def _is_sampling(config: Document) -> bool:
    """Whether the settings can be those of sampling: a temperature of 0 asks for none."""
    temperature: Any = config.number("temperature")
    return temperature is None or temperature >= 0.01


def without_arguments(repository: Repository, finding: Finding) -> Fix | None:
    """What is an argument of a call, or a compiled object: no file can set it."""
    from repokit.linter.rules.generation import OF_GENERATE

    config, key = repository.generation_config, steps(finding.place or "/")[-1]
    edits: list[Edit] = []
    if config is not None and finding.place and (key == "compile_config" or key in OF_GENERATE):
        edits.append(DropJson(GENERATION, finding.place))
    return Fix(f"remove {key}", tuple(edits)) if edits else None
