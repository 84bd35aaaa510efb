"""Safe fixes against transformers itself: what it reads is the same afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.linter.examples import DELETE, Example

transformers = pytest.importorskip("transformers", reason="the oracle of this file is not installed")
pytestmark = pytest.mark.oracle

CONFIG = "config.json"
TOKENIZER = "tokenizer_config.json"
TEXT = "the <s> as er</s> us <|im_end|>\n y"
FACTORS = st.floats(1, 8).map(lambda number: round(number, 2))
BLOCKS = st.one_of(
    st.fixed_dictionaries({"rope_type": st.just("default"), "rope_theta": st.just(500000.0)}),
    st.fixed_dictionaries(
        {"rope_type": st.just("linear"), "rope_theta": FACTORS.map(lambda n: n * 1e4), "factor": FACTORS}
    ),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("yarn"),
            "rope_theta": st.just(10000.0),
            "factor": FACTORS,
            "original_max_position_embeddings": st.just(32),
        }
    ),
)


def written(overlay, folder: Path) -> Path:
    for path in overlay.entries():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(overlay.read(path))
    return folder


def read(folder: Path) -> dict[str, object]:
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    config["rope_parameters"].pop("type", None)  # the older name of rope_type, which stays beside it
    return {key: value for key, value in config.items() if key != "_name_or_path"}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BLOCKS)
def test_the_older_spelling_of_a_rotary_embedding_says_the_same(mend, tmp_path_factory, block):
    change = {CONFIG: {"rope_parameters": block}}
    before = written(Example("", change).source(), tmp_path_factory.mktemp("before"))
    found = mend("CFG205", change)
    assert found.changed == {CONFIG}
    assert read(written(found.overlay, tmp_path_factory.mktemp("after"))) == read(before)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("TOK302", {"tokenizer_class": "TokenizersBackend"}),
        ("TOK301", {"extra_special_tokens": ["<|im_start|>", "<new>"]}),
        ("TOK116", {"pad_token": "<pad>", "mask_token": {"__type": "AddedToken", "content": "<unk>"}}),
    ],
)
def test_a_tokenizer_gives_the_same_ids(mend, tmp_path, code, change):
    before = written(Example("", {TOKENIZER: change}).source(), tmp_path / "before")
    after = written(mend(code, {TOKENIZER: change}).overlay, tmp_path / "after")
    one, other = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (before, after))
    assert (one(TEXT).input_ids, one.all_special_tokens) == (other(TEXT).input_ids, other.all_special_tokens)


def test_a_token_that_stops_the_load_loads(mend, tmp_path):
    change = {TOKENIZER: {"pad_token": {"content": "<pad>", "lstrip": False}}}
    after = written(mend("TOK116", change).overlay, tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(after).pad_token == "<pad>"


def test_a_generation_config_that_could_not_be_saved_can_be(mend, tmp_path):
    change = {"generation_config.json": {"temperature": 0.9, "top_p": 0.6}}
    after = written(mend("GEN201", change).overlay, tmp_path / "after")
    transformers.GenerationConfig.from_pretrained(after).save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "generation_config.json").read_text())["temperature"] == 0.9


def test_a_config_with_infinity_reads_the_same(mend, tmp_path):
    change = {CONFIG: lambda text: text.replace(b"{", b'{"time_limit": [0.0, Infinity], ', 1)}
    before = written(Example("", change).source(), tmp_path / "before")
    assert read(written(mend("FIL207", change).overlay, tmp_path / "after")) == read(before)


def test_a_class_is_found_again(mend, tmp_path):
    after = written(mend("CFG101", {CONFIG: {"model_type": DELETE}}).overlay, tmp_path)
    assert type(transformers.AutoConfig.from_pretrained(after)).__name__ == "LlamaConfig"
