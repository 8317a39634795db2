"""Lists of dead letters, page by page, fast also among millions."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime

import asyncpg

from storage.errors import translate
from storage.letter_filter import FOREIGN_DLQ, LetterFilter, Parameters, alternatives, holds_text
from storage.letters import LETTER_COLUMNS, Letter, with_histories
from storage.pool import AnyConnection, Pool, lend
from storage.times import from_microseconds, microseconds

MAX_PAGE = 1_000
# No index knows text in bytes. A page ends after so many seconds of search, with what was found by then.
SEARCH_S = 0.02
FIRST_SEARCHED = 100
# A plan for any value reads through a million letters to find that a queue has none.
_PLAN_FOR_VALUES = "SET LOCAL plan_cache_mode = force_custom_plan"
_BY_IDS = (
    f"SELECT {LETTER_COLUMNS} FROM unnest($1::bigint[]) WITH ORDINALITY AS f (id, position)"  # noqa: S608
    " JOIN redrive.dead_letters l USING (id) ORDER BY f.position"
)
_CURSOR = re.compile(r"([0-9]{1,19})(?:@(-?[0-9]{1,18}))?")
OTHER_FILTER = "this cursor is of a list with another filter"
_BY_ID = "l.id DESC"


@dataclass(frozen=True)
class Cursor:
    """After which letter a page begins. `dead_at` stands where the list is in the order of death."""

    id: int
    dead_at: datetime | None = None

    def fits(self, wanted: LetterFilter) -> bool:
        """Whether a list with this filter is in the order that the cursor is of."""
        return _by_death(wanted) is (self.dead_at is not None)

    def __str__(self) -> str:
        at = "" if self.dead_at is None else f"@{microseconds(self.dead_at)}"
        return f"{self.id}{at}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Undoes `str`.

        Raises:
            ValueError: it is no cursor.
        """
        match = _CURSOR.fullmatch(text)
        try:
            if match is None or int(match[1]) >= 2**63:
                raise ValueError
            return cls(int(match[1]), from_microseconds(int(match[2])) if match[2] else None)
        except (ValueError, OverflowError):
            raise ValueError(f"{text[:60]!r} is no cursor: take the one of the page before") from None


@dataclass(frozen=True)
class Page:
    """Letters, and where the next page begins; None on the last one.

    A page of a search for text may hold fewer letters than were asked for and still have a next one.
    """

    letters: tuple[Letter, ...]
    next: Cursor | None


async def page(
    pool: Pool | AnyConnection, wanted: LetterFilter, *, limit: int = 50, after: Cursor | None = None
) -> Page:
    """At most `limit` letters that match, the newest first: by id, or by time of death where the filter has a
    time.

    Raises:
        ValueError: the cursor is of a list in the other order.
        DatabaseAwayError: Postgres cannot be reached.
    """
    limit = max(1, min(limit, MAX_PAGE))
    if after is not None and not after.fits(wanted):
        raise ValueError(OTHER_FILTER)
    with translate("list dead letters"):
        async with lend(pool) as connection, connection.transaction(readonly=True):
            await connection.execute(_PLAN_FOR_VALUES)
            if wanted.text is not None:
                ids, rest = await _search(connection, wanted, wanted.text, limit, after)
                rows = await connection.fetch(_BY_IDS, ids)
            else:
                values = Parameters()
                newest = _newest(LETTER_COLUMNS, wanted, values, limit + 1, after)
                rows, rest = await connection.fetch(newest, *values.values), None
                if len(rows) > limit:
                    rows = rows[:limit]
                    rest = _cursor(wanted, rows[-1])
            return Page(tuple(await with_histories(connection, rows)), rest)


async def collect(
    pool: Pool | AnyConnection, wanted: LetterFilter, *, limit: int, after: Cursor | None = None
) -> Page:
    """As `page`, but searches for text until `limit` letters are found or all were looked at."""
    found: list[Letter] = []
    while True:
        one = await page(pool, wanted, limit=limit - len(found), after=after)
        found += one.letters
        after = one.next
        if after is None or len(found) >= limit:
            return Page(tuple(found), after)


async def _search(
    connection: AnyConnection, wanted: LetterFilter, text: str, limit: int, after: Cursor | None
) -> tuple[list[int], Cursor | None]:
    """Ids of letters with `text`, and from where to go on; None when all were looked at."""
    found: list[int] = []
    begun, looked, step = time.monotonic(), 0, FIRST_SEARCHED
    while True:
        values = Parameters()
        columns = f"l.id, l.dead_at, {holds_text(text, values)} AS found"
        newest = _newest(columns, replace(wanted, text=None), values, step, after)
        order = _order(wanted)
        backwards = order.replace("DESC", "ASC")
        statement = f"""
            WITH looked AS MATERIALIZED ({newest})
            (SELECT *, true AS hit, 0 AS looked FROM looked l WHERE found ORDER BY {order} LIMIT {limit + 1})
            UNION ALL
            (SELECT *, false, (SELECT count(*) FROM looked) FROM looked l ORDER BY {backwards} LIMIT 1)
        """  # noqa: S608 - values are parameters
        rows = await connection.fetch(statement, *values.values)
        for row in rows:
            if not row["hit"]:
                continue
            if len(found) == limit:
                return found, after
            found.append(row["id"])
            after = _cursor(wanted, row)
        last = next((row for row in rows if not row["hit"]), None)
        if last is None or last["looked"] < step:
            return found, None
        after = _cursor(wanted, last)
        looked, spent = looked + step, time.monotonic() - begun
        # The next step is to end in time, as far as the ones before tell.
        step = min(2 * step, int(looked / spent * (SEARCH_S - spent)))
        if step < FIRST_SEARCHED:
            return found, after


def _newest(columns: str, wanted: LetterFilter, values: Parameters, limit: int, after: Cursor | None) -> str:
    """The first `limit` letters after a cursor, each alternative read off an index of its own."""
    order, later = _order(wanted), ""
    if after is not None and after.dead_at is not None:
        later = f" AND (l.dead_at, l.id) < ({values.add(after.dead_at)}, {values.add(after.id)})"
    elif after is not None:
        later = f" AND l.id < {values.add(after.id)}"
    # The limit is spelled out: a plan for any limit would be made for a tenth of the table.
    parts = [
        f"SELECT {columns} FROM redrive.dead_letters l WHERE {condition}{later}"  # noqa: S608 - as above
        f" ORDER BY {_first_by(condition, order)} LIMIT {limit}"
        for condition in alternatives(wanted, values)
    ]
    if len(parts) == 1:
        return parts[0]
    union = " UNION ALL ".join(f"({part})" for part in parts)
    return f"SELECT * FROM ({union}) l ORDER BY {order} LIMIT {limit}"  # noqa: S608


def _first_by(condition: str, order: str) -> str:
    """Letters that lie in an unusual dead-letter queue are few, which the planner does not know: it takes
    their index when no other gives the order.
    """
    return f"l.dlq DESC, {order}" if FOREIGN_DLQ in condition and order == _BY_ID else order


def _by_death(wanted: LetterFilter) -> bool:
    return wanted.since is not None or wanted.until is not None


def _order(wanted: LetterFilter) -> str:
    return "l.dead_at DESC, l.id DESC" if _by_death(wanted) else _BY_ID


def _cursor(wanted: LetterFilter, row: asyncpg.Record) -> Cursor:
    return Cursor(row["id"], row["dead_at"] if _by_death(wanted) else None)
