"""More or fewer rows for the vocabulary, where the recipe asks for them: embedding, head, and what goes by token ids.

Padding appends zeros, so that the rows divide evenly between processors. Trimming takes away what padding or an older
tokenizer left, and only that: an id that anything still uses keeps its row.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.builder import fitting
from repokit.errors import PlanError, RecipeError
from repokit.operations import Box, Filled, Interleaved, Piece
from repokit.printable import count, printable, some
from repokit.repo.config import TOKEN_ID_KEYS, Config
from repokit.repo.tensor_names import is_embedding, is_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repokit.architectures import Skeleton
    from repokit.architectures.live import Live
    from repokit.builder.weights import PlannedWeights
    from repokit.operations import Content
    from repokit.repo.repository import Repository
    from repokit.schema.recipe import Recipe, Vocabulary

Shape = tuple[int, ...]

_PLACE: Final = "weights.vocabulary"
_WHERE_TRAINED: Final = "resize it where it was trained: model.resize_token_embeddings(N)"
# generation_config.json, and config.json of transformers 4: ids by themselves, and lists of them.
_IDS: Final = re.compile(r".*token_(?:id|ids|index)|(?:begin_)?suppress_tokens|forced_decoder_ids|bad_words_ids|.*_ids")


def refuse_for(recipe: Recipe, kind: str) -> None:
    """Refuses a recipe that asks for another vocabulary, or for a head, of what is taken as it is.

    Raises:
        RecipeError: With what to do instead.
    """
    asked = [
        ("weights.vocabulary", recipe.weights.vocabulary is not None),
        ("weights.tie", recipe.weights.tie == "untie"),
    ]
    for place, there in asked:
        if there:
            what = f"changes the weights, and those of a repository of this kind ({kind}) are taken as they are"
            raise RecipeError(what, place=place, hint="do it in a build of the full model, before the other one")


class Resizing:
    """Brings the tensors of a plan to another number of token ids."""

    def __init__(
        self,
        wanted: Vocabulary,
        config: Config | None,
        live: Live | None,
        *,
        tokens: Repository,
        generation: Mapping[str, Any],
    ) -> None:
        """Works out the sizes.

        Args:
            wanted: What the recipe asks for.
            config: config.json, as the weights are now.
            live: Says which tensors an architecture has that the data does not cover.
            tokens: Holds the tokenizer that is published.
            generation: generation_config.json as it is published.

        Raises:
            RecipeError: Nothing says how many there are now.
        """
        before = None if config is None or not config.embedding_rows else config.vocab_size
        if config is None or before is None:
            what = "asks for another vocabulary, and config.json states none that can be resized"
            raise RecipeError(what, place=_PLACE, hint=_WHERE_TRAINED)
        self.before: int = before
        self.after = _rounded(wanted.size or before, wanted.pad_to_multiple_of)
        self._config = config
        self._live = live
        self._tokens = tokens
        self._generation = generation

    @property
    def notes(self) -> Iterator[str]:
        """What a person should know of the new rows."""
        if self.after > self.before:
            added = count(self.after - self.before, "row")
            yield f"{added} of zeros for ids that no token has: as output their logit is 0, not minus infinity"

    def resize(self, planned: PlannedWeights) -> None:
        """Gives every tensor that has a row for each token as many as are wanted.

        Raises:
            PlanError: A tensor has another number of rows than config.json says, or token ids elsewhere than in its
                rows; or an id above the new size is used.
        """
        if self.after == self.before:
            return
        if self.after < self.before:
            self._check_unused()
        shapes = {name: tensor.shape for name, tensor in planned.tensors.items()}
        found = self._resized(shapes)
        if not found:
            what = "asks for another vocabulary, and nothing says which tensors have a row for each token"
            raise RecipeError(what, place=_PLACE, hint=_WHERE_TRAINED)
        for name, (is_now, shape) in found.items():
            if shapes[name] != is_now:
                what = f"is {list(shapes[name])}, and {list(is_now)} by a vocab_size of {self.before:,}"
                hint = "correct vocab_size in the checkpoint's config.json first"
                raise PlanError(what, path="config.json", place=printable(name, 120), hint=hint)
            if not _at_the_end(is_now, shape, self.after - self.before):
                what = f"has no rows at its end for token ids: {list(is_now)} would become {list(shape)}"
                raise PlanError(what, place=printable(name, 120), hint=_WHERE_TRAINED)
            planned.tensors[name] = planned.tensors[name]._replace(resized=shape)
        planned.vocabulary = (self.before, self.after)
        planned.resized = tuple(found)

    # ---------------------------------------------------------------- which tensors

    def _resized(self, shapes: Mapping[str, Shape]) -> dict[str, tuple[Shape, Shape]]:
        """Name to the shape that a tensor should have now and the one that it gets."""
        wanted = fitting.wanted_tensors(self._config, self._live)
        found = {} if wanted is None else self._by_architecture(wanted, shapes)
        names = [name for name, shape in shapes.items() if shape[:1] == (self.before,) and name not in found]
        heads = {name for name in names if is_head(name)}
        beside = {name.removesuffix("weight") + "bias" for name in heads}
        for name in names:
            if name in heads or is_embedding(name) or name in beside:
                found[name] = (shapes[name], (self.after, *shapes[name][1:]))
        return found

    def _by_architecture(self, now: Skeleton, shapes: Mapping[str, Shape]) -> dict[str, tuple[Shape, Shape]]:
        """The tensors whose shape follows from vocab_size, by what the architecture would have with the other one."""
        raw = with_vocabulary(self._config, self._config.raw, self.after)
        then = fitting.wanted_tensors(Config(self._config.path, raw), self._live)
        if then is None:
            return {}
        later = {then.canonical(name): shape for name, shape in then.shapes.items()}
        changed = {}
        for name, shape in now.shapes.items():
            is_now, other = _whole(shape), _whole(later.get(now.canonical(name)))
            if is_now is not None and other is not None and other != is_now:
                changed[now.canonical(name)] = (is_now, other)
        tied = {now.canonical(target): now.canonical(source) for target, source in now.ties}
        found = {}
        for name in shapes:
            canonical = now.canonical(name)
            if (pair := changed.get(canonical) or changed.get(tied.get(canonical, ""))) is not None:
                found[name] = pair
        return found

    # ---------------------------------------------------------------- which ids are in use

    def _check_unused(self) -> None:
        """Refuses to cut a row whose id something still uses.

        Raises:
            PlanError: Naming the token or the key.
        """
        for path, place, number in (*self._of_tokens(), *self._of_documents()):
            if number >= self.after:
                what = f"uses id {number:,}, and a vocabulary of {self.after:,} ends at {self.after - 1:,}"
                why = "a loader would look for a row that is not there"
                hint = f"weights.vocabulary.size: {number + 1} or more"
                raise PlanError(what, why=why, path=path, place=place, hint=hint)

    def _of_tokens(self) -> Iterator[tuple[str, str, int]]:
        """Path, token and id: the highest of the tokenizer.

        Raises:
            PlanError: There is none, or one that is not read: nothing then says which ids are free.
        """
        tokenizer = self._tokens.tokenizer
        if tokenizer is None or not tokenizer.is_read:
            what = "cuts rows off, and nothing says which ids are in use: there is no tokenizer that can be read"
            hint = "save its tokenizer.json beside it: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            raise PlanError(what, place=_PLACE, hint=hint)
        ids = {**tokenizer.ids}
        for added in tokenizer.renumbered:
            ids[added.content] = max(added.id or 0, added.written or 0)
        # Without tokenizer.json too, transformers gives ids at the end to special tokens that have none.
        named = {token.content for token in (*tokenizer.roles.values(), *tokenizer.extras)} - {"", *ids}
        first = max(ids.values(), default=-1) + 1
        ids |= {token: number for number, token in enumerate(sorted(named), first)}
        for token, number in sorted(ids.items(), key=lambda item: -item[1])[:1]:
            yield tokenizer.origin(token), printable(token, 60), number

    def _of_documents(self) -> Iterator[tuple[str, str, int]]:
        """Path, JSON Pointer and id: of the text model in config.json, and of generation_config.json."""
        levels = [self._config, self._config.text] if self._config.text.pointer else [self._config]
        for level in levels:
            for key in level.raw:
                if key in TOKEN_ID_KEYS or _IDS.fullmatch(key):
                    yield from ((level.path, level.at(key), number) for number in _integers(level.raw[key]))
        for key, value in self._generation.items():
            if _IDS.fullmatch(key):
                yield from (("generation_config.json", f"/{key}", number) for number in _integers(value))


def _at_the_end(now: Shape, then: Shape, rows: int) -> bool:
    """Whether one shape is the other with so many more rows, which follow all its bytes: [ids, ...] or [1, ids]."""
    first = next(place for place, length in enumerate(now) if then[place : place + 1] != (length,))
    if set(now[:first]) - {1} or len(then) != len(now):
        return False
    return then[first] - now[first] == rows and now[first + 1 :] == then[first + 1 :]


def _whole(shape: tuple[int | None, ...] | None) -> Shape | None:
    """A shape of which every dimension is known."""
    known = tuple(dimension for dimension in shape or () if dimension is not None)
    return known if shape is not None and len(known) == len(shape) else None


def _rounded(size: int, multiple: int | None) -> int:
    return size if multiple is None else -(-size // multiple) * multiple


def _integers(value: object) -> Iterator[int]:
    """Whole numbers in lists of any depth."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case bool():
                continue
            case int() as number:
                yield number
            case list() as items:
                waiting.extend(items)


# ---------------------------------------------------------------- config.json


def with_vocabulary(config: Config, raw: Mapping[str, Any], size: int) -> dict[str, Any]:
    """A config with another vocab_size, where it states one: at the top and in the text model.

    Args:
        config: As it lies in the source: says where the text model is.
        raw: The object that is changed.
        size: Token ids.
    """
    return _at_text_levels(config, raw, "vocab_size", size)


def untied(config: Config, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A config that does not tie the head: the top says so even if nothing is said there, since many classes tie."""
    return {**_at_text_levels(config, raw, "tie_word_embeddings", value=False), "tie_word_embeddings": False}


def _at_text_levels(config: Config, raw: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    text = config.text.pointer.removeprefix("/")
    changed = {**raw, **({key: value} if key in raw else {})}
    nested = changed.get(text)
    if text and isinstance(nested, dict) and key in nested:
        changed[text] = {**nested, key: value}
    return changed


# ---------------------------------------------------------------- a head of its own


def head_of(config: Config, live: Live | None, names: Iterable[str]) -> tuple[str, str] | None:
    """The name of the head that an architecture ties, and that of the embedding which is stored for both.

    None where the head is stored too.

    Args:
        config: config.json.
        live: Says which tensors an architecture has that the data does not cover.
        names: Of the tensors that are stored.

    Raises:
        PlanError: Nothing says what the head is called, or which tensor it is tied to.
    """
    held = set(names)
    if any(map(is_head, held)):
        return None
    wanted = fitting.wanted_tensors(config, live)
    if wanted is not None:
        spelled = {wanted.canonical(name): name for name in held}
        for target, source in wanted.ties:
            stored = spelled.get(wanted.canonical(source))
            if stored is not None and is_embedding(stored) and not is_embedding(target):
                return None if wanted.canonical(target) in spelled else (target, stored)
    what = "asks for a head of its own, and nothing says what it is called and what it is tied to"
    why = f"the tensors are {some(sorted(filter(is_embedding, held))) or 'none that is an embedding'}"
    raise PlanError(what, why=why, place="weights.tie", hint="untie it where it was trained, and save it again")


# ---------------------------------------------------------------- the bytes


def resized(contents: Iterable[Content], size: int, name: str) -> tuple[Content, ...]:
    """What a tensor is made of, cut to its first bytes or filled up with zeros.

    Args:
        contents: All of it.
        size: Bytes in the output.
        name: For messages.

    Raises:
        PlanError: It is put together in a way that cannot be cut.
    """
    found: list[Content] = []
    left = size
    for content in contents:
        if left >= content.size:
            found.append(content)
        elif left:
            found.append(_cut(content, left, name))
        left -= min(left, content.size)
    return (*found, Filled(size=left)) if left else tuple(found)


def _cut(content: Content, size: int, name: str) -> Content:
    match content:
        case Piece():
            return _cut_piece(content, size, name)
        case Interleaved(shape=shape) if (rows := _share(shape[0], size, content.size)) is not None:
            boxes = tuple(_cut_boxes(content.boxes, rows, name))
            return content.model_copy(update={"shape": (rows, *shape[1:]), "boxes": boxes})
        case Filled():
            return Filled(size=size)
    what = "is put together while it is written, and its rows cannot be cut off in the same build"
    raise PlanError(what, place=printable(name, 120), hint="trim the vocabulary in a build of its own, afterwards")


def _cut_piece(piece: Piece, size: int, name: str) -> Piece:
    if piece.view is None:
        length = _share(piece.length, size, piece.size)
        if length is not None:
            return piece.model_copy(update={"length": length})
    elif (rows := _share(piece.view.shape[0], size, piece.size)) is not None:
        view = piece.view.model_copy(update={"shape": (rows, *piece.view.shape[1:])})
        return piece.model_copy(update={"view": view, "length": view.span})
    what = "does not lie so that its rows can be cut off"
    raise PlanError(what, place=printable(name, 120), hint="save the model again: save_pretrained writes it in order")


def _cut_boxes(boxes: Iterable[Box], rows: int, name: str) -> Iterator[Box]:
    for box in boxes:
        kept = min(box.shape[0], rows - box.offsets[0])
        if kept == box.shape[0]:
            yield box
        elif kept > 0:
            size = box.piece.size * kept // box.shape[0]
            piece = _cut_piece(box.piece, size, name)
            yield box.model_copy(update={"shape": (kept, *box.shape[1:]), "piece": piece})


def _share(whole: int, size: int, of: int) -> int | None:
    """The same share of a whole as some bytes are of all; None where it is no whole number."""
    share, rest = divmod(whole * size, of)
    return None if rest else share
