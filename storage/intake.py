"""One transaction that takes a batch of dead letters in: letters, groups, alerts, and the jobs they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from storage import (
    alert_subjects,
    copies,
    groups,
    letter_actions,
    letter_jobs,
    new_letters,
    retention,
    sessions,
)
from storage.alert_rules import AlertKind, AlertPolicy
from storage.copies import Original
from storage.errors import DRIVER_ERRORS, StorageError, translate
from storage.letter_jobs import Ending
from storage.new_letters import NewLetter, Row
from storage.pool import AnyConnection, Pool, watched
from storage.replay_locks import LETTERS_OF_ITEMS, REPLAYED
from storage.schema import has_table
from storage.sessions import Session

_JOBS = """
SELECT j.id, j.type, j.state, j.generation, j.attempt, j.reason, a.exception_type, a.message, a.traceback
FROM redrive.jobs j
LEFT JOIN LATERAL (
    SELECT exception_type, message, traceback FROM redrive.attempts
    WHERE job_id = j.id AND generation = j.generation AND j.state = 'DEAD'
    ORDER BY attempt DESC LIMIT 1) a ON true
WHERE j.id = ANY($1::text[])
"""
_STORED_EARLIER = (
    "SELECT DISTINCT identity FROM redrive.dead_letters WHERE identity = ANY($1::bytea[]) AND session_id < $2"
)
_CANVAS = "INSERT INTO redrive.canvas_letters (letter_id) SELECT unnest($1::bigint[])"
# Its coming back proves that it was sent, whatever the executor could still write down.
_DIED_AGAIN = f"""
WITH items AS (
    SELECT i.token, i.letter_id, b.id FROM redrive.replay_items i
    JOIN unnest($1::text[], $2::bigint[]) AS b (token, id) ON b.token = i.token
    WHERE i.state IN ('staged', 'publishing', 'published', 'unknown') AND i.next_letter_id IS NULL
    ORDER BY i.token FOR UPDATE OF i),
{LETTERS_OF_ITEMS}
back AS (
    UPDATE redrive.replay_items i
    SET state = 'published', published_at = coalesce(i.published_at, now()), next_letter_id = x.id,
        outcome = CASE WHEN i.outcome IS NULL OR i.outcome IN ('unknown', 'consumed') THEN 'died_again'
            ELSE i.outcome END,
        detail = CASE WHEN i.outcome IN ('unknown', 'consumed') THEN NULL ELSE i.detail END,
        decided_at = now()
    FROM items x WHERE i.token = x.token)
{REPLAYED}
"""  # noqa: S608 - from storage.replay_locks


class RefusedError(StorageError):
    """Postgres will not take this batch, now or later; with one letter in it, it is that letter."""


class JobFacts(NamedTuple):
    """What a letter's job row says. The exception is that of the last attempt, when the job is DEAD."""

    id: str
    type: str
    state: str
    generation: int
    attempt: int
    reason: str | None
    exception_type: str | None
    message: str | None
    traceback: str | None


@dataclass(frozen=True)
class Intake:
    """What became of a batch. `again` were on record already, from a session before this one."""

    stored: int
    again: int
    new_groups: tuple[str, ...]
    alerts: int


class Batch:
    """An open transaction of one drain session."""

    def __init__(self, connection: AnyConnection, session: Session) -> None:
        self._connection = connection
        self._session = session

    async def jobs(self, ids: Collection[str]) -> dict[str, JobFacts]:
        """The job rows among `ids`."""
        if not ids:
            return {}
        rows = await self._connection.fetch(_JOBS, list(ids))
        return {row[0]: JobFacts(*row) for row in rows}

    async def store(self, letters: Sequence[NewLetter], policy: AlertPolicy) -> Intake:
        """Store what is not on record yet, with all that follows from it."""
        identities = [letter.identity for letter in letters]
        rows = await self._connection.fetch(_STORED_EARLIER, identities, self._session.id)
        earlier = {bytes(row["identity"]) for row in rows}
        earlier |= await retention.expired(self._connection, identities, self._session.id)
        kept = [letter for letter in letters if not (letter.has_identity and letter.identity in earlier)]
        if not kept:
            return Intake(0, len(letters), (), 0)
        ids = await new_letters.next_ids(self._connection, len(kept))
        doubtful = await self._settle_jobs(kept, ids)
        of_jobs = [
            (id_, n.job_id, n.generation or 1)
            for n, id_ in zip(kept, ids, strict=True)
            if n.job_id and id_ in doubtful
        ]
        originals = await copies.originals(self._connection, of_jobs, ids)
        # A copy tells nothing new: it neither counts in its group nor raises an alert.
        news = {id_: letter for letter, id_ in zip(kept, ids, strict=True) if id_ not in originals}
        sightings = await self._count(list(news.values()), policy)
        await self._insert(dict(zip(ids, kept, strict=True)), originals, earlier)
        await letter_actions.note_redacted(
            self._connection,
            {id_: letter.redacted for letter, id_ in zip(kept, ids, strict=True) if letter.redacted},
        )
        await self._note_canvases([id_ for id_, letter in news.items() if letter.canvas])
        raised = await self._alert(news, sightings, policy)
        await self._settle_replays(kept, ids)
        new = tuple(sighting.fingerprint for sighting in sightings if sighting.is_new)
        return Intake(len(kept), len(letters) - len(kept), new, raised)

    async def _note_canvases(self, letters: Sequence[int]) -> None:
        # Not there on the schema of the release before, where a failed statement would end the transaction.
        if letters and await has_table(self._connection, "canvas_letters"):
            await self._connection.execute(_CANVAS, letters)

    async def _count(self, letters: Sequence[NewLetter], policy: AlertPolicy) -> list[groups.Sighting]:
        numbers = Counter(letter.group for letter in letters)
        return await groups.count(self._connection, list(numbers.items()), silence_s=policy.silence_s)

    async def _insert(
        self, letters: dict[int, NewLetter], originals: dict[int, Original], earlier: set[bytes]
    ) -> None:
        rows = []
        for id_, letter in letters.items():
            own, of = _as_copy(id_, letter, originals, letters) if id_ in originals else (letter, None)
            rows.append(Row(id_, own, of is not None or own.identity in earlier, of))
        await new_letters.insert(self._connection, self._session.id, rows)

    async def _alert(
        self,
        letters: dict[int, NewLetter],
        sightings: Sequence[groups.Sighting],
        policy: AlertPolicy,
    ) -> int:
        ignored = {seen.fingerprint for seen in sightings if seen.ignored}
        news: dict[str, AlertKind] = {seen.fingerprint: kind for seen in sightings if (kind := seen.news)}
        first: dict[str, int] = {}
        for id_, letter in letters.items():
            first.setdefault(letter.group.fingerprint, id_)
        numbers = Counter(letter.group.fingerprint for letter in letters.values())
        heard = {print_: number for print_, number in numbers.items() if print_ not in ignored}
        return await alert_subjects.judge_groups(self._connection, heard, news, first, policy)

    async def _settle_jobs(self, letters: Sequence[NewLetter], ids: list[int]) -> set[int]:
        # A message without our header stands for the first attempt, as it does for a worker.
        endings = [
            Ending(
                letter.job_id,
                id_,
                letter.generation or 1,
                letter.attempt or 1,
                letter.reason,
                letter.detail or letter.reason,
            )
            for letter, id_ in zip(letters, ids, strict=True)
            if letter.job_id is not None
        ]
        return await letter_jobs.settle(self._connection, endings)

    async def _settle_replays(self, letters: Sequence[NewLetter], ids: list[int]) -> None:
        back = [
            (letter.replay_token, id_)
            for letter, id_ in zip(letters, ids, strict=True)
            if letter.replay_token
        ]
        if back:
            await self._connection.execute(_DIED_AGAIN, *zip(*back, strict=True))


def _as_copy(
    id_: int, letter: NewLetter, originals: dict[int, Original], batch: dict[int, NewLetter]
) -> tuple[NewLetter, int]:
    """The letter in the state and the group of the one it is a copy of, and the id of that."""
    of = originals[id_]
    state = letter.state if of.state is None else of.state
    print_ = batch[of.id].group.fingerprint if of.fingerprint is None else of.fingerprint
    return letter._replace(state=state, group=replace(letter.group, fingerprint=print_)), of.id


@asynccontextmanager
async def open_batch(pool: Pool, session: Session, *, timeout_s: float = 30.0) -> AsyncIterator[Batch]:
    """A transaction that commits at the end of the block; no consumer can take the queue over meanwhile.

    Raises:
        SessionLostError: the queue was taken over before.
        DatabaseAwayError: Postgres cannot be reached. Whether a commit came through is then not known.
        RefusedError: Postgres refuses what was to be stored.
    """
    try:
        with translate("store dead letters"):
            async with pool.acquire(timeout=timeout_s) as connection:
                with watched(connection, timeout_s):
                    async with connection.transaction():
                        await sessions.hold(connection, session)
                        yield Batch(connection, session)
    except DRIVER_ERRORS as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from error
