from __future__ import annotations

import pytest

from repokit.rehearsal.card_rules import judged


@pytest.mark.parametrize(
    "front_matter",
    [
        "license: apache-2.0",
        "license: [mit, apache-2.0]",
        "language: en",
        "language: [en, de, nld, code, multilingual]",
        "base_model: meta-llama/Llama-3.1-8B",
        "base_model: [a/b, c/d]",
        "base_model: gpt2",
        "datasets: [HuggingFaceFW/fineweb]",
        "unknown_key: whatever",
        "model-index: [{name: m, results: [{task: {type: t}, dataset: {type: d, name: n}, metrics: []}]}]",
    ],
)
def test_a_card_that_the_hub_takes(front_matter):
    assert judged(_card(front_matter)).errors == []


@pytest.mark.parametrize(
    ("front_matter", "complaint"),
    [
        ("license: gpl-2.0-or-later", '"license" must be one of [apache-2.0, mit,'),
        ("license: [mit, foo-1.0]", '"license[1]" must be one of'),
        ("license:", '"license" must be'),
        ("language: jp", '"language" with value "jp"'),
        ("language: noinfo", '"language" with value "noinfo"'),
        ("language: zh-CN", '"language" with value "zh-CN"'),
        ("language:", '"language" with value "None"'),
        ("language: [en, no]", '"language[1]" with value "False"'),
        ("base_model: /home/me/llama", '"base_model" with value "/home/me/llama"'),
        ("base_model: ./llama", '"base_model"'),
        ("base_model: [a/b, ../c]", '"base_model[1]"'),
        ('datasets: ["/var/hf/images/"]', '"datasets[0]"'),
        ('datasets: ["librispeech 960h"]', '"datasets[0]"'),
        ("new_version: a/b/c", '"new_version"'),
        ("model-index: [{name: m}]", '"model-index[0].results" is required'),
        ("model-index: [{name: m, results: [{metric: {type: cos_sim}}]}]", '"model-index[0].results[0].metrics"'),
        ("license: [", "YAML error"),
        ("license: mit\nlicense: mit", "YAML error"),
    ],
)
def test_a_card_that_the_hub_refuses(front_matter, complaint):
    assert any(complaint in error for error in judged(_card(front_matter)).errors)


@pytest.mark.parametrize("content", ["", "# Model\n", "---\n---\n"])
def test_a_card_without_metadata_is_a_warning(content):
    report = judged(content)
    assert (report.errors, len(report.warnings)) == ([], 1)


def test_the_client_raises_what_the_hub_says(api):
    with pytest.raises(ValueError, match="must be an ISO 639"):
        api._validate_yaml(_card("language: noinfo"))


def test_the_client_warns_of_what_is_missing(api):
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        api._validate_yaml("# Model\n")


def _card(front_matter):
    return f"---\n{front_matter}\n---\n# Model\n"
