from __future__ import annotations

import ntpath
import posixpath

import pytest
from hypothesis import example, given, settings, strategies as st

from repokit.formats.paths import is_local, is_repo_id, unsafe

PARTS = st.sampled_from(
    ["..", ".", "", "a", "b.json", "~", "con", "C:", "\\", "..\\", "\u202e", "\uff0e\uff0e", "a..b", "...", " "]
)
PATHS = st.one_of(st.lists(PARTS, max_size=5).map("/".join), st.text(max_size=20))


@settings(max_examples=500, deadline=None)
@given(PATHS)
@example("a/../../b")
@example("a/..\\..\\b")
def test_what_is_safe_stays_inside_the_folder_on_every_system(path):
    if unsafe(path) is None:
        assert posixpath.normpath(posixpath.join("/root", path)) == "/root/" + path
        assert ntpath.normpath(ntpath.join("C:\\root", path)).startswith("C:\\root\\")


@settings(max_examples=500, deadline=None)
@given(PATHS)
def test_a_reason_is_a_phrase_about_the_path(path):
    assert (unsafe(path) or "is fine").split()[0] in {"is", "has", "leaves"}


@pytest.mark.parametrize(
    "path",
    [
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
        ".gitattributes",
        "a b/größe (1).json",
        "..a/b..c/...",
        "console.json",
        "com/nul_.txt",
        "x" * 255,
    ],
)
def test_ordinary_paths_are_safe(path):
    assert unsafe(path) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "is empty"),
        ("../x", "leaves the repository"),
        ("a/../../x", "leaves the repository"),
        ("a/..", "leaves the repository"),
        ("\uff0e\uff0e/x", "leaves the repository"),
        ("\u2025/x", "leaves the repository"),
        ("/etc/passwd", "is absolute"),
        ("\uff0fetc/passwd", "is absolute"),
        ("~/x", "is absolute"),
        ("C:/x", "is absolute"),
        ("c:x", "is absolute"),
        ("https://example.com/x", "is absolute"),
        ("file:x", "is absolute"),
        ("a\\..\\x", "has a backslash, which is a separator on Windows only"),
        ("a\uff3cx", "has a backslash, which is a separator on Windows only"),
        ("0:x", "has a colon, which names a drive or a stream on Windows"),
        ("a/b.json:x", "has a colon, which names a drive or a stream on Windows"),
        ("a//b", "has an empty part"),
        ("a/", "has an empty part"),
        ("./a", "has an empty part"),
        ("a\0b", "has control characters"),
        ("a\nb", "has control characters"),
        ("a\u202eb", "has control characters"),
        ("a\ud800b", "has control characters"),
        ("NUL", "is a device name on Windows"),
        ("a/con.json", "is a device name on Windows"),
        ("com1.safetensors", "is a device name on Windows"),
        ("x" * 256, "is longer than file systems take"),
        ("ä" * 128, "is longer than file systems take"),
        ("/".join(["x" * 200] * 21), "is longer than file systems take"),
    ],
)
def test_what_must_not_be_followed_has_its_reason(path, reason):
    assert unsafe(path) == reason


@pytest.mark.parametrize("text", ["org/name", "gpt2", "Org-1/na.me_v2", "a/b", "o" * 96 + "/" + "n" * 96])
def test_ids_of_the_hub(text):
    assert is_repo_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b/c",
        "/a",
        "a/",
        "./a",
        "../a",
        "a b",
        "a--b",
        "a..b",
        "a/b.git",
        "a/b-",
        "a/b.",
        "ä/b",
        "a/b\n",
        "o/" + "n" * 97,
    ],
)
def test_what_is_no_id_of_the_hub(text):
    assert not is_repo_id(text)


@settings(max_examples=500, deadline=None)
@given(st.from_regex(r"[A-Za-z0-9._/-]{1,12}(?:\.git)?", fullmatch=True))
def test_an_id_is_what_the_hubs_own_client_takes_for_one(text):
    assert is_repo_id(text) == hub_takes(text)


def hub_takes(text):
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    ["/home/x/llama", "./out", "../out", "~/out", "C:\\out", "C:/out", "a\\b", "file:///x", "run/checkpoint-5/x"],
)
def test_paths_of_a_machine(text):
    assert is_local(text)


@pytest.mark.parametrize("text", ["", "gpt2", "org/name", "https://huggingface.co/org/name", "hf://org/name@main/x"])
def test_what_is_no_path_of_a_machine(text):
    assert not is_local(text)
