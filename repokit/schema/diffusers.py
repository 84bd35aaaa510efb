"""Files of diffusers: which parts a pipeline has, and the config of each part.

model_index.json        the parts: part -> [library, class], and the pipeline's own settings beside them
scheduler_config.json   in the folder scheduler/
config.json             in the folder of each model that is diffusers' own (`_class_name` instead of `model_type`)

Source: diffusers 0.42.1 configuration_utils.py, pipelines/pipeline_utils.py and pipeline_loading_utils.py. Every part
lies in the folder of its name. The other settings belong to each class and are not judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from repokit.schema.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping


class Written(Document):
    """What diffusers writes into each of its configs (ConfigMixin.to_json_string)."""

    class_name: str | list[str] | None = Field(
        None, alias="_class_name", description="Class of diffusers; [module, class] of this repository's own code."
    )
    diffusers_version: str | None = Field(None, alias="_diffusers_version", description="The version that wrote it.")
    name_or_path: str | None = Field(
        None, alias="_name_or_path", description="Where the writer had loaded it from; often a path of its machine."
    )


class ComponentConfig(Written):
    """config.json of a model of diffusers, or scheduler_config.json: settings of its class."""

    quantization_config: dict[str, Any] | None = Field(None, description="How the weights are packed.")


def _part(value: Any) -> Any:  # noqa: ANN401 - a part, or a setting of any type
    if _is_listed(value) and not _is_part(value):
        raise PydanticCustomError("part", "must be [library, class] or [null, null]")
    return value


class ModelIndex(Written):
    """model_index.json. A list that begins with a string or null is a part: [library, class], or [null, null]."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_part)]]


class Component(NamedTuple):
    """A part of a pipeline; both None where the pipeline was saved without it.

    Attributes:
        name: The part, and the folder that it lies in.
        library: `diffusers`, `transformers`, a module of diffusers.pipelines, or a file of this repository.
        class_name: Its class there.
    """

    name: str
    library: str | None
    class_name: str | None


def components(index: Mapping[str, Any]) -> tuple[Component, ...]:
    """The parts that a model_index.json lists, those without a class included; what is malformed is left out."""
    listed = {name: value for name, value in index.items() if not name.startswith("_")}
    return tuple(Component(name, value[0], value[1]) for name, value in listed.items() if _is_part(value))


def _is_listed(value: object) -> bool:
    """Whether a value is meant to be a part: settings of a pipeline may be lists too, of numbers."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], str | None)


def _is_part(value: object) -> bool:
    match value:
        case [str(), str()] | [None, None]:
            return True
    return False
