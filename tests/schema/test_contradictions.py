"""Values that are each allowed and cannot both be meant."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("tokenizer: {from: base}\n", "`tokenizer.from` is `base`, and `base` names neither", 4),
        ("processor: {from: base}\n", "`processor.from` is `base`, and `base` names neither", 4),
        ("chat_template: {from: base}\n", "`chat_template.from` is `base`, and `base` names neither", 4),
        ("base: {revision: abc}\n", "`base.revision` is set, and `base.id` is not", 4),
        ("license: {id: other}\n", "`license.id` is `other`, and `license.name` is not set", 4),
        ("license: {id: other, name: x, file: null}\n", "`license.id` is `other`, `license.file` is null", 4),
        ("kind: adapter\nweights: {tie: off}\n", "`kind` is `adapter`, and `weights.tie` is set", 5),
        ("kind: gguf\nweights: {dtype: float16}\n", "`kind` is `gguf`, and `weights.dtype` is set", 5),
        ("kind: gguf\nweights: {drop: [a]}\n", "`kind` is `gguf`, and `weights.drop` is set", 5),
        ("weights: {keep: [a]}\n", "`weights.keep` lists tensors that are not to be cast", 4),
        ("files: {include: [a], exclude: [a]}\n", "`files` includes and excludes 'a'", 4),
    ],
)
def test_contradiction(refusal, text, what, line):
    error = refusal(text)
    assert what in error.what
    assert error.place.startswith(f"line {line} ")
    assert error.why
    assert error.hint


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer: {from: base}\nbase: {id: org/base}\n",
        "tokenizer: {from: base}\nbase: {path: ./base}\n",
        "license: {id: other, name: my-license}\n",
        "license: {id: other, name: my-license, file: null, link: 'https://example.org'}\n",
        "kind: adapter\nweights: {tie: auto}\n",
        "kind: gguf\nweights: {dtype: auto}\n",
        "weights: {dtype: float16, keep: [a]}\n",
    ],
)
def test_what_goes_together(load, text):
    load(text)


@pytest.mark.parametrize(
    ("source", "output", "relation"),
    [
        (".", ".", "are the same"),
        ("a/../b", "b", "are the same"),
        ("dist/checkpoint", "dist", "lies inside"),
        ("dist/model.bin", "./dist/", "lies inside"),
    ],
)
def test_output_would_replace_the_source(refusal, source, output, relation):
    assert relation in refusal("", head=f"version: 1\nsource: {source}\noutput: {output}\n").what


def test_output_would_replace_the_base(refusal):
    assert "`base.path`" in refusal("base: {path: ./dist/tiny/base}\n").what


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("merge: {adapters: [{path: ./a}, {path: ./dist/tiny}]}\n", "merge.adapters[1].path"),
        ("config: {from: ./dist/tiny}\n", "config.from"),
        ("tokenizer: {from: ./dist/tiny/sub}\n", "tokenizer.from"),
        ("processor: {from: ./dist/tiny}\n", "processor.from"),
        ("chat_template: {from: ./dist/tiny}\n", "chat_template.from"),
        ("license: {id: mit, file: ./dist/tiny/LICENSE}\n", "license.file"),
    ],
)
def test_output_would_replace_another_input(refusal, text, name):
    assert f"`{name}`" in refusal(text).what


def test_output_in_a_bucket_would_replace_the_source(refusal):
    head = "version: 1\nsource: s3://bucket/run/a\noutput: s3://bucket/run\n"
    assert "lies inside" in refusal("", head=head).what


@pytest.mark.parametrize("output", [".", "..", "/"])
def test_output_would_replace_the_recipe(refusal, output):
    what = refusal("", head=f"version: 1\nsource: hf://org/name\noutput: {output}\n").what
    assert "the recipe lies inside its own `output`" in what


def test_output_is_the_source_by_another_name(refusal, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert "are the same" in refusal("", head="version: 1\nsource: real\noutput: link\n").what


@pytest.mark.parametrize(("source", "output"), [(".", "dist"), ("dist", "dist-2"), ("hf://org/name", "dist")])
def test_output_elsewhere(load, source, output):
    assert load("", head=f"version: 1\nsource: {source}\noutput: {output}\n").output == output


def test_loop_of_links_is_left_to_the_build(load, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert load("", head="version: 1\nsource: loop\noutput: dist\n").source == "loop"
