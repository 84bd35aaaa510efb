"""Variants: what each of them makes of the recipe, and what is said of a mistake in one."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jsonschema import Draft202012Validator

from repokit.errors import RecipeError
from repokit.schema.export import render
from repokit.schema.recipe import Recipe, load_recipe
from repokit.schema.recipe_file import read_all
from repokit.schema.variants import NAME, Variants, output_of, place_of, repo_of, resolved

HEAD = "version: 1\nlicense: {id: apache-2.0}\n"


@pytest.fixture
def read(tmp_path):
    """The variants of a recipe of which everything but its version and license is given."""

    def read(text: str) -> Variants:
        path = tmp_path / "repokit.yaml"
        path.write_text(HEAD + text, encoding="utf-8")
        found = read_all(path)
        assert isinstance(found, Variants)
        return found

    return read


@pytest.fixture
def refused(read):
    """The error of a recipe that is none."""

    def refused(text: str) -> RecipeError:
        with pytest.raises(RecipeError) as caught:
            read(text)
        return caught.value

    return refused


# ---------------------------------------------------------------- what a variant is


def test_a_variant_has_what_the_top_says(read):
    recipe = read("source: ./x\ncard: {language: [en]}\nvariants: {full: {}}\n").recipes["full"]
    assert (recipe.source, recipe.card.language, recipe.license.id) == ("./x", ("en",), "apache-2.0")


def test_a_name_with_nothing_behind_it_is_a_variant(read):
    assert list(read("source: ./x\nvariants:\n  full:\n").recipes) == ["full"]


def test_mappings_are_merged_key_by_key(read):
    text = "source: x\nweights: {dtype: float16, tie: off}\nvariants: {a: {weights: {dtype: bfloat16}}}\n"
    weights = read(text).recipes["a"].weights
    assert (weights.dtype, weights.tie) == ("bfloat16", "off")


def test_lists_are_replaced(read):
    text = "source: x\nfiles: {include: [a, b]}\nvariants: {a: {files: {include: [c]}}}\n"
    assert read(text).recipes["a"].files.include == ("c",)


def test_values_of_free_mappings_are_merged_too(read):
    text = "source: x\ngeneration_config: {a: 1, b: 2}\nvariants: {v: {generation_config: {b: 3}}}\n"
    assert read(text).recipes["v"].generation_config == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "repo", "output"),
    [
        ("repo: org/m\nvariants: {fp8: {}}\n", "org/m-fp8", "./dist/m-fp8"),
        ("repo: org/m\nvariants: {fp8: {repo: org/other}}\n", "org/other", "./dist/other"),
        ("repo: org/m\noutput: ./out/m/\nvariants: {fp8: {}}\n", "org/m-fp8", "./out/m-fp8"),
        ("repo: org/m\noutput: ./out\nvariants: {fp8: {output: ./here}}\n", "org/m-fp8", "./here"),
        ("repo: org/m\nvariants: {fp8: {repo: null}}\n", None, "./dist/fp8"),
        ("variants: {fp8: {}}\n", None, "./dist/fp8"),
    ],
)
def test_where_it_goes_is_derived_where_it_is_not_stated(read, text, repo, output):
    recipe = read(f"source: x\n{text}").recipes["fp8"]
    assert (recipe.repo, recipe.output) == (repo, output)


def test_its_name_tells_it_from_its_siblings(read):
    assert read("source: x\nidentity: {family: F}\nvariants: {fp8: {}}\n").recipes["fp8"].identity.variant == "fp8"


def test_what_tells_it_from_its_siblings_may_be_said(read):
    text = "source: x\nvariants: {fp8: {identity: {variant: FP8 dynamic}}}\n"
    assert read(text).recipes["fp8"].identity.variant == "FP8 dynamic"


def test_another_base_has_nothing_of_the_one_at_the_top(read):
    text = "source: x\nbase: {id: org/base, revision: abc, path: ./base}\nvariants: {a: {base: {id: org/other}}}\n"
    assert read(text).recipes["a"].base.model_dump(exclude_none=True) == {"id": "org/other"}


def test_a_copy_of_the_same_base_keeps_its_revision(read):
    text = "source: x\nbase: {id: org/base, revision: abc}\nvariants: {a: {base: {path: ./b}}}\n"
    assert read(text).recipes["a"].base.revision == "abc"


def test_another_license_has_nothing_of_the_one_at_the_top(tmp_path):
    path = tmp_path / "r.yaml"
    license_ = "license: {id: other, name: mine, link: https://example.org}\n"
    path.write_text(f"version: 1\n{license_}source: x\nvariants: {{a: {{license: {{id: mit}}}}}}\n")
    assert load_recipe(path, "a").license.name is None


# ---------------------------------------------------------------- a variant that is made from another


def test_a_base_that_is_another_variant_is_its_repository_and_what_it_builds(read):
    text = "repo: org/m\nsource: x\nvariants: {fp8: {base: {variant: full}}, full: {repo: org/m}}\n"
    base = read(text).recipes["fp8"].base
    assert (base.id, base.path, base.variant) == ("org/m", "./dist/m", None)


def test_its_revision_can_be_pinned(read):
    text = "repo: org/m\nsource: x\nvariants: {fp8: {base: {variant: full, revision: abc}}, full: {}}\n"
    assert read(text).recipes["fp8"].base.revision == "abc"


def test_what_another_is_made_from_is_built_before_it(read):
    text = "source: x\nvariants:\n  c: {base: {variant: b}}\n  b: {base: {variant: a}}\n  a: {}\n  d: {}\n"
    assert list(read(text).recipes) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "keys",
    [
        "source: ./dist/a",
        "source: ./dist/a/sub",
        "base: {path: ./dist/a}",
        "tokenizer: {from: ./dist/a}",
        "merge: {adapters: [{path: ./dist/a}]}",
        "license: {id: mit, file: ./dist/a/LICENSE}",
    ],
)
def test_what_reads_from_what_another_builds_is_built_after_it(read, keys):
    found = read(f"source: x\nvariants:\n  b: {{{keys}}}\n  a: {{}}\n")
    assert (list(found.recipes), found.needs["b"]) == (["a", "b"], frozenset({"a"}))


def test_what_reads_from_what_another_builds_in_a_bucket_is_built_after_it(read):
    text = "source: x\nvariants:\n  b: {source: 's3://bucket/a?x=1'}\n  a: {output: 's3://bucket/a'}\n"
    assert list(read(text).recipes) == ["a", "b"]


def test_a_base_at_the_top_is_every_variants(read):
    text = "source: x\nbase: {variant: full}\nvariants: {a: {}, b: {}, full: {base: {id: org/base}}}\n"
    needs = read(text).needs
    assert (needs["a"], needs["b"], needs["full"]) == ({"full"}, {"full"}, frozenset())


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "what", "place", "hint"),
    [
        # in a variant, as everywhere
        ("source: x\nvariants:\n  fp8:\n    wieghts: {}\n", "`variants.fp8.wieghts` is not a known key", "line 6 column 5", "did you mean `weights`?"),
        ("source: x\nvariants:\n  fp8:\n    weights: {dytpe: a}\n", "`variants.fp8.weights.dytpe` is not a known key", "line 6 column 15", "did you mean `dtype`?"),
        ("source: x\nvariants:\n  fp8: {dtype: float16}\n", "`variants.fp8.dtype` is not a known key", "line 5 column 9", "did you mean `weights.dtype`?"),
        ("source: x\nvariants:\n  fp8: {weights: {dtype: bf16}}\n", "`variants.fp8.weights.dtype` is 'bf16'", "line 5 column 26", "did you mean `bfloat16`?"),
        ("source: x\nvariants:\n  fp8: {push: {tag: 1.0}}\n", "`variants.fp8.push.tag` is a float, must be a string", "line 5 column 21", 'tag: "1.0"'),
        ("source: x\nvariants:\n  fp8: {repo: a/b/c}\n", "`variants.fp8.repo` is no repository on the Hub", "line 5 column 15", "org/name"),
        ("source: x\nvariants:\n  fp8: {lint: {ignore: [{code: X}]}}\n", "`variants.fp8.lint.ignore[0]` lacks `reason`", "line 5 column 25", "add `reason: ...`"),
        ("source: x\nvariants:\n  fp8: {version: 1}\n", "`variants.fp8.version` is not a known key", "line 5 column 9", "at the top"),
        ("source: x\nvariants:\n  fp8: {variants: {}}\n", "`variants.fp8.variants` is not a known key", "line 5 column 9", "at the top"),
        ("source: x\nvariants:\n  fp8: 5\n", "`variants.fp8` is an integer, must be a mapping", "line 5 column 8", "write a mapping with the keys repo"),
        # of variants
        ("source: x\nvariants: {}\n", "`variants` names none", "line 4 column 11", "fp8"),
        ("source: x\nvariants: [a]\n", "`variants` is a list, must be a mapping", "line 4 column 11", "{fp8: {source: ./fp8}}"),
        ("source: x\nvaraints: {a: {}}\n", "`varaints` is not a known key", "line 4 column 1", "did you mean `variants`?"),
        ("source: x\nvariants: {all: {}}\n", "`all` is the name of no variant", "line 4 column 12", "another name"),
        ("source: x\nvariants: {'8': {}}\n", "`8` is no name for a variant", "line 4 column 12", "at least one letter"),
        ("source: x\nvariants: {../up: {}}\n", "`../up` is no name for a variant", "line 4 column 12", "letters"),
        ("source: x\nvariants: {a/b: {}}\n", "`a/b` is no name for a variant", "line 4 column 12", "letters"),
        ("source: x\nvariants: {fp8: {}, FP8: {}}\n", "the variants fp8 and FP8 differ in upper and lower case alone", "line 4 column 21", "rename"),
        # what one of them lacks, or says twice, with what the top says
        ("variants: {a: {}}\n", "`variants.a` lacks `source`", "line 3 column 15", "add `source: ...` to it, or at the top"),
        ("source: x\nweights: {dtype: float16}\nvariants: {a: {kind: gguf}}\n", "variant a: `kind` is `gguf`, and `weights.dtype` is set", "line 4 column 18", "remove"),
        ("source: x\nvariants:\n  a: {source: ./dist/a}\n", "variant a: `source` (./dist/a) and `output` (./dist/a) are the same", "line 5 column 6", "outside"),
        ("source: x\nrepo: m\nvariants: {a--b: {}}\n", "`variants.a--b.repo` is no repository on the Hub", "line 5 column 18", "org/name"),
        # of their bases
        ("source: x\nvariants:\n  a: {base: {variant: ful}}\n  full: {}\n", "`variants.a.base.variant` is `ful`, and no variant has that name", "line 5 column 23", "did you mean `full`?"),
        ("source: x\nbase: {variant: full}\nvariants: {a: {}, b: {}}\n", "`base.variant` is `full`, and no variant has that name", "line 4 column 17", "there are a, b"),
        ("source: x\nvariants:\n  a: {base: {variant: b, id: o/m}}\n  b: {}\n", "both say what it is made from", "line 5 column 23", "remove one"),
        ("source: x\nbase: {variant: a}\nvariants: {a: {}, b: {}}\n", "the variant a is its own base", "line 4 column 17", "write the base that it has"),
        ("source: x\nvariants:\n  a: {base: {variant: b}}\n  b: {base: {variant: a}}\n", "a needs b needs a", "line 5 column 23", "another base"),
        ("source: x\nvariants:\n  z: {base: {variant: a}}\n  a: {source: ./dist/b}\n  b: {base: {variant: a}}\n", "a needs b needs a", "line 6 column 6", "another base"),
        ("source: x\noutput: y\nbase: {variant: a}\n", "`base.variant` is `a`, and the recipe has no `variants`", "line 5 column 17", "an `id` or a `path`"),
        # of where they go
        ("source: x\nvariants:\n  a: {output: ./d}\n  b: {output: d/}\n", "the variants a and b are built in one place: ./d", "line 6 column 15", "write an `output`"),
        ("source: x\nvariants:\n  a: {output: ./d/e}\n  b: {output: ./d}\n", "the variants a and b overlap", "line 6 column 15", "write an `output`"),
        ("source: x\nvariants:\n  a: {repo: o/m, output: a}\n  b: {repo: O/M, output: b}\n", "the variants a and b are published in one place: O/M, revision main", "line 6 column 13", "`push.revision`"),
        ("source: x\npush: {tag: v1}\nvariants:\n  a: {repo: o/m, output: a}\n  b: {repo: o/m, output: b, push: {revision: x}}\n", "published in one place: o/m, tag v1", "line 4 column 13", "`push.tag`"),
    ],
)  # fmt: skip
def test_mistake(refused, text, what, place, hint):
    error = refused(text)
    assert what in error.what
    assert error.place == place
    assert hint in error.hint


def test_branches_of_one_repository_are_two_places(read):
    text = "source: x\nvariants:\n  a: {repo: o/m, output: a}\n  b: {repo: o/m, output: b, push: {revision: x}}\n"
    assert len(read(text).recipes) == 2


def test_the_meaning_of_a_key_is_told_with_its_place(refused):
    why = refused("source: x\nvariants: {a: {weights: {dtype: 5}}}\n").why
    assert why.startswith("variants.a.weights.dtype: What floating-point tensors are cast to")


@pytest.mark.parametrize(
    ("variant", "what", "hint"),
    [
        (None, "has 2 variants, and none is named: full, fp8", "--variant full, or --variant all"),
        ("ful", "has no variant ful", "did you mean `full`?"),
        ("zzz", "has no variant zzz", "it has full, fp8"),
    ],
)
def test_which_one_has_to_be_said(tmp_path, variant, what, hint):
    path = tmp_path / "repokit.yaml"
    path.write_text(f"{HEAD}source: x\nvariants: {{full: {{}}, fp8: {{}}}}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, variant)
    assert (caught.value.what, hint in caught.value.hint) == (what, True)


def test_a_variant_of_a_recipe_that_has_none(tmp_path):
    path = tmp_path / "repokit.yaml"
    path.write_text(f"{HEAD}source: x\noutput: y\n")
    with pytest.raises(RecipeError, match="has no variants, and fp8 is asked for"):
        load_recipe(path, "fp8")


# ---------------------------------------------------------------- for any recipe

WORDS = st.sampled_from(["a", "b", "./x", "org/name"])
SECTIONS = {
    "identity": st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "family", "variant"), WORDS)),
    "weights": st.fixed_dictionaries(
        {}, optional={"dtype": st.sampled_from(["auto", "float16"]), "tie": st.sampled_from(["auto", "off"])}
    ),
    "tokenizer": st.fixed_dictionaries({}, optional={"from": st.sampled_from(["source", "./tokens"])}),
    "card": st.fixed_dictionaries({}, optional={"summary": WORDS, "language": st.lists(WORDS, max_size=2)}),
    "generation_config": st.dictionaries(WORDS, st.integers() | st.none(), max_size=2),
    "base": st.fixed_dictionaries({}, optional={"id": st.just("org/base"), "path": WORDS}),
    "license": st.fixed_dictionaries({}, optional={"id": st.just("mit"), "link": WORDS}),
    "push": st.fixed_dictionaries({}, optional={"tag": WORDS}),
    "lint": st.fixed_dictionaries({}, optional={"select": st.lists(st.just("CFG"), max_size=2)}),
    "compat": st.just(["transformers-4"]),
    "manifest": st.sampled_from(["keep", "off"]),
}
FRAGMENTS = st.fixed_dictionaries({}, optional={**SECTIONS, "source": WORDS, "repo": st.just("org/m")})
TOPS = st.fixed_dictionaries(
    {"version": st.just(1), "source": WORDS}, optional={**SECTIONS, "repo": st.just("org/m"), "output": st.just("./o")}
)
NAMES = st.from_regex(NAME, fullmatch=True)
DERIVED = {"repo", "output", "identity"}


@given(TOPS, NAMES)
def test_an_empty_variant_is_the_top(top, name):
    document = resolved({**top, "variants": {name: {}}}, name)
    assert {key: value for key, value in document.items() if key not in DERIVED} == {
        key: value for key, value in top.items() if key not in DERIVED
    }


@given(TOPS, FRAGMENTS)
def test_resolving_changes_nothing_and_is_deterministic(top, own):
    document = {**top, "variants": {"v": own, "w": {}}}
    before = copy.deepcopy(document)
    assert resolved(document, "v") == resolved(document, "v")
    assert document == before


@given(TOPS, FRAGMENTS)
def test_what_a_variant_states_stands(top, own):
    document = resolved({**top, "variants": {"v": own}}, "v")
    for key, value in own.items():
        stated = value if isinstance(value, dict) else {key: value}
        found = document[key] if isinstance(value, dict) else document
        assert stated.items() <= found.items()


@given(TOPS, FRAGMENTS)
def test_every_variant_is_a_recipe(top, own):
    assert Recipe.model_validate(resolved({**top, "variants": {"v": own}}, "v")).output


@given(TOPS, FRAGMENTS)
def test_the_place_of_a_value_holds_it(top, own):
    document = {**top, "variants": {"v": own}}
    for key, value in resolved(document, "v").items():
        for step, inner in value.items() if isinstance(value, dict) else ():
            place = place_of(document, "v", (key, step))
            if place != ("variants", "v"):
                assert _at(document, place) == inner


def _at(document, place):
    for step in place:
        document = document[step]
    return document


@given(TOPS, st.dictionaries(NAMES, FRAGMENTS, min_size=1, max_size=4))
def test_where_a_variant_goes_depends_on_no_other(top, variants):
    document = {**top, "variants": variants}
    for name in variants:
        alone = {**top, "variants": {name: variants[name]}}
        assert (repo_of(document, name), output_of(document, name)) == (repo_of(alone, name), output_of(alone, name))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TOPS, st.dictionaries(NAMES | st.text(max_size=3), FRAGMENTS | st.none() | st.integers(), max_size=4))
def test_any_variants_are_recipes_or_an_error_with_three_lines(tmp_path, top, variants):
    path = tmp_path / "repokit.yaml"
    path.write_text(json.dumps({**top, "variants": variants}), encoding="utf-8")
    assert all(line and "\n" not in line for line in _lines(path))


def _lines(path):
    try:
        read_all(path)
    except RecipeError as error:
        return [error.what, error.hint, error.path]
    return []


@given(st.permutations(["a", "b", "c", "d"]), st.data())
def test_the_order_is_one_in_which_everything_can_be_built(names, data):
    from repokit.schema.siblings import in_order

    needs = {name: frozenset(data.draw(st.sets(st.sampled_from(names), max_size=2))) for name in names}
    done: set[str] = set()
    for name in in_order(needs):
        assert needs[name] <= done
        done.add(name)
    assert all(not needs[name] <= done for name in names if name not in done)


# ---------------------------------------------------------------- editors


@pytest.fixture(scope="module")
def schema():
    return Draft202012Validator(json.loads(render()["recipe.schema.json"]))


WITH_VARIANTS = {
    "version": 1,
    "repo": "org/m",
    "variants": {"full": {"source": "./x"}, "fp8": {"source": "./y", "base": {"variant": "full"}}, "same": None},
}


def test_an_editor_takes_variants(schema):
    assert schema.is_valid(WITH_VARIANTS)


@pytest.mark.parametrize(
    "document",
    [
        {"version": 1},
        {"version": 1, "source": "x"},
        {"version": 1, "variants": {"fp8": {"wieghts": {}}}},
        {"version": 1, "variants": {"fp8": {"version": 1}}},
        {"version": 1, "variants": {"all": {}}},
        {"version": 1, "variants": {"8": {}}},
        {"version": 1, "variants": {"a/b": {}}},
        {"version": 1, "variants": ["fp8"]},
    ],
)
def test_an_editor_marks_what_is_none(schema, document):
    assert not schema.is_valid(document)


def test_an_editor_takes_what_a_recipe_always_was(schema):
    assert schema.is_valid({"version": 1, "source": "x", "output": "y", "weights": {"dtype": "float16"}})


def test_a_variant_has_every_key_of_a_recipe_but_the_version():
    variant = json.loads(render()["recipe.schema.json"])["$defs"]["Variant"]
    assert list(variant["properties"]) == [name for name in Recipe.model_fields if name != "version"]


def test_what_a_variant_leaves_out_is_not_told_as_a_default():
    variant = json.loads(render()["recipe.schema.json"])["$defs"]["Variant"]
    assert not any("default" in part for part in variant["properties"].values())


def test_paths_are_not_of_this_machine(read, tmp_path):
    recipe = read("source: x\nvariants: {a: {}}\n").recipes["a"]
    assert not Path(recipe.output).is_absolute()
