"""Reading dead letters: rows, and the dossier of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from storage import letter_actions, letter_edits
from storage.attempts import AttemptRow, of_jobs
from storage.errors import StorageError, translate
from storage.letter_actions import Marks
from storage.letter_edits import StoredEdit
from storage.pool import AnyConnection, Pool
from storage.times import shown_time

LetterState = str

LETTER_COLUMNS = """
    l.id, l.dlq, l.queue, l.target, l.reason, l.detail, l.state, l.properties, l.exchange, l.routing_key,
    l.body_sha256, l.body_size, l.possible_duplicate, l.duplicate_of, l.message_id, l.job_id,
    l.generation, l.attempt, l.task, l.exception_type, l.fingerprint, l.replay_token, l.dead_at,
    l.stored_at
"""
_ONE = f"SELECT {LETTER_COLUMNS} FROM redrive.dead_letters l WHERE l.id = $1"  # noqa: S608
_BODY = "SELECT body FROM redrive.dead_letters WHERE id = $1"
# None of an imported letter: the file does not tell.
_VHOST = (
    "SELECT nullif(s.vhost, '') FROM redrive.drain_sessions s"
    " WHERE s.id = (SELECT l.session_id FROM redrive.dead_letters l WHERE l.id = $1)"
)
_GROUP = "SELECT * FROM redrive.groups WHERE fingerprint = $1"
_JOB_STATE = "SELECT state, generation, attempt, reason FROM redrive.jobs WHERE id = $1"
_REPLAYS = """
SELECT i.letter_id, i.token, i.replay_id::text AS replay_id, i.target, i.state, i.outcome, i.detail,
       i.next_letter_id, r.requested_by, r.created_at, i.published_at, i.decided_at
FROM redrive.replay_items i JOIN redrive.replays r ON r.id = i.replay_id
WHERE i.letter_id = ANY($1::bigint[]) ORDER BY r.created_at, i.position
"""
_REPLAY_OF = (
    "SELECT letter_id FROM redrive.replay_items WHERE next_letter_id = $1 ORDER BY decided_at LIMIT 1"
)


class UnknownLetterError(StorageError):
    """No dead letter has this id."""


@dataclass(frozen=True)
class Letter:
    """A stored letter without its body. `properties` are the bytes that the queue delivered."""

    id: int
    dlq: str
    queue: str
    target: str | None
    reason: str
    detail: str | None
    state: LetterState
    properties: bytes
    exchange: str
    routing_key: str
    body_sha256: bytes
    body_size: int
    possible_duplicate: bool
    duplicate_of: int | None
    message_id: str | None
    job_id: str | None
    generation: int | None
    attempt: int | None
    task: str | None
    exception_type: str | None
    fingerprint: str
    replay_token: str | None
    dead_at: datetime | None
    stored_at: datetime
    attempts: tuple[AttemptRow, ...] = ()
    replays: tuple[dict[str, Any], ...] = ()

    def as_json(self, *, headers: object, deaths: object) -> dict[str, Any]:
        """The letter as every surface shows it. `headers` and `deaths` come from `topology.letter_view`."""
        return {
            "id": self.id,
            "queue": self.queue,
            "dead_letter_queue": self.dlq,
            "reason": self.reason,
            "detail": self.detail,
            "state": self.state,
            "message_id": self.message_id,
            "job_id": self.job_id,
            "task": self.task,
            "exception_type": self.exception_type,
            "group": self.fingerprint,
            "body_sha256": self.body_sha256.hex(),
            "body_size": self.body_size,
            "possible_duplicate": self.possible_duplicate,
            "duplicate_of": self.duplicate_of,
            "dead_at": shown_time(self.dead_at),
            "stored_at": shown_time(self.stored_at),
            "deaths": deaths,
            "headers": headers,
            "attempts": [attempt.as_json() for attempt in self.attempts],
            "replays": list(self.replays),
        }


@dataclass(frozen=True)
class Dossier:
    """Everything known about one letter."""

    letter: Letter
    body: bytes
    group: dict[str, Any]
    job: dict[str, Any] | None
    replay_of: int | None
    vhost: str | None
    marks: Marks
    edit: StoredEdit | None
    sent_edits: dict[str, int]

    def to_send(self, *, original: bool = False) -> tuple[bytes, bytes]:
        """Properties and body that a replay starts from: those of the edit in force, unless `original`."""
        if self.edit is None or original:
            return self.letter.properties, self.body
        return self.edit.properties, self.edit.body

    def as_json(
        self, view: Mapping[str, object], edited: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """As `Letter.as_json`, with all that the list leaves out. Both views: of `topology.letter_view`."""
        shown = self.letter.as_json(headers=view["headers"], deaths=view["deaths"])
        bytes_of_edit = {name: edited[name] for name in ("headers", "properties", "body")} if edited else {}
        return shown | {
            "attempts": shown["attempts"] or self.marks.attempts,
            "replays": [each | {"edit": self.sent_edits.get(each["token"])} for each in self.letter.replays],
            "edit": None if self.edit is None else self.edit.as_json() | bytes_of_edit,
            "vhost": self.vhost,
            "target": self.letter.target,
            "exchange": self.letter.exchange,
            "routing_key": self.letter.routing_key,
            "properties": view["properties"],
            "header_types": view["header_types"],
            "body": view["body"],
            "group_details": self.group,
            "job": self.job,
            "replay_of": self.replay_of,
            "imported_from": self.marks.imported_from,
            "redacted": list(self.marks.redacted),
            "history": list(self.marks.history),
        }


async def get(pool: Pool | AnyConnection, letter_id: int) -> Letter:
    """One letter.

    Raises:
        UnknownLetterError: there is none.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate(f"read letter {letter_id}"):
        row = await pool.fetchrow(_ONE, letter_id) if 0 < letter_id < 2**63 else None
        if row is None:
            raise UnknownLetterError(f"no dead letter {letter_id}. See: dlq list")
        return (await with_histories(pool, [row]))[0]


async def dossier(pool: Pool | AnyConnection, letter_id: int) -> Dossier:
    """One letter with body, group, job and the letter whose replay it is. Raises as `get`."""
    letter = await get(pool, letter_id)
    with translate(f"read letter {letter_id}"):
        body = await pool.fetchval(_BODY, letter_id)
        group = await pool.fetchrow(_GROUP, letter.fingerprint)
        job = await pool.fetchrow(_JOB_STATE, letter.job_id) if letter.job_id is not None else None
        replay_of = await pool.fetchval(_REPLAY_OF, letter_id)
        vhost = await pool.fetchval(_VHOST, letter_id)
        marks = await letter_actions.marks(pool, letter_id)
        edit = (await letter_edits.newest(pool, [letter_id])).get(letter_id)
        sent_edits = await letter_edits.sent_of(pool, letter_id)
    if body is None or group is None:
        raise UnknownLetterError(f"dead letter {letter_id} was deleted just now")
    return Dossier(
        letter,
        body,
        _plain(group),
        _plain(job) if job is not None else None,
        replay_of,
        vhost,
        marks,
        edit,
        sent_edits,
    )


async def with_histories(pool: Pool | AnyConnection, rows: Sequence[asyncpg.Record]) -> list[Letter]:
    """Letters from rows of `LETTER_COLUMNS`, with attempts and replays. To be called inside `translate`."""
    replays: dict[int, list[dict[str, Any]]] = defaultdict(list)
    attempts = await of_jobs(pool, {row["job_id"] for row in rows if row["job_id"] is not None})
    for found in await pool.fetch(_REPLAYS, [row["id"] for row in rows]) if rows else ():
        replays[found["letter_id"]].append(_plain(found, without="letter_id"))
    return [
        Letter(**dict(row), attempts=attempts.get(row["job_id"], ()), replays=tuple(replays[row["id"]]))
        for row in rows
    ]


def _plain(row: asyncpg.Record, without: str = "") -> dict[str, Any]:
    return {
        name: shown_time(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name != without
    }
