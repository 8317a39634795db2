"""What `countdown` and `eta` ask for, and which publishes take the ladder themselves."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery.exceptions import CDeprecationWarning
from celery.utils.time import maybe_make_aware

from tests.support.pool_process import app_of_its_own, attempt, attempt_of
from topology.headers import DUE
from topology.names import due, step
from topology.spec import Ladder, WorkQueue
from workers.celery_app import Redrive
from workers.delays import asked_s, by_ladder
from workers.outcomes import Dead, Retry

LADDER = Ladder(tick_ms=1000, steps=6)  # one lap: 62 s
WORK, OTHER = WorkQueue("work", LADDER), WorkQueue("other", LADDER)
BERLIN = ZoneInfo("Europe/Berlin")
SOON = datetime.now(UTC) + timedelta(days=1)
NAIVE = SOON.replace(tzinfo=None)


@pytest.fixture
def app() -> Redrive:
    return app_of_its_own(WORK, OTHER)


def left(times: int = 1) -> Any:
    """Until SOON, which counts from when the tests were collected: that may be long ago."""
    return pytest.approx(times * (SOON - datetime.now(UTC)).total_seconds(), abs=60)


@pytest.mark.parametrize(
    ("countdown", "eta", "expected"),
    [
        (None, None, 0),
        (0, None, 0),
        (-5, None, 0),
        (0.25, None, 0.25),
        (3, SOON, 3),
        (None, SOON, None),
        (0, SOON, None),
        (None, SOON.astimezone(BERLIN), None),
        (None, NAIVE, None),
        (None, SOON.isoformat(), None),
        (None, NAIVE.isoformat() + "Z", None),
        (None, datetime(2001, 1, 1, tzinfo=UTC), 0),
    ],
    ids=map(str, range(12)),
)
def test_a_delay_is_a_number_of_seconds_from_now(
    app: Redrive, countdown: Any, eta: Any, expected: Any
) -> None:
    assert asked_s(app, countdown, eta) == (left() if expected is None else expected)


def test_a_naive_eta_is_in_utc_as_celery_has_it(app: Redrive) -> None:
    app.conf.timezone = "Europe/Berlin"
    app.__dict__.pop("timezone", None)  # Celery caches it
    assert asked_s(app, None, NAIVE) == left()
    assert maybe_make_aware(NAIVE, BERLIN) == SOON


@pytest.mark.parametrize(
    ("countdown", "eta"),
    [(1e300, None), (float("inf"), None), (float("nan"), None), (None, "2999-01-01T00:00:00Z")],
)
def test_a_delay_of_more_than_a_year_is_refused_at_the_publish(
    app: Redrive, countdown: Any, eta: Any
) -> None:
    with pytest.raises(ValueError, match="the longest is 366 days"):
        app.send_task("known.elsewhere", countdown=countdown, eta=eta)


def test_an_eta_is_a_real_time_whatever_the_scale(app: Redrive) -> None:
    environment = app.environment
    broker = environment.broker.model_copy(update={"time_scale": 0.5})
    app.__dict__["environment"] = dataclasses.replace(environment, broker=broker)
    assert asked_s(app, None, SOON) == left(2)
    assert asked_s(app, 3, None) == 3

    def asks(self: Any) -> None:
        raise self.retry(eta=SOON)

    outcome = attempt_of(app, asks, max_retries=3)
    assert isinstance(outcome, Retry)
    assert outcome.delay_s == left(2)


def nothing() -> None:
    """A task."""


def way(app: Redrive, delay_s: float, name: str = "known.elsewhere", **options: Any) -> Any:
    return by_ladder(app, name, (), {}, delay_s, options)


def test_a_delay_takes_the_ladder_of_the_queue_that_it_is_routed_to(app: Redrive) -> None:
    top = LADDER.steps - 1
    assert way(app, 3)["exchange"] == step("work", LADDER, top)
    assert way(app, 3, queue="other")["exchange"] == step("other", LADDER, top)
    assert way(app, 3, queue="other")["routing_key"] == "6x1000.0.0.0.0.1.1.other"
    assert way(app, 3, queue=app.amqp.queues["other"])["exchange"] == step("other", LADDER, top)
    assert way(app, 0.0)["exchange"] == due("work", LADDER)


def test_a_task_sent_by_its_name_takes_its_own_queue(app: Redrive) -> None:
    with pytest.warns(CDeprecationWarning):  # it still works
        task = app.task(nothing, name="unit.elsewhere", shared=False, queue="other")
    assert way(app, 3, task.name)["exchange"] == step("other", LADDER, LADDER.steps - 1)
    assert way(app, 3, task.name, queue="work")["exchange"] == step("work", LADDER, LADDER.steps - 1)


def test_a_delay_over_one_lap_carries_its_due_time_beside_other_headers(app: Redrive) -> None:
    headers = way(app, 1000, headers={"custom": 1})["headers"]
    assert headers["custom"] == 1
    assert headers[DUE] == pytest.approx((datetime.now(UTC).timestamp() + 1000) * 1000, abs=60_000)
    assert "headers" not in way(app, 3)


def test_a_publish_with_an_expiry_or_an_exchange_of_its_own_is_left_alone(app: Redrive) -> None:
    assert way(app, 3, expires=60) is None
    assert way(app, 3, exchange="mine", routing_key="k") is None
    task = app.task(nothing, name="unit.expiring", shared=False, expires=60)
    assert way(app, 3, task.name) is None


def test_one_changed_time_limit_leaves_the_other(app: Redrive) -> None:
    def asks(self: Any) -> None:
        raise self.retry(time_limit=200)

    outcome = attempt_of(app, asks, timelimit=[100, 50], max_retries=3)
    assert isinstance(outcome, Retry)
    assert outcome.options == {"time_limit": 200, "soft_time_limit": 50}


def test_a_bound_that_one_job_gave_does_not_hold_for_the_next(app: Redrive) -> None:
    def fails(self: Any) -> None:
        raise ValueError

    def asks(self: Any) -> None:
        if self.request.retries == 7:  # only this job
            raise self.retry(max_retries=9)
        fails(self)

    task = app.task(
        asks, bind=True, shared=False, name="unit.bounds", autoretry_for=(ValueError,), max_retries=1
    )
    assert isinstance(attempt(app, task, retries=7), Retry)
    outcome = attempt(app, task, retries=1)
    assert isinstance(outcome, Dead)
    assert outcome.reason == "exhausted"
