"""What looks in a text like a secret, or like a path of somebody's machine. What follows from it is the caller's."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

# What tokens look like: gitleaks' and TruffleHog's patterns, each with a fixed beginning, which `re` finds fast.
_PATTERNS: Final = (
    ("a Hugging Face token", re.compile(rb"\b(?:hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,})\b")),
    ("an AWS key", re.compile(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("a GitHub token", re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{82})\b")),
    ("an API key", re.compile(rb"\bsk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32,}")),
    ("a Google API key", re.compile(rb"\bAIza[A-Za-z0-9_-]{35}\b")),
    ("a Slack token", re.compile(rb"\bxox[abposr]-[A-Za-z0-9-]{20,}")),
    ("a Weights & Biases key", re.compile(rb"(?:wandb|WANDB)[\w .-]{0,16}(?:key|KEY)[ \"':=]{1,8}([0-9a-f]{40})\b")),
    # `verifyToken` in a model card is the Hub's signature under an evaluation, and public.
    ("a JSON web token", re.compile(rb"(?<!verifyToken: )\beyJ[\w-]{10,}\.eyJ[\w-]{6,}\.[\w-]{20,}")),
    ("a password in an address", re.compile(rb"://[^\s/:@\"']{1,64}:([^\s/:@\"']{6,64})@")),
    ("a private key", re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
)
# Words that stand where a secret would: `hf_xxxx`, `<token>`, `${TOKEN}`, `password`.
_PLACEHOLDER: Final = re.compile(rb"(?i)x{6}|\*{3}|\.{3}|[<>${}]|your|example|password|token|changeme|redacted|dummy")
_LEAST_ENTROPY: Final = 2.5  # bits a character; 34 random letters have more than 4, a word of nine letters 3


class Secret(NamedTuple):
    """Something that gives access.

    Attributes:
        what: `a GitHub token`.
        shown: Its first four characters, which is all that is ever printed of it.
        offset: In bytes, in the text.
    """

    what: str
    shown: str
    offset: int


def secrets(text: bytes) -> Iterator[Secret]:
    """Everything in a text that looks like a secret and is not the word for one."""
    for what, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            secret = match[pattern.groups]
            if what == "a private key" or not (_PLACEHOLDER.search(secret) or _entropy(secret) < _LEAST_ENTROPY):
                yield Secret(what, secret[:4].decode(errors="replace"), match.start(pattern.groups))


def _entropy(text: bytes) -> float:
    """Bits a character (Shannon)."""
    counts = Counter(text)
    return -sum(number / len(text) * math.log2(number / len(text)) for number in counts.values())


# ---------------------------------------------------------------- paths

# Below the folders that hold people's files, in a home folder, or on a drive.
_PERSONAL: Final = (
    r"(?:/(?:home|Users|root|mnt|data|workspace|tmp|content|kaggle|scratch|gpfs|opt|var|srv|fsx|nfs|media|lustre)/"
    r"|~/|file:/|\\\\|[A-Za-z]:[\\/])"
)
_BEGINNING: Final = re.compile(r"~?/|\.{1,2}/|[A-Za-z]:[/\\]|\\\\|file:")
_ABSOLUTE: Final = re.compile(rf"{_PERSONAL}[^\n]*")
_WITHIN: Final = re.compile(rf"(?<![\w./\\:-]){_PERSONAL}")


def is_personal_path(text: str) -> bool:
    """Whether a whole value is an absolute path of somebody's machine."""
    return _ABSOLUTE.fullmatch(text) is not None


def begins_as_path(text: str) -> bool:
    """Whether a value begins as paths do, relative ones too; no id on the Hub does."""
    return _BEGINNING.match(text) is not None


def has_personal_path(text: str) -> bool:
    """Whether one stands in a text: `--data=/home/me/x`. Prose has slashes too (and/or), and addresses have folders."""
    return _WITHIN.search(text) is not None
