"""What the pool process reports of an attempt. Tasks run under Celery's tracer, without a broker."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import celery.exceptions
import pytest
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from storage.errors import DatabaseAwayError
from tests.support.pool_process import app_of_its_own, attempt_of
from workers import child
from workers.celery_app import Redrive
from workers.outcomes import Crashed, Dead, Outcome, Retry, Returned, Succeeded, describe
from workers.task_checks import unsafe_task


@pytest.fixture
def app() -> Redrive:
    return app_of_its_own()


Ran = Callable[..., Outcome]


@pytest.fixture
def ran(app: Redrive) -> Ran:
    """`ran(function, retries=0, **task options)`: how one attempt of a bound task ends."""
    return functools.partial(attempt_of, app)


def returning(value: object) -> Any:
    def function(self: Any) -> object:
        return value

    return function


def nothing() -> None:
    pass


def raising(error: BaseException) -> Any:
    def function(self: Any) -> None:
        raise error

    return function


def test_a_result_is_json(ran: Ran) -> None:
    assert ran(returning({"a": [1, None]})) == Succeeded(b'{"a": [1, null]}')


def test_an_ignored_result_need_not_be_serialisable(ran: Ran) -> None:
    assert ran(returning(object()), ignore_result=True) == Succeeded(b"null")


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {1j: 1}])
def test_a_result_that_json_cannot_hold_is_a_failure(ran: Ran, value: object) -> None:
    outcome = ran(returning(value))
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.failure and outcome.failure.type) == (
        "exception",
        "kombu.exceptions.EncodeError",
    )


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Wild(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), Dead("exception")),
        (Odd(), Dead("exception")),
        (Reject("no", requeue=False), Dead("rejected")),
        (Reject("later", requeue=True), Retry(child.NOT_NOW_S, counted=False)),
        (Ignore(), Succeeded(b"null")),
        (SoftTimeLimitExceeded(), Dead("soft_timeout")),
        (MemoryError(), Crashed("memory")),
        (DatabaseAwayError("gone"), Returned(child.OUTAGE_S)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_task_raises_decides(ran: Ran, error: BaseException, expected: Outcome) -> None:
    outcome = ran(raising(error))
    if isinstance(outcome, Dead | Retry | Crashed):
        outcome = dataclasses.replace(outcome, failure=None)
    assert outcome == expected


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), float("-inf"), 1e300, 10**400, 400 * 86_400])
def test_a_delay_that_is_none_ends_the_attempt_and_names_the_value(ran: Ran, delay: float) -> None:
    def function(self: Any) -> None:
        raise self.retry(countdown=delay)

    for outcome in (ran(function), ran(raising(celery.exceptions.Retry(when=delay)))):
        assert isinstance(outcome, Dead)
        assert outcome.reason == "exception"
        assert outcome.failure is not None
        assert outcome.failure.type == "ValueError"
        assert "366 days" in outcome.failure.message


def test_an_eta_beyond_the_longest_delay_ends_the_attempt(ran: Ran) -> None:
    def function(self: Any) -> None:
        raise self.retry(eta=datetime(9000, 1, 1, tzinfo=UTC))

    assert isinstance(ran(function), Dead)


def test_a_negative_delay_is_none_as_in_celery(ran: Ran) -> None:
    def function(self: Any) -> None:
        raise self.retry(countdown=-3)

    for outcome in (ran(function), ran(raising(celery.exceptions.Retry(when=-3)))):
        assert isinstance(outcome, Retry)
        assert outcome.delay_s == 0.0


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1, "x"])
def test_retry_refuses_a_limit_that_no_worker_would_take(ran: Ran, limit: object) -> None:
    def function(self: Any) -> None:
        raise self.retry(countdown=1, time_limit=limit)

    assert isinstance(ran(function), Dead)


@pytest.mark.parametrize("error", [Reject("no"), DatabaseAwayError("gone")])
def test_autoretry_for_everything_spares_rejections_and_outages(ran: Ran, error: Exception) -> None:
    outcome = ran(raising(error), autoretry_for=(Exception,), dont_autoretry_for=(KeyError,))
    assert not isinstance(outcome, Retry)


def test_autoretry_asks_for_another_attempt_until_exhausted(ran: Ran) -> None:
    options = {"autoretry_for": (ValueError,), "max_retries": 2, "default_retry_delay": 7}
    first = ran(raising(ValueError("x")), retries=1, **options)
    assert isinstance(first, Retry)
    assert (first.delay_s, first.counted, first.arguments) == (7.0, True, None)
    assert first.failure is not None
    assert first.failure.message == "x"
    last = ran(raising(ValueError("x")), retries=2, **options)
    assert isinstance(last, Dead)
    assert (last.reason, last.failure and last.failure.type) == ("exhausted", "ValueError")


def test_backoff_doubles_up_to_its_cap(ran: Ran) -> None:
    options = {
        "autoretry_for": (ValueError,), "max_retries": 20, "retry_backoff": True, "retry_jitter": False,
        "retry_backoff_max": 600,
    }  # fmt: skip
    delays = [
        outcome.delay_s
        for retries in (0, 1, 5, 15)
        if isinstance(outcome := ran(raising(ValueError()), retries=retries, **options), Retry)
    ]
    assert delays == [1.0, 2.0, 32.0, 600.0]


def test_retry_carries_other_arguments_and_limits(ran: Ran) -> None:
    def function(self: Any, x: int) -> None:
        raise self.retry(args=(x + 1,), countdown=3, time_limit=9)

    outcome = ran(function, args=(1,))
    assert isinstance(outcome, Retry)
    assert outcome.arguments == (
        b'[[2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    )
    assert (outcome.delay_s, dict(outcome.options)) == (3.0, {"time_limit": 9})


def test_retry_that_does_not_throw_wins_over_the_return_value(ran: Ran) -> None:
    def function(self: Any) -> str:
        self.retry(countdown=3, throw=False)
        return "done"

    outcome = ran(function)
    assert isinstance(outcome, Retry)
    assert outcome.delay_s == 3.0


def test_retry_refuses_an_option_it_would_not_obey(ran: Ran) -> None:
    def function(self: Any) -> None:
        raise self.retry(countdown=1, serializer="yaml")

    outcome = ran(function)
    assert isinstance(outcome, Dead)
    assert outcome.failure is not None
    assert "serializer" in outcome.failure.message


def test_a_failure_is_text_that_postgres_takes() -> None:
    failure = describe(ValueError("nul \x00 and \ud800" + "x" * 10_000))
    assert failure.message.startswith("nul \\u0000 and \\ud800")
    assert len(failure.message) <= 2_000
    failure.traceback.encode()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"acks_late": False}, "acks_late"),
        ({"acks_on_failure_or_timeout": True}, "acks_on_failure_or_timeout"),
        ({"acks_on_failure": True}, "acks_on_failure"),
        ({"max_retries": None}, "max_retries"),
        ({"reject_on_worker_lost": False}, "reject_on_worker_lost"),
    ],
)
def test_a_task_under_which_a_message_could_be_lost_is_named(
    app: Redrive, options: dict[str, Any], named: str
) -> None:
    task = app.task(nothing, shared=False, name=f"unit.{named}.{uuid4()}", **options)
    assert [finding.split(" ")[0] for finding in unsafe_task(task, 900)] == [named]


def test_a_task_without_any_time_limit_is_named(app: Redrive) -> None:
    task = app.task(nothing, shared=False, name="unit.limitless")
    task.time_limit = None
    assert ["time limit" in finding for finding in unsafe_task(task, None)] == [True]
    assert list(unsafe_task(task, 900)) == []


def test_a_retry_that_is_raised_by_hand_has_the_bound_of_the_task(ran: Ran) -> None:
    again = raising(celery.exceptions.Retry(when=2))

    assert isinstance(ran(again, retries=2, max_retries=3), Retry)
    ended = ran(again, retries=3, max_retries=3)
    assert isinstance(ended, Dead)
    assert ended.reason == "exhausted"


def test_a_rejection_with_requeue_is_tried_again_and_not_for_ever(ran: Ran) -> None:
    not_now = raising(Reject("not now", requeue=True))

    assert isinstance(ran(not_now, number=child.NOT_NOW_ATTEMPTS - 1), Retry)
    ended = ran(not_now, number=child.NOT_NOW_ATTEMPTS)
    assert isinstance(ended, Dead)
    assert ended.reason == "rejected"
