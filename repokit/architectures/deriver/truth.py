"""Ground truth: the tensors that transformers itself would save for one model class and one config.

The model is built on the meta device, so nothing is allocated; then follow the steps of
`save_pretrained(save_original_format=True)` of a model that was not loaded from disk: state dict, minus
`_keys_to_ignore_on_save`, minus tied weights, with the weight conversions of loading reverted. Chunk, cat, stack and
transpose only compute shapes there.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import logging
import re
import signal
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn import init
from transformers import (
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    conversion_mapping,
    core_model_loading,
    modeling_utils,
)
from transformers.utils import hub

Shape = tuple[int, ...]

MAX_TENSORS = 6000  # a larger sample costs more than it tells


class Refused(Exception):
    """A model class does not take this config, or takes too long over it."""


class _TimeUp(BaseException):
    """Not an Exception: models catch those."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What one model class holds under one config.

    Attributes:
        disk: On-disk name to shape.
        memory: In-memory name to shape, without tied copies: what `save_original_format=False` writes.
        model: The model on the meta device.
    """

    disk: dict[str, Shape]
    memory: dict[str, Shape]
    model: PreTrainedModel


def truth(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, *, seconds: float, most: int = MAX_TENSORS
) -> Truth:
    """Build the model and say what its checkpoint holds, in both forms.

    Raises:
        Refused: The class raised an exception, took more than `seconds`, or has more than `most` tensors.
    """
    with guarded(seconds):
        model, state = _state(model_class, config, most)
        memory = _shapes(state)
        return Truth(_shapes(_reverted(model, state, most)), memory, model)


def on_disk(model_class: type[PreTrainedModel], config: PreTrainedConfig, *, seconds: float) -> dict[str, Shape]:
    """On-disk name to shape; raises Refused as `truth` does."""
    with guarded(seconds):
        return _shapes(_reverted(*_state(model_class, config)))


def in_memory(model_class: type[PreTrainedModel], config: PreTrainedConfig, *, seconds: float) -> dict[str, Shape]:
    """In-memory name to shape, without tied copies; raises Refused as `truth` does."""
    with guarded(seconds):
        return _shapes(_state(model_class, config)[1])


def _state(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, most: int = MAX_TENSORS
) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    with torch.device("meta"):
        model = model_class(config)
    state = model.state_dict(keep_vars=True)
    if len(state) > most:
        raise Refused(f"{len(state)} tensors")
    for name in model._keys_to_ignore_on_save or ():  # noqa: SLF001  # the library has no public name for it
        state.pop(name, None)
    if len({id(tensor) for tensor in state.values()}) < len(state):
        model.get_parameter_or_buffer = dict(
            state
        ).__getitem__  # asked for every name; its own way takes a quarter of it all
        state = modeling_utils.remove_tied_weights_from_state_dict(state, model)
        del model.get_parameter_or_buffer
    return model, state


def _reverted(
    model: PreTrainedModel, state: dict[str, torch.Tensor], most: int = MAX_TENSORS
) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        reverted = _renamed(model, state)
        if reverted is None:
            reverted = core_model_loading.revert_weight_conversion(model, dict(state))
    if len(reverted) > most:
        raise Refused(f"{len(reverted)} tensors")
    return reverted


def _renamed(model: PreTrainedModel, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
    """The result of `revert_weight_conversion` in a third of the time: tensors are converted by it, names are not.

    It makes an object for every tensor, even for those that are only renamed. None where names collide: there it must
    decide.
    """
    mapping = conversion_mapping.get_model_conversion_mapping(model, add_legacy=False)
    transforms = [item for item in mapping if not isinstance(item, core_model_loading.PrefixChange)]
    reverse = [item.reverse_transform() for item in reversed(transforms)]
    converters = [item for item in reverse if isinstance(item, core_model_loading.WeightConverter)]
    renamings = [item for item in reverse if isinstance(item, core_model_loading.WeightRenaming)]
    converted = {name for name in state if core_model_loading.apply_converters(name, converters)[1] is not None}
    renamed = {
        core_model_loading.apply_renamings(name, renamings): tensor
        for name, tensor in state.items()
        if name not in converted
    }
    if converted:
        some = {name: state[name] for name in state if name in converted}
        restored = core_model_loading.revert_weight_conversion(model, some)
        if restored.keys() & renamed.keys():
            return None
        renamed.update(restored)
    return renamed if len(renamed) >= len(state) - len(converted) else None


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


@contextlib.contextmanager
def guarded(seconds: float) -> Iterator[None]:
    """Turn whatever goes wrong inside, and more than `seconds` of it, into Refused; let nothing be printed.

    The time limit is a signal: call it in the main thread only.
    """
    before = signal.signal(signal.SIGALRM, _time_is_up)
    try:
        with _cheap(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)  # again and again: a finalizer may swallow the first
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except Refused:
        raise
    except _TimeUp:
        raise Refused(f"took more than {seconds:g} s") from None
    except (Exception, SystemExit) as error:
        raise Refused(f"{type(error).__name__}: {error}"[:300]) from error
    finally:
        # One more alarm may come while the timer is being stopped: by default it would end the process.
        signal.signal(signal.SIGALRM, signal.SIG_IGN if before is signal.SIG_DFL else before)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_is_up(_signal: int, _frame: FrameType | None) -> None:
    raise _TimeUp


@functools.lru_cache(maxsize=1)
def prepare() -> None:
    """Make this process one that builds models and does nothing else with them. Done once, and never undone."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    for owner, name, value in _replacements():
        setattr(owner, name, value)
    re._MAXCACHE = 100_000  # type: ignore[attr-defined]  # noqa: SLF001  # every build compiles the patterns of its conversions anew
    gc.collect()
    gc.freeze()  # torch and transformers stay; walking them in every collection takes a tenth of the time


@contextlib.contextmanager
def _cheap() -> Iterator[None]:
    """What `prepare` does, for as long as one model is built: other code of this process is left as it was."""
    if prepare.cache_info().currsize:
        yield
        return
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in _replacements() if name in owner.__dict__]
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for owner, name, value in _replacements():
                setattr(owner, name, value)
            yield
        finally:
            logging.disable(level)
            for owner, name, _ in _replacements():
                if not any(one is owner and kept == name for one, kept, _ in before):
                    delattr(owner, name)
            for owner, name, value in before:
                setattr(owner, name, value)


@functools.lru_cache(maxsize=1)
def _replacements() -> tuple[tuple[Any, str, Any], ...]:
    """What is left out because no checkpoint shows it.

    Values are never looked at, so nothing initialises them; no generation config, parallel plan or gradient
    checkpointing is set up; and models that look for the weights of their backbone find no network.
    """
    generation = GenerationConfig()

    def shared_generation_config(_class: type, _config: PreTrainedConfig) -> GenerationConfig:
        return generation

    found: list[tuple[Any, str, Any]] = [(hub.constants, "HF_HUB_OFFLINE", True)]
    found += [(init, name, _untouched) for name in dir(init) if name.endswith("_") and not name.startswith("_")]
    layers = (nn.Linear, nn.Bilinear, nn.Embedding, nn.LayerNorm, nn.GroupNorm, nn.modules.conv._ConvNd)  # noqa: SLF001  # the base of all convolutions
    found += [(layer, "reset_parameters", _nothing) for layer in layers]
    skipped = (
        "init_parallel_plans",
        "_backward_compatibility_gradient_checkpointing",
        "initialize_weights",
        "_initialize_weights",
    )
    found += [(PreTrainedModel, name, _nothing) for name in skipped if hasattr(PreTrainedModel, name)]
    found.append((GenerationConfig, "from_model_config", classmethod(shared_generation_config)))
    return tuple(found)


def _untouched(tensor: torch.Tensor | None = None, *_: object, **__: object) -> torch.Tensor | None:
    return tensor


def _nothing(*_: object, **__: object) -> None:
    return None
