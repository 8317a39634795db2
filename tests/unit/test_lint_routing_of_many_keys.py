"""What the linter says of many keys at once is true of each: the oracle tries single messages only."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.oracle.topologies import KEYS, PATTERNS, VHOST, definitions
from topology.lint.broker import Broker
from topology.lint.definitions import Definitions
from topology.lint.keys import ANY_PATTERN, exactly, matches, topic
from topology.lint.routing import route
from topology.lint.target import Target

WORDS = ("a", "b", "c", "k", "q")
SINGLE = {*KEYS, *(".".join(words) for length in (1, 2, 3) for words in product(WORDS, repeat=length))}
ASKED = {pattern: topic(pattern) for pattern in PATTERNS} | {"any key": ANY_PATTERN}


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(given=definitions((4, 3)), asked=st.sampled_from(sorted(ASKED)), data=st.data())
def test_what_is_said_of_a_pattern_holds_for_each_of_its_keys(
    given: Definitions, asked: str, data: st.DataObject
) -> None:
    broker = Broker(given, Target(4, 3))
    exchange = data.draw(st.sampled_from(sorted(set(broker.vhosts[VHOST].exchanges) - {""})))
    pattern = ASKED[asked]
    many = route(broker, VHOST, exchange, frozenset({pattern}))
    reached = {delivery.queue for delivery in many.deliveries}
    for key in sorted(key for key in SINGLE if matches(pattern, key)):
        one = route(broker, VHOST, exchange, frozenset({exactly(key)}))
        assert {delivery.queue for delivery in one.deliveries} <= reached, key
        if one.verdict == "lost":
            assert many.losses or many.undecided, key
        if one.verdict == "delivered" and not many.undecided:
            assert many.verdict != "lost", key
        promised = {
            delivery.queue
            for delivery in many.deliveries
            if not delivery.alternate and any(matches(own, key) for own in delivery.keys)
        }
        assert promised <= {delivery.queue for delivery in one.deliveries}, key
    for loss in many.losses:
        assert route(broker, VHOST, exchange, frozenset({exactly(loss.example)})).losses, loss.example
