"""README.md: values of the front matter as they were meant; comments and body stay byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from repokit.errors import InputError
from repokit.formats.front_matter import parse_card
from repokit.formats.front_matter_values import LINE, parts, texts_in, without_equal_keys
from repokit.linter.fix import Fix, SetMetadata, WriteFile
from repokit.linter.rules.card import LIBRARIES
from repokit.linter.rules.card_values import CHECKED, LANGUAGES
from repokit.linter.rules.license import LICENSE_FILE, SPELLINGS
from repokit.printable import printable, some
from repokit.repo.card import README, is_path, is_repo_id
from repokit.resources import data

if TYPE_CHECKING:
    from repokit.linter.finding import Finding
    from repokit.repo.card import ModelCard
    from repokit.repo.repository import Repository

# `datasets[0]: ...` as messages begin.
_NAME: Final = re.compile(r"(?P<key>[\w-]+)(?:\[(?P<item>\d+)\])?(?:\.[^:]*)?: ")
# Keys of which any word is a legal value, so that what was typed can stand in quotes.
_WORDS: Final = frozenset({"tags", "license_name", "metrics", "language"})
# What BCP 47 puts behind a language: a script, a country, both.
_REGION: Final = re.compile(r"[A-Z]{2}|[A-Z][a-z]{3}(?:-[A-Z]{2})?|[0-9]{3}")


def key_of(finding: Finding) -> str | None:
    """The top-level key that a message speaks of."""
    found = _NAME.match(finding.message)
    return None if found is None else found["key"]


def value_at(card: ModelCard, finding: Finding) -> tuple[str, Any] | None:
    """Name and value that a message speaks of: `datasets[0]`."""
    key = key_of(finding)
    for value in card.values(key) if key else ():
        if finding.message.startswith(f"{value.key}: "):
            return value.key, value.value
    return None


def edited(card: ModelCard, key: str, old: object, new: object, title: str) -> Fix | None:
    """A key with one of its values replaced, or taken out where the new one is None; once, where it is listed twice."""
    values = card.raw[key]
    if not isinstance(values, list):
        edit = SetMetadata(README, without=(key,)) if new is None else SetMetadata(README, {key: new})
        return Fix(title, (edit,))
    replaced = [new if value is old or (type(value) is type(old) and value == old) else value for value in values]
    kept = [value for number, value in enumerate(replaced) if value is not None and value not in replaced[:number]]
    edit = SetMetadata(README, {key: kept}) if kept else SetMetadata(README, without=(key,))
    return Fix(title, (edit,))


def typed(repository: Repository) -> dict[str, Any]:
    """The front matter with every scalar as the text that was typed."""
    found = parts((repository.content(README) or b"").decode("utf-8-sig"))
    return {} if found is None else texts_in(found[1])


# ---------------------------------------------------------------- values of a wrong type


def as_typed(repository: Repository, finding: Finding) -> Fix | None:
    """What YAML read as something else, as the text that was typed; without what is empty."""
    card, key = repository.card, key_of(finding)
    if card is None or key is None or key not in card:
        return None
    raw, text = card.raw[key], typed(repository).get(key)
    if raw is None:
        return Fix(f"remove {key}, which has no value", (SetMetadata(README, without=(key,)),))
    if isinstance(raw, list) and isinstance(text, list) and len(raw) == len(text):
        items = [_meant(key, item, word) for item, word in zip(raw, text, strict=True) if item is not None]
        new: Any = items if all(item is not None for item in items) else None
    else:
        new = _meant(key, raw, text)
        if new is None and isinstance(raw, str) and key == "tags":
            new = [raw]
    if new is None:
        return None
    if new == []:
        return Fix(f"remove {key}, which has no value", (SetMetadata(README, without=(key,)),))
    if _is_refused(card, key, new):
        return None
    title = f"write {key} as {printable(new, 60)!r}" if isinstance(new, str) else f"write the values of {key} as text"
    return Fix(title, (SetMetadata(README, {key: new}),))


def _meant(key: str, value: object, text: object) -> object:
    """A value as text; None where that is not what was meant."""
    if isinstance(value, str):
        return value
    if not isinstance(text, str) or isinstance(value, dict | list):
        return None
    if key == "language":
        return "no" if value is False and text.lower() == "no" else None
    return text if key in _WORDS or key not in CHECKED else None


def _is_refused(card: ModelCard, key: str, value: object) -> bool:
    """Whether a value is one that the Hub refuses too."""
    from repokit.schema.card import Card
    from repokit.schema.document import problems, steps

    return any(steps(problem.pointer)[:1] == (key,) for problem in problems(Card, {**card.raw, key: value}))


# ---------------------------------------------------------------- ids

_ADDRESS: Final = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<datasets>datasets/)?(?P<id>[^?#]+?)/?")


def with_id(repository: Repository, finding: Finding) -> Fix | None:
    """The id in an address of the Hub; without a path, and without nothing at all."""
    card = repository.card
    found = None if card is None else value_at(card, finding)
    if card is None or found is None or not isinstance(found[1], str):
        return None
    key, value = found[0].partition("[")[0], found[1]
    address = _ADDRESS.fullmatch(value)
    if address is not None and is_repo_id(address["id"]) and (key == "datasets") == bool(address["datasets"]):
        return edited(card, key, value, address["id"], f"set {found[0]} to {printable(address['id'], 80)}")
    if value.strip() and not is_path(value):
        return None  # prose may name something that a person can find
    base = _base_of_adapter(repository)
    if key == "base_model" and base is not None and base not in card.base_models:
        return edited(card, key, value, base, f"set {found[0]} to {printable(base, 80)}, as adapter_config.json has it")
    if key == "base_model" and repository.adapter_config is not None and len(list(card.values(key))) == 1:
        return None  # an adapter needs a base, which only a person can name
    return edited(card, key, value, None, f"remove {printable(value, 60)!r} from {key}")


def _base_of_adapter(repository: Repository) -> str | None:
    config = repository.adapter_config
    base = None if config is None else config.string("base_model_name_or_path")
    return base if is_repo_id(base) and base != "None" else None


def with_base_of_adapter(repository: Repository, _finding: Finding) -> Fix | None:
    """The base model that adapter_config.json names, where the card names none."""
    card, base = repository.card, _base_of_adapter(repository)
    if card is None or card.base_models or base is None:
        return None
    title = f"set base_model to {printable(base, 80)}, as adapter_config.json has it"
    return Fix(title, (SetMetadata(README, {"base_model": base}),))


# ---------------------------------------------------------------- words of the Hub

# Names that say neither version nor terms, or that the Hub reads as "see elsewhere".
_GUESSES: Final = frozenset({"apache", "cc-by", "cc-by-nc", "proprietary", "custom"})


def with_license_id(repository: Repository, finding: Finding) -> Fix | None:
    """The Hub's id for a license that is named without doubt."""
    card = repository.card
    found = None if card is None else value_at(card, finding)
    if card is None or found is None or not isinstance(found[1], str):
        return None
    known, word = data("licenses")["ids"], found[1].strip().lower()
    dashed = re.sub(r"[\s_]+", "-", word)
    wanted = None if word in _GUESSES else SPELLINGS.get(word) or next((w for w in (word, dashed) if w in known), None)
    texts = license_texts(repository)
    if wanted is None or wanted not in known or (texts and wanted not in texts):
        return None
    return edited(card, "license", found[1], wanted, f"set {found[0]} to {wanted}")


def license_texts(repository: Repository) -> set[str]:
    """Ids of the licenses whose text lies at the top."""
    from repokit.linter.rules.license_text import license_files, recognised

    texts = (repository.glance(path) or b"" for path in license_files(repository))
    return {license_id for text in texts for license_id in recognised(text)}


def with_license_of_text(repository: Repository, _finding: Finding) -> Fix | None:
    """The one license whose text lies at the top, where the base model asks for no other."""
    from repokit.linter.rules.license_text import licenses_of_bases

    card, path, texts = repository.card, license_file(repository), license_texts(repository)
    if card is None or path is None or len(texts) != 1 or any(True for _ in licenses_of_bases(repository, card)):
        return None
    wanted = next(iter(texts))
    if wanted not in data("licenses")["ids"]:
        return None
    title = f"set license to {wanted}, whose text is in {printable(path, 80)}"
    return Fix(title, (SetMetadata(README, {"license": wanted}),))


def with_language_code(repository: Repository, finding: Finding) -> Fix | None:
    """The code of a language that is written out, or that has a country or a script behind it.

    In small letters what is behind may be another language (`en-fr`), and what is before may be no language at all.
    """
    card = repository.card
    found = None if card is None else value_at(card, finding)
    if card is None or found is None or not isinstance(found[1], str):
        return None
    word, _, behind = found[1].strip().replace("_", "-").partition("-")
    if behind and not _REGION.fullmatch(behind):
        code = LANGUAGES.get(found[1].strip().lower())
    else:
        code = LANGUAGES.get(word.lower()) or (word.lower() if word.lower() in data("languages")["ids"] else None)
    return edited(card, "language", found[1], code, f"set {found[0]} to {code}") if code else None


def as_peft(_repository: Repository, _finding: Finding) -> Fix | None:
    """An adapter's library."""
    return Fix("set library_name to peft", (SetMetadata(README, {"library_name": "peft"}),))


def with_pipeline_tag(repository: Repository, _finding: Finding) -> Fix | None:
    """The Hub's tag that differs in case and in what stands between words alone."""
    card = repository.card
    tag = None if card is None else card.pipeline_tag
    wanted = None if tag is None else re.sub(r"[\s_]+", "-", tag.strip().lower())
    if wanted is None or wanted not in data("pipeline_tags")["ids"]:
        return None
    return Fix(f"set pipeline_tag to {wanted}", (SetMetadata(README, {"pipeline_tag": wanted}),))


def with_library(repository: Repository, _finding: Finding) -> Fix | None:
    """library_name by the file that only this library writes; config.json with a model_type of transformers."""
    library = next((name for path, name in LIBRARIES.items() if repository.has(path)), None)
    config, adapter = repository.config, repository.adapter_config
    if library == "transformers":
        others = {"_class_name", "pretrained_cfg", "quantization", "auto_map"}
        known = config is not None and config.model_type in data("model_types")["model_types"]
        formats = {(repository.header(path).metadata or {}).get("format") for path in repository.weights.files}
        if config is None or not known or others & config.raw.keys() or formats - {"pt"} or not formats:
            return None
    if library == "peft" and (adapter is None or "peft_type" not in adapter):
        return None
    if library is None:
        return None
    return Fix(f"set library_name to {library}", (SetMetadata(README, {"library_name": library}),))


def with_known_key(repository: Repository, finding: Finding) -> Fix | None:
    """A key under the name that the Hub reads; taken out where the card has that one too."""
    card = repository.card
    line = int((finding.place or "line 0").rpartition(" ")[2])
    key = next((key for key in card.raw if card.line_of(key) == line), None) if card is not None else None
    meant = (finding.hint or "").removeprefix("did you mean ").removesuffix("?")
    if card is None or key is None or not meant or _is_refused(card, meant, card.raw[key]):
        return None
    if meant in card:
        return Fix(f"remove {printable(key, 40)}, beside {meant}", (SetMetadata(README, without=(key,)),))
    if meant == "license" and card.raw[key] not in data("licenses")["ids"]:
        return None
    lines = LINE.findall((repository.content(README) or b"").decode())
    respelled = re.sub(rf"^(\s*)(['\"]?){re.escape(key)}\2(?=\s*:)", rf"\g<1>{meant}", lines[line - 1])
    if respelled == lines[line - 1]:
        return None
    return _rewritten(f"rename {printable(key, 40)} to {meant}", [*lines[: line - 1], respelled, *lines[line:]])


def _rewritten(title: str, lines: list[str]) -> Fix | None:
    """The card with other lines, if it has a front matter then."""
    content = "".join(lines).encode()
    try:
        card = parse_card(content, README)
    except InputError:
        return None
    if not card.metadata:
        return None
    return Fix(title, (WriteFile(README, content),))


# ---------------------------------------------------------------- licenses in files


def license_file(repository: Repository) -> str | None:
    """The one file at the top with the text of a license."""
    found = [path for path in repository.files if "/" not in path and LICENSE_FILE.fullmatch(path)]
    return found[0] if len(found) == 1 else None


def with_license_link(repository: Repository, _finding: Finding) -> Fix | None:
    """license_link to the file that is there, where only that is missing."""
    card, path = repository.card, license_file(repository)
    if card is None or path is None or not card.string("license_name") or card.string("license_link"):
        return None
    return Fix(f"set license_link to {printable(path, 80)}", (SetMetadata(README, {"license_link": path}),))


def with_right_license_link(repository: Repository, _finding: Finding) -> Fix | None:
    """license_link to the file of that name with another ending, or in other letters."""
    card, path = repository.card, license_file(repository)
    link = None if card is None else card.string("license_link")
    if path is None or not link or link.removeprefix("./").partition(".")[0].lower() != path.partition(".")[0].lower():
        return None
    return Fix(f"set license_link to {printable(path, 80)}", (SetMetadata(README, {"license_link": path}),))


# ---------------------------------------------------------------- the front matter as a whole


def on_the_first_line(repository: Repository, _finding: Finding) -> Fix | None:
    """The front matter before what stands above it."""
    card = repository.card
    if card is None or card.misplaced_at is None:
        return None
    lines = LINE.findall((repository.content(README) or b"").decode())
    start = card.misplaced_at - 1
    end = next((at for at in range(start + 1, len(lines)) if lines[at].rstrip() == "---"), None)
    if end is None:
        return None
    block = [*lines[start:end], lines[end].rstrip("\r\n") + "\n"]
    return _rewritten("move the front matter to the first line", block + lines[:start] + lines[end + 1 :])


def readable(content: bytes) -> tuple[bytes, str] | None:
    """A card that parses, and what was taken away for that; None where it is not clear what was meant."""
    new, told = content, []
    if new.startswith(b"\xef\xbb\xbf"):
        new, told = new[3:], ["the byte order mark"]
    opened = re.match(rb"\A(\s*---)[ \t]+(?=\r\n|\r|\n)", new)
    if opened is not None:
        new = opened[1] + new[opened.end() :]
        told.append("blanks behind ---")
    if "twice" in (_problem(new) or "") and (without := _without_equal_keys(new)) is not None:
        new, keys = without
        told.append(f"the second {some(keys)}")
    return (new, f"remove {' and '.join(told)}") if told and _problem(new) is None else None


def _problem(content: bytes) -> str | None:
    """Why a card does not parse."""
    try:
        parse_card(content, README)
    except InputError as error:
        return error.what
    return None


def _without_equal_keys(content: bytes) -> tuple[bytes, list[str]] | None:
    """Without the later ones of top-level keys that stand twice with the same value."""
    try:
        found = parts(content.decode())
    except UnicodeDecodeError:
        return None
    single = None if found is None else without_equal_keys(found[1])
    if found is None or single is None:
        return None
    return f"{found[0]}{single[0]}{found[2]}".encode(), single[1]
