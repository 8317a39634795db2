"""Which letters a replay would send, which not, and why: one rule for the dry run and the plan."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage import letter_edits
from storage.errors import translate
from storage.letter_filter import LetterFilter, Parameters
from storage.pool import AnyConnection, Pool, lend
from storage.replay_cases import chosen, judged
from storage.replay_fitness import ANY, Choice, Fitness, Unfit

# Large properties may not fit into a frame. Without the header `task` (Celery's protocol 1) an expiry stands
# in the body, which is read only then.
_LARGE = 100_000
_NO_TASK_HEADER = r"(l.task IS NOT NULL AND position('\x047461736b53'::bytea IN {}) = 0)"
# So many letters of each kind that is left out are named, those with the lowest ids.
NAMED = 20
# Of what is read at once: letters, and bytes of them. One letter may be larger.
_READ_AT_ONCE = 500
HELD_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Selection:
    """`fit`: letters to send, by (target, task, reason). `left_out`: letters passed over, by why; `named`:
    the ids of the first `NAMED` of them, by the same.
    """

    fit: Mapping[tuple[str, str | None, str], int]
    left_out: Mapping[str, int]
    named: Mapping[str, Sequence[int]]

    @property
    def letters(self) -> int:
        return sum(self.fit.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "letters": self.letters,
            "of": [
                {"target": target, "task": task, "reason": reason, "letters": count}
                for (target, task, reason), count in self.fit.items()
            ],
            "left_out": dict(self.left_out),
            "left_out_letters": {why: list(ids) for why, ids in self.named.items()},
        }


async def targets(pool: Pool | AnyConnection, choice: Choice) -> list[str]:
    """The queues to which these letters would go.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    values = Parameters()
    statement = f"SELECT DISTINCT l.target FROM redrive.dead_letters l WHERE {chosen(choice, values)}"  # noqa: S608
    with translate("look where letters would go"):
        async with lend(pool) as connection:
            rows = await connection.fetch(statement, *values.values)
    return sorted(row["target"] for row in rows if row["target"] is not None)


async def survey(pool: Pool | AnyConnection, choice: Choice, fitness: Fitness = ANY) -> Selection:
    """What a replay of this choice would send now. Changes nothing. Not inside a transaction.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    fit: dict[tuple[str, str | None, str], int] = {}
    left_out: dict[str, int] = {}
    named: dict[str, list[int]] = {}

    def leave_out(letter: Unfit, count: int, ids: Sequence[int]) -> None:
        why = letter.kind_words
        left_out[why] = left_out.get(why, 0) + count
        named[why] = sorted({*named.get(why, ()), *ids})[:NAMED]

    with translate("survey letters for a replay"):
        async with (
            lend(pool) as connection,
            # What is counted first and what is in vain are of one moment.
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            values = Parameters()
            inner = await judged(connection, choice, fitness, values, "l.target, l.task, l.reason")
            # What is about one letter (a number, a replay) is not in the words of its kind.
            statement = (
                "SELECT why ->> 0 AS kind, CASE WHEN why ->> 0 IN ('duplicate', 'outstanding', 'doubtful',"  # noqa: S608
                f" 'same_job') THEN NULL ELSE why ->> 1 END AS about, target, task, reason, count(*) AS n,"
                f" (array_agg(id ORDER BY id) FILTER (WHERE why IS NOT NULL))[:{NAMED}] AS ids"
                f" FROM ({inner}) s GROUP BY 1, 2, 3, 4, 5 ORDER BY n DESC, 3, 4, 5"
            )
            for row in await connection.fetch(statement, *values.values):
                if row["kind"] is None:
                    of = (fitness.to or row["target"], row["task"], row["reason"])
                    fit[of] = fit.get(of, 0) + row["n"]
                else:
                    leave_out(Unfit(0, row["kind"], row["about"]), row["n"], row["ids"])
            async for row, why in _in_vain(connection, choice, fitness):
                of = (fitness.to or row["target"], row["task"], row["reason"])
                fit[of] -= 1
                leave_out(Unfit(row["id"], "in_vain", why), 1, [row["id"]])
            if not isinstance(choice, LetterFilter):
                for letter in await missing(connection, choice):
                    leave_out(letter, 1, [letter.letter_id])
    return Selection({of: count for of, count in fit.items() if count}, left_out, named)


async def fit_letters(
    connection: AnyConnection, choice: LetterFilter, fitness: Fitness = ANY, *, limit: int
) -> list[int]:
    """Ids of the letters that match and can be replayed, the oldest first. Inside `translate`."""
    values = Parameters()
    inner = await judged(connection, choice, fitness, values)
    statement = f"SELECT id FROM ({inner}) s WHERE why IS NULL ORDER BY id LIMIT {values.add(limit)}"  # noqa: S608
    return [row["id"] for row in await connection.fetch(statement, *values.values)]


async def unfit(connection: AnyConnection, ids: Sequence[int], fitness: Fitness = ANY) -> list[Unfit]:
    """Which of these letters cannot be replayed, in the order of their ids. Inside a transaction and
    `translate`; what it says holds for as long as the letters' rows are locked.
    """
    values = Parameters()
    inner = await judged(connection, ids, fitness, values)
    statement = f"SELECT id, why ->> 0 AS kind, why ->> 1 AS about FROM ({inner}) s WHERE why IS NOT NULL"  # noqa: S608
    found = [
        Unfit(row["id"], row["kind"], row["about"])
        for row in await connection.fetch(statement, *values.values)
    ]
    found += [Unfit(row["id"], "in_vain", why) async for row, why in _in_vain(connection, ids, fitness)]
    return sorted(found + await missing(connection, ids), key=lambda each: each.letter_id)


async def missing(connection: AnyConnection, ids: Sequence[int]) -> list[Unfit]:
    """Those that are not on record."""
    rows = await connection.fetch(
        "SELECT t.id FROM unnest($1::bigint[]) t (id)"
        " WHERE NOT EXISTS (SELECT 1 FROM redrive.dead_letters l WHERE l.id = t.id)",
        ids,
    )
    return [Unfit(row["id"], "unknown", None) for row in rows]


async def _in_vain(connection: AnyConnection, choice: Choice, fitness: Fitness) -> Any:
    """Letters (rows) that are fit but for what they say themselves, and why."""
    if (in_vain := fitness.in_vain) is None:
        return
    values = Parameters()
    sent = await letter_edits.sent_columns(connection)
    size, with_body = f"octet_length({sent.properties})", _NO_TASK_HEADER.format(sent.properties)
    read = (
        f"SELECT l.id, {sent.properties} AS properties,"  # noqa: S608
        f" CASE WHEN {with_body} THEN {sent.body} ELSE '' END AS body"
        f" FROM redrive.dead_letters l{sent.join} WHERE l.id = ANY($1::bigint[])"
    )
    columns = (
        f"l.target, l.task, l.reason, {size} + CASE WHEN {with_body} THEN {sent.body_size} ELSE 0 END AS size"
    )
    inner = await judged(connection, choice, fitness, values, columns)
    statement = f"SELECT * FROM ({inner} AND ({size} > {_LARGE} OR {with_body})) s WHERE why IS NULL"  # noqa: S608
    cursor = connection.cursor(statement, *values.values, prefetch=_READ_AT_ONCE)
    async for part in _in_parts(cursor):
        for row in await connection.fetch(read, list(part)):
            if why := in_vain(row["properties"], row["body"]):
                yield part[row["id"]], why


async def _in_parts(rows: AsyncIterable[Any]) -> AsyncIterator[dict[int, Any]]:
    part: dict[int, Any] = {}
    held = 0
    async for row in rows:
        if part and (held + row["size"] > HELD_BYTES or len(part) == _READ_AT_ONCE):
            yield part
            part, held = {}, 0
        part[row["id"]] = row
        held += row["size"]
    if part:
        yield part
