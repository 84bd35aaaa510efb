"""adapter_config.json of PEFT. Source: peft 0.21.2 config.py and tuners/*/config.py, through data/peft_types.json.

Every method has the common fields; which others there are, and of which type, depends on `peft_type`. A method that
the table does not know is read by the common fields alone. Keys that a method does not have are kept and not judged.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, ModelWrapValidatorHandler, TypeAdapter, create_model, model_validator

from repokit.schema.adapter_types import MEANINGS, adapter_type, type_names
from repokit.schema.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommonAdapterConfig(Document):
    """The fields of every method."""

    peft_type: str | None = Field(None, description="The method: LORA, IA3, PREFIX_TUNING, ...")
    task_type: str | None = Field(None, description="CAUSAL_LM, SEQ_CLS, SEQ_2_SEQ_LM, TOKEN_CLS, ... or null.")
    base_model_name_or_path: str | None = Field(None, description="Id of the base on the Hub; often a local path.")
    revision: str | None = Field(None, description="Revision of the base.")
    inference_mode: bool | None = Field(None, description="true in a saved file: the adapter is not trained further.")
    auto_mapping: dict[str, Any] | None = Field(
        None, description="{base_model_class, parent_library} where the base is no class of transformers' Auto classes."
    )
    peft_version: str | None = Field(None, description="The version that wrote the file.")


class AdapterConfig(CommonAdapterConfig):
    """adapter_config.json, read by the method that it names."""

    @model_validator(mode="wrap")
    @classmethod
    def _by_method(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 - anything parsed
        name = raw.get("peft_type") if isinstance(raw, dict) else None
        if isinstance(name, str) and adapter_type(name).known:
            model_of(name).model_validate(raw)  # its errors become those of this model, each at its place
        return handler(raw)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
        """The common fields, and for each method one `if` with its own; types are shared, or the file were 200 kB."""
        schema = super().model_json_schema(*args, **kwargs)
        types: dict[str, Any] = {}
        schema["allOf"] = [_when(name, types) for name in type_names()]
        schema["$defs"] = {key: types[key] for key in sorted(types)}
        return schema


@cache
def model_of(name: str) -> type[CommonAdapterConfig]:
    """The model of a known method's whole file, common fields included."""
    fields: dict[str, Any] = {
        field: (annotation(spelled) | None, Field(None, description=MEANINGS.get(field)))
        for field, spelled in _own_fields(name).items()
    }
    return create_model(name, __base__=CommonAdapterConfig, **fields)


def _own_fields(name: str) -> Mapping[str, str]:
    fields = adapter_type(name).fields
    return {field: spelled for field, spelled in fields.items() if field not in CommonAdapterConfig.model_fields}


_PLAIN: Final[Mapping[str, Any]] = {
    "any": Any,
    "bool": bool,
    "float": float,
    "int": int,
    "object": dict[str, Any],
    "str": str,
}


def annotation(spelled: str) -> Any:  # noqa: ANN401 - a type, or a union of types
    """The Python type that data/peft_types.json writes as `list[str] | str`."""
    depth = 0
    for place, character in enumerate(spelled):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "|" and depth == 0:
            return _single(spelled[: place - 1]) | annotation(spelled[place + 2 :])
    return _single(spelled)


def _single(spelled: str) -> Any:  # noqa: ANN401 - a type
    if spelled.startswith("list["):
        return list[annotation(spelled[len("list[") : -1])]  # type: ignore[misc] # made at run time
    if spelled.startswith("dict[str, "):
        return dict[str, annotation(spelled[len("dict[str, ") : -1])]  # type: ignore[misc] # made at run time
    return _PLAIN[spelled]


def _when(name: str, types: dict[str, Any]) -> dict[str, Any]:
    """`if` the method is this one, `then` its fields. Each type is added to `types` and referred to."""
    properties: dict[str, Any] = {}
    for field, spelled in _own_fields(name).items():
        key = re.sub(r"\W+", "_", spelled).strip("_")
        types.setdefault(key, TypeAdapter(annotation(spelled) | None).json_schema())
        properties[field] = {"$ref": f"#/$defs/{key}"}
        if field in MEANINGS:
            properties[field]["description"] = MEANINGS[field]
    condition = {"properties": {"peft_type": {"const": name}}, "required": ["peft_type"]}
    return {"if": condition, "then": {"properties": properties}}
