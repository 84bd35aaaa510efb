"""What `repokit lint --write-baseline` writes: findings that are known, and do not fail the next run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class KnownFinding(_Closed):
    """A finding at one place, however often it is there."""

    fingerprint: str = Field(description="Of code, path and place.", pattern=r"^[0-9a-f]{64}$")
    code: str = Field(description="Of the rule.", pattern=r"^[A-Z]{3}[0-9]{3}$")
    path: str = Field(description="The file, relative to the repository.")
    place: str | None = Field(None, description="Where in it: a JSON Pointer, a tensor name. Never a line.")
    count: int = Field(1, ge=1, description="How many findings have this fingerprint.")


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Baseline(_Closed):
    """The findings that are known."""

    format: Literal["repokit-baseline"] = Field(description="What tells this file from another.")
    version: Literal[1] = Field(description="Of this format.")
    findings: Annotated[
        tuple[KnownFinding, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[KnownFinding])
    ] = Field((), description="By code, path and place.")
