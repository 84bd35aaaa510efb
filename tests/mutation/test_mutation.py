"""The mutation score: of the ways to spoil a repository that its users would notice, how many the linter flags.

Mutants (mutants.py): every file of a repository deleted, emptied, cut, renamed and misspelt; every key of every JSON
document, at every level, deleted, renamed, set to null, given another type and other values of its own; every tensor
deleted, renamed, reshaped, cast, stored twice; every entry of an index; of a tokenizer a sample of vocabulary, merges
and added tokens, and every key of the rest; every tag and every text of a chat template. Of every base of the examples,
and of oracle repositories of 21 architectures and two adapters of them (subjects.py).

A mutant *counts* when transformers, tokenizers, peft or the template engine shows of it what it does not show of the
original (oracle.py): an exception; missing, unexpected or mismatched keys; other logits; other token ids, texts or
renderings; another beginning or end of a generation. Six quantizations that nothing here can load are held against what
their loaders read: parameters and tensors; the rest of them as plain weights.

It is *flagged* when the linter has an error or a warning for it that it does not have for the original. Two scores:
`plain`, of all that count; and `of defects`, without those survivors that are another legitimate model (scores.py says
when one is): rms_norm_eps 2e-06 in the place of 1e-06 is a model that somebody may have trained, and no linter can know
that it is not this one. A third holds the survivors against the manifest of a build, as in a directory that
`repokit build` made.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from mutants import Mutant, mutants
from oracle import Observer
from scores import report, score
from subjects import Subject, subjects
from verdicts import BROKEN, Kept, Verdict, verdicts

from repokit.linter.examples import BASES
from repokit.linter.rules.misnamed import MANIFEST, manifest_of
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

# What CI looks at: mutants of each of these, drawn with a fixed seed.
SAMPLED = ("base:single", "base:sharded", "base:lora", "base:fp8", "base:pack-quantized", "base:gguf")
SAMPLED_ORACLES = ("oracle:bert", "oracle:deepseek_v3", "oracle:gpt2", "oracle:llava", "oracle:vit", "oracle:whisper")
OF_EACH = 25

# Per cent. What is measured lies a little above: a change that makes the linter blinder is to fail.
SAMPLE_FLOOR = 95.0
FLOORS = (94.0, 97.0)  # plain and of defects, of the whole matrix
MANIFEST_FLOOR = 97.0


@pytest.fixture(scope="module")
def every_subject(models: Path) -> dict[str, Subject]:
    return subjects(models)


def judged(subject: Subject, chosen: list[Mutant], kept: Kept) -> list[Verdict]:
    seen = kept.load(subject.name)
    found = list(verdicts(subject, chosen, seen))
    kept.save(subject.name, seen)
    return found


@pytest.mark.oracle
@pytest.mark.usefixtures("quiet")
def test_a_sample_of_mutants_is_flagged(every_subject, tmp_path):
    found = []
    for name in (*SAMPLED, *SAMPLED_ORACLES):
        subject = every_subject[name]
        drawn = random.Random(name).sample(list(subject.mutants()), OF_EACH)
        found += judged(subject, drawn, Kept(tmp_path))
    assert score(found).of_defects >= SAMPLE_FLOOR, report(found)
    assert BROKEN == []


@pytest.mark.oracle
@pytest.mark.full
@pytest.mark.usefixtures("quiet")
def test_the_whole_matrix(every_subject, cache_folder):
    kept, found = Kept(cache_folder), []
    for subject in every_subject.values():
        found += judged(subject, list(subject.mutants()), kept)
    if path := os.environ.get("REPOKIT_MUTATION_REPORT"):
        Path(path).write_text(report(found) + "\n")
    assert (score(found).plain >= FLOORS[0], score(found).of_defects >= FLOORS[1]) == (True, True), report(found)
    assert BROKEN == []
    assert 100 * (1 - len(unseen(found, every_subject)) / len(found)) >= MANIFEST_FLOOR


def unseen(found: list[Verdict], every_subject: dict[str, Subject]) -> list[Verdict]:
    """The survivors that are not seen in a directory with the manifest of its build either."""
    from repokit.linter.rules.misnamed import ChangedSinceBuild

    left = []
    for verdict in found:
        if verdict.finding is None:
            files = dict(every_subject[verdict.subject].files)
            files = {**verdict.mutant.applied(files), MANIFEST: manifest_of(files)}
            with Repository(Memory(files)) as repository:
                if not list(ChangedSinceBuild().check(repository)):
                    left.append(verdict)
    return left


@pytest.mark.oracle
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["base:single", "base:gguf", "oracle:vit"])
def test_a_repository_does_not_differ_from_itself(every_subject, name):
    subject = every_subject[name]
    first, second = Observer(subject), Observer(subject)
    assert first.seen(subject.files) == second.seen(subject.files)


@pytest.mark.oracle
@pytest.mark.usefixtures("quiet")
def test_one_value_of_one_tensor_is_seen(every_subject):
    subject = every_subject["base:single"]
    weights = bytearray(subject.files["model.safetensors"])
    weights[-2] ^= 1
    assert Observer(subject).differs({**subject.files, "model.safetensors": bytes(weights)})


@pytest.mark.oracle
@pytest.mark.usefixtures("quiet")
def test_a_card_is_read_by_no_library(every_subject):
    subject = every_subject["base:single"]
    assert not Observer(subject).differs({**subject.files, "README.md": b"# Another\n"})


@pytest.mark.parametrize("base", BASES)
def test_every_file_is_deleted(base):
    files = BASES[base]()
    deleted = {mutant.path for mutant in mutants(files) if mutant.operation == "delete file"}
    assert deleted == files.keys()


@pytest.mark.parametrize("base", ["single", "lora", "gptq"])
def test_no_mutant_is_the_original(base):
    files = dict(BASES[base]())
    assert all(mutant.applied(files) != files for mutant in mutants(files))


def test_no_two_mutants_have_one_title():
    titles = [mutant.title for mutant in mutants(BASES["sharded"]())]
    assert len(set(titles)) == len(titles)


def test_a_variation_is_mutated_where_it_varies():
    single, tied = BASES["single"](), BASES["tied"]()
    assert {mutant.path for mutant in mutants(tied, single)} == {"config.json", "model.safetensors"}
