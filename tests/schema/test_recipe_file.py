"""repokit.yaml: each mistake is told with its key, its line and what to write instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.errors import RecipeError
from repokit.schema.recipe import load_recipe
from repokit.schema.recipe_file import read_lint

WHOLE = r"""
repo: org/name
identity: {name: Tiny, family: Tiny, variant: instruct}
kind: full
base: {id: org/base, revision: 9c92abc}
weights:
  dtype: bfloat16
  keep: ["*.norm.weight"]
  max_shard_size: 5GB
  rename:
    - {from: 'module\.(.*)', to: '\1'}
  drop: ["*.rotary_emb.inv_freq"]
  tie: off
tokenizer: {from: base}
processor: {from: source}
chat_template: {from: ./chat.jinja}
generation_config: {temperature: 0.7, do_sample: true}
card:
  summary: A model.
  language: [en, "no"]
  datasets: org/data
  pipeline_tag: text-generation
  library_name: transformers
  tags: [chat]
  extra_gated_prompt: Agree?
  limitations: Many.
license: {id: apache-2.0, file: auto, name: null, link: null}
files: {include: ["*.py"], exclude: []}
compat: [transformers-4]
manifest: off
lint:
  select: [IDX]
  ignore:
    - {code: IDX101, reason: MLX layout, until: 2027-01-31}
  per_file: {"README.md": [CRD101]}
push: {revision: main, tag: "v1.0", private: false}
"""


def test_every_word_of_the_format_is_read(load):
    recipe = load(WHOLE)
    assert recipe.weights.max_shard_size == "5GB"
    assert recipe.chat_template.from_ == "./chat.jinja"
    assert recipe.lint.per_file == {"README.md": ("CRD101",)}


def test_three_keys_are_enough(load):
    assert load("").kind == "auto"


@pytest.mark.parametrize(
    ("text", "what", "place", "hint"),
    [
        # unknown keys
        ("wieghts: {}\n", "`wieghts` is not a known key", "line 4 column 1", "did you mean `weights`?"),
        ("weights:\n  dytpe: bfloat16\n", "`weights.dytpe` is not a known key", "line 5 column 3", "did you mean `dtype`?"),
        ("lisence: {}\n", "`lisence` is not a known key", "line 4 column 1", "did you mean `license`?"),
        ("dtype: bfloat16\n", "`dtype` is not a known key", "line 4 column 1", "did you mean `weights.dtype`?"),
        ("base: {zzz: 1}\n", "`base.zzz` is not a known key", "line 4 column 8", "known here: id, revision, path"),
        ("push: {token: hf_x}\n", "`push.token` is not a known key", "line 4 column 8", "HF_TOKEN"),
        ("license: {licence: mit}\n", "`license.licence` is not a known key", "line 4 column 11", "known here"),
        # values that are not allowed
        ("weights: {dtype: bf16}\n", "`weights.dtype` is 'bf16'", "line 4 column 18", "did you mean `bfloat16`?"),
        ("weights: {dtype: torch.float16}\n", "`weights.dtype` is 'torch.float16'", "line 4 column 18", "`float16`"),
        ("weights: {dtype: int3}\n", "`weights.dtype` is 'int3'", "line 4 column 18", "write one of: auto, float64"),
        ("kind: lora\n", "`kind` is 'lora'", "line 4 column 7", "write one of: auto, full, adapter"),
        ("manifest: published\n", "`manifest` is 'published'", "line 4 column 11", "did you mean `publish`?"),
        ("compat: [transformers-3]\n", "`compat[0]` is 'transformers-3'", "line 4 column 10", "`transformers-4`"),
        ("weights: {max_shard_size: 5GiB}\n", "`weights.max_shard_size` is no size", "line 4 column 27", "for example `max_shard_size: 5GB`"),
        ("repo: a/b/c\n", "`repo` is no repository on the Hub", "line 4 column 7", "for example `repo: org/name`"),
        ("license: {id: Apache 2.0}\n", "`license.id` is 'Apache 2.0', which is none of", "line 4 column 15", "did you mean `apache-2.0`?"),
        # values of a wrong type
        ("weights: {rename: {a: b}}\n", "`weights.rename`", "line 4 column 19", "[{from: REGEX, to: TEXT}]"),
        ("weights: {dtype: 16}\n", "`weights.dtype` is 16, must be", "line 4 column 18", "write one of"),
        ("weights: []\n", "`weights` is a list, must be a mapping", "line 4 column 10", "the keys dtype, keep"),
        ("license: mit\n", "`license` is a string, must be a mapping", "line 4 column 10", "the keys id, file"),
        ("generation_config: greedy\n", "`generation_config` is a string, must be a mapping", "line 4 column 20", "keys and values"),
        ("files: {include: '*.py'}\n", "`files.include` is a string, must be a list", "line 4 column 18", "write a list"),
        ("weights:\n  drop:\n    - 5\n", "`weights.drop[0]` is an integer, must be a string", "line 6 column 7", 'drop: "5"'),
        ("push: {private: 'yes'}\n", "`push.private` is a string, must be a boolean", "line 4 column 17", "write true or false"),
        ("lint: {per_file: {a: 5}}\n", "`lint.per_file.a` is an integer, must be a list", "line 4 column 22", "write a list"),
        ("lint: {ignore: [{code: X, reason: y, until: soon}]}\n", "`lint.ignore[0].until` is a string", "line 4 column 45", "2027-01-31"),
        ("lint: {ignore: [{code: X, reason: ''}]}\n", "`lint.ignore[0].reason` must have at least 1 character", "line 4 column 35", "README"),
        ('card: {summary: "\\ud800"}\n', "has a NUL or half of a surrogate pair", "line 4 column 17", "remove the escape"),
        ('repo: "a\\0b"\n', "has a NUL or half of a surrogate pair", "line 4 column 7", "remove the escape"),
        # missing keys
        ("lint:\n  ignore:\n    - code: IDX101\n", "`lint.ignore[0]` lacks `reason`", "line 6 column 7", "add `reason: ...`"),
        ("weights: {rename: [{from: a}]}\n", "`weights.rename[0]` lacks `to`", "line 4 column 20", "add `to: ...`"),
        # what YAML 1.1 makes of unquoted words
        ("card: {language: no}\n", "`card.language` is a boolean, must be a string", "line 4 column 18", 'language: "no"'),
        ("card: {language: [en, no]}\n", "`card.language[1]` is a boolean", "line 4 column 23", 'language: "no"'),
        ("push: {tag: 1.0}\n", "`push.tag` is a float, must be a string", "line 4 column 13", 'tag: "1.0"'),
        ("base: {id: a/b, revision: \"x'y\"}\n", "`base.revision` is no revision", "line 4 column 27", "README"),
        ("base: {id: a/b, revision: 1234567}\n", "`base.revision` is an integer", "line 4 column 27", 'revision: "1234567"'),
        ("push: {tag: 2026-01-01}\n", "`push.tag` is a date", "line 4 column 13", 'tag: "2026-01-01"'),
        ("push: {tag: 1:30:00}\n", "`push.tag` is an integer", "line 4 column 13", 'tag: "1:30:00"'),
        ("weights: {max_shard_size: 5_000_000}\n", "`weights.max_shard_size` is an integer", "line 4 column 27", '"5_000_000"'),
        ("push: {tag: 2026-13-45}\n", "has a value that YAML cannot read", None, "write it in quotes"),
        ("generation_config: {temperature: 1e-2}\n", "has 1e-2 without quotes", "line 4 column 34", "write 1.0e-2,"),
        ("generation_config: {temperature: -2.5E1}\n", "has -2.5E1 without", "line 4 column 34", "write -2.5e+1,"),
        ("base: {id: a/b, revision: 12e4567}\n", "has 12e4567 without", "line 4 column 27", "in quotes if it is a text"),
        ("on: true\n", "has the key `on`, which YAML reads as a boolean", "line 4 column 1", '"on":'),
        ("1: true\n", "has the key `1`, which YAML reads as an integer", "line 4 column 1", '"1":'),
        # YAML that is none, or not this one's
        ("kind: full\nkind: full\n", "has the key `kind` twice: first on line 4", "line 5 column 1", "remove"),
        ("weights: {dtype: auto, dtype: auto}\n", "has the key `dtype` twice", "line 4 column 24", "remove"),
        ("kind: [full\n", "is not YAML", "line 5 column 1", "quotes"),
        ("weights:\n\tdtype: auto\n", "is not YAML", "line 5 column 1", "never with tabs"),
        ("card: {summary: a: b}\n", "is not YAML", "line 4 column 18", "quotes"),
        ("card:\n  summary: a: b\n", "is not YAML: mapping values are not allowed here", "line 5 column 13", "a colon and a space"),
        ("kind: !!python/object/apply:os.system [ls]\n", "has the tag", "line 4 column 7", "without the tag"),
        ("x: &a {}\n<<: *a\n", "has a merge key", "line 5 column 1", "write the keys out"),
        ("kind: \x07\n", "has the character U+0007", "line 4", "remove it"),
        ("generation_config: &a {x: *a}\n", "is nested deeper than 50 levels", "line 4 column 20", "4"),
        ("generation_config: " + "[" * 60 + "]" * 60 + "\n", "is nested deeper than 50 levels", "line 4 column 70", "4"),
        ("generation_config: " + "[" * 5000 + "]" * 5000 + "\n", "is nested deeper than 50 levels", None, "4"),
    ],
)  # fmt: skip
def test_mistake(refusal, text, what, place, hint):
    error = refusal(text)
    assert what in error.what
    assert error.place == place
    assert hint in error.hint


@pytest.mark.parametrize(
    ("head", "what", "hint"),
    [
        ("", "is empty", "repokit init"),
        ("# only a comment\n", "is empty", "repokit init"),
        ("- a\n- b\n", "is a list, must be a mapping", "version: 1"),
        ("just words\n", "is a string, must be a mapping", "version: 1"),
        ("version: 1\nsource: a\n", "lacks `output`", "add `output: ...`"),
        ("source: a\noutput: b\n", "lacks `version`", "add `version: 1`"),
        ("version: 2\nbrand: new\n", "is written in version 2", "upgrade repokit"),
        ("version: '1'\nsource: a\noutput: b\n", "`version` is a string, must be the integer 1", "version: 1"),
        ("version: true\nsource: a\noutput: b\n", "`version` is a boolean, must be the integer 1", "version: 1"),
        ("version: 1.0\nsource: a\noutput: b\n", "`version` is a float, must be the integer 1", "version: 1"),
    ],
)
def test_document_that_is_no_recipe(refusal, head, what, hint):
    error = refusal("", head=head)
    assert what in error.what
    assert hint in error.hint


def test_first_mistake_of_the_file_comes_first_and_the_others_are_counted(refusal):
    error = refusal("push: {private: 5}\nweights: {dtype: bf16}\nkidn: full\n")
    assert error.what == "`push.private` is an integer, must be a boolean (and 2 more problems)"


def test_reason_is_the_meaning_of_the_key(refusal):
    assert refusal("push: {private: 5}\n").why == "push.private: Visibility of a repository that is created."


def test_reason_is_the_meaning_of_the_section_where_the_key_has_none(refusal):
    assert (
        refusal("lint: {ignore: [{code: X}]}\n").why
        == "lint.ignore: A waiver. It carries its reason, for the next reader."
    )


def test_reason_names_what_yaml_does(refusal):
    assert refusal("card: {language: no}\n").why == "YAML 1.1 reads no without quotes as a boolean"


def test_alias_bomb_is_refused_before_it_grows(refusal):
    levels = "".join(f"  l{n}: &l{n} [*l{n - 1}, *l{n - 1}, *l{n - 1}, *l{n - 1}]\n" for n in range(1, 30))
    error = refusal("generation_config:\n  l0: &l0 [x, x]\n" + levels)
    assert "has more than 20,000 values, aliases followed" in error.what


def test_alias_is_followed(load):
    assert load("generation_config: {a: &x [1, 2], b: *x}\n").generation_config["b"] == [1, 2]


def test_escape_sequences_do_not_reach_the_message(refusal):
    assert "\x1b" not in str(refusal('"\\x1b[2J": 1\n'))


def test_missing_file(tmp_path):
    with pytest.raises(RecipeError, match="is not there") as caught:
        load_recipe(tmp_path / "repokit.yaml")
    assert "repokit init" in caught.value.hint


def test_directory_in_place_of_the_file(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read: Is a directory"):
        load_recipe(tmp_path)


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_bytes(b"version: 1\nsource: \xff\xfe\n")
    with pytest.raises(RecipeError, match="is not UTF-8") as caught:
        load_recipe(path)
    assert caught.value.place == "line 2"


def test_byte_order_mark_is_allowed(load):
    assert load("", head="\ufeffversion: 1\nsource: a\noutput: b\n").source == "a"


def test_file_larger_than_any_recipe(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(RecipeError, match="a recipe has at most"):
        load_recipe(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.text(st.sampled_from("abk:- {}[],\n\t\"'#&*!|>%@`\\0123456789.~<=?éΩ\u2028\x00")) | st.binary())
def test_any_file_is_a_recipe_or_a_recipe_error(tmp_path, content):
    path = tmp_path / "repokit.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecipeError):
        load_recipe(path)


SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["auto", "base", "off"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["dtype", "from", "id", "keep", "rename", "code", "reason", "ignore", "language", "include", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "repo",
                "kind",
                "base",
                "weights",
                "tokenizer",
                "card",
                "license",
                "files",
                "compat",
                "manifest",
                "lint",
                "push",
                "y",
            ]
        ),
        VALUES,
    )
)
def test_any_values_give_a_recipe_or_an_error_with_three_lines(tmp_path, document):
    path = tmp_path / "repokit.yaml"
    path.write_text(json.dumps({"version": 1, "source": "in", "output": "out", **document}), encoding="utf-8")
    lines = _lines_of_refusal(path)
    assert all(line and "\n" not in line for line in lines)


def _lines_of_refusal(path):
    try:
        load_recipe(path)
    except RecipeError as error:
        return [error.place, error.what, error.why, error.hint]
    return []


def test_lint_settings_alone_need_no_source(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_text("version: 1\nlint: {select: [IDX]}\nsource: 5\n")
    assert read_lint(path).select == ("IDX",)


def test_lint_settings_of_a_recipe_without_any(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_text("version: 1\n")
    assert read_lint(path).ignore == ()


def test_mistake_in_lint_settings(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_text("version: 1\nlint: {selct: [IDX]}\n")
    with pytest.raises(RecipeError, match=r"`lint.selct` is not a known key"):
        read_lint(path)


def test_lint_settings_of_pyproject(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text('[tool.repokit.lint]\nignore = [{code = "IDX101", reason = "MLX layout", until = 2027-01-31}]\n')
    assert read_lint(path).ignore[0].code == "IDX101"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[tool.repokit.lint]\nselct = []\n", "`tool.repokit.lint.selct` is not a known key"),
        ("[tool.repokit]\nlint = 5\n", "`tool.repokit.lint` is an integer, must be a mapping"),
        ("[tool.repokit.lint\n", "is not TOML"),
    ],
)
def test_mistake_in_pyproject(tmp_path, text, what):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_lint(path)
    assert what in caught.value.what


def test_pyproject_without_settings(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    assert read_lint(path).select == ()
