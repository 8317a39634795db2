"""Letters are taken apart in their order: small ones on the loop, others beside it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dlq_consumer.read_in_turns import SMALL_BYTES, TURN_S, read_in_turns
from topology.channel import Delivery
from topology.wire import properties

pytestmark = pytest.mark.anyio


def delivery(tag: int, size: int = 1, **headers: object) -> Delivery:
    raw = properties(headers=headers).encode() if headers else b"\x00\x00"
    return Delivery(tag, False, "", "q", "c", raw, bytes(size))


async def test_only_what_may_take_long_is_read_in_a_thread() -> None:
    given = [
        delivery(1),
        delivery(2, SMALL_BYTES),
        delivery(3),
        delivery(4, compression="gzip"),
        delivery(5, compressed="no"),
    ]

    found = await read_in_turns(given, lambda each: (each.tag, threading.current_thread().name))

    here = threading.current_thread().name
    assert [tag for tag, _ in found] == [1, 2, 3, 4, 5]
    assert [tag for tag, name in found if name != here] == [2, 4]


async def test_others_have_their_turn_meanwhile() -> None:
    turns: list[str] = []
    loop = asyncio.get_running_loop()

    def read(each: Delivery) -> None:
        loop.call_soon(turns.append, f"beside {each.tag}")
        until = time.monotonic() + 2 * TURN_S
        while time.monotonic() < until:
            pass
        turns.append(f"read {each.tag}")

    await read_in_turns([delivery(1), delivery(2), delivery(3)], read)

    assert turns[:4] == ["read 1", "beside 1", "read 2", "beside 2"]
