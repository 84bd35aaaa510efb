"""The weights of a repository, from headers alone: which files a loader reads, which tensors they hold."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.errors import MalformedFile, MissingInput
from repokit.formats.tensors import FLOATS
from repokit.printable import printable
from repokit.repo.tensor_names import EMBEDDING, HEAD, group_names, layers_of
from repokit.repo.weight_index import Index, Placement, placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.formats.tensors import TensorInfo
    from repokit.repo.repository import Repository

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
ADAPTER: Final = "adapter_model.safetensors"

# `model.safetensors`, `model.fp16.safetensors` and their indexes: transformers modeling_utils.py `_add_variant` puts
# the variant before the last dot of the file name, which for an index is the one before `json`.
_SINGLE_FORMS: Final = re.compile(r"(model|diffusion_pytorch_model)(?:\.(?P<variant>[^.]+))?\.safetensors")

# Ends of the prefixes under which transformers keeps its blocks. Others, such as the `classifier.0`, `classifier.3` of
# a torch Sequential, have gaps by right.
_STACK: Final = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|resblocks)$")
_FEWEST_PARTS: Final = 3  # patterns of tensors in one block; a Sequential with a name like these has two

# What packed weights are stored in; scales and zero points beside them may be floats. A mask of the GPT-2 family is
# U8 too, and has four dimensions.
_PACKED: Final = frozenset(
    {"U8", "I8", "U16", "I16", "U32", "I32", "F4", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}
)


class Stored(NamedTuple):
    """How the matrices of a model are stored.

    Attributes:
        bytes: By dtype, as headers spell it, of tensors with two dimensions and more.
        packed: Whether one of them has a dtype that only quantized weights have.
    """

    bytes: Mapping[str, int]
    packed: bool

    @property
    def dtype(self) -> str | None:
        """The float dtype that most bytes have; None where there are no float matrices."""
        floats = {dtype: size for dtype, size in self.bytes.items() if dtype in FLOATS}
        return max(sorted(floats), key=lambda dtype: floats[dtype], default=None)


class Weights:
    """What loaders find when they look for weights."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    # ---------------------------------------------------------------- files

    @cached_property
    def safetensors(self) -> tuple[str, ...]:
        """Every .safetensors file, in folders too, sorted."""
        return tuple(path for path in self._repository.files if path.endswith(".safetensors"))

    @cached_property
    def index_paths(self) -> tuple[str, ...]:
        """Every index of safetensors shards, in folders too, sorted."""
        files = self._repository.files
        return tuple(path for path in files if ".safetensors.index" in path and path.endswith(".json"))

    @property
    def indexes(self) -> Iterator[Index]:
        """Every index.

        Raises:
            MalformedFile: One does not parse.
        """
        for path in self.index_paths:
            if (index := self.index_at(path)) is not None:
                yield index

    def index_at(self, path: str) -> Index | None:
        """The index in this file, or None where it is absent.

        Raises:
            MalformedFile: It is not JSON, or has no weight_map.
        """
        return self._repository.remember(("index", path), lambda: self._index(path))

    def _index(self, path: str) -> Index | None:
        document = self._repository.document(path)
        if document is None:
            return None
        raw: Any = document.raw.get("weight_map")
        if not isinstance(raw, dict):
            why = "loaders read it unguarded and stop with KeyError or TypeError"
            raise MalformedFile("has no weight_map object", why=why, path=path, place="/weight_map")
        if not raw:
            why = "loaders take their list of files from it, and find none"
            raise MalformedFile("has an empty weight_map", why=why, path=path, place="/weight_map")
        return Index(document, {name: shard for name, shard in raw.items() if isinstance(shard, str)})

    @cached_property
    def index(self) -> Index | None:
        """The index that a loader uses: None where a single file wins over it, or where there is none.

        Raises:
            MalformedFile: It does not parse.
        """
        paths = [path for path in self.index_paths if "/" not in path]
        # Before variants (`model.safetensors.index.fp16.json`) and other layouts (`consolidated.safetensors...`).
        paths.sort(key=lambda path: (path != INDEX, not path.startswith(SINGLE)))
        return self.index_at(paths[0]) if paths and self.single is None else None

    @cached_property
    def single(self) -> str | None:
        """The one file that holds everything; it wins over an index (transformers `_get_resolved_checkpoint_files`)."""
        files = self._repository.files
        if SINGLE in files:
            return SINGLE
        if INDEX in files:
            return None
        if ADAPTER in files:
            return ADAPTER
        return next((path for path in files if _SINGLE_FORMS.fullmatch(path)), None)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The weight files that a loader reads from the root: the single file, or the shards that exist."""
        if self.single is not None:
            return (self.single,)
        shards = self.index.shards if self.index is not None else ()
        return tuple(shard for shard in shards if self._repository.has(shard))

    @property
    def main(self) -> str | None:
        """Where a finding about the whole belongs: the single file or the index; None where there are no weights."""
        return self.single or (None if self.index is None else self.index.path)

    @cached_property
    def of_adapter(self) -> bool:
        """Whether these are the weights of an adapter, which do not work without a base."""
        return self.main is not None and self.main.startswith("adapter_model.")

    # ---------------------------------------------------------------- tensors

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor of `files` by name, in file order. Where two shards hold a name, the index decides.

        Raises:
            MalformedFile: One of the files has no valid header.
        """
        index = self.index
        placed = {} if index is None else index.names
        found: dict[str, TensorInfo] = {}
        for path in self.files:
            own = placed.get(path, frozenset())
            for tensor in self._repository.header(path).tensors:
                if tensor.name not in found or tensor.name in own:
                    found[tensor.name] = tensor
        return found

    @cached_property
    def whole(self) -> Mapping[str, TensorInfo]:
        """`tensors`, for whoever judges what is *not* among them.

        Raises:
            MalformedFile: One of the files has no valid header.
            MissingInput: A shard is not there, or does not hold what the index places in it.
        """
        if self.index is not None:
            missing = [shard for shard in self.index.shards if not self._repository.has(shard)]
            absent = self.placement(self.index).absent
            if missing or absent or self.index.refused:
                first = (*missing, *absent, *self.index.refused)[0]
                raise MissingInput(f"the weights are not all there: see {printable(first)}", path=self.index.path)
        return self.tensors

    def held(self, index: Index) -> Mapping[str, frozenset[str]]:
        """The names in the header of every shard of an index that exists, by path.

        Raises:
            MalformedFile: One of them has no valid header.
        """
        return self._repository.remember(("held", index.path), lambda: self._held(index))

    def _held(self, index: Index) -> Mapping[str, frozenset[str]]:
        existing = [shard for shard in index.shards if self._repository.has(shard)]
        return {
            shard: frozenset(tensor.name for tensor in self._repository.header(shard).tensors) for shard in existing
        }

    def placement(self, index: Index) -> Placement:
        """An index held against its shards.

        Raises:
            MalformedFile: One of them has no valid header.
        """
        return self._repository.remember(("placement", index.path), lambda: placement(index, self.held(index)))

    @cached_property
    def stored(self) -> Stored:
        """How the matrices are stored."""
        kinds: dict[tuple[str, int], int] = {}
        for _, dtype, shape, begin, end in self.tensors.values():
            kind = (dtype, len(shape))
            kinds[kind] = kinds.get(kind, 0) + end - begin
        sizes: dict[str, int] = {}
        for (dtype, dimensions), size in kinds.items():
            if dimensions > 1:
                sizes[dtype] = sizes.get(dtype, 0) + size
        return Stored(sizes, any(dtype in _PACKED and dimensions in {2, 3} for dtype, dimensions in kinds))

    @cached_property
    def quantized(self) -> bool:
        """Whether shapes and dtypes of tensors are those of a quantization method: by config.json, else by dtypes."""
        config = self._repository.config
        declared = config is not None and (
            config.quantization is not None or "compression_config" in config or "quantization" in config
        )
        return declared or self.stored.packed

    # ---------------------------------------------------------------- names

    @cached_property
    def groups(self) -> Mapping[str, list[str]]:
        """The names of `tensors` by pattern: `model.layers.*.mlp.up_proj.weight`."""
        return group_names(self.tensors)

    @cached_property
    def stacks(self) -> Mapping[str, frozenset[int]]:
        """The layer numbers of every stack of transformer blocks: `model.layers` to {0, 1, ...}."""
        parts: dict[str, int] = {}
        for pattern in self.groups:
            stack = pattern.partition(".*")[0]
            parts[stack] = parts.get(stack, 0) + 1
        blocks = {stack for stack, number in parts.items() if number >= _FEWEST_PARTS and _STACK.search(stack)}
        return layers_of({name: group for name, group in self.groups.items() if name.partition(".*")[0] in blocks})

    def matching(self, pattern: re.Pattern[str]) -> tuple[TensorInfo, ...]:
        """Matrices whose name a pattern finds, numbers between dots replaced by `*`."""
        found = (name for group, names in self.groups.items() if pattern.search(group) for name in names)
        return tuple(tensor for name in found if len((tensor := self.tensors[name]).shape) == 2)

    @cached_property
    def embeddings(self) -> tuple[TensorInfo, ...]:
        """Matrices that look like input embeddings: one row per token id."""
        return self.matching(EMBEDDING)

    @cached_property
    def heads(self) -> tuple[TensorInfo, ...]:
        """Matrices that look like output heads: one row per token id."""
        return self.matching(HEAD)

    @cached_property
    def embedding(self) -> TensorInfo | None:
        """The input embedding of the text model, or None where the names do not tell.

        Composed models have more than one; the one that has config.json's vocab_size rows is the text model's.
        """
        config = self._repository.config
        declared = None if config is None else config.vocab_size
        matching = [tensor for tensor in self.embeddings if tensor.shape[0] == declared]
        if matching or len(self.embeddings) == 1:
            return (matching or self.embeddings)[0]
        same_rows = {tensor.shape[0] for tensor in self.embeddings}
        return self.embeddings[0] if len(same_rows) == 1 else None

    @property
    def token_rows(self) -> int | None:
        """Token ids must be smaller: rows of the embedding, or what config.json says where no embedding is found."""
        if self.embedding is not None:
            return self.embedding.shape[0]
        config = self._repository.config
        return None if config is None else max(config.embedding_rows, default=None)
