"""README.md of an adapter: what it was trained with, what it needs, and how it is put onto its base model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from repokit.builder.adapters.private import is_of_a_cache
from repokit.builder.card import cell, pipeline_tag, put_together, rendered, training_facts
from repokit.formats.tensors import HEADER_NAMES
from repokit.printable import printable, size, some
from repokit.repo.adapter_kinds import PROMPTS
from repokit.repo.tensor_names import is_embedding
from repokit.resources import data

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from repokit.builder.adapters.weights import StoredAdapter
    from repokit.builder.checkpoints.sources import Checkpoint
    from repokit.builder.weights import PlannedWeights
    from repokit.repo.config import Config
    from repokit.schema.recipe import Recipe

# peft 0.21 utils/peft_types.py TaskType: the ending of a class in data/tasks.json, which has its tag and Auto class.
_SUFFIXES: Final = {
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
_OTHERS: Final = {
    "SEQ_2_SEQ_LM": {"auto": "AutoModelForSeq2SeqLM"},
    "FEATURE_EXTRACTION": {"auto": "AutoModel", "pipeline_tag": "feature-extraction"},
}
_SEVERAL: Final = "several"  # in the place of a value in which adapters of one repository differ


def write_card(
    recipe: Recipe,
    checkpoint: Checkpoint,
    adapters: Sequence[StoredAdapter],
    *,
    planned: PlannedWeights,
    base: Config | None,
    published: Collection[str],
    license_file: str | None,
) -> bytes:
    """The card of a repository of adapters.

    Args:
        recipe: What the user says, with the id of the base.
        checkpoint: Its README.md is kept where a person wrote it.
        adapters: What is published.
        planned: Their tensors.
        base: config.json of the base model, where it is at hand.
        published: The files beside weights and card.
        license_file: The license file that is published, or None.

    Raises:
        MalformedFile: The source's README.md does not parse.
    """
    config = base or checkpoint.repository.config  # trainers leave that of the base beside the adapter
    task = _task(adapters[0], config)
    inferred = {
        "library_name": "peft",
        "base_model_relation": "adapter",
        "pipeline_tag": task.get("pipeline_tag"),
        "tags": list(dict.fromkeys(one.method.lower() for one in adapters)),
    }

    def body() -> str:
        return rendered(
            "card-adapter.md.jinja",
            recipe,
            license_file=license_file,
            details=[(label, cell(value)) for label, value in _details(recipe, adapters, planned)],
            training_facts=training_facts(checkpoint.trainer_state),
            base=recipe.base.id,
            base_literal=_literal(recipe.base.id or ""),
            base_revision=recipe.base.revision and _literal(recipe.base.revision),
            **_several([one.folder.rstrip("/") for one in adapters]),
            **_loading(adapters, planned, task, config=config, published=published, checkpoint=checkpoint),
        )

    return put_together(recipe, checkpoint, inferred, license_file, body)


def _literal(text: str) -> str:
    r"""A string as Python spells it, in ASCII. JSON spells it alike, but for what lies beyond \uFFFF."""
    return json.dumps(text) if max(text, default="") < "\U00010000" else ascii(text)


def _several(folders: list[str]) -> dict[str, Any]:
    """The folder of the adapter that is loaded first, and names and folders of the others, as Python spells them."""
    taken = {"default"}  # the first one's, which PEFT gives it
    others = []
    for folder in folders[1:]:
        name = plain = re.sub(r"[^A-Za-z0-9_-]+", "_", folder)  # torch takes no dot in the name of a module
        number = 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        others.append((_literal(name), _literal(folder)))
    return {"subfolder": folders[0] and len(folders) > 1 and _literal(folders[0]), "others": others}


def pipeline_tag_of(adapter: StoredAdapter, config: Config | None) -> str | None:
    """The task that it was trained for.

    Args:
        adapter: Which says it, unless it was trained on a model that sees.
        config: Of its base, where that is at hand.
    """
    return _task(adapter, config).get("pipeline_tag")


def numbers_of(adapter: StoredAdapter) -> str:
    """`rank 16, alpha 32, on q_proj, v_proj`; "" where it has none."""
    rank, alpha = _rank(adapter), _alpha(adapter)
    targets = adapter.config.raw.get("target_modules")
    names = some(sorted(map(printable, targets)), limit=7) if isinstance(targets, list) else _names(targets)
    parts = (rank and f"rank {rank}", alpha and f"alpha {alpha}", names and f"on {names}")
    return ", ".join(part for part in parts if part)


def _task(adapter: StoredAdapter, config: Config | None) -> Mapping[str, str]:
    """The tag and the Auto class of the task that the adapter was trained for."""
    stated = adapter.config.string("task_type")
    suffixes: Mapping[str, Mapping[str, str]] = data("tasks")["suffixes"]
    own = pipeline_tag(config) if config is not None else None
    if stated in _SUFFIXES:
        found = dict(suffixes[_SUFFIXES[stated]])
    else:
        found = dict(_OTHERS.get(stated or "", {}))
        auto = next((task["auto"] for task in suffixes.values() if task["pipeline_tag"] == own), None)
        if not found and auto is not None:
            found["auto"] = auto
    # A language model that sees is trained as a language model.
    if own is not None and ("pipeline_tag" not in found or own == "image-text-to-text"):
        found["pipeline_tag"] = own
    if own == "image-text-to-text":
        found["auto"] = "AutoModelForImageTextToText"
    return found


def _details(recipe: Recipe, adapters: Sequence[StoredAdapter], planned: PlannedWeights) -> Iterator[tuple[str, str]]:
    pinned = f" at `{recipe.base.revision}`" if recipe.base.revision else ""
    spread = ", ".join(f"{HEADER_NAMES.get(name, name)} ({share:,})" for name, share in planned.dtypes.items())
    stored = spread.partition(" ")[0] if len(planned.dtypes) == 1 else spread
    rows = {
        "Family": recipe.identity.family,
        "Variant": recipe.identity.variant,
        "Base model": f"[{recipe.base.id}](https://huggingface.co/{recipe.base.id}){pinned}",
        "Method": _same(adapters, method_of),
        "Rank": _same(adapters, _rank),
        "Alpha": _same(adapters, _alpha),
        "Dropout": _same(adapters, lambda one: _number(one, "lora_dropout")),
        "Adapted modules": _same(adapters, _targets),
        "Trained whole": _same(adapters, lambda one: _names(one.config.raw.get("modules_to_save"))),
        "Adapters": some([f"`{one.folder.rstrip('/') or '.'}`" for one in adapters]) if len(adapters) > 1 else None,
        "Parameters": f"{planned.parameters:,} ({size(planned.size)})",
        "Stored as": f"{stored}, safetensors",
    }
    yield from ((label, value) for label, value in rows.items() if value)


def _same(adapters: Sequence[StoredAdapter], value: Any) -> str | None:  # noqa: ANN401 - a function of an adapter
    """What all adapters have, or that they differ."""
    found = {value(one) for one in adapters}
    return found.pop() if len(found) == 1 else _SEVERAL


def method_of(adapter: StoredAdapter) -> str:
    """`LoRA (DoRA, rank-stabilized)`."""
    names = {"LORA": "LoRA", "ADALORA": "AdaLoRA", "LOHA": "LoHa", "LOKR": "LoKr", "VERA": "VeRA"}
    config = adapter.config
    kinds = {
        "DoRA": config.flag("use_dora"),
        "rank-stabilized": config.flag("use_rslora"),
        "activated": config.raw.get("alora_invocation_tokens"),
    }
    said = ", ".join(kind for kind, is_so in kinds.items() if is_so)
    name = names.get(adapter.method, printable(adapter.method, 40))
    return f"{name} ({said})" if said else name


def _rank(adapter: StoredAdapter) -> str | None:
    if adapter.method in PROMPTS:
        tokens = adapter.config.integer("num_virtual_tokens")
        return None if tokens is None else f"{tokens:,} virtual tokens"
    return _with_others(adapter, _number(adapter, "r"), "rank_pattern")


def _alpha(adapter: StoredAdapter) -> str | None:
    return _with_others(adapter, _number(adapter, "lora_alpha", "alpha"), "alpha_pattern")


def _with_others(adapter: StoredAdapter, number: str | None, patterns: str) -> str | None:
    return f"{number}, others by {patterns}" if number and adapter.config.raw.get(patterns) else number


def _number(adapter: StoredAdapter, *keys: str) -> str | None:
    values = (adapter.config.number(key) for key in keys)
    return next((_shown(value) for value in values if value is not None), None)


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # an integer, which JSON does not bound
        return f"{'more' if value > 0 else 'less'} than any float"


def _targets(adapter: StoredAdapter) -> str | None:
    return _names(adapter.config.raw.get("target_modules"))


def _names(value: object) -> str | None:
    """Names, or an expression, as code."""
    if isinstance(value, str):
        return f"`{printable(value, 200)}`"
    if not isinstance(value, list):
        return None
    names = sorted(f"`{printable(item, 60)}`" for item in value if isinstance(item, str))
    return some(names, limit=12) if names else None


def _loading(
    adapters: Sequence[StoredAdapter],
    planned: PlannedWeights,
    task: Mapping[str, str],
    *,
    config: Config | None,
    published: Collection[str],
    checkpoint: Checkpoint,
) -> dict[str, Any]:
    """What the snippet imports and does. Names out of files end up in code that people run."""
    auto = task.get("auto") or _class(adapters[0]) or "AutoModel"
    own = any(name in published for name in ("tokenizer.json", "tokenizer_config.json"))
    processor = any(name in published for name in ("preprocessor_config.json", "processor_config.json"))
    reads = "AutoProcessor" if processor or auto == "AutoModelForImageTextToText" else "AutoTokenizer"
    tokenizer_config = checkpoint.repository.tokenizer_config
    template = tokenizer_config is not None and "chat_template" in tokenizer_config
    return {
        "model_class": auto,
        "processor": "tokenizer" if reads == "AutoTokenizer" else "processor",
        "processor_class": reads,
        # A tokenizer alone is no processor: of a model that sees, the base has what is missing.
        "own_tokenizer": processor or (own and reads == "AutoTokenizer"),
        "chat": own
        and reads == "AutoTokenizer"
        and auto == "AutoModelForCausalLM"
        and ("chat_template.jinja" in published or template),
        "labels": _labels(adapters[0], planned),
        "rows": _rows(planned, config),
        "trust": config is not None and "auto_map" in config,
    }


def _class(adapter: StoredAdapter) -> str | None:
    """The class of transformers that the adapter says it was trained on."""
    mapping = adapter.config.mapping("auto_mapping")
    named = None if mapping is None or is_of_a_cache(mapping.raw) else mapping.string("base_model_class")
    return named if named is not None and named.isascii() and named.isidentifier() else None


def _labels(adapter: StoredAdapter, planned: PlannedWeights) -> int | None:
    """The labels of a classifier that was trained with it: a base without one is made with that many."""
    if adapter.config.string("task_type") not in {"SEQ_CLS", "TOKEN_CLS"}:
        return None
    ends = ("score.weight", "classifier.weight", "classifier.out_proj.weight")
    return next(
        (t.stored.shape[0] for name, t in planned.tensors.items() if name.endswith(ends) and t.stored.shape), None
    )


def _rows(planned: PlannedWeights, config: Config | None) -> int | None:
    """The rows of an embedding that lies in the adapter, where the base may have fewer."""
    found = (t.stored.shape[0] for name, t in planned.tensors.items() if is_embedding(name) and t.stored.shape)
    rows = next(found, None)
    return None if config is not None and config.vocab_size == rows else rows
