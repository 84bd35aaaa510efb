"""Rows for token ids, added and cut off on request, and heads of their own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from repokit import api
from repokit.builder.checkpoints.stored import InFiles, Part, TensorAt
from repokit.builder.plan import Sources
from repokit.builder.reading import Reader
from repokit.builder.vocabulary import _at_the_end, resized
from repokit.builder.weights import Output, PlannedWeights
from repokit.errors import PlanError, RecipeError, Stopped
from repokit.operations import Filled
from repokit.schema.recipe import Recipe

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TIED = {"tie_word_embeddings": True}
# Ids 0 to 11, of 16 rows.
WORDS = [f"word{number}" for number in range(12)]
TOKENIZER = {
    "version": "1.0",
    "model": {"type": "WordLevel", "unk_token": "word0", "vocab": {word: number for number, word in enumerate(WORDS)}},
    "added_tokens": [],
}


def with_tokenizer(**more):
    return {
        "tokenizer.json": json.dumps({**TOKENIZER, **more}),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}),
    }


def rows(workshop, **vocabulary):
    """Name to shape and bytes after a build."""
    workshop.build(weights={"vocabulary": vocabulary})
    return {name: (shape, data) for name, (_, shape, data) in workshop.tensors().items()}


def config(workshop):
    return json.loads(workshop.read("config.json"))


# ------------------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize(
    ("vocabulary", "size"),
    [
        ({"size": 20}, 20),
        ({"pad_to_multiple_of": 12}, 24),
        ({"size": 17, "pad_to_multiple_of": 8}, 24),
        ({"pad_to_multiple_of": 8}, 16),
        ({"size": 16}, 16),
    ],
)
def test_rows_of_zeros_are_appended(workshop, vocabulary, size):
    workshop.checkpoint()
    found = rows(workshop, **vocabulary)
    for name in (EMBEDDING, HEAD):
        _, _, stored = workshop.model()[name]
        assert found[name] == ((size, 8), stored + bytes((size - 16) * 8 * 4))


def test_other_tensors_stay_as_they_are(workshop):
    workshop.checkpoint()
    found = rows(workshop, size=20)
    for name, (_, shape, data) in workshop.model().items():
        assert name in {EMBEDDING, HEAD} or found[name] == (shape, data)


def test_the_config_counts_the_new_rows(workshop):
    workshop.checkpoint()
    rows(workshop, size=20)
    assert config(workshop) == {**workshop.config, "vocab_size": 20}


def test_a_vocabulary_that_has_the_size_changes_nothing(workshop):
    root = workshop.checkpoint()
    rows(workshop, pad_to_multiple_of=16)
    assert workshop.read("config.json") == (root / "config.json").read_bytes()


def test_a_tied_head_is_the_embedding_still(workshop):
    tensors = {name: tensor for name, tensor in workshop.model().items() if name != HEAD}
    workshop.checkpoint(tensors, config=TIED)
    found = rows(workshop, size=20)
    assert (HEAD in found, found[EMBEDDING][0]) == (False, (20, 8))


def test_a_cast_and_rows_go_together(workshop):
    workshop.checkpoint()
    workshop.build(weights={"dtype": "bfloat16", "vocabulary": {"size": 20}})
    dtype, shape, data = workshop.tensors()[EMBEDDING]
    assert (dtype, shape, data[-4 * 8 * 2 :]) == ("BF16", (20, 8), bytes(4 * 8 * 2))


def test_shards_hold_the_new_rows(workshop):
    workshop.checkpoint(shards=3)
    assert rows(workshop, size=20)[EMBEDDING][0] == (20, 8)


BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 4,
    "num_hidden_layers": 0,
    "type_vocab_size": 2,
    "tie_word_embeddings": True,
}


def test_the_bias_of_a_head_gets_rows_too(workshop):
    """By the architecture: no name of BERT's is like those of others."""
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    tensors = {
        words: workshop.tensor("F32", (16, 8)),
        bias: workshop.tensor("F32", (16,)),
        "bert.embeddings.token_type_embeddings.weight": workshop.tensor("F32", (2, 8)),
    }
    workshop.checkpoint(tensors, config=BERT)
    found = rows(workshop, size=20)
    assert [found[name][0] for name in tensors] == [(20, 8), (20,), (2, 8)]


def test_a_bias_beside_the_batch_is_widened(workshop):
    """BART's final_logits_bias is [1, ids]."""
    bart = {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        "d_model": 8,
        "encoder_layers": 0,
        "decoder_layers": 0,
        "is_encoder_decoder": True,
        **TIED,
    }
    tensors = {
        "model.shared.weight": workshop.tensor("F32", (16, 8)),
        "final_logits_bias": workshop.tensor("F32", (1, 16), 3),
    }
    workshop.checkpoint(tensors, config=bart)
    shape, data = rows(workshop, size=20)["final_logits_bias"]
    assert (shape, data) == ((1, 20), tensors["final_logits_bias"][2] + bytes(4 * 4))


MOBILEBERT = {
    "architectures": ["MobileBertForMaskedLM"],
    "model_type": "mobilebert",
    "hidden_size": 144,
    "embedding_size": 128,
    "num_hidden_layers": 0,
    "tie_word_embeddings": True,
}


def test_ids_that_are_no_rows_are_left_to_the_training(workshop):
    """MobileBERT's second half of the head is [features, ids]: zeros at its end would be part of a row."""
    words = "mobilebert.embeddings.word_embeddings.weight"
    tensors = {
        words: workshop.tensor("F32", (16, 128)),
        "cls.predictions.dense.weight": workshop.tensor("F32", (16, 16)),
    }
    workshop.checkpoint(tensors, config=MOBILEBERT)
    with pytest.raises(PlanError, match=r"\[16, 16\] would become \[16, 20\]") as caught:
        rows(workshop, size=20)
    assert (caught.value.place, "where it was trained" in caught.value.hint) == ("cls.predictions.dense.weight", True)


@pytest.mark.parametrize(
    ("now", "then", "fits"),
    [
        ((16, 8), (20, 8), True),
        ((16,), (20,), True),
        ((1, 16), (1, 20), True),
        ((3, 8, 16), (3, 8, 20), False),
        ((80, 16), (96, 16), False),
        ((16, 8), (18, 8), False),
        ((16, 16), (20, 20), False),
    ],
)
def test_new_rows_follow_all_others(now, then, fits):
    assert _at_the_end(now, then, 4) is fits


def test_an_unknown_architecture_goes_by_its_names(workshop):
    tensors = {**workshop.model(), "lm_head.bias": workshop.tensor("F32", (16,))}
    workshop.checkpoint(tensors, config={"model_type": "its-own", "architectures": ["ItsOwn"]})
    found = rows(workshop, size=20)
    assert [found[name][0] for name in (EMBEDDING, HEAD, "lm_head.bias")] == [(20, 8), (20, 8), (20,)]


def test_tensors_that_nothing_names_are_not_guessed(workshop):
    workshop.checkpoint({"x": workshop.tensor("F32", (16, 8))}, config={"model_type": "its-own", "architectures": []})
    with pytest.raises(RecipeError, match="nothing says which tensors have a row for each token"):
        rows(workshop, size=20)


def test_the_text_model_of_a_composed_one_is_meant(workshop):
    text = {"model_type": "llama", "vocab_size": 16, "hidden_size": 8}
    workshop.checkpoint(
        config={"model_type": "its-own", "text_config": text, "vocab_size": 16, "vision_config": {"vocab_size": 16}}
    )
    rows(workshop, size=20)
    found = config(workshop)
    assert (found["vocab_size"], found["text_config"]["vocab_size"], found["vision_config"]["vocab_size"]) == (
        20,
        20,
        16,
    )


def test_rows_that_the_config_does_not_count_are_refused(workshop):
    workshop.checkpoint(config={"vocab_size": 12})
    with pytest.raises(PlanError, match=r"is \[16, 8\], and \[12, 8\] by a vocab_size of 12"):
        rows(workshop, size=20)


def test_a_config_that_counts_nothing_is_refused(workshop):
    (root := workshop.checkpoint()).joinpath("config.json").write_text(json.dumps({"model_type": "its-own"}))
    with pytest.raises(RecipeError, match=r"config\.json states none"):
        rows(workshop, size=20)
    assert root.exists()


def test_people_are_told_what_the_rows_are(workshop):
    workshop.checkpoint()
    plan = workshop.plan(weights={"vocabulary": {"size": 20}})
    assert plan.warnings == (
        "4 rows of zeros for ids that no token has: as output their logit is 0, not minus infinity",
    )


def test_the_plan_says_which_tensors_change(workshop):
    workshop.checkpoint()
    summary = workshop.plan(weights={"vocabulary": {"size": 20}}).summary
    assert (summary.vocabulary, sorted(summary.resized)) == ((16, 20), [HEAD, EMBEDDING])


def test_a_plan_in_a_file_builds_the_same(workshop):
    from repokit.builder.plan import Plan

    workshop.checkpoint()
    plan = workshop.plan(weights={"vocabulary": {"size": 20}})
    workshop.carry_out(Plan.model_validate_json(plan.model_dump_json()))
    assert workshop.tensors()[EMBEDDING][1] == (20, 8)


# ------------------------------------------------------------------------------------------------ trimming


@pytest.mark.parametrize("size", [12, 15])
def test_rows_without_a_token_are_cut_off(workshop, size):
    workshop.checkpoint(files=with_tokenizer())
    found = rows(workshop, size=size)
    for name in (EMBEDDING, HEAD):
        assert found[name] == ((size, 8), workshop.model()[name][2][: size * 8 * 4])


def test_a_cast_and_a_cut_go_together(workshop):
    workshop.checkpoint(files=with_tokenizer())
    workshop.build(weights={"dtype": "float16", "vocabulary": {"size": 12}})
    cut = workshop.tensors()[EMBEDDING]
    workshop.build(weights={"dtype": "float16"})
    dtype, _, data = workshop.tensors()[EMBEDDING]
    assert cut == (dtype, (12, 8), data[: 12 * 8 * 2])


def refused(workshop, size=11, **keys):
    with pytest.raises(PlanError) as caught:
        workshop.plan(weights={"vocabulary": {"size": size}}, **keys)
    return caught.value


def test_a_token_keeps_its_row(workshop):
    workshop.checkpoint(files=with_tokenizer())
    error = refused(workshop)
    assert (error.path, error.place, error.hint) == ("tokenizer.json", "word11", "weights.vocabulary.size: 12 or more")


def test_an_added_token_keeps_its_row(workshop):
    added = {
        "id": 14,
        "content": "<tool>",
        "special": True,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    workshop.checkpoint(files=with_tokenizer(added_tokens=[{**added, "id": 12}]))
    assert refused(workshop, 12).place == "<tool>"


@pytest.mark.parametrize(
    ("key", "value"), [("eos_token_id", 13), ("eos_token_id", [2, 13]), ("image_token_index", 13), ("pad_token_id", 13)]
)
def test_an_id_of_the_config_keeps_its_row(workshop, key, value):
    workshop.checkpoint(files=with_tokenizer(), config={key: value})
    error = refused(workshop, 12)
    assert (error.path, error.place, "uses id 13" in error.what) == ("config.json", f"/{key}", True)


@pytest.mark.parametrize(
    "generation", [{"pad_token_id": 13}, {"suppress_tokens": [1, 13]}, {"bad_words_ids": [[1], [13]]}]
)
def test_an_id_of_the_generation_config_keeps_its_row(workshop, generation):
    workshop.checkpoint(files={**with_tokenizer(), "generation_config.json": json.dumps(generation)})
    error = refused(workshop, 12)
    assert error.path == "generation_config.json"


def test_an_id_that_the_recipe_adds_keeps_its_row(workshop):
    workshop.checkpoint(files=with_tokenizer())
    assert refused(workshop, 12, generation_config={"eos_token_id": 15}).place == "/eos_token_id"


WORDS_ALONE = {"vocab.txt": "\n".join(WORDS)}
PAIRS = {"vocab.json": json.dumps({word: number for number, word in enumerate(WORDS)}), "merges.txt": "#version: 0.2"}


@pytest.mark.parametrize("files", [WORDS_ALONE, PAIRS], ids=["vocab.txt", "vocab.json"])
@pytest.mark.parametrize("named", [{"pad_token": "<pad>"}, {"additional_special_tokens": ["<pad>", "word3"]}])
def test_a_special_token_that_is_appended_at_load_keeps_its_row(workshop, files, named):
    workshop.checkpoint(files={**files, "tokenizer_config.json": json.dumps(named)})
    error = refused(workshop, 12)
    assert (error.place, error.hint) == ("<pad>", "weights.vocabulary.size: 13 or more")


def test_without_tokenizer_json_rows_of_no_token_are_cut_off(workshop):
    workshop.checkpoint(files={**PAIRS, "tokenizer_config.json": json.dumps({"pad_token": "word3"})})
    assert rows(workshop, size=12)[EMBEDDING][0] == (12, 8)


def test_ids_that_no_file_spells_out_are_not_cut(workshop):
    """Classes of SentencePiece tokenizers add an offset, languages or a mask to the pieces."""
    workshop.checkpoint(files={"tokenizer.model": b"\n\x07\n\x05<unk>"})
    assert "nothing says which ids are in use" in refused(workshop, 12).what


def test_without_a_tokenizer_nothing_is_cut(workshop):
    workshop.checkpoint()
    assert "nothing says which ids are in use" in refused(workshop, 12).what


def test_the_tokenizer_that_is_published_is_the_one_that_counts(workshop):
    workshop.checkpoint(files=with_tokenizer())
    larger = {word: number for number, word in enumerate([*WORDS, "a", "b"])}
    workshop.checkpoint(name="other", files=with_tokenizer(model={**TOKENIZER["model"], "vocab": larger}))
    assert refused(workshop, 12, tokenizer={"from": "./other"}).place == "b"


def test_tensors_in_memory_are_cut_and_padded(workshop):
    import numpy as np

    from repokit.builder.checkpoints.memory_weights import MemoryWeights
    from repokit.builder.planner import make_plan

    root = workshop.checkpoint(files=with_tokenizer())
    (root / "model.safetensors").unlink()
    given = MemoryWeights(
        {EMBEDDING: np.arange(128, dtype=np.float32).reshape(16, 8), HEAD: np.ones((8, 16), np.float32).T}
    )
    for size in (12, 20):
        recipe = workshop.recipe(weights={"vocabulary": {"size": size}})
        workshop.carry_out(make_plan(recipe, folder=workshop.folder, given=given), given=given)
        data = workshop.tensors()[EMBEDDING][2]
        assert data == np.arange(128, dtype=np.float32).tobytes()[: size * 32].ljust(size * 32, b"\0")


@pytest.mark.parametrize("kind", ["adapter", "gguf", "quantized"])
@pytest.mark.parametrize("weights", [{"vocabulary": {"size": 12}}, {"tie": "untie"}])
def test_only_a_full_model_gets_other_rows(workshop, kind, weights):
    workshop.checkpoint()
    with pytest.raises(RecipeError, match="taken as they are"):
        workshop.plan(kind=kind, weights=weights)


@pytest.mark.parametrize(
    "vocabulary", [{"size": 0}, {"size": -1}, {"pad_to_multiple_of": 0}, {"size": 1.5}, {"rows": 3}, 64]
)
def test_what_is_no_vocabulary_is_refused(vocabulary):
    known = {"version": 1, "source": ".", "output": "./out", "license": {"id": "mit"}}
    with pytest.raises(ValueError, match="vocabulary"):
        Recipe.model_validate({**known, "weights": {"vocabulary": vocabulary}})


# ------------------------------------------------------------------------------------------------ the bytes


class Folder(InFiles):
    def __init__(self, root: Path) -> None:
        super().__init__(root, SimpleNamespace())  # no test asks what else lies there


KINDS = {
    "side by side": TensorAt("whole", "F32", (6, 4), 8),
    "a transposed view": TensorAt("whole", "F32", (6, 4), 8, strides=(1, 6)),
    "every second row": TensorAt("whole", "F32", (3, 4), 8, strides=(8, 1)),
    "runs": TensorAt("whole", "F32", (6, 4), 8, parts=(Part("whole", 8, (5,)), Part("whole", 28, (19,)))),
    "columns": TensorAt(
        "whole", "F32", (6, 4), 8, parts=tuple(Part("whole", 8 + 48 * n, (6, 2), place=(0, 2 * n)) for n in (0, 1))
    ),
    "blocks": TensorAt(
        "whole",
        "F32",
        (6, 4),
        8,
        parts=tuple(Part("whole", 8 + 24 * (2 * m + n), (3, 2), place=(3 * m, 2 * n)) for m in (0, 1) for n in (0, 1)),
    ),
}


@settings(deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)), count=st.integers(0, 9), cast=st.sampled_from([None, "F32>BF16", "F32>F64"])
)
def test_any_tensor_is_cut_or_filled_up(tmp_path_factory, kind, count, cast):
    from repokit.builder.transforms.cast import cast as converted

    root = tmp_path_factory.mktemp("rows")
    (root / "whole").write_bytes(bytes(8) + b"".join(number.to_bytes(4, "little") for number in range(24)))
    tensor, sources = KINDS[kind], Sources()
    whole = Folder(root).pieces(tensor, sources, cast)
    wanted = count * 4 * {None: 4, "F32>BF16": 2, "F32>F64": 8}[cast]

    def read(contents):
        reader = Reader([source.path for source in sources])
        return b"".join(
            bytes(converted(part, content.cast) if content.cast else part)
            for content in contents
            for part in reader.contents(content)
        )

    assert read(resized(whole, wanted, kind)) == read(whole)[:wanted].ljust(wanted, b"\0")


def test_zeros_are_cut_too():
    assert resized((Filled(size=8),), 4, "x") == (Filled(size=4),)


def test_a_row_is_never_cut_in_two(tmp_path):
    (tmp_path / "whole").write_bytes(bytes(200))
    whole = Folder(tmp_path).pieces(KINDS["a transposed view"], Sources())
    with pytest.raises(PlanError, match="does not lie so that its rows can be cut off"):
        resized(whole, 6, "x")


# ------------------------------------------------------------------------------------------------ a head of its own


def headless(workshop, **config):
    tensors = {name: tensor for name, tensor in workshop.model().items() if name != HEAD}
    return workshop.checkpoint(tensors, config=config)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_a_copy_of_the_embedding(workshop, tied):
    headless(workshop, tie_word_embeddings=tied)
    workshop.build(weights={"tie": "untie"})
    assert workshop.tensors()[HEAD] == workshop.model()[EMBEDDING]


def test_the_config_says_that_it_is_not_tied(workshop):
    headless(workshop, **TIED)
    workshop.build(weights={"tie": "untie"})
    assert config(workshop)["tie_word_embeddings"] is False


def test_the_config_says_so_where_it_said_nothing(workshop):
    """Many classes tie by default."""
    root = headless(workshop)
    found = json.loads((root / "config.json").read_text())
    del found["tie_word_embeddings"]
    (root / "config.json").write_text(
        json.dumps({**found, "model_type": "gemma", "architectures": ["GemmaForCausalLM"]})
    )
    workshop.build(weights={"tie": "untie"})
    assert config(workshop)["tie_word_embeddings"] is False


def test_two_equal_tensors_stay_two(workshop):
    tensors = workshop.model()
    workshop.checkpoint({**tensors, HEAD: tensors[EMBEDDING]}, config=TIED)
    workshop.build(weights={"tie": "untie"})
    assert (HEAD in workshop.tensors(), config(workshop)["tie_word_embeddings"]) == (True, False)


def test_what_is_not_tied_is_not_untied(workshop):
    workshop.checkpoint()
    with pytest.raises(PlanError, match="which there is"):
        workshop.plan(weights={"tie": "untie"})


def test_the_name_of_a_head_is_not_guessed(workshop):
    headless(workshop, model_type="its-own", **TIED)
    with pytest.raises(PlanError, match="nothing says what it is called"):
        workshop.plan(weights={"tie": "untie"})


def test_the_plan_says_that_a_head_is_written(workshop):
    headless(workshop, **TIED)
    assert workshop.plan(weights={"tie": "untie"}).summary.untied == (HEAD,)


def test_an_untied_head_gets_rows_too(workshop):
    headless(workshop, **TIED)
    workshop.build(weights={"tie": "untie", "vocabulary": {"size": 20}})
    assert workshop.tensors()[HEAD][1] == (20, 8)


# ------------------------------------------------------------------------------------------------ what the linter stops

WHOLE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32", "hidden_size": 8,
    "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1,
    "max_position_embeddings": 64, "vocab_size": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def complete(workshop):
    """A llama of one layer with every tensor that it must have, but `without`."""
    from repokit.architectures import skeleton

    def write(*without, **changes):
        tensors = {name: workshop.tensor("F32", shape) for name, shape in skeleton(WHOLE).shapes.items()}
        root = workshop.checkpoint({name: found for name, found in tensors.items() if name not in without})
        (root / "config.json").write_text(json.dumps({**WHOLE, **changes}))

    return write


def checked(workshop, **keys):
    api.build(workshop.plan(**keys), gate=api.Gate(api.Selection(select=("WGT",))))


@pytest.mark.parametrize("lost", [HEAD, "model.layers.0.mlp.up_proj.weight"])
def test_a_plan_without_a_tensor_is_stopped(workshop, complete, lost):
    complete(lost)
    with pytest.raises(Stopped):
        checked(workshop)
    assert not workshop.output.exists()


def test_a_head_of_its_own_makes_it_whole(workshop, complete):
    complete(HEAD)
    checked(workshop, weights={"tie": "untie"})
    assert HEAD in workshop.tensors()


@pytest.mark.parametrize("size", [20, 64])
def test_other_rows_are_those_of_the_architecture(workshop, complete, size):
    complete()
    checked(workshop, weights={"vocabulary": {"size": size}})
    assert workshop.tensors()[HEAD][1] == (size, 8)


# ------------------------------------------------------------------------------------------------ views


def test_views_are_counted():
    tensors = {"a": Output(KINDS["a transposed view"], "F32"), "b": Output(KINDS["side by side"], "F32")}
    assert PlannedWeights(tensors).views == 1


# ------------------------------------------------------------------------------------------------ on the screen


@pytest.mark.parametrize(
    ("size", "told", "cast"),
    [
        (
            20,
            "rows     16 become 20: 4 rows of zeros are added, in model.embed_tokens.weight, lm_head.weight",
            "cast     3 tensors: float32 to bfloat16, 1.3 kB become 656 bytes",
        ),
        (
            12,
            "rows     16 become 12: 4 rows are cut off, in model.embed_tokens.weight, lm_head.weight",
            "cast     3 tensors: float32 to bfloat16, 800 bytes become 400 bytes",
        ),
    ],
)
def test_every_change_is_shown_before_it_is_made(workshop, command, size, told, cast):
    tensors = {EMBEDDING: workshop.model()[EMBEDDING], "model.norm.weight": workshop.model()["model.norm.weight"]}
    workshop.checkpoint(tensors, config=TIED, files=with_tokenizer())
    weights = {"dtype": "bfloat16", "tie": "untie", "vocabulary": {"size": size}}
    recipe = {"version": 1, "source": "./checkpoint", "output": "./out", "license": {"id": "mit"}, "weights": weights}
    (workshop.folder / "repokit.yaml").write_text(json.dumps(recipe))
    shown = command("build", "--dry-run", cwd=workshop.folder).stderr.splitlines()
    assert told in shown
    assert "untie    lm_head.weight: a copy of the embedding, a tensor of its own" in shown
    assert cast in shown
