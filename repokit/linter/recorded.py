"""The manifest of a build that is fixed: it goes on saying what the directory holds.

A file that a fix changed is recorded as one that a person edited: `verify` finds what it expects, and a rebuild stops
before it would write over the fix.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from repokit.errors import MissingInput
from repokit.repo.overlay import Assembled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repokit.repo.overlay import Overlay
    from repokit.schema.manifest import Manifest, ManifestFile

_NAME: Final = "repokit-manifest.json"  # schema/manifest.py has Pydantic models, which most fixes do without
_CHUNK: Final = 8 * 1024 * 1024
_MOST: Final = 64 * 1024 * 1024  # bytes; an entry takes about 200, and 100,000 files are the most


class Recorder:
    """Keeps the manifest of an overlay; remembers what it hashed, because a shard is large."""

    def __init__(self) -> None:
        self._digests: dict[Assembled, str] = {}
        self._bases: dict[str, str] = {}  # of files as they were, by path

    def recorded(self, overlay: Overlay) -> Overlay:
        """The overlay with a manifest that names its files as they are; the same where the base has no manifest."""
        entry = overlay.base.entries().get(_NAME)
        if entry is None or entry.size > _MOST or not overlay.changed.keys() - {_NAME}:
            return overlay
        manifest = _parsed(overlay)
        if manifest is None:
            return overlay
        try:
            files = sorted(self._files(overlay, manifest), key=lambda file: file.path)
        except ValueError:  # a name that no manifest may hold
            return overlay
        if files == list(manifest.files):
            return overlay
        return overlay.with_file(_NAME, manifest.model_copy(update={"files": tuple(files)}).render())

    def _files(self, overlay: Overlay, manifest: Manifest) -> Iterator[ManifestFile]:
        from repokit.operations import KEPT
        from repokit.schema.manifest import ManifestFile

        # What somebody had changed before is not vouched for: its entry stays as it is, and goes on not to match.
        edited = [file for file in manifest.files if overlay.changed.get(file.path) is not None]
        stale = {file.path for file in edited if not self._built(overlay, file)}
        yield from (file for file in manifest.files if file.path not in overlay.changed or file.path in stale)
        for path, content in overlay.changed.items():
            if content is not None and path != _NAME and path not in stale:
                size = overlay.entries()[path].size
                yield ManifestFile(path=path, size=size, sha256=self._sha256(overlay, path), origin=KEPT)

    def _built(self, overlay: Overlay, file: ManifestFile) -> bool:
        """Whether a file of the base is the one that the manifest names."""
        entry = overlay.base.entries().get(file.path)
        if entry is None or entry.size != file.size:
            return False
        if file.path not in self._bases:
            digest = hashlib.sha256()
            for offset in range(0, entry.size, _CHUNK):
                digest.update(overlay.base.read(file.path, offset, _CHUNK))
            self._bases[file.path] = digest.hexdigest()
        return self._bases[file.path] == file.sha256

    def _sha256(self, overlay: Overlay, path: str) -> str:
        content = overlay.changed[path]
        if not isinstance(content, Assembled):
            return hashlib.sha256(content or b"").hexdigest()
        if content not in self._digests:
            digest = hashlib.sha256()
            for offset in range(0, content.size, _CHUNK):
                digest.update(overlay.read(path, offset, _CHUNK))
            self._digests[content] = digest.hexdigest()
        return self._digests[content]


def _parsed(overlay: Overlay) -> Manifest | None:
    """The manifest of the base; None where it is none, which `verify` says."""
    from repokit.schema.manifest import Manifest

    try:
        return Manifest.model_validate_json(overlay.base.read(_NAME))
    except (MissingInput, ValueError):
        return None
