"""The table of rules, in the order in which they run: cheap ones first.

Every family is a module of the same name as the artifact it is about. A rule that is not in this table does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from repokit.linter.rules import (
    adapter,
    card,
    card_values,
    chat_template,
    config,
    files,
    generation,
    index,
    license as licenses,
    names,
    pickles,
    processor,
    remote_code,
    security,
    special_tokens,
    template_places,
    template_text,
    token_ids,
    tokenizer,
    tokenizer_json,
    weights,
    weights_against_config,
)

if TYPE_CHECKING:
    from repokit.linter.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *files.RULES,
    *pickles.RULES,
    *names.RULES,
    *config.RULES,
    *remote_code.RULES,
    *generation.RULES,
    *tokenizer.RULES,
    *tokenizer_json.RULES,
    *token_ids.RULES,
    *special_tokens.RULES,
    *chat_template.RULES,
    *template_text.RULES,
    *template_places.RULES,
    *processor.RULES,
    *weights.RULES,
    *weights_against_config.RULES,
    *index.RULES,
    *adapter.RULES,
    *card.RULES,
    *card_values.RULES,
    *licenses.RULES,
    *security.RULES,
)
