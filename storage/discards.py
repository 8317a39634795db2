"""Discarding letters and undoing it. The job of a discarded letter stays DEAD."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import asyncpg

from storage import letter_actions
from storage.errors import translate
from storage.letter_actions import MAX_NOTE, MOST_LETTERS, ActionRefusedError, Refusal, is_copy
from storage.letter_filter import LetterFilter, Parameters, where
from storage.pool import AnyConnection, Pool, lend

BATCH = 1_000

_LOCK = """
SELECT l.id, l.state, l.duplicate_of FROM redrive.dead_letters l
WHERE l.id = ANY($1::bigint[]) ORDER BY l.id FOR UPDATE
"""
# Asked once the rows are locked: a replay takes the same locks first.
_REPLAYS = """
SELECT i.letter_id,
    max(i.replay_id::text) FILTER (WHERE i.state IN ('staged', 'publishing')
        OR (i.state = 'published' AND i.outcome IS NULL)) AS outstanding,
    bool_or(i.outcome = 'unknown') AS doubtful
FROM redrive.replay_items i WHERE i.letter_id = ANY($1::bigint[]) GROUP BY i.letter_id
"""
_DISCARD = "UPDATE redrive.dead_letters SET state = 'discarded' WHERE id = ANY($1::bigint[])"
_WAS = """
SELECT DISTINCT ON (letter_id) letter_id, details ->> 'was' AS was FROM redrive.letter_actions
WHERE letter_id = ANY($1::bigint[]) AND action = 'discard' ORDER BY letter_id, id DESC
"""
_RESTORE = """
UPDATE redrive.dead_letters l SET state = t.state
FROM unnest($1::bigint[], $2::text[]) AS t (id, state) WHERE l.id = t.id
"""
# Only these can be: the others need not be locked.
_PERHAPS = "l.state IN ('open', 'quarantined', 'replayed') AND l.duplicate_of IS NULL"


@dataclass(frozen=True)
class Estimate:
    """What a filter finds now: letters to discard, those left out by why, and the last id among them."""

    letters: int
    left_out: dict[str, int]
    last: int


async def discard(pool: Pool | AnyConnection, letter_ids: Sequence[int], *, by: str, why: str) -> int:
    """Discard these letters; how many. All or nothing.

    Open and quarantined letters may be, and replayed ones whose outcome nobody knows.

    Raises:
        ValueError: no letter is named, or too many are.
        ActionRefusedError: a letter is not on record, or does not allow it.
        DatabaseAwayError: Postgres cannot be reached.
    """
    ids = _some(letter_ids)
    with translate("discard letters"):
        async with lend(pool) as connection, connection.transaction():
            await letter_actions.require(connection)
            rows = await connection.fetch(_LOCK, ids)
            refused = await _unfit(connection, rows)
            if refusals := _missing(ids, rows) + [Refusal(*each) for each in refused.items()]:
                raise ActionRefusedError(refusals)
            await _discard(connection, rows, by, {"why": why[:MAX_NOTE]})
    return len(ids)


async def estimate(pool: Pool | AnyConnection, wanted: LetterFilter) -> Estimate:
    """What `discard_all` would do now. Changes nothing. Raises DatabaseAwayError."""
    letters, left_out, last = 0, Counter[str](), 0
    with translate("count letters to discard"):
        async with lend(pool) as connection:
            while rows := await _batch(connection, wanted, last):
                refused = await _unfit(connection, rows)
                letters += len(rows) - len(refused)
                left_out.update(_kind(why) for why in refused.values())
                last = rows[-1]["id"]
    return Estimate(letters, dict(left_out), last)


async def discard_all(
    pool: Pool | AnyConnection, wanted: LetterFilter, *, last: int, by: str, why: str
) -> AsyncIterator[int]:
    """Discard what the filter finds up to the id `last`, `BATCH` in a transaction; yields how many each did.

    Letters that do not allow it are left out. Ended early, what was yielded is done and on record.
    Raises DatabaseAwayError.
    """
    after = 0
    while True:
        with translate("discard letters"):
            async with lend(pool) as connection, connection.transaction():
                await letter_actions.require(connection)
                rows = await _batch(connection, wanted, after, last, lock=True)
                refused = await _unfit(connection, rows)
                fit = [row for row in rows if row["id"] not in refused]
                await _discard(connection, fit, by, {"why": why[:MAX_NOTE], "filter": wanted.words})
        if not rows:
            return
        after = rows[-1]["id"]
        yield len(fit)


async def restore(pool: Pool | AnyConnection, letter_ids: Sequence[int], *, by: str, why: str = "") -> int:
    """Undo discards: each letter is again what it was before. All or nothing. Raises as `discard`."""
    ids = _some(letter_ids)
    with translate("restore letters"):
        async with lend(pool) as connection, connection.transaction():
            await letter_actions.require(connection)
            rows = await connection.fetch(_LOCK, ids)
            refusals = _missing(ids, rows)
            for row in rows:
                if row["duplicate_of"] is not None:
                    refusals.append(Refusal(row["id"], is_copy(row["duplicate_of"])))
                elif row["state"] != "discarded":
                    refusals.append(Refusal(row["id"], f"is {row['state']} and not discarded"))
            if refusals:
                raise ActionRefusedError(refusals)
            was = {row["letter_id"]: row["was"] for row in await connection.fetch(_WAS, ids)}
            states = [was.get(id_) or "open" for id_ in ids]
            await connection.execute(_RESTORE, ids, states)
            said = {"why": why[:MAX_NOTE]} if why else {}
            pairs = zip(ids, states, strict=True)
            await letter_actions.note(
                connection, "restore", by, [(id_, {"state": state} | said) for id_, state in pairs]
            )
    return len(ids)


def _some(letter_ids: Sequence[int]) -> list[int]:
    ids = sorted(set(letter_ids))
    if not 0 < len(ids) <= MOST_LETTERS:
        raise ValueError(f"{len(ids)} letters are named; at once 1 to {MOST_LETTERS:,} may be")
    return ids


def _missing(ids: Sequence[int], rows: Sequence[asyncpg.Record]) -> list[Refusal]:
    found = {row["id"] for row in rows}
    return [Refusal(id_, "is not on record", conflict=False) for id_ in ids if id_ not in found]


async def _unfit(connection: AnyConnection, rows: Sequence[asyncpg.Record]) -> dict[int, str]:
    """Which of these letters cannot be discarded, and why."""
    replays = {row["letter_id"]: row for row in await connection.fetch(_REPLAYS, [row["id"] for row in rows])}
    why = {row["id"]: _why_not(row, replays.get(row["id"])) for row in rows}
    return {id_: text for id_, text in why.items() if text is not None}


def _why_not(row: asyncpg.Record, replays: asyncpg.Record | None) -> str | None:
    if row["duplicate_of"] is not None:
        return is_copy(row["duplicate_of"])
    if replays is not None and replays["outstanding"] is not None:
        return f"is in replay {replays['outstanding']}, which is not over"
    if row["state"] in ("open", "quarantined"):
        return None
    if row["state"] == "replayed":
        return (
            None if replays is not None and replays["doubtful"] else "was replayed, and its outcome is known"
        )
    return f"is {row['state']} already" if row["state"] == "discarded" else f"is {row['state']}"


def _kind(why: str) -> str:
    """Without the numbers and names of one letter."""
    if why.startswith("is in replay"):
        return "being replayed"
    if why.startswith("is a duplicate"):
        return "duplicates of another letter"
    return "discarded already" if why == "is discarded already" else "replayed, with a known outcome"


async def _discard(
    connection: AnyConnection, rows: Sequence[asyncpg.Record], by: str, said: dict[str, str]
) -> None:
    if rows:
        await connection.execute(_DISCARD, [row["id"] for row in rows])
        details = [(row["id"], said | {"was": row["state"]}) for row in rows]
        await letter_actions.note(connection, "discard", by, details)


async def _batch(
    connection: AnyConnection, wanted: LetterFilter, after: int, last: int = 2**63 - 1, *, lock: bool = False
) -> list[asyncpg.Record]:
    """The next letters of a filter, by id; locked, only those that may be discarded."""
    values = Parameters()
    condition = where(wanted, values) + (f" AND {_PERHAPS}" if lock else "")
    return await connection.fetch(
        "SELECT l.id, l.state, l.duplicate_of FROM redrive.dead_letters l"  # noqa: S608 - values are parameters
        f" WHERE {condition} AND l.id > {values.add(after)} AND l.id <= {values.add(last)}"
        f" ORDER BY l.id LIMIT {BATCH}{' FOR UPDATE' if lock else ''}",
        *values.values,
    )
