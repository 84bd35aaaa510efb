"""The tokenizer of a repository: which file decides, which ids its tokens really get, which of them are special.

Read without the tokenizers library, from the raw documents; tokenizer_trial.py asks the library.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from repokit.errors import MalformedFile, UnsupportedSource
from repokit.formats.sentencepiece import count_pieces
from repokit.repo import special_tokens
from repokit.repo.token_ids import TOKENIZER_JSON, Ids, ids_of, integer_ids, post_processor_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repokit.repo.document import Document
    from repokit.repo.repository import Repository
    from repokit.repo.special_tokens import SpecialToken

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
ADDED_TOKENS: Final = "added_tokens.json"
VOCAB_JSON: Final = "vocab.json"
VOCAB_TXT: Final = "vocab.txt"
MERGES_TXT: Final = "merges.txt"

# SentencePiece, tiktoken and tekken files by the names that loaders look for (transformers `vocab_files_names`,
# mistral_common). Their vocabularies are not read in this version.
UNREAD: Final = (
    r"(?:tokenizer\.model(?:\.v\d+\w*)?|spiece\.model|sentencepiece\.bpe\.model|sentencepiece\.model|spm(?:_char)?\.model"
    r"|source\.spm|target\.spm|prophetnet\.tokenizer|[\w.-]*\.tiktoken|tiktoken\.model|tekken\.json|bpe\.codes)"
)
_UNREAD: Final = re.compile(UNREAD)
_SENTENCEPIECE: Final = re.compile(r"tokenizer\.model(?:\.v\d+\w*)?|.*\.(?:model|spm)")

_FLAGS: Final = ("special", "normalized", "lstrip", "rstrip", "single_word")


class AddedToken(NamedTuple):
    """A token beside the model's own vocabulary.

    Attributes:
        content: Its text.
        id: What it really gets; None for an empty one, which the library leaves out.
        written: The id in the file; None where a file names it without one.
        special: Whether the file says that it is special.
        path: The file that brings it.
        place: JSON Pointer in that file.
    """

    content: str
    id: int | None
    written: int | None
    special: bool
    path: str
    place: str


class Tokenizer:
    """The files of one tokenizer.

    Attributes:
        path: The file whose vocabulary counts: tokenizer.json where there is one.
        is_read: Whether this version reads that file. Where not, only ids that tokenizer_config.json or
            added_tokens.json spell out are known.
    """

    def __init__(self, repository: Repository, path: str, base: Ids | None) -> None:
        self._repository = repository
        self.path = path
        self.is_read = base is not None
        self._base = base or Ids({}, 0)

    @classmethod
    def of(cls, repository: Repository) -> Tokenizer | None:
        """The tokenizer, or None where the repository has no vocabulary.

        Raises:
            MalformedFile: tokenizer.json is not JSON, or has no vocabulary.
        """
        document = repository.document(TOKENIZER_JSON)
        if document is not None:
            return cls(repository, TOKENIZER_JSON, ids_of(document))
        found = vocabularies(repository)
        for path in found:
            if (base := _plain(repository, path)) is not None:
                return cls(repository, path, base)
        return cls(repository, found[0], None) if found else None

    # ---------------------------------------------------------------- ids

    @cached_property
    def document(self) -> Document | None:
        """tokenizer.json."""
        return self._repository.document(TOKENIZER_JSON)

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Of the model alone, added tokens aside."""
        return self._base.vocabulary

    @cached_property
    def added(self) -> tuple[AddedToken, ...]:
        """The added tokens of tokenizer.json, in file order, with the ids that the library gives them."""
        entries = list(_entries(self.document)) if self.document is not None else []
        ids = Ids(self._base.vocabulary, self._base.count)
        ids.add(entry.content for entry in entries)
        return tuple(entry._replace(id=ids.get(entry.content) if entry.content else None) for entry in entries)

    @cached_property
    def renumbered(self) -> tuple[AddedToken, ...]:
        """Added tokens whose id in the file that adds them is not the one that they get.

        Without tokenizer.json, vocab.json and merges.txt become one when they are loaded, and added_tokens.json and
        added_tokens_decoder with them; tokenizers that are Python throughout take the ids as they are written (measured
        with transformers 5.24).
        """
        added = self.added
        if self.document is None and self.path == VOCAB_JSON and self._repository.has(MERGES_TXT):
            listed = sorted(self.written_elsewhere, key=lambda token: token.written or 0)
            ids = Ids(self._base.vocabulary, self._base.count)
            ids.add(token.content for token in listed)
            added = tuple(token._replace(id=ids.get(token.content)) for token in listed)
        return tuple(token for token in added if token.written != token.id)

    @cached_property
    def appended(self) -> tuple[AddedToken, ...]:
        """Tokens that tokenizer.json lacks and transformers gives new ids at load, because another file names them."""
        return tuple(self._with_ids(self._unknown())) if self.document is not None else ()

    @cached_property
    def written_elsewhere(self) -> tuple[AddedToken, ...]:
        """Ids of added tokens that stand beside tokenizer.json: added_tokens_decoder, else added_tokens.json."""
        config = self._repository.tokenizer_config
        if config is not None and "added_tokens_decoder" in config:
            return tuple(_decoder_entries(config.mapping("added_tokens_decoder")))
        return tuple(_encoder_entries(self._repository.document(ADDED_TOKENS)))

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Every token and its real id, appended ones included."""
        ids = self._known
        return {**ids, **{token.content: token.id for token in self.appended if token.id is not None}}

    @cached_property
    def _known(self) -> dict[str, int]:
        """Without what transformers appends. Python tokenizers honour the ids that tokenizer_config.json writes."""
        added = self.added if self.document is not None else self.written_elsewhere
        given = {token.content: token.id if self.document is not None else token.written for token in added}
        return {**self._base.vocabulary, **{content: number for content, number in given.items() if number is not None}}

    def _unknown(self) -> Iterator[AddedToken]:
        """What TokenizersBackend adds after tokenizer.json was loaded, in its order, each once."""
        seen = set(self._known)
        written = sorted(self.written_elsewhere, key=lambda token: token.written or 0)
        special = (*self.roles.values(), *self.extras)
        named = (AddedToken(token.content, None, None, True, token.path, token.place) for token in special)
        for token in (*written, *named):
            if token.content and token.content not in seen:
                seen.add(token.content)
                yield token

    def _with_ids(self, tokens: Iterator[AddedToken]) -> Iterator[AddedToken]:
        ids = Ids(self._base.vocabulary, self._base.count)
        ids.add(token.content for token in self.added)
        new = list(tokens)
        ids.add(token.content for token in new)
        return (token._replace(id=ids.get(token.content)) for token in new)

    @property
    def size(self) -> int:
        """Tokens, added and appended ones included: `len(tokenizer)`. Not the largest id plus one."""
        return len(self.ids)

    @cached_property
    def max_id(self) -> int:
        """The largest id of any token; -1 where there is none."""
        return max(self.ids.values(), default=-1)

    def id_of(self, token: str) -> int | None:
        """The id of a token, or None where it is no token.

        Raises:
            UnsupportedSource: The vocabulary is in a format that this version does not read, so nobody knows.
        """
        found = self.ids.get(token)
        if found is None and not self.is_read:
            raise UnsupportedSource("holds the vocabulary in a format that this version does not read", path=self.path)
        return found

    def origin(self, token: str) -> str:
        """The file that brings a token."""
        return next((new.path for new in self.appended if new.content == token), self.path)

    @cached_property
    def copies(self) -> Mapping[str, Mapping[str, int]]:
        """Path to vocabulary, for the other files beside tokenizer.json that hold one and are read."""
        beside = vocabularies(self._repository)[1:] if self.document is not None else ()
        found = {path: _plain(self._repository, path) for path in beside}
        return {path: ids.vocabulary for path, ids in found.items() if ids is not None}

    @cached_property
    def differently_flagged(self) -> tuple[str, ...]:
        """Tokens that added_tokens_decoder describes otherwise than tokenizer.json."""
        config = self._repository.tokenizer_config
        decoder = None if config is None else config.mapping("added_tokens_decoder")
        if decoder is None or self.document is None:
            return ()
        ours = {entry.raw.get("content"): entry for entry in self.document.objects("added_tokens")}
        theirs = (entry for number in decoder.raw if (entry := decoder.mapping(number)) is not None)
        pairs = ((ours[entry.raw.get("content")], entry) for entry in theirs if entry.string("content") in ours)
        return tuple(str(entry.raw["content"]) for known, entry in pairs if _differ(known, entry))

    # ---------------------------------------------------------------- special tokens

    @cached_property
    def roles(self) -> Mapping[str, SpecialToken]:
        """Role (`eos_token`) to the token that has it, as transformers resolves the files that name one."""
        found = special_tokens.roles(self._repository.tokenizer_config, self._repository.special_tokens_map)
        padding = None if self.document is None else self.document.mapping("padding")
        pad = None if padding is None else padding.string("pad_token")
        if padding is not None and pad and "pad_token" not in found:  # TokenizersBackend.__init__ falls back on it
            found["pad_token"] = special_tokens.SpecialToken(pad, "pad_token", padding.path, padding.at("pad_token"))
        ordered = {role: found.pop(role) for role in special_tokens.STANDARD_ROLES if role in found}
        return ordered | found

    @cached_property
    def extras(self) -> tuple[SpecialToken, ...]:
        """Special tokens without a role of their own."""
        return special_tokens.extras(self._repository.tokenizer_config, self._repository.special_tokens_map)

    @cached_property
    def post_processor(self) -> tuple[tuple[str, int, str], ...]:
        """What is put around every text: token, id, JSON Pointer in tokenizer.json."""
        return () if self.document is None else tuple(post_processor_tokens(self.document))

    @cached_property
    def special(self) -> frozenset[str]:
        """Every token that a file calls special, with or without a role."""
        added = (*self.added, *self.appended, *self.written_elsewhere)
        named = (token.content for token in (*self.roles.values(), *self.extras))
        return frozenset((*named, *(token.content for token in added if token.special)))

    def role_id(self, role: str) -> int | None:
        """The id of the token with this role, or None where there is no such token.

        Raises:
            UnsupportedSource: See `id_of`.
        """
        token = self.roles.get(role)
        return None if token is None else self.id_of(token.content)

    # ---------------------------------------------------------------- against the weights

    @property
    def rows(self) -> int | None:
        """Rows of the text model's embedding, from the weights or else from config.json; None where neither says."""
        return self._repository.weights.token_rows

    @cached_property
    def beyond(self) -> Mapping[str, int]:
        """Tokens whose id has no row in the embedding."""
        rows = self.rows
        if rows is None or self.max_id < rows:
            return {}
        return {token: number for token, number in self.ids.items() if number >= rows}

    @cached_property
    def produced(self) -> frozenset[str]:
        """The tokens of `beyond` that ordinary use meets: by plain text, by their role, by the chat template.

        Left over are added tokens that only come up where someone types them. One of those that is special is the pad
        token that old derivatives of LLaMA carry; several are what a training added, and say that the embedding was
        not resized.
        """
        padding = None if self.document is None else self.document.mapping("padding")
        used = {token.content for token in (*self.roles.values(), *self.extras)}
        used |= {token for token, _, _ in self.post_processor}
        used |= {padding.string("pad_token") or ""} if padding is not None else set()
        added = {token.content: token.special for token in (*self.added, *self.appended)}
        templates = [template.source for template in self._repository.chat_templates.all]
        found = {
            token
            for token in self.beyond
            if token not in added or token in used or any(token in template for template in templates)
        }
        special = {token for token in self.beyond if added.get(token)}
        return frozenset(found | special if len(special) > 1 else found)

    @cached_property
    def pieces(self) -> int | None:
        """Tokens of the SentencePiece model that counts where there is no other vocabulary; None for other formats.

        Raises:
            MalformedFile: It is none.
        """
        if self.is_read or not _SENTENCEPIECE.fullmatch(self.path):
            return None
        content = self._repository.content(self.path) or b""
        return None if is_tiktoken(content) else count_pieces(content, self.path)

    @cached_property
    def is_sentencepiece(self) -> bool:
        """Whether a SentencePiece model is among the files."""
        return any(_SENTENCEPIECE.fullmatch(path) for path in vocabularies(self._repository))


def vocabularies(repository: Repository) -> tuple[str, ...]:
    """The files at the root that hold a vocabulary, those that decide first."""
    files = repository.files
    plain = [path for path in (TOKENIZER_JSON, VOCAB_JSON, VOCAB_TXT) if path in files]
    return (*plain, *(path for path in files if _UNREAD.fullmatch(path)))


def lost_merges(repository: Repository) -> tuple[str, ...]:
    """Lines of merges.txt whose parts or product vocab.json lacks, and lines that are no merge.

    Vocabularies that mark the middle of words (`lo@@`) spell merges otherwise and are left out.
    """
    vocabulary = repository.document(VOCAB_JSON)
    if vocabulary is None or MERGES_TXT not in repository.files:
        return ()
    known = vocabulary.raw
    if any(token.endswith("@@") for token in known):
        return ()
    lines = [line for line in _text(repository, MERGES_TXT).split("\n") if line.strip()]
    merges = lines[1:] if lines[:1] and lines[0].startswith("#version") else lines
    split = ((line, line.rstrip("\r").split(" ")) for line in merges)
    return tuple(line for line, parts in split if len(parts) != 2 or {*parts, "".join(parts)} - known.keys())


def check_vocabulary(repository: Repository, path: str) -> None:
    """Looks whether a SentencePiece or tiktoken file is what its name says.

    Raises:
        MalformedFile: It is not.
    """
    content = repository.content(path) or b""
    if _SENTENCEPIECE.fullmatch(path) and not is_tiktoken(content):
        count_pieces(content, path)
    elif path.endswith(".tiktoken") and not is_tiktoken(content):
        raise MalformedFile("is no tiktoken file: lines of a base64 token and its rank", path=path, place="line 1")


def is_tiktoken(content: bytes) -> bool:
    """Whether these are lines of a base64 token and its rank, which some call tokenizer.model."""
    return re.match(rb"[A-Za-z0-9+/]+={0,2} \d+(?:\r?\n|\Z)", content) is not None


def _differ(one: Document, other: Document) -> bool:
    """Whether a flag that both spell out has two values."""
    return any(flag in one and flag in other and one.raw[flag] != other.raw[flag] for flag in _FLAGS)


def _plain(repository: Repository, path: str) -> Ids | None:
    """The vocabulary of vocab.json or vocab.txt; None where it is nested, counted, or in another format."""
    if path == VOCAB_JSON:
        raw = repository.json(path)
        if not isinstance(raw, dict) or not (ids := integer_ids(raw)):
            return None  # wav2vec2's tokenizers for many languages have one vocabulary for each
        return Ids(ids, len(ids))
    if path != VOCAB_TXT:
        return None
    # Not splitlines: U+2028 and U+0085 are tokens, and only line feeds end one.
    lines = _text(repository, path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines and all(re.fullmatch(r"\S+ \d+", line) for line in lines[:100]):
        return None  # fairseq's dictionary: token and frequency, ids begin at 4
    return Ids({line: number for number, line in enumerate(lines)}, len(lines))


def _text(repository: Repository, path: str) -> str:
    return repository.text(path) or ""


def _entries(document: Document) -> Iterator[AddedToken]:
    for entry in document.objects("added_tokens"):
        content, written = entry.string("content"), entry.integer("id")
        if content is not None:
            special = entry.flag("special") is True
            yield AddedToken(content, None, written, special, document.path, entry.pointer)


def _decoder_entries(decoder: Document | None) -> Iterator[AddedToken]:
    for number in decoder.raw if decoder is not None else ():
        entry = decoder.mapping(number) if decoder is not None else None
        content = None if entry is None else entry.string("content")
        if entry is not None and content is not None and re.fullmatch(r"[0-9]{1,10}", number):
            special = entry.flag("special") is True
            yield AddedToken(content, None, int(number), special, entry.path, entry.pointer)


def _encoder_entries(document: Document | None) -> Iterator[AddedToken]:
    raw: Mapping[str, Any] = {} if document is None else document.raw
    for content, number in raw.items():
        if document is not None and type(number) is int:
            yield AddedToken(content, None, number, False, document.path, document.at(content))
