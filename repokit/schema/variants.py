"""Variants: one recipe from which several repositories are built, with what they share at its top.

RecipeFile     the keys of repokit.yaml: those of a Recipe, and `variants`
Variant        the keys of one variant: those of a Recipe, each of them optional
resolved       a document and the name of a variant -> the document of a Recipe, which knows nothing of variants
place_of       where a value of that document stands in the file
Variants       the recipes of a file in the order in which they are built
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from repokit.schema.recipe import Recipe, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

    Document = Mapping[str, Any]

# Part of a repository's name on the Hub and of a folder's, with a letter so that it is no position in a list.
NAME: Final = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?")
ALL: Final = "all"  # what `--variant` takes for every one of them
_DIST: Final = "./dist"
_DERIVED: Final = {("repo",), ("output",)}  # the top's with the variant's name, which is what makes them its own


def resolved(document: Document, name: str) -> dict[str, Any]:
    """The document of the Recipe of one variant.

    Mappings are merged key by key, everything else is replaced. What nothing states is derived: the repository and the
    output from those at the top or from each other, `identity.variant` from the name of the variant.

    Args:
        document: Of a file that is a RecipeFile, with variants.
        name: One of them.
    """
    value: dict[str, Any] = {**_inherited(document, name), "output": output_of(document, name)}
    if (repo := repo_of(document, name)) is not None:
        value["repo"] = repo
    value["identity"] = {"variant": name, **_stated(value.get("identity", {}))}
    if (base := value.get("base", {})).get("variant") in document["variants"]:
        value["base"] = _of_variant(document, base)
    return value


def repo_of(document: Document, name: str) -> str | None:
    """Where a variant is published: its own `repo`, else the one at the top with `-NAME`."""
    if "repo" in (own := _own(document, name)):
        return _text(own["repo"])
    return f"{shared}-{name}" if (shared := _text(document.get("repo"))) else None


def output_of(document: Document, name: str) -> str:
    """What a variant builds: its own `output`, else the one at the top with `-NAME`, else one named as its repo."""
    if own := _text(_own(document, name).get("output")):
        return own
    if shared := _text(document.get("output")):
        return f"{shared.rstrip('/')}-{name}"
    return f"{_DIST}/{(repo_of(document, name) or name).rpartition('/')[2]}"


def place_of(document: Document, name: str, steps: tuple[str, ...]) -> tuple[str, ...]:
    """Where in the file a value of a variant's recipe stands: in it, or at the top; a derived one is the variant's.

    Args:
        document: Of the file.
        name: The variant.
        steps: Path of the value in the recipe that `resolved` gives.
    """
    if _reaches(_own(document, name), steps):
        return ("variants", name, *steps)
    at_top = _reaches(document, steps) and not _is_replaced(document, name, steps)
    return steps if at_top and steps not in _DERIVED else ("variants", name)


def _own(document: Document, name: str) -> Document:
    own: Document | None = document["variants"][name]
    return own or {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _stated(section: Document) -> dict[str, Any]:
    return {key: value for key, value in section.items() if value is not None}


def _inherited(document: Document, name: str) -> dict[str, Any]:
    own = _own(document, name)
    top = {key: value for key, value in document.items() if key != "variants" and not _replaces(own, key)}
    return {**top, **{key: _merged(top.get(key), value) for key, value in own.items()}}


# A section with one of these keys is about another thing than the one at the top: a base's revision is no other base's.
_WHOLE: Final = {"base": frozenset({"id", "variant"}), "license": frozenset({"id"})}


def _replaces(own: Document, key: str) -> bool:
    section = own.get(key)
    return isinstance(section, dict) and not _WHOLE.get(key, frozenset()).isdisjoint(section)


def _is_replaced(document: Document, name: str, steps: tuple[str, ...]) -> bool:
    return bool(steps) and _replaces(_own(document, name), steps[0])


def _merged(shared: object, own: object) -> object:
    if isinstance(shared, dict) and isinstance(own, dict):
        return {**shared, **{key: _merged(shared.get(key), value) for key, value in own.items()}}
    return own


def _of_variant(document: Document, base: Document) -> dict[str, Any]:
    """A base that is another variant: its repository, and what it builds in the place of a local copy."""
    sibling = base["variant"]
    found = {"id": repo_of(document, sibling), "path": output_of(document, sibling)}
    return {**found, **_stated({key: value for key, value in base.items() if key != "variant"})}


def _reaches(value: Any, steps: tuple[str, ...]) -> bool:  # noqa: ANN401 - whatever the file holds
    for step in steps:
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            case _:
                return False
    return True


@dataclass(frozen=True)
class Variants:
    """The recipes of a file.

    Attributes:
        recipes: By name, in the order in which they are built: what another one is made from comes before it.
        needs: Which of the others each one is made from, itself: as its base, or by a path that leads there.
    """

    recipes: Mapping[str, Recipe]
    needs: Mapping[str, frozenset[str]]


# ---------------------------------------------------------------- the models of the file


def _optional(field: FieldInfo, **options: Any) -> tuple[Any, Any]:  # noqa: ANN401 - what create_model takes
    """A field of Recipe with another default, or with none that a schema would tell."""
    kind = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return kind, Field(description=field.description, examples=field.examples, **options)


def _without_defaults(schema: dict[str, Any]) -> None:
    """What a variant leaves out it inherits: the default that Pydantic needs would tell an editor otherwise."""
    for part in schema["properties"].values():
        part.pop("default", None)


class _Overriding(Section):
    model_config = ConfigDict(json_schema_extra=_without_defaults)


def _fields_of_variant() -> dict[str, Any]:
    fields = Recipe.model_fields.items()
    return {name: _optional(field, default=None) for name, field in fields if name != "version"}


Variant: type[Section] = create_model(
    "Variant",
    __base__=_Overriding,
    __doc__="What is different of one repository. What it leaves out is as at the top of the recipe.",
    **_fields_of_variant(),
)


def _of_file(schema: dict[str, Any]) -> None:
    """`source` and `output` must stand at the top where there are no variants, which may each have their own."""
    for name in ("source", "output"):
        schema["properties"][name].pop("default", None)
    schema["properties"]["variants"].update(propertyNames={"pattern": f"^{NAME.pattern}$", "not": {"const": ALL}})
    schema["properties"]["variants"].pop("default", None)
    schema["anyOf"] = [{"required": ["source", "output"]}, {"required": ["variants"]}]


class _Whole(Section):
    model_config = ConfigDict(json_schema_extra=_of_file)


def _nothing(value: object) -> object:
    """A name with nothing behind it is null in YAML, and a variant that changes nothing."""
    return {} if value is None else value


def _fields_of_file() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in Recipe.model_fields.items():
        required = field.is_required() and name != "version"
        fields[name] = _optional(field, default=None if required else field.default)
    own: Any = Annotated[Variant, BeforeValidator(_nothing, json_schema_input_type=Variant | None)]
    fields["variants"] = (
        dict[str, own],
        Field(
            default={},
            description="Name -> what is different of it: several repositories from one recipe. Mappings are merged "
            "into the top's, everything else replaces it; a `base` that names another `id` or `variant`, and a "
            "`license` with an `id`, replace the top's as a whole. Not stated, `repo` and `output` are the top's with "
            "`-NAME`, `identity.variant` is the name. `repokit build --variant NAME|all`.",
            examples=["{fp8: {source: ./fp8}}"],
        ),
    )
    return fields


RecipeFile: type[BaseModel] = create_model("RecipeFile", __base__=_Whole, __doc__="repokit.yaml.", **_fields_of_file())
