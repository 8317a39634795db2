"""Keys followed through chains of queues that each look at one word: the number of patterns stays small."""

from __future__ import annotations

from tests.support.definitions import VHOST, bind, broker, exchange, queue
from topology.lint.broker import Broker
from topology.lint.cycles import cycles
from topology.lint.definitions import Binding, Exchange, Queue
from topology.lint.fates import fate
from topology.lint.letters import Letters

STAGES = 10


def binary(*, closed: bool) -> Broker:
    """Stage n has a queue for each of two words at place n of the key; the last leads back or to an end."""
    parts: list[Queue | Exchange | Binding] = []
    for stage in range(STAGES):
        following = f"x{stage + 1}" if stage + 1 < STAGES else "x0" if closed else "end"
        parts.append(exchange(f"x{stage}", "topic"))
        for word in ("a", "b"):
            name = f"q{stage}{word}"
            rest = ".".join("*" * (STAGES - stage - 1))
            key = ".".join([*("*" * stage), word, *([rest] if rest else [])])
            parts += [
                queue(name, dead_letter_exchange=following, message_ttl=1),
                bind(f"x{stage}", name, key),
            ]
    parts += [
        queue("start", dead_letter_exchange="x0"),
        exchange("in", "topic"),
        bind("in", "start", ".".join(["a", *("*" * (STAGES - 1))])),
        exchange("end", "topic"),
        queue("last"),
        bind("end", "last", "a.#"),
    ]
    return broker(*parts)


def test_a_binary_chain_does_not_double_the_patterns_at_every_step() -> None:
    given = binary(closed=False)
    letters = given.derived(Letters)
    assert letters.unsure(given.vhosts[VHOST].queues[f"q{STAGES - 2}a"])
    assert max(len(letters.held(one)) for one in given.vhosts[VHOST].queues.values()) < 2 ** (STAGES - 3)


def test_no_loss_is_told_of_keys_that_widening_made_up() -> None:
    """Every key begins with `a`; together they are told as beginning with any word."""
    given = binary(closed=False)
    last = given.vhosts[VHOST].queues[f"q{STAGES - 1}a"]
    assert given.derived(Letters).unsure(last)
    routing = fate(given, last, "expired").routing
    assert routing is not None
    assert (routing.losses, [one.queue for one in routing.deliveries]) == ((), ["last"])


def test_a_cycle_through_widened_patterns_is_found() -> None:
    automatic, endless = cycles(binary(closed=True))
    everything = tuple(sorted(f"q{stage}{word}" for stage in range(STAGES) for word in "ab"))
    assert (automatic.kind, endless.kind) == ("automatic", "rejection")
    assert endless.queues == everything
    assert len(endless.loop) == STAGES
