"""What becomes of the messages that leave a queue, and which keys they can have."""

from __future__ import annotations

import pytest

from tests.support.definitions import VHOST, bind, broker, exchange, queue, quorum
from topology.lint.broker import Broker
from topology.lint.fates import Fate, FateKind, Way, fate, held_keys
from topology.lint.keys import exactly, topic
from topology.lint.target import Target


def of(given: Broker, name: str, way: Way) -> Fate:
    return fate(given, given.vhosts[VHOST].queues[name], way)


def held(given: Broker, name: str) -> set[str]:
    return {str(pattern) for pattern in held_keys(given, given.vhosts[VHOST].queues[name])}


@pytest.mark.parametrize(
    ("arguments", "way", "kind"),
    [
        ({}, "rejected", "dropped"),
        ({}, "expired", "impossible"),
        ({}, "message_expired", "dropped"),
        ({"message_ttl": 1000}, "expired", "dropped"),
        ({"message_ttl": "1000"}, "expired", "impossible"),  # a string: the broker refuses it
        ({"max_length": 10}, "maxlen", "dropped"),
        ({"max_length_bytes": 10}, "maxlen", "dropped"),
        ({"max_length": 10, "overflow": "reject-publish"}, "maxlen", "refused_to_publisher"),
        ({"max_length": 10, "overflow": "reject-publish-dlx"}, "maxlen", "dropped"),
        ({"delivery_limit": 5}, "delivery_limit", "impossible"),  # a classic queue has none
        ({"expires": 1000}, "queue_expiry", "deleted_with_queue"),
        ({}, "queue_expiry", "impossible"),
        ({}, "node_loss", "survives"),
        ({"queue_type": "quorum"}, "delivery_limit", "dropped"),  # 20 by default on 4.x
        ({"queue_type": "quorum", "delivery_limit": -1}, "delivery_limit", "impossible"),
        ({"queue_type": "quorum", "max_length": 1, "overflow": "reject-publish-dlx"}, "maxlen", "dropped"),
        ({"queue_type": "stream"}, "rejected", "impossible"),
        ({"queue_type": "stream", "max_age": "1D"}, "expired", "truncated"),
        ({"dead_letter_exchange": "dlx"}, "rejected", "dead_lettered"),
        ({"dead_letter_exchange": "dlx", "message_ttl": 0}, "expired", "dead_lettered"),
    ],
)
def test_how_messages_leave(arguments: dict[str, object], way: Way, kind: FateKind) -> None:
    given = broker(queue("q", **arguments), queue("dlq"), exchange("dlx", "fanout"), bind("dlx", "dlq"))
    assert of(given, "q", way).kind == kind


def test_before_4_a_quorum_queue_has_no_delivery_limit_of_its_own() -> None:
    given = broker(quorum("q"), target=Target(3, 13))
    assert of(given, "q", "delivery_limit").kind == "impossible"


def test_a_transient_queue_is_lost_on_restart() -> None:
    assert of(broker(queue("q", durable=False)), "q", "node_loss").kind == "lost_on_restart"


def test_the_path_tells_the_cause_and_every_hop() -> None:
    given = broker(
        queue("q", message_ttl=1000, dead_letter_exchange="dlx"),
        exchange("dlx"),
        queue("dlq"),
        bind("dlx", "dlq", "q"),
    )
    assert of(given, "q", "expired").path == (
        "queue 'q' lets a message expire (1000 ms by argument x-message-ttl)",
        "exchange 'dlx' (direct), key 'q'",
        "binding 'q' to queue 'dlq'",
    )


class TestAtLeastOnce:
    def test_keeps_what_has_no_target(self) -> None:
        given = broker(
            quorum(
                "q",
                dead_letter_exchange="gone",
                dead_letter_strategy="at-least-once",
                overflow="reject-publish",
            )
        )
        assert of(given, "q", "rejected").kind == "kept"

    def test_without_reject_publish_loses_it(self) -> None:
        given = broker(quorum("q", dead_letter_exchange="gone", dead_letter_strategy="at-least-once"))
        found = of(given, "q", "rejected")
        assert (found.kind, found.strategy) == ("dead_lettered", "at-most-once")
        assert found.routing is not None
        assert found.routing.verdict == "lost"


class TestKeysHeld:
    def test_come_from_bindings(self) -> None:
        given = broker(
            queue("q"),
            exchange("t", "topic"),
            exchange("d"),
            bind("t", "q", "a.*"),
            bind("d", "q", "#"),
        )
        queue_of = given.vhosts[VHOST].queues["q"]
        assert held_keys(given, queue_of) == {topic("a.*"), exactly("#")}

    def test_are_the_queues_name_where_nothing_is_bound(self) -> None:
        assert held(broker(queue("q")), "q") == {"q"}

    def test_come_with_dead_letters_that_keep_their_key(self) -> None:
        given = broker(
            queue("work", dead_letter_exchange="dlx"),
            queue("retry", dead_letter_exchange=""),
            exchange("dlx", "fanout"),
            bind("dlx", "retry"),
        )
        assert held(given, "retry") == {"work"}
        routing = of(given, "retry", "rejected").routing
        assert routing is not None
        assert [one.queue for one in routing.deliveries] == ["work"]

    def test_come_with_dead_letters_that_take_another_key(self) -> None:
        given = broker(
            queue("work", dead_letter_exchange="dlx", dead_letter_routing_key="dead"),
            queue("dlq"),
            exchange("dlx", "topic"),
            bind("dlx", "dlq", "#"),
        )
        assert held(given, "dlq") == {"dead"}

    def test_are_any_where_a_dead_letter_exchange_gets_no_letter(self) -> None:
        given = broker(
            queue("work", dead_letter_exchange="dlx", dead_letter_routing_key="dead"),
            queue("dlq"),
            exchange("dlx", "topic"),
            bind("dlx", "dlq", "a.#"),
        )
        assert held(given, "dlq") == {"a.#"}

    def test_are_cut_by_the_exchanges_before(self) -> None:
        given = broker(
            queue("q"),
            exchange("events", "topic"),
            exchange("orders", "fanout"),
            bind("events", "orders", "order.#", to="exchange"),
            bind("orders", "q"),
        )
        assert held(given, "q") == {"order.#"}


def test_a_wildcard_that_the_dead_letter_exchange_takes_in_part_is_partly_lost() -> None:
    given = broker(
        queue("q", dead_letter_exchange="dlx"),
        queue("dlq"),
        exchange("events", "topic"),
        exchange("dlx", "topic"),
        bind("events", "q", "order.*"),
        bind("dlx", "dlq", "order.created"),
    )
    routing = of(given, "q", "rejected").routing
    assert routing is not None
    assert routing.verdict == "partial"
