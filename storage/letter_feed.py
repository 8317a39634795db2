"""New letters as they are committed, each once, also those that commit after letters with higher ids.

Ids are given out before the commit, so that a letter can appear below the highest id that was seen. An id
that is missing is looked for until every transaction that may have it has ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from storage.errors import translate
from storage.letter_filter import LetterFilter, Parameters, where
from storage.letters import LETTER_COLUMNS, Letter, with_histories
from storage.pool import AnyConnection, Pool, lend

PAGE = 100
# How far below the highest id a new feed looks for ids that were given out and not committed.
WINDOW = 5_000
# More gaps than these are not waited for.
MAX_GAPS = 1_000
_NEWEST = "SELECT coalesce(max(id), 0) FROM redrive.dead_letters"
# Ids of transactions: all below `oldest` have ended, none has reached `next`.
_TRANSACTIONS = """
SELECT pg_snapshot_xmin(s)::text::bigint AS oldest, pg_snapshot_xmax(s)::text::bigint AS next
FROM pg_current_snapshot() AS s
"""
_LATE = """
SELECT l.id FROM unnest($1::bigint[], $2::bigint[]) AS gap (first, last)
JOIN redrive.dead_letters l ON l.id BETWEEN gap.first AND gap.last ORDER BY l.id LIMIT $3
"""
_NEXT = "SELECT id FROM redrive.dead_letters WHERE id > $1 ORDER BY id LIMIT $2"
_POSITION = re.compile(r"([0-9]{1,18})((?:;[0-9]{1,18}-[0-9]{1,18})*)")


@dataclass(frozen=True)
class Gap:
    """Ids that were not seen. Given up once no transaction below `fence` runs; None: not known yet."""

    first: int
    last: int
    fence: int | None = None


@dataclass
class LetterFeed:
    """A reader's place in the stream of letters: everything up to `top` was handed on, but for the gaps."""

    top: int
    gaps: list[Gap] = field(default_factory=list)
    behind: bool = False  # more is there already

    @property
    def position(self) -> str:
        """The place as text, from which a later reader goes on: `123;118-118`."""
        return ";".join([str(self.top), *(f"{gap.first}-{gap.last}" for gap in self.gaps)])

    @classmethod
    def at(cls, position: str) -> LetterFeed:
        """Undoes `position`.

        Raises:
            ValueError: it is none.
        """
        match = _POSITION.fullmatch(position)
        if match is None or match[2].count(";") > MAX_GAPS:
            raise ValueError(f"{position[:60]!r} is no position in the stream of letters")
        spelled = [pair.split("-") for pair in match[2].split(";") if pair]
        return cls(int(match[1]), [Gap(int(first), int(last)) for first, last in spelled])

    async def next(self, pool: Pool | AnyConnection, wanted: LetterFilter) -> list[Letter]:
        """Letters committed since the last call that match, the lowest id first, out of `PAGE` at most.

        Raises:
            DatabaseAwayError: try again; nothing was passed over.
        """
        with translate("look for new letters"):
            async with lend(pool) as connection:
                now = await connection.fetchrow(_TRANSACTIONS)
                assert now is not None
                # In this order: what ended before the first question is seen by the ones after it.
                late = await self._late(connection)
                ids = [row["id"] for row in await connection.fetch(_NEXT, self.top, PAGE)]
                letters = await _matching(connection, sorted(late) + ids, wanted)
        self.behind = PAGE in (len(ids), len(late))
        self._settle(set(late), full=len(late) == PAGE, oldest=now["oldest"], following=now["next"])
        self._advance(ids)
        return letters

    async def _late(self, connection: AnyConnection) -> list[int]:
        if not self.gaps:
            return []
        firsts, lasts = [gap.first for gap in self.gaps], [gap.last for gap in self.gaps]
        return [row["id"] for row in await connection.fetch(_LATE, firsts, lasts, PAGE)]

    def _settle(self, seen: set[int], *, full: bool, oldest: int, following: int) -> None:
        """Take what was seen out of the gaps, and give up those that nobody can fill any more.

        The fence is set one look after the gap was found: by then whoever has its ids has begun to write.
        """
        kept: list[Gap] = []
        for gap in self.gaps:
            if gap.fence is not None and oldest >= gap.fence and not full:
                continue
            fence = following if gap.fence is None else gap.fence
            first = gap.first
            for id_ in sorted(id_ for id_ in seen if gap.first <= id_ <= gap.last):
                if first < id_:
                    kept.append(Gap(first, id_ - 1, fence))
                first = id_ + 1
            if first <= gap.last:
                kept.append(Gap(first, gap.last, fence))
        self.gaps = kept[-MAX_GAPS:]

    def _advance(self, ids: list[int]) -> None:
        for id_ in ids:
            if id_ > self.top + 1:
                self.gaps.append(Gap(self.top + 1, id_ - 1))
            self.top = id_
        self.gaps = self.gaps[-MAX_GAPS:]


async def from_now(pool: Pool | AnyConnection) -> LetterFeed:
    """A feed of what is committed from now on, also with ids that were given out shortly before."""
    with translate("look for new letters"):
        async with lend(pool) as connection:
            newest = int(await connection.fetchval(_NEWEST))
            feed = LetterFeed(max(newest - WINDOW, 0))
            feed._advance([row["id"] for row in await connection.fetch(_NEXT, feed.top, WINDOW)])
            return feed


async def _matching(connection: AnyConnection, ids: list[int], wanted: LetterFilter) -> list[Letter]:
    if not ids:
        return []
    values = Parameters(ids)
    condition = where(wanted, values)
    rows = await connection.fetch(
        f"SELECT {LETTER_COLUMNS} FROM redrive.dead_letters l"  # noqa: S608 - values are parameters
        f" WHERE l.id = ANY($1::bigint[]) AND {condition} ORDER BY l.id",
        *values.values,
    )
    return await with_histories(connection, rows)
