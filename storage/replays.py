"""Making replay plans: anyone may. `storage.replay_plans` reads them, `storage.replay_steps` sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from storage import replay_plans, replay_selection
from storage.errors import MigrationError, StorageError, translate
from storage.letter_filter import LetterFilter
from storage.pool import AnyConnection, Pool, lend
from storage.replay_cases import LAPS, laps_of
from storage.replay_fitness import ANY, CONFLICTS, Choice, Fitness, Unfit
from storage.replay_plans import TERMS, Replay
from storage.replay_selection import Selection
from storage.schema import has_table
from storage.text import safe_json, safe_text
from storage.times import shown_time

CHANNEL = "redrive_replays"
MAX_LETTERS = 100_000
MAX_NAME, MAX_NOTE = 200, 2_000
BREAKER = 5
# A letter in 17 minutes.
MIN_RATE = 0.001

# The row locks make a concurrent plan for one of these letters wait, and then see it replaying. Jobs are not
# locked: one that leaves DEAD meanwhile is found when it is staged.
_LOCK = """
SELECT count(*) FROM (
    SELECT 1 FROM redrive.dead_letters WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE) l
"""
_NEW_PLAN = "INSERT INTO redrive.replays (requested_by, note, rate) VALUES ($1, $2, $3) RETURNING id::text"
_TERMS = """
INSERT INTO redrive.replay_terms (replay_id, chosen_by, canary, breaker) VALUES ($1::uuid, $2::jsonb, $3, $4)
"""
_NEW_ITEMS = """
INSERT INTO redrive.replay_items (token, replay_id, position, letter_id, target)
SELECT gen_random_uuid()::text, $1::uuid, t.position, l.id, coalesce($3, l.target)
FROM unnest($2::bigint[]) WITH ORDINALITY AS t (id, position) JOIN redrive.dead_letters l USING (id)
"""
_LETTERS_REPLAYING = "UPDATE redrive.dead_letters SET state = 'replaying' WHERE id = ANY($1::bigint[])"


class ReplayRefusedError(StorageError):
    """A choice has letters that cannot be replayed: one of `refusals` for each. Nothing was changed."""

    def __init__(self, refusals: Sequence[Unfit]) -> None:
        more = f"; and {len(refusals) - 20} more" if len(refusals) > 20 else ""
        super().__init__("; ".join(f"letter {each.letter_id}: {each.why}" for each in refusals[:20]) + more)
        self.refusals = tuple(refusals)


class UnknownLettersError(ReplayRefusedError):
    """The choice names letters that are not on record."""


class ReplayConflictError(ReplayRefusedError):
    """Another replay of one of the letters is outstanding."""


class NothingToReplayError(StorageError):
    """No letter of the choice can be replayed."""


@dataclass(frozen=True)
class Asked:
    """How the letters are to be sent, and who wants it.

    `rate`: letters per second, None = no limit. `canary`: so many first, the rest once these went well.
    `breaker`: paused once so many died again as they had died before, None = never. `limit`: the oldest so
    many of a filter. `skip_unfit`: of named letters, those that cannot be replayed are left out.
    `insists`: on the breaker; otherwise there is none on the schema of the release before.

    Raises:
        ValueError: a number is out of its range.
    """

    requested_by: str
    note: str | None = None
    rate: float | None = None
    canary: int | None = None
    breaker: int | None = BREAKER
    limit: int | None = None
    skip_unfit: bool = False
    insists: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None and not MIN_RATE <= self.rate < 1e9:
            raise ValueError(f"the rate is {self.rate}; it takes {MIN_RATE} letters per second or more")
        for name, value in (("canary", self.canary), ("breaker", self.breaker), ("limit", self.limit)):
            if value is not None and not 0 < value <= MAX_LETTERS:
                raise ValueError(f"{name} is {value}; it takes 1 to {MAX_LETTERS:,}")


async def create(pool: Pool | AnyConnection, choice: Choice, asked: Asked, fitness: Fitness = ANY) -> Replay:
    """Freeze a choice of letters into a plan, which the dead-letter consumer then carries out.

    Of a filter the letters that can be replayed now, the oldest first. Named ones in the order given, a
    repeated one once; one that cannot be replayed refuses them all, unless `skip_unfit`.

    Raises:
        ValueError: no letter is named, or too many are.
        UnknownLettersError: an id is not on record.
        ReplayConflictError: a letter's replay is outstanding. One of two concurrent plans gets this.
        ReplayRefusedError: a letter cannot be replayed.
        NothingToReplayError: none is left.
        MigrationError: a canary, or a breaker that is insisted on, needs the schema of this release.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("create a replay"):
        async with lend(pool) as connection, connection.transaction():
            ids = await _ids(connection, choice, asked, fitness)
            await connection.fetchval(_LOCK, ids)
            ids = await _fit(connection, choice, ids, asked, fitness)
            name, note = safe_text(asked.requested_by, MAX_NAME), asked.note
            plan = await connection.fetchval(
                _NEW_PLAN, name, safe_text(note, MAX_NOTE) if note else None, asked.rate
            )
            await _keep_terms(connection, plan, choice, asked)
            await connection.execute(_NEW_ITEMS, plan, ids, fitness.to)
            await _keep_laps(connection, plan)
            await connection.execute(_LETTERS_REPLAYING, ids)
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, plan)
    return await replay_plans.get(pool, plan)


def refuses(choice: Choice, selection: Selection, *, skip_unfit: bool) -> bool:
    """Whether a plan of this choice, as it was surveyed, would be refused for a named letter."""
    return bool(selection.left_out) and not (skip_unfit or isinstance(choice, LetterFilter))


async def _ids(connection: AnyConnection, choice: Choice, asked: Asked, fitness: Fitness) -> list[int]:
    if isinstance(choice, LetterFilter):
        return await replay_selection.fit_letters(
            connection, choice, fitness, limit=min(asked.limit or MAX_LETTERS, MAX_LETTERS)
        )
    ids = [id_ for id_ in dict.fromkeys(choice) if 0 < id_ < 2**63]
    if not 0 < len(ids) <= MAX_LETTERS:
        raise ValueError(f"{len(ids)} letters are named; a plan takes 1 to {MAX_LETTERS:,}")
    return ids


async def _fit(
    connection: AnyConnection, choice: Choice, ids: list[int], asked: Asked, fitness: Fitness
) -> list[int]:
    """Of these letters, whose rows are locked, the ones to send."""
    unfit = await replay_selection.unfit(connection, ids, fitness) if ids else []
    if unfit and not (asked.skip_unfit or isinstance(choice, LetterFilter)):
        for kinds, error in ((("unknown",), UnknownLettersError), (CONFLICTS, ReplayConflictError)):
            if these := [each for each in unfit if each.kind in kinds]:
                raise error(these)
        raise ReplayRefusedError(unfit)
    left_out = {each.letter_id for each in unfit}
    fit = [id_ for id_ in ids if id_ not in left_out]
    if not isinstance(choice, LetterFilter) and asked.limit is not None:
        fit = fit[: asked.limit]
    if not fit:
        raise NothingToReplayError("no letter that can be replayed")
    return fit


async def _keep_terms(connection: AnyConnection, plan: str, choice: Choice, asked: Asked) -> None:
    if not await has_table(connection, TERMS):
        if asked.canary is not None:
            raise MigrationError("a canary needs the schema of this release. Run: storage migrate")
        if asked.insists and asked.breaker is not None:
            raise MigrationError("a breaker needs the schema of this release. Run: storage migrate")
        return
    chosen_by = None
    if isinstance(choice, LetterFilter):
        given = {name: value for name, value in asdict(choice).items() if value}
        chosen_by = json.dumps(
            {
                name: shown_time(value) if isinstance(value, datetime) else safe_json(value)
                for name, value in given.items()
            }
        )
    await connection.execute(_TERMS, plan, chosen_by, asked.canary, asked.breaker)


async def _keep_laps(connection: AnyConnection, plan: str) -> None:
    if await has_table(connection, LAPS):
        laps = await laps_of(connection)
        await connection.execute(
            "INSERT INTO redrive.replay_laps (token, laps)"  # noqa: S608 - an expression of ours
            f" SELECT i.token, {laps} FROM redrive.replay_items i JOIN redrive.dead_letters l"
            " ON l.id = i.letter_id WHERE i.replay_id = $1::uuid AND l.replay_token IS NOT NULL",
            plan,
        )
