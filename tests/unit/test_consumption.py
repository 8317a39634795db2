"""When a queue counts as having consumed what was sent to it."""

from __future__ import annotations

from dlq_consumer.consumption import Quiet
from tests.support.small_topology import TOPOLOGY
from topology.emptiness import where_it_may_wait


def test_a_queue_is_quiet_for_as_long_as_every_look_found_it_and_its_dead_letters_empty() -> None:
    quiet = Quiet()
    places = {"a": ("a.dlq",), "b": ("b.dlq",)}
    all_empty = {"a", "a.dlq", "b", "b.dlq"}
    assert quiet.look(places, all_empty, 100.0) == {"a": 0.0, "b": 0.0}
    assert quiet.look(places, all_empty - {"b.dlq"}, 105.0) == {"a": 5.0}
    assert quiet.look(places, all_empty, 110.0) == {"a": 10.0, "b": 0.0}


def test_a_queue_that_was_not_asked_about_begins_anew() -> None:
    quiet = Quiet()
    quiet.look({"a": ()}, {"a"}, 100.0)
    quiet.look({}, (), 110.0)
    assert quiet.look({"a": ()}, {"a"}, 120.0) == {"a": 0.0}


def test_a_message_may_also_wait_on_the_ladder_of_its_work_queue() -> None:
    assert where_it_may_wait(TOPOLOGY, "orders") == (
        "orders.dlq", "orders.retry.250ms", "orders.retry.500ms",
    )  # fmt: skip
    assert where_it_may_wait(TOPOLOGY, "theirs") == ()
