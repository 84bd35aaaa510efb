"""A repository behind an address: fsspec's own file systems, in memory and on the disk."""

from __future__ import annotations

import importlib

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, strategies as st

from repokit.errors import LimitExceeded, MalformedFile, MissingInput, PlanError, UsageError
from repokit.formats.safetensors import FIRST_READ
from repokit.formats.urls import Found, Url, is_url, place, scrubbed, shown
from repokit.linter.examples import sharded, single
from repokit.repo import remote_directory, remote_files
from repokit.repo.directory import Directory
from repokit.repo.remote_directory import RemoteDirectory
from repokit.repo.repository import Repository
from repokit.repo.source import Entry, Kind


@pytest.fixture
def bucket(monkeypatch):
    """A store of this test's own in memory, as a mapping of addresses without `memory://`."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])

    def fill(files, root="bucket/model"):
        system = fsspec.filesystem("memory")
        for path, content in files.items():
            system.pipe_file(f"/{root}/{path}", content)
        return Url.parse(f"memory://{root}")

    return fill


@pytest.fixture
def asked(monkeypatch):
    """Calls of the store: `find`, `info`, and each range as (path, start, end)."""
    calls = []
    for name in ("find", "info"):
        real = getattr(MemoryFileSystem, name)
        monkeypatch.setattr(
            MemoryFileSystem,
            name,
            lambda self, *args, _real=real, _name=name, **options: calls.append(_name) or _real(self, *args, **options),
        )
    real_cat = MemoryFileSystem.cat_file

    def cat_file(self, path, start=None, end=None, **options):
        calls.append((path.rpartition("/")[2], start or 0, end))
        return real_cat(self, path, start, end, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    return calls


def on_disk(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


# ------------------------------------------------------------------------------------------------ as a Source


@pytest.fixture(params=["memory", "file"])
def opened(request, bucket, tmp_path):
    """The same files behind two protocols."""

    def open_(files):
        if request.param == "memory":
            return RemoteDirectory(bucket(files))
        return RemoteDirectory(Url.parse(f"file://{on_disk(tmp_path / 'model', files)}"))

    return open_


FILES = {"config.json": b"{}", "b/c.txt": b"0123456789", "a.txt": b""}


def test_every_file_is_listed_sorted(opened):
    expected = {"a.txt": Entry(0), "b/c.txt": Entry(10), "config.json": Entry(2)}
    assert list(opened(FILES).entries().items()) == list(expected.items())


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, 1, b""),
        (99, None, b""),
        (0, 0, b""),
    ],
)
def test_a_range_is_read_as_of_a_directory(opened, offset, length, expected):
    assert opened(FILES).read("b/c.txt", offset, length) == expected


def test_an_empty_file_is_empty(opened):
    assert opened(FILES).read("a.txt") == b""


def test_what_is_not_there_is_said_to_be_missing(opened):
    with pytest.raises(MissingInput, match=r"gone\.txt: is not in the repository"):
        opened(FILES).read("gone.txt")


def test_folders_of_tools_are_no_content(opened):
    source = opened(
        {**FILES, ".git/config": b"x", "b/.cache/x": b"x", "__pycache__/m.pyc": b"x", ".gitattributes": b"x"}
    )
    assert set(source.entries()) == {*FILES, ".gitattributes"}


def test_a_folder_with_the_name_of_a_file_is_listed(opened):
    source = opened({"model.safetensors/a": b"x"})
    assert source.entries()["model.safetensors"] == Entry(0, Kind.FOLDER)
    with pytest.raises(MissingInput, match="is a folder"):
        source.read("model.safetensors")


@pytest.mark.parametrize("files", [single(), sharded()], ids=["single", "sharded"])
def test_a_repository_is_what_it_is_in_a_directory(opened, tmp_path, files):
    here = Repository(Directory(on_disk(tmp_path / "here", files)))
    there = Repository(opened(files))
    assert dict(there.files) == dict(here.files)
    for path in here.files:
        assert there.content(path) == here.content(path), path
        if path.endswith(".safetensors"):
            assert there.header(path) == here.header(path)


@given(data=st.data())
def test_any_range_is_that_of_the_file(data):
    content = bytes(range(256)) * 40
    fsspec.filesystem("memory").pipe_file("/ranges/model.bin", content)
    source = RemoteDirectory(Url.parse("memory://ranges"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_directory, "_BLOCK", data.draw(st.integers(1, 4000)))
        for _ in range(4):
            offset = data.draw(st.integers(0, len(content) + 5))
            length = data.draw(st.none() | st.integers(0, len(content) + 5))
            end = None if length is None else offset + length
            assert source.read("model.bin", offset, length) == content[offset:end]


# ------------------------------------------------------------------------------------------------ requests


def test_headers_are_read_with_one_request_a_shard_and_no_weights(bucket, asked):
    files = sharded()
    repository = Repository(RemoteDirectory(bucket(files)))
    shards = [path for path in files if path.endswith(".safetensors")]
    headers = [repository.header(path) for path in shards]
    assert [len(header.tensors) > 0 for header in headers] == [True] * len(shards)
    assert sorted(asked, key=str) == sorted(
        ["find", *((path, 0, min(FIRST_READ, len(files[path]))) for path in shards)], key=str
    )


def test_of_a_large_file_no_more_than_the_header_is_asked_for(bucket, asked):
    header = b'{"w":{"dtype":"U8","shape":[1000000],"data_offsets":[0,1000000]}}'
    content = len(header).to_bytes(8, "little") + header + bytes(1_000_000)
    repository = Repository(RemoteDirectory(bucket({"model.safetensors": content})))
    assert repository.header("model.safetensors").tensors[0].name == "w"
    assert asked == ["find", ("model.safetensors", 0, FIRST_READ)]


def test_a_long_header_takes_one_request_more(bucket, asked):
    header = b'{"w":{"dtype":"U8","shape":[9],"data_offsets":[0,9]},"__metadata__":{"x":"' + b"y" * FIRST_READ + b'"}}'
    content = len(header).to_bytes(8, "little") + header + bytes(9)
    repository = Repository(RemoteDirectory(bucket({"model.safetensors": content})))
    assert repository.header("model.safetensors").tensors[0].name == "w"
    assert asked[1:] == [("model.safetensors", 0, FIRST_READ), ("model.safetensors", FIRST_READ, len(header) + 8)]


def test_what_only_calls_itself_safetensors_is_malformed(bucket):
    repository = Repository(RemoteDirectory(bucket({"model.safetensors": b"\xff" * 100})))
    with pytest.raises(MalformedFile):
        repository.header("model.safetensors")


def test_neighbouring_ranges_take_one_request(bucket, asked):
    source = RemoteDirectory(bucket({"model.bin": bytes(1000)}))
    for offset in range(0, 1000, 100):
        source.read("model.bin", offset, 100)
    assert asked == ["find", ("model.bin", 0, 1000)]


# ------------------------------------------------------------------------------------------------ what may be there


@pytest.mark.parametrize("name", ["../escape.txt", "a/../../b.txt", "a//b.txt", "./x.txt", "/x.txt"])
def test_a_name_that_no_repository_has_is_refused(bucket, monkeypatch, name):
    root = bucket({"config.json": b"{}"})
    file = MemoryFileSystem.store["/bucket/model/config.json"]
    MemoryFileSystem.store[f"/bucket/model/{name}"] = file
    with pytest.raises(MalformedFile, match="is the name of no file"):
        RemoteDirectory(root).entries()


@pytest.mark.parametrize("name", ["C:x.txt", "a\\b.txt", "x\nfake: ok", "\u202etxt.exe", "con"])
def test_a_name_that_a_disk_can_have_is_listed_for_the_rules(opened, name):
    assert name in opened({name: b"x"}).entries()


def test_a_folder_full_of_logs_is_passed_over_in_a_checkpoint(bucket, monkeypatch):
    monkeypatch.setattr(remote_directory, "MAX_BELOW", 2)
    root = bucket({"config.json": b"{}", "wandb/a": b"", "wandb/b": b"", "wandb/c/d": b"", "a/b": b"", "a/c": b""})
    source = RemoteDirectory(root, lenient=True)
    assert set(source.entries()) == {"config.json", "a/b", "a/c"}
    assert source.unlisted == {"wandb/": "has more than 2 files"}
    assert "wandb/a" in RemoteDirectory(root).entries()


def test_of_a_checkpoint_it_is_passed_over_and_said(bucket):
    root = bucket({"config.json": b"{}"})
    MemoryFileSystem.store["/bucket/model/../x"] = MemoryFileSystem.store["/bucket/model/config.json"]
    source = RemoteDirectory(root, lenient=True)
    assert set(source.entries()) == {"config.json"}
    assert source.unlisted == {"../x": "leaves the repository"}


def test_deeper_than_any_repository_is_refused(bucket):
    with pytest.raises(LimitExceeded, match="nested deeper"):
        RemoteDirectory(bucket({"a/" * 40 + "x": b""})).entries()


def test_more_files_than_the_hub_takes_are_refused(bucket, monkeypatch):
    monkeypatch.setattr(remote_directory, "MAX_FILES", 3)
    with pytest.raises(LimitExceeded, match="more than 3 files"):
        RemoteDirectory(bucket(dict.fromkeys("abcd", b""))).entries()


def test_a_link_on_a_disk_is_not_followed(tmp_path):
    folder = on_disk(tmp_path / "model", {"config.json": b"{}"})
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    source = RemoteDirectory(Url.parse(f"file://{folder}"))
    assert source.entries()["notes.txt"].kind is Kind.OUTSIDE_LINK
    with pytest.raises(MissingInput, match="is a link"):
        source.read("notes.txt")


def test_a_folder_that_may_not_be_listed_is_an_error(tmp_path, monkeypatch):
    import os

    folder = on_disk(tmp_path / "model", {"a/b.txt": b"x"})
    real = os.scandir

    def scandir(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(MissingInput, match="may not be listed: Permission denied"):
        RemoteDirectory(Url.parse(f"file://{folder}")).entries()


def test_one_file_alone_needs_no_listing(bucket, asked):
    root = bucket({"model.safetensors": single()["model.safetensors"], "other.txt": b""})
    source = RemoteDirectory(root, only="model.safetensors")
    assert set(source.entries()) == {"model.safetensors"}
    assert asked == ["info"]


# ------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize("text", ["s3://b/x", "HF://a/b", "file:///x", "zip://a::s3://b/c", "simplecache::s3://b/c"])
def test_an_address_is_told_from_a_path(text):
    assert is_url(text)


@pytest.mark.parametrize("text", ["./s3", "a/b", "C:\\x", "/a://b", "", "org/name@main", "://x", "9p://x"])
def test_a_path_is_no_address(text):
    assert not is_url(text)


def test_a_word_of_a_recipe_is_joined_only_where_it_is_a_path(tmp_path):
    assert place(tmp_path, "./run") == tmp_path / "run"
    assert place(tmp_path, "s3://bucket/run/") == Url("s3", "bucket/run")


def test_places_above_and_below():
    url = Url.parse("s3://bucket/run/checkpoint-5")
    assert (str(url / "a/b.json"), (url / "a/b.json").name) == ("s3://bucket/run/checkpoint-5/a/b.json", "b.json")
    assert [str(above) for above in url.parents] == ["s3://bucket/run", "s3://bucket"]
    assert Url.parse("s3://bucket").parent == Url.parse("s3://bucket")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://b/x", "s3://b/x"),
        ("gcs://b/x", "gs://b/x"),
        ("S3://b/x/", "s3://b/x"),
        ("memory:///b/x", "memory://b/x"),
        ("local:///b", "file:///b"),
    ],
)
def test_two_spellings_of_one_place_are_one(one, other):
    assert Url.parse(one) == Url.parse(other)


@pytest.mark.parametrize("text", ["s3://", "s3:///", "zip://a.zip::s3://b/c", "s3://b/../c", "s3://b/./c"])
def test_what_leads_nowhere_is_refused(text):
    with pytest.raises(UsageError):
        Url.parse(text)


SECRETS = [
    (
        "https://host/f.safetensors?X-Amz-Signature=CANARY&versionId=3",
        "https://host/f.safetensors?X-Amz-Signature=*&versionId=3",
    ),
    ("https://CANARY@host/f", "https://*@host/f"),
    ("sftp://me:CANARY@host/run", "sftp://*@host/run"),
    ("sftp://me:CAN/CANARY@host/run", "sftp://*@host/run"),
    ("ftp://me:CANARY@host:21/run", "ftp://*@host:21/run"),
    ("https://host/f?CANARY", "https://host/f?*"),
    ("https://host/f?x=CANARY;sig=CANARY2&y", "https://host/f?x=*;sig=*&*"),
    ("https://host/f?download=true;X-Sig=CANARY", "https://host/f?download=true;X-Sig=*"),
    ("https://host/f?revision=CANARY%3Dx", "https://host/f?revision=*"),
    ("https://host/a;sig=CANARY/f", "https://host/a;sig=*/f"),
    ("dbfs://CANARY@host/f", "dbfs://*@host/f"),
]


@pytest.mark.parametrize(("address", "expected"), SECRETS)
def test_what_is_secret_in_an_address_is_not_in_its_text(address, expected):
    import re

    url = Url.parse(address)
    for text in (str(url), repr(url), str(url / "x"), str(url.parent), shown(address)):
        assert "CANARY" not in text
    assert re.sub(r"\*{3}\d*", "*", str(url)) == expected
    assert url.address == address


@pytest.mark.parametrize(("address", "_expected"), SECRETS)
def test_its_text_opens_it_again_in_this_process(address, _expected):
    assert Url.parse(str(Url.parse(address))).address == address


@pytest.mark.parametrize(
    "address",
    [
        "s3://host/x",
        "abfs://box@account.dfs.core.windows.net/x",
        "hf://org/name@main",
        "sftp://me@host/x",
        "s3://host/a;x=1#2",
        "http://host:80/a@b",
    ],
)
def test_what_is_no_secret_is_shown(address):
    assert str(Url.parse(address)) == address


@pytest.mark.parametrize("address", ["https://host/f#access_token=CANARY", "https://host/f?x=1#access_token=CANARY"])
def test_a_fragment_is_refused_and_not_shown(address):
    with pytest.raises(UsageError, match="has a fragment") as caught:
        Url.parse(address)
    assert "CANARY" not in str(caught.value)


def test_two_secrets_are_two_marks():
    one, other = (str(Url.parse(f"https://host/f?id={number}")) for number in ("first", "second"))
    assert one != other


def test_a_key_in_the_address_of_a_bucket_is_refused_without_showing_it():
    with pytest.raises(UsageError) as caught:
        Url.parse("s3://AKIA:CANARY/x@bucket/y")
    assert "CANARY" not in f"{caught.value} {caught.value.hint} {caught.value.why}"


def test_a_mark_of_another_process_opens_nothing():
    with pytest.raises(UsageError, match="written without its credentials"):
        _ = Url.parse("sftp://***987@host/x").address


@pytest.mark.parametrize(
    "message", ["login me:CAN/ARY failed", "for CAN%2FARY", "bucket me:CAN", "ARYlike ARYX/CAN/ARY"]
)
def test_a_message_of_a_library_does_not_give_it_away(message):
    Url.parse("sftp://me:CANX/ARYX@host/run")
    Url.parse("sftp://me:CAN/ARY@host/run")
    assert "CAN/ARY" not in scrubbed(message)
    assert "CAN%2FARY" not in scrubbed(message)


# ------------------------------------------------------------------------------------------------ errors


class Refusing(MemoryFileSystem):
    """A store that raises what a test wants, as the packages behind fsspec do."""

    protocol = "refusing"
    raised: BaseException = OSError()

    def find(self, *_arguments, **_options):
        raise self.raised

    cat_file = info = rm_file = _open = find


@pytest.fixture
def refusing(monkeypatch):
    fsspec.register_implementation("refusing", Refusing, clobber=True)

    def fail(error):
        monkeypatch.setattr(Refusing, "raised", error)
        return Url.parse("refusing://bucket/model")

    return fail


class ClientError(Exception):
    """As botocore's: of no class that Python knows."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("The specified bucket does not exist"), "does not exist"),
        (PermissionError("Access Denied"), "may not be listed: Access Denied"),
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(111, "Connection refused"), "could not be listed: Connection refused"),
        (ClientError("Could not connect\nto the endpoint"), "could not be listed: Could not connect to the endpoint"),
        (ClientError(), "could not be listed: ClientError"),
        (NotImplementedError(), "does not offer that"),
    ],
)
def test_what_a_store_raises_is_said_in_words(refusing, error, words):
    with pytest.raises(MissingInput) as caught:
        RemoteDirectory(refusing(error)).entries()
    assert str(caught.value).startswith("refusing://bucket/model: ")
    assert words in str(caught.value)
    assert caught.value.hint or "offer" in words
    assert caught.value.__suppress_context__


def test_memory_that_ended_is_not_an_error_of_the_store(refusing):
    with pytest.raises(MemoryError):
        RemoteDirectory(refusing(MemoryError())).entries()


def test_a_protocol_that_nobody_knows_is_named_with_those_that_are():
    with pytest.raises(UsageError, match="nosuch:// is no protocol") as caught:
        RemoteDirectory(Url.parse("nosuch://b/x")).entries()
    assert "s3://" in caught.value.hint


def test_a_package_that_is_missing_is_named_with_the_command(monkeypatch):
    registry = importlib.import_module("fsspec.registry")  # `fsspec.registry` is a mapping of that name
    monkeypatch.setitem(registry.known_implementations, "gs", {"class": "no_such_package.System", "err": "Install it"})
    monkeypatch.delitem(registry._registry, "gs", raising=False)
    with pytest.raises(UsageError, match="gs:// needs a package") as caught:
        RemoteDirectory(Url.parse("gs://b/x")).entries()
    assert caught.value.hint == "pip install gcsfs"


def test_a_server_that_gives_no_ranges_is_refused_instead_of_downloaded(bucket, monkeypatch):
    root = bucket({"model.bin": bytes(1000)})
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *_arguments, **_options: bytes(1000))
    with pytest.raises(MissingInput, match="gives no ranges"):
        remote_files.read(root / "model.bin", 10, 20)


# ------------------------------------------------------------------------------------------------ what tells contents apart


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            {"size": 3, "ETag": '"abc-2"', "LastModified": "2026-01-01T00:00:00+00:00"},
            Found(3, "ETag:abc-2", 1767225600.0),
        ),
        ({"size": 3, "mtime": 5.5, "created": 9}, Found(3, "time:5.500000", 5.5)),
        ({"size": None}, Found(None)),
        ({"size": -1, "etag": ""}, Found(None)),
        ({"size": 3, "LastModified": "nonsense"}, Found(3)),
    ],
)
def test_what_a_store_says_of_a_file(info, expected):
    assert remote_files.told(info) == expected


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        (Found(3, "ETag:a"), False),
        (Found(4, "ETag:a"), True),
        (Found(3, "ETag:b"), True),
        (Found(3, "time:1.0"), False),
        (Found(3), False),
    ],
)
def test_only_what_is_certainly_another_file_has_changed(now, changed):
    assert now.differs(3, "ETag:a") is changed


def test_files_of_one_folder_are_looked_up_with_one_listing(bucket, asked):
    root = bucket(dict.fromkeys("abc", b"xx"))
    found = remote_files.looked_up_again([root / name for name in "abc"])
    assert asked == ["find"]
    assert {url.name: one.size for url, one in found.items()} == dict.fromkeys("abc", 2)


@pytest.mark.parametrize("number", [1, 4])
def test_a_file_that_is_gone_is_named(bucket, number):
    root = bucket(dict.fromkeys("abcd"[: number - 1], b"xx"))
    with pytest.raises(MissingInput, match="bucket/model/z: does not exist"):
        remote_files.looked_up_again([root / name for name in ("abcd"[: number - 1] + "z")])


# ------------------------------------------------------------------------------------------------ from end to end


class Counting:
    """A file in memory that counts how it is read."""

    def __init__(self, content):
        self.content = content
        self.calls = []

    def __call__(self, _url, offset, length):
        self.calls.append((offset, length))
        return self.content[offset : offset + length]


def pieces(content, ranges):
    """What a shard reads: each piece in chunks, as the reader of a plan does."""
    found = b""
    for offset, length in ranges:
        for done in range(0, length, 7):
            buffer = memoryview(bytearray(min(7, length - done)))
            content.fill(buffer, offset + done, length - done)
            found += bytes(buffer)
    return found


@given(data=st.data())
def test_pieces_are_read_wherever_they_lie(data):
    content = bytes(range(256))
    ranges = data.draw(
        st.lists(st.tuples(st.integers(0, 255), st.integers(0, 60)).filter(lambda it: sum(it) <= 256), max_size=12)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_files.Ranges, "BLOCK", data.draw(st.integers(1, 80)))
        patch.setattr(remote_files.Ranges, "LEAST", data.draw(st.integers(1, 40)))
        found = pieces(remote_files.Ranges(Url.parse("memory://x/y"), Counting(content)), ranges)
    assert found == b"".join(content[offset : offset + length] for offset, length in ranges)


def test_pieces_that_follow_one_another_take_one_request_a_block(monkeypatch):
    monkeypatch.setattr(remote_files.Ranges, "BLOCK", 1000)
    monkeypatch.setattr(remote_files.Ranges, "LEAST", 10)
    counting = Counting(bytes(10_000))
    pieces(remote_files.Ranges(Url.parse("memory://x/y"), counting), [(at, 50) for at in range(0, 10_000, 50)])
    assert len(counting.calls) <= 12


def test_a_piece_far_away_does_not_bring_a_whole_block(monkeypatch):
    monkeypatch.setattr(remote_files.Ranges, "BLOCK", 1000)
    monkeypatch.setattr(remote_files.Ranges, "LEAST", 10)
    counting = Counting(bytes(10_000))
    pieces(remote_files.Ranges(Url.parse("memory://x/y"), counting), [(0, 20), (5000, 20), (200, 20)])
    assert counting.calls == [(0, 20), (5000, 20), (200, 20)]


def test_a_file_that_ends_before_is_said_to_be_shorter():
    ranges = remote_files.Ranges(Url.parse("memory://x/y"), Counting(b"abc"))
    with pytest.raises(PlanError, match="has become shorter"):
        ranges.fill(memoryview(bytearray(5)), 0, 5)


def test_what_stands_in_memory_at_once_is_one_request():
    counting = Counting(bytes(range(100)))
    buffer = memoryview(bytearray(40))
    remote_files.Ranges(Url.parse("memory://x/y"), counting).whole(buffer, 30)
    assert (bytes(buffer), counting.calls) == (bytes(range(30, 70)), [(30, 40)])
