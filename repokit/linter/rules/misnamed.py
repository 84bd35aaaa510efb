"""FIL: files that nobody finds under their names, and files that are not what a build made of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from repokit.formats.strict_json import dumps
from repokit.linter.examples import Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.slips import is_slip
from repokit.printable import printable

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.schema.manifest import Manifest

# What loaders open by exactly this name; a repository without one of them is read as if it never had it.
LOADED: Final = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)

# What editors, shells and browsers put after a name: `config.json.bak`, `config.json~`, `config (1).json`.
_SET_ASIDE: Final = re.compile(r"\.(?:old|bak|backup|orig|original|save|saved|tmp|disabled|[0-9]{1,2})|~|\.~[0-9]+~")
_WEIGHTS_ASIDE: Final = re.compile(rf"([^/]+\.(?:safetensors|gguf))(?:{_SET_ASIDE.pattern})")
_NUMBERED: Final = re.compile(r" ?\([0-9]{1,2}\)| copy(?: [0-9]{1,2})?|[ _-]Copy(?:[0-9]{1,2})?")


class MisnamedFile(Rule):
    """A file's name is nearly one that loaders look for, and that one is not there.

    Nothing opens it: what it holds is silently replaced by defaults, or loading stops for want of it.
    """

    code = "FIL231"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("a letter short", {"generation_config.json": None, "genration_config.json": "{}"}),
        Example("set aside, and never put back", {"generation_config.json": None, "generation_config.json.bak": "{}"}),
        Example("downloaded twice", {"generation_config.json": None, "generation_config (1).json": "{}"}),
        Example("a dash for a line", {"generation_config.json": None, "generation-config.json": "{}"}),
        Example("weights that were set aside", {"model-Q4_0.gguf.bak": b""}),
        Example("capitals", {"generation_config.json": None, "Generation_Config.json": "{}"}),
    )
    good = (
        Example("another file of the same kind", {"generation_config.json": None, "generation_config_2.json": "{}"}),
        Example("an older one beside the one that is read", {"generation_config.json.old": "{}"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        absent = [name for name in LOADED if not repository.has(name)]
        for path in repository.files:
            meant = next((name for name in absent if "/" not in path and is_misnamed(path, name)), set_aside(path))
            if meant is not None and not repository.has(meant):
                yield self.finding(path, f"is read by no loader; {meant} is", hint=f"rename it to {meant}")


def set_aside(path: str) -> str | None:
    """The name of a weight file before something was put after it."""
    match = _WEIGHTS_ASIDE.fullmatch(path)
    return match[1] if match else None


def is_misnamed(path: str, meant: str) -> bool:
    """Whether a name is this one with a slip, in capitals, or with what marks a copy."""
    if path.casefold() == meant or is_slip(path, meant):
        return True
    stem, dot, ending = meant.partition(".")
    middle = path[len(stem) : len(path) - len(dot + ending)]
    is_numbered = path == stem + middle + dot + ending and _NUMBERED.fullmatch(middle) is not None
    return is_numbered or (path.startswith(meant) and _SET_ASIDE.fullmatch(path[len(meant) :]) is not None)


MANIFEST: Final = "repokit-manifest.json"  # schema/manifest.py, which loads Pydantic
_HASHED: Final = (".json", ".jinja", ".txt", ".py", ".model", ".tiktoken")  # small, or read whole by other rules too
_MOST: Final = 64 * 1024 * 1024


def manifest_of(content: Mapping[str, bytes]) -> bytes:
    """A manifest of these files, for the examples."""
    files = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "origin": "source"}
        for path, data in sorted(content.items())
    ]
    return dumps({"version": 1, "created_by": "repokit 0.1.0", "files": files})


_BUILT: Final = b'{"max_new_tokens": 8}'


class ChangedSinceBuild(Rule):
    """A file is not the one that `repokit build` wrote.

    Edited, cut or lost after the build was checked: the next build stops at it, and what was tested is not what is
    published. The card is for people to edit, and is left out.
    """

    code = "FIL230"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a value was changed by hand",
            {MANIFEST: manifest_of({"extra.json": _BUILT}), "extra.json": '{"max_new_tokens": 9}'},
        ),
        Example("a file was lost", {MANIFEST: manifest_of({"extra.json": _BUILT})}),
    )
    good = (
        Example("as it was built", {MANIFEST: manifest_of({"extra.json": _BUILT}), "extra.json": _BUILT}),
        Example("a file that was added", {MANIFEST: manifest_of({}), "extra.json": _BUILT}),
        Example("a card that was edited", {MANIFEST: manifest_of({"README.md": b"# Model\n"})}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        manifest = built(repository)
        for file in () if manifest is None else manifest.files:
            entry = repository.files.get(file.path)
            if file.path == "README.md":
                continue
            if entry is None:
                yield self.finding(MANIFEST, f"lists {printable(file.path)}, which is not there", names=(file.path,))
            elif entry.size != file.size:
                yield self.finding(file.path, f"has {entry.size:,} bytes; the build wrote {file.size:,}")
            elif file.path.endswith(_HASHED) and entry.size <= _MOST:
                content = repository.glance(file.path)
                if content is not None and hashlib.sha256(content).hexdigest() != file.sha256:
                    yield self.finding(file.path, "holds other bytes than the build wrote")


def built(repository: Repository) -> Manifest | None:
    """The manifest of the build that made this directory; None where there is none that this version reads."""
    content = repository.content(MANIFEST) if repository.has(MANIFEST) else None
    if content is None or len(content) > _MOST:
        return None
    from pydantic import ValidationError

    from repokit.schema.manifest import Manifest

    try:
        return Manifest.model_validate_json(content)
    except ValidationError:
        return None


RULES: Final = (MisnamedFile(), ChangedSinceBuild())
