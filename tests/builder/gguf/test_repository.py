"""GGUF files are published byte for byte, whole sets at a time, with a card that says what each is in numbers."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, strategies as st

from repokit import api
from repokit.builder.gguf.files import GgufEntry
from repokit.errors import MalformedFile, MissingInput, RecipeError, RepokitError
from repokit.formats.front_matter import parse_card
from repokit.formats.gguf import read_gguf
from repokit.linter.examples_gguf import TOKENS, Typed, gguf_bytes, metadata, part, split, tensors
from repokit.repo.gguf import GgufFile
from repokit.schema.recipe import Recipe

BASE = {"id": "example/base", "revision": "0e9e39f249a16976918f6564b8830bc894c89659"}
Q4, Q8, F16, MATRIX = "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "tiny-F16.gguf", "imatrix.gguf"


def quantized(file_type: int, kind: int, **entries: object) -> bytes:
    """The example's model with its matrices in one type."""
    held = {name: (dims, kind if len(dims) > 1 else 0) for name, (dims, _) in tensors().items()}
    return gguf_bytes({**metadata(), "general.file_type": file_type, **entries}, held)


def projector(**entries: object) -> bytes:
    known = {
        "general.architecture": "clip",
        "general.type": "mmproj",
        "clip.has_vision_encoder": True,
        "general.file_type": 1,
    }
    return gguf_bytes({**known, **entries}, {"v.patch_embd.weight": ((32, 32), 1)})


def matrix() -> bytes:
    return gguf_bytes(
        {"general.type": "imatrix", "imatrix.chunk_count": 8}, {"blk.0.attn_q.weight.in_sum2": ((32, 1), 0)}
    )


def models() -> dict[str, bytes]:
    """Two quantizations, one of them in parts."""
    return {Q8: quantized(7, 8), **{part(number): split(number) for number in (1, 2)}}


@pytest.fixture
def shelf(workshop):
    """Writes files into the checkpoint, and nothing else."""

    def write(files=None):
        root = workshop.folder / "checkpoint"
        for path, content in (models() if files is None else files).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return workshop

    return write


def card(workshop, **keys):
    workshop.build(**keys)
    return workshop.read("README.md").decode()


# ------------------------------------------------------------------------------------------------ files


def test_files_are_copied_byte_for_byte(shelf):
    workshop = shelf()
    workshop.build()
    assert {path: content for path, content in workshop.contents().items() if path.endswith(".gguf")} == models()


def test_nothing_is_made_beside_them(shelf):
    workshop = shelf()
    workshop.build()
    others = {path for path in workshop.contents() if not path.endswith(".gguf")}
    assert others == {"README.md", "LICENSE", "repokit-manifest.json"}


def test_sets_in_folders_keep_their_folder(shelf):
    files = {f"F32/{part(number)}": split(number) for number in (1, 2)}
    workshop = shelf({Q8: quantized(7, 8), **files})
    workshop.build()
    assert {f"F32/{part(1)}", f"F32/{part(2)}", Q8} <= workshop.contents().keys()


def test_what_a_file_holds_itself_stays_out(shelf):
    workshop = shelf({**models(), "config.json": b"{}", "tokenizer.json": b"{}"})
    assert {left.reason for left in workshop.plan().left_out} == {"each GGUF file has its own inside"}


@pytest.mark.parametrize("name", ["imatrix.dat", "tiny.imatrix", MATRIX])
def test_an_importance_matrix_stays_out(shelf, name):
    (left,) = shelf({Q8: quantized(7, 8), name: matrix() if name == MATRIX else b"x"}).plan().left_out
    assert (left.path, left.reason) == (name, "an importance matrix, with which files are quantized")


@pytest.mark.parametrize("name", ["imatrix.dat", "tiny.imatrix", MATRIX])
def test_an_importance_matrix_may_be_named(shelf, name):
    workshop = shelf({Q8: quantized(7, 8), name: matrix() if name == MATRIX else b"x"})
    workshop.build(files={"include": [name]})
    assert name in workshop.contents()


def test_files_may_be_excluded(shelf):
    workshop = shelf({Q8: quantized(7, 8), F16: quantized(1, 1)})
    text = card(workshop, files={"exclude": ["*F16*"]})
    assert F16 not in workshop.contents()
    assert F16 not in text


def test_all_of_them_may_not_be_excluded(shelf):
    with pytest.raises(RecipeError, match=r"files\.exclude leaves no model"):
        shelf().plan(files={"exclude": ["*.gguf"]})


def test_one_file_may_be_the_source(shelf):
    workshop = shelf({Q8: quantized(7, 8), F16: quantized(1, 1)})
    workshop.build(source=f"./checkpoint/{Q8}")
    assert [path for path in workshop.contents() if path.endswith(".gguf")] == [Q8]


def test_one_part_stands_for_its_set(shelf):
    workshop = shelf()
    workshop.build(source=f"./checkpoint/{part(1)}")
    assert [path for path in workshop.contents() if path.endswith(".gguf")] == [part(1), part(2)]


def test_a_link_to_a_larger_disk_is_followed(shelf, tmp_path):
    workshop = shelf()
    place = workshop.folder / "checkpoint" / Q8
    place.rename(tmp_path / "large.gguf")
    place.symlink_to(tmp_path / "large.gguf")
    workshop.build()
    assert workshop.read(Q8) == models()[Q8]


def test_a_link_to_something_else_is_not(shelf, tmp_path):
    workshop = shelf()
    (tmp_path / "secret").write_bytes(b"secret")
    (workshop.folder / "checkpoint" / "x-Q4_0.gguf").symlink_to(tmp_path / "secret")
    with pytest.raises(MalformedFile, match=r"x-Q4_0\.gguf"):
        workshop.plan()


@pytest.mark.parametrize(
    "weights", [{"dtype": "bfloat16"}, {"max_shard_size": "5GB"}, {"drop": ["x"]}, {"rename": "off"}]
)
def test_nothing_is_done_to_weights(shelf, weights):
    with pytest.raises(RecipeError, match="copied byte for byte"):
        shelf().plan(weights=weights)


@pytest.mark.parametrize(
    "keys",
    [
        {"tokenizer": {"from": "base"}},
        {"chat_template": {"from": "./x"}},
        {"config": {"architectures": ["X"]}},
        {"generation_config": {"temperature": 1}},
    ],
)
def test_nothing_is_put_beside_the_files(shelf, keys):
    with pytest.raises(RecipeError, match="have their own inside"):
        shelf().plan(**keys)


def test_the_license_of_the_base_is_found(shelf):
    workshop = shelf()
    workshop.checkpoint(name="base", files={"LICENSE": "terms of the base"})
    workshop.build(base={**BASE, "path": "./base"})
    assert workshop.read("LICENSE") == b"terms of the base"


# ------------------------------------------------------------------------------------------------ sets


def test_a_missing_part_is_named(shelf):
    with pytest.raises(MissingInput, match=r"of which 1 is missing: example-F32-00002-of-00003\.gguf"):
        shelf({part(number, 3): split(number, 3) for number in (1, 3)}).plan()


def test_the_first_part_may_be_the_missing_one(shelf):
    with pytest.raises(MissingInput, match=r"example-F32-00001-of-00002\.gguf"):
        shelf({part(2): split(2)}).plan()


CONTRADICTIONS = {
    "another number": ({"split.no": Typed("u16", 1)}, "says that it is part 2"),
    "another count": ({"split.count": Typed("u16", 3)}, "says that it is one of 3 parts"),
    "another number of tensors": ({"split.tensors.count": Typed("i32", 99)}, "says 99 tensors; the parts hold 12"),
}


@pytest.mark.parametrize("how", CONTRADICTIONS)
def test_a_part_that_contradicts_its_name_is_refused(shelf, how):
    entries, told = CONTRADICTIONS[how]
    with pytest.raises(MalformedFile, match=told):
        shelf({part(1): split(1, metadata_of=entries), part(2): split(2)}).plan()


def test_a_part_under_another_name_is_refused(shelf):
    with pytest.raises(MalformedFile, match="is one of 2 parts by its header, and not by its name") as caught:
        shelf({"model.gguf": split(1), Q8: quantized(7, 8)}).plan()
    assert "NAME-00001-of-00002.gguf" in caught.value.hint


def test_a_file_that_was_cut_is_refused(shelf):
    content = quantized(7, 8)
    pieces = {f"{Q8}.part1of2": content[:900], f"{Q8}.part2of2": content[900:]}
    with pytest.raises(MalformedFile, match="is a piece of a GGUF file"):
        shelf({F16: quantized(1, 1), **pieces}).plan()


def test_a_truncated_file_is_refused(shelf):
    with pytest.raises(MalformedFile, match=r"tiny-Q8_0\.gguf: .*truncated"):
        shelf({Q8: quantized(7, 8)[:-40]}).plan()


def test_a_projector_alone_is_refused(shelf):
    with pytest.raises(MissingInput, match=r"holds no model, only mmproj-F16\.gguf \(projector\)"):
        shelf({"mmproj-F16.gguf": projector()}).plan()


def test_a_directory_without_gguf_files_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(MissingInput, match=r"holds no \.gguf file"):
        workshop.plan(kind="gguf")


@given(st.binary(max_size=200))
def test_whatever_lies_there_is_planned_or_refused(tmp_path_factory, content):
    from repokit.builder.planner import make_plan

    folder = tmp_path_factory.mktemp("gguf")
    (folder / "x").mkdir()
    (folder / "x" / Q8).write_bytes(content)
    keys = {"version": 1, "source": "./x", "output": "./out", "license": {"id": "mit"}}
    with pytest.raises(RepokitError):
        make_plan(Recipe.model_validate(keys), folder=folder)


# ------------------------------------------------------------------------------------------------ what people should know


@pytest.mark.parametrize(("name", "told"), [("model.gguf", 1), (Q8, 0), ("tiny.Q8_0.gguf", 0), ("UD-Q4_K_XL.gguf", 0)])
def test_a_name_without_its_quantization_is_told(shelf, name, told):
    warnings = shelf({name: quantized(7, 8)}).plan().warnings
    assert len([line for line in warnings if "does not say in the name which quantization" in line]) == told


def test_a_path_inside_a_file_is_told(shelf):
    content = quantized(7, 8, **{"quantize.imatrix.file": "/home/me/imatrix.dat"})
    (told,) = shelf({Q8: content}).plan().warnings
    assert "holds a path of the machine that made it (quantize.imatrix.file)" in told


INSIDE = {
    "Windows": {"general.note": r"C:\Users\me\x.gguf"},
    "a share": {"general.note": r"\\host\me\x"},
    "an address of a file": {"quantize.imatrix.dataset": "file:///home/me/x.txt"},
    "a list": {"general.datasets": ["org/name", "/home/me/x"]},
    "another key": {"training.output_dir": "../runs/1"},
    "a command": {"general.description": "made by: llama-quantize /home/me/x.gguf Q8_0"},
}


@pytest.mark.parametrize("how", INSIDE)
def test_a_path_of_any_kind_inside_a_file_is_told(shelf, how):
    (key,) = INSIDE[how]
    (told,) = shelf({Q8: quantized(7, 8, **INSIDE[how])}).plan().warnings
    assert f"holds a path of the machine that made it ({key})" in told


@pytest.mark.parametrize("text", ["org/name", "https://example.org/a/b/c", "for code and/or text/speech/images", "9B"])
def test_other_texts_are_no_paths(shelf, text):
    assert not shelf({Q8: quantized(7, 8, **{"general.description": text})}).plan().warnings


def test_pieces_of_the_tokenizer_are_no_paths(shelf):
    assert not shelf({Q8: quantized(7, 8, **{"tokenizer.ggml.merges": ["/ h", "./ x"]})}).plan().warnings


def test_paths_in_several_files_are_one_warning(shelf):
    entries = {"quantize.imatrix.file": "/home/me/imatrix.dat"}
    (told,) = shelf({Q8: quantized(7, 8, **entries), Q4: quantized(15, 2, **entries)}).plan().warnings
    assert "hold paths of the machine that made it (quantize.imatrix.file)" in told


@pytest.mark.parametrize(("file_type", "kind", "said", "held"), [(15, 1, "Q4_K_M", "F16"), (1, 8, "F16", "Q8_0")])
def test_a_file_type_that_no_tensor_bears_out_is_told(shelf, file_type, kind, said, held):
    (told,) = shelf({F16: quantized(file_type, kind)}).plan().warnings
    assert told == f"general.file_type of {F16} is {said}, and its tensors are {held}: the card says {held}"


def test_a_file_type_that_no_tensor_bears_out_is_not_in_the_card(shelf):
    assert "Q4_K_M" not in card(shelf({F16: quantized(15, 1)}))


def test_another_license_inside_is_told(shelf):
    (told,) = shelf({Q8: quantized(7, 8, **{"general.license": "mit"})}).plan().warnings
    assert told == "general.license in the files is mit, the license of the recipe apache-2.0"


def test_the_summary_counts_what_is_copied(shelf):
    summary = shelf({Q8: quantized(7, 8), F16: quantized(1, 1)}).plan().summary
    assert (summary.tensors, summary.shards, summary.parameters) == (24, 2, 9248)


# ------------------------------------------------------------------------------------------------ the card


def test_the_front_matter(shelf):
    text = card(shelf(), base=BASE)
    assert parse_card(text.encode(), "README.md").metadata == {
        "license": "apache-2.0",
        "library_name": "gguf",
        "tags": ["gguf"],
        "base_model": "example/base",
        "base_model_relation": "quantized",
        "pipeline_tag": "text-generation",
    }


def test_the_table(shelf):
    lines = card(shelf({Q8: quantized(7, 8), Q4: quantized(15, 2), F16: quantized(1, 1)})).splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert [re.split(r" \| ", row.strip("| "))[2:] for row in rows] == [
        ["16.17", "F16", "-", "-"],
        ["4.79", "Q4_K_M", "32", "not stated"],
        ["8.74", "Q8_0", "32", "not stated"],
    ]


def test_bits_per_weight_are_those_of_the_tensors():
    content = quantized(7, 8)
    header = read_gguf(lambda offset, length: content[offset : offset + length], len(content), Q8)
    entry = GgufEntry([GgufFile(Q8, header)], [len(content)])
    vectors = 3 * 32
    matrices = 7 * 32 * 32 + 2 * 32 * len(TOKENS)
    assert entry.bits_per_weight == pytest.approx((matrices * 8.5 + vectors * 32) / (matrices + vectors))


def test_a_set_is_one_row(shelf):
    assert f"| `{part(1)}` and 1 more part |" in card(shelf())


CALIBRATIONS = {
    "by the recipe": ({"dataset": "me/texts", "samples": 200}, {}, "200 samples of me/texts"),
    "by the file": ({}, {"quantize.imatrix.dataset": "/home/me/calibration.txt", "quantize.imatrix.chunks_count": 125}, "importance matrix of calibration.txt, 125 chunks"),
    "by nobody": ({}, {}, "not stated"),
}  # fmt: skip


@pytest.mark.parametrize("how", CALIBRATIONS)
def test_calibration_as_it_is_stated(shelf, how):
    stated, entries, words = CALIBRATIONS[how]
    workshop = shelf({Q8: quantized(7, 8, **entries)})
    text = card(workshop, quantization={"calibration": stated})
    assert f"| {words} |" in text
    assert "/home/me" not in text


def test_the_projector_stands_below_the_table(shelf):
    text = card(shelf({Q8: quantized(7, 8), "mmproj-F16.gguf": projector()}), repo="me/x")
    assert "- `mmproj-F16.gguf`: projector, F16, " in text
    assert "llama-mtmd-cli -hf me/x:Q8_0" in text
    assert "pipeline_tag: image-text-to-text" in text


USES = {
    "on the Hub": (models, {"repo": "me/x"}, "llama-cli -hf me/x:Q8_0"),
    "ollama": (models, {"repo": "me/x"}, "ollama run hf.co/me/x:Q8_0"),
    "on the disk": (models, {}, "llama-cli -m tiny-Q8_0.gguf"),
    "the usual first choice": (lambda: {Q8: quantized(7, 8), Q4: quantized(15, 2)}, {"repo": "me/x"}, "llama-server -hf me/x:Q4_K_M"),
    "a name without its quantization": (lambda: {"m.gguf": quantized(7, 8)}, {"repo": "me/x"}, "llama-cli -hf me/x --hf-file m.gguf"),
    "a name with a blank": (lambda: {"a b Q8_0.gguf": quantized(7, 8)}, {}, "llama-cli -m 'a b Q8_0.gguf'"),
    "embeddings": (lambda: {Q8: quantized(7, 8, **{"llama.pooling_type": 1})}, {"repo": "me/x"}, "llama-server -hf me/x:Q8_0 --embeddings"),
}  # fmt: skip


@pytest.mark.parametrize("how", USES)
def test_how_it_is_run(shelf, how):
    files, keys, line = USES[how]
    assert line in card(shelf(files()), **keys).splitlines()


def test_a_reranker_ranks(shelf):
    text = card(shelf({Q8: quantized(7, 8, **{"llama.pooling_type": 4})}), repo="me/x")
    assert "pipeline_tag: text-ranking" in text
    assert "llama-server -hf me/x:Q8_0 --reranking" in text.splitlines()


def test_a_reranker_made_of_a_model_of_texts_ranks_too(shelf):
    workshop = shelf({Q8: quantized(7, 8, **{"llama.pooling_type": 4})})
    (workshop.folder / "base").mkdir()
    (workshop.folder / "base" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert "pipeline_tag: text-ranking" in card(workshop, base={**BASE, "path": "./base"})


@pytest.mark.parametrize("word", ["ollama", "llama-cli", "Chat template"])
def test_a_reranker_does_not_chat(shelf, word):
    assert word not in card(shelf({Q8: quantized(7, 8, **{"llama.pooling_type": 4})}), repo="me/x")


def test_ollama_takes_no_parts(shelf):
    assert "ollama" not in card(shelf({part(number): split(number) for number in (1, 2)}), repo="me/x")


def test_a_persons_card_is_kept(shelf):
    text = card(shelf({**models(), "README.md": b"---\nlicense: mit\n---\n\nMy own words.\n"}), base=BASE)
    assert text.endswith("\n\nMy own words.\n")
    assert "base_model: example/base" in text


def test_nothing_is_left_open(shelf):
    assert not re.search(r"\{\{|\{%|None|undefined|\n\n\n", card(shelf(), repo="me/x"))


# ------------------------------------------------------------------------------------------------ the whole of it


def test_the_linter_has_nothing_to_say(shelf, gate):
    plan = shelf().plan(repo="me/x", base=BASE)
    api.build(plan, gate=gate)
    assert not gate.last.report.at_least(api.Severity.WARNING)


def test_a_rebuild_of_what_was_built_is_the_same(shelf):
    workshop = shelf()
    workshop.build(base=BASE)
    workshop.build(source="./out", output="./again", base=BASE)
    first, second = workshop.contents(), workshop.contents(workshop.folder / "again")
    assert {path for path in first if first[path] != second[path]} <= {"repokit-manifest.json"}


# ------------------------------------------------------------------------------------------------ init


def draft(workshop):
    made = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder)
    raw = yaml.safe_load(made.text)
    raw["license"]["id"] = raw["license"]["id"] or "mit"
    return made, Recipe.model_validate(raw)


def test_a_draft_builds(shelf):
    workshop = shelf()
    _, recipe = draft(workshop)
    assert recipe.kind == "gguf"
    assert api.plan(recipe, folder=workshop.folder).summary.shards == 3


def test_a_draft_names_each_file_in_numbers(shelf):
    made, _ = draft(shelf())
    assert "model         tiny-Q8_0.gguf: Q8_0, 12.3 kB, 8.74 bits a weight" in made.found
    assert any("in 2 parts" in line for line in made.found)


def test_a_draft_takes_license_and_source_out_of_the_files(shelf):
    entries = {"general.license": "mit", "general.source.repo_url": "https://huggingface.co/org/base"}
    made, recipe = draft(shelf({Q8: quantized(7, 8, **entries)}))
    assert (recipe.license.id, recipe.base.id, made.missing) == ("mit", "org/base", ("repo",))


def test_the_card_leads_to_the_text_of_the_license(shelf):
    assert "`apache-2.0` ([text](LICENSE))." in card(shelf({**models(), "LICENSE": b"words"}))
