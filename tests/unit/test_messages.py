"""What the API publishes is what a Celery worker reads."""

import pytest

from topology.delivery import Delivery, TaskMessage, check_delivery
from topology.headers import Attempt
from topology.messages import task_message
from topology.wire import split


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
