"""GGF: GGUF files, their metadata, and the parts of split ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.linter.examples import Example
from repokit.linter.examples_gguf import (
    MODEL,
    Typed,
    gguf,
    gguf_bytes,
    gguf_edited,
    in_parts,
    part,
    split,
    tensors,
)
from repokit.linter.finding import Finding, Severity
from repokit.linter.rule import Reads, Rule
from repokit.linter.rules.card import with_lines
from repokit.printable import count, printable
from repokit.repo.card import README
from repokit.repo.gguf import PIECE, QUANTISATION, GgufFile, contradiction, missing_parts, part_name

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

SPLIT_AGAIN: Final = "split the whole file again with llama-gguf-split"
CONVERT_AGAIN: Final = "convert the original model again"
MATRIX: Final = gguf_bytes(
    {"general.type": "imatrix", "imatrix.chunk_count": 8}, {"blk.0.attn_q.weight.in_sum2": ((32, 1), 0)}
)
ADAPTER: Final = gguf_bytes(
    {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 8.0},
    {"blk.0.attn_q.weight.lora_a": ((32, 4), 0), "blk.0.attn_q.weight.lora_b": ((4, 32), 0)},
)


class MissingGgufArchitecture(Rule):
    """A GGUF file does not say of which architecture it is.

    llama.cpp and everything built on it stop: they choose the code that runs the model by `general.architecture`.
    """

    code = "GGF101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("the key was lost in an edit", {MODEL: gguf_edited({"general.architecture": None})}, "gguf"),
        Example("a header without any metadata", {MODEL: gguf_bytes({}, {})}, "gguf"),
    )
    good = (
        Example("later parts have no metadata", in_parts(3), "gguf"),
        Example("an importance matrix", {"imatrix.gguf": MATRIX}, "gguf"),
        Example(
            "tensors of stable-diffusion.cpp, which needs no metadata",
            {MODEL: gguf_bytes({}, {"model.diffusion_model.img_in.weight": ((32, 32), 0)})},
            "gguf",
        ),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in repository.gguf.files:
            beside = file.is_later_part or file.is_matrix or is_of_another_program(file)
            if "general.architecture" not in file and not beside:
                yield self.finding(file.path, "has no general.architecture", hint=CONVERT_AGAIN)


class MistypedGgufKey(Rule):
    """A value in the metadata of a GGUF file has another type than the one that llama.cpp asks for.

    It does not convert: loading stops with "wrong type", or with an assertion.
    """

    code = "GGF102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example("a vocabulary that is one text", {MODEL: gguf_edited({"tokenizer.ggml.tokens": "a b c"})}, "gguf"),
        Example("a signed id", {MODEL: gguf_edited({"tokenizer.ggml.eos_token_id": Typed("i32", 4)})}, "gguf"),
        Example("a number of blocks as a float", {MODEL: gguf_edited({"llama.block_count": 1.0})}, "gguf"),
    )
    good = (Example("keys of someone's own", {MODEL: gguf_edited({"me.block_count": "one"})}, "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for file in repository.gguf.files:
            for key, kinds in known_types(file).items():
                entry = file.header.metadata.get(key)
                kind = None if entry is None else type_of(file, key)
                if kind is not None and kind not in kinds:
                    yield self.finding(file.path, f"is {kind}, not {kinds[0]}", place=key, hint=CONVERT_AGAIN)


def is_of_another_program(file: GgufFile) -> bool:
    """Whether it has tensors, and none of a name of llama.cpp: those of stable-diffusion.cpp have no metadata."""
    names = [tensor.name for tensor in file.header.tensors]
    return bool(names) and not any(OF_LLAMA_CPP.match(name) for name in names) and not file.header.metadata


OF_LLAMA_CPP: Final = re.compile(r"(?:(?:enc\.|dec\.)?blk\.\d|token_embd\.|output|v\.|mm\.)")

# llama.cpp src/llama-model-loader.cpp GKV, src/llama-vocab.cpp and tools/gguf-split.
TYPES: Final = {
    "general.architecture": ("string",),
    "tokenizer.ggml.model": ("string",),
    "tokenizer.ggml.pre": ("string",),
    "tokenizer.ggml.tokens": ("array of string",),
    "tokenizer.ggml.merges": ("array of string",),
    "tokenizer.ggml.scores": ("array of f32", "array of i32"),
    "tokenizer.ggml.token_type": ("array of i32",),
    "tokenizer.ggml.add_bos_token": ("bool",),
    "tokenizer.ggml.add_eos_token": ("bool",),
    "tokenizer.ggml.add_space_prefix": ("bool",),
    "tokenizer.chat_template": ("string",),
    "split.no": ("u16",),
    "split.count": ("u16",),
    "split.tensors.count": ("i32",),
}
ID_KEY: Final = re.compile(r"tokenizer\.ggml\.[a-z_]+_token_id")
SIZES: Final = ("block_count", "context_length", "embedding_length")
BY_LAYER: Final = ("feed_forward_length", "attention.head_count", "attention.head_count_kv")  # one, or one a layer


def known_types(file: GgufFile) -> dict[str, tuple[str, ...]]:
    """The types that llama.cpp asks for, by key, for the keys that a file has."""
    ids = {key: ("u32",) for key in file.header.metadata if ID_KEY.fullmatch(key)}
    sizes = {f"{file.architecture}.{name}": ("u32",) for name in SIZES}
    layers = {f"{file.architecture}.{name}": ("u32", "array of u32", "array of i32") for name in BY_LAYER}
    return {**TYPES, **ids, **sizes, **layers}


def type_of(file: GgufFile, key: str) -> str:
    """`u32`, `array of string`."""
    array = file.array(key)
    return file.header.metadata[key].kind if array is None else f"array of {array.kind}"


class IncompleteSplit(Rule):
    """A part of a split GGUF file is not in the repository.

    llama.cpp opens the first part and stops at the one that is missing, after everything else was downloaded.
    """

    code = "GGF105"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.LISTING
    bad = (
        Example("the last part was not uploaded", {**in_parts(3), part(3, 3): None}, "gguf"),
        Example("only the second part", {MODEL: None, part(2): split(2)}, "gguf"),
    )
    good = (
        Example("every part", in_parts(2), "gguf"),
        Example("every part, in a folder of its own", {f"F32/{part(1)}": split(1), f"F32/{part(2)}": split(2)}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for there in repository.gguf.splits.values():
            first = there[min(there)]
            if (missing := missing_parts(there)) and (named := part_name(first)):
                message = f"is one of {named.of:,} parts, of which {count(len(missing), 'is', 'are')} missing"
                hint = f"upload {printable(missing[0])}"
                yield self.finding(first, message, names=missing, hint=hint)


class MisnamedSplit(Rule):
    """A part of a split GGUF file does not have the name that loaders look for.

    They find the other parts by `NAME-00001-of-00003.gguf`. What was cut by `split` has to be put together by hand, and
    the Hub shows nothing of it.
    """

    code = "GGF106"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "a file that was cut into pieces",
            {MODEL: None, f"{MODEL}.part1of2": gguf()[MODEL][:20_000], f"{MODEL}.part2of2": gguf()[MODEL][20_000:]},
            "gguf",
        ),
        Example("a part that was renamed", {MODEL: split(1, 3)}, "gguf"),
    )
    good = (
        Example("as llama-gguf-split names them", in_parts(2), "gguf"),
        Example("one part that is everything", {MODEL: None, part(1, 1): gguf()[MODEL]}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        if pieces := [path for path in repository.files if PIECE.search(path)]:
            message = "is a piece of a GGUF file, which no program loads"
            yield self.finding(pieces[0], message, names=pieces, hint=f"{SPLIT_AGAIN}, or upload it whole")
        for file in repository.gguf.files:
            said = file.integer("split.count") or 0
            if said > 1 and file.part is None:
                wanted = f"...-{(file.integer('split.no') or 0) + 1:05d}-of-{said:05d}.gguf"
                message = f"is one of {said:,} parts by its header, and not by its name"
                yield self.finding(file.path, message, place="split.count", hint=f"rename it to {wanted}")


class DisagreeingSplit(Rule):
    """The header of a part contradicts its name, or the other parts.

    llama.cpp refuses the set: "illegal split file", "invalid split count", a tensor that is missing or twice there.
    """

    code = "GGF107"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the first part says that it is the second",
            {**in_parts(2), part(1): split(1, metadata_of={"split.no": Typed("u16", 1)})},
            "gguf",
        ),
        Example(
            "a header that counts three parts",
            {**in_parts(2), part(1): split(1, metadata_of={"split.count": Typed("u16", 3)})},
            "gguf",
        ),
        Example("a part of another model", {**in_parts(2), part(2): split(2, 3) + bytes(0)}, "gguf"),
        Example(
            "a tensor in two parts",
            {**in_parts(2), part(2): gguf_edited(add={"token_embd.weight": tensors()["token_embd.weight"]})(split(2))},
            "gguf",
        ),
        Example("names alone make no parts", {MODEL: None, part(1): gguf()[MODEL], part(2): gguf()[MODEL]}, "gguf"),
    )
    good = (Example("parts that agree", in_parts(3), "gguf"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for there in repository.gguf.splits.values():
            files = {number: repository.gguf.file(there[number]) for number in sorted(there)}
            faults = [(file, fault) for number, file in files.items() if (fault := contradiction(file, number))]
            for file, (message, place) in faults:
                yield self.finding(file.path, message, place=place, hint=SPLIT_AGAIN)
            if not faults and not missing_parts(there):
                yield from self._together(list(files.values()))

    def _together(self, files: list[GgufFile]) -> Iterator[Finding]:
        names = [tensor.name for file in files for tensor in file.header.tensors]
        said, head = files[0].integer("split.tensors.count"), files[0]
        if len(set(names)) < len(names):
            seen: set[str] = set()
            twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
            message = f"and the other parts hold {count(len(twice), 'tensor')} twice"
            yield self.finding(head.path, message, names=twice, place=twice[0], hint=SPLIT_AGAIN)
        elif said is not None and said != len(names):
            message = f"says {said:,} tensors; the parts hold {len(names):,}"
            yield self.finding(head.path, message, place="split.tensors.count", hint=SPLIT_AGAIN)


class UnlistedGgufFile(Rule):
    """The card names a GGUF file that the repository does not have.

    Whoever copies the command gets "404 Not Found".
    """

    code = "GGF205"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example(
            "a quantisation that was not uploaded",
            {README: with_lines(body="\n| example-Q8_0.gguf | 8 bits |\n")},
            "gguf",
        ),
    )
    good = (
        Example("the name of a split file", {**in_parts(2), README: with_lines(body=f"\n`{MODEL}`\n")}, "gguf"),
        Example("another model", {README: with_lines(body="\n`llama-cli -m other-model-Q8_0.gguf`\n")}, "gguf"),
        Example("a placeholder", {README: with_lines(body="\n`example-<type>.gguf`, `example-*.gguf`\n")}, "gguf"),
        Example(
            "how it was made",
            {README: with_lines(body="\n`llama-quantize example-F16.gguf example-Q8_0.gguf Q8_0`\n")},
            "gguf",
        ),
        Example("an adapter and a matrix", {"lora.gguf": ADAPTER, "imatrix.gguf": MATRIX}, "gguf"),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        card, paths = repository.card, repository.gguf.paths
        if card is None or not paths:
            return
        there = {plain_name(path) for path in paths}
        families = {family(name) for name in there} - {None}
        lines = (line for line in card.body.splitlines() if not MADE.search(line))
        named = dict.fromkeys(found[0] for line in lines for found in NAMED.finditer(line))
        lacking = [name for name in named if plain_name(name) not in there and family(plain_name(name)) in families]
        if lacking:
            line = card.body_line + card.body.count("\n", 0, card.body.index(lacking[0]))
            message = f"names {count(len(lacking), 'GGUF file')} that the repository does not have"
            hint = "upload it, or take it out of the card"
            yield self.finding(README, message, names=lacking, place=f"line {line}", hint=hint)


NAMED: Final = re.compile(r"(?<![\w*<>{}$/%-])[\w][\w.+-]*\.gguf\b(?![.\w*])")
MADE: Final = re.compile(r"quantize|convert|--outfile", re.IGNORECASE)  # files on the way to those that are there


def plain_name(path: str) -> str:
    """The name of a file without folders, ending and number of its part, in lower case."""
    found = part_name(path)
    return (path.removesuffix(".gguf") if found is None else found.stem).rpartition("/")[2].lower()


def family(name: str) -> str | None:
    """What stands before the quantisation; None where there is none."""
    found = QUANTISATION.search(name)
    return None if found is None else name[: found.start()]


RULES: Final = (
    MissingGgufArchitecture(),
    MistypedGgufKey(),
    IncompleteSplit(),
    MisnamedSplit(),
    DisagreeingSplit(),
    UnlistedGgufFile(),
)
