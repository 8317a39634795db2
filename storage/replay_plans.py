"""Replay plans as they are read: what was asked for, how far each is, and what became of each letter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from storage import expired_items, replay_progress
from storage.errors import StorageError, translate
from storage.pool import AnyConnection, Pool, lend
from storage.replay_progress import NOTHING, Figures
from storage.schema import has_table
from storage.times import shown_time

MAX_PAGE = 1_000
TERMS = "replay_terms"

_PLAN = """
SELECT id::text, state, requested_by, note, rate, created_at, finished_at FROM redrive.replays
WHERE id = $1::uuid
"""
_PAGE = """
SELECT id::text, state, requested_by, note, rate, created_at, finished_at FROM redrive.replays
WHERE $2::uuid IS NULL
   OR (created_at, id) < (SELECT r.created_at, r.id FROM redrive.replays r WHERE r.id = $2::uuid)
ORDER BY created_at DESC, id DESC LIMIT $1
"""
_TERMS = """
SELECT replay_id::text, chosen_by::text, canary, breaker FROM redrive.replay_terms
WHERE replay_id = ANY($1::uuid[])
"""
_EVENTS = "SELECT action, by, at, why FROM redrive.replay_events WHERE replay_id = $1::uuid ORDER BY id"
_ITEMS = """
SELECT i.position, i.letter_id, i.token, i.target, i.state, i.outcome, i.generation, i.next_letter_id,
       i.detail, i.published_at, i.decided_at, l.job_id
FROM redrive.replay_items i LEFT JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE i.replay_id = $1::uuid AND i.position > $2 ORDER BY i.position LIMIT $3
"""


class UnknownReplayError(StorageError):
    """No replay has this id."""


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

    def as_json(self) -> dict[str, Any]:
        return {
            "position": self.position,
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
class Terms:
    """How a plan is carried out. `chosen_by`: the filter; None where letters were named."""

    chosen_by: dict[str, Any] | None = None
    canary: int | None = None
    breaker: int | None = None


@dataclass(frozen=True)
class Replay:
    """A plan. `rate`: letters per second, None = no limit. `state`: running, paused, done, cancelled.

    `events`: who paused, resumed or cancelled it, or that a canary or a breaker did; of a single plan only.
    `expired`: letters that retention has taken, by what had become of them; `letters` has them too.
    """

    id: str
    state: str
    requested_by: str
    note: str | None
    rate: float | None
    created_at: datetime
    finished_at: datetime | None
    figures: Figures = NOTHING
    terms: Terms = field(default_factory=Terms)
    events: tuple[dict[str, Any], ...] | None = None
    expired: Mapping[str, int] = field(default_factory=dict)

    @property
    def letters(self) -> int:
        return self.figures.letters + sum(self.expired.values())

    def as_json(self) -> dict[str, Any]:
        rate_now, eta_s = self.figures.rate_now, self.figures.eta_s(self.rate)
        shown: dict[str, Any] = {
            "id": self.id,
            "state": self.state,
            "requested_by": self.requested_by,
            "note": self.note,
            "rate": self.rate,
            "canary": self.terms.canary,
            "breaker": self.terms.breaker,
            "chosen_by": self.terms.chosen_by,
            "letters": self.letters,
            "expired": dict(self.expired),
            "states": dict(self.figures.states),
            "outcomes": dict(self.figures.outcomes),
            "rate_now": rate_now,
            "eta_s": eta_s if self.state == "running" else None,
            "created_at": shown_time(self.created_at),
            "finished_at": shown_time(self.finished_at),
        }
        return shown if self.events is None else shown | {"events": list(self.events)}


async def get(pool: Pool | AnyConnection, replay_id: str) -> Replay:
    """A plan with its figures and events.

    Raises:
        UnknownReplayError: no plan has this id.
        DatabaseAwayError: Postgres cannot be reached.
    """
    plan = parse_id(replay_id)
    with translate(f"read replay {plan}"):
        async with lend(pool) as connection:
            row = await connection.fetchrow(_PLAN, plan)
            if row is None:
                raise unknown(plan)
            (found,) = await _whole(connection, [Replay(**dict(row))])
            events: list[dict[str, Any]] = []
            if await has_table(connection, TERMS):
                rows = await connection.fetch(_EVENTS, plan)
                events = [dict(each) | {"at": shown_time(each["at"])} for each in rows]
    return replace(found, events=tuple(events))


async def page(
    pool: Pool | AnyConnection, *, limit: int = 50, after: str | None = None
) -> tuple[list[Replay], str | None]:
    """Plans with their figures, the newest first, and the id after which the next page begins.

    Raises:
        UnknownReplayError: no plan has the id `after`.
        DatabaseAwayError: Postgres cannot be reached.
    """
    limit = min(limit, MAX_PAGE)
    place = None if after is None else parse_id(after)
    with translate("list replays"):
        async with lend(pool) as connection:
            if place is not None and await connection.fetchrow(_PLAN, place) is None:
                raise unknown(place)
            rows = await connection.fetch(_PAGE, limit + 1, place)
            found = await _whole(connection, [Replay(**dict(row)) for row in rows[:limit]])
    return found, found[-1].id if len(rows) > limit else None


async def items(
    pool: Pool | AnyConnection, replay_id: str, *, limit: int = 100, after: int = 0
) -> tuple[list[ReplayItem], int | None]:
    """A plan's letters in the order in which they are sent, and after which position the next page begins.

    Raises:
        UnknownReplayError: that is no id.
        DatabaseAwayError: Postgres cannot be reached.
    """
    limit = min(limit, MAX_PAGE)
    plan = parse_id(replay_id)
    with translate(f"read the letters of replay {plan}"):
        rows = await pool.fetch(_ITEMS, plan, after, limit + 1)
    found = [ReplayItem(**dict(row)) for row in rows[:limit]]
    return found, found[-1].position if len(rows) > limit else None


def parse_id(replay_id: str) -> str:
    """As Postgres spells it. Raises UnknownReplayError."""
    try:
        return str(UUID(replay_id))
    except ValueError:
        raise unknown(replay_id) from None


def unknown(replay_id: str) -> UnknownReplayError:
    return UnknownReplayError(f"no replay {replay_id!r}. See: dlq replays")


async def _whole(connection: AnyConnection, plans: list[Replay]) -> list[Replay]:
    ids = [plan.id for plan in plans]
    figures = await replay_progress.figures(connection, ids)
    expired = await expired_items.of_plans(connection, ids)
    terms: dict[str, Terms] = {}
    if await has_table(connection, TERMS):
        for row in await connection.fetch(_TERMS, ids):
            chosen_by = None if row["chosen_by"] is None else json.loads(row["chosen_by"])
            terms[row["replay_id"]] = Terms(chosen_by, row["canary"], row["breaker"])
    return [
        replace(
            plan,
            figures=figures.get(plan.id, NOTHING),
            terms=terms.get(plan.id, Terms()),
            expired=expired.get(plan.id, {}),
        )
        for plan in plans
    ]
