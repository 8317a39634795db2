"""Who asks, whether they may, and whether not too often."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from api import audited, visit
from api.keys import TooManyUnknownError
from api.problems import Problem
from api.runtime import Runtime
from storage.api_keys import Principal

SCOPES = ("submit", "read", "operate")
# Between scopes of which one will do, in the name of a security scheme.
EITHER = " or "
CHALLENGE = 'Bearer realm="redrive"'
# So many jobs of a batch count as one request: about what they cost the database beside each other.
JOBS_TO_A_REQUEST = 10


def runtime_at(request: Request) -> Runtime:
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


async def runtime_of(request: Request) -> Runtime:
    """The same, as a dependency: FastAPI calls what is not async in a thread."""
    return runtime_at(request)


class Requires(HTTPBearer):
    """A dependency: the request has a key (else 401), not too often (429), with one of these scopes (403).

    What may change something is put on record before it begins, unless the change itself does that. It is the
    security scheme itself: FastAPI takes 30 us for each dependency of a dependency.
    """

    def __init__(self, *scopes: str, notes_itself: bool = False) -> None:
        super().__init__(
            auto_error=False,
            scheme_name=EITHER.join(scopes),  # which the OpenAPI document takes apart
        )
        assert set(scopes) <= set(SCOPES)
        self.scopes = scopes
        self.notes_itself = notes_itself

    async def __call__(self, request: Request) -> Principal:  # type: ignore[override]
        runtime, key = runtime_at(request), _bearer_key(request)
        if not key:
            raise _unauthorized("a key is required: Authorization: Bearer rdk_…")
        try:
            principal = await runtime.keys.principal(key, address_of(request))
        except TooManyUnknownError as error:
            headers = error.taken.headers
            raise Problem(429, "too-many-unknown-keys", f"{error}", headers=headers) from None
        if principal is None:
            raise _unauthorized("this key is not known, was revoked or has ended", error="invalid_token")
        here = visit.of(request.scope)
        here.principal, here.key = principal, key
        charge(request, runtime, principal)
        if not principal.scopes.intersection(self.scopes):
            wanted = " or ".join(map(repr, self.scopes))
            scopes = " ".join(self.scopes)
            raise Problem(
                403,
                "scope",
                f"the key {principal.name!r} lacks the scope {wanted}",
                headers={"WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope", scope="{scopes}"'},
            )
        if request.method not in audited.SAFE and not self.notes_itself:
            await audited.begin(request, runtime, principal)
        return principal


def charge(request: Request, runtime: Runtime, principal: Principal, cost: float = 1.0) -> None:
    """Count a request of this caller, against the limit of its key or of the settings.

    Raises:
        Problem: 429, with the seconds to wait.
    """
    settings = runtime.config.api
    rate = settings.rate_per_s if principal.rate is None else principal.rate
    burst = principal.burst or settings.rate_burst
    if not rate:
        return
    now = asyncio.get_running_loop().time()
    taken = runtime.rates.take(principal.name, rate, burst, now, cost)
    visit.of(request.scope).headers |= taken.headers
    if not taken.allowed:
        detail = f"the key {principal.name!r} asks too often: {rate:g} requests a second, {burst} at once"
        raise Problem(429, "rate-limit", detail, headers=taken.headers)


def charge_jobs(request: Request, runtime: Runtime, principal: Principal, jobs: int) -> None:
    """Count what a batch is more than the one request that was counted. Raises Problem (429)."""
    if more := math.ceil(jobs / JOBS_TO_A_REQUEST) - 1:
        charge(request, runtime, principal, more)


def address_of(request: Request) -> str | None:
    """The peer's, or what a proxy that uvicorn trusts (FORWARDED_ALLOW_IPS) says of it."""
    return request.client.host if request.client else None


def _bearer_key(request: Request) -> str:
    """What stands behind the scheme; '' where there is none, or another."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _unauthorized(detail: str, error: str | None = None) -> Problem:
    # RFC 6750, section 3: no error code when no credentials came.
    challenge = CHALLENGE + (f', error="{error}"' if error else "")
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


# What a route takes: the parts of this process, and the key that asks, which must have a scope.
Context = Annotated[Runtime, Depends(runtime_of)]
Reader = Depends(Requires("read"))
may_submit = Requires("submit", notes_itself=True)
Submitter = Annotated[Principal, Depends(may_submit)]
Operator = Annotated[Principal, Depends(Requires("operate"))]
