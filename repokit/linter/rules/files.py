"""FIL: files and layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from repokit import errors
from repokit.errors import InputError, MissingInput
from repokit.formats.signature import LFS_POINTER, identify, is_pickle
from repokit.formats.strict_json import loads
from repokit.linter.examples import CHATML, Example
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.repo.onnx import data_files
from repokit.repo.source import Kind
from repokit.repo.training_state import in_checkpoint, is_training_state
from repokit.repo.weights import INDEX

if TYPE_CHECKING:
    from pydantic import BaseModel

    from repokit.repo.repository import Repository

POINTER: Final = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
OTHER_CARD: Final = "---\nlicense: apache-2.0\nlibrary_name: openvoice\n---\n# A voice\n"


class MalformedFile(Rule):
    """A file is not what its name says.

    Loaders stop at it, or two of them read different things; what depends on it could not be checked.
    """

    code = "FIL101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("a trailing comma in config.json", {"config.json": lambda text: text.rstrip(b"}\n") + b",}"}),
        Example("the end of the weights was not copied", {"model.safetensors": lambda content: content[:-100]}),
        Example("torch.save under another name", {"model.safetensors": b"PK\x03\x04" + bytes(60)}),
        Example("safetensors under the name of a pickle", {"pytorch_model.bin": b"\x40" + bytes(7) + b"{}"}),
        Example("a template in UTF-16", {"chat_template.jinja": CHATML.encode("utf-16")}),
        Example("the same key twice", {"generation_config.json": '{"eos_token_id": 4, "eos_token_id": 2}'}),
        Example("a card whose front matter is never closed", {"README.md": "---\nlicense: mit\n"}),
    )
    good = (Example("every file parses"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        unread: MissingInput | None = None
        for path, entry in repository.files.items():
            try:
                if entry.kind is not Kind.FILE or is_pointer(repository, path):
                    continue  # other rules speak of these
                parse(repository, path)
            except MissingInput as error:  # a disk or a network that does not give it: no fault of the file
                unread = unread or error
            except InputError as error:
                yield self.finding(
                    error.path or path, error.what, place=error.place, why=error.why or self.why, hint=error.hint
                )
        if unread is not None:
            raise unread

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import readable

        return readable(repository, finding)


class LfsPointer(Rule):
    """A file is a Git LFS pointer instead of the file it points to.

    The repository was cloned without `git lfs pull`, or copied by a tool that does not know LFS: nothing loads.
    """

    code = "FIL102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("the weights were never pulled", {"model.safetensors": POINTER}),
        Example("the tokenizer was never pulled", {"tokenizer.json": POINTER}),
    )
    good = (Example("a card that quotes a pointer", {"README.md": lambda card: card + POINTER.encode()}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        if pointers := [path for path in repository.files if is_pointer(repository, path)]:
            message = "is a Git LFS pointer, not the file" if len(pointers) == 1 else "and others are Git LFS pointers"
            yield self.finding(pointers[0], message, names=pointers, hint="run `git lfs pull` in the clone")


class BrokenLink(Rule):
    """A link leads nowhere, or out of the repository.

    Uploads follow links: what lies behind one is published, and what is not there is missing.
    """

    code = "FIL103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("a Hub cache copied without its blobs", {"model.safetensors": Kind.BROKEN_LINK}),
        Example("a link into the home directory", {"tokenizer.json": Kind.OUTSIDE_LINK}),
    )
    good = (Example("regular files"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, entry in repository.files.items():
            if entry.kind not in {Kind.FILE, Kind.FOLDER}:
                yield self.finding(path, f"is a {entry.kind}", hint="replace it by the file itself, or delete it")


class WrongType(Rule):
    """A value has a type that its readers cannot use.

    transformers 5 refuses such a config; others compute with it and fail later, far from the cause.
    """

    code = "FIL104"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("a number as text", {"config.json": {"vocab_size": "32"}}),
        Example("nothing, for a size that is never asked for", {"config.json": {"hidden_size": None}}),
        Example("an integer, of a family that takes a float alone", {"config.json": {"initializer_range": 1}}),
        Example("a switch that is a number", {"config.json": {"use_cache": 1}}),
        Example(
            "in the config of a part",
            {"config.json": {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32.0}}},
        ),
        Example("a name where a list is due", {"config.json": {"architectures": "LlamaForCausalLM"}}),
        Example("a shard that is a number", {INDEX: {"weight_map": {"model.norm.weight": 3}}}, "sharded", ("IDX104",)),
        Example("a rank as text", {"adapter_config.json": {"r": "4"}}, "lora"),
        Example(
            "a width as text",
            {
                "modules.json": '[{"name": "0", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]',
                "1_Pooling/config.json": '{"word_embedding_dimension": "16", "pooling_mode": "mean"}',
            },
        ),
        Example("a result without its task", {".eval_results/mmlu.yaml": "- value: 0.4\n"}),
    )
    good = (
        Example("keys of someone's own", {"config.json": {"my_setting": {"any": ["thing", 1]}}}),
        Example("an integer where a float is, of a family that takes both", {"config.json": {"attention_dropout": 0}}),
        Example("a config of another library", {"config.json": '{"vocab_size": "a, b, c"}', "README.md": OTHER_CARD}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        from repokit.schema.document import problems
        from repokit.schema.field_types import config_problems

        for path, model in schemas(repository):
            places: dict[str, list[str]] = {}
            wrong = config_problems if path == "config.json" else problems
            for problem in wrong(model, document_in(repository, path)):
                places.setdefault(problem.message, []).append(problem.pointer)
            for message, pointers in places.items():
                yield self.finding(path, message, place=pointers[0] or None, names=pointers if pointers[1:] else ())

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import with_types

        return with_types(repository, finding)


class InfiniteNumber(Rule):
    """A JSON file holds Infinity, which is not JSON.

    Python's readers take it; the Hub and readers in other languages refuse the whole file. transformers 5 writes
    {"__float__": "Infinity"} instead.
    """

    code = "FIL207"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.UNSAFE
    bad = (
        Example("no upper limit", {"config.json": lambda text: text.replace(b"{", b'{"time_limit": Infinity, ', 1)}),
    )
    good = (Example("the word in a string", {"config.json": {"comment": "Infinity"}}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.files:
            if path.endswith(".json") and b"Infinity" in (content := repository.glance(path) or b""):
                try:
                    loads(content, path)
                except errors.MalformedFile as error:
                    yield self.finding(path, error.what, place=error.place)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import with_finite_numbers

        return with_finite_numbers(repository, finding)


class TrainingState(Rule):
    """State of the training run lies in the repository.

    Optimizer and random state are larger than the model, useless to whoever loads it, and pickles: `training_args.bin`
    is code that scanners flag, and it holds the paths and names of the machine that trained.
    """

    code = "FIL201"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    fixes = Safety.UNSAFE
    bad = (
        Example("a checkpoint folder published as it lay", {"optimizer.pt": b"PK\x03\x04", "rng_state.pth": b"PK"}),
        Example("the arguments of the run", {"training_args.bin": b"PK\x03\x04"}),
        Example("an earlier checkpoint in the repository", {"checkpoint-31/config.json": "{}"}),
    )
    good = (Example("only the model"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        left = [path for path in repository.files if is_training_state(path) or in_checkpoint(path)]
        if left:
            message = "is training state" if len(left) == 1 else f"and {len(left) - 1:,} more are training state"
            hint = "`repokit build` leaves it out; in a finished repository, delete it"
            yield self.finding(left[0], message, names=left, hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.files import without_named

        return without_named(repository, finding)


RULES: Final = (MalformedFile(), LfsPointer(), BrokenLink(), WrongType(), InfiniteNumber(), TrainingState())

# The model of each file, by the end of its name: the module and class in repokit/schema/.
SCHEMAS: Final = {
    "config.json": ("config", "Config"),
    "generation_config.json": ("generation_config", "GenerationConfig"),
    "tokenizer_config.json": ("tokenizer_config", "TokenizerConfig"),
    "special_tokens_map.json": ("special_tokens_map", "SpecialTokensMap"),
    "added_tokens.json": ("added_tokens", "AddedTokens"),
    "tokenizer.json": ("tokenizer", "Tokenizer"),
    "preprocessor_config.json": ("processor", "Preprocessor"),
    "video_preprocessor_config.json": ("processor", "Preprocessor"),
    "processor_config.json": ("processor", "Processor"),
    "adapter_config.json": ("adapter", "AdapterConfig"),
    "quantize_config.json": ("quantization", "GptqSideFile"),
    "quant_config.json": ("quantization", "AwqSideFile"),
    "hf_quant_config.json": ("quantization", "ModelOptSideFile"),
    "model_index.json": ("diffusers", "ModelIndex"),
    "config_sentence_transformers.json": ("sentence_transformers", "ModelSettings"),
    "sentence_bert_config.json": ("sentence_transformers", "TransformerSettings"),
}
MODULES: Final = "modules.json"  # a list


def schemas(repository: Repository) -> Iterator[tuple[str, type[BaseModel]]]:
    """The files that have a schema, with their models. The config.json of another library is left out."""
    from importlib import import_module

    found = {path: SCHEMAS[path] for path in SCHEMAS if repository.content(path) is not None}
    found |= dict.fromkeys(repository.weights.index_paths, ("weight_index", "WeightIndex"))
    found |= dict.fromkeys(results_in(repository), ("eval_results", "EvalResults"))
    if repository.content(MODULES) is not None:
        found[MODULES] = ("sentence_transformers", "Modules")
        found |= dict(modules_of(repository))
    if "config.json" in found and not is_of_transformers(repository):
        del found["config.json"]
    for path, (module, name) in found.items():
        yield path, getattr(import_module(f"repokit.schema.{module}"), name)


def modules_of(repository: Repository) -> Iterator[tuple[str, tuple[str, str]]]:
    """The settings of the modules of sentence-transformers that have a schema, each in the folder of its path."""
    raw = repository.json(MODULES)
    for entry in raw if isinstance(raw, list) else ():
        kind, folder = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        name = str(kind).rpartition(".")[2]
        path = f"{folder}/config.json"
        if isinstance(folder, str) and name in {"Pooling", "Dense"} and repository.content(path) is not None:
            yield path, ("sentence_transformers", f"{name}Settings")


def results_in(repository: Repository) -> list[str]:
    """Files of evaluation results, as the Hub collects them."""
    return [path for path in repository.files if RESULTS.fullmatch(path)]


RESULTS: Final = re.compile(r"\.eval_results/[^/]+\.ya?ml")


def document_in(repository: Repository, path: str) -> Any:  # noqa: ANN401 - whatever the document holds
    """What a file holds, in JSON or in YAML.

    Raises:
        MalformedFile: It is neither.
    """
    if not RESULTS.fullmatch(path):
        return repository.json(path)
    from repokit.formats.front_matter import load_list

    return load_list(repository.content(path) or b"", path)


def is_of_transformers(repository: Repository) -> bool:
    """Whether config.json is transformers' own: it names a model_type, or the card names no other library."""
    config, card = repository.config, repository.card
    known = config is not None and config.model_type is not None
    return known or card is None or card.library_name in {None, "transformers"}


OBJECTS: Final = frozenset(SCHEMAS)  # files whose readers expect an object and nothing else


# Names under which libraries look for what torch.save wrote: transformers, PEFT, diffusers.
PICKLED: Final = re.compile(r"(?:^|/)(?:pytorch_model|adapter_model|diffusion_pytorch_model)[^/]*\.bin$")


def is_pointer(repository: Repository, path: str) -> bool:
    """Whether a file begins as Git LFS pointers do. Pointers are small: larger files are not opened."""
    return repository.files[path].size < 1024 and repository.head(path).startswith(LFS_POINTER)


def parse(repository: Repository, path: str) -> None:
    """Reads a file by the format that its name promises.

    Raises:
        InputError: It has another.
    """
    if path.endswith(".safetensors"):
        repository.header(path)
    elif path.endswith(".gguf"):
        repository.gguf.file(path)
    elif path in repository.weights.index_paths:
        repository.weights.index_at(path)
    elif path in OBJECTS:
        repository.document(path)
    elif path.endswith(".json"):
        repository.json(path)
    elif path.endswith(".onnx"):
        data_files(repository, path)
    elif PICKLED.search(path) and not is_pickle(head := repository.head(path)):
        guess = identify(head) or ("empty" if not head else "nothing that torch.save writes")
        raise errors.MalformedFile(f"is {guess}", path=path)
    elif path == "README.md":
        _ = repository.card
    elif path.endswith(".jinja") or path in {"vocab.txt", "merges.txt"}:
        repository.text(path)
