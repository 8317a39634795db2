"""Which letters a filter chooses for a replay, and how many it passes over and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.errors import translate
from storage.letter_edits import why_not_sent
from storage.letter_filter import LetterFilter, Parameters, where
from storage.pool import AnyConnection, Pool, lend

# The first that holds; null where the letter can be replayed. Of one job only the newest letter is sent.
_WHY_NOT = """CASE
    WHEN l.duplicate_of IS NOT NULL THEN 'duplicate of another letter'
    WHEN l.state <> 'open' THEN 'state is ' || l.state
    WHEN l.target IS NULL THEN 'its history does not tell which queue it came from'
    WHEN j.state <> 'DEAD' THEN 'its job is ' || j.state
    WHEN EXISTS (SELECT 1 FROM redrive.replay_items i WHERE i.letter_id = l.id
        AND (i.state IN ('staged', 'publishing') OR (i.state = 'published' AND i.outcome IS NULL)))
        THEN 'another replay is outstanding'
    WHEN j.id IS NOT NULL AND EXISTS (SELECT 1 FROM redrive.dead_letters n WHERE n.job_id = l.job_id
        AND n.id > l.id AND n.state = 'open' AND n.duplicate_of IS NULL AND n.target IS NOT NULL)
        THEN 'a newer letter is of the same job' """
_MATCHING = "FROM redrive.dead_letters l LEFT JOIN redrive.jobs j ON j.id = l.job_id WHERE "


@dataclass(frozen=True)
class Selection:
    """`fit`: letters to send, by (target, task, reason). `left_out`: letters passed over, by why."""

    fit: Mapping[tuple[str, str | None, str], int]
    left_out: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "letters": sum(self.fit.values()),
            "of": [
                {"target": target, "task": task, "reason": reason, "letters": count}
                for (target, task, reason), count in self.fit.items()
            ],
            "left_out": dict(self.left_out),
        }


async def survey(pool: Pool | AnyConnection, wanted: LetterFilter) -> Selection:
    """What a replay of this filter would send now. Changes nothing.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    values = Parameters()
    fit: dict[tuple[str, str | None, str], int] = {}
    left_out: dict[str, int] = {}
    with translate("survey letters for a replay"):
        async with lend(pool) as connection:
            why_not = await _why_not(connection)
            statement = (
                f"SELECT why, target, task, reason, count(*) AS n FROM (SELECT {why_not} AS why,"  # noqa: S608
                f" l.target, l.task, l.reason {_MATCHING}{where(wanted, values)}) s"
                " GROUP BY 1, 2, 3, 4 ORDER BY n DESC, 2, 3, 4"
            )
            for row in await connection.fetch(statement, *values.values):
                if row["why"] is None:
                    fit[row["target"], row["task"], row["reason"]] = row["n"]
                else:
                    left_out[row["why"]] = left_out.get(row["why"], 0) + row["n"]
    return Selection(fit, left_out)


async def fit_letters(pool: Pool | AnyConnection, wanted: LetterFilter, *, limit: int) -> list[int]:
    """Ids of the letters that match and can be replayed, the oldest first.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    values = Parameters()
    with translate("select letters for a replay"):
        async with lend(pool) as connection:
            statement = (
                f"SELECT l.id {_MATCHING}{where(wanted, values)} AND ({await _why_not(connection)}) IS NULL"
                f" ORDER BY l.id LIMIT {values.add(limit)}"
            )
            return [row["id"] for row in await connection.fetch(statement, *values.values)]


async def _why_not(connection: AnyConnection) -> str:
    return f"{_WHY_NOT}{await why_not_sent(connection)} END"
