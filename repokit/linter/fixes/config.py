"""config.json: what the weights, the class or another file of the repository say of a value in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.architectures import ConfigUnusable, Evidence, NotCovered, covered, evidence, skeleton
from repokit.formats.tensors import HEADER_NAMES
from repokit.linter.fix import Edit, Fix, SetJson
from repokit.printable import printable
from repokit.repo.config import CONFIG
from repokit.resources import data
from repokit.schema.document import steps

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.config import Config
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

TIE: Final = "tie_word_embeddings"


def level_at(config: Config, place: str) -> Document | None:
    """The object of config.json in which a value stands."""
    return next((level for level in config.levels if level.pointer == place.rpartition("/")[0]), None)


# ---------------------------------------------------------------- what to build


def with_model_type(repository: Repository, _finding: Finding) -> Fix | None:
    """The model_type whose class config.json names; a class of transformers belongs to one."""
    config = repository.config
    if config is None or "auto_map" in config or len(config.architectures) != 1:
        return None
    name = config.architectures[0]
    # Classes are named after their model type; to ask all 700 for theirs takes more than a second.
    namesakes = [kind for kind in data("model_types")["model_types"] if name.lower().startswith(_bare(kind))]
    found = [kind for kind in namesakes if name in covered(kind)]
    if len(found) != 1:
        return None
    return Fix(f"set model_type to {found[0]}, to which {name} belongs", (SetJson(CONFIG, "/model_type", found[0]),))


def _bare(kind: str) -> str:
    """A model type as the names of its classes spell it, in small letters."""
    return re.sub(r"[^a-z0-9]", "", kind.lower())


def with_architectures(repository: Repository, _finding: Finding) -> Fix | None:
    """The one class of the model_type that has exactly the tensors of the weights."""
    from repokit.architectures.comparison import compare

    config, weights = repository.config, repository.weights
    if config is None or config.model_type is None or "auto_map" in config or weights.quantized:
        return None
    held = {name: tensor.shape for name, tensor in weights.whole.items()}
    exact = []
    for name in covered(config.model_type):
        try:
            if compare(skeleton(config.raw, name), held).exact:
                exact.append(name)
        except (NotCovered, ConfigUnusable):
            continue
    if len(exact) != 1 or evidence(config.model_type, exact[0]) is not Evidence.VERIFIED:
        return None
    title = f"set architectures to {exact[0]}, the one class with these tensors"
    return Fix(title, (SetJson(CONFIG, "/architectures", exact),))


# ---------------------------------------------------------------- dtypes


def stored_dtype(repository: Repository) -> str | None:
    """The dtype of the weights by torch's name; None where a quantizer rewrote them, or they are of an adapter."""
    weights = repository.weights
    stored = None if not weights.files or weights.of_adapter or weights.quantized else weights.stored.dtype
    return None if stored is None else HEADER_NAMES.get(stored)


def with_torch_name(repository: Repository, finding: Finding) -> Fix | None:
    """The dtype as torch spells it: `torch.bfloat16`, `BF16` and `auto`, which stands for what is stored."""
    from repokit.linter.rules.config import is_torch_dtype

    config = repository.config
    level = None if config is None or not finding.place else level_at(config, finding.place)
    said = None if level is None or not finding.place else level.string(steps(finding.place)[-1])
    if said is None or not finding.place:
        return None
    near = said.removeprefix("torch.")
    name = near if is_torch_dtype(near) else HEADER_NAMES.get(said)
    if name is None and said == "auto":
        name = stored_dtype(repository)
    return None if name is None else Fix(f"set the dtype to {name}", (SetJson(finding.path, finding.place, name),))


def with_one_dtype(repository: Repository, finding: Finding) -> Fix | None:
    """Of two spellings that differ, the one that says what is stored, in both places."""
    stored, config = stored_dtype(repository), repository.config
    level = None if config is None or not finding.place else level_at(config, finding.place)
    if level is None or stored not in {level.string("dtype"), level.string("torch_dtype")}:
        return None
    wrong = "dtype" if level.string("dtype") != stored else "torch_dtype"
    return Fix(f"set {wrong} to {stored}, as the weights are stored", (SetJson(CONFIG, level.at(wrong), stored),))


def with_stored_dtype(repository: Repository, finding: Finding) -> Fix | None:
    """What is stored, in every spelling at the place that counts."""
    stored, config = stored_dtype(repository), repository.config
    level = None if config is None or not finding.place else level_at(config, finding.place)
    if stored is None or level is None or config is None or config.dtype in repository.weights.stored.bytes:
        return None  # some matrices are stored as declared: which of the two is meant, they do not say
    keys = [key for key in ("dtype", "torch_dtype") if level.string(key) is not None]
    edits = tuple(SetJson(CONFIG, level.at(key), stored) for key in keys)
    return Fix(f"set {' and '.join(keys)} to {stored}, as the weights are stored", edits)


# ---------------------------------------------------------------- sizes


def with_rows(repository: Repository, finding: Finding) -> Fix | None:
    """vocab_size by the embedding, where the head has as many rows."""
    config, weights = repository.config, repository.weights
    if config is None or finding.path != CONFIG or weights.embedding is None or weights.quantized:
        return None
    rows = weights.embedding.shape[0]
    text = config.text
    level = text if "vocab_size" in text else config
    if finding.place != level.at("vocab_size") or any(head.shape[0] != rows for head in weights.heads):
        return None
    return Fix(f"set vocab_size to {rows:,}, the rows of the embedding", (SetJson(CONFIG, finding.place, rows),))


def with_fewer_entries(repository: Repository, finding: Finding) -> Fix | None:
    """A list of layers without what goes on behind the last one."""
    config = repository.config
    level = None if config is None or not finding.place else level_at(config, finding.place)
    key = steps(finding.place)[-1] if finding.place else ""
    values, layers = (None, None) if level is None else (level.raw.get(key), level.integer("num_hidden_layers"))
    if not isinstance(values, list) or layers is None or not 0 < layers < len(values) or not finding.place:
        return None
    title = f"cut {key} off behind layer {layers:,}"
    return Fix(title, (SetJson(CONFIG, finding.place, values[:layers]),))


# ---------------------------------------------------------------- tied weights


def with_one_tie_flag(repository: Repository, _finding: Finding) -> Fix | None:
    """What the weights are, at both levels.

    A head that is stored is read where the flag is false, and is right whether it is a copy or not; without one the
    model can only take the embedding.
    """
    config, weights = repository.config, repository.weights
    if config is None or weights.embedding is None or weights.quantized or not weights.whole:
        return None
    if any(head.shape != weights.embedding.shape for head in weights.heads):
        return None
    tied = not weights.heads
    places = [level.at(TIE) for level in (config, config.text) if level.flag(TIE) is not tied]
    if not places:
        return None
    why = "the weights hold no head" if tied else "the weights hold a head"
    edits = tuple(SetJson(CONFIG, place, tied) for place in places)
    return Fix(f"set {TIE} to {str(tied).lower()} at both levels: {why}", edits)


# ---------------------------------------------------------------- rotary embeddings


def with_new_rope(repository: Repository, finding: Finding) -> Fix | None:
    """The older spelling as `rope_parameters` has it, which is what transformers 5 reads."""
    config, place = repository.config, finding.place
    if config is None or not place:
        return None
    key = steps(place)[-1]
    owner = place.rpartition("/")[0].removesuffix("/rope_scaling")
    level = next((one for one in config.levels if one.pointer == owner), None)
    new = None if level is None else level.mapping("rope_parameters")
    if new is None or new.number(key) is None:
        return None
    title = f"set {key} to {printable(new.raw[key])}, as rope_parameters has it"
    return Fix(title, (SetJson(CONFIG, place, new.raw[key]),))


def with_old_rope(repository: Repository, finding: Finding) -> Fix | None:
    """rope_theta and rope_scaling beside `rope_parameters`, saying the same.

    transformers 5 takes rope_scaling for rope_parameters where both are there, with the rope_theta beside it, so that
    both are written; what else it would lose is left to a person.
    """
    config, place = repository.config, finding.place
    owner = "" if not place else place[: place.index("/rope_parameters")]
    level = None if config is None else next((one for one in config.levels if one.pointer == owner), None)
    new = None if level is None else level.mapping("rope_parameters")
    if level is None or new is None or "partial_rotary_factor" in new or new.string("rope_type") == "longrope":
        return None  # transformers 4 takes exactly three keys of longrope
    edits: list[Edit] = []
    if (theta := new.raw.get("rope_theta")) is not None and "rope_theta" not in level:
        edits.append(SetJson(CONFIG, level.at("rope_theta"), theta))
    elif theta is None and "rope_theta" not in level and place == new.pointer:
        return None  # the default of the class is then not written anywhere
    if place == new.pointer:
        edits.append(SetJson(CONFIG, level.at("rope_scaling"), older_scaling(new.raw)))
    names = " and ".join(steps(edit.pointer)[-1] for edit in edits if isinstance(edit, SetJson))
    return Fix(f"write {names} beside rope_parameters, as it has them", tuple(edits)) if edits else None


def older_scaling(new: Any) -> dict[str, Any]:  # noqa: ANN401 - an object of JSON
    """`rope_scaling` as transformers 4 reads it; before 4.43 it knew `type` and `factor` alone."""
    kept = {key: value for key, value in new.items() if key not in {"rope_theta", "rope_type", "type"}}
    kind = new.get("rope_type") or new.get("type")
    return {"type" if kept.keys() == {"factor"} else "rope_type": kind, **kept}


# ---------------------------------------------------------------- labels


def with_inverse_labels(repository: Repository, _finding: Finding) -> Fix | None:
    """label2id as the inverse of id2label, where every label has a number of its own."""
    config = repository.config
    names = None if config is None else config.mapping("id2label")
    if names is None or not all(key.isdecimal() and isinstance(name, str) for key, name in names.raw.items()):
        return None
    inverse = {name: int(key) for key, name in names.raw.items()}
    if len(inverse) != len(names.raw):
        return None
    return Fix("write label2id as the inverse of id2label", (SetJson(CONFIG, "/label2id", inverse),))
