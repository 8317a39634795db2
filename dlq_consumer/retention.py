"""Takes decided letters and old alerts away, and folds old counts: a few at a time, beside the drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dlq_consumer.settings import KeepingSettings
from storage import callbacks, group_counts, retention
from storage.errors import MigrationError
from storage.pool import Pool
from storage.retention import Decided

log = logging.getLogger(__name__)
# Between two passes over all, and between two transactions.
PASS_S = 600.0
PAUSE_S = 0.05
STATES: tuple[Decided, ...] = ("discarded", "replayed")


class Retention:
    """Several may run: each leaves what another is at."""

    def __init__(self, pool: Pool, settings: KeepingSettings, callback_days: float) -> None:
        self._pool = pool
        self._settings = settings
        self._batch = settings.retention_batch
        self._callback_days = callback_days

    async def run(self) -> None:
        """For ever. Raises DatabaseAwayError."""
        while True:
            try:
                letters = sum([await self._letters(state) for state in STATES])
                await retention.forget(self._pool)
                alerts = await self._alerts()
            except MigrationError as error:
                log.warning("no retention: %s", error, extra={"action": "retention_off"})
            else:
                if letters or alerts:
                    extra = {"action": "expired", "letters": letters, "alerts": alerts}
                    log.info("letters and alerts expired", extra=extra)
            await self._callbacks()
            await self._hours()
            await asyncio.sleep(PASS_S)

    async def _letters(self, state: Decided) -> int:
        gone, after = 0, 0
        if (days := self._settings.retention_days) is None:
            return 0
        while True:
            step = await retention.expire(self._pool, state, days=days, batch=self._batch, after=after)
            gone += step.gone
            if step.after is None:
                return gone
            after = step.after
            await asyncio.sleep(PAUSE_S)

    async def _alerts(self) -> int:
        if (days := self._settings.alert_retention_days) is None:
            return 0
        return await self._in_batches(
            lambda: retention.expire_alerts(self._pool, days=days, batch=self._batch)
        )

    async def _callbacks(self) -> None:
        gone = await self._in_batches(
            lambda: callbacks.prune(self._pool, days=self._callback_days, batch=self._batch)
        )
        if gone:
            extra = {"action": "callbacks_pruned", "callbacks": gone}
            log.info("callbacks that were delivered long ago are deleted", extra=extra)

    async def _in_batches(self, delete: Callable[[], Awaitable[int]]) -> int:
        gone = 0
        while True:
            now = await delete()
            gone += now
            if now < self._batch:
                return gone
            await asyncio.sleep(PAUSE_S)

    async def _hours(self) -> None:
        while await group_counts.fold_old_hours(self._pool, batch=self._batch) == self._batch:  # noqa: ASYNC110 - a pause
            await asyncio.sleep(PAUSE_S)
