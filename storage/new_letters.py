"""Rows of letters, however they come in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from storage.groups import Group
from storage.pool import AnyConnection

_NEXT_IDS = "SELECT nextval('redrive.dead_letters_id_seq') AS id FROM generate_series(1, $1)"
_COLUMNS = {
    "dlq": "text", "queue": "text", "target": "text", "reason": "text", "detail": "text", "state": "text",
    "properties": "bytea", "body": "bytea", "exchange": "text", "routing_key": "text",
    "body_sha256": "bytea", "identity": "bytea", "has_identity": "boolean", "message_id": "text",
    "job_id": "text", "generation": "integer", "attempt": "integer", "task": "text",
    "exception_type": "text", "replay_token": "text", "dead_at": "timestamptz",
}  # fmt: skip
_ARRAYS = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_COLUMNS.values(), start=6))
_INSERT = f"""
INSERT INTO redrive.dead_letters
    (session_id, id, fingerprint, possible_duplicate, duplicate_of, {", ".join(_COLUMNS)}, body_size)
OVERRIDING SYSTEM VALUE
SELECT $1, t.*, octet_length(t.body)
FROM unnest($2::bigint[], $3::text[], $4::boolean[], $5::bigint[], {_ARRAYS})
    AS t (id, fingerprint, possible_duplicate, duplicate_of, {", ".join(_COLUMNS)})
"""  # noqa: S608 - column names from above


class NewLetter(NamedTuple):
    """A dead letter to be stored. Texts must be storable (`safe_text`); bytes are kept as they are."""

    dlq: str
    queue: str
    target: str | None
    reason: str
    detail: str | None
    state: str  # open | quarantined
    properties: bytes
    body: bytes
    exchange: str
    routing_key: str
    body_sha256: bytes
    identity: bytes
    has_identity: bool
    message_id: str | None
    job_id: str | None
    generation: int | None
    attempt: int | None
    task: str | None
    exception_type: str | None
    replay_token: str | None
    dead_at: datetime | None
    group: Group
    canvas: bool = False  # jobs may wait for it: a chord, the rest of a chain, errbacks
    redacted: tuple[str, ...] = ()  # paths of values that were taken out


assert tuple(_COLUMNS) == NewLetter._fields[: len(_COLUMNS)]


class Row(NamedTuple):
    """A letter with its id. `doubtful`: possibly a second row of one letter; `copy_of`: a letter's id."""

    id: int
    letter: NewLetter
    doubtful: bool
    copy_of: int | None


async def next_ids(connection: AnyConnection, count: int) -> list[int]:
    return [int(row["id"]) for row in await connection.fetch(_NEXT_IDS, count)]


async def insert(connection: AnyConnection, session_id: int, rows: Sequence[Row]) -> None:
    """Store letters, and nothing that follows from them."""
    columns = list(zip(*(row.letter[: len(_COLUMNS)] for row in rows), strict=True))
    await connection.execute(
        _INSERT,
        session_id,
        [row.id for row in rows],
        [row.letter.group.fingerprint for row in rows],
        [row.doubtful for row in rows],
        [row.copy_of for row in rows],
        *columns,
    )
