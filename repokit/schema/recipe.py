"""repokit.yaml: what is to be built, from what, and how it is published.

Recipe
├── identity            names of the model in words
├── base                what it was made from
├── weights             dtype, shards, names, ties
├── merge               adapters that become part of the weights
├── quantization        what only a person knows of how the weights were quantized
├── tokenizer, processor, chat_template      where each comes from
├── generation_config   values that win over the source's
├── card                front matter and sections of README.md
├── license             id, text, name, link
├── files               what else is published
├── lint                which findings count
└── push                where to

Every key is here but `variants` (variants.py); another one is an error. Paths are relative to the folder of the recipe.
Reading a recipe from a file, with lines and suggestions in its errors, is recipe_file.py's work.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from repokit.schema.license import License

if TYPE_CHECKING:
    from pathlib import Path

# Decimal, as huggingface_hub's parse_size_to_int (serialization/_base.py) reads them: 5GB is 5,000,000,000 bytes.
_UNITS: dict[str, int] = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,12}))?\s*([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_REPO_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


def parse_size(text: str) -> int:
    """Bytes of a decimal size: `5GB` is 5,000,000,000; `1.5 GB`, `500MB` and `4096` are sizes too.

    Raises:
        ValueError: It is no size, or less than one byte.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("is no size; must be a decimal size such as 5GB or 500MB")
    whole, fraction, unit = found.groups(default="")
    scale = _UNITS[unit.upper()]
    total: int = int(whole) * scale + int(fraction or "0") * scale // 10 ** len(fraction)
    if total < 1:
        raise ValueError("is less than one byte")
    return total


def _shard_size(text: str) -> str:
    if text != "auto":
        parse_size(text)
    return text


def _off(value: object) -> object:
    """YAML 1.1 reads an unquoted `off` as false; here it can only mean the word."""
    return "off" if value is False else value


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _one_as_tuple(value: object) -> object:
    match value:
        case str():
            return (value,)
        case list() | tuple():
            return tuple(value)
    raise PydanticCustomError("kind", "must be {expected}", {"expected": "a string or a list of strings"})


def _repo_id(text: str) -> str:
    """huggingface_hub/utils/_validators.py validate_repo_id, and at most one slash."""
    parts = text.split("/")
    if len(parts) > 2 or not all(_REPO_PART.fullmatch(part) for part in parts) or text.endswith(".git"):
        raise ValueError("is no repository on the Hub; must be org/name, in letters, digits, `-`, `_` and `.`")
    if "--" in text or ".." in text:
        raise ValueError("is no repository on the Hub; must not have `--` or `..`")
    return text


def is_revision(text: str) -> bool:
    """Whether this can be a commit, branch or tag on the Hub that needs no quotes in a shell or in Python."""
    return _REVISION.fullmatch(text) is not None and ".." not in text


def _revision(text: str) -> str:
    if not is_revision(text):
        raise ValueError("is no revision; must be a commit, branch or tag, in letters, digits, `-`, `_`, `.` and `/`")
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def _last_day(value: object) -> object:
    """A day in quotes, or a month, which ends with its last day. Unquoted, YAML makes a date of the day itself."""
    if not isinstance(value, str):
        return value
    try:
        if _MONTH.fullmatch(value):
            first = date.fromisoformat(f"{value}-01")
            return first.replace(day=monthrange(first.year, first.month)[1])
        return date.fromisoformat(value)
    except ValueError:
        return value


Many: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[str])]
OneOrMany: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(_one_as_tuple, json_schema_input_type=str | list[str])
]
RepoId: TypeAlias = Annotated[str, AfterValidator(_repo_id)]
OffWord = BeforeValidator(_off)


class Section(BaseModel):
    """An object of the recipe: frozen, and closed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Identity(Section):
    """The model in words, for the card."""

    name: str | None = Field(None, description="The model's name, for people: `Llama 3.1 8B SQL`.")
    family: str | None = Field(None, description="What it belongs to: `Llama 3.1`.")
    variant: str | None = Field(None, description="What tells it from its siblings: `instruct`, `fp8`.")


class Base(Section):
    """What a fine-tuned, adapter or quantized model came from."""

    id: RepoId | None = Field(None, description="Its repository on the Hub: `org/name`.", examples=["org/name"])
    revision: Annotated[str, AfterValidator(_revision)] | None = Field(
        None, description="The commit that was used, so that checks stay true later."
    )
    path: str | None = Field(None, description="A copy, or its address, from which files can be inherited.")
    variant: str | None = Field(
        None, description="Another variant of the recipe: `id` is then its repository, `path` what it builds."
    )


class Rename(Section):
    """One rule of renaming tensors."""

    from_: Annotated[str, AfterValidator(_regex)] = Field(
        alias="from", description="A regular expression, as Python's re.sub takes it."
    )
    to: str = Field(description=r"What stands in place of each match; \1 is the first group.")


class Vocabulary(Section):
    """How many rows the vocabulary has. Rows are added as zeros, and cut off only where no token has their id."""

    size: int | None = Field(None, ge=1, description="Rows; those of the source where absent.")
    pad_to_multiple_of: int | None = Field(None, ge=1, description="Filled up to a multiple: 64, 128.")


class Weights(Section):
    """What becomes of the tensors."""

    dtype: Literal["auto", "float64", "float32", "float16", "bfloat16"] = Field(
        "auto", description="What floating-point tensors are cast to; `auto` keeps each as it is stored."
    )
    keep: Many = Field((), description="Globs of tensor names that are not cast.")
    max_shard_size: Annotated[str, AfterValidator(_shard_size)] = Field(
        "auto",
        description="Decimal bytes: `5GB`, `500MB`; `auto` keeps the source's sharding or chooses.",
        examples=["5GB"],
    )
    rename: Annotated[
        Literal["auto", "off"]
        | Annotated[tuple[Rename, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[Rename])],
        OffWord,
    ] = Field("auto", description="`auto` removes the prefixes of wrappers (module., _orig_mod.); or rules, in order.")
    drop: Many = Field((), description="Globs of tensor names that are left out.")
    tie: Annotated[Literal["auto", "off", "untie"], OffWord] = Field(
        "auto",
        description="`auto` stores tied tensors once, found by comparing bytes; `off` stores what is there; `untie` "
        "writes a head of its own, a copy of the embedding.",
    )
    vocabulary: Vocabulary | None = Field(
        None, description="Other rows for the token ids: embedding, head, and vocab_size in config.json."
    )


class Origin(Section):
    """Where a part comes from."""

    from_: str = Field("source", alias="from", description="`source`, `base`, or a path.")


class MergedAdapter(Section):
    """An adapter that is merged into the weights."""

    path: str = Field(min_length=1, description="Its folder: adapter_config.json and the weights beside it.")
    weight: float = Field(1.0, ge=-1000, le=1000, description="What its change is multiplied by.")


class Merge(Section):
    """Adapters that are merged into the weights, each after the one before it."""

    adapters: Annotated[
        tuple[MergedAdapter, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[MergedAdapter])
    ] = Field((), description="LoRA adapters of PEFT. Where the source is one itself, it comes before them.")


class Calibration(Section):
    """What a quantizer looked at to choose its scales. What is left out is what its files say, or `not stated`."""

    text: str | None = Field(None, description="In words: `none, rounded to nearest`; or what there is to add.")
    dataset: str | None = Field(None, description="Its name, on the Hub where it is there.")
    samples: int | None = Field(None, ge=1, description="How many.")


class QuantizationRecipe(Section):
    """How quantized weights were made, as far as only a person knows. Method, width and groups are in the files."""

    tool: str | None = Field(None, description="What quantized, with its version: `llm-compressor 0.8.1`.")
    calibration: Calibration = Calibration()
    notes: str | None = Field(None, description="What else a reader of the card should know, in Markdown.")


class ConfigOrigin(Origin):
    """Where config.json comes from, and what it leaves out."""

    architectures: Many = Field((), description="The classes that it names, where it names none or wrong ones.")


class CardRecipe(Section):
    """README.md. A body that a person wrote is kept as it is; sections are for a card that repokit writes."""

    # Front matter, as the Hub names it (schema/card.py)
    language: OneOrMany = Field((), description="ISO 639-1 or 639-3 codes, `code` or `multilingual`.")
    datasets: OneOrMany = Field((), description="Datasets on the Hub that it was trained on.")
    metrics: OneOrMany = Field((), description="Ids of metrics on the Hub.")
    pipeline_tag: str | None = Field(None, description="The task; found from config.json where absent.")
    library_name: str | None = Field(None, description="The library that loads it; found where absent.")
    tags: OneOrMany = Field((), description="Words of your own, by which people find it.")
    base_model_relation: Literal["adapter", "merge", "quantized", "finetune"] | None = Field(
        None, description="What it is to base.id; the Hub works it out where absent."
    )
    new_version: str | None = Field(None, description="The model on the Hub that replaces this one.")
    thumbnail: str | None = Field(None, description="URL of a picture.")
    extra_gated_prompt: str | None = Field(None, description="What a person agrees to before a download.")
    extra_gated_fields: dict[str, Any] | None = Field(
        None, description="Question -> text, checkbox, date_picker, country, select, or {type, options}."
    )
    extra_gated_heading: str | None = Field(None, description="Above the question for access.")
    extra_gated_description: str | None = Field(None, description="Below that heading.")
    extra_gated_button_content: str | None = Field(None, description="On the button that asks for access.")

    # Body, in Markdown
    summary: str | None = Field(None, description="What the model is, in a sentence or two.")
    intended_use: str | None = Field(None, description="What it is for, and what it is not for.")
    limitations: str | None = Field(None, description="Where it fails, and what it is biased to.")
    training: str | None = Field(None, description="Data, procedure, hardware.")
    evaluation: str | None = Field(None, description="What was measured, on what, and how.")
    usage: str | None = Field(None, description="How to run it; made from pipeline_tag and library_name where absent.")
    citation: str | None = Field(None, description="How to cite it.")
    contact: str | None = Field(None, description="Where questions go.")


class Files(Section):
    """What is published beside what repokit recognises. An allow-list: a file that no rule names stays out."""

    include: Many = Field((), description="Globs of paths in the source.")
    exclude: Many = Field((), description="Globs of paths in the source; they win over everything else.")


class IgnoredRule(Section):
    """A waiver. It carries its reason, for the next reader."""

    code: str = Field(description="A code (`IDX101`), a family (`IDX`) or a rule's name (`missing-shard`).")
    reason: str = Field(min_length=1)
    until: Annotated[date | None, BeforeValidator(_last_day, json_schema_input_type=str | None)] = Field(
        None, description="The last day on which it holds: `2027-01-31`, or `2027-01` for the whole month."
    )


Waivers: TypeAlias = Annotated[
    tuple[str | IgnoredRule, ...],
    BeforeValidator(_as_tuple, json_schema_input_type=list[str | IgnoredRule]),
]


class Lint(Section):
    """Which findings count."""

    select: Many = Field((), description="Only these rules: codes, families or names. All where empty.")
    extend_select: Many = Field((), description="These as well, and those in preview that they name.")
    ignore: Annotated[
        tuple[IgnoredRule, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[IgnoredRule])
    ] = ()
    per_file: dict[str, Waivers] = Field(
        default={}, description="Glob of paths -> rules that are not reported there: words, or waivers as in `ignore`."
    )
    fail_on: Literal["error", "warning", "note", "never"] | None = Field(
        None, description="From which severity on `repokit lint` exits with 1; error where absent."
    )
    baseline: str | None = Field(
        None, description="File of findings that are known, which `repokit lint --write-baseline` writes."
    )


class Push(Section):
    """Where the result is published."""

    revision: str | None = Field(None, description="An existing branch, or refs/pr/N; main where absent.")
    tag: str | None = Field(None, description="A tag that is made on the new commit. Never moved.")
    private: bool | None = Field(None, description="Visibility of a repository that is created.")
    commit_message: str | None = Field(None, description="The first line of the commit's message.")
    commit_description: str | None = Field(None, description="What follows it.")


class Recipe(Section):
    """repokit.yaml."""

    version: Literal[1] = Field(description="Of this format.")
    repo: RepoId | None = Field(None, description="Where it is published: `org/name`.", examples=["org/name"])
    identity: Identity = Identity()
    kind: Literal["auto", "full", "adapter", "quantized", "gguf"] = Field(
        "auto", description="What is built; `auto` goes by the files in the source."
    )
    source: str = Field(
        min_length=1,
        description="The checkpoint: a directory, or an address such as s3://bucket/run. Only read, never written to.",
    )
    output: str = Field(
        min_length=1,
        description="The directory that is built, or its address: s3://bucket/name. Replaced only if repokit built it.",
    )
    base: Base = Base()
    weights: Weights = Weights()
    merge: Merge = Merge()
    quantization: QuantizationRecipe = QuantizationRecipe()
    config: ConfigOrigin = Field(ConfigOrigin(), description="config.json: a Lightning checkpoint has none of its own.")
    tokenizer: Origin = Origin()
    processor: Origin = Origin()
    chat_template: Origin = Origin()
    generation_config: dict[str, Any] = Field(default={}, description="Values that win over the file in the source.")
    card: CardRecipe = CardRecipe()
    license: License = License()
    files: Files = Files()
    compat: Annotated[
        tuple[Literal["transformers-4"], ...],
        BeforeValidator(_as_tuple, json_schema_input_type=list[Literal["transformers-4"]]),
    ] = Field((), description="Older readers for which both spellings of a field are written.")
    manifest: Annotated[Literal["keep", "publish", "off"], OffWord] = Field(
        "keep", description="repokit-manifest.json: beside the files and not pushed; pushed; or not written."
    )
    lint: Lint = Lint()
    push: Push = Push()


def load_recipe(path: Path, variant: str | None = None) -> Recipe:
    """The recipe in a file, or the one of a variant in it.

    Raises:
        RecipeError: It cannot be read, or is not a recipe: with the line, the key and what to write instead; or it has
            variants and this is none of them.
    """
    from repokit.schema.recipe_file import read

    return read(path, variant)
