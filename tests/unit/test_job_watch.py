"""Requests that wait for a job, without a database: how many may, and when they are woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from api.job_reading import require_room
from api.job_watch import MAX_WAITING, JobWatch
from api.problems import Problem
from storage.errors import DatabaseAwayError
from storage.pool import AnyConnection

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def away() -> AsyncIterator[AnyConnection]:
    raise DatabaseAwayError("away")
    yield


async def test_no_more_may_wait_than_there_is_room_for_and_who_leaves_makes_room() -> None:
    watch = JobWatch(away, asyncio.Event())
    with ExitStack() as waiting:
        for number in range(MAX_WAITING):
            require_room(watch)
            waiting.enter_context(watch.watching(f"job-{number}"))
        with pytest.raises(Problem) as caught:
            require_room(watch)
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "5"})
    require_room(watch)
    await watch.close()


async def test_whoever_waits_is_woken_when_the_server_stops_also_without_a_database() -> None:
    stopping = asyncio.Event()
    watch = JobWatch(away, stopping)
    with watch.watching("a") as first, watch.watching("b") as second:
        assert await first.changed(0.01) is False
        woken = asyncio.gather(first.changed(60), second.changed(60))
        stopping.set()
        assert list(await woken) == [True, True]
    await watch.close()
