"""Which tasks are refused because they would never run, and what becomes of coroutines without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.pool_process import app_of_its_own
from topology.spec import WorkQueue
from workers.celery_app import Redrive
from workers.errors import UnsafeTaskError
from workers.task import RedriveTask


@pytest.fixture
def app() -> Redrive:
    return app_of_its_own(WorkQueue("work"))


def nothing() -> None:
    """The body of a task."""


async def numbers() -> AsyncIterator[int]:
    yield 1


def test_an_asynchronous_generator_is_refused(app: Redrive) -> None:
    with pytest.raises(UnsafeTaskError, match=r"task u\.numbers: it is an asynchronous generator"):
        app.task(name="u.numbers", lazy=False, shared=False)(numbers)

    class Numbers(RedriveTask):
        name = "u.class"

        async def run(self) -> AsyncIterator[int]:
            yield 1

    with pytest.raises(UnsafeTaskError, match=r"task u\.class: it is an asynchronous generator"):
        app.register_task(Numbers())


@pytest.mark.parametrize("hook", ["__call__", "before_start", "on_failure", "on_success", "after_return"])
def test_an_async_hook_is_refused(app: Redrive, hook: str) -> None:
    async def never(self: Any, *args: Any, **kwargs: Any) -> None:
        raise AssertionError

    base = type("Hooked", (RedriveTask,), {hook: never, "abstract": True})
    with pytest.raises(UnsafeTaskError, match=rf"task u\.hooked: {hook} is async"):
        app.task(name="u.hooked", base=base, lazy=False, shared=False)(nothing)
    registered = type("Registered", (RedriveTask,), {hook: never, "name": "u.registered", "run": print})
    with pytest.raises(UnsafeTaskError, match=rf"task u\.registered: {hook} is async"):
        app.register_task(registered())


def test_an_async_task_can_be_called_and_applied_outside_of_a_worker(app: Redrive) -> None:
    async def add(x: int, y: int) -> int:
        await asyncio.get_running_loop().run_in_executor(None, nothing)
        return x + y

    task = app.task(name="u.add", lazy=False, shared=False)(add)
    assert task(1, 2) == 3
    assert task.apply((1, 2)).get() == 3
