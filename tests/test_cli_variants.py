"""`repokit build --variant` and `push --variant` as they are typed: several repositories from one recipe."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repokit import api
from repokit.formats.safetensors import read_header
from repokit.linter.examples import single
from repokit.rehearsal import Hub

Run = Callable[..., "subprocess.CompletedProcess[str]"]

RECIPE = """\
version: 1
repo: rehearsal/tiny
identity: {family: Tiny}
source: ./checkpoint
license: {id: apache-2.0}
push: {tag: v1.0}
variants:
  half:
    base: {variant: full}
    weights: {dtype: float32}
  full:
    repo: rehearsal/tiny
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe of two variants, one made from the other, beside a checkpoint without a card of its own."""
    return written(tmp_path)


def written(folder: Path) -> Path:
    (folder / "checkpoint").mkdir()
    for path, content in single().items():
        if path != "README.md":
            (folder / "checkpoint" / path).write_bytes(content)
    (folder / "repokit.yaml").write_text(RECIPE)
    return folder / "repokit.yaml"


@pytest.fixture(scope="module")
def all_built(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """What `repokit build --variant all` makes of the recipe."""
    folder = tmp_path_factory.mktemp("built")
    written(folder)
    command = [sys.executable, "-m", "repokit", "build", "--variant", "all"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "dist"


@pytest.fixture
def built(all_built: Path, recipe: Path) -> Path:
    """The same beside the recipe of one test."""
    shutil.copytree(all_built, recipe.parent / "dist")
    return recipe.parent / "dist"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", {"hf_rehearsal": "rehearsal"}) as running:
        yield running
    assert running.failures == []


@pytest.fixture
def push(command, hub: Hub, recipe: Path, tmp_path: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command(
            "push",
            *arguments,
            HF_ENDPOINT=hub.endpoint,
            HF_TOKEN="hf_rehearsal",
            HF_HOME=str(tmp_path / "home"),
            HF_HUB_DISABLE_XET="1",
            HF_HUB_DISABLE_TELEMETRY="1",
        )

    return run


def broken(recipe: Path, name: str) -> None:
    """Adds a variant whose source is not there."""
    recipe.write_text(f"{recipe.read_text()}  {name}:\n    source: ./gone\n")


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {variant["variant"]: variant["outcome"] for variant in json.loads(done.stdout)["variants"]}


def front_matter(path: Path) -> dict[str, object]:
    from repokit.formats.front_matter import parse_card

    return dict(parse_card((path / "README.md").read_bytes(), "README.md").metadata or {})


def dtypes(path: Path) -> set[str]:
    content = (path / "model.safetensors").read_bytes()
    return {tensor.dtype for tensor in read_header(lambda at, size: content[at : at + size], len(content), "x").tensors}


# ---------------------------------------------------------------- build


def test_all_are_built(command, recipe, tmp_path):
    done = command("build", "--variant", "all")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "dist").iterdir() if not path.name.startswith(".")) == [
        "tiny",
        "tiny-half",
    ]


def test_what_another_is_made_from_is_built_first(command, recipe):
    done = command("build", "--variant", "all", "--json")
    assert outcomes(done) == {"full": "built", "half": "built"}
    assert list(outcomes(done)) == ["full", "half"]


def test_the_card_of_one_names_the_repository_of_the_other(built):
    assert front_matter(built / "tiny-half")["base_model"] == "rehearsal/tiny"
    assert "base_model" not in front_matter(built / "tiny")


def test_the_card_tells_it_from_its_siblings(built):
    assert "| Variant | half |" in (built / "tiny-half" / "README.md").read_text()


def test_each_has_what_it_overrides_and_the_rest_in_common(built):
    full, half = built / "tiny", built / "tiny-half"
    assert (dtypes(full), dtypes(half)) == ({"BF16"}, {"F32"})
    assert (full / "tokenizer.json").read_bytes() == (half / "tokenizer.json").read_bytes()


def test_one_is_built_alone(command, recipe, tmp_path):
    done = command("build", "--variant", "full", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == "dist/tiny"
    assert not (tmp_path / "dist" / "tiny-half").exists()


def test_without_a_name_the_error_lists_them(command, recipe):
    done = command("build")
    assert done.returncode == 2
    assert "repokit.yaml: has 2 variants, and none is named: full, half" in done.stderr


def test_a_mistyped_name(command, recipe):
    done = command("build", "--variant", "haff")
    assert (done.returncode, "did you mean `half`?" in done.stderr) == (2, True)


def test_one_whose_base_is_not_built_says_what_comes_first(command, recipe):
    done = command("build", "--variant", "half")
    assert done.returncode == 2
    assert "next repokit build --variant full, or --variant all" in done.stderr


def test_the_failure_of_one_stops_only_what_is_made_from_it(command, recipe):
    broken(recipe, "gone")
    recipe.write_text(f"{recipe.read_text()}  late:\n    base: {{variant: gone}}\n")
    done = command("build", "--variant", "all", "--json")
    assert done.returncode == 2
    assert outcomes(done) == {"full": "built", "half": "built", "gone": "failed", "late": "not tried"}


def test_the_error_of_one_is_in_the_document(command, recipe):
    broken(recipe, "gone")
    done = command("build", "--variant", "gone", "--variant", "full", "--json")
    assert json.loads(done.stdout)["variants"][1]["error"]["what"] == "source: ./gone does not exist"


def test_what_is_left_can_be_built_later(command, recipe):
    broken(recipe, "gone")
    done = command("build", "--variant", "all")
    assert "next: repokit build --variant gone" in done.stderr


def test_the_flags_that_were_typed_are_said_again(command, recipe):
    broken(recipe, "gone")
    done = command("build", "--variant", "all", "--dry-run", "--force", "--memory", "8GB")
    assert "next: repokit build --dry-run --force --memory 8GB --variant half --variant gone\n" in done.stderr


def test_the_line_of_a_source_that_is_not_there(command, recipe):
    broken(recipe, "gone")
    done = command("build", "--variant", "gone")
    assert "repokit.yaml: line 14 column 13: source: ./gone does not exist" in done.stderr


def test_findings_of_one_are_the_exit_code_of_all(command, recipe, tmp_path):
    (tmp_path / "bad").mkdir()
    for path, content in single().items():
        (tmp_path / "bad" / path).write_bytes(content)
    config = json.loads(single()["config.json"])
    (tmp_path / "bad" / "config.json").write_text(json.dumps({**config, "vocab_size": 99}))
    broken(recipe, "gone")
    recipe.write_text(f"{recipe.read_text()}  bad:\n    source: ./bad\n")
    assert command("build", "--variant", "all").returncode == 1


def test_a_dry_run_of_all_lists_all(command, recipe, tmp_path):
    command("build", "--variant", "full")
    done = command("build", "--variant", "all", "--dry-run", "--json")
    assert outcomes(done) == {"full": "planned", "half": "planned"}
    assert not (tmp_path / "dist" / "tiny-half").exists()


def test_a_dry_run_says_what_it_could_not_plan(command, recipe):
    done = command("build", "--variant", "all", "--dry-run", "--json")
    assert (done.returncode, outcomes(done)) == (2, {"full": "planned", "half": "failed"})


@pytest.mark.parametrize("flags", [("--plan", "p.json"), ("--output", "x"), ("--keep", "x")])
def test_what_is_of_one_output_goes_with_one_variant(command, recipe, flags):
    done = command("build", "--variant", "all", *flags)
    assert (done.returncode, "several variants go with none of" in done.stderr) == (2, True)


def test_a_plan_of_one_is_carried_out(command, recipe, tmp_path):
    command("build", "--variant", "full", "--plan", "p.json")
    assert command("build", "--apply", "p.json").returncode == 0
    assert (tmp_path / "dist" / "tiny").is_dir()


def test_a_plan_knows_its_variant(command, recipe):
    done = command("build", "--apply", "p.json", "--variant", "full")
    assert (done.returncode, "--apply goes with none of" in done.stderr) == (2, True)


def test_a_recipe_without_variants_has_none_to_name(command, recipe):
    recipe.write_text("version: 1\nsource: ./checkpoint\noutput: ./out\nlicense: {id: apache-2.0}\n")
    done = command("build", "--variant", "all")
    assert (done.returncode, "has no variants" in done.stderr) == (2, True)


def test_in_quiet_the_outputs_are_printed(command, recipe):
    assert command("build", "--variant", "all", "-q").stdout.splitlines() == ["dist/tiny", "dist/tiny-half"]


def test_a_recipe_elsewhere_is_named_in_what_comes_next(command, recipe, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    broken(recipe, "gone")
    done = command("build", "../repokit.yaml", "--variant", "all", cwd=tmp_path / "elsewhere")
    assert "next: repokit build ../repokit.yaml --variant gone" in done.stderr


# ---------------------------------------------------------------- lint


def test_a_directory_is_linted_by_the_settings_of_its_variant(command, recipe, tmp_path):
    recipe.write_text(RECIPE + "    lint: {select: [CRD]}\n")
    command("build", "--variant", "all")
    of_full = json.loads(command("lint", "dist/tiny", "--json").stdout)["coverage"]["checked"]
    of_half = json.loads(command("lint", "dist/tiny-half", "--json").stdout)["coverage"]["checked"]
    assert ({code[:3] for code in of_full}, len({code[:3] for code in of_half}) > 1) == ({"CRD"}, True)


def test_a_repository_on_the_hub_is_linted_by_the_settings_of_its_variant(recipe, tmp_path, monkeypatch):
    recipe.write_text(RECIPE + "    lint: {select: [CRD]}\n")
    monkeypatch.chdir(tmp_path)
    assert api.settings_for("rehearsal/tiny").selection.select == ("CRD",)
    assert api.settings_for("rehearsal/tiny-half").selection.select == ()


# ---------------------------------------------------------------- push


def test_all_are_pushed_each_to_its_own(push, hub, built):
    done = push("--variant", "all", "--create", "--json")
    assert done.returncode == 0, done.stderr
    pushed = json.loads(done.stdout)["variants"]
    assert [(one["variant"], one["outcome"], one["repo"], one["tag"]) for one in pushed] == [
        ("full", "pushed", "rehearsal/tiny", "v1.0"),
        ("half", "pushed", "rehearsal/tiny-half", "v1.0"),
    ]


def test_one_is_pushed(push, hub, built):
    done = push("--variant", "half", "--create", "--json")
    assert json.loads(done.stdout)["repo"] == "rehearsal/tiny-half"
    assert not any("rehearsal/tiny/" in path for _, path in hub.requests)


def test_a_directory_is_pushed_to_where_its_variant_goes(push, hub, built):
    done = push("dist/tiny-half", "--create", "--json")
    assert json.loads(done.stdout)["repo"] == "rehearsal/tiny-half"


def test_nothing_is_pushed_where_one_is_not_built(command, push, hub, recipe):
    command("build", "--variant", "full")
    done = push("--variant", "all", "--create")
    assert (done.returncode, "dist/tiny-half: is not a directory" in done.stderr) == (2, True)
    assert hub.requests == []


def test_the_first_that_is_refused_ends_it(push, hub, built):
    done = push("--variant", "all", "--json")
    assert done.returncode == 2
    assert outcomes(done) == {"full": "failed", "half": "not tried"}


def test_the_flags_of_a_push_are_said_again(push, hub, built):
    done = push("--variant", "all", "--private", "--dry-run")
    assert "would be pushed 0 of 2 variants\nnot planned: full, half (needs full)\n" in done.stderr
    assert "next: repokit push --private --dry-run --variant full --variant half\n" in done.stderr


def test_the_directory_is_named_in_what_comes_next(push, hub, built):
    assert "repokit push dist/tiny rehearsal/tiny --create" in push("dist/tiny").stderr


def test_a_second_push_has_nothing_to_do(command, push, hub, recipe):
    recipe.write_text(RECIPE.replace("push: {tag: v1.0}\n", ""))
    command("build", "--variant", "all")
    push("--variant", "all", "--create")
    done = push("--variant", "all")
    assert (done.returncode, done.stdout.count("nothing to push, already at commit")) == (0, 2)


def test_a_dry_run_of_all_touches_nothing(push, hub, built):
    done = push("--variant", "all", "--create", "--dry-run", "--json")
    assert outcomes(done) == {"full": "would be pushed", "half": "would be pushed"}
    assert all(method in {"GET", "HEAD"} or "validate-yaml" in path for method, path in hub.requests)


def test_a_directory_and_a_variant_are_two_answers(push, recipe):
    done = push("dist/tiny", "--variant", "full")
    assert (done.returncode, "--variant says which directory is pushed" in done.stderr) == (2, True)


def test_without_a_directory_or_a_variant_there_is_nothing_to_push(push, recipe):
    done = push()
    assert (done.returncode, "names no directory" in done.stderr) == (2, True)


def test_a_directory_that_no_variant_builds(push, recipe, tmp_path):
    done = push("checkpoint", "--recipe", "repokit.yaml")
    assert (done.returncode, "none of the 2 variants of repokit.yaml builds checkpoint" in done.stderr) == (2, True)
