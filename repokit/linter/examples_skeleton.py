"""Weights of other architectures than the base of the examples: what a skeleton says they hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from repokit.linter.examples import Tensors, merged, safetensors, single


def weights_of(
    config: Mapping[str, Any], *, drop: tuple[str, ...] = (), add: Tensors | None = None
) -> Callable[[bytes], bytes]:
    """A change that puts the weights of another architecture in the place of the base's.

    Args:
        config: What is changed in the base's config.json: its architecture, model type, sizes.
        drop: Tensors that are left out.
        add: Tensors beside.
    """

    def change(_content: bytes) -> bytes:
        return safetensors({**tensors_under(config, drop), **(add or {})})

    return change


def tensors_under(config: Mapping[str, Any], drop: tuple[str, ...] = ()) -> Tensors:
    """The tensors of the architecture in the base's config.json after a change."""
    from repokit.architectures import skeleton

    shapes = skeleton(merged(json.loads(single()["config.json"]), config)).shapes
    known = {name: tuple(size or 1 for size in shape) for name, shape in shapes.items() if name not in drop}
    return {name: ("BF16", shape) for name, shape in known.items()}
