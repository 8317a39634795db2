"""Carries out replay plans, wherever they were made, and writes down what becomes of each letter."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from dlq_consumer.figures import ConsumerFigures
from dlq_consumer.sending import Sender, Sent
from dlq_consumer.waiting import event_or_timeout
from storage import replay_control, replay_outcomes, replay_steps
from storage.errors import ConflictError, DatabaseAwayError, StorageError
from storage.pool import Pool
from storage.replay_control import OURSELVES
from storage.replay_picks import Plan
from storage.replays import CHANNEL
from storage.sessions import Locks
from topology.backoff import Backoff
from topology.publisher import Publisher

log = logging.getLogger(__name__)
POLL_S = 1.0
# With many letters it takes long to decide them: then the database rests for so many times that.
REST = 20
TRIES = 5
BATCH = 600
# Of a plan without a rate: of strangers, so many batches at most are in doubt when it is killed.
LANES = 2
# A plan with a rate is sent in slices of this length.
SLICE_S = 0.25


class Pace:
    """Keeps to a rate of letters per second; None is no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._clock = asyncio.get_running_loop().time
        self._next = self._clock()

    @property
    def batch(self) -> int:
        """How many to send at once."""
        return BATCH if self._rate is None else max(1, min(BATCH, int(self._rate * SLICE_S)))

    @property
    def wait_s(self) -> float:
        """Until the next batch may go out."""
        return max(self._next - self._clock(), 0)

    def sent(self, letters: int) -> None:
        if self._rate is not None:
            self._next = max(self._next, self._clock()) + letters / self._rate


class ReplayExecutor:
    """One plan is carried out by one process at a time: by lock, as a queue is drained."""

    def __init__(
        self, pool: Pool, locks: Locks, publisher: Publisher, *, figures: ConsumerFigures,
        foreign_after_s: float, stopping: asyncio.Event,
    ) -> None:  # fmt: skip
        self._pool = pool
        self._locks = locks
        self._sender = Sender(publisher)
        self._figures = figures
        self._foreign_after_s = foreign_after_s
        self._stopping = stopping
        self._woken = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._decide_at = 0.0
        self._running: dict[str, asyncio.Task[None]] = {}
        self._given_up: set[str] = set()

    async def run(self) -> None:
        """Until it is stopping; letters in hand are then sent and recorded. Raises DatabaseAwayError."""
        await self._locks.listen(CHANNEL, self._woken.set)
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                try:
                    await self._look()
                except DatabaseAwayError as error:
                    # What is on its way goes on: perhaps it was this statement alone.
                    log.warning("replays: %s", error, extra={"action": "replays_interrupted"})
                await event_or_timeout(self._woken, POLL_S)
            await asyncio.gather(*self._running.values())
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            self._running.clear()

    async def _look(self) -> None:
        for plan in await replay_steps.open_plans(self._pool):
            if plan.id in self._given_up or plan.id in self._running:
                continue
            if await self._locks.take_replay(plan.id):
                self._running[plan.id] = asyncio.ensure_future(self._carry_out(plan))
        start = self._clock()
        if start >= self._decide_at:
            await replay_outcomes.decide(self._pool, foreign_after_s=self._foreign_after_s)
            await self._judge()
            self._decide_at = self._clock() + REST * (self._clock() - start)

    async def _judge(self) -> None:
        for verdict in await replay_control.judge(self._pool):
            log.log(
                logging.WARNING if verdict.paused else logging.INFO,
                "replay %s: %s",
                "paused" if verdict.paused else "goes on",
                verdict.why,
                extra={
                    "action": "replay_paused" if verdict.paused else "replay_goes_on",
                    "replay": verdict.replay_id,
                },
            )

    async def _carry_out(self, plan: Plan) -> None:
        extra = {"action": "replay_failed", "replay": plan.id}
        try:
            await self._send_all(plan)
        except DatabaseAwayError as error:
            log.warning("replay interrupted: %s", error, extra=extra | {"action": "replay_interrupted"})
        except Exception as error:
            # The drain beside it must not suffer, and an operator has to see it.
            log.exception("replay stopped by an error of ours", extra=extra)
            await self._give_up(plan, f"{type(error).__name__}: {error}")
        finally:
            await self._locks.release_replay(plan.id)
        self._running.pop(plan.id, None)
        self._woken.set()

    async def _give_up(self, plan: Plan, why: str) -> None:
        try:
            await replay_control.pause(self._pool, plan.id, by=OURSELVES, why=f"an error of ours: {why}")
        except StorageError as error:
            # It was cancelled, or the schema is that of the release before: left until the next start.
            log.warning("replay not paused: %s", error, extra={"action": "replay_failed", "replay": plan.id})
            self._given_up.add(plan.id)

    async def _send_all(self, plan: Plan) -> None:
        extra = {"action": "replay_started", "replay": plan.id}
        log.info("replay started", extra=extra)
        await replay_steps.recover(self._pool, plan)
        counts: Counter[str] = Counter()
        lanes = LANES if plan.rate is None else 1
        # Two that looked at once would see the same letters: the second one none that is free, and end.
        staging = asyncio.Lock()
        # Each to its end: a batch that is given up halfway leaves doubts.
        ends = await asyncio.gather(
            *(self._send_batches(plan, staging, counts) for _ in range(lanes)), return_exceptions=True
        )
        for error in ends:
            if isinstance(error, BaseException):
                raise error
        if not self._stopping.is_set():
            log.info("replay sent", extra=extra | {"action": "replay_sent"} | dict(counts))

    async def _send_batches(self, plan: Plan, staging: asyncio.Lock, counts: Counter[str]) -> None:
        """Until there is nothing to be sent now. While one lane's batch is sent, another's is staged."""
        pace, backoff = Pace(plan.rate), Backoff(first_s=0.2)
        wait_s = 0.0
        while True:
            await event_or_timeout(self._stopping, max(pace.wait_s, wait_s))
            if self._stopping.is_set():
                return
            async with staging:
                step = await replay_steps.stage(self._pool, plan, limit=pace.batch)
            counts.update(failed=step.failed, cancelled=step.dropped)
            if step.is_empty:
                return
            results = await self._sender.send(step.outgoing)
            pace.sent(len(step.outgoing))
            self._figures.replayed(results)
            counts.update(result.what for result in results if result.what != "unsent")
            await self._record(results)
            if waits := [result for result in results if result.what == "unsent"]:
                extra = {"action": "replay_waits", "replay": plan.id}
                log.warning("replay waits: %s", waits[0].why, extra=extra)
                wait_s = backoff.next_s()
            else:
                backoff.reset()
                wait_s = 0.0

    async def _record(self, results: list[Sent]) -> None:
        """What is known must not be lost with a deadlock: to write it down twice does no harm."""
        for left in reversed(range(TRIES)):
            try:
                await self._write_down(results)
                break
            except ConflictError:
                if not left:
                    raise

    async def _write_down(self, results: list[Sent]) -> None:
        tokens = {what: [r.token for r in results if r.what == what] for what in ("published", "unsent")}
        await replay_steps.published(self._pool, tokens["published"])
        await replay_steps.unsent(self._pool, tokens["unsent"])
        for result in results:
            if result.what == "failed":
                await replay_steps.failed(self._pool, result.token, result.why)
            elif result.what == "unknown":
                await replay_steps.unknown(self._pool, [result.token], result.why)
