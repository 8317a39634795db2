"""Deciding a batch of arrivals: one statement for the many that simply wait, a look at the row for others."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from storage import claims
from storage.replayed import replayed
from topology.headers import Attempt
from workers import verdicts
from workers.arrival import Arrival

if TYPE_CHECKING:
    from storage.claims import Connection

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """What a claim says about us."""

    worker: str
    lease_s: float
    crash_bound: int


@dataclass(frozen=True)
class Run:
    """Claimed: run this attempt.

    `suspect`: it was in the hands of a worker that was lost. `alone`: one more lost worker would be its end,
    so that it must not be lost with another job's.
    """

    attempt: Attempt
    suspect: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Ack:
    """A duplicate."""


@dataclass(frozen=True)
class Reject:
    """The job is dead."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """To the dead-letter exchange, and the row is left alone: the dead-letter consumer sees to it.

    `malformed`: the job of this id is one of another task. `expired`: the message came too late.
    """

    reason: str


@dataclass(frozen=True)
class Around:
    """Round the ladder as it is, for so many seconds of real time."""

    seconds: float


@dataclass(frozen=True)
class SendOn:
    """Publish this attempt, then ack."""

    attempt: Attempt
    waiting: claims.Waiting


@dataclass(frozen=True)
class Undecided:
    """The row changed under our eyes: judge again."""


# What a job's row says of a message however late this one is.
_NOT_FOR_THIS_MESSAGE = (verdicts.Duplicate, verdicts.RejectAgain, verdicts.Wait)
Decision = Run | Ack | Reject | Refuse | Around | SendOn | Undecided


async def decide(
    connection: Connection, arrivals: Sequence[Arrival], terms: Terms, doubt_s: float = 0.0
) -> list[tuple[Arrival, Decision]]:
    """Claim what can be claimed and decide the rest. Each job at most once in `arrivals`.

    Args:
        doubt_s: for so long no expired lease is believed: its worker may not have been able to renew it.

    Raises:
        storage.errors.DatabaseAwayError, storage.claims.StatementError: nothing is decided.
    """
    by_token = {arrival.token: arrival for arrival in arrivals}
    in_time = [arrival.claim() for arrival in arrivals if not arrival.expired]
    won: set[UUID] = set()
    if in_time:
        won = await claims.claim(connection, in_time, worker=terms.worker, lease_s=terms.lease_s)
    decisions: list[tuple[Arrival, Decision]] = [
        (by_token[token], Run(by_token[token].attempt)) for token in won
    ]
    if len(won) < len(arrivals):
        rest = [arrival for arrival in arrivals if arrival.token not in won]
        decisions += await _look_closer(connection, rest, terms, doubt_s)
    await _date_replays(connection, decisions)
    return decisions


async def _date_replays(connection: Connection, decisions: Sequence[tuple[Arrival, Decision]]) -> None:
    """A revoke from before a replay is not meant for it.

    Ages are compared, each by one clock: this worker's and the database's may differ.
    """
    later = [
        arrival
        for arrival, decision in decisions
        if isinstance(decision, Run) and decision.attempt.generation > 1
    ]
    if later:
        now = time.monotonic()
        ages = await replayed(connection, [arrival.task.id for arrival in later])
        for arrival in later:
            arrival.replayed = now - ages.get(arrival.task.id, 0.0)


async def _look_closer(
    connection: Connection, arrivals: Sequence[Arrival], terms: Terms, doubt_s: float
) -> list[tuple[Arrival, Decision]]:
    rows = await claims.rows(connection, [arrival.task.id for arrival in arrivals])
    decisions: list[tuple[Arrival, Decision]] = []
    rowless: dict[UUID, Arrival] = {}
    for arrival in arrivals:
        row = rows.get(arrival.task.id)
        if row is not None and row.task != arrival.task.task:
            logger.error("its id is that of a job of task %s", row.task, extra=arrival.log_fields("refused"))
            decisions.append((arrival, Refuse("malformed")))
            continue
        judged = verdicts.verdict(row, arrival.attempt, arrival.token)
        if arrival.expired and not isinstance(judged, _NOT_FOR_THIS_MESSAGE):
            fields = {"action": "refused", "reason": "expired"} | arrival.log_fields("refused")
            logger.error("delivery rejected: it has expired", extra=fields)
            decisions.append((arrival, Refuse("expired")))
            continue
        if isinstance(judged, verdicts.Adopt):
            rowless[arrival.token] = arrival
        elif isinstance(judged, verdicts.TakeOver) and doubt_s > 0:
            decisions.append((arrival, Around(doubt_s)))
        else:
            decisions.append((arrival, await _act(connection, arrival, judged, terms)))
    if rowless:
        made = await claims.adopt(
            connection,
            [arrival.claim() for arrival in rowless.values()],
            worker=terms.worker,
            lease_s=terms.lease_s,
        )
        for token, arrival in rowless.items():
            decisions.append((arrival, Run(arrival.attempt) if token in made else Undecided()))
    return decisions


async def _act(connection: Connection, arrival: Arrival, judged: verdicts.Verdict, terms: Terms) -> Decision:
    match judged:
        case verdicts.Run():
            return Run(arrival.attempt)
        case verdicts.Duplicate():
            return Ack()
        case verdicts.RejectAgain():
            return Reject("dead")
        case verdicts.Wait(seconds):
            return Around(seconds)
        case verdicts.SendOn(attempt, waiting):
            return SendOn(attempt, waiting)
        case verdicts.Believe():
            logger.warning(
                "message of attempt %s is ahead of its job's row: believed", arrival.attempt,
                extra=arrival.log_fields("claim_ahead"),
            )  # fmt: skip
            ours = await claims.believe(
                connection, arrival.claim(), worker=terms.worker, lease_s=terms.lease_s
            )
            return Run(arrival.attempt) if ours else Undecided()
        case verdicts.TakeOver(lost):
            return await _take_over(connection, arrival, lost, terms)
    return Undecided()


async def _take_over(connection: Connection, arrival: Arrival, lost: UUID, terms: Terms) -> Decision:
    fate = await claims.take_over(
        connection,
        arrival.claim(),
        lost,
        worker=terms.worker,
        lease_s=terms.lease_s,
        crash_bound=terms.crash_bound,
    )
    if fate is None:
        return Undecided()
    logger.warning(
        "the worker of this job was lost: %s",
        "dead at the bound" if fate.state == "DEAD" else "taken over",
        extra=arrival.log_fields("take_over"),
    )
    if fate.state == "DEAD":
        return Reject("worker_lost")
    last_chance = 0 < fate.crashes >= terms.crash_bound - 1
    return Run(Attempt(fate.generation, fate.attempt), suspect=True, alone=last_chance)
