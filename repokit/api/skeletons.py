"""Live skeletons: which process answers, and where its answers are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repokit.architectures.live import Live
    from repokit.architectures.skeleton import Skeleton


def live() -> Live:
    """What derives skeletons with the installed transformers.

    Raises:
        UsageError: It is not installed.
    """
    from repokit.architectures.live import PROGRAM, Live, NoAnswer
    from repokit.repo.hub_cache import Cache, default_folder
    from repokit.verifier.load_check import require_libraries
    from repokit.verifier.load_process import ChildProcess, Lost

    require_libraries("a live skeleton", "it asks the library itself which tensors the class has")

    def ask(request: Mapping[str, Any], seconds: float) -> bytes:
        try:
            with ChildProcess(request, threads=1, program=PROGRAM) as child:
                return child.answer(seconds)
        except Lost as lost:
            raise NoAnswer(str(lost)) from None

    return Live(ask, Cache(default_folder(), "skeletons"))


def live_skeleton(config: Mapping[str, Any], architecture: str | None = None) -> Skeleton:
    """The tensors that a checkpoint of this config must hold, asked of the installed transformers.

    Args:
        config: config.json, parsed.
        architecture: The class; the first of the config's own `architectures` unless it is given.

    Raises:
        UsageError: torch or transformers are not installed.
        NotCovered: transformers has no such class, or not in time; or its code comes with the repository.
        ConfigUnusable: transformers refuses the config, or it asks for more than there can be.
        InputError: torch or transformers do not work here.
    """
    return live().skeleton(config, architecture)
