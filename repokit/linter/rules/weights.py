"""WGT: weight files and the tensors in them, from headers alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.signature import is_pickle
from repokit.linter.examples import Example, edited, safetensors, single, tensors_of
from repokit.linter.examples_torch import torch_file
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import count
from repokit.repo.tensor_names import group_names
from repokit.repo.weights import ADAPTER, SINGLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repokit.repo.repository import Repository

TENSORS: Final = tensors_of(single()[SINGLE])
LORA_QUERY: Final = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def prefixed(prefix: str) -> Callable[[bytes], bytes]:
    """A change that puts a prefix before every name."""
    return edited(rename=lambda name: prefix + name)


# Markers of quantizers (`scaled_fp8`, shape [0]) have names of other kinds.
MUST_HOLD: Final = re.compile(r"(?:weight|bias)$|lora_").search


class EmptyTensor(Rule):
    """A weight has no elements.

    The parts of a sharded run were not gathered before saving (ZeRO-3, FSDP): loading stops with a size mismatch, and
    the values are nowhere in the repository.
    """

    code = "WGT101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "one layer was not gathered",
            {SINGLE: edited(add={"model.layers.1.self_attn.o_proj.weight": ("BF16", (0,))})},
        ),
        Example("an adapter saved on one rank", {ADAPTER: edited(add={LORA_QUERY: ("F32", (0, 16))})}, "lora"),
    )
    good = (
        Example("a marker without elements", {SINGLE: edited(add={"scaled_fp8": ("F8_E4M3", (0,))})}),
        Example("a scalar", {SINGLE: edited(add={"model.num_batches_tracked": ("I64", ())})}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.weights.safetensors:
            tensors = repository.header(path).tensors
            if empty := [tensor.name for tensor in tensors if tensor.begin == tensor.end and MUST_HOLD(tensor.name)]:
                message = f"has {count(len(empty), 'weight')} without elements"
                hint = "save again with the parameters gathered (stage3_gather_16bit_weights_on_model_save for ZeRO-3)"
                yield self.finding(path, message, names=empty, place=empty[0], hint=hint)


class FileWithoutTensors(Rule):
    """A weight file holds no tensors.

    It opens without complaint, and the model keeps its random initial values.
    """

    code = "WGT102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (Example("only metadata was written", {"extra/model.safetensors": safetensors({})}),)
    good = (Example("one tensor", {"extra/model.safetensors": safetensors({"scale": ("F32", ())})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.weights.safetensors:
            if not repository.header(path).tensors:
                yield self.finding(path, "holds no tensors", hint="delete it, or save the weights again")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import without_file

        return without_file(repository, finding)


def respelled(content: bytes, new: bytes, old: bytes, which: int = 1) -> bytes:
    """A .safetensors file with one spelling in its header changed: the first or, with -1, the last of its kind."""
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    parts = (header.split(old, 1) if which == 1 else header.rsplit(old, 1)) if old in header else [header]
    header = new.join(parts)
    return len(header).to_bytes(8, "little") + header + data


class NonstandardHeader(Rule):
    """A header has what the safetensors specification does not allow and its library reads.

    Stricter readers refuse the file.
    """

    code = "WGT201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("white space before the brace", {SINGLE: lambda content: respelled(content, b" {", b"{")}),
        Example(
            "a field of someone's own", {SINGLE: lambda content: respelled(content, b'"by":"me","dtype"', b'"dtype"')}
        ),
    )
    good = (Example("white space after the last brace", {SINGLE: lambda content: respelled(content, b"} ", b"}", -1)}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.weights.safetensors:
            for remark in repository.header(path).remarks:
                yield self.finding(path, remark, place="header", hint="write the file again with safetensors")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import written_anew

        return written_anew(repository, finding)


class MissingFormat(Rule):
    """A weight file does not say for which framework it was written.

    transformers before 5 and fastsafetensors refuse a file without `"format": "pt"` in its metadata.
    """

    code = "WGT301"
    severity = Severity.NOTE
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.UNSAFE
    bad = (
        Example("no metadata", {SINGLE: lambda content: safetensors(tensors_of(content), {})}),
        Example("other metadata", {SINGLE: lambda content: safetensors(tensors_of(content), {"step": "500"})}),
    )
    good = (Example("written by MLX", {SINGLE: lambda content: safetensors(tensors_of(content), {"format": "mlx"})}),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        paths = repository.weights.safetensors
        bare = [path for path in paths if "format" not in (repository.header(path).metadata or {})]
        if bare:
            message = (
                "has no format in its metadata" if len(bare) == 1 else "and others have no format in their metadata"
            )
            yield self.finding(bare[0], message, names=bare, place="__metadata__")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.weights import with_format

        return with_format(repository, finding)


# What wrappers put into names: torch.compile, DistributedDataParallel, FSDP, DeepSpeed, activation checkpointing, PEFT
# where an adapter was not merged, and transformers that saved a composed model under another class. Behind a number
# `module` may be a part of the architecture (LeViT).
WRAPPERS: Final = {
    "_orig_mod.": re.compile(r"(?:^|\.)_orig_mod\."),
    "module.": re.compile(r"(?:^|[^.*]\.)module\."),
    "_fsdp_wrapped_module.": re.compile(r"_fsdp_wrapped_module\."),
    "_forward_module.": re.compile(r"_forward_module\."),
    "_checkpoint_wrapped_module.": re.compile(r"_checkpoint_wrapped_module\."),
    "language_model.language_model.": re.compile(r"(?:^|\.)language_model\.language_model\."),
    "base_model.model.": re.compile(r"^base_model\.model\."),
    "base_layer.": re.compile(r"\.base_layer\."),
    "lora_": re.compile(r"\.lora_(?:embedding_)?[AB](?:\.|$)"),
}
OF_ADAPTERS: Final = frozenset({"base_model.model.", "base_layer.", "lora_"})


class WrapperPrefix(Rule):
    """Names of tensors carry the name of a wrapper that was around the model when it was saved.

    transformers matches tensors by name: it loads the model with all of these at their random initial values, and
    prints a report instead of an error.
    """

    code = "WGT103"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    fixes = Safety.SAFE
    bad = (
        Example("saved from inside torch.compile", {SINGLE: prefixed("_orig_mod.")}),
        Example("saved from inside DistributedDataParallel", {SINGLE: prefixed("module.")}),
        Example(
            "a wrapped part", {SINGLE: edited(rename=lambda name: name.replace("model.layers", "model.module.layers"))}
        ),
        Example("an adapter that was never merged", {SINGLE: prefixed("base_model.model.")}),
        Example("a prefix twice", {SINGLE: prefixed("language_model.language_model.")}),
        Example(
            "a pickle of a compiled model",
            {SINGLE: None, "ckpt.pt": torch_file({f"_orig_mod.{name}": info for name, info in TENSORS.items()})},
            also=("FIL203",),
        ),
    )
    good = (
        Example("an adapter is named so by right", base="lora"),
        Example(
            "code of the repository has adapters in it",
            {
                "config.json": {"auto_map": {"AutoModelForCausalLM": "modeling_x.XModel"}},
                "modeling_x.py": "",
                SINGLE: edited(add={"model.layers.0.self_attn.q_proj.lora_A.speech.weight": ("BF16", (4, 16))}),
            },
        ),
        Example(
            "a part of the architecture",
            {
                "config.json": {"architectures": ["LevitForCausalLM"]},
                SINGLE: edited(add={"stages.0.module.weight": ("BF16", (16,))}),
            },
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        adapted = repository.weights.of_adapter or has_adapters_of_its_own(repository)
        for path, groups in named_groups(repository):
            for wrapper, pattern in WRAPPERS.items():
                names = [name for group, names in groups.items() if pattern.search(group) for name in names]
                if not names or (adapted and wrapper in OF_ADAPTERS):
                    continue
                message = f"has {wrapper!r} in {count(len(names), 'name')}"
                hint = "`repokit build` renames them where the result is unambiguous"
                yield self.finding(path, message, names=names, place=names[0], hint=hint)

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:
        from repokit.linter.fixes.names import unwrapped

        return unwrapped(repository, finding)


def named_groups(repository: Repository) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    """A file, and the names of its tensors by pattern. Of pickles where a model of transformers has nothing else.

    Loaders of other libraries take such prefixes off by themselves (nanoGPT, DINO).
    """
    weights, config = repository.weights, repository.config
    if weights.files:
        yield weights.main or SINGLE, weights.groups
    elif config is not None and config.architectures and repository.adapter_config is None:
        # A pointer in the place of a pickle is another rule's; a pickle may have any text for a name.
        for path in (path for path in repository.pickles.weights if is_pickle(repository.head(path))):
            yield path, group_names(name for name in repository.pickles.table(path).tensors if "\n" not in name)


def has_adapters_of_its_own(repository: Repository) -> bool:
    """Whether adapters may be parts of the architecture: Phi-4-multimodal, and what code of the repository defines."""
    config = repository.config
    return config is not None and ("auto_map" in config or config.model_type == "phi4_multimodal")


RULES: Final = (
    EmptyTensor(),
    FileWithoutTensors(),
    WrapperPrefix(),
    NonstandardHeader(),
    MissingFormat(),
)
