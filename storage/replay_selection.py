"""Which letters a replay would send, which not, and why: one rule for the dry run and the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import translate
from storage.letter_edits import redacted
from storage.letter_filter import LetterFilter, Parameters, where
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table

LAPS = "replay_laps"
OUTSTANDING = "i.state IN ('staged', 'publishing') OR (i.state = 'published' AND i.outcome IS NULL)"
# Large properties may not fit into a frame. Without the header `task` (Celery's protocol 1) an expiry stands
# in the body.
_MAY_BE_IN_VAIN = (
    "(octet_length(l.properties) > 100000 OR l.task IS NOT NULL"
    r" AND position('\x047461736b53'::bytea IN l.properties) = 0)"
)
_READ_AT_ONCE = 500
_FROM = "FROM redrive.dead_letters l LEFT JOIN redrive.jobs j ON j.id = l.job_id WHERE "

# By kind: in a count, and of one letter.
_WORDS = {
    "duplicate": ("duplicate of another letter", "it is a duplicate of letter {}: replay that one"),
    "outstanding": ("another replay is outstanding", "replay {} is outstanding"),
    "doubtful": (
        "a replay of it may have arrived: force sends it again",
        "replay {} of it may have arrived: force sends it again",
    ),
    "state": ("state is {}", "its state is {}; only open letters are replayed"),
    "homeless": (
        "its history does not tell which queue it came from",
        "its history does not tell which queue of this vhost it came from",
    ),
    "job": ("its job is {}", "its job is {}; only a DEAD job is run again"),
    "same_job": ("a newer letter is of the same job", "letter {} is of the same job, and newer"),
    "redacted": ("values of it were redacted: dlq edit", "values of it were redacted: dlq edit"),
    "target": ("{}", "{}"),
    "not_a_work_queue": (
        "the topology has no work queue {} for its job: name another queue",
        "the topology has no work queue {} for its job: name another queue",
    ),
    "too_large": ("too large to be sent: {}", "it is too large to be sent: {}"),
    "laps": ("replayed {} times already: force sends it", "it was replayed {} times already: force sends it"),
    "in_vain": ("{}", "{}"),
    "unknown": ("not on record", "is not on record"),
}  # fmt: skip
# What another replay is in the way of, now.
CONFLICTS = frozenset({"outstanding"})

InVain = Callable[[bytes, bytes], str | None]
Choice = LetterFilter | Sequence[int]


@dataclass(frozen=True)
class Fitness:
    """What a letter has to meet besides its own state. What is None or empty is not asked.

    `to`: the queue that all are sent to in place of their own. `refused`: by queue, why nothing is sent
    there. `job_queues`: where messages of jobs may go. `largest_body` in bytes. `most_laps`: a message was
    replayed fewer times than that. `in_vain`: from properties and body, why sending it is in vain. `force`:
    an unknown outcome and `most_laps` are passed over.
    """

    to: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    job_queues: frozenset[str] | None = None
    largest_body: int | None = None
    most_laps: int | None = None
    in_vain: InVain | None = None
    force: bool = False


ANY = Fitness()


@dataclass(frozen=True)
class Unfit:
    """Why one letter is not sent. `about`: what the words of its kind leave open."""

    letter_id: int
    kind: str
    about: str | None

    @property
    def why(self) -> str:
        return _WORDS[self.kind][1].format(self.about)

    @property
    def kind_words(self) -> str:
        """The same for every letter of its kind."""
        return _WORDS[self.kind][0].format(self.about)


@dataclass(frozen=True)
class Selection:
    """`fit`: letters to send, by (target, task, reason). `left_out`: letters passed over, by why."""

    fit: Mapping[tuple[str, str | None, str], int]
    left_out: Mapping[str, int]

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
        }


async def targets(pool: Pool | AnyConnection, choice: Choice) -> list[str]:
    """The queues to which these letters would go.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    values = Parameters()
    statement = f"SELECT DISTINCT l.target FROM redrive.dead_letters l WHERE {_chosen(choice, values)}"  # noqa: S608
    with translate("look where letters would go"):
        async with lend(pool) as connection:
            rows = await connection.fetch(statement, *values.values)
    return sorted(row["target"] for row in rows if row["target"] is not None)


async def survey(pool: Pool | AnyConnection, choice: Choice, fitness: Fitness = ANY) -> Selection:
    """What a replay of this choice would send now. Changes nothing.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    fit: dict[tuple[str, str | None, str], int] = {}
    left_out: dict[str, int] = {}

    def leave_out(letter: Unfit, count: int) -> None:
        left_out[letter.kind_words] = left_out.get(letter.kind_words, 0) + count

    with translate("survey letters for a replay"):
        async with lend(pool) as connection, connection.transaction():
            values = Parameters()
            inner = await _judged(connection, choice, fitness, values, "l.target, l.task, l.reason")
            # What is about one letter (a number, a replay) is not in the words of its kind.
            statement = (
                "SELECT why ->> 0 AS kind, CASE WHEN why ->> 0 IN ('duplicate', 'outstanding', 'doubtful',"  # noqa: S608
                f" 'same_job') THEN NULL ELSE why ->> 1 END AS about, target, task, reason, count(*) AS n"
                f" FROM ({inner}) s GROUP BY 1, 2, 3, 4, 5 ORDER BY n DESC, 3, 4, 5"
            )
            for row in await connection.fetch(statement, *values.values):
                if row["kind"] is None:
                    of = (fitness.to or row["target"], row["task"], row["reason"])
                    fit[of] = fit.get(of, 0) + row["n"]
                else:
                    leave_out(Unfit(0, row["kind"], row["about"]), row["n"])
            async for row, why in _in_vain(connection, choice, fitness):
                of = (fitness.to or row["target"], row["task"], row["reason"])
                fit[of] -= 1
                leave_out(Unfit(row["id"], "in_vain", why), 1)
            if not isinstance(choice, LetterFilter):
                for letter in await missing(connection, choice):
                    leave_out(letter, 1)
    return Selection({of: count for of, count in fit.items() if count}, left_out)


async def fit_letters(
    connection: AnyConnection, choice: LetterFilter, fitness: Fitness = ANY, *, limit: int
) -> list[int]:
    """Ids of the letters that match and can be replayed, the oldest first. Inside `translate`."""
    values = Parameters()
    inner = await _judged(connection, choice, fitness, values)
    statement = f"SELECT id FROM ({inner}) s WHERE why IS NULL ORDER BY id LIMIT {values.add(limit)}"  # noqa: S608
    return [row["id"] for row in await connection.fetch(statement, *values.values)]


async def unfit(connection: AnyConnection, ids: Sequence[int], fitness: Fitness = ANY) -> list[Unfit]:
    """Which of these letters cannot be replayed, in the order of their ids. Inside a transaction and
    `translate`; what it says holds for as long as the letters' rows are locked.
    """
    values = Parameters()
    inner = await _judged(connection, ids, fitness, values)
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


def _chosen(choice: Choice, values: Parameters) -> str:
    if isinstance(choice, LetterFilter):
        return where(choice, values)
    return f"l.id = ANY({values.add(list(choice))}::bigint[])"


async def _judged(
    connection: AnyConnection, choice: Choice, fitness: Fitness, values: Parameters, columns: str = ""
) -> str:
    """A SELECT of `id`, `why` (null where it is fit, else a pair of kind and what it is about), `columns`."""
    chosen = _chosen(choice, values)
    cases = await _cases(connection, choice, fitness, values)
    more = f", {columns}" if columns else ""
    return f"SELECT l.id, CASE {cases} END AS why{more} {_FROM}{chosen}"


async def _cases(connection: AnyConnection, choice: Choice, fitness: Fitness, values: Parameters) -> str:
    """The first that holds is told. Of one job only the newest letter is sent."""
    target = "l.target" if fitness.to is None else f"{values.add(fitness.to)}::text"
    doubtful = (
        "(SELECT i.replay_id::text FROM redrive.replay_items i WHERE i.letter_id = l.id"
        " AND i.outcome = 'unknown' ORDER BY i.decided_at DESC LIMIT 1)"
    )
    outstanding = (
        f"(SELECT i.replay_id::text FROM redrive.replay_items i WHERE i.letter_id = l.id AND ({OUTSTANDING}))"  # noqa: S608
    )
    same_job = (
        # `+ 0`: found by the job alone. By ids all letters chosen were read for each: 13 s for 10,000.
        "(SELECT min(n.id + 0) FROM redrive.dead_letters n WHERE n.job_id = l.job_id AND n.id + 0 > l.id"  # noqa: S608
        f" AND n.duplicate_of IS NULL AND {_may_go_too(choice, target, values)})"
    )
    found: list[tuple[str, str, str]] = [
        ("duplicate", "l.duplicate_of IS NOT NULL", "l.duplicate_of"),
        ("outstanding", f"{outstanding} IS NOT NULL", outstanding),
    ]
    if not fitness.force:
        found.append(("doubtful", f"l.state = 'replayed' AND {doubtful} IS NOT NULL", doubtful))
        found.append(("state", "l.state <> 'open'", "l.state"))
    else:
        settled = f"l.state <> 'open' AND (l.state <> 'replayed' OR {doubtful} IS NULL)"
        found.append(("state", settled, "l.state"))
    found += [
        ("homeless", f"{target} IS NULL", "NULL"),
        ("job", "j.state <> 'DEAD'", "j.state"),
        ("same_job", f"j.id IS NOT NULL AND {same_job} IS NOT NULL", same_job),
    ]
    if fitness.refused:
        names, reasons = (values.add(list(each)) for each in zip(*fitness.refused.items(), strict=True))
        why = (
            f"(SELECT r.why FROM unnest({names}::text[], {reasons}::text[]) r (name, why)"  # noqa: S608
            f" WHERE r.name = {target})"
        )
        found.append(("target", f"{why} IS NOT NULL", why))
    if fitness.job_queues is not None:
        queues = values.add(sorted(fitness.job_queues))
        found.append(("not_a_work_queue", f"j.id IS NOT NULL AND {target} <> ALL({queues}::text[])", target))
    if fitness.largest_body is not None:
        limit = values.add(fitness.largest_body)
        found.append(
            (
                "too_large",
                f"l.body_size > {limit}::bigint",
                f"'its body is over ' || {limit}::bigint || ' bytes'",
            )
        )
    if fitness.most_laps is not None and not fitness.force:
        laps = f"greatest(coalesce(j.generation - 1, 0), {await laps_of(connection)})"
        found.append(("laps", f"{laps} >= {values.add(fitness.most_laps)}::int", laps))
    found.append(("redacted", await redacted(connection), "NULL"))
    return "\n".join(
        f"WHEN {condition} THEN jsonb_build_array('{kind}', {about})" for kind, condition, about in found
    )


async def laps_of(connection: AnyConnection) -> str:
    """How often the message of a letter `l` was replayed, as far as the replays tell."""
    if not await has_table(connection, LAPS):
        return "(l.replay_token IS NOT NULL)::int"
    return (
        "CASE WHEN l.replay_token IS NULL THEN 0 ELSE 1 + coalesce((SELECT p.laps FROM redrive.replay_laps p"
        " WHERE p.token = l.replay_token), 0) END"
    )


def _may_go_too(choice: Choice, target: str, values: Parameters) -> str:
    if isinstance(choice, LetterFilter):
        return "n.state = 'open' AND n.target IS NOT NULL"
    return f"n.id + 0 = ANY({values.add(list(choice))}::bigint[])"


async def _in_vain(connection: AnyConnection, choice: Choice, fitness: Fitness) -> Any:
    """Letters (rows) that are fit but for what they say themselves, and why; a few read at a time."""
    if fitness.in_vain is None:
        return
    values = Parameters()
    inner = await _judged(
        connection, choice, fitness, values, "l.target, l.task, l.reason, l.properties, l.body"
    )
    statement = f"SELECT * FROM ({inner} AND {_MAY_BE_IN_VAIN}) s WHERE why IS NULL"  # noqa: S608
    async for row in connection.cursor(statement, *values.values, prefetch=_READ_AT_ONCE):
        if why := fitness.in_vain(row["properties"], row["body"]):
            yield row, why
