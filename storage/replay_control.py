"""Pausing, resuming and cancelling a replay: by an operator, by a canary, by a breaker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storage import replay_plans
from storage.errors import MigrationError, StorageError, translate
from storage.pool import AnyConnection, Pool, lend
from storage.replay_locks import LETTERS_OF_ITEMS
from storage.replay_plans import TERMS, Replay
from storage.replays import CHANNEL, MAX_NAME, MAX_NOTE
from storage.schema import has_table
from storage.text import safe_text

OURSELVES = "redrive"
DROPPED_AT_ONCE = 5_000
Action = Literal["pause", "resume", "cancel"]
_FROM: dict[Action, tuple[str, ...]] = {
    "pause": ("running",),
    "resume": ("paused",),
    "cancel": ("running", "paused"),
}
_TO: dict[Action, str] = {"pause": "paused", "resume": "running", "cancel": "cancelled"}

_MOVE = """
UPDATE redrive.replays SET state = $2 WHERE id = $1::uuid AND state = ANY($3::text[]) RETURNING id
"""
_EVENT = """
INSERT INTO redrive.replay_events (replay_id, action, by, why) VALUES ($1::uuid, $2, $3, $4)
"""
# Before its own event. Of a canary that an operator interrupted the rest is still to come.
_RESUMED = """
UPDATE redrive.replay_terms t SET judged_from = clock_timestamp(),
    canary_is_over = t.canary_is_over OR coalesce((
        SELECT e.action = 'canary' FROM redrive.replay_events e WHERE e.replay_id = t.replay_id
        ORDER BY e.id DESC LIMIT 1), false)
WHERE t.replay_id = $1::uuid
"""
# A letter whose earlier replay may have arrived is not as good as new.
REOPENED = """CASE WHEN EXISTS (SELECT 1 FROM redrive.replay_items o
    WHERE o.letter_id = l.id AND o.outcome = 'unknown') THEN 'replayed' ELSE 'open' END"""
# With a generation its job waits for the message, which may have been sent: that one goes out.
_DROP = f"""
WITH items AS (
    SELECT token, letter_id FROM redrive.replay_items
    WHERE token IN (
        SELECT token FROM redrive.replay_items
        WHERE replay_id = $1::uuid AND decided_at IS NULL AND state = 'staged' AND generation IS NULL
        ORDER BY position LIMIT $2)
      AND state = 'staged' AND generation IS NULL
    ORDER BY token FOR UPDATE),
{LETTERS_OF_ITEMS}
dropped AS (
    UPDATE redrive.replay_items i SET state = 'cancelled', decided_at = now()
    FROM items x WHERE i.token = x.token),
reopened AS (
    UPDATE redrive.dead_letters l SET state = {REOPENED}
    FROM letters x WHERE l.id = x.id AND l.state = 'replaying')
SELECT count(*) FROM items
"""  # noqa: S608 - from above
# Of a canary whose every letter is decided: how many there are, and how many went well.
_CANARIES = """
SELECT t.replay_id::text AS id, c.letters, c.well FROM redrive.replay_terms t
JOIN redrive.replays r ON r.id = t.replay_id AND r.state = 'running'
CROSS JOIN LATERAL (
    SELECT count(*) AS letters, count(*) FILTER (WHERE i.outcome IN ('succeeded', 'consumed')) AS well,
           count(*) FILTER (WHERE i.decided_at IS NULL) AS undecided
    FROM redrive.replay_items i WHERE i.replay_id = t.replay_id AND i.position <= t.canary) c
WHERE t.canary IS NOT NULL AND NOT t.canary_is_over AND c.undecided = 0
"""
_CANARY_OVER = """
UPDATE redrive.replay_terms SET canary_is_over = true
WHERE replay_id = $1::uuid AND NOT canary_is_over RETURNING replay_id
"""
# Only what is decided since the replay was made or resumed, and only where letters are left to be spared.
_TRIPPED = """
SELECT DISTINCT ON (s.id) s.id::text AS id, s.fingerprint, s.again, s.decided FROM (
    SELECT r.id, t.breaker, l.fingerprint, count(*) AS decided,
           count(*) FILTER (WHERE i.outcome = 'died_again' AND n.fingerprint = l.fingerprint) AS again
    FROM redrive.replays r
    JOIN redrive.replay_terms t ON t.replay_id = r.id
    JOIN redrive.replay_items i ON i.replay_id = r.id AND i.decided_at >= t.judged_from
        AND i.outcome IN ('succeeded', 'consumed', 'cancelled', 'died_again')
    JOIN redrive.dead_letters l ON l.id = i.letter_id
    LEFT JOIN redrive.dead_letters n ON n.id = i.next_letter_id
    WHERE r.state = 'running' AND t.breaker IS NOT NULL
      AND EXISTS (SELECT 1 FROM redrive.replay_items s
                  WHERE s.replay_id = r.id AND s.decided_at IS NULL AND s.state = 'staged')
      AND EXISTS (SELECT 1 FROM redrive.replay_items d WHERE d.replay_id = r.id AND d.outcome = 'died_again')
    GROUP BY r.id, t.breaker, l.fingerprint) s
WHERE s.again >= s.breaker AND s.again * 2 > s.decided ORDER BY s.id, s.again DESC
"""


class ReplayStateError(StorageError):
    """The replay's state does not allow it: somebody was faster, or it is over."""


@dataclass(frozen=True)
class Judged:
    """What canaries and breakers led to. `why` in words."""

    replay_id: str
    paused: bool
    why: str


async def pause(pool: Pool | AnyConnection, replay_id: str, *, by: str, why: str = "") -> Replay:
    """Send no further letter. What is on its way, two batches at most, still arrives.

    Raises:
        UnknownReplayError: no plan has this id.
        ReplayStateError: it is not running.
        MigrationError: the schema is that of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    return await _act(pool, replay_id, "pause", by, why)


async def resume(pool: Pool | AnyConnection, replay_id: str, *, by: str, why: str = "") -> Replay:
    """Go on where it was paused. A canary that paused it is over, a breaker counts anew. Raises as pause."""
    return await _act(pool, replay_id, "resume", by, why)


async def cancel(pool: Pool | AnyConnection, replay_id: str, *, by: str, why: str = "") -> Replay:
    """For good: letters not sent yet are open again.

    What was begun is brought to its end: letters on their way, and those of jobs that wait for them already.
    Killed on the way, the consumer does the rest. Raises as `pause`.
    """
    return await _act(pool, replay_id, "cancel", by, why)


async def _act(pool: Pool | AnyConnection, replay_id: str, action: Action, by: str, why: str) -> Replay:
    plan = replay_plans.parse_id(replay_id)
    with translate(f"{action} replay {plan}"):
        async with lend(pool) as connection:
            async with connection.transaction():
                if not await has_table(connection, TERMS):
                    raise MigrationError("this needs the schema of this release. Run: storage migrate")
                if action == "resume":
                    await connection.execute(_RESUMED, plan)
                if not await _move(connection, plan, action, by, why):
                    found = await replay_plans.get(connection, plan)
                    raise ReplayStateError(f"replay {plan} is {found.state}")
            if action == "cancel":
                while await drop(connection, plan):
                    pass
            return await replay_plans.get(connection, plan)


async def drop(connection: AnyConnection, replay_id: str) -> int:
    """Reopen the next letters of a cancelled plan; how many. To be called inside `translate`."""
    return int(await connection.fetchval(_DROP, replay_id, DROPPED_AT_ONCE))


async def judge(pool: Pool | AnyConnection) -> list[Judged]:
    """Let canaries and breakers decide by what is known now; not on the schema of the release before.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    found = []
    with translate("judge replays"):
        async with lend(pool) as connection:
            if not await has_table(connection, TERMS):
                return []
            for row in await connection.fetch(_CANARIES):
                well, letters = row["well"], row["letters"]
                said = f"canary: {well} of {letters} went well"
                async with connection.transaction():
                    if well < letters:
                        if await _move(connection, row["id"], "pause", OURSELVES, said, name="canary"):
                            found.append(Judged(row["id"], True, said))
                    elif await connection.fetchval(_CANARY_OVER, row["id"]):
                        await connection.execute(_EVENT, row["id"], "canary", OURSELVES, said)
                        await _tell(connection, row["id"])
                        found.append(Judged(row["id"], False, said))
            for row in await connection.fetch(_TRIPPED):
                said = (
                    f"breaker: {row['again']} of {row['decided']} letters of group {row['fingerprint'][:12]}"
                    " died again as before"
                )
                async with connection.transaction():
                    if await _move(connection, row["id"], "pause", OURSELVES, said, name="breaker"):
                        found.append(Judged(row["id"], True, said))
    return found


async def _move(
    connection: AnyConnection, plan: str, action: Action, by: str, why: str, *, name: str | None = None
) -> bool:
    """Whether this made the transition: of two at once one does."""
    if await connection.fetchval(_MOVE, plan, _TO[action], list(_FROM[action])) is None:
        return False
    await connection.execute(
        _EVENT, plan, name or action, safe_text(by, MAX_NAME), safe_text(why, MAX_NOTE) if why else None
    )
    await _tell(connection, plan)
    return True


async def _tell(connection: AnyConnection, plan: str) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, plan)
