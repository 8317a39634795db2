"""The outbox of callbacks: written by a trigger in the transaction that ends a job, sent after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from storage.errors import translate
from storage.pool import AnyConnection, Pool
from storage.schema import off_without_table
from storage.text import safe_text

MAX_ERROR = 500
# Pushing next_try_at ahead is the claim: a sender that dies leaves the callback to be sent again. Place by
# place, so that thousands that wait for one receiver are not gone through to find another's; the first of
# each place goes before the second of any. Of places that are not known to be prompt only so many go, the
# callers in turns, by how many of theirs are on their way: one's flood of places is that caller's alone. Of
# one caller's the oldest or the newest first, as asked: the last one that came waits for no flood before it.
_CLAIM = """
WITH RECURSIVE places AS (
    (SELECT place FROM redrive.callbacks WHERE state = 'pending' ORDER BY place LIMIT 1)
    UNION ALL
    SELECT (SELECT c.place FROM redrive.callbacks c
            WHERE c.state = 'pending' AND c.place > p.place ORDER BY c.place LIMIT 1)
    FROM places p WHERE p.place IS NOT NULL
), open AS (
    SELECT d.id, d.next_try_at, known.prompt IS TRUE AS prompt,
           row_number() OVER (PARTITION BY p.place ORDER BY d.next_try_at) AS turn,
           CASE WHEN $11 THEN -extract(epoch FROM d.created_at) END AS age,
           CASE WHEN known.prompt IS NOT TRUE THEN coalesce(
               (SELECT j.principal FROM redrive.jobs j WHERE j.id = d.job_id), '') END AS caller
    FROM places p
    LEFT JOIN unnest($1::text[], $2::int[], $7::bool[]) AS known (place, room, prompt) USING (place)
    CROSS JOIN LATERAL (
        SELECT c.id, c.job_id, c.next_try_at, c.created_at FROM redrive.callbacks c
        WHERE c.state = 'pending' AND c.place = p.place AND c.next_try_at <= now()
        ORDER BY c.next_try_at LIMIT coalesce(known.room, $3)) d
), shared AS (
    SELECT *, coalesce(busy.number, 0) + CASE WHEN prompt THEN 0 ELSE
                  row_number() OVER (PARTITION BY caller ORDER BY turn, age, next_try_at) END AS share
    FROM open LEFT JOIN unnest($9::text[], $10::int[]) AS busy (caller, number) USING (caller)
), ranked AS (
    SELECT id, prompt,
           row_number() OVER (PARTITION BY prompt ORDER BY share, turn, age, next_try_at) AS place_in_line
    FROM shared
), chosen AS (
    SELECT c.id FROM redrive.callbacks c
    WHERE c.id = ANY (ARRAY(SELECT id FROM ranked WHERE prompt OR place_in_line <= $8
                            ORDER BY place_in_line, prompt LIMIT $4))
      AND c.state = 'pending' AND c.next_try_at <= now()
    FOR UPDATE SKIP LOCKED -- these alone: to lock is to write, and of each place there may be some
)
UPDATE redrive.callbacks c SET tries = c.tries + 1, next_try_at = now() + make_interval(secs => $5)
FROM chosen, redrive.jobs j, redrive.job_callbacks asked
WHERE c.id = chosen.id AND j.id = c.job_id AND asked.job_id = c.job_id
RETURNING c.id::text, c.job_id, c.generation, c.attempt, c.job_state, c.reason, c.error, c.finished_at,
    c.tries, c.next_try_at AS claimed_until, c.place, asked.url, j.type, j.queue, j.created_at,
    coalesce(j.principal, '') AS caller,
    CASE WHEN c.job_state = 'SUCCEEDED' THEN octet_length(j.result) END AS result_size,
    CASE WHEN c.job_state = 'SUCCEEDED' AND octet_length(j.result) <= $6 THEN j.result END AS result
"""
# Of the last tries. $2: the status of an answer, or $3: why there was none.
_ANSWERS = """(
    SELECT jsonb_agg(answer ORDER BY place) FROM (
        SELECT answer, place
        FROM jsonb_array_elements(answers || jsonb_strip_nulls(
            jsonb_build_object('at', now(), 'status', $2::int, 'error', $3::text)))
            WITH ORDINALITY AS a (answer, place)
        ORDER BY place DESC LIMIT 5) AS kept)"""
_DELIVERED = f"""
UPDATE redrive.callbacks SET state = 'delivered', ended_at = now(), answers = {_ANSWERS}
WHERE id = $1::uuid AND state = 'pending'
"""  # noqa: S608 - a text from above
# A sender whose claim ran out leaves the next one's word alone; tries begin anew when it is retried by hand.
_FAILED = f"""
UPDATE redrive.callbacks
SET answers = {_ANSWERS}, next_try_at = now() + make_interval(secs => $5),
    state = CASE WHEN $6::text IS NULL THEN 'pending' ELSE 'dead' END,
    why_dead = $6, ended_at = CASE WHEN $6::text IS NOT NULL THEN now() END
WHERE id = $1::uuid AND state = 'pending' AND next_try_at = $4
"""  # noqa: S608 - a text from above
_PRUNE = """
WITH gone AS (
    DELETE FROM redrive.callbacks WHERE id IN (
        SELECT id FROM redrive.callbacks WHERE state = 'delivered' AND ended_at < now() - $1::interval
        ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True)
class Callback:
    """One to send now: the end of a job, as it was. `tries` counts this one; `claimed_until` is of this claim
    alone; `result` is UTF-8 JSON, None where it is longer than asked for; `caller` is who submitted the job.
    """

    id: str
    job_id: str
    generation: int
    attempt: int
    job_state: str
    reason: str | None
    error: str | None
    finished_at: datetime | None
    tries: int
    claimed_until: datetime
    place: str
    url: str
    type: str
    queue: str
    created_at: datetime
    result_size: int | None
    result: bytes | None
    caller: str = ""


@dataclass(frozen=True)
class Room:
    """Of one place: for how many there is room. `prompt`: the last time it answered soon."""

    free: int
    prompt: bool


@dataclass(frozen=True)
class Limits:
    """Of one look: callbacks in all, of places that are not known to be prompt, and of each place that is not
    known; bytes of a result. `busy`: how many of a caller are on their way to places that are not known to be
    prompt; `newest_first` is of those places, too."""

    most: int
    most_doubtful: int
    per_place: int
    known: Mapping[str, Room]
    max_result: int
    busy: Mapping[str, int] = field(default_factory=dict)
    newest_first: bool = False


@off_without_table(otherwise=list)
async def claim_due(pool: Pool, limits: Limits, *, lease_s: float) -> list[Callback]:
    """Callbacks to send now. One that is not reported on within `lease_s` seconds comes up again.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("look for callbacks"):
        rows = await pool.fetch(
            _CLAIM, list(limits.known), [room.free for room in limits.known.values()], limits.per_place,
            limits.most, lease_s, limits.max_result, [room.prompt for room in limits.known.values()],
            limits.most_doubtful, list(limits.busy), list(limits.busy.values()), limits.newest_first,
        )  # fmt: skip
    return [Callback(**dict(row)) for row in rows]


async def delivered(pool: Pool, callback: Callback, status: int) -> None:
    """Raises DatabaseAwayError."""
    with translate("record a delivered callback"):
        await pool.execute(_DELIVERED, callback.id, status, None)


async def failed(
    pool: Pool,
    callback: Callback,
    *,
    status: int | None = None,
    error: str | None = None,
    retry_in_s: float,
    dead: str | None = None,
) -> None:
    """Have it sent again, or with `dead` (why) not any more.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    said = None if error is None else safe_text(error, MAX_ERROR)
    with translate("record a failed callback"):
        await pool.execute(_FAILED, callback.id, status, said, callback.claimed_until, retry_in_s, dead)


@off_without_table(otherwise=lambda: 0)
async def prune(pool: Pool | AnyConnection, *, days: float, batch: int) -> int:
    """Delete at most `batch` that were delivered over `days` ago; how many.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("delete old callbacks"):
        return int(await pool.fetchval(_PRUNE, timedelta(days=days), batch))
