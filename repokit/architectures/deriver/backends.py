"""Packages that some models ask for and that no shape depends on, or not much of it.

scipy matches boxes in losses, natten runs an attention: the models only check that they are there. timm builds
backbones, and needs torchvision only for images and for layers that are not built here; there is no torchvision for
every torch.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from transformers import utils
from transformers.utils import import_utils

NOT_LOOKED_AT = ("scipy", "natten", "vision")


@functools.lru_cache(maxsize=1)
def allow() -> None:
    """Let models be built without these packages; call it before the first modeling module is imported."""
    for name in NOT_LOOKED_AT:
        import_utils.BACKENDS_MAPPING[name] = (_yes, "")
    if importlib.util.find_spec("timm") is not None and importlib.util.find_spec("torchvision") is None:
        _import_timm()
        import_utils.BACKENDS_MAPPING["timm"] = (_yes, "")
        import_utils.is_timm_available = _yes
        utils.is_timm_available = _yes


def _yes() -> bool:
    return True


def _import_timm() -> None:
    finder = _StandIns()
    sys.meta_path.append(finder)
    try:
        importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)


class _AnyName(type):
    """A class that has every attribute: enumerations like InterpolationMode are read when timm is imported."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(ModuleType):
    """A module of torchvision in which every name is a layer without parameters."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever timm imports by name
        if name.startswith("__"):
            raise AttributeError(name)
        value = _AnyName(name, (torch.nn.Module,), {})
        setattr(self, name, value)
        return value


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: names are made when they are asked for."""
