"""README.md of quantized weights: what they were made from, how, and what they need to be loaded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from repokit.builder import card
from repokit.builder.generated_cards import is_generated
from repokit.builder.quantized.sizes import block_size
from repokit.builder.quantized.words import words
from repokit.builder.sharding import file_names
from repokit.formats.front_matter import parse_card
from repokit.formats.tensors import HEADER_NAMES
from repokit.printable import count, size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.quantized.files import Declaration
    from repokit.builder.weights import PlannedWeights
    from repokit.repo.config import Config
    from repokit.schema.recipe import Recipe

# What transformers 5.24 asks for beside itself (quantizers/quantizer_*.py `validate_environment`).
_PACKAGES: Final = {
    "compressed-tensors": ("compressed-tensors",),
    "bitsandbytes": ("bitsandbytes",),
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "auto-round": ("auto-round",),
    "torchao": ("torchao",),
    "hqq": ("hqq",),
    "aqlm": ("aqlm[gpu,cpu]",),
    "quanto": ("optimum-quanto",),
    "mxfp4": ("kernels",),
    "quark": ("amd-quark",),
    "vptq": ("vptq",),
    "spqr": ("spqr_quant[gpu]",),
    "eetq": ("kernels",),
}
_SERVERS: Final = {"modelopt": "vLLM"}  # transformers 5.24 has no method of that name
_LIBRARIES: Final = {"mlx": "mlx", "modelopt": None}  # where it is not transformers that loads it


def write(
    recipe: Recipe,
    checkpoint: Checkpoint,
    declaration: Declaration,
    planned: PlannedWeights,
    *,
    tokenizer: Checkpoint,
    published: Collection[str],
    license_file: str | None,
) -> bytes:
    """The card.

    Args:
        recipe: What the user says.
        checkpoint: Its README.md is kept where a person wrote it.
        declaration: How the weights are quantized.
        planned: What is written.
        tokenizer: Where the tokenizer that is published comes from.
        published: The files beside weights and card.
        license_file: The license file that is published, or None.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    config = checkpoint.config
    assert config is not None  # noqa: S101 - layouts.check_supported refuses a checkpoint without one
    inferred: dict[str, Any] = {
        "library_name": _LIBRARIES.get(declaration.method, "transformers"),
        "base_model_relation": "quantized" if recipe.base.id else None,
        "pipeline_tag": card.pipeline_tag(config),
    }
    snippet = partial(card.loading, tokenizer, config, published)
    body = partial(_body, recipe, config, declaration, planned, snippet, license_file=license_file)
    return card.put_together(recipe, checkpoint, inferred, license_file, body)


def unused(recipe: Recipe, checkpoint: Checkpoint) -> list[str]:
    """A warning where the body that a person wrote is kept, so that what the recipe says of the work is not in it."""
    content = checkpoint.repository.content(card.README)
    given = [name for name in ("tool", "notes") if getattr(recipe.quantization, name)]
    given += ["calibration"] if recipe.quantization.calibration.model_fields_set else []
    if not given or content is None or is_generated(parse_card(content, card.README).body):
        return []
    names = ", ".join(f"quantization.{name}" for name in given)
    return [f"README.md of the source was written by a person and is kept: {names} of the recipe is not in it"]


def _body(
    recipe: Recipe,
    config: Config,
    declaration: Declaration,
    planned: PlannedWeights,
    snippet: Callable[[], dict[str, Any]],
    *,
    license_file: str | None,
) -> str:
    spelled = words(declaration, recipe.quantization, block_size(_stored(planned)))
    loading = snippet()
    packages = [*loading.pop("packages"), *_PACKAGES.get(declaration.method, ())]
    facts = card.details(recipe, config, _dtypes(planned), planned.logical, "Quantized from")
    tool = [("Quantized with", card.cell(spelled.tool))] if spelled.tool else []
    cells = (spelled.method, spelled.group_size, spelled.calibration)
    row = [_files(planned), size(planned.size), bits_per_weight(planned), *map(card.cell, cells)]
    return card.rendered(
        "card-quantized.md.jinja",
        recipe,
        license_file=license_file,
        details=[*facts, *tool],
        rows=[row],
        notes=(recipe.quantization.notes or "").strip(),
        server=_SERVERS.get(declaration.method),
        packages=packages,
        **loading,
    )


def _stored(planned: PlannedWeights) -> dict[str, Any]:
    return {name: tensor.stored for name, tensor in planned.tensors.items()}


def _dtypes(planned: PlannedWeights) -> str:
    """Without numbers: elements of packed weights are not parameters."""
    return ", ".join(HEADER_NAMES.get(name, name) for name in planned.dtypes)


def _files(planned: PlannedWeights) -> str:
    files = file_names(planned.shards)
    return f"`{files[0]}`" if len(files) == 1 else f"`{files[0]}` and {count(len(files) - 1, 'more shard')}"


def bits_per_weight(planned: PlannedWeights) -> str:
    """Bytes of all tensors, scales included, over the parameters of the base."""
    if not planned.logical:
        return "not known"
    return f"{planned.size * 8 / planned.logical:.2f}"
