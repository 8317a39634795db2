"""Whatever the definitions hold, linting them ends, always with the same findings."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lint_fixtures import Thing, defined
from topology.lint.codes import CATALOGUE
from topology.lint.definitions import Binding, Exchange, Policy, Queue
from topology.lint.run import lint
from topology.lint.target import SUPPORTED, Target

NAMES = st.sampled_from(["a", "b", "c", "a.dlq", "a.retry", "dlx", "", "amq.direct", "*", "ä", "x\ny"])
KEYS = st.sampled_from(["", "a", "a.b", "#", "*", "a.*", "#.b", "a*"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2**33),
    st.sampled_from(
        ["quorum", "classic", "stream", "at-least-once", "reject-publish", "drop-head", "a", "", "7D"]
    ),
    st.lists(st.integers(), max_size=1),
    st.dictionaries(st.just("a"), st.just(1)),
    NAMES,
)
SETTINGS = (
    "message-ttl",
    "max-length",
    "max-length-bytes",
    "expires",
    "overflow",
    "delivery-limit",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "queue-mode",
    "ha-mode",
    "max-age",
    "alternate-exchange",
)
ARGUMENTS = st.dictionaries(
    st.sampled_from([*(f"x-{key}" for key in SETTINGS), "x-queue-type", "x-max-priority", "x-foo", "foo"]),
    VALUES,
    max_size=5,
)
QUEUES = st.builds(
    Queue, st.just("/"), NAMES, st.booleans(), st.booleans(), st.booleans(), arguments=ARGUMENTS
)
EXCHANGES = st.builds(
    Exchange,
    st.just("/"),
    NAMES,
    st.sampled_from(
        ["direct", "topic", "fanout", "headers", "x-delayed-message", "x-consistent-hash", "odd"]
    ),
    arguments=st.dictionaries(st.sampled_from(["alternate-exchange", "x-delayed-type", "x-foo"]), VALUES),
)
BINDINGS = st.builds(
    Binding,
    st.just("/"),
    NAMES,
    NAMES,
    st.sampled_from(["queue", "exchange"]),
    KEYS,
    st.dictionaries(st.sampled_from(["x-match", "kind", "x-kind"]), VALUES, max_size=2),
)
POLICIES = st.builds(
    Policy,
    st.just("/"),
    NAMES,
    st.sampled_from(["", "a", "^a", "(", "(a+)+$", ".*", "^(?!b)"]),
    st.dictionaries(st.sampled_from(SETTINGS), VALUES, max_size=4),
    st.sampled_from(["all", "queues", "exchanges", "quorum_queues", "nonsense"]),
    st.integers(0, 1),
    st.booleans(),
)
THINGS = st.lists(st.one_of(QUEUES, EXCHANGES, BINDINGS, POLICIES), max_size=14)


@settings(max_examples=60, deadline=None)
@given(THINGS, st.sampled_from(SUPPORTED))
def test_any_definitions_can_be_linted(
    things: list[Queue | Exchange | Binding | Policy], target: Target
) -> None:
    found = lint(defined(*things), target)
    assert found == lint(defined(*things), target)
    assert all(one.code in CATALOGUE and one.message and one.fix and one.path for one in found)
    assert len(set(found)) == len(found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(QUEUES, EXCHANGES, BINDINGS, POLICIES),
        max_size=14,
        unique_by=lambda one: repr(one) if isinstance(one, Binding) else f"{type(one)} {one.name}",
    ).flatmap(lambda things: st.tuples(st.just(things), st.permutations(things))),
    st.sampled_from(SUPPORTED),
)
def test_the_order_in_which_a_broker_exports_them_changes_no_finding(
    orders: tuple[list[Thing], list[Thing]], target: Target
) -> None:
    given_so, or_so = orders
    assert lint(defined(*given_so), target) == lint(defined(*or_so), target)
