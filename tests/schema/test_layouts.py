"""The files of sentence-transformers and diffusers, and `.eval_results/`."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, strategies as st

from repokit.schema.diffusers import Component, ComponentConfig, ModelIndex, components
from repokit.schema.document import problems
from repokit.schema.eval_results import EvalResults
from repokit.schema.sentence_transformers import (
    CONFIG_FILES,
    WEIGHTED,
    DenseSettings,
    ModelSettings,
    Modules,
    PoolingSettings,
    TransformerSettings,
    is_of_library,
)

MODULE = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
POOLING = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True, "include_prompt": True}
PIPELINE = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.42.1",
    "_name_or_path": "example/base",
    "vae": ["diffusers", "AutoencoderKL"],
    "unet": ["pipeline_code", "OwnUNet"],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "safety_checker": [None, None],
    "requires_safety_checker": False,
    "text_encoder_out_layers": [10, 20, 30],
    "boundary_ratio": 0.9,
}
RESULT = {"dataset": {"id": "cais/hle", "task_id": "hle"}, "value": 22.1}

LEGAL = [
    (Modules, [MODULE | {"idx": 0, "path": "", "kwargs": ["task"]}, MODULE]),
    (Modules, [{"name": "0", "path": "", "type": "own_code.Encoder"}]),
    (Modules, []),
    (ModelSettings, {"__version__": {"pytorch": "2.13.0"}, "prompts": {"query": "q: "}, "similarity_fn_name": None}),
    (TransformerSettings, {"max_seq_length": 512, "do_lower_case": False, "modality_config": {"text": {}}}),
    (PoolingSettings, POOLING),
    (PoolingSettings, {"embedding_dimension": 384, "pooling_mode": ["cls", "mean"]}),
    (DenseSettings, {"in_features": 8, "out_features": 4, "bias": True, "activation_function": "torch.nn.Tanh"}),
    (ModelIndex, PIPELINE),
    (ModelIndex, {"_class_name": ["pipeline", "OwnPipeline"], "image_encoder": None}),
    (ComponentConfig, {"_class_name": "AutoencoderKL", "block_out_channels": [128, 256], "act_fn": "silu"}),
    (EvalResults, [RESULT]),
    (EvalResults, [RESULT | {"date": "2026-01-15", "source": {"url": "https://example.com"}, "notes": "With tools"}]),
    (EvalResults, [RESULT | {"date": dt.date(2026, 1, 15), "verifyToken": "token", "value": 3}]),
    (EvalResults, []),
]


@pytest.mark.parametrize(("model", "raw"), LEGAL, ids=lambda value: getattr(value, "__name__", ""))
def test_legal_document(model, raw):
    assert problems(model, raw) == ()


WRONG = [
    (Modules, {"0": MODULE}, ""),
    (Modules, [MODULE | {"path": None}], "/0/path"),
    (Modules, [MODULE | {"idx": "1"}], "/0/idx"),
    (ModelSettings, {"prompts": {"query": None}}, "/prompts/query"),
    (TransformerSettings, {"max_seq_length": "512"}, "/max_seq_length"),
    (PoolingSettings, POOLING | {"pooling_mode_cls_token": 1}, "/pooling_mode_cls_token"),
    (DenseSettings, {"in_features": 8.0}, "/in_features"),
    (ModelIndex, PIPELINE | {"_diffusers_version": 0.42}, "/_diffusers_version"),
    (ModelIndex, PIPELINE | {"vae": ["diffusers"]}, "/vae"),
    (ModelIndex, PIPELINE | {"vae": ["diffusers", None]}, "/vae"),
    (ModelIndex, [PIPELINE], ""),
    (ComponentConfig, {"_class_name": 5}, "/_class_name"),
    (EvalResults, RESULT, ""),
    (EvalResults, [RESULT | {"value": None}], "/0/value"),
    (EvalResults, [RESULT | {"date": 2026}], "/0/date"),
    (EvalResults, [RESULT, RESULT | {"source": {"url": 5}}], "/1/source/url"),
]


@pytest.mark.parametrize(("model", "raw", "place"), WRONG, ids=[f"{m.__name__}{p}" for m, _, p in WRONG])
def test_wrong_value_is_found_at_its_place(model, raw, place):
    assert [problem.pointer for problem in problems(model, raw)] == [place]


@pytest.mark.parametrize("key", ["name", "path", "type"])
def test_sentence_transformers_needs_these_keys_of_a_module(key):
    (problem,) = problems(Modules, [{name: MODULE[name] for name in MODULE if name != key}])
    assert (problem.pointer, problem.missing) == ("/0", key)


@pytest.mark.parametrize(
    ("raw", "place", "key"),
    [
        ({"value": 1}, "/0", "dataset"),
        ({"dataset": RESULT["dataset"]}, "/0", "value"),
        ({"dataset": {"id": "cais/hle"}, "value": 1}, "/0/dataset", "task_id"),
        (RESULT | {"source": {"name": "Model card"}}, "/0/source", "url"),
    ],
)
def test_the_hub_needs_these_keys_of_a_result(raw, place, key):
    (problem,) = problems(EvalResults, [raw])
    assert (problem.pointer, problem.missing) == (place, key)


def test_malformed_part_is_told_in_words():
    (problem,) = problems(ModelIndex, {"vae": ["diffusers"]})
    assert problem.message == "must be [library, class] or [null, null]"


def test_every_wrong_part_is_a_problem():
    raw = PIPELINE | {"vae": ["diffusers"], "unet": [None], "_class_name": 5}
    assert {problem.pointer for problem in problems(ModelIndex, raw)} == {"/vae", "/unet", "/_class_name"}


def test_parts_of_a_pipeline():
    assert components(PIPELINE) == (
        Component("vae", "diffusers", "AutoencoderKL"),
        Component("unet", "pipeline_code", "OwnUNet"),
        Component("scheduler", "diffusers", "PNDMScheduler"),
        Component("text_encoder", "transformers", "CLIPTextModel"),
        Component("safety_checker", None, None),
    )


@given(
    st.dictionaries(
        st.text("abc/~", max_size=5),
        st.none() | st.integers() | st.lists(st.none() | st.text(max_size=3) | st.integers()),
    )
)
def test_any_list_of_parts_is_read_or_a_problem(raw):
    known = {part.name for part in components(raw)}
    listed = {
        name for name, value in raw.items() if isinstance(value, list) and value and not isinstance(value[0], int)
    }
    wrong = {problem.pointer.replace("~1", "/").replace("~0", "~")[1:] for problem in problems(ModelIndex, raw)}
    assert listed - known == wrong


def test_classes_of_the_library():
    assert is_of_library("sentence_transformers.sentence_transformer.modules.pooling.Pooling")
    assert not is_of_library("modeling_own.Pooling")


def test_a_module_with_weights_has_a_config_unless_it_is_an_embedding():
    assert {"SparseStaticEmbedding", "StaticEmbedding"} == WEIGHTED - CONFIG_FILES.keys()
