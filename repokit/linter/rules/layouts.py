"""FIL: layouts of other libraries: pipelines of diffusers, modules of sentence-transformers, Mistral's own format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import CARD, Change, Example, safetensors
from repokit.linter.examples_skeleton import weights_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.tokenizer import ENCODER
from repokit.printable import count, printable
from repokit.repo.stored_weights import is_leftover
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

PIPELINE: Final = "model_index.json"
MODULES: Final = "modules.json"
README: Final = "README.md"
NETWORK: Final = safetensors({"conv_in.weight": ("F16", (4, 4))})
ALONE: Final[dict[str, Change]] = dict.fromkeys(
    ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", SINGLE)
)


DIFFUSERS: Final[dict[str, Change]] = {
    **ALONE,
    README: CARD.replace("transformers", "diffusers").replace("text-generation", "text-to-image"),
}


def pipeline(**parts: list[str | None]) -> dict[str, Change]:
    """A change that makes the base a pipeline of diffusers with these parts beside a scheduler and a network."""
    index = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.35.0",
        "scheduler": ["diffusers", "DDIMScheduler"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        **parts,
    }
    return {
        **DIFFUSERS,
        PIPELINE: json.dumps(index),
        "scheduler/scheduler_config.json": '{"_class_name": "DDIMScheduler"}',
        "unet/config.json": '{"_class_name": "UNet2DConditionModel"}',
        "unet/diffusion_pytorch_model.safetensors": NETWORK,
    }


CROSS_ENCODER: Final = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}


def embedder(*modules: tuple[str, str], **files: Change) -> dict[str, Change]:
    """A change that makes the base a model of sentence-transformers with these modules (path, class)."""
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate((("", "Transformer"), *modules))
    ]
    card = CARD.replace("library_name: transformers", "library_name: sentence-transformers")
    return {
        **ENCODER,
        README: card.replace("text-generation", "sentence-similarity"),
        MODULES: json.dumps(entries),
        **files,
    }


class MissingPipelineIndex(Rule):
    """The card says diffusers, and there is nothing that diffusers loads.

    No model_index.json, no config with a `_class_name`, no LoRA: `from_pretrained` stops. What accelerate keeps in
    `checkpoint-N` is no pipeline.
    """

    code = "FIL121"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a checkpoint folder instead of the pipeline",
            {**DIFFUSERS, "checkpoint-4000/unet.safetensors": NETWORK},
            also=("FIL201",),
        ),
    )
    good = (
        Example("a pipeline", pipeline()),
        Example(
            "one model of a pipeline",
            {
                **DIFFUSERS,
                "config.json": '{"_class_name": "AutoencoderKL"}',
                "diffusion_pytorch_model.safetensors": NETWORK,
            },
        ),
        Example("a LoRA", {**DIFFUSERS, "pytorch_lora_weights.safetensors": NETWORK}),
        Example("weights that are loaded by name", {**DIFFUSERS, "models/ip-adapter_sd15.safetensors": NETWORK}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card = repository.card
        if card is None or card.library_name != "diffusers" or is_loaded_by_diffusers(repository):
            return
        yield self.finding(README, "names the library diffusers, which finds no model_index.json here", hint=SAVE)


SAVE: Final = "pipeline.save_pretrained(DIR) writes it"


def is_loaded_by_diffusers(repository: Repository) -> bool:
    """Whether there is a pipeline, a model of one, or a file that is loaded by its name.

    `load_lora_weights`, `load_ip_adapter`, `load_textual_inversion` and `from_single_file` take any, in folders too.
    """
    files = list(repository.files)
    if PIPELINE in files or "modular_model_index.json" in files:
        return True
    files = [path for path in files if not is_leftover(path)]
    configs = [path for path in files if path.rpartition("/")[2] in {"config.json", "scheduler_config.json"}]
    if any("_class_name" in (repository.document(path) or ()) for path in configs):
        return True
    return any(path.endswith(SINGLES) and not OF_A_PART.match(path.rpartition("/")[2]) for path in files)


class MissingComponent(Rule):
    """A part that model_index.json lists is not there, or has no weights.

    `DiffusionPipeline.from_pretrained` downloads everything else, and then stops.
    """

    code = "FIL122"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the decoder was not uploaded", pipeline(vae=["diffusers", "AutoencoderKL"])),
        Example(
            "a config without weights",
            pipeline(vae=["diffusers", "AutoencoderKL"]) | {"vae/config.json": '{"_class_name": "AutoencoderKL"}'},
        ),
    )
    good = (
        Example("every part", pipeline()),
        Example("a part that the pipeline was saved without", pipeline(safety_checker=[None, None])),
        Example(
            "weights of a variant",
            pipeline(vae=["diffusers", "AutoencoderKL"])
            | {
                "vae/config.json": '{"_class_name": "AutoencoderKL"}',
                "vae/diffusion_pytorch_model.fp16.safetensors": NETWORK,
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        index = repository.document(PIPELINE)
        if index is None:
            return
        from repokit.schema.diffusers import components

        for part in components(index.raw):
            if part.library is None or (what := lack(repository, part.name, part.class_name or "")) is None:
                continue
            message = f"lists the part {printable(part.name, 40)} ({printable(part.class_name, 60)}), {what}"
            hint = f"upload the folder, or write [null, null] for it; {SAVE}"
            yield self.finding(index.path, message, place=index.at(part.name), hint=hint)


SINGLES: Final = (".safetensors", ".ckpt", ".gguf", ".bin", ".pt", ".pth")
# Names that a file has only as a part of a model in a folder.
OF_A_PART: Final = re.compile(r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model)\b")

# Parts that are all config. Processors and tokenizers may have their files under several names.
NO_WEIGHTS: Final = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor", "ProcessorFast", "Mel")
WEIGHTS: Final = (".safetensors", ".bin", ".onnx", ".gguf", ".pt", ".pth", ".msgpack", ".xml")


def lack(repository: Repository, name: str, kind: str) -> str | None:
    """What a part of a pipeline does not have, as the end of a sentence."""
    files = repository.under(name)
    if not files:
        return "and there is no such folder"
    if kind.endswith(NO_WEIGHTS) or kind in {"list", "bool"}:
        return None
    if not any(path.endswith(WEIGHTS) for path in files):
        return "and its folder has no weights"
    return None


class MissingModules(Rule):
    """The card says sentence-transformers, and there is no modules.json.

    The library warns and takes the mean over all tokens, whatever the model was trained with: other vectors, and no
    error.
    """

    code = "FIL123"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (Example("saved by transformers", {**embedder(), MODULES: None}),)
    good = (
        Example("the modules", embedder()),
        Example("a plain encoder", ENCODER),
        Example(
            "a cross-encoder has none",
            {
                **embedder(),
                MODULES: None,
                "config.json": CROSS_ENCODER,
                SINGLE: weights_of(CROSS_ENCODER),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, config = repository.card, repository.config
        if card is None or card.library_name != "sentence-transformers" or repository.has(MODULES):
            return
        if config is None or card.pipeline_tag in RANKING or repository.weights.of_adapter:
            return  # nothing that the library loads, or not one vector for a text
        if any(name.endswith("ForSequenceClassification") for name in config.architectures):
            return
        yield self.finding(README, f"names the library sentence-transformers, and there is no {MODULES}", hint=SAVED_BY)


RANKING: Final = frozenset({"text-ranking", "text-classification"})
SAVED_BY: Final = "SentenceTransformer.save_pretrained(DIR) writes it"


class MissingModule(Rule):
    """A module that modules.json lists is not there.

    SentenceTransformer(...) stops: the file that says how tokens become one vector cannot be found.
    """

    code = "FIL124"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the pooling was not uploaded", embedder(("1_Pooling", "Pooling"))),
        Example(
            "a projection without weights",
            {**embedder(("2_Dense", "Dense")), "2_Dense/config.json": '{"in_features": 16, "out_features": 8}'},
        ),
    )
    good = (
        Example(
            "a module with its settings",
            {**embedder(("1_Pooling", "Pooling")), "1_Pooling/config.json": '{"embedding_dimension": 16}'},
        ),
        Example("a module without settings, and so without a folder", embedder(("2_Normalize", "Normalize"))),
        Example("an empty list", {MODULES: "[]"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if not repository.has(MODULES):
            return
        from repokit.schema.sentence_transformers import CONFIG_FILES, WEIGHTED, is_of_library

        raw = repository.json(MODULES)
        for number, entry in enumerate(raw if isinstance(raw, list) else ()):
            path, kind = (entry.get("path"), entry.get("type")) if isinstance(entry, dict) else (None, None)
            if not isinstance(path, str) or not isinstance(kind, str) or not path or not is_of_library(kind):
                continue  # the transformer at the top is what all other rules are about
            name = kind.rpartition(".")[2]
            wanted = [CONFIG_FILES[name]] if name in CONFIG_FILES else []
            lost = [f"{path}/{file}" for file in wanted if not repository.has(f"{path}/{file}")]
            weights = (f"{path}/model.safetensors", f"{path}/pytorch_model.bin")
            if name in WEIGHTED and not any(map(repository.has, weights)):
                lost.append(weights[0])
            if lost:
                message = f"lists the module {printable(name, 40)}, and {count(len(lost), 'file')} of it is not there"
                yield self.finding(MODULES, message, place=f"/{number}", names=lost, hint=SAVED_BY)


class HalfOfMistralFormat(Rule):
    """There is a part of Mistral's own format, and not the rest.

    mistral-inference and vLLM's `--load-format mistral` need the weights, params.json and a tokenizer of that format.
    """

    code = "FIL220"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("weights without parameters", {"consolidated.safetensors": NETWORK, "tekken.json": "{}"}),
        Example("parameters without weights", {"params.json": '{"dim": 16}', "tekken.json": "{}"}),
    )
    good = (
        Example(
            "both formats",
            {"consolidated.safetensors": NETWORK, "params.json": '{"dim": 16}', "tekken.json": "{}"},
        ),
        Example("only its tokenizer", {"tekken.json": "{}"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        weights = [path for path in repository.files if path.startswith("consolidated") and "/" not in path]
        if weights and not repository.has("params.json"):
            yield self.finding(weights[0], "is of Mistral's format, and there is no params.json")
        elif repository.has("params.json") and not weights and repository.has("tekken.json"):
            yield self.finding("params.json", "is of Mistral's format, and there are no consolidated weights")


RULES: Final = (
    MissingPipelineIndex(),
    MissingComponent(),
    MissingModules(),
    MissingModule(),
    HalfOfMistralFormat(),
)
