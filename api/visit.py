"""What one request has come to on its way in, for the answer on its way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from storage.api_keys import Principal

_KEY = "redrive.visit"


@dataclass
class Visit:
    """`headers` go with the answer, whatever it is; `audit` is the row that gets its status.

    `principal` and the `key` that it showed; `at_end` is called when the answer is complete or given up.
    """

    headers: dict[str, str] = field(default_factory=dict)
    audit: int | None = None
    principal: Principal | None = None
    key: str = ""
    at_end: list[Callable[[], None]] = field(default_factory=list)


def begin(scope: Scope) -> Visit:
    """Of a request that comes in."""
    made = scope[_KEY] = Visit()
    return made


def of(scope: Scope) -> Visit:
    """Of the request that is being answered."""
    found = scope[_KEY]
    assert isinstance(found, Visit)
    return found
