"""Repository: lists once, reads once, parses once, and keeps errors too."""

from __future__ import annotations

import pytest

from repokit.errors import LimitExceeded, MalformedFile, MissingInput
from repokit.linter.examples import Example
from repokit.repo import repository as module
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository
from repokit.repo.source import Entry, Kind


class Counting(Memory):
    """A source that counts how often a file is read."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.reads: list[str] = []
        self.listings = 0

    def entries(self) -> dict[str, Entry]:
        self.listings += 1
        return dict(super().entries())

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.append(path)
        return super().read(path, offset, length)


def test_files_are_listed_once() -> None:
    source = Counting({"a": b""})
    repository = Repository(source)
    assert (list(repository.files), repository.has("a"), source.listings) == (["a"], True, 1)


def test_a_document_is_read_and_parsed_once() -> None:
    source = Counting({"config.json": b'{"vocab_size": 5}'})
    repository = Repository(source)
    assert repository.config is repository.config
    assert repository.json("config.json") is repository.json("config.json")
    assert source.reads == ["config.json"]


def test_a_broken_document_is_parsed_once_too() -> None:
    source = Counting({"config.json": b"{"})
    repository = Repository(source)
    for _ in range(2):
        with pytest.raises(MalformedFile):
            _ = repository.config
    assert source.reads == ["config.json"]


@pytest.mark.parametrize("name", ["config", "generation_config", "tokenizer_config", "adapter_config", "card"])
def test_a_facet_is_none_where_its_file_is_absent(name: str) -> None:
    assert getattr(Repository(Memory({})), name) is None


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b'"text"'])
def test_a_config_is_an_object(content: bytes) -> None:
    with pytest.raises(MalformedFile, match="not a JSON object"):
        _ = Repository(Memory({"config.json": content})).config


def test_a_broken_link_has_no_content() -> None:
    repository = Repository(Memory({}, special={"config.json": Entry(0, Kind.BROKEN_LINK)}))
    assert (repository.content("config.json"), repository.head("config.json"), repository.config) == (None, b"", None)


def test_a_text_that_is_larger_than_any_real_one_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 3)
    source = Counting({"config.json": b"1234"})
    with pytest.raises(LimitExceeded):
        Repository(source).content("config.json")
    assert source.reads == []


def test_the_head_of_a_file_is_64_bytes() -> None:
    assert Repository(Memory({"a": bytes(100)})).head("a") == bytes(64)


def test_the_header_of_a_file_that_is_not_there() -> None:
    with pytest.raises((MissingInput, MalformedFile)):
        Repository(Memory({})).header("model.safetensors")


def test_files_below_a_folder() -> None:
    repository = Repository(Memory({"unet/a": b"", "unet2/a": b"", "unet": b""}))
    assert repository.under("unet") == repository.under("unet/") == ["unet/a"]


def test_what_was_worked_out_is_kept() -> None:
    calls: list[int] = []
    repository = Repository(Memory({}))
    for _ in range(2):
        assert repository.remember(("test", "a"), lambda: calls.append(1) or "value") == "value"
    assert calls == [1]


def test_none_is_kept_too() -> None:
    calls: list[int] = []
    repository = Repository(Memory({}))
    for _ in range(2):
        assert repository.remember(("test", "a"), lambda: calls.append(1)) is None
    assert calls == [1]


def test_other_errors_are_not_kept() -> None:
    """A bug is not a property of the repository."""
    repository = Repository(Memory({}))
    with pytest.raises(ZeroDivisionError):
        repository.remember(("test", "a"), lambda: 1 // 0)
    assert repository.remember(("test", "a"), lambda: 3) == 3


def test_closing_twice_is_allowed() -> None:
    repository = Repository(Example("").source())
    with repository:
        pass
    repository.close()
