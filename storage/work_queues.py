"""What the tables say of each work queue at one moment. Every question is bounded but for the outbox's, which
reads what waits there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.errors import translate
from storage.figures import JOBS, OLDEST, TIMEOUT_S
from storage.pool import AnyConnection
from storage.schema import off_without_table

# Of the jobs of a queue the last ones are looked at: accepted within so many seconds, and so many at most.
RECENT_S = 300.0
RECENT_JOBS = 5_000

OUTBOX = """
SELECT queue, count(*) FILTER (WHERE created_at <= now()) AS messages,
       count(*) FILTER (WHERE created_at > now()) AS delayed,
       count(*) FILTER (WHERE last_error IS NOT NULL) AS refused,
       greatest(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest_s,
       (array_agg(last_error ORDER BY id DESC) FILTER (WHERE last_error IS NOT NULL))[1] AS last_error
FROM redrive.outbox WHERE queue = ANY($1::text[]) GROUP BY queue
"""
RECENT = """
SELECT q.queue, r.state, count(*) AS number, extract(epoch FROM now() - min(r.created_at))::float8 AS since_s
FROM unnest($1::text[]) AS q (queue) CROSS JOIN LATERAL (
    SELECT j.state, j.created_at FROM redrive.jobs j
    WHERE j.queue = q.queue AND j.created_at > now() - make_interval(secs => $2)
    ORDER BY j.created_at DESC LIMIT $3) AS r
GROUP BY q.queue, r.state
"""
UNDECIDED = """
SELECT g.queue, sum(c.letters)::bigint AS letters
FROM redrive.groups g JOIN redrive.group_counts c USING (fingerprint)
WHERE g.queue = ANY($1::text[]) AND c.state IN ('open', 'replaying', 'quarantined') GROUP BY g.queue
"""


@dataclass(frozen=True)
class OutboxCount:
    """Messages not yet confirmed by the broker, without the `delayed` ones that are not due yet.

    `oldest_s`: seconds since the oldest was accepted, or due if it was delayed.
    """

    messages: int = 0
    delayed: int = 0
    refused: int = 0
    oldest_s: float = 0.0
    last_error: str | None = None


@dataclass(frozen=True)
class Recent:
    """Jobs accepted in the last `seconds`, by the state that they are in now."""

    seconds: float = RECENT_S
    states: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredQueue:
    """One work queue.

    `jobs`: those that have not ended, and dead ones, by state. `oldest_s`: since the broker confirmed the
    first job that no worker has begun; None: none waits. `undecided`: dead letters without a decision, copies
    not counted; None on the schema of a release that does not count them.
    """

    jobs: Mapping[str, int] = field(default_factory=dict)
    oldest_s: float | None = None
    outbox: OutboxCount = OutboxCount()
    recent: Recent = Recent()
    undecided: int | None = None


async def look(db: AnyConnection, queues: Sequence[str]) -> dict[str, StoredQueue]:
    """Each of `queues`.

    Raises:
        DatabaseAwayError: try again.
    """
    names = list(queues)
    with translate("look at the work queues"):
        jobs = await db.fetch(JOBS, timeout=TIMEOUT_S)
        oldest = await db.fetch(OLDEST, names, timeout=TIMEOUT_S)
        outbox = await db.fetch(OUTBOX, names, timeout=TIMEOUT_S)
        recent = await db.fetch(RECENT, names, RECENT_S, RECENT_JOBS, timeout=TIMEOUT_S)
        undecided = await _undecided(db, names)
    states: dict[str, dict[str, int]] = {name: {} for name in names}
    for row in jobs:
        if row["queue"] in states:
            states[row["queue"]][row["state"]] = row["number"]
    ages = {row["queue"]: row["age_s"] for row in oldest}
    waiting = {row["queue"]: OutboxCount(*(row[name] for name in vars(OutboxCount()))) for row in outbox}
    found: dict[str, dict[str, tuple[int, float]]] = {name: {} for name in names}
    for row in recent:
        found[row["queue"]][row["state"]] = row["number"], row["since_s"]
    return {
        name: StoredQueue(
            jobs=states[name],
            oldest_s=max(ages[name], 0.0) if states[name].get("QUEUED") else None,
            outbox=waiting.get(name, OutboxCount()),
            recent=_recent(found[name]),
            undecided=None if undecided is None else undecided.get(name, 0),
        )
        for name in names
    }


def _recent(found: Mapping[str, tuple[int, float]]) -> Recent:
    states = {state: number for state, (number, _) in sorted(found.items())}
    full = sum(states.values()) >= RECENT_JOBS
    return Recent(max(since for _, since in found.values()) if full else RECENT_S, states)


@off_without_table(otherwise=lambda: None)
async def _undecided(db: AnyConnection, names: list[str]) -> dict[str, int] | None:
    rows = await db.fetch(UNDECIDED, names, timeout=TIMEOUT_S)
    return {row["queue"]: max(row["letters"], 0) for row in rows}
