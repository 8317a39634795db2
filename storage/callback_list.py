"""Reading callbacks, and having one sent again by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from storage.errors import StorageError, translate
from storage.job_callbacks import shown_url
from storage.letter_filter import Parameters
from storage.newest_first import cursor_of, position
from storage.pool import AnyConnection, Pool
from storage.schema import needs_this_release
from storage.text import safe_text
from storage.times import shown_time

CallbackState = Literal["pending", "delivered", "dead"]
CALLBACK_STATES: tuple[CallbackState, ...] = ("pending", "delivered", "dead")
MAX_PAGE = 1_000
MAX_NOTE = 2_000
_LIST = """
SELECT c.id::text, c.job_id, c.generation, c.attempt, c.job_state, asked.url, c.state, c.tries, c.created_at,
       CASE WHEN c.state = 'pending' THEN c.next_try_at END AS next_try_at, c.ended_at, c.why_dead,
       c.answers::text AS answers,
       coalesce((SELECT json_agg(json_build_object('at', r.at, 'by', r.by, 'note', r.note) ORDER BY r.id)
                 FROM redrive.callback_retries r WHERE r.callback_id = c.id), '[]')::text AS retries
FROM redrive.callbacks c JOIN redrive.job_callbacks asked ON asked.job_id = c.job_id
"""
# Of one that is on its way, the answer of that try may count for it: it is sent again all the same.
_RETRY = """
WITH again AS (
    UPDATE redrive.callbacks
    SET state = 'pending', tries = 0, next_try_at = now(), ended_at = NULL, why_dead = NULL
    WHERE id = $1 RETURNING id
)
INSERT INTO redrive.callback_retries (callback_id, by, note) SELECT id, $2, $3 FROM again RETURNING id
"""


class UnknownCallbackError(StorageError):
    """No callback has this id."""


@dataclass(frozen=True)
class CallbackFilter:
    """Which callbacks; None leaves a field open. `place`: host and port."""

    state: CallbackState | None = None
    job_id: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class CallbackRow:
    """A callback on record. `answers`: to its last tries. `retries`: by hand, by whom."""

    id: str
    job_id: str
    generation: int
    attempt: int
    job_state: str
    url: str
    state: str
    tries: int
    created_at: datetime
    next_try_at: datetime | None
    ended_at: datetime | None
    why_dead: str | None
    answers: tuple[dict[str, Any], ...]
    retries: tuple[dict[str, Any], ...]

    @property
    def cursor(self) -> str:
        """What gives the page that follows this one."""
        return cursor_of(self.created_at, self.id)

    def as_json(self) -> dict[str, Any]:
        times = {name: shown_time(getattr(self, name)) for name in ("created_at", "next_try_at", "ended_at")}
        lists = {"answers": list(self.answers), "retries": list(self.retries)}
        return vars(self) | times | lists | {"url": shown_url(self.url)}


async def newest(
    db: Pool | AnyConnection, wanted: CallbackFilter, *, limit: int, cursor: str | None = None
) -> Sequence[CallbackRow]:
    """The newest first, at most `MAX_PAGE` and one: the one more tells whether another page follows.

    Raises:
        CursorError: no page gave this cursor out.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    conditions, values = ["true"], Parameters()
    if wanted.state is not None:
        # Spelled out, so that partial indexes are used.
        if wanted.state not in CALLBACK_STATES:
            raise ValueError(f"no state {wanted.state!r}; there are {', '.join(CALLBACK_STATES)}")
        conditions.append(f"c.state = '{wanted.state}'")
    for condition, value in (("c.job_id = {}", wanted.job_id), ("c.place = {}", wanted.place)):
        if value is not None:
            conditions.append(condition.format(values.add(value)))
    if cursor is not None:
        at, id_ = position(cursor, "callbacks")
        conditions.append(f"(c.created_at, c.id) < ({values.add(at)}::timestamptz, {values.add(id_)}::uuid)")
    bound = values.add(min(limit, MAX_PAGE + 1))
    sql = f"{_LIST} WHERE {' AND '.join(conditions)} ORDER BY c.created_at DESC, c.id DESC LIMIT {bound}"
    with translate("list callbacks"), needs_this_release("list callbacks"):
        return [_row(row) for row in await db.fetch(sql, *values.values)]


async def get(db: Pool | AnyConnection, callback_id: UUID) -> CallbackRow:
    """One callback.

    Raises:
        UnknownCallbackError: there is none.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("read a callback"), needs_this_release("read a callback"):
        row = await db.fetchrow(f"{_LIST} WHERE c.id = $1", callback_id)
    if row is None:
        raise _unknown(callback_id)
    return _row(row)


async def retry(db: Pool | AnyConnection, callback_id: UUID, *, by: str, note: str) -> None:
    """Have it sent again now, whatever became of it, with all its tries before it; who and why is kept.

    Raises:
        UnknownCallbackError: there is none.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached; nothing is known to be done.
    """
    with translate("retry a callback"), needs_this_release("retry a callback"):
        done = await db.fetchval(_RETRY, callback_id, safe_text(by, 200), safe_text(note, MAX_NOTE))
    if done is None:
        raise _unknown(callback_id)


def _unknown(callback_id: UUID) -> UnknownCallbackError:
    return UnknownCallbackError(f"no callback {callback_id}. See: dlq callbacks")


def _row(row: asyncpg.Record) -> CallbackRow:
    lists = {name: tuple(json.loads(row[name])) for name in ("answers", "retries")}
    return CallbackRow(**(dict(row) | lists))
