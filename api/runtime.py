"""What lives as long as the process: the pool, the relay, the view of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from api.broker_view import BrokerView
from api.pruning import prune_forever
from api.relay import Relay
from api.settings import ApiSettings
from storage.errors import DRIVER_ERRORS, DatabaseAwayError
from storage.pool import AnyConnection, Pool, borrow, open_pool, wait_for_database
from storage.settings import StorageSettings
from topology.address import AmqpAddress
from topology.settings import ReplaySettings
from topology.spec import Topology

log = logging.getLogger("redrive.api")
NAME = "redrive-api"
AGAIN_S = 1.0


@dataclass(frozen=True)
class Config:
    """Everything that the entry point read from the environment."""

    api: ApiSettings
    storage: StorageSettings
    topology: Topology
    address: AmqpAddress
    management_url: str
    replays: ReplaySettings


class Runtime:
    """Starts what the process needs while it already answers: liveness must not wait for the database."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.broker = BrokerView(config.management_url, config.address.vhost)
        self.relay = Relay(config.address, config.topology, config.api)
        self._pool: Pool | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="relay")
        self._task.add_done_callback(_log_failure)

    @property
    def failed(self) -> bool:
        """Whether the task behind the scenes ended by a defect; its traceback is in the log."""
        return self._task is None or self._task.done()

    @asynccontextmanager
    async def database(self, for_s: float | None = None) -> AsyncIterator[AnyConnection]:
        """A connection for one request, for `database_timeout_s` seconds or `for_s`.

        One at a time: with two each, requests would wait for each other.

        Raises:
            DatabaseAwayError: not reached since the start, not now, or not within `database_timeout_s`.
        """
        if self._pool is None:
            raise DatabaseAwayError("Postgres has not been reached since this process started")
        async with borrow(self._pool, self.config.api.database_timeout_s, for_s=for_s) as connection:
            yield connection

    async def close(self) -> None:
        """Stop the relay after its batch, then close the pool. Open requests have ended by then."""
        self.relay.stop()
        if self._task is not None:
            if self._pool is not None:
                await asyncio.wait({self._task}, timeout=self.config.api.publish_timeout_s)
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.broker.close()
        if self._pool is not None:
            try:
                async with asyncio.timeout(self.config.api.database_timeout_s):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    async def _run(self) -> None:
        self._pool = await self._connect()
        retention_s = self.config.api.idempotency_retention_s
        pruning = asyncio.create_task(prune_forever(self.database, retention_s), name="pruning")
        pruning.add_done_callback(_log_failure)
        try:
            await self.relay.run(self._pool, self.config.storage)
        finally:
            pruning.cancel()
            await asyncio.wait({pruning})

    async def _connect(self) -> Pool:
        while True:
            await wait_for_database(self.config.storage, log.warning)
            try:
                pool = await open_pool(self.config.storage, NAME)
            except DRIVER_ERRORS as error:  # gone again between the two, or out of connections
                log.warning("waiting for the database: %s", error, extra={"action": "database_waits"})
                await asyncio.sleep(AGAIN_S)
                continue
            log.info("database: connected", extra={"action": "database_connected"})
            return pool


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        fields = {"action": f"{task.get_name()}_failed"}
        log.critical("%s stopped by a defect", task.get_name(), extra=fields, exc_info=error)
