"""The ledger of unsettled publishes: what each answer of the broker does to which publish."""

from __future__ import annotations

import asyncio

import pytest

from topology.broker_errors import ConnectionLost, Nacked, Unroutable
from topology.confirms import Confirms, Flight
from topology.headers import PUBLISH, REPLAY
from topology.wire import properties

pytestmark = pytest.mark.anyio


def flight(token: str, body: bytes = b"x") -> Flight:
    raw = properties(headers={PUBLISH: token}).encode()
    return Flight("e", "k", raw, body, token, asyncio.get_running_loop().create_future(), 0.0)


def sent(confirms: Confirms, count: int) -> list[Flight]:
    flights = [flight(str(number)) for number in range(1, count + 1)]
    for each in flights:
        confirms.sent(each)
    return flights


def done(flights: list[Flight]) -> list[int]:
    return [each.number for each in flights if each.done.done() and each.done.exception() is None]


async def test_an_ack_settles_its_own_number_only() -> None:
    flights = sent(confirms := Confirms(), 3)
    confirms.confirmed(2, multiple=False, taken=True)
    assert done(flights) == [2]
    assert len(confirms) == 2


async def test_an_ack_for_multiple_settles_all_up_to_its_number_that_are_open() -> None:
    flights = sent(confirms := Confirms(), 4)
    confirms.confirmed(2, multiple=False, taken=False)
    confirms.confirmed(3, multiple=True, taken=True)
    assert done(flights) == [1, 3]
    assert isinstance(flights[1].done.exception(), Nacked)
    assert not flights[3].done.done()


async def test_number_0_for_multiple_settles_all() -> None:
    flights = sent(confirms := Confirms(), 3)
    confirms.confirmed(0, multiple=True, taken=False)
    assert [type(each.done.exception()) for each in flights] == [Nacked] * 3


async def test_an_unknown_or_repeated_number_changes_nothing() -> None:
    flights = sent(confirms := Confirms(), 1)
    for _ in range(2):
        confirms.confirmed(1, multiple=False, taken=True)
    confirms.confirmed(7, multiple=False, taken=True)
    assert done(flights) == [1]
    assert len(confirms) == 0


async def test_a_return_fails_the_publish_of_its_token_once_the_confirm_follows() -> None:
    flights = sent(confirms := Confirms(), 3)
    assert confirms.returned("312 NO_ROUTE", flights[1].properties)
    assert not flights[1].done.done()
    confirms.confirmed(3, multiple=True, taken=True)
    assert done(flights) == [1, 3]
    assert isinstance(error := flights[1].done.exception(), Unroutable)
    assert error.reply_text == "312 NO_ROUTE"


async def test_a_return_is_matched_by_the_replay_token_beside_an_older_publish_token() -> None:
    raw = properties(headers={PUBLISH: "of the first publish", REPLAY: "r"}).encode()
    replayed = Flight("", "k", raw, b"", "r", asyncio.get_running_loop().create_future(), 0.0)
    (confirms := Confirms()).sent(replayed)
    assert confirms.returned("312 NO_ROUTE", raw)
    confirms.confirmed(1, multiple=False, taken=True)
    assert isinstance(replayed.done.exception(), Unroutable)


async def test_a_return_without_a_known_token_is_reported() -> None:
    sent(confirms := Confirms(), 1)
    assert not confirms.returned("312 NO_ROUTE", properties(headers={PUBLISH: "other"}).encode())
    assert not confirms.returned("312 NO_ROUTE", properties(headers={PUBLISH: 1}).encode())
    assert not confirms.returned("312 NO_ROUTE", properties().encode())


async def test_the_late_return_of_a_first_try_does_not_fail_the_second_one() -> None:
    first, second = flight("same"), flight("same")
    confirms = Confirms()
    confirms.sent(first)
    first.done.cancel()
    confirms.abandon(first)
    confirms.sent(second)
    assert confirms.returned("312 NO_ROUTE", properties(headers={PUBLISH: "same"}).encode())
    confirms.confirmed(2, multiple=True, taken=True)
    assert done([second]) == [2]


async def test_a_lost_channel_fails_each_open_publish_with_an_exception_of_its_own() -> None:
    flights = sent(confirms := Confirms(), 3)
    confirms.confirmed(1, multiple=False, taken=True)
    confirms.fail_all(lambda: ConnectionLost("gone"))
    errors = [each.done.exception() for each in flights[1:]]
    assert [type(error) for error in errors] == [ConnectionLost] * 2
    assert errors[0] is not errors[1]
    assert len(confirms) == 0


async def test_room_is_bounded_by_messages_and_bytes_and_freed_by_confirm_or_abandonment() -> None:
    confirms = Confirms(max_messages=2, max_bytes=1_000_000)
    flights = sent(confirms, 2)
    assert not confirms.has_room
    confirms.abandon(flights[0])
    confirms.abandon(flights[0])
    assert (confirms.has_room, len(confirms)) == (True, 1)
    confirms.confirmed(2, multiple=True, taken=True)
    assert len(confirms) == 0

    confirms.sent(flight("big", b"x" * 1_000_000))
    assert not confirms.has_room
    confirms.confirmed(3, multiple=False, taken=True)
    assert confirms.has_room
