"""Where every job and letter is, read in one snapshot: what conservation is checked against.

Reads whole tables: for demonstrations and tests, not for a dashboard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from storage.errors import translate

TIMEOUT_S = 10.0
JOBS = "SELECT id, state FROM redrive.jobs"
LETTERS = "SELECT id, job_id, state, reason FROM redrive.dead_letters ORDER BY id"
OUTBOX = "SELECT count(*) FROM redrive.outbox"


@dataclass(frozen=True)
class LetterPlace:
    id: int
    job_id: str | None
    state: str
    reason: str


@dataclass(frozen=True)
class Census:
    """`jobs`: state by id. `outbox`: messages that the broker has not confirmed yet."""

    jobs: Mapping[str, str]
    letters: tuple[LetterPlace, ...]
    outbox: int


async def take_census(url: str) -> Census:
    """Counts in one read-only snapshot of the database at `url`."""
    with translate("take a census"):
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                jobs = await connection.fetch(JOBS)
                letters = await connection.fetch(LETTERS)
                outbox = await connection.fetchval(OUTBOX)
        finally:
            await connection.close()
    return Census(
        {row["id"]: row["state"] for row in jobs},
        tuple(LetterPlace(row["id"], row["job_id"], row["state"], row["reason"]) for row in letters),
        int(outbox),
    )
