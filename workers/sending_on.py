"""Messages that go on: to their next attempt, or round the ladder as they are. Publish, then ack."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from storage.claims import Waiting
from storage.text import safe_text
from topology.errors import TopologyError
from topology.headers import Attempt
from topology.messages import Message
from topology.spec import Topology
from workers import republish
from workers.arrival import Arrival
from workers.completing import Finished, again, delay_s, next_message, recorded_message
from workers.entries import Reply
from workers.handing_over import message_with_outcome
from workers.outcomes import MESSAGE_CHARACTERS, Retry
from workers.returning import Build, Returns, StaleArrivalError

logger = logging.getLogger(__name__)
# The way round, in seconds, of a message that cannot be dealt with because Postgres is away.
ROUND_S = 5.0


class SendingOn:
    """Each message in a task of its own, so that one that cannot go out yet holds up no other.

    `unsendable` holds those whose job waits for a message that can never be published: their jobs are to be
    recorded as dead before they are rejected. `kept` holds runs that could not be handed over: they are still
    to be recorded. `wake` is called when one is added.
    """

    def __init__(
        self,
        topology: Topology,
        time_scale: float,
        returns: Returns,
        reply: Callable[[Reply], None],
        wake: Callable[[], object],
    ) -> None:
        self._topology = topology
        self._time_scale = time_scale
        self._returns = returns
        self._reply = reply
        self._wake = wake
        self._sending: set[asyncio.Task[None]] = set()
        self.unsendable: list[tuple[Arrival, Attempt, str]] = []
        self.kept: list[Finished] = []

    def next(self, finished: Finished, attempt: Attempt) -> None:
        """The message of the attempt that waits now."""
        self._spawn(self._next(finished, attempt))

    def recorded(self, arrival: Arrival, attempt: Attempt, waiting: Waiting) -> None:
        """The same, where an older message came instead of it."""
        self._spawn(self._recorded(arrival, attempt, waiting))

    def around(self, arrival: Arrival, seconds: float) -> None:
        """The message as it is, back after so many seconds of real time."""
        self._spawn(self._around(arrival, seconds))

    def postpone(self, arrival: Arrival, seconds: float) -> None:
        """The same for a message whose own time has not come."""
        self._spawn(self._postpone(arrival, seconds))

    def hand_over(self, finished: Finished, header: str) -> None:
        """A message whose run has ended, with its outcome; see workers/handing_over.py."""
        self._spawn(self._hand_over(finished, header))

    def tell_and_reject(self, arrival: Arrival, reason: str, build: Build) -> None:
        """A job has died: publish what tells of it, then reject its message."""
        self._spawn(self._tell_and_reject(arrival, reason, build))

    async def close(self) -> None:
        """Give up what has not gone out: it is unacked."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _next(self, finished: Finished, attempt: Attempt) -> None:
        outcome = finished.outcome
        options = outcome.options if isinstance(outcome, Retry) else {}

        def build(token: str, due_ms: int | None) -> Message:
            return next_message(finished, attempt, token, due_ms)

        await self._send(finished.arrival, options.get("queue"), delay_s(outcome), build, attempt)

    async def _recorded(self, arrival: Arrival, attempt: Attempt, waiting: Waiting) -> None:
        def build(token: str, due_ms: int | None) -> Message:
            return recorded_message(arrival, attempt, waiting, token, due_ms)

        left_s = max(waiting.delay_ms / 1000 - waiting.waited_s / self._time_scale, 0.0)
        options = json.loads(waiting.options or b"{}")
        await self._send(arrival, options.get("queue"), left_s, build, attempt)

    async def _around(self, arrival: Arrival, seconds: float) -> None:
        def build(token: str, due_ms: int | None) -> Message:
            return again(arrival, arrival.task.attempt, token, due_ms)

        await self._send(arrival, None, seconds / self._time_scale, build)

    async def _hand_over(self, finished: Finished, header: str) -> None:
        arrival = finished.arrival

        def build(token: str, due_ms: int | None) -> Message:
            return message_with_outcome(finished, header, token, due_ms)

        try:
            await self._returns.send(arrival, arrival.queue, ROUND_S / self._time_scale, build)
        except TopologyError as error:
            # Kept: recorded here when Postgres is back, or run again.
            logger.warning("not handed over: %s", error, extra=arrival.log_fields("hand_over_failed"))
            self.kept.append(finished)
            self._wake()
        else:
            logger.info("handed over with its outcome", extra=arrival.log_fields("handed_over"))
            self._reply(Reply("ack", arrival, "handed over"))

    async def _postpone(self, arrival: Arrival, seconds: float) -> None:
        def build(token: str, due_ms: int | None) -> Message:
            return republish.postponed(
                arrival.raw_properties,
                arrival.raw_body,
                protocol=arrival.task.protocol,
                attempt=arrival.task.attempt,
                token=token,
                due_ms=due_ms,
            )

        await self._send(arrival, None, seconds / self._time_scale, build)

    async def _tell_and_reject(self, arrival: Arrival, reason: str, build: Build) -> None:
        try:
            await self._returns.send(arrival, arrival.queue, 0.0, build)
        except StaleArrivalError:
            self._reply(Reply("drop", arrival))
            return
        except (TopologyError, ValueError) as error:
            # Its letter tells once more, to whichever worker looks at it.
            logger.error("its death cannot be told: %s", error, extra=arrival.log_fields("not_told"))
        self._reply(Reply("reject", arrival, reason))

    async def _send(
        self,
        arrival: Arrival,
        queue: str | None,
        nominal_s: float,
        build: Build,
        waits: Attempt | None = None,
    ) -> None:
        """Publish, then ack; what can never be published is dead-lettered.

        Args:
            queue: the one that `Task.retry` named, if any; the topology may have lost it since.
            waits: the attempt on record that waits for this message: without it, the job is dead first.
        """
        try:
            target = self._topology.queue(queue) if queue else arrival.queue
            await self._returns.send(arrival, target, nominal_s, build)
        except StaleArrivalError:
            self._reply(Reply("drop", arrival))
        except (TopologyError, ValueError) as error:
            logger.error("cannot be sent on: %s", error, extra=arrival.log_fields("not_publishable"))
            if waits is None:
                self._reply(Reply("reject", arrival, "not publishable"))
            else:
                why = f"attempt {waits} cannot be published: {type(error).__name__}: {error}"
                self.unsendable.append((arrival, waits, safe_text(why, MESSAGE_CHARACTERS)))
                self._wake()
        else:
            self._reply(Reply("ack", arrival, "sent on"))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.critical("the ledger failed to send a message on", exc_info=error)
            self._reply(Reply("failed", detail=repr(error)))
