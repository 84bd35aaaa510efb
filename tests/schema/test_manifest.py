"""repokit-manifest.json: the same for the same files, and no way out of the repository."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from repokit.schema.manifest import Manifest, ManifestFile


def entry(path="config.json", **changes):
    return {"path": path, "size": 3, "sha256": "a" * 64, "origin": "source", **changes}


def manifest(*files):
    return {"version": 1, "created_by": "repokit 0.1.0", "files": list(files)}


def test_rendered_manifest_is_read_back():
    written = Manifest.model_validate(manifest(entry("a"), entry("b/c")))
    assert Manifest.model_validate(json.loads(written.render())) == written


def test_rendering_ends_with_a_newline():
    assert Manifest.model_validate(manifest()).render().endswith(b"}\n")


@pytest.mark.parametrize("names", [("b", "a"), ("a", "a")])
def test_files_are_sorted_and_listed_once(names):
    with pytest.raises(ValidationError, match="once, sorted by path"):
        Manifest.model_validate(manifest(*map(entry, names)))


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "C:/x", "a\\b", "a\nb", "a\x00b", "a/."]
)
def test_path_out_of_the_repository_is_refused(path):
    with pytest.raises(ValidationError):
        ManifestFile.model_validate(entry(path))


@pytest.mark.parametrize(
    "change",
    [{"size": -1}, {"size": "3"}, {"sha256": "A" * 64}, {"sha256": "a" * 63}, {"sha256": "a" * 64 + "\n"}, {"time": 0}],
)
def test_wrong_entry_is_refused(change):
    with pytest.raises(ValidationError):
        ManifestFile.model_validate(entry(**change))


def test_other_version_is_refused():
    with pytest.raises(ValidationError):
        Manifest.model_validate({**manifest(), "version": 2})


@given(st.lists(st.text(st.characters(categories=("L", "N")), min_size=1), unique=True))
def test_any_files_render_to_the_same_bytes_again(names):
    files = [entry(name) for name in sorted(names)]
    assert Manifest.model_validate(manifest(*files)).render() == Manifest.model_validate(manifest(*files)).render()
