"""Groups of letters that died alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from storage.alert_rules import AlertKind
from storage.pool import AnyConnection
from storage.schema import has_table

# Version of the rule by which letters are grouped (`dlq_consumer.fingerprint`): raised when that changes.
RULE = 2
# In one order everywhere, so that two queues' batches cannot wait for each other. No key is changed: a copy
# that another batch stores in one of these groups need not wait.
LOCK_GROUPS = """
SELECT fingerprint, last_seen < now() - make_interval(secs => $2) AS silent,
       to_regclass('redrive.group_states') IS NOT NULL AS has_states
FROM redrive.groups WHERE fingerprint = ANY($1::text[]) ORDER BY fingerprint FOR NO KEY UPDATE
"""
_DECIDED = """
SELECT fingerprint, state = 'ignored' AND coalesce(ignored_until > now(), true) AS ignored
FROM redrive.group_states WHERE fingerprint = ANY($1::text[]) AND state <> 'open'
"""
_REOPEN = """
WITH reopened AS (
    UPDATE redrive.group_states
    SET state = 'open', ignored_until = NULL, regressed_at = now(), regressions = regressions + 1
    WHERE fingerprint = ANY($1::text[]) RETURNING fingerprint)
INSERT INTO redrive.group_notes (fingerprint, by, action, text)
SELECT fingerprint, 'dlq consume', 'regression', 'a letter came: the group is open again' FROM reopened
"""
_GROUPED_BY = """
INSERT INTO redrive.group_states (fingerprint, rule) SELECT unnest($1::text[]), $2 ON CONFLICT DO NOTHING
"""
# xmax is 0 only in a row version that an INSERT made: tells the first letter of a group from the others.
_UPSERT = """
INSERT INTO redrive.groups AS g (fingerprint, queue, task, reason, exception_type, top_frame, letters)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
ORDER BY 1
ON CONFLICT (fingerprint) DO UPDATE
    SET letters = g.letters + excluded.letters, last_seen = greatest(g.last_seen, now())
RETURNING fingerprint, xmax = 0 AS is_new
"""


@dataclass(frozen=True)
class Group:
    """What a group's letters have in common."""

    fingerprint: str
    queue: str
    task: str | None
    reason: str
    exception_type: str | None
    top_frame: str | None


@dataclass(frozen=True)
class Sighting:
    """A group that was just counted up.

    `regressed`: it was resolved, or ignored until a time that has passed, and is open again.
    `ignored`: nobody wants to hear of it.
    """

    fingerprint: str
    is_new: bool
    after_silence: bool
    regressed: bool = False
    ignored: bool = False

    @property
    def news(self) -> AlertKind | None:
        """The kind of the alert that it is worth."""
        if self.ignored:
            return None
        if self.is_new:
            return "first_seen"
        if self.regressed:
            return "regression"
        return "seen_again" if self.after_silence else None


async def count(
    connection: AnyConnection, letters: Sequence[tuple[Group, int]], *, silence_s: float
) -> list[Sighting]:
    """Add letters to their groups, each with a number of them, inside the caller's transaction."""
    ordered = sorted(letters, key=lambda pair: pair[0].fingerprint)
    prints = [group.fingerprint for group, _ in ordered]
    known = {row["fingerprint"]: row for row in await connection.fetch(LOCK_GROUPS, prints, silence_s)}
    rows = await connection.fetch(
        _UPSERT,
        prints,
        [group.queue for group, _ in ordered],
        [group.task for group, _ in ordered],
        [group.reason for group, _ in ordered],
        [group.exception_type for group, _ in ordered],
        [group.top_frame for group, _ in ordered],
        [number for _, number in ordered],
    )
    new = [row["fingerprint"] for row in rows if row["is_new"]]
    decided = await _decided(connection, [print_ for print_ in prints if print_ not in new], known)
    if regressed := [print_ for print_, ignored in decided.items() if not ignored]:
        await connection.execute(_REOPEN, regressed)
    if new and await has_table(connection, "group_states"):
        await connection.execute(_GROUPED_BY, new, RULE)
    return [
        Sighting(
            row["fingerprint"],
            row["is_new"],
            row["fingerprint"] in known and known[row["fingerprint"]]["silent"],
            decided.get(row["fingerprint"]) is False,
            decided.get(row["fingerprint"], False),
        )
        for row in rows
    ]


async def _decided(
    connection: AnyConnection, prints: Sequence[str], known: Mapping[str, asyncpg.Record]
) -> dict[str, bool]:
    """Those that are not open, and whether they are ignored. To be asked once all are locked: one that was
    not known may have been made, and decided on, meanwhile.
    """
    if not prints:
        return {}
    # Not there on the schema of the release before.
    has_states = any(row["has_states"] for row in known.values()) or (
        not known and await has_table(connection, "group_states")
    )
    rows = await connection.fetch(_DECIDED, prints) if has_states else ()
    return {row["fingerprint"]: bool(row["ignored"]) for row in rows}
