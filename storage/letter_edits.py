"""Letters changed by hand. The letter itself is kept as it came; a replay sends its newest edit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage import letter_actions
from storage.errors import translate
from storage.letter_actions import MAX_NOTE, TABLE, ActionRefusedError, Refusal
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table

# Of a letter `l`: values were taken out, and no edit says what to send instead.
_REDACTED = """EXISTS (SELECT 1 FROM redrive.redacted_letters r WHERE r.letter_id = l.id) AND NOT coalesce(
    (SELECT e.body IS NOT NULL FROM redrive.letter_edits e WHERE e.letter_id = l.id
     ORDER BY e.id DESC LIMIT 1), false)"""
_NEWEST = """
SELECT * FROM (
    SELECT DISTINCT ON (letter_id) letter_id, id, message_id, properties, body
    FROM redrive.letter_edits WHERE letter_id = ANY($1::bigint[]) ORDER BY letter_id, id DESC) e
WHERE body IS NOT NULL
"""
_LOCK = "SELECT id, state, duplicate_of FROM redrive.dead_letters WHERE id = $1 FOR UPDATE"
_STORE = """
INSERT INTO redrive.letter_edits (letter_id, message_id, properties, body) VALUES ($1, $2, $3, $4)
RETURNING id
"""
_SENT = """
INSERT INTO redrive.replayed_edits (token, edit_id) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (token) DO UPDATE SET edit_id = excluded.edit_id
"""
_SENT_OF = """
SELECT s.token, s.edit_id FROM redrive.letter_edits e JOIN redrive.replayed_edits s ON s.edit_id = e.id
WHERE e.letter_id = $1
"""


@dataclass(frozen=True)
class StoredEdit:
    """What a replay sends in place of the letter."""

    id: int
    message_id: str
    properties: bytes
    body: bytes

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "message_id": self.message_id,
            "body_sha256": hashlib.sha256(self.body).hexdigest(),
            "body_size": len(self.body),
        }


@dataclass(frozen=True)
class SentColumns:
    """SQL of what a replay of a letter `l` sends. `join` goes behind the FROM of `l`."""

    join: str
    properties: str
    body: str
    body_size: str


_AS_IT_CAME = SentColumns("", "l.properties", "l.body", "l.body_size")
_AS_EDITED = SentColumns(
    " LEFT JOIN LATERAL (SELECT x.properties, x.body FROM redrive.letter_edits x WHERE x.letter_id = l.id"
    " ORDER BY x.id DESC LIMIT 1) e ON true",
    "coalesce(e.properties, l.properties)",
    "coalesce(e.body, l.body)",
    "coalesce(octet_length(e.body), l.body_size)",
)


@dataclass(frozen=True)
class NewEdit:
    """`changes`: a JSON Patch from what a replay would have sent before; `checked`: by what, in words."""

    message_id: str
    properties: bytes
    body: bytes
    changes: Sequence[Mapping[str, Any]]
    checked: str


async def newest(connection: Pool | AnyConnection, letter_ids: Sequence[int]) -> dict[int, StoredEdit]:
    """The edits that replays of these letters send. To be called inside `translate`."""
    if not letter_ids or not await has_table(connection, TABLE):
        return {}
    return {
        row["letter_id"]: StoredEdit(row["id"], row["message_id"], row["properties"], row["body"])
        for row in await connection.fetch(_NEWEST, letter_ids)
    }


async def sent_columns(connection: AnyConnection) -> SentColumns:
    """What a replay sends: the newest edit, or the letter as it came. To be called inside `translate`."""
    return _AS_EDITED if await has_table(connection, TABLE) else _AS_IT_CAME


async def redacted(connection: AnyConnection) -> str:
    """The condition that values of a letter `l` were redacted, and no edit says what to send instead."""
    return _REDACTED if await has_table(connection, TABLE) else "false"


async def sent(connection: AnyConnection, edits: Mapping[str, int]) -> None:
    """Put on record which edit (id) a replay (token) sends."""
    if edits:
        await connection.execute(_SENT, list(edits), list(edits.values()))


async def sent_of(connection: Pool | AnyConnection, letter_id: int) -> dict[str, int]:
    """Which edit the replays of a letter (token) sent."""
    if not await has_table(connection, TABLE):
        return {}
    return {row["token"]: row["edit_id"] for row in await connection.fetch(_SENT_OF, letter_id)}


async def store(
    pool: Pool | AnyConnection, letter_id: int, edit: NewEdit, *, by: str, why: str = "",
    last: int | None,
) -> int:  # fmt: skip
    """Keep an edit of an open letter; its id.

    Args:
        last: the id of the edit that was in force when this one was made, None for none.

    Raises:
        ActionRefusedError: the letter is not on record, is not open, or was edited meanwhile.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate(f"edit letter {letter_id}"):
        async with lend(pool) as connection, connection.transaction():
            await _lock(connection, letter_id)
            in_force = (await newest(connection, [letter_id])).get(letter_id)
            if (in_force.id if in_force else None) != last:
                raise ActionRefusedError([Refusal(letter_id, "was edited meanwhile")])
            id_: int = await connection.fetchval(
                _STORE, letter_id, edit.message_id, edit.properties, edit.body
            )
            details = {
                "edit": id_, "message_id": edit.message_id, "changes": list(edit.changes),
                "checked": edit.checked,
            } | ({"why": why[:MAX_NOTE]} if why else {})  # fmt: skip
            await letter_actions.note(connection, "edit", by, [(letter_id, details)])
    return id_


async def withdraw(pool: Pool | AnyConnection, letter_id: int, *, by: str, why: str = "") -> None:
    """A replay sends the letter as it came again. Raises as `store`; also when no edit is in force."""
    with translate(f"withdraw the edit of letter {letter_id}"):
        async with lend(pool) as connection, connection.transaction():
            await _lock(connection, letter_id)
            in_force = (await newest(connection, [letter_id])).get(letter_id)
            if in_force is None:
                raise ActionRefusedError([Refusal(letter_id, "has no edit")])
            await connection.fetchval(_STORE, letter_id, None, None, None)
            details = {"edit": in_force.id} | ({"why": why[:MAX_NOTE]} if why else {})
            await letter_actions.note(connection, "withdraw", by, [(letter_id, details)])


async def _lock(connection: AnyConnection, letter_id: int) -> None:
    await letter_actions.require(connection)
    row = await connection.fetchrow(_LOCK, letter_id) if 0 < letter_id < 2**63 else None
    if row is None:
        raise ActionRefusedError([Refusal(letter_id, "is not on record", conflict=False)])
    if row["duplicate_of"] is not None:
        raise ActionRefusedError([Refusal(letter_id, letter_actions.is_copy(row["duplicate_of"]))])
    if row["state"] != "open":
        raise ActionRefusedError([Refusal(letter_id, f"is {row['state']}; only an open letter is edited")])
