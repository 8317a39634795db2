"""The relay says what it waits for once, however often it tries."""

from __future__ import annotations

import pytest

from api.relay import Relay
from api.settings import ApiSettings
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY


@pytest.mark.anyio
async def test_the_same_reason_is_said_once_for_each_outage(caplog: pytest.LogCaptureFixture) -> None:
    relay = Relay(AmqpAddress.parse("amqp://127.0.0.1:1/"), TOPOLOGY, ApiSettings())
    for _ in range(50):
        relay._waits_for("the outbox's database", "connection refused")
    relay._waits_no_more()
    relay._waits_no_more()
    relay._waits_for("the outbox's database", "connection refused")

    assert [message.partition(" after")[0] for message in caplog.messages] == [
        "waiting for the outbox's database: connection refused",
        "connected to the outbox's database",
        "waiting for the outbox's database: connection refused",
    ]
