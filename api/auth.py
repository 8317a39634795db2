"""API keys: made, hashed, and asked for."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import Problem
from api.runtime import Runtime
from storage import api_keys
from storage.api_keys import Principal

SCOPES = ("submit", "read", "operate")
PREFIX = "rdk_"
KEY_BYTES = 32
CHALLENGE = 'Bearer realm="redrive"'
_bearer = HTTPBearer(auto_error=False, description="An API key, made by `api-keys create`: rdk_…")


def new_key() -> str:
    """A key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def hash_key(key: str) -> bytes:
    """What is stored of a key.

    Plain SHA-256: salt and a slow hash protect what people choose; 256 random bits can neither be
    guessed nor tabulated. The look-up is by this hash, so the time that the database's comparison takes
    tells about the hash of a guess alone, from which no next guess follows.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def runtime_of(request: Request) -> Runtime:
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


class Requires:
    """A dependency: the request has a key (else 401) with one of these scopes (else 403)."""

    def __init__(self, *scopes: str) -> None:
        assert set(scopes) <= set(SCOPES)
        self.scopes = scopes

    async def __call__(
        self,
        runtime: Annotated[Runtime, Depends(runtime_of)],
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    ) -> Principal:
        if credentials is None:
            raise _unauthorized("a key is required: Authorization: Bearer rdk_…")
        async with runtime.database() as db:
            principal = await api_keys.find(db, hash_key(credentials.credentials))
        if principal is None:
            raise _unauthorized("this key is not known, or was revoked", error="invalid_token")
        if not principal.scopes.intersection(self.scopes):
            wanted = " or ".join(map(repr, self.scopes))
            scopes = " ".join(self.scopes)
            raise Problem(
                403,
                "scope",
                f"the key {principal.name!r} lacks the scope {wanted}",
                headers={"WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope", scope="{scopes}"'},
            )
        return principal


def _unauthorized(detail: str, error: str | None = None) -> Problem:
    # RFC 6750, section 3: no error code when no credentials came.
    challenge = CHALLENGE + (f', error="{error}"' if error else "")
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


# What a route takes: the parts of this process, and the key that asks, which must have a scope.
Context = Annotated[Runtime, Depends(runtime_of)]
Reader = Depends(Requires("read"))
Submitter = Annotated[Principal, Depends(Requires("submit"))]
Operator = Annotated[Principal, Depends(Requires("operate"))]
