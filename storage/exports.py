"""Letters with all that another database needs to have them, in one view of the database."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from storage import letter_edits
from storage.errors import MigrationError, translate
from storage.letter_edits import StoredEdit
from storage.letter_filter import LetterFilter, Parameters, where
from storage.letter_line import Edit, Origin, Raw, pieces
from storage.letters import LETTER_COLUMNS, Letter, with_histories
from storage.pool import AnyConnection
from storage.schema import has_table
from storage.silence import milliseconds
from storage.times import shown_time

# What is in memory at a time, but for a single letter that is larger.
BATCH_LETTERS, BATCH_BYTES = 200, 8 * 1024 * 1024
NEEDS = "imported_letters_origin"

_PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = '{}'"

_LETTERS = f"""
SELECT {LETTER_COLUMNS} FROM redrive.dead_letters l WHERE l.id = ANY($1::bigint[]) ORDER BY l.id
"""  # noqa: S608 - column names
_BESIDE = """
SELECT l.id, l.body, l.has_identity,
       l.identity, coalesce(m.old_id, l.id) AS old_id, coalesce(m.stored_at, l.stored_at) AS old_stored_at,
       d.identity AS of_identity, coalesce(dm.old_id, d.id) AS of_id,
       coalesce(dm.stored_at, d.stored_at) AS of_stored_at,
       g.queue AS group_queue, g.task AS group_task, g.reason AS group_reason,
       g.exception_type AS group_exception_type, g.top_frame AS group_top_frame,
       coalesce(s.rule, 1) AS group_rule, r.paths AS redacted,
       j.state AS job_state, j.generation AS job_generation, j.attempt AS job_attempt, j.reason AS job_reason
FROM redrive.dead_letters l
JOIN redrive.groups g USING (fingerprint)
LEFT JOIN redrive.group_states s USING (fingerprint)
LEFT JOIN redrive.imported_letters m ON m.letter_id = l.id
LEFT JOIN redrive.dead_letters d ON d.id = l.duplicate_of
LEFT JOIN redrive.imported_letters dm ON dm.letter_id = d.id
LEFT JOIN redrive.redacted_letters r ON r.letter_id = l.id
LEFT JOIN redrive.jobs j ON j.id = l.job_id
WHERE l.id = ANY($1::bigint[]) ORDER BY l.id
"""
_STEPS = """
SELECT letter_id, action, by, at, details FROM redrive.letter_actions
WHERE letter_id = ANY($1::bigint[]) ORDER BY id
"""
_GROUP = ("queue", "task", "reason", "exception_type", "top_frame", "rule")
_JOB = ("state", "generation", "attempt", "reason")


@dataclass(frozen=True)
class ExportedLetter:
    """A letter with its bytes. `beside`: what is on record about it elsewhere."""

    letter: Letter
    body: bytes
    edit: StoredEdit | None
    beside: Mapping[str, Any]

    def line(self, view: Mapping[str, Any]) -> Iterator[bytes]:
        """The line of a file, a piece at a time. `view`: what is derived from the properties."""
        shown = self.letter.as_json(headers=view["headers"], deaths=view["deaths"])
        more = {
            "target": self.letter.target,
            "exchange": self.letter.exchange,
            "routing_key": self.letter.routing_key,
            "generation": self.letter.generation,
            "attempt": self.letter.attempt,
            "replay_token": self.letter.replay_token,
            "properties": view["properties"],
            "header_types": view["header_types"],
        }
        edit = None
        if self.edit is not None:
            raw = Raw.of(self.edit.properties, self.edit.body)
            edit = Edit.model_construct(id=self.edit.id, message_id=self.edit.message_id, raw=raw)
        raw = Raw.of(self.letter.properties, self.body, self.letter.body_sha256)
        return pieces(shown | more | dict(self.beside), raw, edit)


async def export(
    connection: AnyConnection, wanted: LetterFilter, *, idle_s: float = 0
) -> AsyncGenerator[ExportedLetter]:
    """Letters that match, the lowest id first, all as they are at one moment.

    The transaction lasts as long as the iteration: close it (`contextlib.aclosing`).

    Args:
        idle_s: how long what was read at once may take to be written; 0 for any time.

    Raises:
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached, or went away meanwhile.
    """
    with translate("export letters"):
        if not await has_table(connection, NEEDS):
            raise MigrationError("an export needs the schema of this release. Run: storage migrate")
        values = Parameters()
        ids = (
            "SELECT l.id, l.body_size FROM redrive.dead_letters l"  # noqa: S608 - values are parameters
            f" WHERE {where(wanted, values)} ORDER BY l.id"
        )
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(_PATIENCE.format(milliseconds(idle_s)))
            batch: list[int] = []
            size = 0
            async for row in connection.cursor(ids, *values.values, prefetch=1_000):
                if batch and (len(batch) == BATCH_LETTERS or size + row["body_size"] > BATCH_BYTES):
                    for letter in await _read(connection, batch):
                        yield letter
                    batch, size = [], 0
                batch.append(row["id"])
                size += row["body_size"]
            for letter in await _read(connection, batch):
                yield letter


async def _read(connection: AnyConnection, ids: Sequence[int]) -> list[ExportedLetter]:
    if not ids:
        return []
    letters = await with_histories(connection, await connection.fetch(_LETTERS, ids))
    edits = await letter_edits.newest(connection, ids)
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in await connection.fetch(_STEPS, ids):
        said = {"action": row["action"], "by": row["by"], "at": shown_time(row["at"])}
        steps[row["letter_id"]].append(json.loads(row["details"]) | said)
    rows = await connection.fetch(_BESIDE, ids)
    return [
        ExportedLetter(letter, row["body"], edits.get(letter.id), _beside(row, steps[letter.id]))
        for letter, row in zip(letters, rows, strict=True)
    ]


def _beside(row: asyncpg.Record, history: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "origin": _origin(row["old_id"], row["old_stored_at"], row["identity"]),
        "copy_of": row["of_id"] and _origin(row["of_id"], row["of_stored_at"], row["of_identity"]),
        "has_identity": row["has_identity"],
        "group_details": {name: row[f"group_{name}"] for name in _GROUP},
        "redacted": list(row["redacted"] or ()),
        "history": history,
        "job": {name: row[f"job_{name}"] for name in _JOB} if row["job_state"] else None,
    }


def _origin(id_: int, stored_at: Any, identity: bytes) -> dict[str, Any]:
    return Origin.model_construct(id=id_, stored_at=stored_at, identity=identity).as_json()
