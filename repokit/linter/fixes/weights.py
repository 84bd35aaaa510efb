"""Weight files: what their headers lack, tensors that nothing needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.architectures.comparison import compare
from repokit.linter.fix import DeleteFile, Edit, EditTensors, Fix, RebuildIndex, SetJson
from repokit.linter.fixes.config import TIE
from repokit.linter.fixes.index import index_of, is_whole
from repokit.linter.rules.expected_tensors import judgement
from repokit.printable import count, printable
from repokit.repo.config import CONFIG
from repokit.schema.document import steps

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.linter.rules.expected_tensors import Judgement
    from repokit.repo.repository import Repository


def with_format(repository: Repository, finding: Finding) -> Fix | None:
    """`"format": "pt"`, in repositories whose config is one of transformers or PEFT: those are torch's names."""
    config, adapter = repository.config, repository.adapter_config
    of_transformers = config is not None and config.model_type is not None
    if not of_transformers and (adapter is None or "peft_type" not in adapter):
        return None
    edits = [
        EditTensors(path, metadata={**(repository.header(path).metadata or {}), "format": "pt"})
        for path in finding.names
    ]
    return Fix('write "format": "pt" into the metadata', tuple(edits))


def without_file(repository: Repository, finding: Finding) -> Fix | None:
    """The repository without a file that holds nothing and that nothing names."""
    if finding.path in repository.weights.files or index_of(repository, finding.path) is not None:
        return None
    return Fix(f"delete {printable(finding.path)}, which holds no tensors", (DeleteFile(finding.path),))


def without(repository: Repository, names: frozenset[str], title: str) -> Fix | None:
    """The weights without some tensors, index and all."""
    index = repository.weights.index
    if index is not None and (not is_whole(repository, index) or repository.weights.placement(index).repeated):
        return None
    edits: list[Edit] = []
    for path in repository.weights.files:
        here = names & {tensor.name for tensor in repository.header(path).tensors}
        if here:
            edits.append(EditTensors(path, drop=here))
    if edits and index is not None:
        edits.append(RebuildIndex(index.path))
    return Fix(title, tuple(edits)) if edits else None


def without_tied_copies(repository: Repository, finding: Finding) -> Fix | None:
    """Without the matrices that are equal byte for byte to those that they are tied to."""
    which = count(len(finding.names), "copy", "copies")
    title = f"remove {which} of tied matrices: {printable(finding.names[0], 120)}"
    return without(repository, frozenset(finding.names), title)


def untied(repository: Repository, _finding: Finding) -> Fix | None:
    """`tie_word_embeddings: false`, where that is what makes two different matrices one."""
    config = repository.config
    if config is None:
        return None
    levels = [level for level in dict.fromkeys((config, config.text)) if level.flag(TIE)]
    judged = judgement(repository)
    places = [level.at(TIE) for level in levels or [config]]
    if judged is None:
        if not levels:
            return None
    elif not _is_untied(judged, places):
        return None
    return Fix(f"set {TIE} to false: the two matrices differ", tuple(SetJson(CONFIG, place, False) for place in places))


def _is_untied(judged: Judgement, places: list[str]) -> bool:
    """Whether the architecture holds two matrices once the flag says so."""
    after = dict(judged.config)
    for place in places:
        outer, *inner = steps(place)
        after[outer] = {**after[outer], TIE: False} if inner else False
    found = compare(judged.expand(after, judged.skeleton.architecture), judged.held)
    return not found.duplicates and found.problems <= judged.comparison.problems


def without_buffers(repository: Repository, finding: Finding) -> Fix | None:
    """Without buffers that every version of today computes."""
    which = count(len(finding.names), "buffer")
    return without(repository, frozenset(finding.names), f"remove {which} of older versions")


def written_anew(_repository: Repository, finding: Finding) -> Fix | None:
    """The same file with a header as safetensors writes it."""
    return Fix("write the header again", (EditTensors(finding.path),))
