"""A job with a high priority goes before others in a quorum queue of RabbitMQ 4."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually


def submit(stack: Stack, key: str, **options: Any) -> str:
    payload = {"order_id": key, "amount_cents": 5, "currency": "EUR"}
    job = {"type": "payments.charge_order", "payload": payload, "idempotency_key": key, **options}
    answer = stack.http.post("/jobs", json=job)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


@pytest.mark.rabbitmq4  # a quorum queue of 3.10 has no priorities
def test_the_broker_hands_out_high_priorities_first(stack: Stack, broker_release: tuple[int, int]) -> None:
    if broker_release < (4, 3):
        pytest.skip("not run: before 4.3 there are two levels, of which the lower gets every third turn")
    stack.apply_topology()
    stack.start_api()
    low = [submit(stack, f"low-{number}", **({"priority": number} if number else {})) for number in range(5)]
    high = [submit(stack, f"high-{number}", priority=number) for number in (5, 7, 9)]
    outbox = "select count(*) from redrive.outbox"
    eventually(lambda: stack.database.value(outbox) == 0, 30, "all are published")
    found = [message["properties"]["message_id"] for message in stack.vhost.get("payments", 100)]
    # RabbitMQ 4.3 keeps each number apart, and counts a message without one as 4.
    assert found == [high[2], high[1], high[0], low[0], low[4], low[3], low[2], low[1]]
