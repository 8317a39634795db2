"""Dead letters that come back: dropped when nobody rejected on the way, endless when somebody did."""

from __future__ import annotations

from tests.support.definitions import bind, broker, exchange, queue, quorum
from topology.lint.cycles import cycles
from topology.lint.definitions import Queue
from topology.lint.target import Target


def work_and_retry(kind: str = "classic") -> list[Queue]:
    return [
        queue("work", queue_type=kind, dead_letter_exchange="", dead_letter_routing_key="retry"),
        queue(
            "retry",
            dead_letter_exchange="",
            dead_letter_routing_key="work",
            message_ttl=1000,
        ),
    ]


def test_reject_and_retry_is_endless() -> None:
    (cycle,) = cycles(broker(*work_and_retry()))
    assert (cycle.kind, cycle.queues, cycle.loop) == ("rejection", ("retry", "work"), ("retry", "work"))
    assert cycle.path == (
        "queue 'retry' lets a message expire (1000 ms by argument x-message-ttl)",
        "default exchange, key 'work'",
        "queue 'work'",
        "queue 'work' rejects a message",
        "default exchange, key 'retry'",
        "queue 'retry'",
    )


def test_a_delivery_limit_makes_it_automatic() -> None:
    found = cycles(broker(*work_and_retry(kind="quorum")))
    assert [(cycle.kind, cycle.by_delivery_limit) for cycle in found] == [
        ("automatic", True),
        ("rejection", False),
    ]
    before = cycles(broker(*work_and_retry(kind="quorum"), target=Target(3, 13)))
    assert [cycle.kind for cycle in before] == ["rejection"]


def test_queues_that_only_time_moves_are_an_automatic_cycle() -> None:
    names = ["a", "b", "c"]
    given = broker(
        *(
            queue(name, message_ttl=1, dead_letter_exchange="x", dead_letter_routing_key=following)
            for name, following in zip(names, ["b", "c", "a"], strict=True)
        ),
        exchange("x"),
        *(bind("x", name, name) for name in names),
    )
    automatic, endless = cycles(given)
    assert (automatic.kind, automatic.loop, automatic.by_delivery_limit) == (
        "automatic",
        ("a", "b", "c"),
        False,
    )
    assert endless.kind == "rejection"
    assert endless.path[0] == "queue 'a' rejects a message"


def test_reject_publish_lets_nothing_out_of_a_full_queue() -> None:
    def full(overflow: str) -> list[str]:
        return [
            cycle.kind
            for cycle in cycles(
                broker(
                    queue(
                        "q",
                        max_length=1,
                        overflow=overflow,
                        dead_letter_exchange="",
                        dead_letter_routing_key="q",
                    )
                )
            )
        ]

    assert full("drop-head") == ["automatic", "rejection"]
    assert full("reject-publish") == ["rejection"]


def test_a_queue_may_dead_letter_to_itself() -> None:
    (cycle,) = cycles(broker(queue("dlq", dead_letter_exchange="", dead_letter_routing_key="dlq")))
    assert cycle.loop == ("dlq",)


def test_a_way_back_needs_the_right_key() -> None:
    """Both pass through `delay`, but what `a` sends there goes on to `b`, and `b` sends nothing back."""
    given = broker(
        queue("a", dead_letter_exchange="delays", dead_letter_routing_key="b"),
        queue("b"),
        queue("delay", message_ttl=1, dead_letter_exchange=""),
        exchange("delays", "fanout"),
        bind("delays", "delay"),
    )
    assert cycles(given) == ()


def test_keys_are_kept_on_the_way_through_a_headers_exchange() -> None:
    """25 work queues and one delay queue that sends each letter back by its key: one cycle."""
    names = [f"work.{number}" for number in range(25)]
    given = broker(
        *(queue(name, dead_letter_exchange="delayed", dead_letter_routing_key=name) for name in names),
        queue("delay", message_ttl=15_000, dead_letter_exchange=""),
        exchange("delayed", "headers"),
        bind("delayed", "delay"),
    )
    (cycle,) = cycles(given)
    assert cycle.queues == ("delay", *sorted(names))
    assert len(cycle.loop) == 2


def test_loops_that_share_queues_in_a_row_are_one_cycle() -> None:
    given = broker(
        queue("w1", dead_letter_exchange="first"),
        queue("w3", dead_letter_exchange="second"),
        queue("w2", dead_letter_exchange="both"),
        *(queue(name, message_ttl=1, dead_letter_exchange="") for name in ("delay1", "delay2")),
        *(exchange(name, "fanout") for name in ("first", "both", "second")),
        bind("first", "delay1"),
        bind("both", "delay1"),
        bind("both", "delay2"),
        bind("second", "delay2"),
    )
    assert [cycle.queues for cycle in cycles(given)] == [("delay1", "delay2", "w1", "w2", "w3")]


def test_cycles_that_share_no_queue_are_told_apart() -> None:
    given = broker(
        *(
            part
            for name in ("a", "b")
            for part in (
                queue(name, dead_letter_exchange="", dead_letter_routing_key=f"{name}.retry"),
                queue(f"{name}.retry", message_ttl=1, dead_letter_exchange="", dead_letter_routing_key=name),
            )
        )
    )
    assert [cycle.queues for cycle in cycles(given)] == [("a", "a.retry"), ("b", "b.retry")]


def test_a_chain_of_thousands_of_queues_that_closes_is_one_cycle() -> None:
    count = 3_000
    given = broker(
        *(
            quorum(f"q{number}", dead_letter_exchange="", dead_letter_routing_key=f"q{(number + 1) % count}")
            for number in range(count)
        ),
        target=Target(3, 10),
    )
    (cycle,) = cycles(given)
    assert len(cycle.loop) == count
