"""Which license a model has: the ids that the Hub knows, and what a recipe says of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from repokit.resources import data


def license_ids() -> tuple[str, ...]:
    """The ids that the Hub accepts in a card, in its own order (data/licenses.json says as of when)."""
    return tuple(data("licenses")["ids"])


class License(BaseModel):
    """The license of what is published. It is never guessed: without an id the build stops."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str | None = Field(None, description="One of the Hub's license ids, or `other`.")
    file: str | None = Field(
        "auto",
        description="The text that becomes LICENSE: a path relative to the recipe; `auto` takes the source's, then the "
        "base's; null publishes none.",
    )
    name: str | None = Field(None, description="An id of its own, where id is `other`: `acme-license-1.0`.")
    link: str | None = Field(None, description="Where id is `other`: a URL, or the file in the repository.")
