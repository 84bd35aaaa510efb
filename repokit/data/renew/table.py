"""Writes a table of repokit/data/: long lists are wrapped, so that a renewal is a diff that people can read."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent


def write_ids(name: str, *, source: str, date: str, ids: list[str]) -> None:
    """Writes data/`name`.json: where the ids are from, as of when, and the ids in the order of their source."""
    if len(set(ids)) != len(ids) or not ids:
        raise SystemExit(f"{name}: no ids, or an id twice: the source has changed its shape")
    wrapped = textwrap.fill(
        ", ".join(json.dumps(word) for word in ids),
        width=110,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    head = f'{{\n  "source": {json.dumps(source)},\n  "date": {json.dumps(date)},\n  "ids": [\n'
    (DATA / f"{name}.json").write_text(f"{head}{wrapped}\n  ]\n}}\n", encoding="utf-8")
    print(f"{name}.json: {len(ids):,} ids, {date}")
