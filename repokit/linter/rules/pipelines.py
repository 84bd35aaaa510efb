"""WGT, CFG: the parts of a pipeline of diffusers against model_index.json and their own configs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Change, Example, safetensors
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.layouts import PIPELINE, pipeline
from repokit.printable import printable

if TYPE_CHECKING:
    from repokit.repo.document import Document
    from repokit.repo.repository import Repository

NETWORK: Final = "UNet2DConditionModel"
CONFIG: Final = "unet/config.json"
WEIGHTS: Final = "unet/diffusion_pytorch_model.safetensors"
_FIRST: Final = "conv_in.weight"


def unet(columns: int = 4, kind: str = NETWORK) -> dict[str, Change]:
    """A pipeline whose network has as many channels by its config, and four in its weights."""
    config = {"_class_name": kind, "block_out_channels": [8, 8], "in_channels": columns}
    return {
        **pipeline(),
        CONFIG: json.dumps(config),
        WEIGHTS: safetensors({_FIRST: ("F16", (8, 4, 3, 3))}),
    }


class MismatchedNetwork(Rule):
    """The first layer of a network of diffusers has another shape than its config.json says.

    from_pretrained stops with a size mismatch: the config is that of a sibling, such as the one for inpainting.
    """

    code = "WGT153"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (Example("the config of the model for inpainting", unet(columns=9)),)
    good = (Example("the same number of channels", unet()),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            folder, slash, name = path.rpartition("/")
            document = repository.document(path) if name == "config.json" else None
            if document is None or (wanted := first_shape(document)) is None:
                continue
            weights = f"{folder}{slash}diffusion_pytorch_model.safetensors"
            tensors = repository.header(weights).tensors if repository.has(weights) else ()
            for tensor in tensors:
                if tensor.name == _FIRST and tensor.shape[:2] != wanted:
                    message = f"has {list(tensor.shape)} in {_FIRST}; {path} gives {list(wanted)} channels"
                    yield self.finding(weights, message, place=_FIRST)


def first_shape(config: Document) -> tuple[int, int] | None:
    """Channels out of and into the first convolution of a UNet (diffusers 0.42 unets/unet_2d_condition.py)."""
    channels, columns = config.raw.get("block_out_channels"), config.integer("in_channels")
    if (
        config.string("_class_name") not in {NETWORK, "UNet2DModel"}
        or columns is None
        or "quantization_config" in config
    ):
        return None
    match channels:
        case [int() as first, *_]:
            return first, columns
    return None


class OtherComponentClass(Rule):
    """model_index.json gives a part of a pipeline another class than the part's own config.

    from_pretrained builds the class in model_index.json with the settings of the other, and stops or ignores them.
    """

    code = "CFG254"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("the network of another pipeline", unet(kind="UNet3DConditionModel")),)
    good = (
        Example("the same class", unet()),
        Example(
            "schedulers may be exchanged",
            {**pipeline(), "scheduler/scheduler_config.json": '{"_class_name": "PNDMScheduler"}'},
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        index = repository.document(PIPELINE)
        if index is None:
            return
        from repokit.schema.diffusers import components

        for part in components(index.raw):
            config = repository.document(f"{part.name}/config.json") if part.library == "diffusers" else None
            own = None if config is None else config.string("_class_name")
            if own is None or part.class_name is None or own.endswith(part.class_name):
                continue  # `PixArtTransformer2DModel` was a `Transformer2DModel` once
            if not part.class_name.endswith(own):
                message = (
                    f"gives {printable(part.name, 40)} the class {printable(part.class_name, 60)}; its config.json"
                )
                message += f" has {printable(own, 60)}"
                yield self.finding(index.path, message, place=index.at(part.name))


OF_CONFIG: Final = (OtherComponentClass(),)
RULES: Final = (MismatchedNetwork(),)
