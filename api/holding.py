"""Answers that take long: so many at a time for each caller, and only while its key is good."""

from __future__ import annotations

from fastapi import Request

from api import visit
from api.auth import address_of, runtime_at
from api.keys import TooManyUnknownError
from api.problems import Problem
from storage.errors import DatabaseAwayError

RETRY_AFTER_S = 5


def hold(request: Request, what: str, most: int) -> None:
    """Count this request as one of the caller's `what` (such as `streams`) until it is answered.

    Raises:
        Problem: 429, `most` of them are open.
    """
    here, held = visit.of(request.scope), runtime_at(request).held
    caller = here.principal.name if here.principal else ""
    if held[caller, what] >= most:
        detail = f"the key {caller!r} has {most} {what} open"
        raise Problem(429, "too-many-open", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
    held[caller, what] += 1

    def release() -> None:
        held[caller, what] -= 1
        if not held[caller, what]:
            del held[caller, what]

    here.at_end.append(release)


async def still_good(request: Request, scope: str = "read") -> bool:
    """Whether the key of a request that is answered for long still opens it. True while nobody can tell."""
    here = visit.of(request.scope)
    try:
        principal = await runtime_at(request).keys.principal(here.key, address_of(request))
    except DatabaseAwayError:
        return True
    except TooManyUnknownError:
        return False
    return principal is not None and scope in principal.scopes
