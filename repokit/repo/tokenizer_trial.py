"""What the tokenizers library makes of a tokenizer.json, asked once in the limited worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from repokit.repo.token_ids import TOKENIZER_JSON

if TYPE_CHECKING:
    from repokit.repo.repository import Repository
    from repokit.repo.worker import TokenizerProblem

# What is tokenized to see whether the library can. Ordinary text first; the others are what regular expressions that
# backtrack and normalizers that grow text are slow on.
ORDINARY: Final = ("Hello, World 123", "éß漢字 🙂\n\t", "")
HOSTILE: Final = ("a" * 40 + "!", " " * 200, "(" * 100, "1" * 200 + "a")


class Trial(NamedTuple):
    """What the tokenizers library says of a tokenizer.json: each None where there is nothing to say.

    Attributes:
        load: Why it does not load.
        encode: Why it does not tokenize ordinary text.
        hostile: Why it does not tokenize text that is hard on regular expressions and normalizers.
    """

    load: TokenizerProblem | None = None
    encode: TokenizerProblem | None = None
    hostile: TokenizerProblem | None = None


def trial(repository: Repository) -> Trial | None:
    """What the tokenizers library makes of tokenizer.json; None where there is none. Runs it, once, in the worker.

    Raises:
        MalformedFile: It is not JSON to begin with.
    """
    return repository.remember(("trial", TOKENIZER_JSON), lambda: _trial(repository))


def _trial(repository: Repository) -> Trial | None:
    content = repository.content(TOKENIZER_JSON)
    if content is None or repository.document(TOKENIZER_JSON) is None:
        return None
    answer = repository.worker.tokenizer(content, (*ORDINARY, *HOSTILE))
    if answer.problem:
        return Trial(load=answer.problem)
    errors = [probe.error for probe in answer.probes]
    hostile = next((error for error in errors[len(ORDINARY) :] if error), None)
    if errors[0] and errors[0] == hostile:  # a limit ended the child: all texts share the blame until asked again
        errors = [probe.error for probe in repository.worker.tokenizer(content, ORDINARY).probes]
    return Trial(None, next((error for error in errors[: len(ORDINARY)] if error), None), hostile)
