"""The process: everything on one loop, for as long as it is not told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from dlq_consumer.alert_watch import AlertWatch
from dlq_consumer.alerting import AlertDispatcher
from dlq_consumer.batches import BatchLimits
from dlq_consumer.callbacks.sender import CallbackSender
from dlq_consumer.configuration import Configuration
from dlq_consumer.consumption import ConsumedWatch
from dlq_consumer.drain import QueueDrain
from dlq_consumer.figures import ConsumerFigures
from dlq_consumer.harmed import HarmWatch
from dlq_consumer.hearing import HearingWatch
from dlq_consumer.held import Held
from dlq_consumer.intake import Intake
from dlq_consumer.replaying import ReplayExecutor
from dlq_consumer.retention import Retention
from dlq_consumer.stuck import StuckWatch
from dlq_consumer.waiting import event_or_timeout
from dlq_consumer.ways import Ways
from storage.abandoned import bury_abandoned
from storage.errors import DatabaseAwayError, translate
from storage.group_counts import fold
from storage.pool import Pool, open_pool, wait_for_database
from storage.sessions import Locks, open_locks
from storage.settings import StorageSettings
from topology.backoff import Backoff

log = logging.getLogger(__name__)
NAME = "redrive-dlq"
CLOSE_S = 5.0
SWEEP_S = 5.0
GC_OBJECTS = 20_000


class Service:
    """Runs while the database is there; stops everything when it goes, and starts again when it is back."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._stopping = asyncio.Event()
        self._interrupted = False
        self._figures = ConsumerFigures(configuration)
        self._consumer = f"{socket.gethostname()}:{os.getpid()}"

    def stop(self) -> None:
        """Let the batch in hand be stored and acked, then end `run`."""
        log.info("stopping", extra={"action": "stopping"})
        self._stopping.set()

    def _interrupt(self) -> None:
        self._interrupted = True
        self.stop()

    async def run(self) -> bool:
        """Until SIGTERM (then False) or SIGINT (then True)."""
        loop = asyncio.get_running_loop()
        # What is there now stays, and a batch of letters is no garbage either: a quarter of the time that it
        # took to read one went into looking through both.
        gc.freeze()
        gc.set_threshold(GC_OBJECTS)
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        settings = self._configuration
        if not settings.channels:
            log.warning(
                "no channel (REDRIVE_ALERT_WEBHOOK_URL, REDRIVE_ALERT_APPRISE_URLS, REDRIVE_SENTRY_DSN):"
                " alerts are written down and go nowhere",
                extra={"action": "no_alert_channel"},
            )
        ways = Ways(settings.broker.address, NAME)
        self._figures.serve(loop)
        await ways.open(place.vhost for place in settings.queues)
        backoff = Backoff(first_s=0.2)
        try:
            while not self._stopping.is_set():
                try:
                    await self._while_database_lasts(ways)
                except DatabaseAwayError as error:
                    log.warning("stopped consuming: %s", error, extra={"action": "database_lost"})
                    await event_or_timeout(self._stopping, backoff.next_s())
                else:
                    backoff.reset()
        finally:
            await self._figures.close()
            await ways.close()
            for channel in settings.channels:
                await channel.close()
        log.info("stopped", extra={"action": "stopped"})
        return self._interrupted

    async def _while_database_lasts(self, ways: Ways) -> None:
        storage = self._configuration.storage
        if not await self._unless_stopped(wait_for_database(storage, _say)):
            return
        log.info("the database is there", extra={"action": "database_ready"})
        pool = self._figures.pool = await _pool(storage)
        try:
            async with open_locks(storage, f"{NAME}-locks") as locks:
                await self._work(pool, locks, ways)
            if locks.lost.is_set():
                raise DatabaseAwayError("the connection that holds the drain locks was lost")
        finally:
            self._figures.pool = None
            await _close(pool)

    async def _work(self, pool: Pool, locks: Locks, ways: Ways) -> None:
        settings = self._configuration
        policy = settings.alert_policy
        dispatchers = [AlertDispatcher(pool, channel, self._figures) for channel in settings.channels]

        def wake() -> None:
            for dispatcher in dispatchers:
                dispatcher.wake()

        limits = BatchLimits(settings.consumer.batch_letters, settings.consumer.batch_ms / 1000)
        executor = ReplayExecutor(
            pool,
            locks,
            ways.own.publisher,
            figures=self._figures,
            foreign_after_s=settings.consumer.foreign_outcome_s,
            stopping=self._stopping,
        )
        held = Held(settings.consumer.held_mib * 1024 * 1024)
        held.through([way.link for way in ways.all])
        home = settings.broker.address.vhost
        ours, theirs = (
            Intake(pool, t, policy, settings.keeping.redacted, on_alert=wake)
            for t in (settings.topology, None)
        )
        drains = {
            place: QueueDrain(
                place.queue, shown=place.shown(home), link=ways.to(place.vhost).link, locks=locks,
                intake=ours if place.vhost == home else theirs, probes=ways.to(place.vhost).probes,
                limits=limits, held=held, figures=self._figures,
                prefetch=settings.consumer.prefetch, consumer=self._consumer, stopping=self._stopping,
            )
            for place in settings.queues
        }  # fmt: skip
        self._figures.drains = {place.shown(home): drain.hearing for place, drain in drains.items()}
        # These end by themselves when it stops: with the letters in hand stored, or sent and recorded.
        ending = [
            *(drain.run() for drain in drains.values()),
            _as_long_as_possible("replays", locks, executor.run),
        ]
        watch = StuckWatch(settings.management_url, settings.broker.address.vhost)
        harm = HarmWatch(settings.management_url, home, settings.topology, settings.broker.time_scale)
        hearing = HearingWatch(settings.management_url, {p: drain.hearing for p, drain in drains.items()})
        endless = [
            locks.watch(),
            watch.run(),
            harm.run(),
            hearing.run(),
            _as_long_as_possible("sweep", locks, lambda: _sweep(pool)),
        ]
        keeping = Retention(pool, settings.keeping, settings.callbacks.retention_days)
        endless.append(_as_long_as_possible("retention", locks, keeping.run))
        if settings.callbacks.secret:
            sender = CallbackSender(pool, settings.callbacks, self._stopping)
            ending.append(_as_long_as_possible("callbacks", locks, sender.run))
        else:
            log.info("callbacks are not sent: no REDRIVE_CALLBACK_SECRET", extra={"action": "callbacks_off"})
        alert_watch = AlertWatch(
            pool, policy, settings.management_url, settings.queues,
            no_consumer_s=settings.alerts.no_consumer_s, oldest_s=settings.alerts.oldest_s, on_alert=wake,
        )  # fmt: skip
        consumed = ConsumedWatch(
            pool, settings.management_url, home, settings.topology, quiet_s=settings.consumer.consumed_s
        )
        endless.append(_as_long_as_possible("consumed", locks, consumed.run))
        endless += [
            _as_long_as_possible("alerts", locks, run)
            for run in (alert_watch.run, *(dispatcher.run for dispatcher in dispatchers))
        ]
        await self._supervise(
            [asyncio.ensure_future(task) for task in ending],
            [asyncio.ensure_future(task) for task in endless],
            locks,
            pool,
        )

    async def _supervise(
        self,
        ending: list[asyncio.Future[None]],
        endless: list[asyncio.Future[None]],
        locks: Locks,
        pool: Pool,
    ) -> None:
        """Until stopped or the locks are lost. An unexpected error in any task ends the process, loudly."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._stopping, locks.lost)]
        tasks = [*ending, *endless]
        everything: list[asyncio.Future[Any]] = [*tasks, *events]
        try:
            watched = set(everything)
            while not any(event.done() for event in events):
                _, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                _raise_from(tasks)
            if locks.lost.is_set():
                # What waits for a server or network that is silent would wait on, also when cancelled.
                pool.terminate()
            _, late = await asyncio.wait(ending, timeout=CLOSE_S)
            if late:
                pool.terminate()
            _raise_from(tasks)
        finally:
            for each in everything:
                each.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def _unless_stopped(self, work: Awaitable[object]) -> bool:
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


def _raise_from(tasks: list[asyncio.Future[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _as_long_as_possible(what: str, locks: Locks, run: Callable[[], Awaitable[None]]) -> None:
    """Run again after a lost statement, until the locks go too."""
    backoff = Backoff(first_s=0.5)
    while not locks.lost.is_set():
        try:
            await run()
        except DatabaseAwayError as error:
            log.warning("%s: %s", what, error, extra={"action": "database_lost"})
        else:
            return  # it was told to stop
        await event_or_timeout(locks.lost, backoff.next_s())


async def _sweep(pool: Pool) -> None:
    while True:
        for job in await bury_abandoned(pool):
            log.warning(
                "a job's worker and message are both gone: DEAD",
                extra={"action": "job_buried", "job_id": job},
            )
        await fold(pool)
        await asyncio.sleep(SWEEP_S)


async def _pool(settings: StorageSettings) -> Pool:
    with translate("open a pool of connections"):
        return await open_pool(settings, NAME, by_key=True)


async def _close(pool: Pool) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await pool.close()
    except TimeoutError:
        pool.terminate()


def _say(text: str) -> None:
    log.warning(text, extra={"action": "database_wait"})
