"""Who changed what, and from where: a row for each call that changes something.

A row is committed before its change begins, and gets its outcome afterwards, so that there is no change
without a row, however many transactions it takes. Submissions write theirs in the statement that makes the
jobs (`SUBMITTED`), since they are many and a second commit would double their cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from storage.errors import translate
from storage.idempotency import BATCH
from storage.letter_filter import Parameters
from storage.pool import AnyConnection, Pool
from storage.schema import needs_this_release, off_without_table
from storage.text import safe_json, safe_text
from storage.times import shown_time

TABLE = "audit"
MAX_PAGE = 1_000
# The operations of rows that submissions write.
SUBMISSIONS = ("POST /jobs", "POST /jobs/batch")
# Of one row; a longer text is left out, and its length told.
MAX_DETAILS, MAX_TARGETS, MAX_TARGET = 4_000, 1_000, 255

# Of jobs that a CTE named `job` has made; `{told}` is the place of `Submitting.column`.
SUBMITTED = """
INSERT INTO redrive.audit (by, key_id, came_from, operation, submission, targets, status, ended_at)
SELECT ({told}::text[])[1], ({told}::text[])[2], ({told}::text[])[3], ({told}::text[])[4],
       true, made.ids, 202, now()
FROM (SELECT array_agg(id) AS ids FROM job) AS made WHERE made.ids IS NOT NULL
"""
_BEGIN = """
INSERT INTO redrive.audit (by, key_id, came_from, operation, targets, details)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING id
"""
_TELL = "UPDATE redrive.audit SET targets = targets || $2, details = $3 WHERE id = $1 AND ended_at IS NULL"
_END = "UPDATE redrive.audit SET status = $2, ended_at = now() WHERE id = $1 AND ended_at IS NULL"
# A job is found by the moment at which it was made, which is that of its row here.
_OF_TARGET = """(NOT submission AND targets @> ARRAY[{0}::text] OR submission AND {0} = ANY (targets)
AND at = (SELECT j.created_at FROM redrive.jobs j WHERE j.id = {0}))"""
_PRUNE = """
WITH gone AS (
    DELETE FROM redrive.audit WHERE id IN (
        SELECT id FROM redrive.audit WHERE at < now() - $1::interval
        ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True)
class Actor:
    """Who asks, by which key (the part that may be seen), and from where."""

    by: str
    came_from: str | None
    key_id: str | None = None

    @property
    def columns(self) -> tuple[str, str | None, str | None]:
        address = None if self.came_from is None else safe_text(self.came_from, 255)
        return safe_text(self.by, 200), self.key_id or None, address


@dataclass(frozen=True)
class Submitting:
    """What a submission's row says beside its jobs and its caller."""

    actor: Actor
    operation: str

    @property
    def column(self) -> list[str | None]:
        return [*self.actor.columns, self.operation]


@dataclass(frozen=True)
class Entry:
    """A row. `status`: the answer's, or a command's exit code; None when none is on record."""

    id: int
    at: datetime
    by: str
    key_id: str | None
    came_from: str | None
    operation: str
    targets: tuple[str, ...]
    details: dict[str, Any] | None
    status: int | None
    ended_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        times = {"at": shown_time(self.at), "ended_at": shown_time(self.ended_at)}
        return vars(self) | times | {"targets": list(self.targets)}


@dataclass(frozen=True)
class AuditFilter:
    """Which rows; None leaves a field open. `operation`: it begins so. `since` <= at < `until`."""

    by: str | None = None
    operation: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    submissions: bool = True


@off_without_table(lambda: None)
async def begin(
    db: Pool | AnyConnection, actor: Actor, operation: str, targets: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> int | None:  # fmt: skip
    """Commit a row of a change that is about to begin; None on the schema of the release before.

    Raises:
        DatabaseAwayError: the change must not begin.
    """
    with translate("put a change on record"):
        found: int = await db.fetchval(
            _BEGIN, *actor.columns, safe_text(operation, 255), _targets(targets), _details(details)
        )
    return found


async def tell(
    db: Pool | AnyConnection, row: int, targets: Sequence[str], details: Mapping[str, Any] | None
) -> None:
    """What it is about, once that is known, before it begins. Raises DatabaseAwayError."""
    with translate("put a change on record"):
        await db.execute(_TELL, row, _targets(targets), _details(details))


async def end(db: Pool | AnyConnection, row: int, status: int) -> None:
    """What came of it. Raises DatabaseAwayError."""
    with translate("put an outcome on record"):
        await db.execute(_END, row, status)


async def newest(
    db: Pool | AnyConnection, wanted: AuditFilter, *, limit: int, before: int | None = None
) -> list[Entry]:
    """The newest first, at most `MAX_PAGE` and one: the one more tells whether another page follows.

    Raises:
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    sql, values = listing(wanted, limit, before)
    with translate("read what was changed"), needs_this_release("read what was changed"):
        return [
            Entry(**dict(row) | {"targets": tuple(row["targets"]), "details": _read(row["details"])})
            for row in await db.fetch(sql, *values)
        ]


def listing(wanted: AuditFilter, limit: int, before: int | None = None) -> tuple[str, list[object]]:
    """The statement of `newest`, and its values."""
    submissions = wanted.submissions and any(each.startswith(wanted.operation or "") for each in SUBMISSIONS)
    # A caller's rows are read off their own index where that is the order, else off that of all rows, of
    # which a million may be others'. With `by = …` the planner would see one order in both.
    of_caller = wanted.by is not None and wanted.target is None and submissions
    conditions, values = ["true"], Parameters(min(limit, MAX_PAGE + 1))
    for condition, value in (
        ("by BETWEEN {0} AND {0}" if of_caller else "by = {0}", wanted.by),
        ("starts_with(operation, {0})", wanted.operation),
        (_OF_TARGET, wanted.target),
        ("at >= {0}", wanted.since),
        ("at < {0}", wanted.until),
        ("(by, id) < ($2, {0})" if of_caller else "id < {0}", before),
    ):
        if value is not None:
            conditions.append(condition.format(values.add(value)))
    if not submissions:
        conditions.append("NOT submission")
    names, order = ", ".join(Entry.__dataclass_fields__), "by DESC, id DESC" if of_caller else "id DESC"
    where = " AND ".join(conditions)
    return f"SELECT {names} FROM redrive.audit WHERE {where} ORDER BY {order} LIMIT $1", values.values  # noqa: S608


@off_without_table(lambda: 0)
async def prune(db: AnyConnection, days: float) -> int:
    """Delete the oldest rows that are older, at most `BATCH`; how many. Raises DatabaseAwayError."""
    with translate("delete old rows of the audit"):
        return int(await db.fetchval(_PRUNE, timedelta(days=days), BATCH))


def _targets(given: Sequence[str]) -> list[str]:
    return [safe_text(str(each), MAX_TARGET) for each in given[:MAX_TARGETS]]


def _details(given: Mapping[str, Any] | None) -> str | None:
    if not given:
        return None
    text = json.dumps(safe_json(dict(given)), ensure_ascii=True)
    return text if len(text) <= MAX_DETAILS else json.dumps({"$left_out": len(text)})


def _read(text: str | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found
