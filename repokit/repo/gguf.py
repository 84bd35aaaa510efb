"""The GGUF files of a repository: which of them belong together, what each is for, and what it says of its tokens.

One repository often holds the same model in a dozen quantisations, some of them split into parts, and beside them the
image encoder (`mmproj`), an importance matrix or a LoRA adapter.
"""

from __future__ import annotations

import re
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.formats.gguf import GgufArray, GgufHeader, GgufTensor, Known, read_gguf
from repokit.repo.chat_template import ChatTemplate, ChatTemplates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.repository import Repository

TOKENS: Final = "tokenizer.ggml.tokens"
TEMPLATE: Final = "tokenizer.chat_template"
EOS: Final = "tokenizer.ggml.eos_token_id"

# llama.cpp src/llama.cpp `llama_split_path`: the parts of one model, numbered from 1.
_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_ID: Final = re.compile(r"tokenizer\.ggml\.[a-z_]+_token_id")
_BLOCK: Final = re.compile(r"blk\.(\d+)\.")
# Of the ids, those that end a generation (llama.cpp src/llama-vocab.cpp `special_eog_ids`).
_ENDING: Final = (EOS, "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_ROLES: Final = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

# `cat` and `split` leave `.part1of2`, `-split-a`, `.aa`, `.001`.
PIECE: Final = re.compile(
    r"\.gguf(?:[._-]?part[._-]?(?:\d+(?:[._-]?of[._-]?\d+)?|[a-z]{1,2})|[._-]split[._-]?[a-z0-9]{1,3}|\.a[a-z]|\.\d{2,3})$"
)

# How a name ends that says which quantisation a file holds.
QUANTISATION: Final = re.compile(
    r"[-._](?:UD[-._])?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4|B?F16|F32|FP16|BF16)$", re.IGNORECASE
)


class PartName(NamedTuple):
    """What a file name says of a part: `Model-Q8_0-00002-of-00003.gguf`."""

    stem: str
    number: int
    of: int


def part_name(path: str) -> PartName | None:
    """None where the name is not that of a part."""
    found = _PART.fullmatch(path)
    return None if found is None else PartName(found["stem"], int(found["number"]), int(found["count"]))


class GgufFile:
    """One file, and typed access to what it says.

    An accessor gives None where a key is absent *or of the wrong type*.
    """

    def __init__(self, path: str, header: GgufHeader) -> None:
        self.path = path
        self.header = header

    def __contains__(self, key: str) -> bool:
        return key in self.header.metadata

    def string(self, key: str) -> str | None:
        value = self._value(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        value = self._value(key)
        return value if type(value) is int else None

    def array(self, key: str) -> GgufArray | None:
        value = self._value(key)
        return value if isinstance(value, GgufArray) else None

    def _value(self, key: str) -> object:
        entry = self.header.metadata.get(key)
        return None if entry is None else entry.value

    # ---------------------------------------------------------------- what it is

    @property
    def architecture(self) -> str | None:
        return self.string("general.architecture")

    @property
    def part(self) -> PartName | None:
        """What its name says of a part; None where it is not split."""
        return part_name(self.path)

    @property
    def is_later_part(self) -> bool:
        """Whether it is a part other than the first, which alone holds the metadata."""
        return (self.integer("split.no") or 0) > 0 or (self.part is not None and self.part.number > 1)

    @property
    def is_matrix(self) -> bool:
        """Whether it is an importance matrix, which is of no architecture."""
        return self.string("general.type") == "imatrix" or "imatrix.chunk_count" in self

    @property
    def is_projector(self) -> bool:
        """Whether it is the image or sound encoder that goes with a model."""
        return self.architecture == "clip" or is_projector_name(self.path)

    @cached_property
    def is_model(self) -> bool:
        """Whether a program loads it as a model: it is no encoder, matrix, adapter or vector, and no later part."""
        beside = self.string("general.type") in {"adapter", "vocab"} or "adapter.type" in self
        other = self.is_projector or self.is_matrix or self.is_later_part
        return not beside and not other and self.architecture != "controlvector"

    # ---------------------------------------------------------------- tokens

    @property
    def tokens(self) -> GgufArray | None:
        """The vocabulary; None where it has none, or one that is no list of texts."""
        tokens = self.array(TOKENS)
        return tokens if tokens is not None and tokens.kind == "string" else None

    @property
    def token_ids(self) -> Iterator[tuple[str, int]]:
        """Key and id of every special token."""
        for key, entry in self.header.metadata.items():
            if _ID.fullmatch(key) and type(entry.value) is int:
                yield key, entry.value

    @cached_property
    def ending(self) -> frozenset[int]:
        """The ids that it declares to end a generation."""
        return frozenset(number for key, number in self.token_ids if key in _ENDING)

    def text_of(self, number: int | None) -> str | None:
        """The text of a token."""
        tokens = self.tokens
        if tokens is None or number is None or not 0 <= number < len(tokens):
            return None
        return tokens.strings[number].decode("utf-8", "replace")

    @cached_property
    def special(self) -> Mapping[str, int]:
        """Text to id of the tokens that are typed as control or as added by a user (docs/gguf.md: 3 and 4)."""
        tokens, types = self.tokens, self.array("tokenizer.ggml.token_type")
        if tokens is None or types is None or types.kind != "i32":
            return {}
        kinds = struct.unpack(f"<{len(types)}i", types.raw)
        numbers = (number for number, kind in enumerate(kinds[: len(tokens)]) if kind in {3, 4})
        return {tokens.strings[number].decode("utf-8", "replace"): number for number in numbers}

    @property
    def roles(self) -> Mapping[str, str]:
        """What a chat template finds under `bos_token` and the like."""
        texts = {role: self.text_of(self.integer(f"tokenizer.ggml.{key}_token_id")) for role, key in _ROLES.items()}
        return {role: text for role, text in texts.items() if text is not None}

    @cached_property
    def templates(self) -> tuple[ChatTemplate, ...]:
        """Its chat templates, the default one first."""
        named = [key for key in self.header.metadata if key.startswith(f"{TEMPLATE}.")]
        keys = [*([TEMPLATE] if TEMPLATE in self else []), *named]
        found = ((key, self.string(key)) for key in keys)
        return tuple(
            ChatTemplate(key.removeprefix(f"{TEMPLATE}.") if key != TEMPLATE else "default", text, self.path, key)
            for key, text in found
            if text is not None
        )


class Templates(ChatTemplates):
    """The chat templates of one file, rendered with its own special tokens."""

    def __init__(self, repository: Repository, file: GgufFile) -> None:
        super().__init__(repository, file.templates)
        self._file = file

    @cached_property
    def _tokens(self) -> Mapping[str, str]:
        return self._file.roles


class GgufModel(NamedTuple):
    """A model in one file or in several parts.

    Attributes:
        head: The file that holds the metadata: the only one, or the first part.
        parts: All that are there, in their order.
        missing: Names of parts that are not.
    """

    head: GgufFile
    parts: tuple[GgufFile, ...]
    missing: tuple[str, ...]

    @property
    def tensors(self) -> Iterator[GgufTensor]:
        """Of all parts."""
        return (tensor for part in self.parts for tensor in part.header.tensors)

    @property
    def is_whole(self) -> bool:
        """Whether what is not among the tensors is nowhere."""
        said = self.head.integer("split.count") or 1
        return not self.missing and said <= len(self.parts)

    @property
    def blocks(self) -> frozenset[int]:
        """The numbers of the transformer blocks that hold a tensor."""
        found = (_BLOCK.match(tensor.name) for tensor in self.tensors)
        return frozenset(int(match[1]) for match in found if match)

    def tensor(self, name: str) -> GgufTensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


class GgufFiles:
    """What lies in a repository under the name of GGUF."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._large: Known = {}

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every .gguf file, in folders too, sorted."""
        return tuple(path for path in self._repository.files if path.endswith(".gguf"))

    @property
    def is_all(self) -> bool:
        """Whether there are GGUF files, and no weights that another library loads."""
        return bool(self.paths) and not self._repository.weights.safetensors

    @property
    def projectors(self) -> tuple[str, ...]:
        """Files with the name of an image or sound encoder."""
        return tuple(path for path in self.paths if is_projector_name(path))

    def file(self, path: str) -> GgufFile:
        """One file.

        Raises:
            MalformedFile: ggml would refuse it.
            MissingInput: It is not in the repository.
        """
        return self._repository.remember(("gguf", path), lambda: self._file(path))

    def _file(self, path: str) -> GgufFile:
        entry = self._repository.files.get(path)
        length = 0 if entry is None else entry.size
        source = self._repository.source
        read = lambda offset, size: source.read(path, offset, size)  # noqa: E731 - as in Repository._header
        return GgufFile(path, read_gguf(read, length, path, self._large))

    @property
    def files(self) -> Iterator[GgufFile]:
        """Every file, one after the other.

        Raises:
            MalformedFile: ggml would refuse one of them.
        """
        return (self.file(path) for path in self.paths)

    @cached_property
    def splits(self) -> Mapping[str, Mapping[int, str]]:
        """The parts of every split model by number: `Model-Q8_0-of-00003` to {1: path, 2: path}."""
        found: dict[str, dict[int, str]] = {}
        for path in self.paths:
            if (part := part_name(path)) is not None:
                found.setdefault(f"{part.stem}-of-{part.of:05d}", {})[part.number] = path
        return found

    @property
    def models(self) -> Iterator[GgufModel]:
        """Every model, with the parts that belong to it; those without their first part are left out.

        Raises:
            MalformedFile: ggml would refuse one of their files.
        """
        for path in self.paths:
            part = part_name(path)
            if part is not None and part.number > 1:
                continue
            head = self.file(path)
            if head.is_model:
                yield GgufModel(head, *self._parts(head, part))

    def _parts(self, head: GgufFile, part: PartName | None) -> tuple[tuple[GgufFile, ...], tuple[str, ...]]:
        if part is None:
            return (head,), ()
        there = self.splits[f"{part.stem}-of-{part.of:05d}"]
        return tuple(self.file(there[number]) for number in sorted(there)), missing_parts(there)


def missing_parts(there: Mapping[int, str]) -> tuple[str, ...]:
    """Names of the first hundred parts that are not there."""
    any_part = part_name(next(iter(there.values())))
    if any_part is None:
        return ()
    lacking = (number for number in range(1, any_part.of + 1) if number not in there)
    names = (f"{any_part.stem}-{number:05d}-of-{any_part.of:05d}.gguf" for number in lacking)
    return tuple(name for name, _ in zip(names, range(100), strict=False))


def contradiction(file: GgufFile, number: int) -> tuple[str, str] | None:
    """What the header of a part says otherwise than its name, and under which key; None where they agree."""
    named = file.part
    if named is None or named.of == 1:
        return None
    no, of = file.integer("split.no"), file.integer("split.count")
    if of is None:
        return "is one of several parts by its name, and not by its header", "split.count"
    if of != named.of:
        return f"says that it is one of {of:,} parts", "split.count"
    if no != number - 1:
        return f"says that it is part {(no or 0) + 1:,}", "split.no"
    return None


def is_projector_name(path: str) -> bool:
    """`mmproj-F16.gguf`, `model.mmproj-q8_0.gguf`, `llava-v1.5-mmproj-f16.gguf`."""
    return "mmproj" in path.rpartition("/")[2].lower()


def vocabulary_of(repository: Repository, file: GgufFile) -> Mapping[bytes, int]:
    """Token to id; worked out once for all files that share a vocabulary. Of equal tokens the last wins."""
    tokens = file.tokens
    if tokens is None:
        return {}
    key = ("gguf vocabulary", str(id(tokens)))
    return repository.remember(key, lambda: {token: number for number, token in enumerate(tokens.strings)})
