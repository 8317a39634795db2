"""What lives as long as the process: the pool, the relay, the view of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from api.body_room import BodyRoom
from api.broker_view import BrokerView
from api.broker_watch import BrokerWatch, Trouble
from api.figures import ApiFigures
from api.group_commit import GroupCommit
from api.keys import KeyRing
from api.long_work import LongWork
from api.outbox_room import OutboxRoom
from api.pruning import prune_forever
from api.rate_limit import RateLimit
from api.readiness import DatabaseLook
from api.relay import Relay
from api.settings import ApiSettings
from outbound.reach import Reach
from storage import outbox
from storage.errors import DRIVER_ERRORS, DatabaseAwayError, StorageError
from storage.pool import AnyConnection, Pool, borrow, open_pool, wait_for_database
from storage.settings import StorageSettings
from topology.address import AmqpAddress
from topology.settings import ReplaySettings
from topology.spec import Topology

log = logging.getLogger("redrive.api")
NAME = "redrive-api"
AGAIN_S = 1.0
RELAY_AGAIN_S = 5.0
# Of the pool, for choosing and deciding; and for stopping a replay, which must not wait for that.
LONG_SHARE, CONTROL_SHARE = 0.2, 0.1
# For telling others, when this process stops.
HAND_OVER_S = 2.0


@dataclass(frozen=True)
class Config:
    """Everything that the entry point read from the environment."""

    api: ApiSettings
    storage: StorageSettings
    topology: Topology
    address: AmqpAddress
    management_url: str
    replays: ReplaySettings
    callbacks: Reach | None = None  # where they may lead; None: none are taken
    time_scale: float = 1.0
    watched: frozenset[str] = frozenset()  # drained though not of the topology: no place for a replay


class Runtime:
    """Starts what the process needs while it already answers: liveness must not wait for the database."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.broker = BrokerView(config.management_url, config.address.vhost)
        self.room = OutboxRoom(config.api.outbox_limit)
        self.group_commit = GroupCommit(self.database)
        self.database_look = DatabaseLook(self.database)
        self.relay = self._new_relay()
        self.watch = BrokerWatch(self.broker, config.topology, config.time_scale)
        self.figures = ApiFigures(self)
        self.keys = KeyRing(self.database, config.api.unknown_keys_per_min)
        self.rates = RateLimit()
        self.held: Counter[tuple[str, str]] = Counter()
        self.bodies = BodyRoom()
        connections, wait_s = config.storage.database_pool_max, config.api.database_timeout_s
        self.choosing = LongWork(connections, LONG_SHARE, wait_s)
        self.controlling = LongWork(connections, CONTROL_SHARE, wait_s)
        self._pool: Pool | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._relay_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="relay")
        self._task.add_done_callback(_log_failure)

    @property
    def troubles(self) -> list[Trouble]:
        """What delays jobs, but does not keep them from being accepted."""
        found = [*self.watch.troubles]
        if (broker := self.relay.broker) != "ok":
            found.insert(0, Trouble("broker", broker))
        if self._relay_error is not None:
            found.insert(0, Trouble("relay", self._relay_error))
        paused = "above its watermark, or being migrated: its jobs wait in the outbox"
        return found + [Trouble(queue, paused) for queue in self.relay.paused]

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
        self._stopping = True
        self.relay.stop()
        if self._task is not None:
            if self._pool is not None:
                await asyncio.wait({self._task}, timeout=self.config.api.publish_timeout_s)
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._hand_over()
        await self.figures.close()
        await self.broker.close()
        if self._pool is not None:
            try:
                async with asyncio.timeout(self.config.api.database_timeout_s):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    async def _hand_over(self) -> None:
        """Other processes look for what this one leaves at once, instead of at their next look."""
        if self._pool is not None:
            with suppress(StorageError, *DRIVER_ERRORS):
                async with borrow(self._pool, HAND_OVER_S) as db:
                    await outbox.tell_relays(db, self.relay.name)

    async def _run(self) -> None:
        # Beside the database's: trouble of the broker is told while the database is waited for.
        looking = self._beside(self.watch.run(), "broker_watch")
        beside = [looking]
        try:
            pool = await self._connect()
            await self._measure(pool)
            self._pool = pool  # from here on jobs are accepted
            kept = self.config.api
            pruning = prune_forever(self.database, kept.idempotency_retention_s, kept.audit_retention_days)
            beside.append(self._beside(pruning, "pruning"))
            beside.append(self._beside(self.room.watch(self.database), "outbox_room"))
            await self._relay_on(pool)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    def _beside(self, work: Coroutine[Any, Any, NoReturn], name: str) -> asyncio.Task[NoReturn]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_failure)
        return task

    async def _measure(self, pool: Pool) -> None:
        """Before the first job: the outbox may be full already."""
        with suppress(StorageError, *DRIVER_ERRORS):
            async with borrow(pool, self.config.api.database_timeout_s) as db:
                await self.room.look(db)

    async def _relay_on(self, pool: Pool) -> None:
        """Until told to stop; after a defect with a new relay, or accepted jobs would stay."""
        while not self._stopping:
            try:
                await self.relay.run(pool, self.config.storage)
            except Exception as error:
                self._relay_error = f"stopped by a defect ({type(error).__name__}), started again"
                log.critical(
                    "the relay stopped by a defect; another one in %g s",
                    RELAY_AGAIN_S,
                    extra={"action": "relay_failed"},
                    exc_info=error,
                )
                await asyncio.sleep(RELAY_AGAIN_S)
                self._relay_error = None
                self.relay = self._new_relay()

    def _new_relay(self) -> Relay:
        return Relay(self.config.address, self.config.topology, self.config.api, self.room)

    async def _connect(self) -> Pool:
        while True:
            await wait_for_database(self.config.storage, log.warning)
            try:
                pool = await open_pool(self.config.storage, NAME, stateless=True)
            except DRIVER_ERRORS as error:  # gone again between the two, or out of connections
                log.warning("waiting for the database: %s", error, extra={"action": "database_waits"})
                await asyncio.sleep(AGAIN_S)
                continue
            log.info("database: connected", extra={"action": "database_connected"})
            return pool


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()):
        fields = {"action": f"{task.get_name()}_failed"}
        log.critical("%s stopped by a defect", task.get_name(), extra=fields, exc_info=error)
