"""Groups that an older rule made, looked at letter by letter under the rule of this release."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dlq_consumer.fingerprint import group_of, top_frame
from storage import regrouping
from storage.errors import ConflictError
from storage.groups import Group
from storage.pool import Pool
from storage.regrouping import OldGroup, StoredLetter

BATCH = 500
AGAIN_S = 0.1
# So long another transaction may be in the way of one batch.
PATIENCE_S = 30.0


@dataclass
class Regrouped:
    """What became of one group: letters looked at, and how many went to which other group."""

    fingerprint: str
    letters: int = 0
    moved: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        return {"group": self.fingerprint, "letters": self.letters, "moved": dict(self.moved)}


def group_now(letter: StoredLetter) -> Group:
    """The group of a stored letter. Without a traceback on record the frame that its group has is kept."""
    frame = top_frame(letter.traceback, letter.task) if letter.traceback else letter.top_frame
    return group_of(
        queue=letter.queue,
        task=letter.task,
        reason=letter.reason,
        exception_type=letter.exception_type,
        frame=frame,
    )


async def regroup(pool: Pool, old: OldGroup, *, by: str, dry_run: bool = False) -> Regrouped:
    """Look at what is left of a group to look at. With `dry_run` nothing is changed.

    Raises:
        ConflictError: for `PATIENCE_S` another transaction was in the way. What is moved is moved.
        DatabaseAwayError: Postgres cannot be reached.
    """
    found, position, last = Regrouped(old.fingerprint), old.position, False
    while not last:
        letters = await regrouping.batch(pool, old.fingerprint, after=position, upto=old.upto, limit=BATCH)
        last = len(letters) < BATCH
        position = letters[-1].id if letters else position
        groups = await asyncio.to_thread(_elsewhere, old.fingerprint, letters)
        found.letters += len(letters)
        if dry_run:
            found.moved.update(group.fingerprint for group in groups.values())
        else:
            found.moved.update(await _moved(pool, old.fingerprint, groups, position, last, by))
    return found


def _elsewhere(old: str, letters: list[StoredLetter]) -> dict[int, Group]:
    now = {letter.id: group_now(letter) for letter in letters}
    return {id_: group for id_, group in now.items() if group.fingerprint != old}


async def _moved(
    pool: Pool, old: str, groups: dict[int, Group], position: int, last: bool, by: str
) -> dict[str, int]:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await regrouping.move(pool, old, groups, position=position, last=last, by=by)
        except ConflictError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(AGAIN_S)
