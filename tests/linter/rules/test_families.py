"""Real families that do without what most have: the rule must stay silent."""

from __future__ import annotations

import pytest

from repokit.linter.engine import lint
from repokit.linter.examples import Example, edited
from repokit.repo.repository import Repository

FAMILIES = [
    (
        "TOK101",
        "ByT5 takes bytes as ids",
        {"tokenizer.json": None, "tokenizer_config.json": {"tokenizer_class": "ByT5Tokenizer"}},
    ),
    ("TOK101", "Canine takes characters as ids", {"tokenizer.json": None, "config.json": {"model_type": "canine"}}),
    ("WGT104", "EfficientNet counts stages", {"config.json": {"model_type": "efficientnet", "num_hidden_layers": 64}}),
    (
        "WGT104",
        "layers of remote code",
        {"config.json": {"auto_map": {"AutoModel": "m.M"}, "num_hidden_layers": 8}, "m.py": ""},
    ),
    (
        "WGT107",
        "an embedding model has no head",
        {"model.safetensors": edited(drop=("lm_head.weight",)), "modules.json": "[]"},
    ),
    ("WGT106", "CSM has codebooks in its embedding", {"config.json": {"model_type": "csm", "vocab_size": 7}}),
    (
        "PRC101",
        "mistral-common's tokenizer is the processor",
        {
            "config.json": {"architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {}},
            "tekken.json": "{}",
        },
    ),
    (
        "PRC103",
        "a model_type of tomorrow",
        {"config.json": {"model_type": "of_tomorrow"}, "preprocessor_config.json": '{"size": 8}'},
    ),
    ("FIL107", "kernels are shared libraries", {"build/kernels.so": b"\x7fELF"}),
    ("FIL101", "a state-space model without an upper limit", {"config.json": '{"time_step_limit": [0.0, Infinity]}'}),
]


@pytest.mark.parametrize(("code", "title", "change"), FAMILIES, ids=[title for _, title, _ in FAMILIES])
def test_the_rule_is_silent(code, title, change):
    report = lint(Repository(Example(title, change).source()))
    assert code not in {finding.code for finding in report.findings}
    assert not report.coverage.broken
