"""Runs the steps of one queue after the other. The order of the calls is what keeps the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from topology.broker_errors import ChannelClosed
from topology.connection import BrokerConnection
from topology.migrate.errors import MigrationError, UnsafeError
from topology.migrate.gate import NOT_FOUND, RESOURCE_LOCKED, shut
from topology.migrate.sight import Bound, Sight
from topology.migrate.siphon import Siphon
from topology.migrate.steps import BACK, Stage, Step, Work, holding_arguments
from topology.migrate.wrapping import packed, unpacked

# After the holding queue is unbound: for what an exchange had already handed on.
SETTLE_S = 2.0
CANCEL_S = 30.0
# Between deletion and declaration. RabbitMQ 3.10 leaves a consumer of a quorum queue that is declared again
# at once attached to the new one, uncancelled, and delivers nothing to it; after 0.5 s all were cancelled.
GAP_S = 1.0
# RabbitMQ 3.10, killed just after declaring a quorum queue, does not recover it, nor what it confirmed.
RECORDED_S = 3.0
PROGRESS_S = 5.0
FIRST_PAUSE_S = 1.0
REFUSED = (403, 406)


@dataclass(frozen=True)
class Limits:
    """Seconds. `quiet_s`: the old queue has got nothing for so long before it is deleted; longer than the
    broker's statistics lag and than a publish may take. `timeout_s`: to wait for that, and for consumers to
    finish what they hold."""

    quiet_s: float = 12.0
    timeout_s: float = 1800.0


class Migration:
    """Of one vhost. Consuming and publishing have a connection each: an alarm stops those that publish."""

    def __init__(
        self,
        consuming: BrokerConnection,
        publishing: BrokerConnection,
        sight: Sight,
        user: str,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        self._consuming, self._publishing = consuming, publishing
        self._sight, self._user, self._limits, self._say = sight, user, limits, say
        self._clock = asyncio.get_running_loop().time
        self._said_at = 0.0

    async def queue(self, steps: tuple[Step, ...]) -> None:
        """Run what is left for one queue.

        Raises:
            UnsafeError: it cannot be done now; what was begun is undone.
            MigrationError, BrokerError, ManagementError: stopped half-way.
        """
        work = steps[0].work
        await self._try_arguments(work)
        await shut(self._consuming, work.want.name)
        stages = [step.stage for step in steps]
        try:
            await self._stages(work, stages)
        except UnsafeError:
            self._say(f"{work.queue}: back to where it was")
            await self._stages(work, list(BACK))
            raise
        finally:
            if self._consuming.is_open:
                await self._rpc("queue_delete", work.gate)

    async def _stages(self, work: Work, stages: list[Stage]) -> None:
        run: dict[Stage, Callable[[Work], Awaitable[None]]] = {
            "hold": self._hold,
            "divert": self._divert,
            "replace": self._replace,
            "return": self._return,
            "refill": self._refill,
            "tidy": self._tidy,
        }
        for stage in stages:
            if stage == "replace" and "empty" in stages:
                continue  # done inside "empty", whose consumer takes what arrives until the end
            self._tell(work, stage)
            if stage == "empty":
                await self._empty_and_replace(work)
            else:
                await run[stage](work)

    def _tell(self, work: Work, stage: Stage) -> None:
        self._say(f"{work.queue}: {stage}: {Step(stage, work).describe()}")

    async def _try_arguments(self, work: Work) -> None:
        """A queue that the broker refuses is to be known before the old one is gone."""
        trial = f"{work.holding}.trial"
        await self._rpc("queue_delete", trial)  # of a migration that was killed, to other arguments
        try:
            await self._rpc("queue_declare", trial, durable=True, arguments=dict(work.want.arguments))
        except ChannelClosed as closed:
            raise UnsafeError(
                f"{work.queue}: the broker refuses the new arguments: {closed.text}"
            ) from closed
        await self._rpc("queue_delete", trial)

    async def _hold(self, work: Work) -> None:
        if await self._depth(work.holding) is None:
            arguments = dict(holding_arguments(work.want))
            await self._rpc("queue_declare", work.holding, durable=True, arguments=arguments)
            await asyncio.sleep(RECORDED_S)

    async def _divert(self, work: Work) -> None:
        await self._swap(work.queue, work.holding, without=work.holding)

    async def _return(self, work: Work) -> None:
        await self._swap(work.holding, work.queue, without=work.holding)

    async def _swap(self, away: str, to: str, *, without: str) -> None:
        """Bound to both for a moment, so that a message is there twice rather than nowhere."""
        for bound in [each for each in self._sight.bindings(away) if each.source != without]:
            await self._rpc("queue_bind", to, bound.source, bound.routing_key, arguments=_table(bound))
            await self._rpc("queue_unbind", away, bound.source, bound.routing_key, arguments=_table(bound))

    async def _empty_and_replace(self, work: Work) -> None:
        waiting = await self._depth(work.queue) or 0
        async with self._siphon(
            Siphon(work.queue, "", lambda delivery: packed(delivery, work.holding))
        ) as siphon:
            # No publisher's doing, however long ago they came, and not what the time limit is for.
            while siphon.moved < waiting and siphon.idle_s < FIRST_PAUSE_S:
                await siphon.step()
                self._progress(work, siphon.moved, "")
            await self._until_nothing_is_left(work, siphon)
            self._say(f"{work.queue}: {siphon.moved} messages wait in {work.holding}")
            self._tell(work, "replace")
            await self._rpc("queue_delete", work.queue)
            await siphon.until_cancelled(CANCEL_S)
        await asyncio.sleep(GAP_S)
        await self._replace(work)

    async def _until_nothing_is_left(self, work: Work, siphon: Siphon) -> None:
        """The queue is empty, no consumer holds a message of it, and none has come for a while.

        Our consumer comes before all others, so while it waits for work they get nothing: what they hold only
        becomes less. A statistic that says 0 after a pause that is longer than its lag so stays true.
        """
        deadline = self._clock() + self._limits.timeout_s
        quiet = f"no {self._limits.quiet_s:g} s without a new message yet"
        since = siphon.last_arrival
        zeros, why = 0, quiet
        while zeros < 2:
            await siphon.step()
            self._progress(work, siphon.moved, why)
            if self._clock() > deadline:
                raise UnsafeError(f"{work.queue}: after {self._limits.timeout_s:g} s {why}")
            if siphon.idle_s < self._limits.quiet_s:
                zeros = 0
                if siphon.last_arrival > since:
                    why = (
                        "somebody still publishes to it through the default exchange: stop that first"
                        if siphon.last_direct == siphon.last_arrival
                        else "messages still come"
                    )
                continue
            held = await asyncio.to_thread(self._sight.held, work.queue)
            home = await asyncio.to_thread(self._sight.held, work.holding)
            there = await self._depth(work.holding) or 0
            # With consumers, the statistic is one that was taken since ours is there.
            counted = held.running and held.consumers and home.running and there >= siphon.moved
            if counted and held.nothing and await self._depth(work.queue) == 0:
                zeros += 1
                continue
            zeros = 0
            why = (
                f"the broker does not tell that {work.queue} and {work.holding} are well, or "
                f"{there} messages are in {work.holding} where {siphon.moved} were moved"
                if not counted
                else f"{held.dead} dead letters wait for a target that does not take them (messages_dlx)"
                if held.dead
                else f"consumers still hold {held.unacknowledged} messages: let them finish, or stop them"
            )

    async def _replace(self, work: Work) -> None:
        arguments = dict(work.want.arguments)
        try:
            await self._rpc("queue_declare", work.queue, durable=True, arguments=arguments)
        except ChannelClosed as closed:
            if closed.code in REFUSED:
                raise MigrationError(
                    f"{work.queue}: a program declared it with other arguments in that moment "
                    f"({closed.text}); stop it from declaring, and run this again"
                ) from closed
            raise
        await asyncio.sleep(RECORDED_S)

    async def _refill(self, work: Work) -> None:
        """By an exchange of their own: the routing key stays, and CC routes nowhere else."""
        await self._rpc("exchange_declare", work.holding, "fanout", durable=True)
        await self._rpc("queue_bind", work.queue, work.holding, "")
        siphon = Siphon(work.holding, work.holding, lambda delivery: unpacked(delivery, self._user))
        async with self._siphon(siphon):
            await self._until_all_is_back(work, siphon)
            await self._rpc("queue_delete", work.holding)
            await siphon.until_cancelled(CANCEL_S)
        self._say(f"{work.queue}: {siphon.moved} messages are back")

    async def _until_all_is_back(self, work: Work, siphon: Siphon) -> None:
        """What expired before our consumer had it leaves the holding queue by dead-lettering, which may take
        its time: such messages are in no depth, only in the broker's statistics."""
        settle_s = max(SETTLE_S, self._limits.quiet_s / 2)
        deadline, why = self._clock() + self._limits.timeout_s, ""
        while True:
            await siphon.step()
            self._progress(work, siphon.moved, why)
            if siphon.idle_s < settle_s or await self._depth(work.holding):
                continue
            held = await asyncio.to_thread(self._sight.held, work.holding)
            if not held.dead:
                return
            why = f"{held.dead} dead letters of {work.holding} wait for a target that does not take them"
            if self._clock() > deadline:
                raise MigrationError(f"{work.queue}: after {self._limits.timeout_s:g} s {why} (messages_dlx)")

    async def _tidy(self, work: Work) -> None:
        await self._rpc("queue_delete", work.holding)
        await self._rpc("exchange_delete", work.holding)

    @asynccontextmanager
    async def _siphon(self, siphon: Siphon) -> AsyncIterator[Siphon]:
        try:
            await siphon.open(self._consuming, self._publishing)
        except ChannelClosed as closed:
            raise UnsafeError(f"it cannot be consumed from: {closed.text}") from closed
        try:
            yield siphon
        finally:
            await siphon.close()

    async def _depth(self, queue: str) -> int | None:
        """Ready messages; None where there is no such queue."""
        try:
            return (await self._consuming.inspect(queue)).messages
        except ChannelClosed as closed:
            if closed.code == NOT_FOUND:
                return None
            if closed.code == RESOURCE_LOCKED:
                raise UnsafeError(f"{queue}: it is exclusive to another connection") from closed
            raise

    async def _rpc(self, method: str, *arguments: Any, **named: Any) -> None:
        channel = await self._consuming.channel()
        try:
            await channel.rpc(method, *arguments, **named)
        finally:
            await channel.close()

    def _progress(self, work: Work, moved: int, why: str) -> None:
        if self._clock() - self._said_at >= PROGRESS_S:
            self._said_at = self._clock()
            self._say(f"{work.queue}: {moved} moved so far" + (f"; {why}" if why else ""))


def _table(bound: Bound) -> dict[str, Any]:
    return dict(bound.arguments)
