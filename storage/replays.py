"""Replay plans: made by anyone, read by anyone; carried out through `storage.replay_steps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from storage import expired_items, letter_edits
from storage.errors import StorageError, translate
from storage.pool import AnyConnection, Pool, lend
from storage.text import safe_text
from storage.times import shown_time

CHANNEL = "redrive_replays"
MAX_LETTERS = 100_000

_LETTERS = """
SELECT l.id, l.state, l.target, l.job_id, l.duplicate_of, j.state AS job_state
FROM redrive.dead_letters l LEFT JOIN redrive.jobs j ON j.id = l.job_id
WHERE l.id = ANY($1::bigint[]) ORDER BY l.id FOR UPDATE OF l
"""
_OUTSTANDING = """
SELECT letter_id, replay_id::text FROM redrive.replay_items
WHERE letter_id = ANY($1::bigint[])
  AND (state IN ('staged', 'publishing') OR (state = 'published' AND outcome IS NULL))
"""
_NEW_PLAN = "INSERT INTO redrive.replays (requested_by, note, rate) VALUES ($1, $2, $3) RETURNING id::text"
_NEW_ITEMS = """
INSERT INTO redrive.replay_items (token, replay_id, position, letter_id, target)
SELECT gen_random_uuid()::text, $1::uuid, t.position, t.letter_id, t.target
FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS t (letter_id, target, position)
"""
_LETTERS_REPLAYING = "UPDATE redrive.dead_letters SET state = 'replaying' WHERE id = ANY($1::bigint[])"
_PLANS = """
SELECT r.id::text, r.state, r.requested_by, r.note, r.rate, r.created_at, r.finished_at,
       (SELECT count(*) FROM redrive.replay_items i WHERE i.replay_id = r.id) AS letters
FROM redrive.replays r
"""
_PLAN = _PLANS + "WHERE r.id = $1::uuid"
_RECENT = _PLANS + "ORDER BY r.created_at DESC, r.id LIMIT $1"
_ITEMS = """
SELECT i.position, i.letter_id, i.token, i.target, i.state, i.outcome, i.generation, i.next_letter_id,
       i.detail, i.published_at, i.decided_at, l.job_id
FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE i.replay_id = $1::uuid ORDER BY i.position
"""


class UnknownReplayError(StorageError):
    """No replay has this id."""


@dataclass(frozen=True)
class Refusal:
    """Why one letter cannot be replayed."""

    letter_id: int
    why: str


class ReplayRefusedError(StorageError):
    """A plan names letters that cannot be replayed: one of `refusals` for each. Nothing was changed."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"letter {refusal.letter_id}: {refusal.why}" for refusal in refusals))
        self.refusals = tuple(refusals)


class UnknownLettersError(ReplayRefusedError):
    """The plan names letters that are not on record."""


class ReplayConflictError(ReplayRefusedError):
    """Another replay of one of the letters is outstanding."""


@dataclass(frozen=True)
class ReplayItem:
    """One letter of a plan.

    `state`: staged, publishing, published, failed, unknown, cancelled. `outcome` once decided: succeeded,
    died_again (`next_letter_id` is the letter it came back as), cancelled, consumed, unknown.
    """

    position: int
    letter_id: int
    token: str
    target: str
    state: str
    outcome: str | None
    generation: int | None
    next_letter_id: int | None
    detail: str | None
    published_at: datetime | None
    decided_at: datetime | None
    job_id: str | None

    @property
    def decided(self) -> bool:
        return self.state in ("failed", "unknown", "cancelled") or self.outcome is not None

    @property
    def is_job(self) -> bool:
        """Whether the letter is the message of a job, whose row tells the outcome."""
        return self.generation is not None

    def as_json(self) -> dict[str, Any]:
        return {
            "letter_id": self.letter_id,
            "job_id": self.job_id,
            "target": self.target,
            "state": self.state,
            "outcome": self.outcome,
            "next_letter_id": self.next_letter_id,
            "detail": self.detail,
            "published_at": shown_time(self.published_at),
            "decided_at": shown_time(self.decided_at),
        }


@dataclass(frozen=True)
class Replay:
    """A plan. `items` is filled where one plan is asked for, in the order in which they are sent.

    `expired`: letters that retention has taken, by what had become of them; `letters` has them too.
    """

    id: str
    state: str
    requested_by: str
    note: str | None
    rate: float | None
    created_at: datetime
    finished_at: datetime | None
    letters: int
    items: tuple[ReplayItem, ...] | None = None
    expired: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": self.id,
            "state": self.state,
            "requested_by": self.requested_by,
            "note": self.note,
            "rate": self.rate,
            "letters": self.letters,
            "expired": dict(self.expired),
            "created_at": shown_time(self.created_at),
            "finished_at": shown_time(self.finished_at),
        }
        return shown if self.items is None else shown | {"items": [item.as_json() for item in self.items]}


async def create(
    pool: Pool | AnyConnection, letter_ids: Sequence[int], *, requested_by: str, note: str | None = None,
    rate: float | None = None,
) -> Replay:  # fmt: skip
    """Freeze a selection of letters into a plan, which the dead-letter consumer then carries out.

    All or nothing: a letter that cannot be replayed refuses the plan.

    Args:
        letter_ids: in the order in which they are to be sent; a repeated one counts once.
        rate: letters per second; None = no limit.

    Raises:
        ValueError: no letter is named, too many are, or the rate is not above 0.
        UnknownLettersError: an id is not on record.
        ReplayConflictError: a letter's replay is outstanding. One of two concurrent plans gets this.
        ReplayRefusedError: a letter's state, target or job does not allow it.
        DatabaseAwayError: Postgres cannot be reached.
    """
    ids = list(dict.fromkeys(letter_ids))
    if not 0 < len(ids) <= MAX_LETTERS:
        raise ValueError(f"{len(ids)} letters are named; a plan takes 1 to {MAX_LETTERS:,}")
    if rate is not None and not 0 < rate < 1e9:
        raise ValueError(f"the rate is {rate}; it must be above 0 letters per second")
    with translate("create a replay"):
        async with lend(pool) as connection, connection.transaction():
            # The row locks make a concurrent plan for one of these letters wait, and then see it replaying.
            rows = {
                row["id"]: row for row in await connection.fetch(_LETTERS, [i for i in ids if 0 < i < 2**63])
            }
            await _refuse_unfit(connection, ids, rows)
            note_text = safe_text(note, 2_000) if note else None
            plan = await connection.fetchval(_NEW_PLAN, safe_text(requested_by, 200), note_text, rate)
            await connection.execute(_NEW_ITEMS, plan, ids, [rows[id_]["target"] for id_ in ids])
            await connection.execute(_LETTERS_REPLAYING, ids)
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, plan)
    return await get(pool, plan)


async def _refuse_unfit(
    connection: AnyConnection, ids: Sequence[int], rows: dict[int, asyncpg.Record]
) -> None:
    if unknown := [Refusal(id_, "is not on record") for id_ in ids if id_ not in rows]:
        raise UnknownLettersError(unknown)
    outstanding = await connection.fetch(_OUTSTANDING, ids)
    if conflicts := [
        Refusal(row["letter_id"], f"replay {row['replay_id']} is outstanding") for row in outstanding
    ]:
        raise ReplayConflictError(conflicts)
    seen_jobs: dict[str, int] = {}
    refusals = []
    unsendable = await letter_edits.unsendable(connection, ids)
    for id_ in ids:
        row = rows[id_]
        if why := _unfit(row) or unsendable.get(id_) or _second_of_its_job(row, seen_jobs):
            refusals.append(Refusal(id_, why))
    if refusals:
        raise ReplayRefusedError(refusals)


def _unfit(row: asyncpg.Record) -> str | None:
    if row["duplicate_of"] is not None:
        return f"it is a duplicate of letter {row['duplicate_of']}: replay that one"
    if row["state"] != "open":
        return f"its state is {row['state']}; only open letters are replayed"
    if row["target"] is None:
        return "its history does not tell which queue of this vhost it came from"
    if row["job_state"] not in (None, "DEAD"):
        return f"its job {row['job_id']} is {row['job_state']}; only a DEAD job is run again"
    return None


def _second_of_its_job(row: asyncpg.Record, seen: dict[str, int]) -> str | None:
    if row["job_state"] is None:
        return None
    first = seen.setdefault(row["job_id"], row["id"])
    return None if first == row["id"] else f"letter {first} of this plan is of the same job {row['job_id']}"


async def get(pool: Pool | AnyConnection, replay_id: str) -> Replay:
    """A plan with its items.

    Raises:
        UnknownReplayError: no plan has this id.
        DatabaseAwayError: Postgres cannot be reached.
    """
    try:
        plan = str(UUID(replay_id))
    except ValueError:
        raise UnknownReplayError(f"no replay {replay_id!r}. See: dlq replays") from None
    with translate(f"read replay {plan}"):
        row = await pool.fetchrow(_PLAN, plan)
        if row is None:
            raise UnknownReplayError(f"no replay {plan}. See: dlq replays")
        items = tuple(ReplayItem(**dict(item)) for item in await pool.fetch(_ITEMS, plan))
        (found,) = await _with_expired(pool, [Replay(**dict(row), items=items)])
    return found


async def recent(pool: Pool | AnyConnection, *, limit: int = 50) -> list[Replay]:
    """Plans without their items, the newest first."""
    with translate("list replays"):
        rows = await pool.fetch(_RECENT, min(limit, 1_000))
        return await _with_expired(pool, [Replay(**dict(row)) for row in rows])


async def _with_expired(pool: Pool | AnyConnection, plans: Sequence[Replay]) -> list[Replay]:
    expired = await expired_items.of_plans(pool, [plan.id for plan in plans])
    return [
        replace(plan, expired=gone, letters=plan.letters + sum(gone.values()))
        if (gone := expired.get(plan.id))
        else plan
        for plan in plans
    ]
