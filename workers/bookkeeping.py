"""The ledger's asyncio side: what waits to be claimed, to be recorded, to be renewed and to be sent on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from storage import claims
from storage.errors import DatabaseAwayError
from topology.headers import Attempt
from topology.spec import Topology
from workers.arrival import Arrival
from workers.canvas.following import Following
from workers.claiming import Ack, Around, Decision, Refuse, Reject, Run, SendOn, Terms, decide
from workers.completing import Finished, completion
from workers.entries import Held, Item, Postponed, Reply, Started
from workers.handing_over import encode, is_due
from workers.outcomes import Returned
from workers.parts import in_parts
from workers.returning import Returns
from workers.sending_on import SendingOn

if TYPE_CHECKING:
    from storage.claims import Connection

logger = logging.getLogger(__name__)
# Bounds the statement, not the throughput: what is over waits one turn.
BATCH = 500
# A row that changes under our eyes is looked at again so often; then its message takes a short way round.
LOOKS = 5
# Runs shorter than this are not put on record as begun: one statement less for each.
START_S = 0.25


class Books:
    """Everything the ledger holds. One coroutine at a time calls `turn` and `renew`."""

    def __init__(
        self,
        topology: Topology,
        terms: Terms,
        time_scale: float,
        returns: Returns,
        reply: Callable[[Reply], None],
        wake: Callable[[], object],
    ) -> None:
        self._terms = terms
        self._reply = reply
        self._sending = SendingOn(topology, time_scale, returns, reply, wake)
        self._canvas = Following(topology, returns, self._sending, reply, wake)
        self._waiting: list[Arrival] = []
        self._finished: list[Finished] = []
        self._held: dict[UUID, Held] = {}
        self._looks: dict[UUID, int] = {}
        self._current = returns.current
        self._unfit: set[UUID] = set()  # runs whose outcome is too large for a header

    @property
    def backlog(self) -> bool:
        return bool(
            self._waiting
            or self._finished
            or self._sending.unsendable
            or self._sending.kept
            or self._canvas.waits
        )

    @property
    def held(self) -> int:
        """Jobs that run here or wait for a pool process, and those whose end is not on record yet."""
        return len(self._held)

    def take(self, items: Sequence[Item]) -> None:
        for item in items:
            match item:
                case Arrival():
                    self._waiting.append(item)
                case Finished():
                    self._finished.append(item)
                case Postponed(arrival, seconds):
                    self._sending.postpone(arrival, seconds)
                case Started(arrival):
                    if arrival.token in self._held:
                        self._held[arrival.token].started = time.monotonic()

    async def turn(self, connection: Connection, doubt_s: float = 0.0) -> None:
        """Record what has ended, then claim what has come.

        Args:
            doubt_s: see `workers.claiming.decide`.

        Raises:
            storage.errors.DatabaseAwayError: what was not done stays for the next turn.
        """
        self._take_kept()
        if self._finished:
            batch = self._finished[:BATCH]
            await self._record(connection, batch)
            del self._finished[: len(batch)]
        if unsendable := self._sending.unsendable:
            lost = unsendable[:BATCH]
            await claims.bury(
                connection, [(a.task.id, at.generation, at.attempt, why) for a, at, why in lost]
            )
            del unsendable[: len(lost)]
            for arrival, _, _ in lost:
                self._canvas.died(arrival, "not publishable")
        await self._canvas.turn(connection)
        self._drop_stale()
        if self._waiting:
            batch_of: dict[str, Arrival] = {}
            for arrival in self._waiting:
                if len(batch_of) < BATCH:
                    batch_of.setdefault(arrival.task.id, arrival)  # a job once per batch
            chosen = set(batch_of.values())
            again = await self._claim(connection, list(batch_of.values()), doubt_s)
            self._waiting = [arrival for arrival in self._waiting if arrival not in chosen] + again

    async def renew(self, connection: Connection) -> None:
        """Renew all leases in one statement, and look for a canvas that nobody saw to."""
        await self._renew(connection, list(self._held.values()))
        await self._canvas.sweep(connection)

    async def record_starts(self, connection: Connection) -> None:
        """Put on record which runs have begun, but for those that are over before it is worth it.

        If this worker is lost, an attempt counts against its job only if it is known to have begun: what
        merely waited here is no culprit.
        """
        ripe = time.monotonic() - START_S
        begun = [
            held
            for held in self._held.values()
            if held.started is not None and held.started < ripe and not held.on_record
        ]
        if begun:
            await self._renew(connection, begun)

    async def _renew(self, connection: Connection, some: list[Held]) -> None:
        if not some:
            return
        kept = await claims.renew(
            connection,
            [(held.arrival.claim(), None if held.started is None else held.arrival.limit_s) for held in some],
            lease_s=self._terms.lease_s,
        )
        for held in some:
            arrival = held.arrival
            held.on_record = held.started is not None
            if arrival.token not in kept and self._held.pop(arrival.token, None) is not None:
                logger.warning("this job is no longer ours", extra=arrival.log_fields("lease_lost"))

    def send_unclaimed_round(self, seconds: float) -> None:
        """Postgres stays away: what is unclaimed waits in the broker instead of here."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            fields = {"action": "sent_round", "messages": len(waiting)}
            logger.info("unclaimed messages wait on the ladder for the database", extra=fields)
        for arrival in waiting:
            self._sending.around(arrival, seconds)

    def hand_over(self, *, everything: bool) -> None:
        """Postgres stays away: runs that cannot be recorded go on with their outcomes, before the broker
        takes their messages back.

        Args:
            everything: now, since this worker stops.
        """
        now = time.monotonic()
        self._take_kept()
        kept = []
        for finished in self._finished:
            arrival = finished.arrival
            due = everything or is_due(arrival, now)
            if not due or not self._current(arrival) or arrival.token in self._unfit:
                kept.append(finished)
            elif (header := encode(finished)) is None:
                self._unfit.add(arrival.token)
                kept.append(finished)
                logger.warning("its outcome is too large to go on", extra=arrival.log_fields("too_large"))
            else:
                self._held.pop(arrival.token, None)
                self._sending.hand_over(finished, header)
        self._finished = kept

    async def close(self) -> None:
        await self._canvas.close()
        await self._sending.close()

    def _drop_stale(self) -> None:
        """What the broker delivers again is claimed by whoever gets it."""
        if stale := [arrival for arrival in self._waiting if not self._current(arrival)]:
            self._waiting = [arrival for arrival in self._waiting if self._current(arrival)]
            for arrival in stale:
                self._looks.pop(arrival.token, None)
                self._reply(Reply("drop", arrival))

    def _take_kept(self) -> None:
        self._finished += self._sending.kept
        self._sending.kept.clear()

    async def _claim(self, connection: Connection, batch: list[Arrival], doubt_s: float) -> list[Arrival]:
        """Those whose row changed under our eyes are returned, to be looked at again."""

        async def some(arrivals: Sequence[Arrival]) -> list[tuple[Arrival, Decision]]:
            return await decide(connection, arrivals, self._terms, doubt_s)

        async def refused(arrival: Arrival, error: Exception) -> list[tuple[Arrival, Decision]]:
            logger.error("cannot be claimed: %s", error, extra=arrival.log_fields("claim_refused"))
            return [(arrival, Around(self._terms.lease_s))]

        again = []
        for arrival, decision in await in_parts(some, batch, refused):
            match decision:
                case Run(attempt, suspect, alone):
                    arrival.attempt, arrival.suspect, arrival.alone = attempt, suspect, alone
                    self._held[arrival.token] = Held(arrival)
                    self._reply(Reply("run", arrival))
                case Ack():
                    self._reply(Reply("ack", arrival, "duplicate"))
                case Reject(reason):
                    self._canvas.died(arrival, reason)
                case Refuse(reason):
                    self._reply(Reply("reject", arrival, reason))
                case Around(seconds):
                    self._sending.around(arrival, seconds)
                case SendOn(attempt, waiting):
                    self._sending.recorded(arrival, attempt, waiting)
                case _:
                    looks = self._looks[arrival.token] = self._looks.get(arrival.token, 0) + 1
                    if looks < LOOKS:
                        again.append(arrival)
                        continue
                    self._sending.around(arrival, 1.0)
            self._looks.pop(arrival.token, None)
        return again

    async def _record(self, connection: Connection, batch: list[Finished]) -> None:
        bound = self._terms.crash_bound

        async def some(part: Sequence[Finished]) -> list[tuple[UUID, claims.Fate]]:
            done = await claims.complete(connection, [completion(each) for each in part], crash_bound=bound)
            return list(done.items())

        unrecorded: set[UUID] = set()

        async def refused(finished: Finished, error: Exception) -> list[tuple[UUID, claims.Fate]]:
            fields = finished.arrival.log_fields("completion_refused")
            logger.error("recorded without texts and result: %s", error, extra=fields)
            try:
                done = await claims.complete(connection, [completion(finished, bare=True)], crash_bound=bound)
            except DatabaseAwayError:
                raise
            except Exception:
                logger.exception(
                    "its end cannot be recorded", extra=finished.arrival.log_fields("unrecorded")
                )
                unrecorded.add(finished.arrival.token)
                return []
            return list(done.items())

        fates = dict(await in_parts(some, batch, refused))
        for finished in batch:
            if finished.arrival.token in unrecorded:
                # Its lease runs out; whoever takes it over counts a lost attempt, up to the bound.
                self._held.pop(finished.arrival.token, None)
                self._sending.around(finished.arrival, self._terms.lease_s)
            else:
                self._settle(finished, fates.get(finished.arrival.token))

    def _settle(self, finished: Finished, fate: claims.Fate | None) -> None:
        arrival = finished.arrival
        self._held.pop(arrival.token, None)
        if isinstance(finished.outcome, Returned) and not self._current(arrival):
            self._reply(Reply("drop", arrival))
        elif fate is None:
            logger.warning("ended, but another worker has it", extra=arrival.log_fields("claim_lost"))
            if isinstance(finished.outcome, Returned):
                self._sending.around(arrival, 1.0)
            else:  # only its row can tell what this message is still worth
                arrival.token, arrival.attempt = uuid4(), arrival.task.attempt
                self._waiting.append(arrival)
        elif fate.state == "DEAD":
            self._canvas.died(arrival, getattr(finished.outcome, "reason", "dead"))
        elif fate.state in ("SUCCEEDED", "CANCELLED"):
            self._canvas.ended(arrival)
            self._reply(Reply("ack", arrival, "done"))
        else:
            self._sending.next(finished, Attempt(fate.generation, fate.attempt))
