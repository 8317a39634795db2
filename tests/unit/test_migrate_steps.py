"""What is left to do for a queue, and how a message is packed. No broker."""

from __future__ import annotations

import pytest

from topology.channel import Delivery
from topology.entities import NO_DELIVERY_LIMIT, Entities, Exchange, Queue
from topology.lint.definitions import Exchange as HaveExchange
from topology.lint.definitions import Policy
from topology.lint.definitions import Queue as HaveQueue
from topology.migrate.steps import Work, holding_arguments, steps_left
from topology.migrate.work import exchange_conflicts, left_to_do, obstacles, steps_of
from topology.migrate.wrapping import Outgoing, packed, unpacked
from topology.plan.have import Have
from topology.wire import properties, split

WANT = Queue("q", {"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "q.dlx"})
ALL = ["hold", "divert", "empty", "replace", "return", "refill", "tidy"]


def have(
    *queues: HaveQueue, policies: tuple[Policy, ...] = (), exchanges: tuple[HaveExchange, ...] = ()
) -> Have:
    return Have(
        "4.3.6",
        {each.name: each for each in exchanges},
        {queue.name: queue for queue in queues},
        policies=policies,
    )


def there(
    name: str = "q",
    limit: int = 20,
    *,
    auto_delete: bool = False,
    exclusive: bool = False,
    more: dict[str, object] | None = None,
) -> HaveQueue:
    arguments = WANT.arguments | {"x-delivery-limit": limit} | (more or {})
    return HaveQueue("/", name, True, auto_delete, exclusive, arguments)


@pytest.mark.parametrize(
    ("state", "holding", "stages"),
    [
        ("wanted", False, []),
        ("missing", False, []),  # apply declares it
        ("other", False, ALL),
        ("other", True, ALL),
        ("missing", True, ["replace", "return", "refill", "tidy"]),
        ("wanted", True, ["return", "refill", "tidy"]),
    ],
)
def test_the_brokers_state_tells_what_is_left(state: str, holding: bool, stages: list[str]) -> None:
    found = steps_left(Work(WANT), state, holding=holding)  # type: ignore[arg-type]
    assert [step.stage for step in found] == stages


def test_every_step_says_what_it_does_to_which_queue() -> None:
    texts = [step.describe() for step in steps_left(Work(WANT), "other", holding=False)]
    assert texts[0] == "declare the holding queue q.moving"
    assert texts[3] == "delete q and declare it with the new arguments"
    assert len(set(texts)) == len(ALL)


def test_only_queues_that_differ_or_were_begun_are_migrated() -> None:
    wanted = Entities((), (WANT, Queue("r", WANT.arguments), Queue("s", WANT.arguments)), ())
    found = left_to_do(
        wanted, have(there(), there("r", 5), there("s", 5), there("s.moving", NO_DELIVERY_LIMIT))
    )
    assert [(steps[0].work.queue, steps[0].stage) for steps in found] == [("q", "hold"), ("s", "return")]
    assert [(each.argument, each.have, each.want) for each in found[0][0].work.differences] == [
        ("x-delivery-limit", 20, 5)
    ]


def test_the_holding_queue_forgets_nothing_and_dead_letters_as_the_queue_does() -> None:
    # Without reject-publish, at-least-once would be at-most-once.
    safely = {
        "x-dead-letter-exchange": "q.dlx",
        "x-dead-letter-routing-key": "q",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    want = Queue("q", WANT.arguments | safely | {"x-message-ttl": 500})
    assert holding_arguments(want) == safely | {
        "x-queue-type": "quorum",
        "x-delivery-limit": NO_DELIVERY_LIMIT,
    }


@pytest.mark.parametrize(
    ("queue", "consumers", "words"),
    [
        (there(auto_delete=True), 0, "it is auto-delete"),
        (there(exclusive=True), 0, "it is exclusive to a connection"),
        (there(more={"x-queue-type": "stream"}), 0, "it is a stream"),
        (there(more={"x-single-active-consumer": True}), 2, "its 2 consumers"),
    ],
)
def test_what_cannot_be_done_safely_is_said(queue: HaveQueue, consumers: int, words: str) -> None:
    broker = have(queue)
    (reason,) = obstacles(steps_of(WANT, broker), broker, consumers)
    assert words in reason


def test_no_obstacle_where_there_is_none() -> None:
    broker = have(
        there(),
        policies=(
            Policy("/", "elsewhere", "^other", {"message-ttl": 1}, "all", 0, False),
            Policy("/", "harmless", ".*", {"ha-mode": "all"}, "all", 0, False),
            Policy("/", "classic", ".*", {"max-length": 1}, "classic_queues", 0, False),
        ),
    )
    assert list(obstacles(steps_of(WANT, broker), broker, consumers=3)) == []


def test_an_operator_policy_that_forgets_is_an_obstacle() -> None:
    broker = have(there(), policies=(Policy("/", "cap", "", {"max-length": 9}, "queues", 0, True),))
    (reason,) = obstacles(steps_of(WANT, broker), broker, consumers=0)
    assert "policy 'cap' would apply to q.moving" in reason


def test_an_exchange_of_another_type_is_left_to_the_operator() -> None:
    wanted = Entities((Exchange("q.dlx", "topic"),), (), ())
    found = have(exchanges=(HaveExchange("/", "q.dlx", "direct", True, False, False, {}),))
    (line,) = exchange_conflicts(wanted, found)
    assert "exchange q.dlx: type 'direct' -> 'topic'" in line


def delivered(
    raw: bytes, key: str = "a.\udcff", exchange: str = "exchange", body: bytes = b"body"
) -> Delivery:
    return Delivery(1, False, exchange, key, "tag", raw, body)


def there_and_back(raw: bytes) -> Outgoing:
    held = packed(delivered(raw), "h")
    return unpacked(delivered(held.properties, "h", "", held.body), "me")


def test_a_message_comes_back_with_its_bytes_and_its_routing_key() -> None:
    raw = properties(
        headers={"f": 0.1, "n": 2**40, "CC": ["x"]}, expiration="5", priority=9, user_id="me"
    ).encode()
    outgoing = packed(delivered(raw), "q.moving")
    wrapper = split(outgoing.properties)

    back = unpacked(delivered(outgoing.properties, "q.moving", ""), "me")

    assert (outgoing.routing_key, outgoing.body) == (b"q.moving", b"body")
    assert (wrapper.expiration, wrapper.user_id, wrapper.delivery_mode) == (None, None, 2)
    assert wrapper.get_header("CC") is None
    assert (back.routing_key, back.properties, back.body) == (b"a.\xff", raw, b"body")


def test_what_came_through_an_exchange_goes_on_as_it_came() -> None:
    raw = properties(headers={"redrive-attempt": "1.2"}).encode()
    back = unpacked(delivered(raw, "0.1.q"), "me")
    assert (back.routing_key, back.properties) == (b"0.1.q", raw)


def test_delivery_counters_and_a_strangers_user_id_do_not_come_back() -> None:
    raw = properties(headers={"x-delivery-count": 3, "a": 1}, user_id="other").encode()
    back = there_and_back(raw)
    assert back.properties == properties(headers={"a": 1}).encode()


def test_a_table_that_held_only_counters_does_not_come_back() -> None:
    raw = properties(headers={"x-acquired-count": 1}, app_id="a").encode()
    assert there_and_back(raw).properties == properties(app_id="a").encode()


def test_properties_that_fill_a_frame_go_before_the_body() -> None:
    raw = properties(headers={"trace": "x" * 130_000}).encode()
    assert len(packed(delivered(raw), "h").properties) < 1_000
    assert there_and_back(raw) == Outgoing(b"a.\xff", raw, b"body")


@pytest.mark.parametrize("moved", [b"\xff\xff forged", 2])
def test_a_stranger_who_uses_our_headers_gets_them_back(moved: object) -> None:
    raw = properties(headers={"redrive-moved": moved, "redrive-moved-key": b"other"}).encode()
    assert unpacked(delivered(raw), "me") == Outgoing(b"a.\xff", raw, b"body")
