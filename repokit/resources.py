"""Finds the files that repokit ships beside its code: schemas/, templates/ and data/.

In a wheel all three lie inside the package. In a checkout, and so in an editable install, schemas/ and templates/
stand at the top level, where people look for them.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from repokit.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `schemas`, `templates` or `data`: inside the package first, beside it in a checkout second.

    Raises:
        InternalError: The installation lacks it.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise InternalError(
        f"this installation of repokit has no {name}/ folder",
        why="it was built or copied without its resources",
        hint="pip install --force-reinstall repokit",
    )


@cache
def data(name: str) -> Any:  # noqa: ANN401 - a JSON document; each reader knows its own table
    """The parsed table data/`name`.json. Tables carry their own `source` and `date`; callers must not change them."""
    return json.loads((folder("data") / f"{name}.json").read_bytes())


@cache
def packed(name: str) -> Any:  # noqa: ANN401 - as above
    """The parsed table data/`name`.json.z: one that is too long to be read as text by anybody."""
    return json.loads(zlib.decompress((folder("data") / f"{name}.json.z").read_bytes()))
