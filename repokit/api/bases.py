"""Where the config of an adapter's base model is: given by the caller, or in the folder that the adapter names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.formats.strict_json import loads
from repokit.printable import printable
from repokit.repo.adapter import ADAPTER_CONFIG, adapters
from repokit.repo.card import is_path
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG: Final = "config.json"
MOST_BYTES: Final = 16 << 20  # the largest published one has 1.5 MB


def give_base(repository: Repository, base: str | Path | None) -> str | None:
    """Gives a repository the config of the base model of its adapter, where it can be had without a network.

    Args:
        repository: What is looked at.
        base: The folder of the base model; None: the folder that adapter_config.json names, if it is here.

    Returns:
        Where the config is from, or why there is none; None where the repository holds no adapter.

    Raises:
        MissingInput: `base` is no folder with a config.json.
        MalformedFile: Its config.json does not parse.
    """
    if base is not None:
        repository.base = _config(Path(base))
        repository.base_model = Repository(Directory(Path(base), label=str(base)))
        return str(base)
    try:
        found = adapters(repository)
    except InputError:
        return None  # a rule says that it does not parse
    if not found:
        return None
    beside = any(repository.has(one.config.path.removesuffix(ADAPTER_CONFIG) + CONFIG) for one in found)
    folder = _named_folder(repository, [one.config.string("base_model_name_or_path") for one in found])
    if folder is not None:
        repository.base = _config(folder)
        return str(folder)
    return "config.json beside the adapter" if beside else "its config is not here; name its folder with --base"


def _named_folder(repository: Repository, named: list[str | None]) -> Path | None:
    """The one folder that the adapters of a local repository name, where it is here and holds a config.json."""
    paths = set(named)
    path = paths.pop() if len(paths) == 1 else None
    if not isinstance(repository.source, Directory) or not path or not is_path(path) or _is_of_a_network(path):
        return None
    for folder in (Path(path), repository.source.root / path, repository.source.root.parent / path):
        try:
            if folder.is_absolute() and (folder / CONFIG).is_file():
                return folder
        except (OSError, ValueError):  # a name too long, or with a null byte
            return None
    return None


def _is_of_a_network(path: str) -> bool:
    r"""Whether Windows would ask another machine for a path, with the name of the user: `\\host\share`."""
    return path.replace("\\", "/").startswith("//")


def _config(folder: Path) -> Mapping[str, Any]:
    """config.json of a folder.

    Raises:
        MissingInput: There is none.
        MalformedFile: It does not parse.
    """
    path, label = folder / CONFIG, printable(str(folder / CONFIG), 4096)
    try:
        if not path.is_file():
            raise MissingInput("does not exist", path=label, hint="--base names the folder of the base model")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise MissingInput(f"cannot be read: {error.strerror}", path=label) from None
    config = loads(content, label, infinity=True) if len(content) <= MOST_BYTES else None
    if not isinstance(config, dict):
        raise MalformedFile("is not the config of a model", why="it is no JSON object, or too large", path=label)
    return config
