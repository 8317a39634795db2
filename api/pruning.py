"""Deletes idempotency keys that are older than promised, beside the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from storage import idempotency
from storage.errors import DRIVER_ERRORS, StorageError
from storage.pool import AnyConnection

log = logging.getLogger("redrive.api")
LOOK_S = 60.0
# Between two batches, so that requests come first.
PAUSE_S = 0.1


async def prune_forever(
    database: Callable[[], AbstractAsyncContextManager[AnyConnection]], retention_s: float
) -> NoReturn:
    """Until cancelled."""
    while True:
        deleted = 0
        try:
            async with database() as db:
                deleted = await idempotency.prune(db, retention_s)
        except (StorageError, *DRIVER_ERRORS) as error:
            log.warning("old idempotency keys stay: %s", error, extra={"action": "prune_failed"})
        if deleted:
            fields = {"action": "keys_pruned", "keys": deleted}
            log.info("deleted idempotency keys older than %g s", retention_s, extra=fields)
        await asyncio.sleep(PAUSE_S if deleted == idempotency.BATCH else LOOK_S)
