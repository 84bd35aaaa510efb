"""Which model classes transformers has, and which sources decide what their checkpoints hold."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from repokit.architectures.deriver import backends

_NEVER_MODELS = (
    "PreTrainedModel",
    "Config",
    "Tokenizer",
    "TokenizerFast",
    "Processor",
    "FeatureExtractor",
    "Pipeline",
    "Output",
    "Callback",
    "Cache",
)


@functools.lru_cache(maxsize=1)
def model_types() -> dict[str, tuple[str, ...]]:
    """The names of the public model classes of every config class, by the name of the config class.

    Every name of `dir(transformers)` that is a PreTrainedModel and not the common base of a model type. The first call
    imports every modeling module, which takes about 15 seconds.
    """
    backends.allow()
    found: dict[str, list[str]] = defaultdict(list)
    for name in dir(transformers):
        model_class = _model_class(name)
        if model_class is not None:
            found[model_class.config_class.__name__].append(name)
    return {config: tuple(sorted(names)) for config, names in sorted(found.items())}


def _model_class(name: str) -> type[PreTrainedModel] | None:
    if name.startswith("_") or name.endswith(_NEVER_MODELS):
        return None
    try:
        value = getattr(transformers, name)
    except (ImportError, RuntimeError):  # needs a package that is not installed
        return None
    is_model = isinstance(value, type) and issubclass(value, PreTrainedModel)
    return value if is_model and getattr(value, "config_class", None) is not None else None


@functools.lru_cache(maxsize=1)
def _config_classes() -> dict[str, type[PreTrainedConfig]]:
    """Config classes that are not exported at the top level of transformers, by name."""
    found: dict[str, type[PreTrainedConfig]] = {}
    for names in model_types().values():
        config_class = getattr(transformers, names[0]).config_class
        found[config_class.__name__] = config_class
    return found


def config_class(name: str) -> type[PreTrainedConfig]:
    """The config class of that name, whether or not transformers exports it.

    Raises:
        KeyError: No model class has a config class of that name.
    """
    backends.allow()
    exported = getattr(transformers, name, None)
    return exported if exported is not None else _config_classes()[name]


def source_hash(config_class_name: str) -> str:
    """16 hexadecimal digits that change when the sources of a model type do.

    Over the modeling and configuration modules in the type's folder and over conversion_mapping.py, which renames and
    fuses weights. The version of transformers is left out: a release that did not touch a type need not derive it anew.
    """
    digest = hashlib.sha256()
    for path in _sources(config_class(config_class_name)):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sources(config: type[PreTrainedConfig]) -> Iterator[Path]:
    folder = source_folder(config)
    for pattern in ("configuration_*.py", "modeling_*.py"):
        yield from sorted(folder.glob(pattern))
    yield Path(transformers.__file__).parent / "conversion_mapping.py"


def source_folder(config: type[PreTrainedConfig]) -> Path:
    """The folder of the module that defines the config class."""
    return Path(inspect.getfile(sys.modules[config.__module__])).parent
