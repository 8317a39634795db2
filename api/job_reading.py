"""A job with all that is shown of it, read now or once it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.job_view import FINAL, job_view
from api.job_watch import MAX_WAITING, JobWatch
from api.json_text import JsonResponse
from api.problems import Problem
from api.ready_json import MAX_READ, shown_json
from api.runtime import Runtime
from storage import job_actions, job_callbacks, job_options, jobs, outbox
from storage.attempts import AttemptRow
from storage.errors import DatabaseAwayError
from storage.job_actions import JobAction
from storage.job_callbacks import CallbackOfJob
from storage.job_options import JobOptions
from storage.jobs import Job
from storage.outbox import Unsent
from storage.pool import AnyConnection

RETRY_AFTER_S = 5
# Between two looks at whether a client still waits.
GONE_S = 2.0


@dataclass(frozen=True)
class JobReading:
    """One job at one time."""

    job: Job
    attempts: Sequence[AttemptRow]
    actions: Sequence[JobAction] = ()
    options: JobOptions | None = None
    unsent: Unsent | None = None
    callback: CallbackOfJob | None = None
    replaying: bool = False

    @property
    def ended(self) -> bool:
        """A dead job that is being replayed has not."""
        return self.job.state in FINAL and not self.replaying

    @property
    def mark(self) -> str:
        return self.job.mark(replaying=self.replaying)

    @property
    def size(self) -> int:
        """Of what may be long: bytes, about."""
        texts = [self.job.result, self.job.progress, *(each.traceback for each in self.attempts)]
        return sum(len(text or "") for text in texts)

    @property
    def view(self) -> dict[str, Any]:
        shown = job_view(self.job, self.attempts, self.actions, self.options, self.unsent, self.callback)
        return shown | {"replaying": self.replaying}


async def answer(found: JobReading) -> Response:
    """The job as it is shown."""
    return await _answer(lambda: found.view, found.size)


async def answer_of(result: bytes | None) -> Response:
    """A stored result alone."""
    return await _answer(lambda: shown_json(result), len(result or b""))


async def _answer(view: Callable[[], Any], size: int) -> Response:
    if size <= MAX_READ:
        return JsonResponse(view())
    return await asyncio.to_thread(lambda: JsonResponse(view()))


async def find_job(db: AnyConnection, job_id: str) -> Job:
    """The job.

    Raises:
        Problem: 404.
    """
    # Postgres takes no NUL in a text, so no job has one in its id.
    if "\x00" not in job_id and (job := await jobs.find(db, job_id)) is not None:
        return job
    raise Problem(404, "unknown-job", f"there is no job {job_id[:300]!r}")


async def reading(db: AnyConnection, job_id: str) -> JobReading | None:
    """The job with its attempts and what was done with it; None where there is none."""
    found = None if "\x00" in job_id else await jobs.look(db, job_id)
    if found is None:
        return None
    job, replaying = found
    return JobReading(
        job,
        await jobs.attempts(db, job_id),
        await job_actions.of_job(db, job_id),
        (await job_options.of_jobs(db, [job_id])).get(job_id),
        await outbox.of_job(db, job_id) if job.state == "PENDING" else None,
        await job_callbacks.of_job(db, job_id),
        replaying,
    )


async def read_job(runtime: Runtime, job_id: str) -> JobReading:
    """The same.

    Raises:
        Problem: 404.
    """
    async with runtime.database() as db:
        found = await reading(db, job_id)
        return found or JobReading(await find_job(db, job_id), ())


async def read_once_ended(runtime: Runtime, request: Request, job_id: str, wait_s: float) -> JobReading:
    """The job once it has ended, or as it is after `wait_s` seconds or when the server stops.

    Also once the client has gone, so that its place is free.

    Raises:
        Problem: 404; 503 when too many wait.
    """
    found = await read_job(runtime, job_id)
    if found.ended:
        return found
    watch = watch_of(request)
    require_room(watch)
    loop = asyncio.get_running_loop()
    ends = loop.time() + wait_s
    with watch.watching(job_id) as watcher:
        while True:
            watcher.seen = found.mark
            left_s = max(ends - loop.time(), 0.0)
            if not await watcher.changed(min(left_s, GONE_S)) and left_s > GONE_S:
                if await request.is_disconnected():
                    return found
                continue
            over = loop.time() >= ends or watch.stopping.is_set()
            try:
                found = await read_job(runtime, job_id)
            except DatabaseAwayError:
                if over:
                    raise
                continue
            if over or found.ended:
                return found


def require_room(watch: JobWatch) -> None:
    """Raises Problem: 503 when too many wait already."""
    if watch.full:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        raise Problem(503, "too-many-waiting", f"{MAX_WAITING} requests wait already", headers=headers)


def watch_of(request: Request) -> JobWatch:
    watch = request.app.state.job_watch
    assert isinstance(watch, JobWatch)
    return watch
