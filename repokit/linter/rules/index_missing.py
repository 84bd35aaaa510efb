"""IDX: shards that no index tells of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.printable import count
from repokit.repo.weights import INDEX, SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository


class MissingIndex(Rule):
    """The weights lie in shards, and there is no index.

    transformers looks for the index or for one file, and finds neither: "no file named model.safetensors".
    """

    code = "IDX130"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (Example("it was not uploaded", {INDEX: None}, "sharded"),)
    good = (Example("the index is there", base="sharded"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        files = repository.files
        shards = [path for path in files if SHARD.fullmatch(path) and files[path].size > POINTER]
        is_told = SINGLE in files or any(".index" in path and path.endswith(".json") for path in files)
        if len(shards) > 1 and not is_told:
            message = f"and {count(len(shards) - 1, 'shard')} more are in no index"
            yield self.finding(shards[0], message, names=shards, hint=f"write {INDEX}, or build the repository again")


RULES: Final[tuple[Rule, ...]] = (MissingIndex(),)

POINTER: Final = 256  # bytes; a clone without the large files says nothing of what else was left out
SHARD: Final = re.compile(r"model-[0-9]{5}-of-[0-9]{5}\.safetensors")
