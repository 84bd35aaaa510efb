"""verify, the load check, and the gate that a build passes with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repokit.api.linting import Gate
from repokit.errors import InputError, Stopped, UsageError
from repokit.formats.urls import is_url
from repokit.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from repokit.linter.selection import Selection
    from repokit.repo.source import Source
    from repokit.verifier.load_report import LoadReport
    from repokit.verifier.manifest import FilesReport


def verify(
    directory: str | Path,
    *,
    manifest: str | Path | None = None,
    jobs: int = 2,
    progress: Callable[[str, int, int], None] | None = None,
) -> FilesReport:
    """Holds every file of a directory against the manifest of the build: size, sha256, and nothing added.

    Args:
        directory: What was built, a copy, or a download: a snapshot in the Hub's cache too.
        manifest: Another file than the repokit-manifest.json in it.
        jobs: Files that are read at once.
        progress: Told of the bytes that were read.

    Raises:
        MissingInput: There is no such directory, or no manifest.
        MalformedFile: The manifest is not one.
    """
    from repokit.verifier.manifest import check_files

    return check_files(
        Path(directory),
        label=str(directory),
        manifest=None if manifest is None else Path(manifest),
        jobs=jobs,
        progress=progress or (lambda _stage, _done, _total: None),
    )


def check_load(
    directory: str | Path, *, base: str | Path | None = None, timeout: float = 600.0, threads: int = 2
) -> LoadReport:
    """Loads a repository with transformers, offline and in another process, and lets it answer a question.

    No code of the repository runs. Needs the extra `load`.

    Args:
        directory: The repository.
        base: The base model's, for an adapter.
        timeout: Seconds until the process is killed.
        threads: Of torch.

    Raises:
        UsageError: torch or transformers are not installed.
        MissingInput: There is no such directory.
        InputError: The libraries do not work here.
    """
    from repokit.verifier.load_check import Target, check_load as check, require_libraries

    require_libraries()
    target = Target(Path(directory), str(directory), None if base is None else Path(base))
    return check([target], seconds=timeout, threads=threads)[0]


class LoadGate(Gate):
    """Lints as Gate does, and then loads what was written: what does not load is not published.

    Attributes:
        loaded: The report, for the screen; None before there is an output.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        base: str | Path | None = None,
        threads: int = 2,
        live_skeleton: bool = False,
    ) -> None:
        """Fails at once where the libraries are not, instead of after an hour of writing.

        Raises:
            UsageError: torch or transformers are not installed.
        """
        from repokit.verifier.load_check import require_libraries

        super().__init__(selection, live_skeleton=live_skeleton)
        require_libraries()
        self._base = None if base is None else Path(base)
        self._threads = threads
        self.loaded: LoadReport | None = None

    def __call__(self, source: Source, stage: str) -> None:
        from repokit.repo.directory import Directory
        from repokit.verifier.load_check import Target, check_load as check

        if is_url(source.label):
            what = "--load-check loads what lies in a directory, and the output is an address"
            raise UsageError(what, hint="build into a directory; or build, and repokit verify --load a copy of it")
        super().__call__(source, stage)
        if stage == "output" and isinstance(source, Directory):
            self.loaded = check([Target(source.root, source.label, self._base)], threads=self._threads)[0]
            _stop(self.loaded)


def _stop(report: LoadReport) -> None:
    """Raises if a repository does not load, or if nobody knows."""
    trouble = report.trouble
    if report.outcome == "failed":
        hint = "fix the source or the recipe; repokit build without --load-check writes it as it is"
        raise Stopped(f"the written repository does not load; nothing was published: {trouble}", hint=hint)
    if report.outcome == "unchecked":
        hint = "build without --load-check, or check where it can be loaded: repokit verify --load"
        what = f"whether it loads could not be checked; nothing was published: {trouble}"
        raise InputError(what, path=printable(report.directory), why="--load-check asks for it", hint=hint)
