"""Chords, the results that a dead job blocks, and the dead letters whose canvas is still to be told.

All calls take the caller's connection and raise `DatabaseAwayError` when nothing is decided. On the schema of
the release before there is none of this: nothing is found, and nothing is put on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import translate
from storage.pool import AnyConnection
from storage.schema import off_without_table

TIMEOUT_S = 10.0

_ADD = """
INSERT INTO redrive.chords (group_id, members, shape, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (group_id) DO NOTHING
"""
# From the end, since members end about in their order: the first look finds one that has not. The scalar
# subquery keeps it a probe of the primary key for each.
_IS_COMPLETE = """NOT EXISTS (
    SELECT 1 FROM (SELECT m.id FROM unnest(c.members) WITH ORDINALITY AS m (id, place) ORDER BY place DESC) r
    WHERE coalesce((SELECT j.state FROM redrive.jobs j WHERE j.id = r.id), '') <> 'SUCCEEDED')"""
_COMPLETE = f"""
SELECT c.group_id FROM redrive.chords c
WHERE c.group_id = ANY($1::text[]) AND c.announced_at IS NULL AND {_IS_COMPLETE}
"""  # noqa: S608 - a fragment from above
# An old chord is looked at less often, once a minute at least.
_SWEEP = f"""
WITH due AS (
    SELECT group_id FROM redrive.chords WHERE announced_at IS NULL AND look_at < now()
    ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED
), seen AS (
    UPDATE redrive.chords c
    SET look_at = now() + greatest(least((now() - c.created_at) / 8, interval '1 minute'),
                                   interval '5 seconds')
    FROM due WHERE c.group_id = due.group_id
    RETURNING c.group_id, c.members
)
SELECT c.group_id, {_IS_COMPLETE} AS complete,
       (SELECT j.queue FROM redrive.jobs j WHERE j.id = c.members[cardinality(c.members)]) AS queue
FROM seen c
"""  # noqa: S608 - a fragment from above
# The message of such a member may be lost, so that nothing told of its death for a minute.
_LOST = """
SELECT c.group_id, d.id, d.generation, d.queue
FROM redrive.chords c
CROSS JOIN LATERAL (
    SELECT j.id, j.generation, j.queue FROM redrive.jobs j
    WHERE j.id = ANY(c.members) AND j.state IN ('DEAD', 'CANCELLED')
      AND j.finished_at < now() - interval '1 minute' LIMIT 1) d
WHERE c.group_id = ANY($1::text[]) AND c.failed_at IS NULL
"""
_ANNOUNCED = "UPDATE redrive.chords SET announced_at = now() WHERE group_id = ANY($1::text[])"
_FIRED = "UPDATE redrive.chords SET fired_at = coalesce(fired_at, now()) WHERE group_id = $1"
_READ = "SELECT body, shape, members, fired_at IS NOT NULL AS fired FROM redrive.chords WHERE group_id = $1"
_RESULTS = "SELECT id, result FROM redrive.jobs WHERE id = ANY($1::text[]) AND state = 'SUCCEEDED'"
# The member that failed it keeps it: its message may come twice, when the first run did not get to its end.
_FAIL = """
UPDATE redrive.chords c
SET failed_at = coalesce(c.failed_at, now()), failed_by = coalesce(c.failed_by, $2::text)
WHERE c.group_id = $1 AND $2 = ANY(c.members) AND c.announced_at IS NULL
RETURNING c.body, c.failed_by = $2 AS ours
"""
_EXTEND = """
UPDATE redrive.chords SET members = array_append(members, $2), shape = $3
WHERE group_id = $1 AND announced_at IS NULL
"""
_BLOCK = """
INSERT INTO redrive.blocked_results (job_id, cause, chord)
SELECT DISTINCT id, $2::text, $3::boolean FROM unnest($1::text[]) AS b (id)
ON CONFLICT (job_id, cause) DO NOTHING
"""
# Told are the deaths that happened: of a job that has gone on, its letter is no death of its own.
_LETTERS = """
WITH due AS (
    SELECT letter_id FROM redrive.canvas_letters WHERE look_at < now()
    ORDER BY look_at LIMIT $1 FOR UPDATE SKIP LOCKED
), seen AS (
    UPDATE redrive.canvas_letters c SET look_at = now() + interval '30 seconds'
    FROM due WHERE c.letter_id = due.letter_id RETURNING c.letter_id
)
SELECT l.id, l.queue, l.reason, l.properties, l.body, coalesce(l.generation, 1) AS generation,
       CASE WHEN j.id IS NULL THEN 'tell'
            WHEN j.generation > coalesce(l.generation, 1) THEN 'tell'
            WHEN j.state = 'DEAD' THEN 'tell'
            WHEN j.state IN ('SUCCEEDED', 'CANCELLED') THEN 'drop' ELSE 'wait' END AS verdict
FROM seen JOIN redrive.dead_letters l ON l.id = seen.letter_id
LEFT JOIN redrive.jobs j ON j.id = l.job_id
"""
_TOLD = "DELETE FROM redrive.canvas_letters WHERE letter_id = ANY($1::bigint[])"


@dataclass(frozen=True)
class Chord:
    """`body` is a signature, `shape` the members' ids nested as the header is; both JSON.

    `results` holds the JSON results of the members that succeeded.
    """

    body: bytes
    shape: bytes
    members: tuple[str, ...]
    fired: bool
    results: dict[str, bytes | None]

    @property
    def complete(self) -> bool:
        return self.results.keys() >= set(self.members)


@dataclass(frozen=True)
class DeadMember:
    """A job that is dead, and a chord that waits for it."""

    group_id: str
    id: str
    generation: int
    queue: str


@dataclass(frozen=True)
class CanvasLetter:
    """A dead letter whose canvas is to be told."""

    id: int
    queue: str
    reason: str
    properties: bytes
    body: bytes
    generation: int


async def add(
    connection: AnyConnection, group_id: str, members: Sequence[str], shape: bytes, body: bytes
) -> None:
    """Put a chord on record before its header goes out; one that is there already is left as it is."""
    with translate("record a chord"):
        await connection.execute(_ADD, group_id, list(members), shape, body, timeout=TIMEOUT_S)


async def extend(connection: AnyConnection, group_id: str, member: str, shape: bytes) -> bool:
    """Add a member to a chord that is not complete; whether it was."""
    with translate("extend a chord"):
        tag = await connection.execute(_EXTEND, group_id, member, shape, timeout=TIMEOUT_S)
    return bool(tag == "UPDATE 1")


@off_without_table(list)
async def complete(connection: AnyConnection, group_ids: Sequence[str]) -> list[str]:
    """Those of these chords whose members have all succeeded and whose body has not been announced."""
    with translate("look at chords"):
        return [row["group_id"] for row in await connection.fetch(_COMPLETE, group_ids, timeout=TIMEOUT_S)]


@off_without_table(lambda: ([], []))
async def sweep(connection: AnyConnection, *, limit: int) -> tuple[list[tuple[str, str]], list[DeadMember]]:
    """Look at chords whose turn it is, each for one caller.

    Returns:
        The complete ones, each with a work queue; and dead members that have failed no chord so far.
    """
    with translate("sweep chords"):
        rows = await connection.fetch(_SWEEP, limit, timeout=TIMEOUT_S)
        waiting = [row["group_id"] for row in rows if not row["complete"]]
        lost = await connection.fetch(_LOST, waiting, timeout=TIMEOUT_S) if waiting else []
    complete = [(row["group_id"], row["queue"]) for row in rows if row["complete"]]
    return complete, [DeadMember(**dict(row)) for row in lost]


@off_without_table(lambda: None)
async def announced(connection: AnyConnection, group_ids: Sequence[str]) -> None:
    """The broker has the messages that will send these chords' bodies."""
    with translate("record announced chords"):
        await connection.execute(_ANNOUNCED, list(group_ids), timeout=TIMEOUT_S)


async def fired(connection: AnyConnection, group_id: str) -> None:
    """The body has been sent."""
    with translate("record a fired chord"):
        await connection.execute(_FIRED, group_id, timeout=TIMEOUT_S)


async def read(connection: AnyConnection, group_id: str) -> Chord | None:
    """A chord with its members' results, or None."""
    with translate("read a chord"):
        row = await connection.fetchrow(_READ, group_id, timeout=TIMEOUT_S)
        if row is None:
            return None
        done = await connection.fetch(_RESULTS, row["members"], timeout=TIMEOUT_S)
    results = {found["id"]: found["result"] for found in done}
    return Chord(row["body"], row["shape"], tuple(row["members"]), row["fired"], results)


@off_without_table(lambda: None)
async def fail(connection: AnyConnection, group_id: str, member: str) -> tuple[bytes, bool] | None:
    """A member of a chord cannot succeed now: the body, and whether this member is the one that failed it.

    None: there is no such chord, or it is complete.
    """
    with translate("fail a chord"):
        row = await connection.fetchrow(_FAIL, group_id, member, timeout=TIMEOUT_S)
    return None if row is None else (row["body"], row["ours"])


@off_without_table(lambda: None)
async def block(connection: AnyConnection, job_ids: Sequence[str], cause: str, *, chord: bool) -> None:
    """Put on record that these jobs will not run while `cause` is dead."""
    with translate("record blocked results"):
        await connection.execute(_BLOCK, list(job_ids), cause, chord, timeout=TIMEOUT_S)


@off_without_table(list)
async def letters(connection: AnyConnection, *, limit: int) -> list[CanvasLetter]:
    """Letters whose canvas is to be told now, each for one caller. `told` ends it; untold they come again."""
    with translate("look for letters of a canvas"):
        rows: list[Any] = await connection.fetch(_LETTERS, limit, timeout=TIMEOUT_S)
        dropped = [row["id"] for row in rows if row["verdict"] == "drop"]
        if dropped:
            await connection.execute(_TOLD, dropped, timeout=TIMEOUT_S)
    return [
        CanvasLetter(
            row["id"], row["queue"], row["reason"], row["properties"], row["body"], row["generation"]
        )
        for row in rows
        if row["verdict"] == "tell"
    ]


@off_without_table(lambda: None)
async def told(connection: AnyConnection, letter_ids: Sequence[int]) -> None:
    """The broker has the messages that tell of these letters."""
    with translate("record told letters"):
        await connection.execute(_TOLD, list(letter_ids), timeout=TIMEOUT_S)
