"""What the tables say of this moment, for monitoring: each question is bounded, whatever lies in the tables.

Dead letters are counted by the sums of their groups, waiting jobs by an index of those that have not ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from storage.errors import translate
from storage.letter_filter import first_undecided
from storage.pool import AnyConnection
from storage.schema import off_without_table

# A question that takes longer is given up.
TIMEOUT_S = 4.0
# Queues that messages name are no setting of ours: so many are told apart.
MOST_QUEUES = 100
MOST_WORKERS = 200

JOBS = """
SELECT queue, state, count(*) AS number FROM redrive.jobs
WHERE state NOT IN ('SUCCEEDED', 'CANCELLED') GROUP BY queue, state ORDER BY queue, state
"""
OLDEST = """
SELECT q.queue, coalesce(extract(epoch FROM now() - (
    SELECT j.queued_at FROM redrive.jobs j WHERE j.state = 'QUEUED' AND j.queue = q.queue
    ORDER BY j.queued_at LIMIT 1)), 0)::float8 AS age_s
FROM unnest($1::text[]) AS q (queue)
"""
# Delayed ones are not due: see 0017_job_options.sql. Of a full outbox it is enough to know that it is large.
OUTBOX = """
SELECT queue, count(*) FILTER (WHERE created_at <= now()) AS due,
       count(*) FILTER (WHERE created_at > now()) AS delayed,
       count(*) FILTER (WHERE last_error IS NOT NULL) AS refused,
       greatest(extract(epoch FROM now() - min(created_at)), 0)::float8 AS age_s
FROM (SELECT queue, created_at, last_error FROM redrive.outbox ORDER BY id LIMIT 200000) AS oldest
GROUP BY queue ORDER BY queue
"""
LETTERS = """
WITH counted AS (
    SELECT g.queue, g.reason, c.state, sum(c.letters)::bigint AS number
    FROM redrive.group_counts c JOIN redrive.groups g USING (fingerprint) GROUP BY 1, 2, 3),
largest AS (SELECT queue FROM counted GROUP BY queue ORDER BY sum(number) DESC, queue LIMIT $1)
SELECT CASE WHEN queue IN (SELECT queue FROM largest) THEN queue ELSE 'other' END AS queue, reason, state,
       sum(number)::bigint AS number
FROM counted GROUP BY 1, 2, 3 HAVING sum(number) > 0 ORDER BY 1, 2, 3
"""
GROUPS = """
SELECT count(*) FROM (SELECT fingerprint FROM redrive.group_counts
    WHERE state IN ('open', 'replaying', 'quarantined') GROUP BY fingerprint HAVING sum(letters) > 0) AS g
"""
UNDECIDED = first_undecided("extract(epoch FROM now() - l.stored_at)::float8")
ALERTS = """
SELECT channel, count(*) AS number, extract(epoch FROM now() - min(created_at))::float8 AS age_s
FROM redrive.alert_deliveries WHERE state = 'pending' GROUP BY channel ORDER BY channel
"""
# By their partial indexes, as most callbacks were delivered; of more it is enough to know that they are many.
CALLBACKS = """
SELECT s.state, c.number, coalesce(c.age_s, 0) AS age_s
FROM unnest('{pending,dead}'::text[]) AS s (state) CROSS JOIN LATERAL (
    SELECT count(*) AS number, extract(epoch FROM now() - min(created_at))::float8 AS age_s
    FROM (SELECT created_at FROM redrive.callbacks WHERE state = 'pending' AND s.state = 'pending'
          UNION ALL SELECT created_at FROM redrive.callbacks WHERE state = 'dead' AND s.state = 'dead'
          LIMIT 100000) AS few) AS c
"""
REPLAYS = """
SELECT state, count(*) AS number FROM redrive.replays WHERE state IN ('running', 'paused') GROUP BY state
"""
WORKERS = """
SELECT worker, extract(epoch FROM now() - w.seen_at)::float8 AS age_s
FROM redrive.worker_tasks w LEFT JOIN redrive.worker_ends e USING (worker)
WHERE e.ended_at IS NULL OR e.ended_at < w.seen_at
ORDER BY w.seen_at LIMIT $1
"""


@dataclass(frozen=True)
class Figure:
    """Values of one name: labels and value of each."""

    name: str
    text: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


Ask = Callable[[AnyConnection, Sequence[str]], Awaitable[list[Figure]]]


async def jobs(db: AnyConnection, queues: Sequence[str]) -> list[Figure]:
    """Jobs that have not ended, or died, and how long the first of each queue waits for a worker.

    A quorum queue does not tell the age of its messages (head_message_timestamp is of classic queues alone;
    RabbitMQ 3.10.8, 4.3): the age is that of the job's row, from the broker's confirm.
    """
    with translate("count jobs"):
        counted = await db.fetch(JOBS, timeout=TIMEOUT_S)
        oldest = await db.fetch(OLDEST, list(queues), timeout=TIMEOUT_S)
    return [
        Figure(
            "redrive_jobs",
            "Jobs that have not ended, and dead ones, by work queue and state.",
            tuple(({"queue": row["queue"], "state": row["state"]}, row["number"]) for row in counted),
        ),
        Figure(
            "redrive_queue_oldest_message_age_seconds",
            "How long the first job that no worker has begun waits in its work queue; 0: none waits.",
            tuple(({"queue": row["queue"]}, max(row["age_s"], 0.0)) for row in oldest),
        ),
    ]


async def outbox(db: AnyConnection, queues: Sequence[str]) -> list[Figure]:
    """Messages that the broker has not confirmed."""
    with translate("count the outbox"):
        found = {row["queue"]: row for row in await db.fetch(OUTBOX, timeout=TIMEOUT_S)}
    every = [*queues, *sorted(found.keys() - set(queues))]

    def each(column: str) -> tuple[tuple[Mapping[str, str], float], ...]:
        return tuple(
            ({"queue": queue}, float(found[queue][column]) if queue in found else 0.0) for queue in every
        )

    return [
        Figure(
            "redrive_outbox_messages",
            "Accepted, due, and not yet confirmed by the broker; of the outbox's first 200,000.",
            each("due"),
        ),
        Figure("redrive_outbox_delayed_messages", "Accepted, and not due yet.", each("delayed")),
        Figure(
            "redrive_outbox_refused_messages",
            "Not confirmed, and refused by the broker at least once.",
            each("refused"),
        ),
        Figure(
            "redrive_outbox_oldest_age_seconds",
            "How long the first message in the outbox has been due; 0: none is.",
            each("age_s"),
        ),
    ]


@off_without_table(otherwise=list)
async def letters(db: AnyConnection, _: Sequence[str]) -> list[Figure]:
    """Dead letters by the queue they died in. Copies are not counted: one death, one letter."""
    with translate("count letters"):
        counted = await db.fetch(LETTERS, MOST_QUEUES, timeout=TIMEOUT_S)
        groups = await db.fetchval(GROUPS, timeout=TIMEOUT_S)
        oldest = await db.fetchval(UNDECIDED, timeout=TIMEOUT_S)
    return [
        Figure(
            "redrive_dead_letters",
            "Stored dead letters by queue of origin, reason and state; all but replayed and discarded ones"
            " wait for a decision.",
            tuple(
                ({name: row[name] for name in ("queue", "reason", "state")}, row["number"]) for row in counted
            ),
        ),
        Figure("redrive_dead_letter_groups_open", "Groups with undecided letters.", (({}, groups),)),
        Figure(
            "redrive_dead_letter_oldest_undecided_age_seconds",
            "How long the first undecided letter has been stored; 0: none is.",
            (({}, max(oldest or 0.0, 0.0)),),
        ),
    ]


@off_without_table(otherwise=list)
async def alerts(db: AnyConnection, _: Sequence[str]) -> list[Figure]:
    """Alerts that a channel has not taken."""
    with translate("count alerts"):
        found = await db.fetch(ALERTS, timeout=TIMEOUT_S)
    return [
        Figure(
            "redrive_alerts_pending",
            "Alerts that are still to be delivered, by channel.",
            tuple(({"channel": row["channel"]}, row["number"]) for row in found),
        ),
        Figure(
            "redrive_alert_oldest_pending_age_seconds",
            "Age of the first alert that is still to be delivered, by channel.",
            tuple(({"channel": row["channel"]}, max(row["age_s"], 0.0)) for row in found),
        ),
    ]


@off_without_table(otherwise=list)
async def callbacks(db: AnyConnection, _: Sequence[str]) -> list[Figure]:
    """Callbacks of jobs that no receiver has taken."""
    with translate("count callbacks"):
        found = await db.fetch(CALLBACKS, timeout=TIMEOUT_S)
    return [
        Figure(
            "redrive_callbacks",
            "Callbacks of ended jobs that no receiver has taken: pending ones are tried again, dead ones not;"
            " 100,000 of each are counted at most.",
            tuple(({"state": row["state"]}, row["number"]) for row in found),
        ),
        Figure(
            "redrive_callback_oldest_pending_age_seconds",
            "Since the job of the first callback ended that is still to be delivered; 0: none is.",
            tuple(({}, max(row["age_s"], 0.0)) for row in found if row["state"] == "pending"),
        ),
    ]


async def replays(db: AnyConnection, _: Sequence[str]) -> list[Figure]:
    """Replays that have not ended."""
    with translate("count replays"):
        found = {row["state"]: row["number"] for row in await db.fetch(REPLAYS, timeout=TIMEOUT_S)}
    states = ("running", "paused")
    return [
        Figure(
            "redrive_replays",
            "Replays that have not ended, by state.",
            tuple(({"state": state}, found.get(state, 0)) for state in states),
        )
    ]


@off_without_table(otherwise=list)
async def workers(db: AnyConnection, _: Sequence[str]) -> list[Figure]:
    """Workers that were here in the last hour and did not stop in order."""
    with translate("look for workers"):
        found = await db.fetch(WORKERS, MOST_WORKERS, timeout=TIMEOUT_S)
    return [
        Figure(
            "redrive_worker_heartbeat_age_seconds",
            "Since a worker renewed its leases in Postgres; a lost one is told for an hour.",
            tuple(({"worker": row["worker"]}, max(row["age_s"], 0.0)) for row in found),
        )
    ]


ASKED: Mapping[str, Ask] = {
    "jobs": jobs,
    "outbox": outbox,
    "letters": letters,
    "alerts": alerts,
    "callbacks": callbacks,
    "replays": replays,
    "workers": workers,
}
