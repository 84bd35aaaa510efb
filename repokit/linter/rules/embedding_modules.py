"""CFG: the modules of sentence-transformers against each other, and against the transformer that they stand on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.linter.examples import Change, Example, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.layouts import MODULES, embedder
from repokit.linter.rules.tokenizer import POSITION_TABLES

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

SETTINGS: Final = "sentence_bert_config.json"
POOLING: Final = "1_Pooling"
DENSE: Final = "2_Dense"
# How configs call the width of a token's vector at the end of the last layer.
_WIDTHS: Final = ("hidden_size", "d_model", "dim", "n_embd")
_FLAGS: Final = "pooling_mode_"


def projected(
    pooled: int = 16, columns: int = 16, rows: int = 8, stored: tuple[int, int] = (8, 16)
) -> dict[str, Change]:
    """A change that makes the base a model with a pooling and a projection after it."""
    pooling = {"word_embedding_dimension": pooled, "pooling_mode_mean_tokens": True}
    dense = {"in_features": columns, "out_features": rows, "bias": False}
    return {
        **embedder((POOLING, "Pooling"), (DENSE, "Dense")),
        f"{POOLING}/config.json": json.dumps(pooling),
        f"{DENSE}/config.json": json.dumps(dense),
        f"{DENSE}/model.safetensors": safetensors({"linear.weight": ("F32", stored)}),
    }


class MismatchedProjection(Rule):
    """A Dense module does not fit the vectors that come in, or the weights that it has.

    The library stops while it loads the weights, or at the first text, with an error about shapes.
    """

    code = "CFG150"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the projection of a larger model", projected(columns=32, stored=(8, 32))),
        Example("weights of another projection", projected(stored=(4, 16))),
    )
    good = (Example("everything fits", projected()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        width: int | None = None
        for module in modules(repository):
            if module.kind == "Pooling":
                width = pooled_width(module.config)
            elif module.kind == "Dense":
                columns, rows = module.config.integer("in_features"), module.config.integer("out_features")
                if width is not None and columns is not None and columns != width:
                    message = f"takes vectors of {columns:,}, and {width:,} come in"
                    yield self.finding(module.config.path, message, place=module.config.at("in_features"))
                if columns is not None and rows is not None:
                    yield from self._stored(repository, module, (rows, columns))
                width = rows
            elif module.kind not in SAME_WIDTH:
                width = None  # of a module that is not known here

    def _stored(self, repository: Repository, module: Module, wanted: tuple[int, int]) -> Iterator[Finding]:
        path = f"{module.path}/model.safetensors"
        tensors = repository.header(path).tensors if repository.has(path) else ()
        for tensor in tensors:
            if tensor.name == "linear.weight" and tensor.shape != wanted:
                message = f"has a matrix of {list(tensor.shape)}; {module.config.path} says {list(wanted)}"
                yield self.finding(path, message, place=tensor.name)


class MismatchedPooling(Rule):
    """The pooling module names another width than the transformer under it has.

    The library tells everyone that width: vector stores are set up for it, and refuse the vectors that come.
    """

    code = "CFG250"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the pooling of a larger model", projected(24, 24, 8, (8, 24))),)
    good = (Example("the width of the model", projected()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config = repository.config
        first = next(modules(repository), None)
        widths = [] if config is None else [config.text.integer(key) for key in _WIDTHS if key in config.text]
        if config is None or first is None or first.kind != "Pooling" or len(widths) != 1 or "auto_map" in config:
            return
        key = next((key for key in ("word_embedding_dimension", "embedding_dimension") if key in first.config), "")
        said = first.config.integer(key)
        if said is not None and widths[0] is not None and said != widths[0]:
            message = f"says vectors of {said:,}; config.json has {widths[0]:,}"
            yield self.finding(first.config.path, message, place=first.config.at(key))


class OverlongSequence(Rule):
    """sentence-transformers cuts texts to a length for which the model has no positions.

    The first long text is an index out of range.
    """

    code = "CFG251"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (Example("longer than the table", {**projected(), SETTINGS: '{"max_seq_length": 512}'}),)
    good = (Example("shorter by choice", {**projected(), SETTINGS: '{"max_seq_length": 32}'}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        config, settings = repository.config, repository.document(SETTINGS)
        positions = None if config is None else config.integer("max_position_embeddings")
        length = None if settings is None else settings.integer("max_seq_length")
        if config is None or settings is None or length is None or config.model_type not in POSITION_TABLES:
            return
        if positions and length > positions:
            message = f"cuts texts to {length:,} tokens; config.json has {positions:,} positions"
            yield self.finding(SETTINGS, message, place=settings.at("max_seq_length"))

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.tokenizer import within_positions

        return within_positions(repository, finding)


RULES: Final = (MismatchedProjection(), MismatchedPooling(), OverlongSequence())

# Modules that leave the width of a vector as it is.
SAME_WIDTH: Final = frozenset({"Normalize", "Dropout", "LayerNorm"})


class Module(NamedTuple):
    """A module after the transformer.

    Attributes:
        kind: The last part of its class.
        path: Its folder.
        config: Its settings; empty where it has none.
    """

    kind: str
    path: str
    config: Document


def modules(repository: Repository) -> Iterator[Module]:
    """Modules of the library in their order, up to the first that is another's; none over a part in a folder."""
    if not repository.has(MODULES):
        return
    from repokit.repo.document import Document
    from repokit.schema.sentence_transformers import is_of_library

    entries = repository.json(MODULES)
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        match entry:
            case {"path": str() as path, "type": str() as kind} if is_of_library(kind):
                name = kind.rpartition(".")[2]
            case _:
                return
        if number == 0:
            if name != "Transformer" or path:
                return
            continue
        yield Module(name, path, repository.document(f"{path}/config.json") or Document(f"{path}/config.json", {}))


def pooled_width(config: Document) -> int | None:
    """Width of what a pooling gives: one width a mode, as they are joined."""
    width = config.integer("word_embedding_dimension") or config.integer("embedding_dimension")
    modes = [key for key in config.raw if key.startswith(_FLAGS) and config.flag(key)]
    named = config.raw.get("pooling_mode")
    number = len(named) if isinstance(named, list) else 1 if isinstance(named, str) else len(modes)
    return width * number if width and number else None
