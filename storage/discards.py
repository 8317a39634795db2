"""Discarding letters and undoing it. The job of a discarded letter stays DEAD."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import asyncpg

from storage import letter_actions
from storage.errors import translate
from storage.letter_actions import MAX_NOTE, MOST_LETTERS, Action, ActionRefusedError, Refusal, is_copy
from storage.letter_filter import UNTOLD, LetterFilter, Parameters, where
from storage.pool import AnyConnection, Pool, lend

BATCH = 1_000
Rows = Sequence[asyncpg.Record]

_LOCK = """
SELECT l.id, l.state, l.duplicate_of FROM redrive.dead_letters l
WHERE l.id = ANY($1::bigint[]) ORDER BY l.id FOR UPDATE
"""
# Asked once the rows are locked: a replay takes the same locks first.
_REPLAYS = f"""
SELECT i.letter_id,
    max(i.replay_id::text) FILTER (WHERE i.decided_at IS NULL) AS outstanding,
    bool_or({UNTOLD}) AS doubtful
FROM redrive.replay_items i WHERE i.letter_id = ANY($1::bigint[]) GROUP BY i.letter_id
"""  # noqa: S608 - a text of our own
_DISCARD = "UPDATE redrive.dead_letters SET state = 'discarded' WHERE id = ANY($1::bigint[])"
_WAS = """
SELECT DISTINCT ON (letter_id) letter_id, details ->> 'was' AS was FROM redrive.letter_actions
WHERE letter_id = ANY($1::bigint[]) AND action = 'discard' ORDER BY letter_id, id DESC
"""
_RESTORE = """
UPDATE redrive.dead_letters l SET state = t.state
FROM unnest($1::bigint[], $2::text[]) AS t (id, state) WHERE l.id = t.id
"""


class Decision(Protocol):
    """Something that is decided about letters: which of them allow it, and how it is done."""

    action: Action
    done: str
    perhaps: str  # only these can: a filter need not lock the others

    async def unfit(self, connection: AnyConnection, rows: Rows) -> dict[int, str]:
        """Which of these letters do not allow it, and why."""

    async def change(self, connection: AnyConnection, rows: Rows) -> list[dict[str, str]]:
        """Do it; of each letter what is put on record."""


class _Discard:
    action: Action = "discard"
    done = "discarded"
    perhaps = "l.state IN ('open', 'quarantined', 'replayed') AND l.duplicate_of IS NULL"

    async def unfit(self, connection: AnyConnection, rows: Rows) -> dict[int, str]:
        found = await connection.fetch(_REPLAYS, [row["id"] for row in rows])
        replays = {row["letter_id"]: row for row in found}
        why = {row["id"]: _why_not(row, replays.get(row["id"])) for row in rows}
        return {id_: text for id_, text in why.items() if text is not None}

    async def change(self, connection: AnyConnection, rows: Rows) -> list[dict[str, str]]:
        await connection.execute(_DISCARD, [row["id"] for row in rows])
        return [{"was": row["state"]} for row in rows]


class _Restore:
    action: Action = "restore"
    done = "restored"
    perhaps = "l.state = 'discarded' AND l.duplicate_of IS NULL"

    async def unfit(self, connection: AnyConnection, rows: Rows) -> dict[int, str]:
        copies = {row["id"]: is_copy(row["duplicate_of"]) for row in rows if row["duplicate_of"] is not None}
        others = {
            row["id"]: f"is {row['state']} and not discarded" for row in rows if row["state"] != "discarded"
        }
        return others | copies

    async def change(self, connection: AnyConnection, rows: Rows) -> list[dict[str, str]]:
        ids = [row["id"] for row in rows]
        was = {row["letter_id"]: row["was"] for row in await connection.fetch(_WAS, ids)}
        states = [was.get(id_) or "open" for id_ in ids]
        await connection.execute(_RESTORE, ids, states)
        return [{"state": state} for state in states]


# Open and quarantined letters may be discarded, and replayed ones whose outcome nobody knows.
DISCARD: Decision = _Discard()
# Each letter is again what it was before.
RESTORE: Decision = _Restore()


@dataclass(frozen=True)
class Estimate:
    """What a filter finds now: letters that allow it, those left out by why, and the last id among them."""

    letters: int
    left_out: dict[str, int]
    last: int


async def decide(
    pool: Pool | AnyConnection, decision: Decision, letter_ids: Sequence[int], *, by: str, why: str = ""
) -> int:
    """Decide so about these letters; how many. All or nothing.

    Raises:
        ValueError: no letter is named, or too many are.
        ActionRefusedError: a letter is not on record, or does not allow it.
        DatabaseAwayError: Postgres cannot be reached.
    """
    ids = _some(letter_ids)
    with translate(f"{decision.action} letters"):
        async with lend(pool) as connection, connection.transaction():
            await letter_actions.require(connection)
            rows = await connection.fetch(_LOCK, [id_ for id_ in ids if 0 < id_ < 2**63])
            refused = await decision.unfit(connection, rows)
            if refusals := _missing(ids, rows) + [Refusal(*each) for each in refused.items()]:
                raise ActionRefusedError(refusals)
            await _change(connection, decision, rows, by, {"why": why[:MAX_NOTE]} if why else {})
    return len(ids)


async def estimate(pool: Pool | AnyConnection, decision: Decision, wanted: LetterFilter) -> Estimate:
    """What `decide_all` would do now. Changes nothing. Raises DatabaseAwayError."""
    letters, left_out, last = 0, Counter[str](), 0
    with translate(f"count letters to {decision.action}"):
        async with lend(pool) as connection:
            while rows := await _batch(connection, wanted, last):
                refused = await decision.unfit(connection, rows)
                letters += len(rows) - len(refused)
                left_out.update(_kind(why) for why in refused.values())
                last = rows[-1]["id"]
    return Estimate(letters, dict(left_out), last)


async def decide_all(
    pool: Pool | AnyConnection, decision: Decision, wanted: LetterFilter, *, found: Estimate, by: str,
    why: str = "",
) -> AsyncIterator[int]:  # fmt: skip
    """Decide so about what was found, `BATCH` in a transaction; yields how many each did.

    What has come to match since is left alone, and never more are taken than were found. Ended early, what
    was yielded is done and on record. Raises DatabaseAwayError.
    """
    after, left = 0, found.letters
    said = {"why": why[:MAX_NOTE]} if why else {}
    while left > 0:
        with translate(f"{decision.action} letters"):
            async with lend(pool) as connection, connection.transaction():
                await letter_actions.require(connection)
                rows = await _batch(connection, wanted, after, found.last, perhaps=decision.perhaps)
                refused = await decision.unfit(connection, rows)
                fit = [row for row in rows if row["id"] not in refused][:left]
                await _change(connection, decision, fit, by, said | {"filter": wanted.words})
        if not rows:
            return
        after, left = rows[-1]["id"], left - len(fit)
        yield len(fit)


def _some(letter_ids: Sequence[int]) -> list[int]:
    ids = sorted(set(letter_ids))
    if not 0 < len(ids) <= MOST_LETTERS:
        raise ValueError(f"{len(ids)} letters are named; at once 1 to {MOST_LETTERS:,} may be")
    return ids


def _missing(ids: Sequence[int], rows: Rows) -> list[Refusal]:
    found = {row["id"] for row in rows}
    return [Refusal(id_, "is not on record", conflict=False) for id_ in ids if id_ not in found]


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
    if why.endswith("and not discarded"):
        return "not discarded"
    return "discarded already" if why == "is discarded already" else "replayed, with a known outcome"


async def _change(
    connection: AnyConnection, decision: Decision, rows: Rows, by: str, said: dict[str, str]
) -> None:
    if rows:
        details = await decision.change(connection, rows)
        pairs = [(row["id"], said | told) for row, told in zip(rows, details, strict=True)]
        await letter_actions.note(connection, decision.action, by, pairs)


async def _batch(
    connection: AnyConnection, wanted: LetterFilter, after: int, last: int = 2**63 - 1,
    *, perhaps: str | None = None,
) -> list[asyncpg.Record]:  # fmt: skip
    """The next letters of a filter, by id; with `perhaps` those of them alone, and locked."""
    values = Parameters()
    condition = where(wanted, values) + (f" AND {perhaps}" if perhaps else "")
    return await connection.fetch(
        "SELECT l.id, l.state, l.duplicate_of FROM redrive.dead_letters l"  # noqa: S608 - values are parameters
        f" WHERE {condition} AND l.id > {values.add(after)} AND l.id <= {values.add(last)}"
        f" ORDER BY l.id LIMIT {BATCH}{' FOR UPDATE' if perhaps else ''}",
        *values.values,
    )
