"""When a job may run, until when, and before which others: what is taken and which field is named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from api.problems import Problem
from api.submission import new_job, read_submission
from storage.job_options import JobOptions
from topology.catalogue import ChargeOrder
from topology.delivery import TaskMessage, check_delivery, delivery_of
from topology.spec import JobType, Topology, WorkQueue
from topology.wire import split

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLASSIC = {"type": "classic", "classic_reason": "an old broker"}
TOPOLOGY = Topology(
    (WorkQueue("q"), WorkQueue("c", **CLASSIC), WorkQueue("p", max_priority=3, **CLASSIC)),  # type: ignore[arg-type]
    tuple(JobType(f"{queue}.charge", queue, ChargeOrder) for queue in "qcp"),
)
PAYLOAD = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}


def read(queue: str = "q", **options: Any) -> Any:
    body = {"type": f"{queue}.charge", "payload": PAYLOAD, "idempotency_key": "k", **options}
    return read_submission(TOPOLOGY, body, now=NOW)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay_s": -1}, "delay_s"),
        ({"delay_s": 366 * 86_400 + 1}, "delay_s"),
        ({"delay_s": "5"}, "delay_s"),
        ({"delay_s": True}, "delay_s"),
        ({"delay_s": None}, "delay_s"),
        ({"delay_s": 10**400}, "delay_s"),
        ({"not_before": "2026-01-02T00:00:00"}, "not_before"),  # no zone
        ({"not_before": "2026-01-02"}, "not_before"),
        ({"not_before": "2026-02-30T00:00:00Z"}, "not_before"),
        ({"not_before": "9999-12-31T23:59:59Z"}, "not_before"),
        ({"not_before": "9999-12-31T23:59:59-23:59"}, "not_before"),
        ({"not_before": "0001-01-01T00:00:00+23:59"}, "not_before"),
        ({"not_before": 1767225600}, "not_before"),
        ({"not_before": "٢٠٢٦-01-02T00:00:00Z"}, "not_before"),
        ({"expires": "9999-12-31T23:59:59Z"}, "expires"),
        ({"expires": "tomorrow"}, "expires"),
        ({"expires": "2026-01-02T00:00:00Z", "not_before": "2026-01-02T01:00:00+01:00"}, "expires"),
        ({"delay_s": 1, "not_before": "2026-01-02T00:00:00Z"}, "not_before"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 5.0}, "priority"),
        ({"priority": True}, "priority"),
    ],
)
def test_a_bad_option_is_422_and_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Problem) as caught:
        read(**options)
    assert (caught.value.status, [error.field for error in caught.value.errors]) == (422, [field])


def test_a_priority_is_one_that_the_queue_has() -> None:
    assert read("p", priority=3).options == JobOptions(priority=3)
    for queue, priority in (("p", 4), ("c", 0)):
        with pytest.raises(Problem, match=r"priority.*queue"):
            read(queue, priority=priority)


def test_options_are_read_and_reach_the_message() -> None:
    asked = read(not_before="2026-01-01t01:00:00+01:00", expires="2026-01-01T02:00:00.500000999Z", priority=7)
    expires = datetime(2026, 1, 1, 2, 0, 0, 500_000, tzinfo=UTC)
    assert asked.options == JobOptions(None, NOW, expires, 7)
    job = new_job(asked, "me")
    properties = split(job.properties)
    message = check_delivery(delivery_of(properties, job.body), now=NOW)
    assert isinstance(message, TaskMessage)
    assert (message.expires, message.eta, properties.priority) == (expires, None, 7)
    assert read(delay_s=1.5).options == JobOptions(delay_s=1.5)


def test_times_that_are_over_are_taken_since_a_request_may_be_sent_again() -> None:
    assert read(not_before="2020-01-01T00:00:00Z", expires="2021-01-01T00:00:00Z").options is not None


def test_options_make_another_request_and_none_makes_the_same_as_ever() -> None:
    assert (
        read().request
        == read_submission(TOPOLOGY, {"type": "q.charge", "payload": PAYLOAD}, ["k"], now=NOW).request
    )
    assert (
        len({read().request, read(delay_s=1).request, read(delay_s=2).request, read(priority=0).request}) == 4
    )
