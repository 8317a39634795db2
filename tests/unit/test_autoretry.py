"""Jitter keeps half of a retry's delay; what the task asks for itself is not touched."""

from __future__ import annotations

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.support.pool_process import app_of_its_own, attempt, attempt_of
from workers.autoretry import delay_s
from workers.celery_app import Redrive
from workers.outcomes import Dead, Outcome, Retry
from workers.task import RedriveTask

DRAWS = 300
BACKOFF: dict[str, Any] = {"autoretry_for": (ValueError,), "max_retries": 20, "retry_backoff": True}


@pytest.fixture
def app() -> Redrive:
    return app_of_its_own()


@pytest.fixture(autouse=True)
def _same_draws_each_time() -> None:
    random.seed(17)


def fails(self: Any) -> None:
    raise ValueError("x")


def spread(delays: list[float], low: float, high: float) -> bool:
    """All of them within, and both ends nearly reached."""
    tenth = (high - low) / 10
    return low <= min(delays) < low + tenth and high - tenth < max(delays) <= high


def delays(app: Redrive, task: Any, retries: int) -> list[float]:
    outcomes = [attempt(app, task, retries=retries) for _ in range(DRAWS)]
    assert all(isinstance(outcome, Retry) for outcome in outcomes)
    return [outcome.delay_s for outcome in outcomes if isinstance(outcome, Retry)]


@pytest.mark.parametrize(
    ("retries", "low", "high"), [(0, 1.0, 2.0), (3, 8.0, 16.0), (8, 30.0, 60.0), (1 << 61, 30.0, 60.0)]
)
def test_a_delay_is_drawn_from_the_upper_half_and_capped(retries: int, low: float, high: float) -> None:
    drawn = [delay_s(retries, factor=2, most_s=60, jitter=0.5) for _ in range(DRAWS)]
    assert spread(drawn, low, high)
    assert delay_s(retries, factor=2, most_s=60, jitter=0) == high


def test_a_function_task_has_it(app: Redrive) -> None:
    task = app.task(fails, bind=True, shared=False, name="unit.function", retry_backoff_max=10, **BACKOFF)
    assert spread(delays(app, task, 0), 0.5, 1.0)
    assert spread(delays(app, task, 9), 5.0, 10.0)


def test_a_class_task_has_it(app: Redrive) -> None:
    class Task(RedriveTask):
        name = "unit.class"
        autoretry_for = (ValueError,)
        max_retries = 20
        retry_backoff = 4

        def run(self) -> None:
            raise ValueError("x")

    assert spread(delays(app, app.register_task(Task()), 1), 4.0, 8.0)


def test_a_coroutine_task_has_it(app: Redrive) -> None:
    async def fails_later(self: Any) -> None:
        raise ValueError("x")

    task = app.task(fails_later, bind=True, shared=False, name="unit.coroutine", **BACKOFF)
    assert spread(delays(app, task, 2), 2.0, 4.0)


def test_an_app_of_celerys_keeps_celerys(app: Redrive) -> None:
    from celery import Celery

    plain = Celery("plain", set_as_current=False)
    task = plain.task(fails, bind=True, shared=False, name="unit.plain", **BACKOFF)
    task.max_retries  # noqa: B018 - evaluates the task
    assert hasattr(task, "_orig_run")
    assert not hasattr(task.run, "redrive_autoretry")


def test_without_jitter_the_delay_is_whole(app: Redrive) -> None:
    task = app.task(fails, bind=True, shared=False, name="unit.whole", retry_jitter=False, **BACKOFF)
    assert set(delays(app, task, 3)) == {8.0}


def test_without_backoff_it_is_the_default_delay(app: Redrive) -> None:
    outcome = attempt_of(app, fails, autoretry_for=(ValueError,), max_retries=3, default_retry_delay=7)
    assert isinstance(outcome, Retry)
    assert outcome.delay_s == 7.0


def test_a_countdown_of_the_tasks_own_is_kept(app: Redrive) -> None:
    def asks(self: Any) -> None:
        raise self.retry(countdown=3)

    outcomes = [attempt_of(app, asks, **BACKOFF) for _ in range(20)]
    assert [outcome.delay_s for outcome in outcomes if isinstance(outcome, Retry)] == [3.0] * 20


class RateLimited(ValueError):
    retry_after_s = 30.0


def limited(self: Any) -> None:
    raise RateLimited


def test_what_the_other_side_asks_for_is_the_least(app: Redrive) -> None:
    first = attempt_of(app, limited, **BACKOFF)
    later = attempt_of(app, limited, retries=9, **BACKOFF)
    without = attempt_of(app, limited, autoretry_for=(ValueError,), max_retries=3)

    assert [outcome.delay_s for outcome in (first, without) if isinstance(outcome, Retry)] == [30.0, 30.0]
    assert isinstance(later, Retry)
    assert later.delay_s >= 256.0


def test_what_is_no_delay_is_not_heeded(app: Redrive) -> None:
    class Odd(ValueError):
        retry_after_s = float("inf")

    def odd(self: Any) -> None:
        raise Odd

    outcome = attempt_of(app, odd, autoretry_for=(ValueError,), max_retries=3, default_retry_delay=7)
    assert isinstance(outcome, Retry)
    assert outcome.delay_s == 7.0


def test_retry_kwargs_may_set_another_bound(app: Redrive) -> None:
    outcome = attempt_of(app, fails, retries=1, retry_kwargs={"max_retries": 1}, **BACKOFF)
    assert isinstance(outcome, Dead)
    assert outcome.reason == "exhausted"


def test_the_bound_that_one_job_sets_is_not_that_of_another_thread(app: Redrive) -> None:
    bound_is_set, other_has_ended = threading.Event(), threading.Event()

    def bounded(self: Any, bounds: bool) -> None:
        if bounds:
            with contextlib.suppress(ValueError):
                self.retry(exc=ValueError("bounded"), max_retries=0)
            bound_is_set.set()
            assert other_has_ended.wait(30)
        raise ValueError

    task = app.task(bounded, bind=True, shared=False, name="unit.bounded", **BACKOFF)

    def outcome(bounds: bool) -> Outcome:
        app.set_current()
        return attempt(app, task, args=(bounds,))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, True)
        assert bound_is_set.wait(30)
        second = threads.submit(outcome, False).result(30)
        other_has_ended.set()

    assert isinstance(second, Retry)
    assert isinstance(first.result(30), Dead), "its own bound holds for itself"
    assert isinstance(outcome(False), Retry), "and for no later job"


def test_a_name_registered_again_is_wrapped_once(app: Redrive) -> None:
    name = f"unit.{uuid4()}"
    first = app.task(fails, bind=True, shared=False, name=name, **BACKOFF)
    run = first.run
    again = app.task(fails, bind=True, shared=False, name=name, **BACKOFF)
    assert again.run == run
