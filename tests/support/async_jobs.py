"""`async def` tasks of every form, and tasks that use the database, as an adopter would write them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import asyncpg
from celery import shared_task
from celery.exceptions import Ignore, Reject

from tests.support.worker_jobs import MARK, Flaky
from workers.celery_app import Redrive
from workers.task import RedriveTask

app = Redrive("async-tests")


async def pool_at_import() -> asyncpg.Pool:
    made: asyncpg.Pool = await asyncpg.create_pool(os.environ["REDRIVE_DATABASE_URL"], min_size=2, max_size=2)
    return made


# As modules do that know nothing of forks: sockets that all children share, on a loop that none runs.
POOL = asyncio.new_event_loop().run_until_complete(pool_at_import())
PLACE: ContextVar[str] = ContextVar("place", default="nowhere")
BACKEND = "SELECT pg_backend_pid() AS pid"
COUNT = "SELECT count(*) AS n FROM redrive.sample_emails WHERE email_key = $1"
SLEEP = "SELECT pg_sleep(30)"


def line(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task(bind=True, name="a.backends")
async def backends(self: RedriveTask) -> list[int]:
    first, second = await asyncio.gather(self.pool.fetch(BACKEND), self.pool.fetch(BACKEND))
    await asyncio.sleep(0.2)
    return [os.getpid(), first[0]["pid"], second[0]["pid"]]


@app.task(bind=True, name="a.tasks")
async def tasks_on_the_loop(self: RedriveTask) -> int:
    return len(asyncio.all_tasks())


@app.task(bind=True, name="a.cleans_up", soft_time_limit=0.4, time_limit=20)
async def cleans_up(self: RedriveTask, path: str) -> None:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
        line(path, "cleaned up")
        raise


@app.task(bind=True, name="a.saves", soft_time_limit=0.4, time_limit=20)
async def saves(self: RedriveTask) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    return "saved in time"


@app.task(bind=True, name="a.stubborn", soft_time_limit=0.3, time_limit=0.8)
async def stubborn(self: RedriveTask) -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)


@app.task(bind=True, name="a.leaves", soft_time_limit=0.5, time_limit=20)
async def leaves(self: RedriveTask, path: str, end: str) -> str:
    """Ends as told, with something of its own still running."""

    async def later() -> None:
        await asyncio.sleep(0.8)
        line(path, "ran on")

    left = asyncio.create_task(later())
    await asyncio.sleep(0)
    if end == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0)
    if end == "soft":
        await asyncio.sleep(30)
    return f"left {not left.done()}"


@app.task(bind=True, name="a.retry", max_retries=2)
async def retry(self: RedriveTask) -> dict[str, Any]:
    await asyncio.sleep(0)
    if self.request.retries < 2:
        raise self.retry(countdown=0.5)
    return {"id": self.request.id, "attempt": self.attempt_number.attempt}


@app.task(bind=True, name="a.auto", autoretry_for=(Flaky,), max_retries=2, default_retry_delay=1)
async def auto(self: RedriveTask, fail: int) -> int:
    await asyncio.sleep(0)
    if self.request.retries < fail:
        raise Flaky
    return int(self.request.retries)


@app.task(bind=True, name="a.reject")
async def reject(self: RedriveTask) -> None:
    raise Reject("no good", requeue=False)


@app.task(bind=True, name="a.ignore")
async def ignore(self: RedriveTask) -> None:
    raise Ignore


@app.task(bind=True, name="a.exit")
async def leave(self: RedriveTask) -> None:
    raise SystemExit(3)


@app.task(bind=True, name="a.inner_exit")
async def inner_exit(self: RedriveTask) -> None:
    async def inner() -> None:
        raise SystemExit(3)

    await asyncio.create_task(inner())


@app.task(bind=True, name="a.self_cancelled")
async def self_cancelled(self: RedriveTask) -> None:
    raise asyncio.CancelledError


@app.task(bind=True, name="a.progress")
async def progress(self: RedriveTask) -> None:
    for number in range(50):
        self.update_state(state="PROGRESS", meta={"number": number})
        await asyncio.sleep(0)


@app.task(bind=True, name="a.context")
async def context(self: RedriveTask) -> list[str]:
    async def inner() -> str:
        await asyncio.sleep(0)
        return f"{PLACE.get()} {self.request.id} {self.claim}"

    PLACE.set("here")
    both = await asyncio.gather(inner(), asyncio.create_task(inner()))
    return [*both, str(self.claim)]


async def twice(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hides that it returns a coroutine."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Twice:
    __name__: str = "Twice"

    async def __call__(self, x: int) -> int:
        return await twice(x)


class Based(RedriveTask):
    name = "a.based"

    async def run(self, x: int) -> int:
        return await twice(x)


class BasedStatic(RedriveTask):
    name = "a.based_static"

    @staticmethod
    async def run(x: int) -> int:
        return await twice(x)


app.register_task(Based())
app.register_task(BasedStatic())
app.task(name="a.plain")(twice)
app.task(name="a.partial")(functools.update_wrapper(functools.partial(twice), twice))
app.task(name="a.decorated", ignore_result=False)(decorated(twice))
app.task(name="a.decorated_auto", autoretry_for=(Flaky,))(decorated(twice))
app.task(name="a.object")(Twice())
shared_task(name="a.shared")(twice)


@app.task(bind=True, name="a.calls")
async def calls(self: RedriveTask, x: int) -> int:
    """One async task runs the code of another."""
    return int(await app.tasks["a.plain"](x)) + 1


@app.task(bind=True, name="a.once_sleeps", soft_time_limit=0.5, time_limit=20)
async def once_sleeps(self: RedriveTask, key: str) -> None:
    async with self.once(key) as tx:
        await tx.execute(MARK, key, self.request.id)
        await tx.fetch(SLEEP)


@app.task(bind=True, name="s.once_sleeps", soft_time_limit=0.5, time_limit=20)
def sync_once_sleeps(self: RedriveTask, key: str) -> None:
    with self.once(key) as tx:
        tx.execute(MARK, key, self.request.id)
        tx.fetch(SLEEP)


@app.task(bind=True, name="s.waits", soft_time_limit=0.5, time_limit=20)
def waits(self: RedriveTask, how: str) -> None:
    if how == "fetch":
        self.database.fetch(SLEEP)
    with self.database.transaction() as tx:
        tx.fetch(SLEEP)


@app.task(bind=True, name="s.leaves")
def leaves_a_connection(self: RedriveTask, key: str) -> None:
    """As an interruption between `with` and its block would."""
    self.once(key).__enter__()


@app.task(bind=True, name="s.effect")
def effect(self: RedriveTask, key: str) -> int:
    with self.once(key) as tx:
        tx.execute(MARK, key, self.request.id)
    with self.database.transaction() as tx:
        (row,) = tx.fetch(COUNT, key)
    with contextlib.suppress(Flaky), self.database.transaction() as tx:
        tx.execute("DELETE FROM redrive.sample_emails WHERE email_key = $1", key)
        raise Flaky
    return int(row["n"]) + len(self.database.fetch("SELECT 1 AS one"))


@app.task(bind=True, name="a.effect")
async def async_effect(self: RedriveTask, key: str) -> int:
    async with self.once(key) as tx:
        await tx.execute(MARK, key, self.request.id)
    async with self.pool.transaction() as other:
        (row,) = await other.fetch(
            "SELECT count(*) AS n FROM redrive.sample_emails WHERE email_key = $1", key
        )
    with contextlib.suppress(Flaky):
        async with self.pool.transaction() as other:
            await other.execute("DELETE FROM redrive.sample_emails WHERE email_key = $1", key)
            raise Flaky
    async with self.pool.acquire() as connection:
        return int(row["n"]) + int(await connection.fetchval("SELECT 1"))


@app.task(bind=True, name="a.wrong_form")
async def wrong_form(self: RedriveTask) -> None:
    self.database.fetch(BACKEND)


@app.task(bind=True, name="a.long", soft_time_limit=60, time_limit=90)
async def long(self: RedriveTask, path: str) -> None:
    line(path, "begun")
    try:
        await asyncio.sleep(60)
    finally:
        line(path, "ended")


@app.task(bind=True, name="s.long", soft_time_limit=60, time_limit=90)
def sync_long(self: RedriveTask, path: str) -> None:
    line(path, "begun")
    for _ in range(600):
        time.sleep(0.1)


# Used before the fork, the package's own loop and pool are made anew after it.
WARM = app.tasks["a.plain"](1), app.tasks["a.plain"].database.fetch(BACKEND)
