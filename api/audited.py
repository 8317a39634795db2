"""Every call that changes something is on record before it begins: see `storage.audit`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from api import visit
from api.runtime import Runtime
from api.slashes import given_back
from storage import audit
from storage.api_keys import Principal
from storage.audit import Actor
from storage.errors import DRIVER_ERRORS, StorageError

log = logging.getLogger("redrive.api")
SAFE = ("GET", "HEAD", "OPTIONS")
# What a body names, beside a note, options and a filter.
_NAMING = ("letter_ids", "subject")


def actor_of(request: Request, principal: Principal) -> Actor:
    """The caller, its key, and the peer's address, or what a proxy that uvicorn trusts says of it."""
    address = request.client.host if request.client else None
    return Actor(principal.name, address, principal.key_id)


async def begin(request: Request, runtime: Runtime, principal: Principal) -> None:
    """Commit the row of this call, which is no submission.

    Raises:
        DatabaseAwayError: it must not begin.
    """
    operation = f"{request.method} {request.scope['route'].path}"
    targets = [given_back(str(value)) for value in request.path_params.values()]
    async with runtime.database() as db:
        visit.of(request.scope).audit = await audit.begin(
            db, actor_of(request, principal), operation, targets
        )


async def tell(request: Request, body: Any) -> None:
    """Add what the body asks for. Raises DatabaseAwayError."""
    row = visit.of(request.scope).audit
    if row is None or not isinstance(body, dict) or not body:
        return
    named: list[str] = []
    for name in _NAMING:
        value = body.get(name, [])
        named += [str(each) for each in (value if isinstance(value, list) else [value])]
    runtime: Runtime = request.app.state.runtime
    async with runtime.database() as db:
        await audit.tell(db, row, named, details_of(body))


def details_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without what may be a secret or long: of a patch its places, of ids their number."""
    found = {name: value for name, value in body.items() if name not in (*_NAMING, "patch")}
    if isinstance(ids := body.get("letter_ids"), list):
        found["letters"] = len(ids)
    if isinstance(patch := body.get("patch"), list):
        found["patch"] = [
            {"op": each.get("op"), "path": each.get("path")} for each in patch[:20] if isinstance(each, dict)
        ]
    return found


async def end(runtime: Runtime, row: int, status: int) -> None:
    """What was answered. That it cannot be put on record changes no answer: the row stays without one."""
    try:
        async with runtime.database() as db:
            await audit.end(db, row, status)
    except (StorageError, *DRIVER_ERRORS) as error:
        log.warning("audit %d has no outcome (%d): %s", row, status, error, extra={"action": "audit_open"})
