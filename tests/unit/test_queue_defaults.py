"""What a work queue says for its tasks where they say nothing, and the limit that it sets them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from celery.concurrency.prefork import TaskPool

from tests.support.pool_process import app_of_its_own, attempt
from topology.spec import Ladder, WorkQueue
from workers.celery_app import Redrive
from workers.checks import settings_found
from workers.outcomes import Dead, Outcome, Retry
from workers.task import RedriveTask
from workers.task_checks import unsafe_task

STUBBORN = WorkQueue("stubborn", Ladder(attempts=9, jitter=0.0))
HASTY = WorkQueue("hasty", Ladder(attempts=1), time_limit_s=60)
SPREAD = WorkQueue("spread", Ladder(attempts=2, jitter=1.0))


@pytest.fixture
def app() -> Redrive:
    app = app_of_its_own(STUBBORN, HASTY, SPREAD)
    app.conf.task_routes = {"hasty.*": {"queue": "hasty"}, "spread.*": {"queue": "spread"}}
    return app


def fails(self: Any) -> None:
    raise ValueError("x")


def task(app: Redrive, name: str, **options: Any) -> Any:
    options = {"autoretry_for": (ValueError,), "retry_backoff": 8} | options
    return app.task(fails, bind=True, shared=False, name=name, **options)


def dead(outcome: Outcome) -> bool:
    return isinstance(outcome, Dead) and outcome.reason == "exhausted"


def test_a_task_that_says_nothing_is_tried_as_often_as_its_queues_ladder_says(app: Redrive) -> None:
    stubborn, hasty = task(app, "a"), task(app, "hasty.a")

    assert (stubborn.max_retries, hasty.max_retries) == (8, 0)
    assert isinstance(attempt(app, stubborn, retries=7, delivered_by="stubborn"), Retry)
    assert dead(attempt(app, stubborn, retries=8, delivered_by="stubborn"))
    assert dead(attempt(app, hasty, retries=0, delivered_by="hasty"))


def test_the_queue_that_delivered_it_counts_and_not_where_the_task_is_routed_to(app: Redrive) -> None:
    assert dead(attempt(app, task(app, "a"), retries=1, delivered_by="spread"))


def test_what_a_task_says_itself_is_kept(app: Redrive) -> None:
    class Own(RedriveTask):
        name = "hasty.own"
        max_retries = 2
        autoretry_for = (ValueError,)

        def run(self) -> None:
            raise ValueError("x")

    for own in (task(app, "hasty.b", max_retries=2), app.register_task(Own())):
        assert isinstance(attempt(app, own, retries=1, delivered_by="hasty"), Retry)
        assert dead(attempt(app, own, retries=2, delivered_by="hasty"))


def test_a_task_of_no_queue_of_ours_has_celerys_default(app: Redrive) -> None:
    app.conf.task_routes = {"far.*": {"queue": "elsewhere"}}
    foreign = Celery("plain", set_as_current=False).task(fails, base=RedriveTask, bind=True, name="plain")

    assert task(app, "far.a").max_retries == 3
    assert foreign.max_retries == 3
    assert RedriveTask.max_retries == 3


@pytest.mark.parametrize(
    ("queue", "low", "high"), [("stubborn", 8.0, 8.0), ("spread", 0.0, 8.0), ("hasty", 4.0, 8.0)]
)
def test_the_queues_jitter_is_the_share_that_is_drawn(
    app: Redrive, queue: str, low: float, high: float
) -> None:
    random.seed(17)
    spread = task(app, f"{queue}.d", max_retries=5)

    outcomes = [attempt(app, spread, delivered_by=queue) for _ in range(300)]
    delays = [outcome.delay_s for outcome in outcomes if isinstance(outcome, Retry)]

    assert len(delays) == 300
    assert low <= min(delays) <= low + (high - low) / 10
    assert high - (high - low) / 10 <= max(delays) <= high


def test_without_retry_jitter_nothing_is_drawn(app: Redrive) -> None:
    whole = task(app, "spread.e", retry_jitter=False)
    outcome = attempt(app, whole, delivered_by="spread")
    assert isinstance(outcome, Retry)
    assert outcome.delay_s == 8.0


@pytest.mark.parametrize(("options", "limit"), [({"time_limit": 61}, 61), ({}, 900)])
def test_a_time_limit_over_that_of_the_queue_names_both_settings(
    app: Redrive, options: dict[str, Any], limit: int
) -> None:
    (finding,) = unsafe_task(task(app, "hasty.long", **options), 900)
    assert (
        f"limit of {limit} s (its time_limit, or REDRIVE_WORKER_TIME_LIMIT_S for all) is over the 60 s"
        in finding
    )
    assert "queue 'hasty' (time_limit_s)" in finding


def test_a_time_limit_within_that_of_the_queue_is_taken(app: Redrive) -> None:
    assert list(unsafe_task(task(app, "hasty.f", time_limit=60), 900)) == []
    assert list(unsafe_task(task(app, "g"), 900)) == []


def test_a_crash_bound_over_the_delivery_limit_matters_for_quorum_queues_only() -> None:
    app = app_of_its_own(
        WorkQueue("quorum", delivery_limit=5), WorkQueue("classic", type="classic", classic_reason="a test")
    )
    worker = app.environment.worker.model_copy(update={"crash_bound": 30})
    app.__dict__["environment"] = replace(app.environment, worker=worker)
    said = "; ".join(settings_found(app, TaskPool))
    assert "over the delivery limit of queue 'quorum' (5)" in said
    assert "classic" not in said


def test_an_older_way_to_name_the_queue_counts_too(app: Redrive) -> None:
    with pytest.warns(DeprecationWarning, match="queue"):
        named = task(app, "h", queue="hasty")
    assert named.max_retries == 0
