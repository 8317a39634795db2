"""A drained queue's consumers, counted while the drainer changes its prefetch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.test_publisher import declare, publishing, send, until
from tests.support.vhosts import Vhost
from topology import drained
from topology.address import AmqpAddress
from topology.channel import Delivery, QueueState
from topology.connection import BrokerConnection, open_connection
from topology.drained import drained_state

pytestmark = pytest.mark.anyio


class Watched(BrokerConnection):
    """Acts between two looks, so that no test depends on when they come."""

    looks: list[QueueState]
    after_first: Callable[[], object] | None

    async def inspect(self, queue: str) -> QueueState:
        state = await super().inspect(queue)
        self.looks.append(state)
        if self.after_first is not None:
            act, self.after_first = self.after_first, None
            act()
        return state


def watch(connection: BrokerConnection, after_first: Callable[[], object] | None = None) -> Watched:
    connection.__class__ = Watched
    assert isinstance(connection, Watched)
    connection.looks, connection.after_first = [], after_first
    return connection


async def test_a_cancelled_consumer_that_still_holds_a_letter_is_no_second_one(vhost: Vhost) -> None:
    declare(vhost, "q")
    got: list[Delivery] = []
    async with publishing(vhost.amqp_url) as publisher:
        await send(publisher, "q")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        before = await channel.consume("q", got.append)
        await until(lambda: len(got) == 1, "the letter")
        await channel.cancel(before)
        await channel.consume("q", got.append)
        looking = watch(connection, lambda: channel.ack(got[0].tag))

        state = await drained_state(looking, "q", alone=True)

    assert looking.looks[0].consumers == 2
    assert state.consumers == 1


async def test_between_two_consumers_it_is_not_without_one(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        started: list[asyncio.Task[object]] = []

        def start() -> None:
            started.append(asyncio.ensure_future(channel.consume("q", lambda _: None)))

        looking = watch(connection, start)

        state = await drained_state(looking, "q")

    assert looking.looks[0].consumers == 0
    assert state.consumers == 1


async def test_two_that_stay_and_none_at_all_are_told_of(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drained, "TWO_FOR_S", 0.5)
    monkeypatch.setattr(drained, "NONE_FOR_S", 0.5)
    declare(vhost, "q")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        assert (await drained_state(connection, "q")).consumers == 0
        for _ in range(2):
            await (await connection.channel()).consume("q", lambda _: None)
        looking = watch(connection)

        assert (await drained_state(looking, "q", alone=True)).consumers == 2
        assert len(looking.looks) > 1
        looking.looks.clear()
        assert (await drained_state(looking, "q")).consumers == 2
        assert len(looking.looks) == 1
