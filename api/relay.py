"""The relay: publishes the outbox in confirmed batches, at once and again after any outage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from api.backpressure import Backpressure
from api.broker_link import BrokerLink
from api.late_confirms import LateConfirms
from api.outbox_room import OutboxRoom
from api.relay_counts import RelayCounts
from api.settings import ApiSettings
from storage import outbox
from storage.errors import DRIVER_ERRORS, DatabaseAwayError
from storage.outbox import Batch, OutboxRow, Refused
from storage.pool import Pool, borrow
from storage.settings import StorageSettings
from topology.address import AmqpAddress
from topology.backoff import Backoff, Waiting
from topology.broker_errors import BrokerError, ChannelClosed, NotPublishable
from topology.broker_errors import Refused as RefusedByBroker
from topology.messages import Message
from topology.publisher import Publisher
from topology.publishes import Publish
from topology.spec import Topology

log = logging.getLogger("redrive.api.relay")

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
PAUSE_S = 0.25
# Between two batches, so that under load one takes many: a batch costs what publishing ten messages does.
# What comes after a pause is published at once.
GATHER_S = 0.02
# Batches whose confirms are waited for, each with a connection of the pool.
IN_FLIGHT = 2


@dataclass(frozen=True)
class Undecided:
    """Nothing is known of this row's message, or it was not sent: the row stays as it is."""

    error: BrokerError


# Different reasons of one batch that are logged; each row has its own.
MOST_SAID = 5
# None: the broker has confirmed.
Answer = Refused | Undecided | None


class Relay:
    """One per API process; several share the outbox by row locks."""

    def __init__(
        self, address: AmqpAddress, topology: Topology, settings: ApiSettings, room: OutboxRoom
    ) -> None:
        self._room = room
        self._batch = settings.relay_batch
        self._database_timeout_s = settings.database_timeout_s
        self._poll_s = settings.relay_poll_s
        # New messages, those refused before, and one by one, with depths before them.
        self._idle_s = 6 * settings.publish_timeout_s
        self.name = uuid4().hex
        self._wake = asyncio.Event()
        self._submitted = False
        self._stopping = False
        self._backoff = Backoff(PAUSE_S)
        self._waits: dict[str, Waiting] = {}
        self._backpressure = Backpressure(topology)
        self.counts = RelayCounts()
        self._late = LateConfirms(settings.database_timeout_s)
        self._link = BrokerLink(address, "redrive-api-depths", self._wake.set)
        self._publisher = Publisher(address, "redrive-api-relay", settings.publish_timeout_s, say=log.warning)

    @property
    def broker(self) -> str:
        """`ok`, `away`, or `blocked` by an alarm of the broker."""
        if self._link.connection is None or not self._publisher.connected:
            return "away"
        return "blocked" if self._publisher.blocked else "ok"

    @property
    def paused(self) -> tuple[str, ...]:
        """Queues above their watermark: their messages wait in the outbox."""
        return self._backpressure.paused

    def submitted(self, rows: int = 1) -> None:
        """So many rows were committed by this process: publish them now."""
        self._room.accepted(rows)
        self._submitted = True
        self._wake.set()

    def stop(self) -> None:
        """`run` returns after the batch that is under way."""
        self._stopping = True
        self._wake.set()

    async def run(self, pool: Pool, storage: StorageSettings) -> None:
        """Relay until `stop`.

        When cancelled instead, the batch under way is published again by the next relay, and the
        jobs' claims see to it that none runs twice.
        """
        await self._publisher.start()
        listening = outbox.listen_forever(
            storage, "redrive-api-listen", self._wake.set, self.name, log.warning
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                work = (self._link.run(), listening, self._late.run(pool))
                beside = [tasks.create_task(each) for each in work]
                await self._relay(pool)
                for task in beside:
                    task.cancel()
        finally:
            await self._publisher.close()

    async def _relay(self, pool: Pool) -> None:
        clock = asyncio.get_running_loop().time
        drained_at = -GATHER_S
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                # Two connections come up in any order: until both are there, look often.
                async with asyncio.timeout(self._poll_s if self.broker == "ok" else PAUSE_S):
                    await self._wake.wait()
            await asyncio.sleep(max(0.0, drained_at + GATHER_S - clock()))
            self._wake.clear()
            drained_at = clock()
            try:
                await self._drain(pool)
            except DatabaseAwayError as error:
                self._waits_for("the outbox's database", str(error))
            except BrokerError as error:
                self._waits_for("the outbox's broker", str(error))
            except DRIVER_ERRORS as error:  # such as a password that was changed: no reason to stop for good
                self._waits_for("the outbox's database", f"it refused: {type(error).__name__}: {error}")
            else:
                continue
            # Submissions wake it too, so the first pause is kept however many there are.
            await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.next_s()):
                    await self._wake.wait()
            self._wake.set()

    def _waits_for(self, what: str, reason: str) -> None:
        if what not in self._waits:
            self._waits[what] = Waiting(what, _say, asyncio.get_running_loop().time)
        self._waits[what].failed(reason)

    def _waits_no_more(self) -> None:
        self._backoff.reset()
        for waiting in self._waits.values():
            waiting.over()
        self._waits.clear()

    async def _drain(self, pool: Pool) -> None:
        """Publish until nothing is due. Raises DatabaseAwayError or BrokerError.

        While the confirms of one batch are waited for, the next is taken by another transaction, and sent
        behind it: the order stays.
        """
        most = max(1, min(IN_FLIGHT, pool.get_max_size() // 2))  # the requests need connections, too
        under_way: deque[asyncio.Task[None]] = deque()
        more = True
        try:
            while under_way or (more and not self._stopping):
                if more and len(under_way) < most and not self._stopping:
                    sent: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                    under_way.append(asyncio.create_task(self._round(pool, sent), name="relay-batch"))
                    more = await sent
                else:
                    await under_way.popleft()
        finally:
            # What the broker has confirmed is recorded, whatever came of the batch before it.
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _round(self, pool: Pool, sent: asyncio.Future[bool]) -> None:
        """One batch; `sent` is done once the next one may be taken, and tells whether more may be due."""
        try:
            await self._relay_some(pool, sent)
        finally:
            if not sent.done():
                sent.set_result(False)

    async def _relay_some(self, pool: Pool, sent: asyncio.Future[bool]) -> None:
        connection = self._link.connection
        if connection is None or self.broker != "ok":
            if self._submitted:  # another process may have a connection
                self._submitted = False
                async with borrow(pool, self._database_timeout_s) as db:
                    await outbox.tell_relays(db, self.name)
            return
        self._submitted = False
        await self._backpressure.refresh(connection)
        paused = self._backpressure.paused
        async with outbox.take(
            pool, self._batch, paused, timeout_s=self._database_timeout_s, idle_s=self._idle_s
        ) as batch:
            rows = await self._backpressure.admit(connection, batch.rows)
            undecided, late = await self._publish(batch, rows, sent)
        self._late.add(late)
        if undecided is not None:
            raise undecided.error
        self._waits_no_more()

    async def _publish(
        self, batch: Batch, rows: Sequence[OutboxRow], sent: asyncio.Future[bool]
    ) -> tuple[Undecided | None, list[str]]:
        """Publish and settle a batch; the first row of which nothing is known, if any, and the jobs whose
        rows were in other hands."""
        # Those that were refused before come last: what closes the channel again takes no new ones along.
        new, again = [row for row in rows if not row.tries], [row for row in rows if row.tries]
        clock = asyncio.get_running_loop().time
        began = clock()
        sending = asyncio.create_task(self._send(new))
        sent.set_result(batch.more)
        answers = await self._judged(new, await sending)
        answers |= await self._judged(again, await self._send(again))
        confirmed = [id_ for id_, answer in answers.items() if answer is None]
        refused = [answer for answer in answers.values() if isinstance(answer, Refused)]
        if rows:
            self.counts.batch(
                clock() - began,
                confirmed=len(confirmed),
                refused=len(refused),
                undecided=len(rows) - len(confirmed) - len(refused),
            )
        for error, count in Counter(answer.error for answer in refused).most_common(MOST_SAID):
            log.warning("not published: %s", error, extra={"action": "publish_refused", "messages": count})
        late = await batch.settle(confirmed, refused)
        self._room.sent(len(confirmed))
        return next((answer for answer in answers.values() if isinstance(answer, Undecided)), None), late

    async def _judged(self, rows: Sequence[OutboxRow], answers: Sequence[Answer]) -> dict[int, Answer]:
        """By row. The broker closes a channel over one message, and all in flight share its fate: alone, each
        gets its own."""
        found, reached = {}, True
        for row, answer in zip(rows, answers, strict=True):
            if reached and isinstance(answer, Undecided) and isinstance(answer.error, ChannelClosed):
                answer = await self._send_alone(row)
                # Each would wait as long for a broker that is away, and keep its row from other relays.
                reached = not isinstance(answer, Undecided)
            found[row.id] = answer
        return found

    async def _send(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        try:
            found = await self._publisher.publish_all(
                [Publish("", row.queue, Message(row.properties, row.body), row.token) for row in rows]
            )
        except BrokerError as error:  # it is closing
            return [Undecided(error) for _ in rows]
        return [_answer(row, error) for row, error in zip(rows, found, strict=True)]

    async def _send_alone(self, row: OutboxRow) -> Answer:
        (answer,) = await self._send([row])
        if isinstance(answer, Undecided) and isinstance(answer.error, ChannelClosed):
            return _refused(row, answer.error)
        return answer


def _answer(row: OutboxRow, error: BrokerError | None) -> Answer:
    if isinstance(error, RefusedByBroker | NotPublishable):
        return _refused(row, error)
    return None if error is None else Undecided(error)


def _say(text: str) -> None:
    log.warning(text, extra={"action": "relay_waits"})


def _refused(row: OutboxRow, error: BrokerError) -> Refused:
    return Refused(row.id, str(error), min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(row.tries, 10)))
