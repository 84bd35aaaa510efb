"""What is left for the rules about skeletons when rules with a closer view of the same tensors have spoken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from repokit.architectures.comparison import differing
from repokit.architectures.suggestions import claimed_by_others
from repokit.linter.rules import weights as weight_files
from repokit.linter.rules.composed import ConflictingTieFlags
from repokit.linter.rules.config import ImpossibleSize, IndivisibleHeads
from repokit.linter.rules.declared_parts import DRAFT_NAMES, MixedExpertLayouts
from repokit.linter.rules.expected_tensors import judgement
from repokit.linter.rules.field_values import OddRotaryHead, RefusedArchitecture
from repokit.linter.rules.files import WrongType
from repokit.linter.rules.quantization import ContradictedSkipList, IncompleteModule, UnlistedDraftModules
from repokit.linter.rules.quantization_scales import GroupSizeMismatch, ScaleMismatch
from repokit.linter.rules.weights_against_config import (
    EmbeddingRows,
    LabelCount,
    MissingExpert,
    MissingHead,
    MissingLayer,
)

if TYPE_CHECKING:
    from repokit.architectures.comparison import Misshapen
    from repokit.linter.finding import Finding
    from repokit.linter.rule import Rule
    from repokit.linter.rules.expected_tensors import Judgement
    from repokit.repo.repository import Repository


def verified(repository: Repository) -> Judgement | None:
    """The judgement of a verified skeleton, where config.json is one that can be judged by."""
    judged = judgement(repository)
    if judged is None or not judged.verified or judged.comparison.exact or is_impossible(repository):
        return None
    return None if judged.mistaken is not None else judged


def is_impossible(repository: Repository) -> bool:
    """Whether a rule says of config.json that no loader takes it: what follows from it is not worth telling."""
    return any(True for rule in OF_IMPOSSIBLE_CONFIGS for _ in rule.check(repository))


OF_IMPOSSIBLE_CONFIGS: Final[tuple[Rule, ...]] = (
    *(ImpossibleSize(), IndivisibleHeads(), WrongType()),
    *(RefusedArchitecture(), OddRotaryHead()),
)


# Rules with a closer view of the same tensors. What one of their findings names is theirs.
CLOSER: Final[tuple[Rule, ...]] = (
    weight_files.EmptyTensor(),
    weight_files.WrapperPrefix(),
    MissingLayer(),
    MissingExpert(),
    EmbeddingRows(),
    MissingHead(),
    LabelCount(),
    MixedExpertLayouts(),
    ConflictingTieFlags(),
    IncompleteModule(),
    ContradictedSkipList(),
    UnlistedDraftModules(),
    ScaleMismatch(),
    GroupSizeMismatch(),
)

# Heads that other programs put beside a model, which loaders of the model pass over by design: value heads of TRL and
# OpenRLHF, draft heads of Medusa, EAGLE and Hydra; ComfyUI's marker.
BESIDE: Final = re.compile(r"(?:^|\.)(?:v_head|value_head|reward_head|medusa_head|eagle|hydra_head|scaled_fp8)(?:\.|$)")
# What sentence-transformers and other users of the last layer alone do without.
HEADS: Final = re.compile(r"(?:^|\.)(?:pooler|lm_head|cls|classifier|score|qa_outputs|predictions)(?:\.|$)")
_NUMBERED: Final = re.compile(r"\.\d+\.")


def findings_of_closer_rules(repository: Repository) -> list[Finding]:
    """What those rules say of this repository."""
    return repository.remember(
        ("skeleton", "closer"), lambda: [finding for rule in CLOSER for finding in rule.check(repository)]
    )


def unclaimed(repository: Repository, names: Iterable[str]) -> list[str]:
    """The names that no closer rule has named, themselves or with a module that they are in."""
    findings = findings_of_closer_rules(repository)
    claimed = {name for finding in findings for name in (*finding.names, finding.place or "")}
    heads = any(finding.code in {MissingHead.code, ConflictingTieFlags.code} for finding in findings)
    return [name for name in names if not is_claimed(name, claimed) and not (heads and is_head(name))]


def is_claimed(name: str, claimed: set[str]) -> bool:
    """Whether a name, or a module around it, is among those claimed."""
    if name.endswith(("_blocks", "_scales")) and name.rpartition("_")[0] in claimed:  # of packed experts
        return True
    while name and name not in claimed:
        name = name.rpartition(".")[0]
    return bool(name)


def is_head(name: str) -> bool:
    """Whether a tensor stands outside of the layers under the name of a head."""
    return _NUMBERED.search(name) is None and HEADS.search(name) is not None


def missing_tensors(repository: Repository, judged: Judgement) -> list[str]:
    """Missing tensors that are left for this module's rules."""
    missing = judged.rest.missing
    if missing and repository.has("modules.json"):  # sentence-transformers loads the body alone
        missing = [name for name in missing if not is_head(name)]
    return unclaimed(repository, missing) if missing else []


def unexpected_tensors(repository: Repository, judged: Judgement) -> list[str]:
    """Unexpected tensors that are left for this module's rules."""
    heads = foreign_heads(judged)
    # A scalar is a counter or a flag of training, not something that was learnt.
    learnt = [name for name in judged.rest.unexpected if judged.held.get(name, (1,)) and not is_beside(name)]
    names = [name for name in learnt if name not in heads]
    return unclaimed(repository, names) if names else []


def is_beside(name: str) -> bool:
    """Whether a tensor is of a head or layer that loaders of the model alone pass over by design."""
    return BESIDE.search(name) is not None or DRAFT_NAMES.search(name) is not None


def foreign_heads(judged: Judgement) -> dict[str, str]:
    """Unexpected tensors outside of the layers that another class of the model type has: name -> class."""
    names = [name for name in judged.rest.unexpected if _NUMBERED.search(name) is None]
    return claimed_by_others(judged.skeleton, judged.config, names) if names else {}


def misshapen_tensors(repository: Repository, judged: Judgement) -> list[Misshapen]:
    """Misshapen tensors that are left for this module's rules.

    Where the embedding has another number of rows than the vocabulary, so has the head: one cause, told once.
    """
    wrong = judged.rest.misshapen
    if not wrong:
        return []
    left = set(unclaimed(repository, [one.name for one in wrong]))
    spoken = {
        (one.held[dimension], one.expected[dimension])
        for one in wrong
        if one.name not in left and len(one.held) == len(one.expected)
        for dimension in differing(one.held, one.expected)
    }
    return [one for one in wrong if one.name in left and not all_spoken(one, spoken)]


def all_spoken(wrong: Misshapen, spoken: set[tuple[int, int | None]]) -> bool:
    """Whether each size that is wrong is wrong in the same way in a tensor that a closer rule has named."""
    if len(wrong.held) != len(wrong.expected):
        return False
    dimensions = differing(wrong.held, wrong.expected)
    return all((wrong.held[dimension], wrong.expected[dimension]) in spoken for dimension in dimensions)
