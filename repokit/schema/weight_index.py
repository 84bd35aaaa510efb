"""*.index.json: which shard holds which tensor.

Source: transformers 5.23 utils/hub.py, huggingface_hub 2.4 serialization/. Whether the shards exist and hold what is
said here are rules of the linter, and so is an absent `metadata`, which transformers does not survive.
"""

from __future__ import annotations

from pydantic import Field

from repokit.schema.document import Document


class IndexMetadata(Document):
    """Totals, and whatever else the writer put there: names of dropped tied tensors, a mergekit version, ..."""

    total_size: float | None = Field(
        None, description="Sum of the tensors, in bytes, shared storage counted once. A float in older files."
    )
    total_parameters: int | None = Field(None, description="Elements, tied tensors counted once (transformers 5).")


class WeightIndex(Document):
    """model.safetensors.index.json and its kin."""

    metadata: IndexMetadata | None = Field(None, description="{total_size} and whatever the writer adds.")
    weight_map: dict[str, str] = Field(description="Tensor -> file name, in the folder of the index.")
