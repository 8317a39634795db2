"""Reading groups: lists, and one with its notes, counts and an example."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import asyncpg

from storage.errors import StorageError, translate
from storage.pool import AnyConnection, Pool
from storage.schema import needs_this_release
from storage.times import shown_time

GroupState = Literal["open", "resolved", "ignored"]
GROUP_STATES: tuple[GroupState, ...] = ("open", "resolved", "ignored")
SortKey = Literal["last_seen", "letters"]
MAX_PAGE = 1_000
MAX_HOURS = 24 * 90
LETTER_STATES = ("open", "replaying", "replayed", "discarded", "quarantined")
_PREFIX = re.compile(r"[0-9a-f]{1,32}")

# An ignored group whose time is over is open, though nothing was written yet.
_STATE = """
coalesce(CASE WHEN s.state = 'ignored' AND s.ignored_until <= now() THEN 'open' ELSE s.state END, 'open')
"""
_GROUP = f"""
SELECT g.fingerprint, g.queue, g.task, g.reason, g.exception_type, g.top_frame, g.letters, g.first_seen,
       g.last_seen, {_STATE} AS state, s.decided_by, s.decided_at, s.why, s.ignored_until, s.regressed_at,
       coalesce(s.regressions, 0) AS regressions, coalesce(s.rule, 1) AS rule,
       coalesce(s.successors, '{{}}') AS successors
FROM redrive.groups g LEFT JOIN redrive.group_states s USING (fingerprint)
"""  # noqa: S608 - texts from above
# The counts are looked up for the groups of the page alone.
_COUNTED = """
SELECT p.*, ARRAY(
    SELECT (SELECT coalesce(sum(c.letters), 0) FROM redrive.group_counts c
            WHERE c.fingerprint = p.fingerprint AND c.state = n.state)::bigint
    FROM unnest($1::text[]) WITH ORDINALITY AS n (state, place) ORDER BY n.place) AS counts
FROM page p
"""
_IN_STATE = {
    "open": "(s.state IS NULL OR s.state = 'open' OR s.ignored_until <= now())",
    "resolved": "s.state = 'resolved'",
    "ignored": "s.state = 'ignored' AND (s.ignored_until IS NULL OR s.ignored_until > now())",
}
_SORTED = {
    "last_seen": ("g.last_seen", "p.last_seen", "timestamptz"),
    "letters": ("g.letters", "p.letters", "bigint"),
}
_MATCHING = (
    "SELECT fingerprint FROM redrive.groups WHERE fingerprint >= $1 AND fingerprint < $1 || 'g' LIMIT 5"
)
_ONE = f"WITH page AS MATERIALIZED ({_GROUP} WHERE g.fingerprint = $2) {_COUNTED}"
_NOTES = "SELECT id, at, by, action, text FROM redrive.group_notes WHERE fingerprint = $1 ORDER BY at, id"
_HOURS = """
SELECT hour, sum(letters)::bigint AS letters FROM redrive.group_hours
WHERE fingerprint = $1 AND hour > now() - make_interval(hours => $2)
GROUP BY hour HAVING sum(letters) > 0 ORDER BY hour
"""
_QUEUES = """
SELECT dlq, sum(letters)::bigint AS letters FROM redrive.group_hours WHERE fingerprint = $1
GROUP BY dlq HAVING sum(letters) > 0 ORDER BY dlq
"""
# The newest, by the index on (fingerprint, id): of a group it is the one that is most like what comes next.
_EXAMPLE = """
SELECT id FROM redrive.dead_letters WHERE fingerprint = $1 AND duplicate_of IS NULL ORDER BY id DESC LIMIT 1
"""


class UnknownGroupError(StorageError):
    """No group has this fingerprint, or one that begins so."""


class AmbiguousGroupError(StorageError):
    """Several fingerprints begin so."""


class CursorError(ValueError):
    """A cursor that no page of this order gave out."""


@dataclass(frozen=True)
class GroupFilter:
    """Which groups; None leaves a field open."""

    state: GroupState | None = None
    queue: str | None = None
    task: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class GroupRow:
    """A group. `letters` is how many ever came; `counts`, by state, of those on record. Without copies."""

    fingerprint: str
    queue: str
    task: str | None
    reason: str
    exception_type: str | None
    top_frame: str | None
    letters: int
    first_seen: datetime
    last_seen: datetime
    state: GroupState
    decided_by: str | None
    decided_at: datetime | None
    why: str | None
    ignored_until: datetime | None
    regressed_at: datetime | None
    regressions: int
    rule: int
    successors: tuple[str, ...]
    counts: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        times = ("first_seen", "last_seen", "decided_at", "ignored_until", "regressed_at")
        return vars(self) | {name: shown_time(getattr(self, name)) for name in times}

    def cursor(self, sort: SortKey) -> str:
        """What gives the page that follows this group."""
        key = str(self.letters) if sort == "letters" else self.last_seen.isoformat()
        return f"{key}~{self.fingerprint}"


@dataclass(frozen=True)
class GroupNote:
    id: int
    at: datetime
    by: str
    action: str
    text: str

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"at": shown_time(self.at)}


@dataclass(frozen=True)
class GroupDetails:
    """`hours`: letters that came in each hour that had any. `example`: a letter's id, if one is left."""

    group: GroupRow
    dead_letter_queues: dict[str, int]
    hours: tuple[tuple[datetime, int], ...]
    notes: tuple[GroupNote, ...]
    example: int | None

    def as_json(self, example: object) -> dict[str, Any]:
        """With the example as lists show a letter."""
        return self.group.as_json() | {
            "dead_letter_queues": self.dead_letter_queues,
            "hours": [{"hour": shown_time(hour), "letters": number} for hour, number in self.hours],
            "notes": [note.as_json() for note in self.notes],
            "example": example,
        }


async def page(
    db: Pool | AnyConnection, wanted: GroupFilter, *, sort: SortKey = "last_seen", limit: int = 50,
    cursor: str | None = None,
) -> list[GroupRow]:  # fmt: skip
    """Groups that match, by `sort` from the top. One whose letters were all regrouped is left out.

    At most `MAX_PAGE` and one: the one more tells whether another page follows.

    Raises:
        CursorError: see there.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    column, shown, kind = _SORTED[sort]
    conditions, values = ["g.letters > 0"], [list(LETTER_STATES), min(limit, MAX_PAGE + 1)]
    for expression, value in (
        ("g.queue", wanted.queue),
        ("g.task", wanted.task),
        ("g.reason", wanted.reason),
    ):
        if value is not None:
            values.append(value)
            conditions.append(f"{expression} = ${len(values)}")
    if wanted.state is not None:
        conditions.append(_IN_STATE[wanted.state])
    if cursor is not None:
        values += _position(cursor, sort)
        place = len(values)
        conditions.append(f"({column}, g.fingerprint) < (${place - 1}::{kind}, ${place})")
    sql = (
        f"WITH page AS MATERIALIZED ({_GROUP} WHERE {' AND '.join(conditions)}"
        f" ORDER BY {column} DESC, g.fingerprint DESC LIMIT $2)"
        f" {_COUNTED} ORDER BY {shown} DESC, p.fingerprint DESC"
    )
    with translate("list groups"), needs_this_release("list groups"):
        return [_row(row) for row in await db.fetch(sql, *values)]


async def find(db: Pool | AnyConnection, prefix: str) -> str:
    """The fingerprint that begins so.

    Raises:
        UnknownGroupError: none does.
        AmbiguousGroupError: several do.
        DatabaseAwayError: Postgres cannot be reached.
    """
    if not _PREFIX.fullmatch(prefix):
        raise UnknownGroupError(f"{prefix!r} is no fingerprint: up to 32 of 0-9 and a-f. See: dlq groups")
    with translate("look for a group"):
        found = [row["fingerprint"] for row in await db.fetch(_MATCHING, prefix)]
    if not found:
        raise UnknownGroupError(f"no group {prefix}. See: dlq groups")
    if len(found) > 1:
        raise AmbiguousGroupError(f"{prefix} may be {', '.join(sorted(found)[:4])}")
    return str(found[0])


async def details(db: Pool | AnyConnection, prefix: str, *, hours: int = 24) -> GroupDetails:
    """One group with the counts of its last `hours` hours. Raises as `find`."""
    fingerprint = await find(db, prefix)
    with translate(f"read group {fingerprint}"), needs_this_release("read a group"):
        row = await db.fetchrow(_ONE, list(LETTER_STATES), fingerprint)
        counts = await db.fetch(_HOURS, fingerprint, hours)
        queues = await db.fetch(_QUEUES, fingerprint)
        notes = await db.fetch(_NOTES, fingerprint)
        example = await db.fetchval(_EXAMPLE, fingerprint)
    if row is None:
        raise UnknownGroupError(f"group {fingerprint} was deleted just now")
    return GroupDetails(
        _row(row),
        {each["dlq"]: each["letters"] for each in queues},
        tuple((each["hour"], each["letters"]) for each in counts),
        tuple(GroupNote(**dict(note)) for note in notes),
        example,
    )


def _row(row: asyncpg.Record) -> GroupRow:
    values = dict(row)
    counts: Sequence[int] = values.pop("counts")
    return GroupRow(
        **(values | {"successors": tuple(values["successors"])}),
        counts=dict(zip(LETTER_STATES, counts, strict=True)),
    )


def _position(cursor: str, sort: SortKey) -> list[Any]:
    key, _, fingerprint = cursor.partition("~")
    try:
        if not _PREFIX.fullmatch(fingerprint):
            raise ValueError(fingerprint)
        if sort == "letters" and 0 <= int(key) < 2**63:
            return [int(key), fingerprint]
        at = datetime.fromisoformat(key)
        if at.tzinfo is None:
            raise ValueError(key)
        return [at.astimezone(UTC), fingerprint]
    except (ValueError, OverflowError) as error:
        raise CursorError(f"{cursor[:60]!r} is no cursor of a list by {sort}") from error
