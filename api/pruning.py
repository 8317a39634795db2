"""Deletes what is older than is promised to be kept, beside the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from storage import audit, idempotency
from storage.errors import DRIVER_ERRORS, StorageError
from storage.idempotency import BATCH
from storage.pool import AnyConnection

Database = Callable[[], AbstractAsyncContextManager[AnyConnection]]
log = logging.getLogger("redrive.api")
LOOK_S = 60.0
# Between two batches, so that requests come first.
PAUSE_S = 0.1


async def prune_forever(database: Database, retention_s: float, audit_days: float | None) -> NoReturn:
    """Until cancelled. Rows of the audit stay for ever without `audit_days`."""
    while True:
        more = await _prune(database, "idempotency keys", lambda db: idempotency.prune(db, retention_s))
        if audit_days is not None:
            more |= await _prune(database, "rows of the audit", lambda db: audit.prune(db, audit_days))
        await asyncio.sleep(PAUSE_S if more else LOOK_S)


async def _prune(database: Database, what: str, prune: Callable[[AnyConnection], Awaitable[int]]) -> bool:
    """Whether there may be more."""
    deleted = 0
    try:
        async with database() as db:
            deleted = await prune(db)
    except (StorageError, *DRIVER_ERRORS) as error:
        log.warning("old %s stay: %s", what, error, extra={"action": "prune_failed"})
    if deleted:
        log.info("deleted %d old %s", deleted, what, extra={"action": "pruned"})
    return deleted == BATCH
