"""A directory against its manifest: nothing that differs passes, and nothing that is the same is accused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from repokit.errors import InputError, MalformedFile, MissingInput
from repokit.schema.manifest import MANIFEST_NAME, Manifest, ManifestFile
from repokit.verifier.manifest import check_files

FILES = {
    "README.md": b"# Model\n",
    "config.json": b"{}\n",
    "empty.txt": b"",
    "folder/model.safetensors": bytes(range(256)) * 9000,  # more than two chunks
}


def manifest_of(files: dict[str, bytes]) -> Manifest:
    listed = [
        ManifestFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), origin="source")
        for path, content in sorted(files.items())
    ]
    return Manifest(created_by="repokit 0", files=tuple(listed))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    root = tmp_path / "dist"
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / MANIFEST_NAME).write_bytes(manifest_of(FILES).render())
    return root


def found(directory: Path, **arguments: object) -> list[tuple[str, str]]:
    report = check_files(directory, **arguments)  # type: ignore[arg-type]
    return [(difference.path, difference.fault) for difference in report.differences]


def test_what_was_built_is_as_it_was_built(built):
    report = check_files(built)
    total = sum(map(len, FILES.values()))
    assert (report.differences, report.exit_code, report.files, report.size) == ((), 0, len(FILES), total)


def test_a_missing_file_is_a_difference(built):
    (built / "config.json").unlink()
    assert found(built) == [("config.json", "missing")]


def test_one_bit_in_the_last_chunk_is_a_difference(built):
    weights = built / "folder" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert found(built) == [("folder/model.safetensors", "changed")]


def test_another_size_is_told_in_bytes(built):
    (built / "config.json").write_bytes(b"{}")
    (difference,) = check_files(built).differences
    assert difference.what == "has 2 bytes instead of 3"


def test_a_file_that_the_manifest_does_not_name_is_a_difference(built):
    (built / "notes.txt").touch()
    assert found(built) == [("notes.txt", "added")]


@pytest.mark.parametrize("path", [".gitattributes", ".git/HEAD", ".cache/huggingface/x.metadata"])
def test_what_the_hub_and_its_tools_add_to_a_download_is_none(built, path):
    (built / path).parent.mkdir(parents=True, exist_ok=True)
    (built / path).write_text("x")
    assert found(built) == []


def test_differences_exit_with_1_and_are_sorted(built):
    (built / "a.txt").touch()
    (built / "README.md").unlink()
    (built / "config.json").write_bytes(b"[]\n")
    report = check_files(built)
    assert report.exit_code == 1
    assert [difference.path for difference in report.differences] == ["README.md", "a.txt", "config.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_not_clean(built):
    (built / "config.json").chmod(0)
    report = check_files(built)
    assert (report.of("unreadable"), report.exit_code) == (("config.json",), 2)


def test_a_file_that_goes_away_meanwhile_is_not_clean(built):
    """The largest file is read first; what is told of it is the moment in which another vanishes."""
    report = check_files(
        built, jobs=1, progress=lambda _stage, _done, _total: (built / "config.json").unlink(missing_ok=True)
    )
    assert (report.of("unreadable"), report.exit_code) == (("config.json",), 2)


def test_a_snapshot_in_a_cache_of_the_hub_is_links_and_verifies(built, tmp_path):
    cache = tmp_path / "models--org--name"
    snapshot = cache / "snapshots" / "0123abc"
    for path in [*FILES, MANIFEST_NAME]:
        content = (built / path).read_bytes()
        blob = cache / "blobs" / hashlib.sha256(content).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(os.path.relpath(blob, (snapshot / path).parent))
    assert check_files(snapshot).exit_code == 0


def test_a_link_that_leads_out_is_a_difference(built, tmp_path):
    moved = tmp_path / "elsewhere.json"
    shutil.move(built / "config.json", moved)
    (built / "config.json").symlink_to(moved)
    assert found(built) == [("config.json", "changed")]


def test_a_broken_link_is_a_missing_file(built):
    (built / "config.json").unlink()
    (built / "config.json").symlink_to("nowhere")
    assert found(built) == [("config.json", "missing")]


def test_a_pipe_in_the_place_of_a_file_does_not_hang(built):
    (built / "config.json").unlink()
    os.mkfifo(built / "config.json")
    assert found(built) == [("config.json", "changed")]


def test_the_manifest_may_lie_elsewhere(built, tmp_path):
    kept = tmp_path / "kept.json"
    shutil.move(built / MANIFEST_NAME, kept)
    assert found(built, manifest=kept) == []


def test_without_a_manifest_the_hint_names_the_flag(built):
    (built / MANIFEST_NAME).unlink()
    with pytest.raises(MissingInput, match="nothing says what was built") as caught:
        check_files(built)
    assert "--manifest" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"version": 2, "created_by": "x", "files": []}', b"\xff"])
def test_a_malformed_manifest_is_one(built, content):
    (built / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(MalformedFile):
        check_files(built)


def test_a_manifest_that_names_a_file_outside_is_refused_at_its_place(built):
    document = json.loads((built / MANIFEST_NAME).read_bytes())
    document["files"][0]["path"] = "../secret"
    (built / MANIFEST_NAME).write_text(json.dumps(document))
    with pytest.raises(MalformedFile, match=r"/files/0/path: .*inside the repository"):
        check_files(built)


@pytest.mark.parametrize("name", ["dist/config.json", "nowhere"])
def test_what_is_no_directory_is_refused(built, tmp_path, name):
    with pytest.raises(MissingInput):
        check_files(tmp_path / name)


def test_progress_ends_at_the_size_of_what_was_read(built):
    told: list[tuple[int, int]] = []
    check_files(built, progress=lambda _stage, done, total: told.append((done, total)))
    assert told[-1] == (sum(map(len, FILES.values())),) * 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "files", "size"]), inner),
    max_leaves=8,
)


@given(document=st.fixed_dictionaries({"version": st.just(1) | JSON, "created_by": st.just("x") | JSON, "files": JSON}))
def test_whatever_the_manifest_holds_the_answer_is_a_report_or_an_error_for_people(tmp_path_factory, document):
    root = tmp_path_factory.mktemp("any")
    (root / MANIFEST_NAME).write_text(json.dumps(document))
    try:
        report = check_files(root)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right, and both are looked at
    else:
        assert report.exit_code == int(report.files > 0)
