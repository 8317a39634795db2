"""The relay says what it waits for once, however often it tries."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from api.outbox_room import OutboxRoom
from api.relay import Relay
from api.runtime import Runtime
from api.settings import ApiSettings
from storage.pool import Pool
from tests.unit.test_api_doors import application
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY


@pytest.mark.anyio
async def test_the_same_reason_is_said_once_for_each_outage(caplog: pytest.LogCaptureFixture) -> None:
    relay = Relay(AmqpAddress.parse("amqp://127.0.0.1:1/"), TOPOLOGY, ApiSettings(), OutboxRoom(1))
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


@pytest.mark.anyio
async def test_after_a_defect_another_relay_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: Runtime = application().state.runtime
    first, named, went_on = runtime.relay, list[str](), asyncio.Event()

    async def run(relay: Relay, *_: object) -> None:
        if relay is first:
            raise ZeroDivisionError
        went_on.set()
        runtime._stopping = True

    async def pause(seconds: float) -> None:
        named.extend(trouble.trouble for trouble in runtime.troubles if trouble.name == "relay")

    monkeypatch.setattr(Relay, "run", run)
    monkeypatch.setattr("api.runtime.asyncio.sleep", pause)
    await runtime._relay_on(cast(Pool, None))

    assert went_on.is_set()
    assert named == ["stopped by a defect (ZeroDivisionError), started again"]
    assert "relay" not in {trouble.name for trouble in runtime.troubles}
    assert "the relay stopped by a defect" in caplog.text
