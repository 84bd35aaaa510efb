"""Where a name leads. Hosts are those that huggingface_hub knows; the tests have none of their own."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from huggingface_hub import constants, parse_hf_uri
from hypothesis import given, strategies as st

from repokit.errors import UsageError
from repokit.hub.address import Address, parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DEFAULT = constants._HF_DEFAULT_ENDPOINT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", Address("org/name")),
        ("org/name@v1.0", Address("org/name", "v1.0")),
        ("org/name@refs/pr/3", Address("org/name", "refs/pr/3")),
        ("org/name@release/v1", Address("org/name", "release/v1")),
        (f"org/name@{COMMIT}", Address("org/name", COMMIT)),
        ("gpt2@main", Address("gpt2", "main")),
        ("hf://gpt2", Address("gpt2")),
        ("hf://gpt2@main/config.json", Address("gpt2", "main", "config.json")),
        ("hf://org/name", Address("org/name")),
        ("hf://org/name/", Address("org/name")),
        ("hf://models/org/name@v1", Address("org/name", "v1")),
        ("hf://org/name/a/b.json", Address("org/name", None, "a/b.json")),
        ("hf://org/name@v1/a/b.json", Address("org/name", "v1", "a/b.json")),
        ("hf://org/name@refs/pr/3", Address("org/name", "refs/pr/3")),
        ("hf://org/name@refs/pr/3/a.json", Address("org/name", "refs/pr/3", "a.json")),
        ("hf://org/name@release%2Fv1/a.json", Address("org/name", "release/v1", "a.json")),
    ],
)
def test_a_name_leads_to_a_revision(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["gpt2", ".", "./a", "../a", "~/a", "/a/b", "a/b/c", "dist/", "a\\b", "", "a b/c", "-a/b", "a/.b"]
)
def test_what_can_only_be_a_path_is_no_address(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("org/name", Address("org/name")),
        ("org/name/", Address("org/name")),
        ("org/name?library=transformers#usage", Address("org/name")),
        ("org/name/tree/main", Address("org/name", "main")),
        ("org/name/tree/v1/unet?x=y", Address("org/name", "v1", "unet")),
        ("org/name/tree/release%2Fv1/unet", Address("org/name", "release/v1", "unet")),
        ("org/name/tree/refs%2Fpr%2F3", Address("org/name", "refs/pr/3")),
        ("org/name/tree/refs/pr/3", Address("org/name", "refs/pr/3")),
        ("org/name/blob/main/config.json#L3", Address("org/name", "main", "config.json")),
        ("org/name/resolve/main/a%20b.json?download=true", Address("org/name", "main", "a b.json")),
        ("org/name/raw/main/config.json", Address("org/name", "main", "config.json")),
        (f"org/name/commit/{COMMIT}", Address("org/name", COMMIT)),
        ("org/name/commits/main", Address("org/name", "main")),
        ("org/name/discussions/12", Address("org/name", "refs/pr/12")),
        ("org/name/discussions/12/files", Address("org/name", "refs/pr/12")),
        ("org/name/discussions", Address("org/name")),
        ("org/name/settings", Address("org/name")),
        ("gpt2", Address("gpt2")),
        ("gpt2/tree/main", Address("gpt2", "main")),
        ("gpt2/discussions/4", Address("gpt2", "refs/pr/4")),
        ("org/raw/tree/main", Address("org/raw", "main")),
        ("org/tree", Address("org/tree")),
        ("api/models/org/name", Address("org/name")),
        ("api/models/org/name/revision/v1", Address("org/name", "v1")),
    ],
)
def test_a_pasted_address_leads_to_a_revision(page, expected, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", DEFAULT)
    assert parse(f"{DEFAULT}/{page}") == expected


def test_the_hub_that_is_asked_may_have_a_port_and_a_path(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9/mirror")
    assert parse("http://127.0.0.1:9/mirror/org/name/tree/v1") == Address("org/name", "v1")


@pytest.mark.parametrize("path", ["/mirrored/org/name", "/org/name", "/mirro/org/name"])
def test_what_lies_beside_the_hub_is_not_the_hub(path, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9/mirror")
    with pytest.raises(UsageError, match="not the Hub that is asked"):
        parse(f"http://127.0.0.1:9{path}")


def test_the_port_of_the_scheme_may_be_said(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.test")
    assert parse("https://hub.test:443/org/name") == parse("HTTPS://Hub.test/org/name") == Address("org/name")


@pytest.mark.parametrize("host", sorted(constants.HF_URL_HOSTS))
def test_every_name_of_the_hub_is_known(host):
    assert parse(f"https://{host}/org/name") == Address("org/name")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://127.0.0.1:8/org/name", "not the Hub that is asked"),
        ("https://127.0.0.1/org/name", "not the Hub that is asked"),
        ("https://[/org/name", "not an address"),
        (f"{DEFAULT}/", "names no repository"),
        (f"{DEFAULT}/datasets/org/name", "not a model repository"),
        (f"{DEFAULT}/spaces/org/name/tree/main", "not a model repository"),
        ("hf://datasets/org/name", "not a model repository"),
        ("hf://buckets/org/name", "not a model repository"),
        ("datasets/org/name", "not a model repository"),
        ("datasets/name", "not a model repository"),
        ("spaces/org/name@v1", "not a model repository"),
        ("hf://", "not an address"),
        ("hf:///name", "not an address"),
        ("hf://org/../name", "not the name of a repository"),
        ("hf://org/na--me", "not the name of a repository"),
        ("org/name.git@main", "not the name of a repository"),
        ("org/name@", "not the name of a revision"),
        ("org/name@a..b", "not the name of a revision"),
        ("org/name@a b", "not the name of a revision"),
        ("org/name@a\nb", "not the name of a revision"),
        ("org/name@" + "a" * 300, "not the name of a revision"),
        ("hf://org/name@%00", "not the name of a revision"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(text, words):
    with pytest.raises(UsageError, match=words) as refused:
        parse(text)
    assert refused.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1:8", "127.0.0.1:9"])
@pytest.mark.parametrize("path", ["", "/", "/org/name/tree/a..b", "/datasets/a/b", "/org/na--me", "/api/models"])
def test_a_password_in_an_address_is_not_repeated(host, path, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://me:secret@127.0.0.1:9")
    with pytest.raises(UsageError) as refused:
        parse(f"http://user:secret@{host}{path}")
    assert "secret" not in f"{refused.value} {refused.value.hint}"


def test_a_token_in_an_address_is_not_repeated():
    with pytest.raises(UsageError) as refused:
        parse(f"{DEFAULT}/org/name/tree/a..b?token=hf_{'x' * 34}")
    assert "xxx" not in str(refused.value)


@pytest.mark.parametrize(("revision", "whole"), [(COMMIT, True), (COMMIT[:7], False), ("main", False), (None, False)])
def test_only_a_whole_commit_id_is_a_commit(revision, whole):
    assert Address("org/name", revision).is_commit is whole


names = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9_])?", fullmatch=True).filter(
    lambda name: "--" not in name and ".." not in name and not name.endswith(".git")
)
revisions = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,8}(/[A-Za-z0-9_]{1,5})?", fullmatch=True).filter(
    lambda name: ".." not in name and not name.endswith((".", ".lock")) and "./" not in name and ".lock/" not in name
)
paths = st.lists(
    st.text(st.characters(blacklist_categories=["Cs"]), min_size=1).filter(lambda part: "/" not in part),
    max_size=3,
).map("/".join)


@given(names, names, revisions, paths)
def test_what_is_quoted_comes_back(org, name, revision, path):
    """As the Hub's pages write it: the revision is one segment, the path several."""
    page = f"{DEFAULT}/{org}/{name}/tree/{quote(revision, safe='')}/{quote(path)}"
    if org not in {"datasets", "spaces", "kernels", "buckets", "collections", "papers"}:
        assert parse(page) == Address(f"{org}/{name}", revision, path or None)


@given(names, names, revisions)
def test_an_address_reads_its_own_words(org, name, revision):
    address = Address(f"{org}/{name}", revision)
    assert parse(str(address)) == address


@given(names, names, revisions)
def test_uris_are_read_as_the_client_reads_them(org, name, revision):
    if org in {"datasets", "spaces", "kernels", "buckets", "models", "collections", "papers"}:
        return
    text = f"hf://{org}/{name}@{quote(revision, safe='')}/config.json"
    theirs = parse_hf_uri(text)
    assert parse(text) == Address(theirs.id, theirs.revision, theirs.path_in_repo)


@given(
    st.text(max_size=40) | st.text(max_size=40).map("hf://".__add__) | st.text(max_size=40).map(f"{DEFAULT}/".__add__)
)
def test_any_text_is_an_address_or_none_or_refused(text):
    try:
        said = str(parse(text))
    except UsageError as error:
        said = str(error)
    assert said.isprintable()
