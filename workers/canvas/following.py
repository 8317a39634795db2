"""The ledger's part in a canvas: once a job's end is on record, what follows it is announced.

Announced means that the broker has confirmed a message of ours (see `workers.canvas.tasks`). A worker that is
killed between record and confirm leaves it to the sweep of any other, or finds the message of a dead job
delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from storage import chords
from storage.errors import DatabaseAwayError
from topology.delivery import Refusal, check_delivery, delivery_of
from topology.errors import TopologyError
from topology.messages import Message
from topology.spec import Topology
from topology.wire import split
from workers.arrival import Arrival
from workers.canvas import messages
from workers.entries import Reply
from workers.returning import Returns
from workers.sending_on import SendingOn

if TYPE_CHECKING:
    from storage.claims import Connection

logger = logging.getLogger(__name__)
SWEEP_CHORDS = 200
SWEEP_LETTERS = 50


class Following:
    """Called by the ledger's bookkeeping only. Jobs outside of a canvas cost a look at their message."""

    def __init__(
        self,
        topology: Topology,
        returns: Returns,
        sending: SendingOn,
        reply: Callable[[Reply], None],
        wake: Callable[[], object],
    ) -> None:
        self._topology = topology
        self._returns = returns
        self._sending = sending
        self._reply = reply
        self._wake = wake
        self._to_look_at: dict[str, str] = {}  # group id -> work queue
        self._announced: list[str] = []
        self._told: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waits(self) -> bool:
        """Something is to be done in the next turn."""
        return bool(self._to_look_at or self._announced or self._told)

    def died(self, arrival: Arrival, reason: str) -> None:
        """The job is dead, which is on record: tell, then reject."""
        task, generation = arrival.task, arrival.attempt.generation
        if not messages.in_canvas(task):
            self._reply(Reply("reject", arrival, reason))
            return

        def build(token: str, due_ms: int | None) -> Message:
            return messages.died(task, generation, token)

        self._sending.tell_and_reject(arrival, reason, build)

    def ended(self, arrival: Arrival) -> None:
        """The job has succeeded, which is on record."""
        if messages.in_chord(arrival.task):
            assert arrival.task.group is not None
            self._to_look_at[arrival.task.group] = arrival.queue.name

    async def turn(self, connection: Connection) -> None:
        """See to what has ended since.

        Raises:
            DatabaseAwayError: what was not done stays for the next turn.
        """
        if self._announced:
            done = list(self._announced)
            await chords.announced(connection, done)
            del self._announced[: len(done)]
        if self._told:
            letters = list(self._told)
            await chords.told(connection, letters)
            del self._told[: len(letters)]
        if self._to_look_at:
            await self._look_at_chords(connection)

    async def _look_at_chords(self, connection: Connection) -> None:
        groups = dict(self._to_look_at)
        try:
            complete = await chords.complete(connection, list(groups))
        except DatabaseAwayError:
            raise
        except Exception:
            # A group's id is what a message says; the sweep sees to the others of the batch.
            logger.exception("chords cannot be looked at", extra={"action": "chords_refused"})
            complete = []
        self._to_look_at.clear()
        for group_id in complete:
            self._announce(group_id, groups[group_id])

    async def sweep(self, connection: Connection) -> None:
        """What others left undone: complete chords, and deaths that no worker saw."""
        try:
            complete, lost = await chords.sweep(connection, limit=SWEEP_CHORDS)
            for group_id, queue in complete:
                self._announce(group_id, queue)
            for member in lost:
                self._spawn(self._tell_of_member(member))
            for letter in await chords.letters(connection, limit=SWEEP_LETTERS):
                self._spawn(self._tell_of_letter(letter))
        except DatabaseAwayError:
            raise
        except Exception:
            # Leases are renewed by the same call: whatever is wrong here may not keep that from happening.
            logger.exception("the sweep of canvases failed", extra={"action": "canvas_sweep_failed"})

    async def close(self) -> None:
        """Give up what has not gone out: a sweep finds it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _announce(self, group_id: str, queue: str) -> None:
        self._spawn(self._announce_chord(group_id, queue))

    async def _announce_chord(self, group_id: str, queue: str) -> None:
        token = str(uuid4())
        if await self._publish(queue, messages.chord(group_id, token), token):
            self._announced.append(group_id)
            self._wake()

    async def _tell_of_member(self, member: chords.DeadMember) -> None:
        token = str(uuid4())
        await self._publish(member.queue, messages.member_died(member, token), token)

    async def _tell_of_letter(self, letter: chords.CanvasLetter) -> None:
        token = str(uuid4())
        try:
            message = _of_letter(letter, token)
        except Exception:
            extra = {"action": "canvas_unread", "letter": letter.id}
            logger.exception("a dead letter's canvas cannot be told", extra=extra)
            message = None
        if message is None or await self._publish(letter.queue, message, token):
            self._told.append(letter.id)
            self._wake()

    async def _publish(self, queue: str, message: Message, token: str) -> bool:
        known = {known.name for known in self._topology.queues}
        target = queue if queue in known else self._topology.queues[0].name
        try:
            await self._returns.tell(target, message, token)
        except TopologyError as error:
            extra = {"action": "canvas_not_sent", "queue": target}
            logger.warning("not sent, left to the next sweep: %s", error, extra=extra)
            return False
        return True

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            extra = {"action": "canvas_failed"}
            logger.error("what follows a job could not be sent", exc_info=error, extra=extra)


def _of_letter(letter: chords.CanvasLetter, token: str) -> Message | None:
    """The message that tells of a dead letter; None if it tells nothing."""
    delivery = delivery_of(split(letter.properties), letter.body)
    found = check_delivery(delivery)
    if isinstance(found, Refusal):
        group = delivery.headers.get("group")
        named = group if isinstance(group, str) else None
        return messages.died_unread(found, named, letter.generation, token, letter.reason)
    if not messages.in_canvas(found):
        return None
    return messages.died(found, letter.generation, token, letter.reason)
