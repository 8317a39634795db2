"""Stores a batch of deliveries; what cannot be stored as it is goes to quarantine and blocks nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dlq_consumer.classify import classify, quarantined, quarantined_bytes
from dlq_consumer.read_in_turns import read_in_turns
from dlq_consumer.reading import Reading, read
from storage.alert_rules import AlertPolicy
from storage.intake import JobFacts, RefusedError, open_batch
from storage.new_letters import NewLetter
from storage.pool import Pool
from storage.sessions import Session
from storage.worker_tasks import known
from topology.channel import Delivery
from topology.identity import letter_key
from topology.messages import Message
from topology.names import work_queues_of
from topology.redaction import FieldPath, redact
from topology.spec import Topology

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What became of a batch. `held`: tags of letters that not even quarantine took, not to be acked."""

    stored: int = 0
    again: int = 0
    alerts: int = 0
    held: tuple[int, ...] = ()

    def __add__(self, other: Result) -> Result:
        return Result(
            self.stored + other.stored,
            self.again + other.again,
            self.alerts + other.alerts,
            self.held + other.held,
        )


@dataclass(frozen=True)
class Unread:
    """A delivery at which the reader itself failed."""

    dlq: str
    delivery: Delivery
    identity: bytes
    why: str
    redacted: tuple[str, ...] = ()


class Intake:
    """Takes letters of any queue in. Used by one drain after the other, and by several at once."""

    def __init__(
        self, pool: Pool, topology: Topology | None, policy: AlertPolicy, redacted: Sequence[FieldPath] = (),
        *, on_alert: Callable[[], None],
    ) -> None:  # fmt: skip
        """Args:
        topology: None for the queues of another vhost, where no queue and no job is ours.
        redacted: values that are taken out before anything else is done with a letter.
        """
        self._pool = pool
        self._topology = topology
        self._policy = policy
        self._redacted = redacted
        self._on_alert = on_alert
        self._known_tasks: Collection[str] | None = (
            frozenset(job.name for job in topology.jobs) or None if topology else None
        )

    async def read(self, session: Session, deliveries: Sequence[Delivery]) -> list[Reading | Unread]:
        """What they say by themselves, in their order; nothing is stored.

        Raises:
            DatabaseAwayError
        """
        now = datetime.now(UTC)
        known_tasks = self._known_tasks or await self._registered(session.source.queue)
        return await read_in_turns(
            deliveries, lambda delivery: self._read(session, delivery, known_tasks, now)
        )

    async def store(self, session: Session, readings: Sequence[Reading | Unread]) -> Result:
        """Store and commit.

        Raises:
            DatabaseAwayError: nothing may be acked; some may be stored.
            SessionLostError: another consumer has the queue.
        """
        result = await self._store(session, readings, datetime.now(UTC))
        if result.alerts:
            self._on_alert()
        return result

    async def _registered(self, dlq: str) -> Collection[str] | None:
        """Without a catalogue of jobs the workers tell which tasks there are."""
        return await known(self._pool, work_queues_of(self._topology, dlq)) if self._topology else None

    def _read(
        self, session: Session, delivery: Delivery, known_tasks: Collection[str] | None, now: datetime
    ) -> Reading | Unread:
        queue, source = session.source.queue, str(session.source)
        found: tuple[str, ...] = ()
        try:
            if self._redacted:
                kept, found = redact(Message(delivery.properties, delivery.body), self._redacted)
                delivery = replace(delivery, properties=kept.properties, body=kept.body)
            reading = read(delivery, dlq=queue, source=source, known_tasks=known_tasks, now=now)
            return reading._replace(redacted=found) if found else reading
        except Exception as error:
            # Whatever a stranger's bytes bring about here is that letter's fate alone.
            log.exception("a letter could not be read", extra={"action": "read_failed", "queue": queue})
            identity = letter_key(source, delivery.properties, delivery.body)
            why = f"reading it failed: {type(error).__name__}: {error}"
            return Unread(queue, delivery, identity, why, found)

    async def _store(self, session: Session, readings: Sequence[Reading | Unread], now: datetime) -> Result:
        try:
            return await self._store_together(session, readings, now)
        except RefusedError as error:
            if len(readings) == 1:
                return await self._quarantine(session, readings[0], str(error), now)
        middle = len(readings) // 2
        first = await self._store(session, readings[:middle], now)
        return first + await self._store(session, readings[middle:], now)

    async def _store_together(
        self, session: Session, readings: Sequence[Reading | Unread], now: datetime
    ) -> Result:
        ids = {reading.job_id for reading in readings if isinstance(reading, Reading) and reading.job_id}
        ids = ids if self._topology else set()
        async with open_batch(self._pool, session) as batch:
            jobs = await batch.jobs(ids)
            letters = [self._classify(reading, jobs, now) for reading in readings]
            done = await batch.store(letters, self._policy)
        reasons = Counter(letter.reason for letter in letters)
        log.info(
            "stored dead letters",
            extra={
                "action": "letters_stored",
                "queue": session.source.queue,
                "letters": done.stored,
                "again": done.again,
                "reasons": ",".join(f"{reason}:{number}" for reason, number in sorted(reasons.items())),
            },
        )
        return Result(done.stored, done.again, done.alerts)

    def _classify(self, reading: Reading | Unread, jobs: dict[str, JobFacts], now: datetime) -> NewLetter:
        if isinstance(reading, Unread):
            bare = quarantined_bytes(reading.dlq, reading.delivery, reading.identity, reading.why, now=now)
            return bare._replace(redacted=reading.redacted)
        try:
            job = jobs.get(reading.job_id) if reading.job_id else None
            return classify(reading, job, topology=self._topology, now=now)
        except Exception as error:
            log.exception("a letter could not be explained", extra={"action": "classify_failed"})
            return quarantined(reading, f"explaining it failed: {type(error).__name__}: {error}", now=now)

    async def _quarantine(
        self, session: Session, reading: Reading | Unread, why: str, now: datetime
    ) -> Result:
        bare = quarantined_bytes(reading.dlq, reading.delivery, reading.identity, why, now=now)
        letter = bare._replace(redacted=reading.redacted)
        extra = {"action": "letter_quarantined", "queue": reading.dlq, "why": why}
        try:
            async with open_batch(self._pool, session) as batch:
                done = await batch.store([letter], self._policy)
        except RefusedError:
            extra["action"] = "letter_held"
            log.exception("Postgres takes this letter in no form; it stays in its queue", extra=extra)
            return Result(held=(reading.delivery.tag,))
        log.error("a letter was stored as bytes only", extra=extra)
        return Result(done.stored, done.again, done.alerts)
