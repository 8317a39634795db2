"""From a delay to a routing key: never early, a bounded lateness, at most five hops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.entities import Entities, compile_topology
from topology.ladder import SIGNIFICANT_BITS, longest_lap_ticks, route, ticks_for
from topology.spec import Ladder, Topology, WorkQueue

LADDER = Ladder()
delays = st.floats(min_value=0, max_value=990, allow_nan=False)


@given(delays)
def test_a_delay_is_never_early_and_at_most_a_sixteenth_and_a_tick_late(delay_s: float) -> None:
    nominal_ms = ticks_for(delay_s, LADDER) * LADDER.tick_ms

    assert nominal_ms >= delay_s * 1000 - 1e-6
    assert nominal_ms <= delay_s * 1000 * 1.0625 + LADDER.tick_ms * 1.0625


@given(delays)
def test_a_delay_takes_at_most_five_hops(delay_s: float) -> None:
    assert ticks_for(delay_s, LADDER).bit_count() <= SIGNIFICANT_BITS


@pytest.mark.parametrize(
    ("delay_s", "ticks"),
    [(0, 0), (0.0001, 1), (0.25, 1), (0.2501, 2), (7.75, 31), (8.0, 32), (8.01, 34), (0.75, 3)],
)
def test_ticks(delay_s: float, ticks: int) -> None:
    assert ticks_for(delay_s, LADDER) == ticks


@pytest.mark.parametrize("delay_s", [-1.0, float("nan"), float("inf")])
def test_a_delay_that_is_none_is_refused(delay_s: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        ticks_for(delay_s, LADDER)


def test_a_delay_beyond_the_top_goes_round_again() -> None:
    longest_s = longest_lap_ticks(LADDER) * LADDER.tick_ms / 1000
    queue = WorkQueue("payments")

    fits = route(queue, longest_s, time_scale=1.0, now_ms=1_000)
    longer = route(queue, 3_600, time_scale=0.5, now_ms=1_000)

    assert fits.due_ms is None
    assert longer.due_ms == 1_000 + 1_800_000
    assert longer.delay_ms == longest_s * 1000


# A model of the broker: topic matching and TTL queues, over the compiled entities.
def matches(pattern: str, key: str) -> bool:
    want, have = pattern.split("."), key.split(".")
    for place, word in enumerate(want):
        if word == "#":
            assert place == len(want) - 1
            return True
        if place >= len(have) or word not in ("*", have[place]):
            return False
    return len(want) == len(have)


def walk(entities: Entities, exchange: str, key: str) -> tuple[list[str], int]:
    """The queues where a message that is published there ends up, and the TTLs it waits for on the way."""
    ends, waited = [], 0
    for binding in entities.bindings:
        if binding.source != exchange or not matches(binding.routing_key, key):
            continue
        if binding.kind == "exchange":
            further, more = walk(entities, binding.destination, key)
        else:
            (queue,) = [queue for queue in entities.queues if queue.name == binding.destination]
            if "x-message-ttl" not in queue.arguments:
                ends.append(queue.name)
                continue
            further, more = walk(entities, str(queue.arguments["x-dead-letter-exchange"]), key)
            more += int(queue.arguments["x-message-ttl"])
        ends += further
        waited += more
    return ends, waited


@given(st.floats(min_value=0, max_value=15, allow_nan=False), st.sampled_from(["a.b", "b", "payments"]))
def test_every_delay_ends_in_its_own_queue_once_after_its_nominal_delay(delay_s: float, name: str) -> None:
    ladder = Ladder(steps=6)
    entities = compile_topology(Topology(tuple(WorkQueue(n, ladder) for n in ("a.b", "b", "payments"))))
    where = route(WorkQueue(name, ladder), delay_s, time_scale=1.0, now_ms=0)

    assert walk(entities, where.exchange, where.routing_key) == ([name], where.delay_ms)
