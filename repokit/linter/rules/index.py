"""IDX: indexes and shards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import DELETE, Example, edited, safetensors, shard, sharded, single, tensors_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count
from repokit.repo.weights import INDEX, SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.repo.weight_index import Index

NORM: Final = "model.norm.weight"
QUERY: Final = "model.layers.0.self_attn.q_proj.weight"
SAVE_AGAIN: Final = "save the model again, into an empty directory"


class MissingShard(Rule):
    """A shard named in the index is not in the repository.

    Loading fails half way through, after the other shards were downloaded; some servers start with random weights
    instead.
    """

    code = "IDX101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("the second shard was not uploaded", {shard(2): None}, "sharded"),
        Example("an index that lists one more shard", {INDEX: {"weight_map": {NORM: shard(4, 4)}}}, "sharded"),
    )
    good = (Example("every shard is there", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            if missing := [path for path in index.shards if not repository.has(path)]:
                message = f"names {count(len(missing), 'shard')} that the repository does not have"
                yield self.finding(index.path, message, names=missing, place="/weight_map")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import over_found_shards

        return over_found_shards(repository, finding)


class ShardOutsideRepository(Rule):
    """A shard's name in the index is not the plain path of a .safetensors file in the same folder.

    transformers joins it to the folder and opens what is there: with `../` a file of the reader's own machine. Other
    loaders refuse the index.
    """

    code = "IDX102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a path that climbs out", {INDEX: {"weight_map": {NORM: "../../other.safetensors"}}}, "sharded"),
        Example("an absolute path", {INDEX: {"weight_map": {NORM: "/root/x.safetensors"}}}, "sharded"),
        Example("backslashes", {INDEX: {"weight_map": {NORM: "..\\x.safetensors"}}}, "sharded"),
        Example("an address", {INDEX: {"weight_map": {NORM: "https://example.org/x.safetensors"}}}, "sharded"),
        Example("a line break in the name", {INDEX: {"weight_map": {NORM: "a\nb.safetensors"}}}, "sharded"),
        Example("the index itself", {INDEX: {"weight_map": {NORM: INDEX}}}, "sharded"),
    )
    good = (Example("names of files in the same folder", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            if index.refused:
                message = "names shards that are not plain paths to .safetensors files"
                yield self.finding(index.path, message, names=index.refused, place="/weight_map", hint=SAVE_AGAIN)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import over_found_shards

        return over_found_shards(repository, finding)


class MisplacedTensor(Rule):
    """The index places a tensor in a shard that does not hold it.

    Loaders that follow the index stop with KeyError; transformers reads whatever the shards hold and initialises the
    rest at random, without an error.
    """

    code = "IDX103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("a tensor that no shard holds", {INDEX: {"weight_map": {"mtp.fc.weight": shard(2)}}}, "sharded"),
        Example("a tensor of another shard", {INDEX: {"weight_map": {NORM: shard(1)}}}, "sharded"),
    )
    good = (Example("every tensor where the index says", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            placed = repository.weights.placement(index)
            for path, names in placed.absent.items():
                lost = sum(name in placed.lost for name in names)
                where = f"{lost:,} of them in no shard" if lost else "they are in other shards"
                message = f"does not hold {count(len(names), 'tensor')} that {index.path} places in it; {where}"
                yield self.finding(path, message, names=names, place=names[0], hint=SAVE_AGAIN)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import with_tensors_where_they_are

        return with_tensors_where_they_are(repository, finding)


class UnlistedTensor(Rule):
    """A shard holds a tensor that the index does not list.

    Loaders that follow the index never read it: the layer keeps its random initial values. Others read it: the same
    repository is two models.
    """

    code = "IDX104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (Example("a line of the index was lost", {INDEX: {"weight_map": {NORM: DELETE}}}, "sharded"),)
    good = (Example("a complete index", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            for path, names in repository.weights.placement(index).unlisted.items():
                message = f"holds {count(len(names), 'tensor')} that {index.path} does not list"
                yield self.finding(path, message, names=names, place=names[0], hint=SAVE_AGAIN)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import with_tensors_where_they_are

        return with_tensors_where_they_are(repository, finding)


class RepeatedTensor(Rule):
    """Two shards hold a tensor of the same name.

    Loaders that read shard after shard keep the last copy, those that follow the index another one: the same repository
    is two models.
    """

    code = "IDX105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "a shard of an earlier run keeps the old head",
            {shard(2): edited(add={"lm_head.weight": ("F32", (32, 16))})},
            "sharded",
        ),
    )
    good = (Example("every tensor once", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            for path, names in repository.weights.placement(index).repeated.items():
                if contested := [name for name in names if not superseded(index, name)]:
                    message = f"holds {count(len(contested), 'tensor')} that another shard holds too"
                    yield self.finding(path, message, names=contested, place=contested[0])

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import without_copies

        return without_copies(repository, finding)


OVERLAY: Final = "model-overlay-00001.safetensors"


class SupersededTensor(Rule):
    """A shard keeps a tensor that the index takes from an overlay.

    Loaders that read every shard may keep the old copy, and everyone downloads both.
    """

    code = "IDX201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "new queries in a file of their own",
            {OVERLAY: safetensors({QUERY: ("BF16", (16, 16))}), INDEX: {"weight_map": {QUERY: OVERLAY}}},
            "sharded",
        ),
    )
    good = (Example("no overlay", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            for path, names in repository.weights.placement(index).repeated.items():
                if old := [name for name in names if superseded(index, name)]:
                    message = f"holds {count(len(old), 'tensor')} that {index.path} takes from an overlay"
                    yield self.finding(path, message, names=old, place=old[0], hint=SAVE_AGAIN)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import without_copies

        return without_copies(repository, finding)


class SingleFileBesideIndex(Rule):
    """model.safetensors lies beside an index of shards.

    transformers loads the single file and ignores the shards, without a word: `save_pretrained` leaves an older file in
    place when the model no longer fits into one.
    """

    code = "IDX106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (Example("the file of an earlier save", {SINGLE: single()[SINGLE]}, "sharded"),)
    good = (
        Example("only shards", base="sharded"),
        Example(
            "an index of one file",
            {INDEX: {"metadata": {}, "weight_map": dict.fromkeys(tensors_of(single()[SINGLE]), SINGLE)}},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            alone = single_of(index)
            if alone is not None and repository.has(alone) and index.shards != (alone,):
                message = f"is loaded instead of the {count(len(index.shards), 'shard')} of {index.path}"
                yield self.finding(alone, message, hint="delete the one that is old")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import without_single_file

        return without_single_file(repository, finding)


class SecondWeightSet(Rule):
    """A weight file that the index does not name holds tensors of the same names.

    Readers that take every .safetensors file of the folder mix two models; everyone downloads both.
    """

    code = "IDX107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example(
            "two shards of an earlier split",
            {shard(1, 2): sharded()[shard(1)], shard(2, 2): sharded()[shard(2)]},
            "sharded",
        ),
    )
    good = (
        Example(
            "Mistral's own layout beside the shards",
            {"consolidated.safetensors": safetensors({"norm.weight": ("BF16", (16,))}), "params.json": '{"dim": 16}'},
            "sharded",
        ),
        Example(
            "another variant",
            {
                "model.safetensors.index.fp16.json": {
                    "metadata": {},
                    "weight_map": {NORM: "model.fp16-00001-of-00001.safetensors"},
                },
                "model.fp16-00001-of-00001.safetensors": safetensors({NORM: ("F16", (16,))}),
            },
            "sharded",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            known = index.weight_map.keys()
            for path in strangers(repository, index):
                if same := [tensor.name for tensor in repository.header(path).tensors if tensor.name in known]:
                    message = f"is not in {index.path} and holds {count(len(same), 'tensor')} of the same names"
                    yield self.finding(path, message, names=same, hint="delete the set that is old")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.index import without_second_set

        return without_second_set(repository, finding)


class UnnamedWeightFile(Rule):
    """A weight file lies beside an index that does not name it.

    Loaders that follow the index never read it, and everyone downloads it.
    """

    code = "IDX202"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the value head of a reward model",
            {"value_head.safetensors": safetensors({"v_head.weight": ("BF16", (1, 16))})},
            "sharded",
        ),
    )
    good = (Example("only shards", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for index in repository.weights.indexes:
            known = index.weight_map.keys()
            for path in strangers(repository, index):
                if known.isdisjoint(tensor.name for tensor in repository.header(path).tensors):
                    yield self.finding(path, f"is not in {index.path}")


RULES: Final = (
    MissingShard(),
    ShardOutsideRepository(),
    MisplacedTensor(),
    UnlistedTensor(),
    RepeatedTensor(),
    SingleFileBesideIndex(),
    SecondWeightSet(),
    SupersededTensor(),
    UnnamedWeightFile(),
)


def superseded(index: Index, name: str) -> bool:
    """Whether the index takes a tensor from a file that says of itself that it lies over others."""
    return "overlay" in index.weight_map.get(name, "").rpartition("/")[2]


def single_of(index: Index) -> str | None:
    """The one file that transformers loads before it looks for this index; diffusers looks for the index first."""
    found = re.fullmatch(r"((?:.*/)?model)\.safetensors\.index((?:\.[^/.]+)?)\.json", index.path)
    return None if found is None else f"{found[1]}{found[2]}.safetensors"


# Files of other layouts and libraries that share a folder with shards: Mistral's own, PEFT's, OpenCLIP's, and the
# variants of transformers (`model.fp16.safetensors`).
OTHER_LAYOUTS: Final = re.compile(
    r"(?:consolidated|adapter_|open_clip_)[^/]*|model(?:\.[^/.]+)?\.safetensors"
    r"|diffusion_pytorch_model\.[^/.]+\.safetensors"  # a variant: only asked for by name
)


def strangers(repository: Repository, index: Index) -> list[str]:
    """Weight files in the folder of an index that neither it nor another index names, known layouts left out."""
    named = {path for other in repository.weights.indexes for path in other.shards}
    return [
        path
        for path in repository.weights.safetensors
        if path.rpartition("/")[0] == index.path.rpartition("/")[0]
        and path not in named
        and not OTHER_LAYOUTS.fullmatch(path.rpartition("/")[2])
    ]
