"""One message, followed until it rests. Each rule was seen on RabbitMQ 3.10.8 and 4.3."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.definitions import VHOST, bind, broker, exchange, queue, quorum
from topology.lint.broker import Broker
from topology.lint.definitions import Queue
from topology.lint.settle import LeaveWay, Settled, closes_a_cycle, settle
from topology.lint.target import Target


def leave(given: Broker, name: str, way: LeaveWay = "rejected", key: str = "k") -> Settled:
    return settle(given, VHOST, name, key, way)


def test_without_a_dead_letter_exchange_it_is_gone() -> None:
    assert leave(broker(queue("q")), "q") == Settled(dropped=Counter({"no_dlx": 1}))


def test_it_rests_where_nothing_moves_it() -> None:
    given = broker(
        queue("q", dead_letter_exchange="x"),
        queue("delay", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="end"),
        queue("end"),
        queue("copy"),
        exchange("x", "fanout"),
        bind("x", "delay"),
        bind("x", "copy"),
    )
    assert leave(given, "q") == Settled(resting=Counter(end=1, copy=1))


@pytest.mark.parametrize("dlx", ["x", "missing", ""])
def test_what_has_no_target_is_dropped(dlx: str) -> None:
    given = broker(queue("q", dead_letter_exchange=dlx), exchange("x"))
    assert leave(given, "q").dropped.total() == 1


def once(name: str, **arguments: object) -> Queue:
    return quorum(name, dead_letter_strategy="at-least-once", overflow="reject-publish", **arguments)


@pytest.mark.parametrize("dlx", ["x", "missing", ""])
def test_at_least_once_keeps_it(dlx: str) -> None:
    given = broker(once("q", dead_letter_exchange=dlx), exchange("x"))
    assert leave(given, "q") == Settled(kept=Counter(q=1))


class TestCycle:
    def test_without_a_reject_ends_in_a_drop(self) -> None:
        given = broker(
            queue("a", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="b"),
            queue("b", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="a"),
        )
        assert leave(given, "a", "expired") == Settled(dropped=Counter({"cycle": 1}))

    def test_with_a_reject_comes_back_once_and_rests(self) -> None:
        given = broker(
            queue("work", dead_letter_exchange="", dead_letter_routing_key="retry"),
            queue("retry", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="work"),
        )
        assert leave(given, "work") == Settled(resting=Counter(work=1))
        assert leave(given, "work", "expired") == Settled(dropped=Counter({"cycle": 1}))

    def test_of_one_queue(self) -> None:
        given = broker(queue("q", dead_letter_exchange="", dead_letter_routing_key="q"))
        assert leave(given, "q", "expired") == Settled(dropped=Counter({"cycle": 1}))
        assert leave(given, "q", "rejected") == Settled(resting=Counter(q=1))

    def test_is_kept_by_at_least_once(self) -> None:
        given = broker(
            once("a", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="b"),
            once("b", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="a"),
        )
        assert leave(given, "a", "expired") == Settled(kept=Counter(b=1))

    def test_of_two_delays_has_no_end_before_3_13_when_a_rejection_led_into_it(self) -> None:
        queues = (
            queue("work", dead_letter_exchange="", dead_letter_routing_key="a"),
            queue("a", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="b"),
            queue("b", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="a"),
        )
        [why] = leave(broker(*queues, target=Target(3, 10)), "work").undecided
        assert "still goes on" in why
        assert leave(broker(*queues, target=Target(4, 3)), "work") == Settled(dropped=Counter({"cycle": 1}))

    def test_closes_at_the_last_death_in_the_target(self) -> None:
        assert closes_a_cycle("a", [("b", "expired"), ("a", "expired"), ("c", "rejected")])
        assert not closes_a_cycle("a", [("b", "rejected"), ("a", "expired")])
        assert not closes_a_cycle("a", [("b", "expired"), ("a", "rejected")])
        assert not closes_a_cycle("c", [("b", "expired"), ("a", "expired")])


class TestFullQueue:
    def test_that_rejects_refuses_the_publisher(self) -> None:
        given = broker(queue("q", max_length=1, overflow="reject-publish", dead_letter_exchange=""))
        assert leave(given, "q", "maxlen") == Settled(dropped=Counter({"refused": 1}))

    def test_drops_its_head_into_the_dead_letter_exchange(self) -> None:
        given = broker(queue("q", max_length=1, dead_letter_exchange=""), queue("k"))
        assert leave(given, "q", "maxlen") == Settled(resting=Counter(k=1))

    def test_that_rejects_refuses_a_dead_letter(self) -> None:
        given = broker(
            queue("q", dead_letter_exchange="", dead_letter_routing_key="none"),
            queue("none", max_length=0, overflow="reject-publish"),
            once("p", dead_letter_exchange="", dead_letter_routing_key="none"),
        )
        assert leave(given, "q") == Settled(dropped=Counter({"refused": 1}))
        assert leave(given, "p") == Settled(kept=Counter(p=1))

    def test_of_quorum_type_refuses_only_once_it_is_over_its_limit(self) -> None:
        given = broker(
            queue("q", dead_letter_exchange="", dead_letter_routing_key="none"),
            quorum("none", max_length=0, overflow="reject-publish"),
        )
        assert leave(given, "q") == Settled(resting=Counter(none=1))

    def test_that_gets_more_copies_than_it_has_room_for_is_undecided(self) -> None:
        given = broker(
            queue("q", dead_letter_exchange="amq.fanout"),
            queue("a", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="short"),
            queue("b", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key="short"),
            queue("short", max_length=1),
            bind("amq.fanout", "a"),
            bind("amq.fanout", "b"),
        )
        assert "room" in leave(given, "q").undecided[0]

    def test_of_length_0_passes_everything_on(self) -> None:
        given = broker(
            queue("q", dead_letter_exchange="", dead_letter_routing_key="none"),
            queue("none", max_length=0, dead_letter_exchange="", dead_letter_routing_key="end"),
            queue("end"),
        )
        assert leave(given, "q") == Settled(resting=Counter(end=1))


def test_a_way_that_a_queue_does_not_have_is_undecided() -> None:
    assert leave(broker(queue("q")), "q", "maxlen").undecided
    assert leave(broker(queue("q")), "q", "delivery_limit").undecided
    assert leave(broker(quorum("q"), target=Target(3, 10)), "q", "delivery_limit").undecided
    assert leave(broker(quorum("q")), "q", "delivery_limit") == Settled(dropped=Counter({"no_dlx": 1}))


class TestHeaders:
    given = broker(
        queue("q", dead_letter_exchange="x"),
        queue("all"),
        queue("any"),
        exchange("x", "headers"),
        bind("x", "all", arguments={"kind": "a", "n": 1}),
        bind("x", "any", arguments={"x-match": "any", "kind": "a", "n": 1}),
    )

    def test_that_are_not_known_leave_it_undecided(self) -> None:
        assert settle(self.given, VHOST, "q", "k", "rejected").undecided

    @pytest.mark.parametrize(
        ("headers", "resting"),
        [
            ({"kind": "a", "n": 1}, {"all": 1, "any": 1}),
            ({"kind": "a"}, {"any": 1}),
            ({"kind": "a", "n": True}, {"any": 1}),
            ({"kind": "b"}, {}),
        ],
    )
    def test_decide(self, headers: dict[str, object], resting: dict[str, int]) -> None:
        assert settle(self.given, VHOST, "q", "k", "rejected", headers).resting == resting
