"""Jobs that come in while a commit is under way are committed together by the next one.

Nobody waits for company: a job that finds no commit under way goes at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from storage import jobs, submissions
from storage.audit import Submitting
from storage.errors import DRIVER_ERRORS, DatabaseAwayError, StorageError, said
from storage.jobs import Accepted, IdempotencyKey, NewJob
from storage.pool import AnyConnection
from storage.submissions import Submission

log = logging.getLogger("redrive.api")
# Commits under way: while one is written to disk, the next is sent.
AT_ONCE = 2
MOST = 100
MOST_BYTES = 4 * 1024 * 1024

Database = Callable[[], AbstractAsyncContextManager[AnyConnection]]


class _Waiting(NamedTuple):
    job: Submission
    done: asyncio.Future[Accepted]


class GroupCommit:
    """For jobs without options and callback, as one process takes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._committing = 0

    async def submit(self, new: NewJob, key: IdempotencyKey, told: Submitting) -> Accepted:
        """As `storage.jobs.submit`. When cancelled, the job may be accepted all the same.

        Raises:
            IdempotencyConflictError: the key was used for another request.
            DatabaseAwayError: nothing is known to be stored; the same request may be sent again.
        """
        done: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(Submission(new, key, told), done))
        if self._committing < AT_ONCE:
            self._committing += 1
            task = asyncio.create_task(self._commit_all(), name="group-commit")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                taken = self._waiting[: _together(self._waiting)]
                self._waiting = self._waiting[len(taken) :]
                # But for those who gave up.
                await self._commit_some([each for each in taken if not each.done.done()])
        finally:
            # Not when the task is done, which is known a turn of the loop later: a job that comes between the
            # two would wait for a commit that nobody begins.
            self._committing -= 1

    async def _commit_some(self, together: Sequence[_Waiting]) -> None:
        try:
            async with self._database() as db:
                await _commit(db, together)
        except BaseException as error:
            if isinstance(error, DatabaseAwayError):
                # Whoever waits behind would wait as long, one after the other.
                together, self._waiting = [*together, *self._waiting], []
            for each in together:
                if not each.done.done():
                    each.done.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise


def _together(waiting: Sequence[_Waiting]) -> int:
    """How many go into one statement: one at least, however large."""
    size = 0
    for count, each in enumerate(waiting[:MOST]):
        size += len(each.job.new.payload) + len(each.job.new.body)
        if size > MOST_BYTES and count:
            return count
    return min(len(waiting), MOST)


async def _commit(db: AnyConnection, together: Sequence[_Waiting]) -> None:
    """Raises DatabaseAwayError when nothing is known of those that are not done."""
    accepted: dict[str, Accepted] = {}
    if len(together) > 1:
        try:
            accepted = await submissions.submit(db, [each.job for each in together])
        except StorageError:
            raise
        except DRIVER_ERRORS as error:  # one of them is refused: it alone is to hear of it
            extra = {"action": "group_commit_refused"}
            log.warning("jobs are committed one by one: %s", said(error), extra=extra)
    for each in together:
        try:
            one = accepted.get(each.job.new.id) or await jobs.submit(db, *each.job)
        except DatabaseAwayError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            if not each.done.done():
                each.done.set_exception(error)
        else:
            if not each.done.done():
                each.done.set_result(one)


def _own(error: BaseException) -> BaseException:
    """Each request raises an exception of its own."""
    return DatabaseAwayError(str(error)) if isinstance(error, DatabaseAwayError) else error
