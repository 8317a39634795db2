"""Storing letters of another database. An import tells nobody: no alert, no job, no canvas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage import copies, letter_jobs, new_letters
from storage.errors import MigrationError, translate
from storage.exports import NEEDS
from storage.groups import Group
from storage.imported_groups import count
from storage.imported_marks import Plan, mark
from storage.letter_jobs import Ending
from storage.letter_line import LetterLine, Origin
from storage.new_letters import NewLetter, Row
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table
from storage.text import safe_text

# One import at a time, so that two of one file are not both the first. Any fixed number will do.
_ONE_AT_A_TIME = f"SELECT pg_advisory_xact_lock({0x5EED_1297})"
_KNOWN = """
SELECT t.n, coalesce(m.letter_id, l.id) AS id
FROM unnest($1::bytea[], $2::bigint[], $3::timestamptz[]) WITH ORDINALITY AS t (identity, id, stored_at, n)
LEFT JOIN redrive.imported_letters m
    ON m.identity = t.identity AND m.old_id = t.id AND m.stored_at = t.stored_at
LEFT JOIN redrive.dead_letters l ON l.id = t.id AND l.identity = t.identity AND l.stored_at = t.stored_at
WHERE m.letter_id IS NOT NULL OR l.id IS NOT NULL
"""
_SESSION = """
INSERT INTO redrive.drain_sessions (cluster, vhost, queue, consumer, ended_at)
VALUES ('', '', '', $1, now()) RETURNING id
"""
_STATES = """
SELECT id, state, fingerprint FROM redrive.dead_letters
WHERE id = ANY($1::bigint[]) AND duplicate_of IS NULL ORDER BY id FOR SHARE
"""


@dataclass(frozen=True)
class Imported:
    """Letters of a batch: new here, and here already."""

    stored: int
    known: int


class Importer:
    """One run over a file."""

    def __init__(self, pool: Pool, *, by: str, note: str) -> None:
        """Args:
        by, note: who imports, and why; kept with each letter.
        """
        self._pool = pool
        self._by = by
        self._note = note
        self._session: int | None = None
        self._plan = Plan(by)

    async def store(self, lines: Sequence[LetterLine]) -> Imported:
        """Store letters in one transaction; one that is here already, as its origin says, is left alone.

        Raises:
            MigrationError: the schema is of the release before.
            DatabaseAwayError: Postgres cannot be reached. Whether the letters are stored is then not known:
                import them again.
        """
        with translate("import letters"):
            async with lend(self._pool) as connection, connection.transaction():
                await require(connection)
                await connection.execute(_ONE_AT_A_TIME)
                new = await _unknown(connection, lines)
                if new:
                    await self._store(connection, new)
        return Imported(len(new), len(lines) - len(new))

    async def _store(self, connection: AnyConnection, lines: Sequence[LetterLine]) -> None:
        if self._session is None:
            self._session = await connection.fetchval(_SESSION, safe_text(f"import by {self._by}", 200))
        ids = await new_letters.next_ids(connection, len(lines))
        letters = dict(zip(ids, lines, strict=True))
        await _link_jobs(connection, letters)
        of = await _originals(connection, letters)
        rows = [_row(id_, line, of.get(id_), letters) for id_, line in letters.items()]
        await count(connection, {row.id: letters[row.id] for row in rows if row.copy_of is None})
        assert self._session is not None
        await new_letters.insert(connection, self._session, rows)
        await mark(connection, letters, by=self._by, note=self._note)
        await self._plan.add(connection, letters)


async def require(connection: Pool | AnyConnection) -> None:
    """Raise MigrationError on a schema that does not take imports."""
    if not await has_table(connection, NEEDS):
        raise MigrationError("an import needs the schema of this release. Run: storage migrate")


async def known(pool: Pool | AnyConnection, origins: Sequence[Origin]) -> set[int]:
    """Which of these (positions) are here already. Raises DatabaseAwayError."""
    columns = zip(*(origin.key for origin in origins), strict=True)
    with translate("look for letters"):
        return {row["n"] - 1 for row in await pool.fetch(_KNOWN, *columns)} if origins else set()


async def _unknown(connection: AnyConnection, lines: Sequence[LetterLine]) -> list[LetterLine]:
    here = await known(connection, [line.origin for line in lines])
    # A file may have a line twice.
    first = {line.origin.key: line for n, line in reversed([*enumerate(lines)]) if n not in here}
    return [line for line in lines if first.get(line.origin.key) is line]


async def _link_jobs(connection: AnyConnection, letters: Mapping[int, LetterLine]) -> None:
    endings = [
        Ending(line.job_id, id_, line.generation or 1, line.attempt or 1, line.reason, line.reason)
        for id_, line in letters.items()
        if line.job_id is not None and line.copy_of is None
    ]
    await letter_jobs.link(connection, endings)


@dataclass(frozen=True)
class _Original:
    """The letter that a copy is of. State and group are None when both are of the same batch."""

    id: int
    state: str | None
    fingerprint: str | None


async def _originals(connection: AnyConnection, letters: Mapping[int, LetterLine]) -> dict[int, _Original]:
    """Of which letters these are copies: as the file says, or as the jobs that are here say."""
    of_jobs = [(id_, line.job_id, line.generation or 1) for id_, line in letters.items() if line.job_id]
    by_jobs = await copies.originals(connection, of_jobs, [id_ for id_, _, _ in of_jobs])
    here = {line.origin.key: id_ for id_, line in letters.items() if line.copy_of is None}
    told = [(id_, line.copy_of) for id_, line in letters.items() if line.copy_of is not None]
    rows = await connection.fetch(_KNOWN, *zip(*(of.key for _, of in told), strict=True)) if told else []
    earlier = {told[row["n"] - 1][0]: int(row["id"]) for row in rows}
    stored = {
        row["id"]: _Original(row["id"], row["state"], row["fingerprint"])
        for row in await connection.fetch(_STATES, list(earlier.values()))
    }
    found: dict[int, _Original] = {}
    for id_, of in told:
        if of.key in here:
            found[id_] = _Original(here[of.key], None, None)
        elif id_ in earlier and earlier[id_] in stored:
            found[id_] = stored[earlier[id_]]
    return found | {
        id_: _Original(each.id, each.state, each.fingerprint)
        for id_, each in by_jobs.items()
        if id_ not in found
    }


def _row(id_: int, line: LetterLine, of: _Original | None, letters: Mapping[int, LetterLine]) -> Row:
    state, fingerprint = state_of(line), line.group
    if of is not None:
        original = letters.get(of.id)
        state = of.state or (state_of(original) if original else state)
        fingerprint = of.fingerprint or (original.group if original else fingerprint)
    group = Group(fingerprint, line.queue, line.task, line.reason, line.exception_type, None)
    values: dict[str, Any] = {
        name: getattr(line, name)
        for name in (
            "queue", "target", "reason", "detail", "exchange", "routing_key", "body_sha256", "has_identity",
            "message_id", "job_id", "generation", "attempt", "task", "exception_type", "replay_token",
            "dead_at",
        )
    }  # fmt: skip
    letter = NewLetter(
        **values, dlq=line.dead_letter_queue, state=state, properties=line.raw.properties, body=line.raw.body,
        identity=line.origin.identity, group=group,
    )  # fmt: skip
    # A copy of a letter that is not here stands alone.
    doubtful = line.possible_duplicate or of is not None or line.copy_of is not None
    return Row(id_, letter, doubtful, of.id if of else None)


def state_of(line: LetterLine) -> str:
    """The state that a letter has here. Its replay, if one was under way, is not this database's: what was
    not sent is open again, of what may have been sent nobody knows what came of it.
    """
    if line.state != "replaying":
        return line.state
    return "replayed" if line.doubtful else "open"
