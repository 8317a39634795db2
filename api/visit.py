"""What one request has come to on its way in, for the answer on its way out."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.types import Scope

_KEY = "redrive.visit"


@dataclass
class Visit:
    """`headers` go with the answer, whatever it is; `audit` is the row that gets its status."""

    headers: dict[str, str] = field(default_factory=dict)
    audit: int | None = None


def begin(scope: Scope) -> Visit:
    """Of a request that comes in."""
    made = scope[_KEY] = Visit()
    return made


def of(scope: Scope) -> Visit:
    """Of the request that is being answered."""
    found = scope[_KEY]
    assert isinstance(found, Visit)
    return found
