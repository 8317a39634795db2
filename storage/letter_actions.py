"""What was done with letters, by whom, when and why."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from storage.errors import DatabaseAwayError, MigrationError, StorageError
from storage.pool import AnyConnection, Pool
from storage.schema import has_table
from storage.text import safe_json, safe_text
from storage.times import shown_time

MAX_NAME, MAX_NOTE = 200, 4_000
MOST_LETTERS = 100_000

Action = Literal["discard", "restore", "edit", "withdraw", "import"]
TABLE = "letter_actions"
_NOTE = """
INSERT INTO redrive.letter_actions (letter_id, action, by, details)
SELECT t.id, $1, $2, t.details::jsonb FROM unnest($3::bigint[], $4::text[]) AS t (id, details)
"""
_REDACTED = "INSERT INTO redrive.redacted_letters (letter_id, paths) VALUES ($1, $2)"
_HISTORY = """
SELECT action, by, at, details FROM redrive.letter_actions WHERE letter_id = $1 ORDER BY id
"""
_MARKS = """
SELECT (SELECT paths FROM redrive.redacted_letters WHERE letter_id = $1) AS redacted,
       (SELECT old_id FROM redrive.imported_letters WHERE letter_id = $1) AS imported_from
"""


@dataclass(frozen=True)
class Refusal:
    """Why nothing is done with one letter. `conflict`: its state does not allow it, now or any more."""

    letter_id: int
    why: str
    conflict: bool = True


class ActionRefusedError(StorageError):
    """Some letters do not allow what was asked for: one of `refusals` for each. Nothing was changed."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"letter {refusal.letter_id} {refusal.why}" for refusal in refusals[:20]))
        self.refusals = tuple(refusals)

    @property
    def conflict(self) -> bool:
        """Whether every letter is on record."""
        return all(refusal.conflict for refusal in self.refusals)


@dataclass(frozen=True)
class Marks:
    """What a letter's row does not tell. `redacted`: paths of values that were taken out, () for none."""

    history: tuple[dict[str, Any], ...] = ()
    redacted: tuple[str, ...] = ()
    imported_from: int | None = None

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Of its job, in the database that it was imported from."""
        found: Any = [step["attempts"] for step in self.history if step.get("attempts")]
        return found[-1] if found else []


def is_copy(of: int) -> str:
    """Why nothing is done with a copy of letter `of` alone."""
    return f"is a duplicate of letter {of}: what is done with that one goes for both"


async def require(connection: Pool | AnyConnection) -> None:
    """Raise MigrationError on the schema of the release before, which keeps no record of actions."""
    if not await has_table(connection, TABLE):
        raise MigrationError("this needs the schema of this release. Run: storage migrate")


async def note(
    connection: AnyConnection, action: Action, by: str, details: Collection[tuple[int, dict[str, Any]]]
) -> None:
    """Put an action on record: of each letter (id) its own details."""
    ids = [letter for letter, _ in details]
    texts = [json.dumps(safe_json(each)) for _, each in details]
    await connection.execute(_NOTE, action, safe_text(by, MAX_NAME), ids, texts)


async def note_redacted(connection: AnyConnection, paths: Mapping[int, Sequence[str]]) -> None:
    """Put on record of which letters (id) values were taken out, and where.

    Raises:
        DatabaseAwayError: the schema has no place for it yet. As it is, the letter must not be sent.
    """
    if not paths:
        return
    if not await has_table(connection, TABLE):
        raise DatabaseAwayError("REDRIVE_REDACT needs the schema of this release. Run: storage migrate")
    rows = [(letter, list(found)) for letter, found in paths.items()]
    await connection.executemany(_REDACTED, rows)


async def marks(connection: Pool | AnyConnection, letter_id: int) -> Marks:
    """Of one letter. To be called inside `translate`."""
    if not await has_table(connection, TABLE):
        return Marks()
    found = await connection.fetch(_HISTORY, letter_id)
    row = await connection.fetchrow(_MARKS, letter_id)
    assert row is not None
    history = tuple(
        {"action": one["action"], "by": one["by"], "at": shown_time(one["at"])} | json.loads(one["details"])
        for one in found
    )
    return Marks(history, tuple(row["redacted"] or ()), row["imported_from"])
