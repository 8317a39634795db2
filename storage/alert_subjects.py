"""What is on record about each subject of alerts: a group of letters, or something else that can be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from storage.alert_rules import AlertKind, AlertPolicy, Watch, judge
from storage.alerts import NewAlert, raise_alerts
from storage.errors import translate
from storage.letter_filter import IN_DOUBT, first_undecided
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table, off_without_table

# Whoever counts letters holds the groups' locks, so that a subject that is not there yet is nobody else's.
_LOCK = """
SELECT subject, alerted_at, resolved_at, snoozed_until, missed, above, slice, counts
FROM redrive.alert_subjects WHERE subject = ANY($1::text[]) ORDER BY subject FOR UPDATE
"""
_NOW = "SELECT now()"
_WRITE = """
INSERT INTO redrive.alert_subjects
    (subject, fingerprint, alerted_at, resolved_at, missed, above, slice, counts, last_letter)
VALUES ($1, $1, $2, $3, $4, $5, $6, $7, now())
ON CONFLICT (subject) DO UPDATE SET alerted_at = excluded.alerted_at, resolved_at = excluded.resolved_at,
    missed = excluded.missed, above = excluded.above, slice = excluded.slice, counts = excluded.counts,
    last_letter = now()
"""
# Read from the locked row, `last_letter` is of now: a letter that has just come keeps its group unresolved.
# By counts first, since a group may have a million letters.
_RESOLVE = f"""
WITH well AS (
    SELECT s.subject, s.last_letter,
           CASE WHEN t.state = 'resolved' THEN concat('resolved by ', t.decided_by, ': ', t.why)
                ELSE 'quiet, and every letter is decided' END AS detail
    FROM redrive.alert_subjects s LEFT JOIN redrive.group_states t USING (fingerprint)
    WHERE s.fingerprint IS NOT NULL AND s.alerted_at IS NOT NULL AND s.resolved_at IS NULL
      AND (t.state IS DISTINCT FROM 'ignored' OR t.ignored_until <= now())
      AND (t.state = 'resolved' OR s.last_letter < now() - make_interval(secs => $1)
           AND 0 >= (SELECT coalesce(sum(c.letters), 0) FROM redrive.group_counts c
                     WHERE c.fingerprint = s.fingerprint AND c.state IN ('open', 'replaying', 'quarantined'))
           AND NOT EXISTS (SELECT 1 FROM redrive.dead_letters l
                           WHERE l.fingerprint = s.fingerprint AND {IN_DOUBT}))
    LIMIT 100 FOR UPDATE OF s SKIP LOCKED)
UPDATE redrive.alert_subjects s SET resolved_at = now(), above = false, missed = false
FROM well WHERE s.subject = well.subject
RETURNING s.subject, well.detail, coalesce(s.snoozed_until > now(), false) AS snoozed
"""  # noqa: S608 - a text of our own
_KNOW = """
INSERT INTO redrive.alert_subjects (subject) SELECT unnest($1::text[]) ORDER BY 1 ON CONFLICT DO NOTHING
"""
_WRONG = """
UPDATE redrive.alert_subjects SET alerted_at = now(), resolved_at = NULL, missed = $2 WHERE subject = $1
"""
_WELL = "UPDATE redrive.alert_subjects SET resolved_at = now(), missed = false WHERE subject = $1"
_OLDEST = first_undecided(
    "l.id, l.stored_at, now() - l.stored_at > make_interval(secs => $1) AS too_old",
    """l.duplicate_of IS NULL
  AND l.fingerprint NOT IN (SELECT fingerprint FROM redrive.group_states
                            WHERE state = 'ignored' AND (ignored_until IS NULL OR ignored_until > now()))""",
)


@dataclass(frozen=True)
class Condition:
    """Something that is no group, and whether it is wrong; `detail` says how."""

    subject: str
    kind: AlertKind
    wrong: bool
    detail: str = ""
    letter_id: int | None = None


@dataclass(frozen=True)
class Oldest:
    """The oldest letter that waits for a decision."""

    letter_id: int
    stored_at: datetime
    too_old: bool


async def judge_groups(
    connection: AnyConnection,
    letters: Mapping[str, int],
    news: Mapping[str, AlertKind],
    first: Mapping[str, int],
    policy: AlertPolicy,
) -> int:
    """Raise what letters that were just counted are worth, in the caller's transaction; how many alerts.

    To be called after `groups.count`, by which these groups are locked.

    Args:
        letters: by fingerprint, without groups that are ignored.
        first: the first of these letters.
    """
    if not letters:
        return 0
    if not await has_table(connection, "alert_subjects"):  # the schema of the release before
        return await raise_alerts(
            connection, [NewAlert(print_, kind, first[print_]) for print_, kind in news.items()], policy
        )
    prints = sorted(letters)
    known = {row["subject"]: _watch(row) for row in await connection.fetch(_LOCK, prints)}
    now = await connection.fetchval(_NOW)
    raised, rows = [], []
    for print_ in prints:
        watch, kind = judge(known.get(print_, Watch()), letters[print_], news.get(print_), policy, now)
        rows.append(
            (
                print_,
                watch.alerted_at,
                watch.resolved_at,
                watch.missed,
                watch.above,
                watch.slice,
                watch.counts,
            )
        )
        if kind is not None:
            raised.append(NewAlert(print_, kind, first[print_], snoozed=watch.snoozed(now)))
    await connection.executemany(_WRITE, rows)
    return await raise_alerts(connection, raised, policy)


@off_without_table(otherwise=lambda: 0)
async def resolve_groups(db: Pool | AnyConnection, policy: AlertPolicy) -> int:
    """Tell of groups that are well again: an operator resolved them, or they are quiet for the silence and
    have no undecided letter. How many. Raises DatabaseAwayError.
    """
    with translate("look for groups that are well again"):
        async with lend(db) as connection, connection.transaction():
            rows = await connection.fetch(_RESOLVE, policy.silence_s)
            found = [
                NewAlert(row["subject"], "resolved", detail=row["detail"], snoozed=row["snoozed"])
                for row in rows
            ]
            return await raise_alerts(connection, found, policy)


@off_without_table(otherwise=lambda: 0)
async def report(db: Pool | AnyConnection, conditions: Sequence[Condition], policy: AlertPolicy) -> int:
    """Tell of what has become wrong or well since any process looked; how many. Raises DatabaseAwayError.

    What is still wrong when a snooze ends is told of again.
    """
    if not conditions:
        return 0
    with translate("report what is wrong"):
        async with lend(db) as connection, connection.transaction():
            subjects = sorted(condition.subject for condition in conditions if condition.wrong)
            await connection.execute(_KNOW, subjects)
            everything = [condition.subject for condition in conditions]
            known = {row["subject"]: _watch(row) for row in await connection.fetch(_LOCK, everything)}
            now = await connection.fetchval(_NOW)
            raised = []
            for condition in conditions:
                watch = known.get(condition.subject, Watch())
                if (alert := _about(condition, watch, now)) is None:
                    continue
                raised.append(alert)
                if condition.wrong:
                    await connection.execute(_WRONG, condition.subject, alert.snoozed)
                else:
                    await connection.execute(_WELL, condition.subject)
            return await raise_alerts(connection, raised, policy)


@off_without_table(otherwise=lambda: None)
async def oldest_undecided(db: Pool | AnyConnection, limit_s: float) -> Oldest | None:
    """The oldest letter without a decision, but for those of ignored groups. Raises DatabaseAwayError."""
    with translate("look for the oldest undecided letter"):
        row = await db.fetchrow(_OLDEST, limit_s)
    return None if row is None else Oldest(row["id"], row["stored_at"], row["too_old"])


def _about(condition: Condition, watch: Watch, now: datetime) -> NewAlert | None:
    told = watch.alerted_at is not None and watch.resolved_at is None
    snoozed = watch.snoozed(now)
    if condition.wrong and (not told or (watch.missed and not snoozed)):
        return NewAlert(
            condition.subject, condition.kind, condition.letter_id, condition.detail, snoozed, group=False
        )
    if told and not condition.wrong:
        return NewAlert(condition.subject, "resolved", None, condition.detail, snoozed, group=False)
    return None


def _watch(row: asyncpg.Record) -> Watch:
    values = {name: value for name, value in row.items() if name != "subject"}
    return Watch(**(values | {"counts": tuple(row["counts"])}))
