"""What the API publishes is what a Celery worker reads."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.delivery import Delivery, TaskMessage, check_delivery
from topology.headers import Attempt
from topology.messages import task_message
from topology.wire import NotEncodable, properties, split


def test_a_task_message_passes_the_check_that_workers_make() -> None:
    message = task_message(
        "id-1", "payments.charge_order", {"order_id": "7"}, attempt=Attempt(2, 1), token="t"
    )
    found = split(message.properties)
    delivery = Delivery(
        found.text("content_type"), found.text("content_encoding"), found.headers_dict(), message.body
    )

    checked = check_delivery(delivery)

    assert isinstance(checked, TaskMessage)
    assert (checked.id, checked.task, checked.kwargs) == ("id-1", "payments.charge_order", {"order_id": "7"})
    assert (checked.args, checked.retries, checked.attempt) == ([], 0, Attempt(2, 1))
    assert found.headers_dict()["redrive-publish"] == "t"
    assert (found.delivery_mode, found.text("message_id"), found.text("correlation_id")) == (
        2,
        "id-1",
        "id-1",
    )


def test_lone_surrogates_and_nul_in_a_payload_survive() -> None:
    message = task_message("id", "task", {"text": "\ud800 \x00 é"})
    found = split(message.properties)
    checked = check_delivery(Delivery("application/json", "utf-8", found.headers_dict(), message.body))

    assert isinstance(checked, TaskMessage)
    assert checked.kwargs == {"text": "\ud800 \x00 é"}


def test_a_number_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        task_message("id", "task", {"amount": float("nan")})


@given(
    job=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    task=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    kwargs=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    attempt=st.builds(Attempt, st.integers(1, 1_000_000), st.integers(1, 1_000_000)),
    expires=st.none() | st.datetimes(timezones=st.just(UTC)),
    priority=st.none() | st.integers(0, 255),
)
def test_the_properties_are_those_that_the_general_encoder_makes(
    job: str,
    task: str,
    kwargs: dict[str, str],
    attempt: Attempt,
    expires: datetime | None,
    priority: int | None,
) -> None:
    made = task_message(
        job, task, kwargs, attempt=attempt, token="t", origin="o", expires=expires, priority=priority
    )
    headers: dict[str, object] = {
        "lang": "py",
        "task": task,
        "id": job,
        "root_id": job,
        "parent_id": None,
        "group": None,
        "argsrepr": "()",
        "kwargsrepr": ascii(kwargs)[:1_024],
        "origin": "o",
        "retries": 0,
        "timelimit": [None, None],
        "eta": None,
        "expires": None if expires is None else expires.isoformat(),
        "ignore_result": False,
        "redrive-attempt": str(attempt),
        "redrive-publish": "t",
    }
    expected = properties(
        headers=headers,
        content_type="application/json",
        content_encoding="utf-8",
        delivery_mode=2,
        priority=priority,
        correlation_id=job,
        message_id=job,
        type=task,
    )
    assert made.properties == expected.encode()
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert json.loads(made.body) == [[], kwargs, embed]


def test_an_id_or_a_task_that_no_property_holds_is_refused() -> None:
    for job, task in (("j" * 256, "task"), ("job", "t" * 256), ("\ud800", "task")):
        with pytest.raises(NotEncodable):
            task_message(job, task, {})
