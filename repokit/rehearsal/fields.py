"""Values out of a client's JSON, of the type that they have to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repokit.rehearsal.refusals import HubError

if TYPE_CHECKING:
    from collections.abc import Mapping


def text(record: Mapping[str, object], name: str, default: str | None = None) -> str:
    """A string.

    Raises:
        HubError: It is missing without a default, or of another type.
    """
    value = record.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise HubError(f'"{name}" must be a string')
    return value


def natural(record: Mapping[str, object], name: str) -> int:
    """A whole number from 0 on.

    Raises:
        HubError: It is missing or something else.
    """
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise HubError(f'"{name}" must be a whole number from 0 on')
    return value


def records(record: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """A list of objects.

    Raises:
        HubError: It is missing or something else.
    """
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise HubError(f'"{name}" must be a list of objects')
    return value


def texts(record: Mapping[str, object], name: str) -> list[str]:
    """A list of strings.

    Raises:
        HubError: It is missing or something else.
    """
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise HubError(f'"{name}" must be a list of strings')
    return value
