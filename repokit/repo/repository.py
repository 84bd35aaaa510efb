"""Repository: lists once, reads once, parses once, and remembers what did not parse."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from repokit.errors import InputError, LimitExceeded, MalformedFile
from repokit.formats.safetensors import Header, read_header
from repokit.formats.strict_json import loads
from repokit.repo.config import CONFIG, Config
from repokit.repo.document import Document
from repokit.repo.source import Kind

if TYPE_CHECKING:
    from types import TracebackType

    from repokit.architectures.live import Live
    from repokit.repo.card import ModelCard
    from repokit.repo.chat_template import ChatTemplates
    from repokit.repo.gguf import GgufFiles
    from repokit.repo.identity import Identity
    from repokit.repo.pickles import Pickles
    from repokit.repo.source import Entry, Source
    from repokit.repo.tokenizer import Tokenizer
    from repokit.repo.value_stream import Progress
    from repokit.repo.weight_values import Values
    from repokit.repo.weights import Weights
    from repokit.repo.worker import Worker

MAX_TEXT: Final = 256 * 1024 * 1024  # what is parsed is held whole; a larger "text" file is none

# What at least one of stands at the top of every repository of a model, whatever its library.
_OF_MODEL = re.compile(
    r"[^/]*config[^/]*\.(?:json|yaml|yml)|params\.json|model_index\.json|modules\.json|tokenizer[^/]*"
    r"|[^/]+\.(?:safetensors|bin|pt|pth|ckpt|gguf|onnx|h5|keras|msgpack|pkl|joblib|tflite|mlmodel|nemo)"
)

# What is remembered and follows from one file alone.
_OF_ONE_FILE: Final = frozenset({"content", "text", "head", "json", "header"})

_Value = TypeVar("_Value")


class facet(Generic[_Value]):  # noqa: N801 - reads like property and cached_property
    """A property that is worked out once. An error is kept too: a broken file is not parsed for every rule anew."""

    def __init__(self, build: Callable[[Any], _Value]) -> None:
        self.build = build
        self.name = build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Repository, owner: type) -> _Value: ...
    def __get__(self, instance: Repository | None, owner: type) -> _Value | Self:
        if instance is None:
            return self
        return instance.remember(("facet", self.name), lambda: self.build(instance))


class Repository:
    """A read-only view of one repository.

    A facet is None where its file is absent and raises MalformedFile where it does not parse.

    Attributes:
        live: Derives the skeleton of a class that the data does not cover; None: nobody asked for that.
        base: config.json of the base model of an adapter, where the caller has it.
        identity: What is known of the model beside its files: by the recipe that builds it, or its address.
        base_model: The base model itself, where the caller has its folder.
        deep: Whether values of tensors are judged, so that rules over headers leave to others what these know better.
        jobs: Threads that read values.
        progress: Told of the bytes that they have read.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.live: Live | None = None
        self.base: Mapping[str, Any] | None = None
        self.identity: Identity | None = None
        self.base_model: Repository | None = None
        self.deep = False
        self.jobs = 2
        self.progress: Progress | None = None
        self._known: dict[tuple[str, str], Any] = {}
        self._errors: dict[tuple[str, str], InputError] = {}
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the limited worker, if one was started."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def over(self, source: Source, changed: Collection[str]) -> Repository:
        """A view of a source that differs from this one's, with what this one was given, and its worker.

        Args:
            source: The other content.
            changed: Paths at which it differs; whatever was read elsewhere is not read again.
        """
        view = Repository(source)
        given = {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "source"}
        vars(view).update(given, _worker=self.worker)
        view._known = {
            key: value for key, value in self._known.items() if key[0] in _OF_ONE_FILE and key[1] not in changed
        }
        return view

    # ---------------------------------------------------------------- files

    @facet
    def files(self) -> Mapping[str, Entry]:
        """Every file by path, sorted."""
        return self.source.entries()

    @property
    def holds_model(self) -> bool:
        """Whether anything is of a model: a config or weights at the top, of whatever library; GGUF in folders too."""
        return any(_OF_MODEL.fullmatch(path) or path.endswith(".gguf") for path in self.files)

    def has(self, path: str) -> bool:
        """Whether the repository holds this file, readable or not."""
        return path in self.files

    def under(self, folder: str) -> list[str]:
        """Paths below a folder (`folder/...`)."""
        return [path for path in self.files if path.startswith(folder.rstrip("/") + "/")]

    def content(self, path: str) -> bytes | None:
        """The whole of a small file; None where it is absent or cannot be opened (a broken link).

        Raises:
            LimitExceeded: Larger than MAX_TEXT.
        """
        return self.remember(("content", path), lambda: self._content(path))

    def glance(self, path: str) -> bytes | None:
        """The same, without keeping it: for whoever looks at every file once.

        Raises:
            LimitExceeded: Larger than MAX_TEXT.
        """
        known = self._known.get(("content", path))
        return known if isinstance(known, bytes) else self._content(path)

    def text(self, path: str) -> str | None:
        """A small file as text; None where it is absent or cannot be opened.

        Raises:
            MalformedFile: It is not UTF-8.
        """
        return self.remember(("text", path), lambda: self._text(path))

    def head(self, path: str) -> bytes:
        """The first 64 bytes of a file, which say what it is; b"" where it cannot be opened."""
        return self.remember(("head", path), lambda: self._head(path))

    def json(self, path: str) -> Any:  # noqa: ANN401 - whatever the document holds
        """The parsed document, or None where the file is absent.

        Raises:
            MalformedFile: It is not strict JSON.
        """
        return self.remember(("json", path), lambda: self._json(path))

    def document(self, path: str) -> Document | None:
        """The JSON object in a file, or None where it is absent.

        Raises:
            MalformedFile: It is not strict JSON, or not an object.
        """
        raw = self._object(path)
        return None if raw is None else Document(path, raw)

    def header(self, path: str) -> Header:
        """The header of one .safetensors file.

        Raises:
            MalformedFile: safetensors would refuse the file.
            MissingInput: It is not in the repository.
        """
        return self.remember(("header", path), lambda: self._header(path))

    # ---------------------------------------------------------------- facets

    @facet
    def config(self) -> Config | None:
        raw = self._object(CONFIG)
        return None if raw is None else Config(CONFIG, raw)

    @facet
    def generation_config(self) -> Document | None:
        return self.document("generation_config.json")

    @facet
    def tokenizer_config(self) -> Document | None:
        return self.document("tokenizer_config.json")

    @facet
    def special_tokens_map(self) -> Document | None:
        return self.document("special_tokens_map.json")

    @facet
    def adapter_config(self) -> Document | None:
        return self.document("adapter_config.json")

    @facet
    def weights(self) -> Weights:
        from repokit.repo.weights import Weights

        return Weights(self)

    @facet
    def values(self) -> Values:
        from repokit.repo.weight_values import Values

        return Values(self)

    @facet
    def pickles(self) -> Pickles:
        from repokit.repo.pickles import Pickles

        return Pickles(self)

    @facet
    def gguf(self) -> GgufFiles:
        from repokit.repo.gguf import GgufFiles

        return GgufFiles(self)

    @facet
    def tokenizer(self) -> Tokenizer | None:
        from repokit.repo.tokenizer import Tokenizer

        return Tokenizer.of(self)

    @facet
    def chat_templates(self) -> ChatTemplates:
        from repokit.repo.chat_template import ChatTemplates

        return ChatTemplates.of(self)

    @facet
    def card(self) -> ModelCard | None:
        from repokit.repo.card import ModelCard

        return ModelCard.of(self)

    @property
    def worker(self) -> Worker:
        """The limited child process; started by its first request."""
        if self._worker is None:
            from repokit.repo.worker import Worker

            self._worker = Worker()
        return self._worker

    # ---------------------------------------------------------------- how they are read

    def remember(self, key: tuple[str, str], build: Callable[[], _Value]) -> _Value:
        """What `build` gave or raised the first time it was asked for."""
        if key in self._errors:
            raise self._errors[key]
        if key not in self._known:
            try:
                self._known[key] = build()
            except InputError as error:
                self._errors[key] = error.with_traceback(None)
                raise
        value: _Value = self._known[key]
        return value

    def _content(self, path: str) -> bytes | None:
        entry = self.files.get(path)
        if entry is None or entry.kind is not Kind.FILE:
            return None
        if entry.size > MAX_TEXT:
            raise LimitExceeded(f"has {entry.size:,} bytes, more than any real file of its kind", path=path)
        return self.source.read(path)

    def _text(self, path: str) -> str | None:
        content = self.content(path)
        try:
            return None if content is None else content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1 if content else 1
            raise MalformedFile("is not UTF-8", why="no reader takes it", path=path, place=f"line {line}") from None

    def _head(self, path: str) -> bytes:
        entry = self.files.get(path)
        return b"" if entry is None or entry.kind is not Kind.FILE else self.source.read(path, 0, 64)

    def _json(self, path: str) -> Any:  # noqa: ANN401 - whatever the document holds
        content = self.content(path)
        # Real configs have Infinity in them (Mamba's time_step_limit); a rule speaks of it, and the others still run.
        return None if content is None else loads(content, path, infinity=True)

    def _object(self, path: str) -> dict[str, Any] | None:
        raw = self.json(path)
        if raw is None and self.content(path) is None:
            return None
        if not isinstance(raw, dict):
            raise MalformedFile("is not a JSON object", why="every reader expects an object", path=path)
        return raw

    def _header(self, path: str) -> Header:
        entry = self.files.get(path)
        size = 0 if entry is None else entry.size
        return read_header(lambda offset, length: self.source.read(path, offset, length), size, path)
