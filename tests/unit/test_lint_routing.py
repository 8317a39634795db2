"""Where an exchange takes a message: the broker's rules, one by one."""

from __future__ import annotations

import pytest

from tests.support.definitions import VHOST, bind, broker, exchange, queue
from topology.lint.broker import Broker
from topology.lint.fates import held_keys
from topology.lint.keys import ANY, Keys, exactly, topic
from topology.lint.routing import Routing, route


def send(given: Broker, to: str, key: str | Keys) -> Routing:
    keys = key if isinstance(key, frozenset) else frozenset({exactly(key)})
    return route(given, VHOST, to, keys)


def reached(routing: Routing) -> list[str]:
    return [delivery.queue for delivery in routing.deliveries]


def test_the_default_exchange_takes_the_key_for_a_queues_name() -> None:
    given = broker(queue("a"))
    assert reached(send(given, "", "a")) == ["a"]
    missing = send(given, "", "b")
    assert missing.verdict == "lost"
    assert missing.losses[0].reason == "destination_missing"


def test_unknown_keys_at_the_default_exchange_are_undecided() -> None:
    assert send(broker(queue("a")), "", ANY).verdict == "undecided"


def test_a_missing_exchange_loses_everything() -> None:
    (loss,) = send(broker(), "nowhere", "a").losses
    assert (loss.reason, loss.path) == ("exchange_missing", ("exchange 'nowhere' does not exist",))


def test_a_direct_exchange_compares_keys_and_knows_no_wildcards() -> None:
    given = broker(queue("q"), exchange("x"), bind("x", "q", "#"), bind("x", "q", "a"))
    assert reached(send(given, "x", "a")) == ["q"]
    assert reached(send(given, "x", "#")) == ["q"]
    assert send(given, "x", "b").verdict == "lost"


def test_a_topic_exchange_matches_words() -> None:
    given = broker(
        queue("one"),
        queue("two"),
        exchange("x", "topic"),
        bind("x", "one", "a.*"),
        bind("x", "two", "#.b"),
    )
    assert reached(send(given, "x", "a.b")) == ["one", "two"]
    assert reached(send(given, "x", "a.c")) == ["one"]
    assert reached(send(given, "x", "b")) == ["two"]
    assert send(given, "x", "a.b.c").verdict == "lost"


def test_a_fanout_exchange_ignores_keys() -> None:
    given = broker(queue("q"), exchange("x", "fanout"), bind("x", "q", "never looked at"))
    assert reached(send(given, "x", "a")) == ["q"]
    assert send(given, "x", ANY).verdict == "delivered"


def test_two_bindings_to_one_queue_give_one_copy() -> None:
    given = broker(
        queue("q"), exchange("x", "topic"), bind("x", "q", "a"), bind("x", "q", "#"), bind("x", "q", "*")
    )
    assert reached(send(given, "x", "a")) == ["q"]


def test_an_exchange_bound_to_an_exchange_passes_on_what_matches() -> None:
    given = broker(
        queue("q"),
        exchange("one", "topic"),
        exchange("two", "direct"),
        bind("one", "two", "a.#", to="exchange"),
        bind("two", "q", "a.b"),
    )
    (delivery,) = send(given, "one", "a.b").deliveries
    assert delivery.path == (
        "exchange 'one' (topic), key 'a.b'",
        "binding 'a.#' to exchange 'two'",
        "exchange 'two' (direct), key 'a.b'",
        "binding 'a.b' to queue 'q'",
    )
    assert send(given, "one", "a.c").verdict == "lost"


def test_exchanges_bound_in_a_circle_end() -> None:
    given = broker(
        exchange("one", "fanout"),
        exchange("two", "fanout"),
        bind("one", "two", to="exchange"),
        bind("two", "one", to="exchange"),
    )
    assert send(given, "one", "a").verdict == "lost"


class TestAlternateExchange:
    def test_takes_what_no_binding_matches(self) -> None:
        given = broker(
            queue("q"),
            queue("rest"),
            exchange("x", alternate="alt"),
            exchange("alt", "fanout"),
            bind("x", "q", "a"),
            bind("alt", "rest"),
        )
        assert [(one.queue, one.alternate) for one in send(given, "x", "a").deliveries] == [("q", False)]
        assert [(one.queue, one.alternate) for one in send(given, "x", "b").deliveries] == [("rest", True)]
        assert send(given, "x", ANY).verdict == "delivered"

    def test_is_not_asked_when_a_binding_matches_and_leads_nowhere(self) -> None:
        given = broker(
            queue("rest"),
            exchange("x", alternate="alt"),
            exchange("dead end", "direct"),
            exchange("alt", "fanout"),
            bind("x", "dead end", "a", to="exchange"),
            bind("alt", "rest"),
        )
        assert send(given, "x", "a").verdict == "lost"
        wide = send(given, "x", ANY)
        assert wide.verdict == "partial"
        assert [loss.example for loss in wide.losses] == ["a"]

    def test_that_is_missing_catches_nothing(self) -> None:
        (loss,) = send(broker(exchange("x", alternate="gone")), "x", "a").losses
        assert loss.reason == "no_binding"
        assert loss.path[-1] == "exchange 'gone' does not exist"

    def test_may_be_the_default_exchange_which_then_leads_nowhere(self) -> None:
        given = broker(queue("a"), exchange("x", alternate=""), bind("", "a", "a"))
        assert send(given, "x", "a").verdict == "lost"

    def test_may_have_one_of_its_own(self) -> None:
        given = broker(
            queue("q"),
            exchange("x", alternate="y"),
            exchange("y", alternate="z"),
            exchange("z", "fanout"),
            bind("z", "q"),
        )
        assert reached(send(given, "x", "a")) == ["q"]

    def test_of_itself_ends(self) -> None:
        assert send(broker(exchange("x", alternate="x")), "x", "a").verdict == "lost"


def test_a_binding_to_a_queue_that_is_not_there_matches_nothing() -> None:
    given = broker(
        queue("rest"),
        exchange("x", alternate="alt"),
        exchange("alt", "fanout"),
        bind("x", "gone", "a"),
        bind("alt", "rest"),
    )
    assert reached(send(given, "x", "a")) == ["rest"]
    (loss,) = send(broker(exchange("x"), bind("x", "gone", "a")), "x", "a").losses
    assert loss.reason == "destination_missing"


class TestHeadersExchange:
    def test_takes_everything_through_a_binding_without_arguments(self) -> None:
        given = broker(queue("q"), exchange("x", "headers"), bind("x", "q"))
        assert reached(send(given, "x", "a")) == ["q"]

    def test_is_undecided_when_it_looks_at_headers(self) -> None:
        given = broker(queue("q"), exchange("x", "headers"), bind("x", "q", arguments={"kind": "a"}))
        routing = send(given, "x", "a")
        assert (routing.verdict, [one.queue for one in routing.possible]) == ("undecided", ["q"])

    def test_skips_arguments_that_begin_with_x(self) -> None:
        given = broker(queue("q"), exchange("x", "headers"), bind("x", "q", arguments={"x-kind": "a"}))
        assert reached(send(given, "x", "a")) == ["q"]

    def test_matches_nothing_when_any_of_no_headers_is_wanted(self) -> None:
        given = broker(queue("q"), exchange("x", "headers"), bind("x", "q", arguments={"x-match": "any"}))
        assert send(given, "x", "a").verdict == "lost"


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_a_choosing_exchange_gives_each_message_to_one_of_its_queues(kind: str) -> None:
    given = broker(queue("a"), queue("b"), exchange("x", kind), bind("x", "a", "1"), bind("x", "b", "1"))
    routing = send(given, "x", ANY)
    assert routing.verdict == "delivered"
    assert [(one.queue, one.one_of) for one in routing.deliveries] == [("a", True), ("b", True)]


def test_a_delayed_exchange_routes_as_its_inner_type() -> None:
    given = broker(queue("q"), exchange("x", "x-delayed-message", delayed_type="direct"), bind("x", "q", "#"))
    assert send(given, "x", "a").verdict == "lost"


def test_a_type_that_nobody_knows_is_undecided() -> None:
    routing = send(broker(queue("q"), exchange("x", "x-jms-topic"), bind("x", "q", "a")), "x", "a")
    assert routing.verdict == "undecided"


class TestSeveralKeys:
    def test_arrive_in_part(self) -> None:
        given = broker(queue("q"), exchange("x"), bind("x", "q", "a"))
        routing = send(given, "x", frozenset({exactly("a"), exactly("b")}))
        assert routing.verdict == "partial"
        assert [(loss.example, loss.reason) for loss in routing.losses] == [("b", "no_binding")]
        assert routing.deliveries[0].keys == {exactly("a")}

    def test_as_a_pattern_are_cut_to_what_a_binding_takes(self) -> None:
        given = broker(queue("q"), exchange("x", "topic"), bind("x", "q", "*.b"))
        routing = send(given, "x", frozenset({topic("a.*")}))
        assert routing.deliveries[0].keys == {exactly("a.b")}
        assert routing.verdict == "partial"

    def test_as_a_pattern_are_covered_by_several_bindings_together(self) -> None:
        given = broker(
            queue("q"),
            exchange("x", "topic"),
            bind("x", "q", "a"),
            bind("x", "q", "a.*.#"),
            bind("x", "q", "b"),
        )
        assert send(given, "x", frozenset({topic("a.#")})).verdict == "delivered"


class TestManyExchanges:
    """In a row, as nobody builds them: no recursion, and no path without end."""

    def chain(self, length: int) -> Broker:
        return broker(
            *(exchange(f"x{number}", "fanout") for number in range(length)),
            *(bind(f"x{number}", f"x{number + 1}", to="exchange") for number in range(length - 1)),
            queue("q", dead_letter_exchange=f"x{length - 1}"),
            bind(f"x{length - 1}", "q"),
        )

    def test_a_few_hundred_are_followed(self) -> None:
        assert reached(send(self.chain(400), "x0", "a")) == ["q"]

    def test_thousands_are_undecided(self) -> None:
        given = self.chain(3_000)
        assert send(given, "x0", "a").verdict == "undecided"
        assert held_keys(given, given.vhosts[VHOST].queues["q"]) == ANY
