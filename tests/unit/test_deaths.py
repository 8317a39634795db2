"""Reading the broker's death history, and whether two deliveries are one letter."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.small_topology import TOPOLOGY
from topology.deaths import Death, deaths, target_of
from topology.identity import has_identity, letter_key
from topology.spec import Ladder, Topology, WorkQueue
from topology.wire import properties, split

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def death(queue: str = "orders", reason: str = "rejected", **values: Any) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "exchange": "", "routing-keys": ["orders"], "count": 1} | values


def test_the_history_is_read_latest_first() -> None:
    raw = properties(headers={"x-death": [death(time=WHEN, count=2), death("orders.retry.1s", "expired")]})
    assert deaths(raw) == (
        Death("orders", "rejected", "", ("orders",), 2, WHEN),
        Death("orders.retry.1s", "expired", "", ("orders",), 1, None),
    )


@pytest.mark.parametrize(
    "forged",
    ["rejected", 5, None, [], ["x"], [{}], [{"queue": 1, "reason": "x"}], {"queue": "q"}, [{"queue": "q"}]],
)
def test_a_forged_history_is_none(forged: Any) -> None:
    assert deaths(properties(headers={"x-death": forged})) == ()


def test_odd_parts_of_an_entry_do_no_harm() -> None:
    entry = {"queue": "q", "reason": "r", "exchange": 1, "routing-keys": "k", "count": "9", "time": "now"}
    assert deaths(properties(headers={"x-death": [entry]})) == (Death("q", "r", "", (), 1, None),)


@pytest.mark.parametrize(
    ("drained_from", "died_in", "routing_key", "target"),
    [
        ("orders.dlq", "orders", "orders", "orders"),
        ("orders.dlq", "orders.retry.250ms", "0.1.orders", "orders"),
        ("redrive.unrouted.dlq", "orders.retry.500ms", "1.0.orders", "orders"),
        ("theirs.dead", "theirs", "k", "theirs"),
        ("x.dead", "gone.retry.1s", "k", None),
        ("orders.dlq", None, "orders", "orders"),
        ("redrive.unrouted.dlq", None, "0.1.orders", "orders"),
        ("redrive.unrouted.dlq", None, "orders", "orders"),
        ("redrive.unrouted.dlq", None, "0.1.gone", None),
        ("redrive.unrouted.dlq", None, "x.orders", None),
        ("theirs.dead", None, "orders", None),
    ],
)
def test_where_a_letter_goes_back_to(
    drained_from: str, died_in: str | None, routing_key: str, target: str | None
) -> None:
    history = (Death(died_in, "rejected", "", (), 1, None),) if died_in else ()
    assert target_of(TOPOLOGY, drained_from, history, routing_key) == target


@pytest.mark.parametrize(
    ("routing_key", "target"),
    [
        ("2x250.0.1.a.b", "a.b"),
        ("0.1.a.b", "a.b"),
        ("0.1.b", "b"),
        ("b", "b"),
        ("0.1.gone", None),
        ("2.b", None),
    ],
)
def test_a_letter_of_a_shared_ladder_goes_back_to_the_queue_that_its_key_names(
    routing_key: str, target: str | None
) -> None:
    ladder = Ladder(steps=2, shared="slow")
    topology = Topology((WorkQueue("a.b", ladder), WorkQueue("b", ladder)))
    history = (Death("slow.retry.250ms", "expired", "", (), 1, None),)
    assert target_of(topology, "redrive.unrouted.dlq", history, routing_key) == target


def test_a_redelivery_has_the_same_key_whatever_the_counters_say() -> None:
    bare, counted = properties(message_id="m"), properties(message_id="m", headers={"x-delivery-count": 1})
    more = properties(message_id="m", headers={"a": 1, "x-delivery-count": 7, "x-acquired-count": 8})
    assert letter_key("s", bare.encode(), b"b") == letter_key("s", counted.encode(), b"b")
    assert letter_key("s", more.encode(), b"b") == letter_key(
        "s", properties(message_id="m", headers={"a": 1}).encode(), b"b"
    )


@pytest.mark.parametrize(
    ("source", "raw", "body"),
    [
        ("t", properties(message_id="m").encode(), b"b"),
        ("s", properties(message_id="n").encode(), b"b"),
        ("s", properties(message_id="m").encode(), b"c"),
        ("s", properties(message_id="m", headers={"x-death": [death()]}).encode(), b"b"),
        ("s", b"\xff", b"b"),
    ],
)
def test_another_queue_property_or_body_is_another_letter(source: str, raw: bytes, body: bytes) -> None:
    assert letter_key(source, raw, body) != letter_key("s", properties(message_id="m").encode(), b"b")


@pytest.mark.parametrize(
    "headers",
    [None, {}, {"a": 1}, {"x-delivery-count": 1}, {"a": 1, "x-acquired-count": 2}, {"x-death": [death()]}],
)
def test_a_key_is_the_digest_of_what_is_left_without_the_counters(headers: dict[str, object] | None) -> None:
    made = properties(message_id="m")
    if headers is not None:
        made = made._replace(headers=properties(headers=headers).headers or ())
    left = made.without_headers(("x-delivery-count", "x-acquired-count"))
    kept = (left if left.headers else left.without("headers")).encode()
    parts = b"".join(len(part).to_bytes(8, "big") + part for part in (b"s", kept, b"b"))

    assert letter_key("s", made.encode(), b"b") == hashlib.sha256(parts).digest()
    assert letter_key("s", made.encode(), b"b", split(made.encode())) == hashlib.sha256(parts).digest()


@pytest.mark.parametrize(
    ("headers", "message_id", "named"),
    [
        ({}, "m", True),
        ({}, "", False),
        ({}, None, False),
        ({"id": "task"}, None, True),
        ({"redrive-publish": "token"}, None, True),
        ({"redrive-replay": "token"}, None, True),
        ({"id": 5, "other": "x"}, None, False),
    ],
)
def test_what_names_a_message(headers: dict[str, object], message_id: str | None, named: bool) -> None:
    made = (
        properties(headers=headers)
        if message_id is None
        else properties(headers=headers, message_id=message_id)
    )
    assert has_identity(made) is named
