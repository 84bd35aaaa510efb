"""SEC: what must not leave the house."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from repokit.formats.leaks import Secret, is_personal_path, secrets
from repokit.linter.examples import Example, safetensors, tensors_of
from repokit.linter.finding import Finding, Severity
from repokit.linter.fix import DropJson, Fix, Safety
from repokit.linter.rule import Reads, Rule
from repokit.printable import printable
from repokit.repo.card import flattened
from repokit.repo.config import CONFIG
from repokit.repo.source import Kind
from repokit.repo.weights import SINGLE

if TYPE_CHECKING:
    from repokit.repo.repository import Repository

# Assembled here, so that no scanner of this source finds one.
FAKE_TOKEN: Final = "hf" + "_ZkQwLmRtYpXvBnHdGfJsCaEuIoTyNbKaPq"
FAKE_KEY: Final = "AK" + "IAQWERTYUIOPASDFGH"


class LeakedSecret(Rule):
    """A file holds an access token, a key or a password.

    What is pushed is public at once, and copied within minutes: a secret that was published must be revoked, deleting
    the file does not help.
    """

    code = "SEC101"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.TEXT
    bad = (
        Example("a token in the arguments of a run", {"training_params.json": {"token": FAKE_TOKEN}}),
        Example("a key in the card", {"README.md": lambda card: card + FAKE_KEY.encode() + b"\n"}),
        Example("a password in an address", {"notes.txt": "https://me:" + "hunter2x9@example.org/x.git\n"}),
    )
    good = (
        Example("a placeholder", {"README.md": lambda card: card + b"HF_TOKEN=hf_" + b"x" * 34 + b"\n"}),
        Example(
            "the Hub's signature under an evaluation",
            {
                "README.md": lambda card: (
                    card + b"verifyToken: eyJ" + b"hbGciOiJFZERTQSJ9.eyJoYXNoIjoiYWJj." + b"Zk3Qw8Lm" * 4
                )
            },
        ),
        Example("an address without a password", {"notes.txt": "https://example.org/user:name@x\n"}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path, text in texts(repository):
            for secret in secrets(text):
                line = text.count(b"\n", 0, secret.offset) + 1
                yield self.finding(path, held(secret), place=f"line {line}", hint=REVOKE)


REVOKE: Final = "revoke it where it was issued, then take it out"


def held(secret: Secret) -> str:
    """What is said of it."""
    return f"holds {secret.what}: {printable(secret.shown)}…"


class SecretInMetadata(Rule):
    """The metadata of a weight file holds an access token, a key or a password.

    Trainers write their arguments there. What is pushed is public at once: a secret that was published must be revoked.
    """

    code = "SEC102"
    severity = Severity.ERROR
    since = "0.1"
    reads = Reads.HEADERS
    bad = (
        Example(
            "the arguments of a run",
            {SINGLE: lambda content: safetensors(tensors_of(content), {"format": "pt", "args": FAKE_TOKEN})},
        ),
    )
    good = (Example("a format and nothing else"),)

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in repository.weights.safetensors:
            for key, value in (repository.header(path).metadata or {}).items():
                for secret in secrets(value.encode(errors="replace")):
                    yield self.finding(path, held(secret), place=f"__metadata__ {key}", hint=REVOKE)


class LocalPath(Rule):
    """A value is a path on the machine that wrote the file.

    It tells strangers the names of people, projects and servers, and no one else has what lies there.
    """

    code = "SEC201"
    severity = Severity.WARNING
    since = "0.1"
    reads = Reads.TEXT
    fixes = Safety.SAFE
    bad = (
        Example("where the base was loaded from", {CONFIG: {"_name_or_path": "/home/alice/runs/checkpoint-900"}}),
        Example("where the tokenizer was", {"tokenizer_config.json": {"name_or_path": "./out/tokenizer"}}),
        Example("on Windows", {"generation_config.json": {"model_file": "C:\\Users\\alice\\model"}}),
    )
    good = (
        Example("an id of the Hub", {CONFIG: {"_name_or_path": "example/base"}}),
        Example("an address", {CONFIG: {"homepage": "https://example.org/home/x"}}),
    )

    def check(self, repository: Repository) -> Iterator[Finding]:
        for path in CONFIGS:
            document = repository.document(path)
            values = () if document is None else flattened(document.raw)
            leaks = {pointer: value for pointer, value in values if isinstance(value, str) and is_leak(pointer, value)}
            if leaks:
                place, value = next(iter(leaks.items()))
                message = f"is a path of the machine that wrote it: {printable(value, 80)}"
                yield self.finding(path, message, place=place, names=tuple(leaks), hint="delete it")

    def fix(self, repository: Repository, finding: Finding) -> Fix | None:  # noqa: ARG002 - the finding says it all
        """Only keys in which loaders leave a note of where something was: nothing is looked up by them."""
        if any(pointer.rpartition("/")[2] not in _NOTES for pointer in finding.names):
            return None
        keys = " and ".join(pointer.removeprefix("/") for pointer in finding.names)
        return Fix(f"remove {printable(keys)}", tuple(DropJson(finding.path, pointer) for pointer in finding.names))


RULES: Final = (LeakedSecret(), SecretInMetadata(), LocalPath())

CONFIGS: Final = (
    CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
    "adapter_config.json",
)

_RELATIVE: Final = re.compile(r"(?:/|\.{1,2}/|~)[^\n]*")
_PATH_KEY: Final = re.compile(r"(?:_path|_dir|_file)$")
# transformers notes in them where a config or tokenizer was loaded from, and where its files lay then.
_NOTES: Final = frozenset(
    {"_name_or_path", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file", "merges_file"}
)
# Paths that other rules speak of as errors.
_OF_OTHERS: Final = re.compile(r"/base_model_name_or_path$|/auto_map/")


def is_leak(pointer: str, value: str) -> bool:
    """Whether a value is a path, which under a key that is for paths may also be a relative one."""
    if _OF_OTHERS.search(pointer):
        return False
    return is_personal_path(value) or bool(_PATH_KEY.search(pointer) and _RELATIVE.fullmatch(value))


MOST_TEXT: Final = 16 * 1024 * 1024  # larger files are data sets and vocabularies
# Written by machines, large, and made of words: a vocabulary has every prefix below in it.
NO_TEXTS: Final = re.compile(r"(?:^|/)(?:tokenizer|vocab|added_tokens)\.json$|\.index(?:\.[^/.]+)?\.json$|merges\.txt$")
BINARY: Final = re.compile(
    r"\.(?:safetensors|bin|pt|pth|ckpt|pkl|gguf|onnx|onnx_data|h5|msgpack|npz|npy|model|parquet|arrow|zip|gz|png|jpe?g"
    r"|gif|webp|wav|mp3|flac|mp4|pdf|tflite|mlmodel|ot)$"
)


def texts(repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Text files that people and trainers write."""
    for path, entry in repository.files.items():
        if entry.kind is Kind.FILE and entry.size <= MOST_TEXT and not (BINARY.search(path) or NO_TEXTS.search(path)):
            yield path, repository.glance(path) or b""
