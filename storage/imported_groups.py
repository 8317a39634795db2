"""The groups of imported letters: counted, and nobody is alerted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from storage.letter_line import LetterLine
from storage.pool import AnyConnection

# In the order in which intake locks them. Nothing is reopened: an import is no regression.
_COUNT = """
INSERT INTO redrive.groups AS g
    (fingerprint, queue, task, reason, exception_type, top_frame, letters, first_seen, last_seen)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
    $8::timestamptz[], $9::timestamptz[])
ORDER BY 1
ON CONFLICT (fingerprint) DO UPDATE SET letters = g.letters + excluded.letters,
    first_seen = least(g.first_seen, excluded.first_seen),
    last_seen = greatest(g.last_seen, excluded.last_seen)
RETURNING fingerprint, xmax = 0 AS is_new
"""
_NEW_RULE = """
INSERT INTO redrive.group_states (fingerprint, rule) SELECT * FROM unnest($1::text[], $2::integer[])
"""
# With a letter that an older rule grouped, the group is to be looked at again.
_RULE = """
UPDATE redrive.group_states s SET rule = least(s.rule, t.rule)
FROM unnest($1::text[], $2::integer[]) AS t (fingerprint, rule) WHERE s.fingerprint = t.fingerprint
"""
# `missed`: the first letter that comes by itself is worth an alert, though its group is not new any more.
_UNTOLD = """
INSERT INTO redrive.alert_subjects (subject, fingerprint, missed)
SELECT f, f, true FROM unnest($1::text[]) AS f
ON CONFLICT DO NOTHING
"""


async def count(connection: AnyConnection, letters: Mapping[int, LetterLine]) -> None:
    """Add letters, which are no copies, to their groups inside the caller's transaction."""
    groups: dict[str, list[LetterLine]] = {}
    for line in letters.values():
        groups.setdefault(line.group, []).append(line)
    rows = [_row(fingerprint, lines) for fingerprint, lines in sorted(groups.items())]
    if not rows:
        return
    found = await connection.fetch(_COUNT, *zip(*rows, strict=True))
    rules = {each: min(line.group_details.rule for line in lines) for each, lines in groups.items()}
    new = [row["fingerprint"] for row in found if row["is_new"]]
    old = [row["fingerprint"] for row in found if not row["is_new"]]
    await connection.execute(_NEW_RULE, new, [rules[each] for each in new])
    await connection.execute(_RULE, old, [rules[each] for each in old])
    await connection.execute(_UNTOLD, new)


def _row(fingerprint: str, lines: list[LetterLine]) -> tuple[object, ...]:
    of = lines[0].group_details
    times: list[datetime] = [line.stored_at for line in lines]
    return (
        fingerprint, of.queue, of.task, of.reason, of.exception_type, of.top_frame, len(lines), min(times),
        max(times),
    )  # fmt: skip
