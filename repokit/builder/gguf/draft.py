"""`repokit init` on GGUF files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from repokit.builder.checkpoints.sources import Role
from repokit.builder.draft import Draft, Facts, rendered
from repokit.builder.gguf.card import task
from repokit.builder.gguf.files import GgufEntry, gguf_entries
from repokit.formats.paths import is_repo_id
from repokit.printable import printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.formats.urls import Place

_MOST: Final = 20  # files that are not recognised, in a comment
_ON_THE_HUB: Final = re.compile(r"https://huggingface\.co/([^/]+/[^/?#]+)/?")
# What convert_hf_to_gguf writes of the model that it converted. general.base_model.* is what that was made from.
_ADDRESSES: Final = ("general.source.repo_url", "general.source.url", "general.repo_url")


def gguf_draft(checkpoint: Checkpoint, *, recipe_folder: Path, base: Place | None) -> Draft:
    """See `draft`.

    Raises:
        InputError: A file is broken, a part is missing, or there is no model.
    """
    facts = _GgufFacts(checkpoint, gguf_entries(checkpoint))
    root = checkpoint.root / (checkpoint.file or "")
    known = facts.base
    text = rendered(
        "repokit-gguf.yaml.jinja",
        facts,
        recipe_folder=recipe_folder,
        base_path=base,
        base=known and known[0],
        base_origin=known and known[1],
        unknown=facts.unrecognised[:_MOST],
    )
    todo = ("repo", *(() if known else ("base.id",)), *(() if facts.license else ("license.id",)))
    return Draft(text, root, tuple(facts.found()), (), todo)


class _GgufFacts(Facts):
    """What GGUF files say about themselves, and where they say so."""

    def __init__(self, checkpoint: Checkpoint, entries: tuple[GgufEntry, ...]) -> None:
        self.entries = entries
        super().__init__(checkpoint)

    @property
    def base(self) -> tuple[str, str] | None:
        if (found := super().base) is not None and found[1] == "README.md":
            return found
        for key in _ADDRESSES:
            for entry in self.entries:
                address = _ON_THE_HUB.fullmatch(entry.head.string(key) or "")
                if address is not None and is_repo_id(address[1]):
                    return address[1], key
        return None

    @property
    def license(self) -> tuple[str, str] | None:
        stated = {entry.head.string("general.license") for entry in self.entries} - {None}
        found = super().license
        if found is not None or len(stated) != 1:
            return found
        return str(stated.pop()), "general.license"

    @property
    def pipeline_tag(self) -> tuple[str, str] | None:
        if (stated := super().pipeline_tag) is not None and stated[1] == "README.md":
            return stated
        found = task(self.entries)
        return (found, "the metadata of the files") if found else None

    @property
    def unrecognised(self) -> list[str]:
        read = {path for entry in self.entries for path in entry.paths}
        return [path for path in self.checkpoint.files(Role.UNKNOWN) if path not in read]

    def found(self) -> Iterator[str]:
        """What lies there, a line each."""
        for entry in self.entries:
            bits = entry.bits_per_weight
            width = "" if bits is None else f", {bits:.2f} bits a weight"
            parts = f", in {len(entry.paths)} parts" if len(entry.paths) > 1 else ""
            yield f"{entry.what:<14}{printable(entry.paths[0])}: {entry.method}, {size(entry.size)}{width}{parts}"
        yield from self.beside()
