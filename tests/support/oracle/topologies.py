"""Random topologies: everything in them is accepted by the broker, and much of it is a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.oracle.drive import WAYS, Drive
from topology.lint.definitions import Binding, Definitions, Exchange, Policy, Queue, VirtualHost

VHOST = "oracle"
QUEUES = ("q", "r", "a.b", "a.c", "a", "a.b.c")
EXCHANGES = ("x", "y", "a.x", "z")
PREDECLARED = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")
KEYS = (*QUEUES, "", "k", "a.k", "*", "#", "a.*", "a..b", "K")
PATTERNS = (*KEYS, "a.#", "#.b", "*.*", "#.*", "*.#", "#.#", "a.*.c", "a.#.c", "*.b.#", "#.a.#", "a*", "a.b#")
# What sets a limit stays small, so that each queue can be driven over it within milliseconds.
TTLS_MS = (5, 0, 1, 20)
LENGTHS = (0, 1, 2)
DELIVERY_LIMITS = (1, 0, 2)
HEADERS = ((), (), (("h", "1"),), (("h", "2"), ("i", "1")), (("i", "1"),))


@dataclass(frozen=True)
class Example:
    """A topology, and what leaves its queues."""

    definitions: Definitions
    drives: tuple[Drive, ...]


def examples(release: tuple[int, int]) -> st.SearchStrategy[Example]:
    """Definitions for a broker of that release (major, minor), with one to three drives per queue."""
    return definitions(release).flatmap(_with_drives)


@st.composite
def definitions(draw: st.DrawFn, release: tuple[int, int]) -> Definitions:
    queue_names = QUEUES[: draw(st.sampled_from((1, 2, 3, 4, 5, 6, 3, 4, 5, 6)))]
    exchange_names = EXCHANGES[: draw(st.integers(0, len(EXCHANGES)))]
    dead_letter_exchanges = ("", "", *exchange_names * 3, *PREDECLARED, "missing")
    queues = tuple(
        Queue(VHOST, name, arguments=draw(_queue_arguments(dead_letter_exchanges, queue_names)))
        for name in queue_names
    )
    exchanges = tuple(
        Exchange(
            VHOST,
            name,
            draw(st.sampled_from(("direct", "topic", "fanout", "topic", "fanout", "headers"))),
            arguments=draw(_alternate(exchange_names)),
        )
        for name in exchange_names
    )
    sources = (*exchange_names * 4, *PREDECLARED)
    binding = _binding(sources, queue_names, exchange_names)
    bindings = draw(st.lists(binding, min_size=draw(st.integers(0, 12)), max_size=20, unique_by=repr))
    count = draw(st.sampled_from((0, 0, 1, 1, 2, 3)))
    policies = [draw(_policy(index, release, dead_letter_exchanges)) for index in range(count)]
    operators = [draw(_operator_policy(index)) for index in range(draw(st.sampled_from((0, 0, 0, 1, 2))))]
    return Definitions(
        "a random topology",
        vhosts=(VirtualHost(VHOST),),
        queues=queues,
        exchanges=exchanges,
        bindings=tuple(bindings),
        policies=(*policies, *operators),
    )


def _with_drives(definitions: Definitions) -> st.SearchStrategy[Example]:
    names = [queue.name for queue in definitions.queues]
    each = [
        st.lists(
            st.builds(
                Drive,
                queue=st.just(name),
                way=st.sampled_from(WAYS),
                # Some as sent through the default exchange.
                key=st.one_of(st.just(name), st.sampled_from((*QUEUES, "k")), st.sampled_from(KEYS)),
                headers=st.sampled_from(HEADERS),
            ),
            min_size=1,
            max_size=4,
            unique_by=lambda drive: (drive.way, drive.key),
        )
        for name in names
    ]
    return st.tuples(*each).map(
        lambda lists: Example(definitions, tuple(drive for one in lists for drive in one))
    )


def _queue_arguments(
    exchanges: tuple[str, ...], queues: tuple[str, ...]
) -> st.SearchStrategy[Mapping[str, object]]:
    quorum = {"x-queue-type": "quorum"}
    at_least_once = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    odd_strategy = st.fixed_dictionaries(
        {},
        optional={
            "x-dead-letter-strategy": st.sampled_from(("at-least-once", "at-most-once")),
            "x-overflow": st.sampled_from(("drop-head", "reject-publish")),
        },
    )
    classic_overflow = _perhaps("x-overflow", ("drop-head", "reject-publish", "reject-publish-dlx"))
    limit = _perhaps("x-delivery-limit", DELIVERY_LIMITS)
    kinds = (
        _together(),
        _together(_own(quorum), limit),
        _together(_own(quorum | at_least_once), limit),
        _together(_own(quorum), limit, odd_strategy),
        _together(_perhaps("x-queue-mode", ("lazy",)), _perhaps("x-max-priority", (3,))),
        _together(_lengths(), classic_overflow),
        _together(_own(quorum), _lengths(), limit, odd_strategy),
    )
    # Most queues let a message rest, or nothing would ever be seen to arrive.
    ttl = st.one_of(_own({}), _own({}), _own({}), _perhaps("x-message-ttl", TTLS_MS))
    kind = st.sampled_from((0, 1, 2, 0, 1, 2, 3, 4, 5, 6)).flatmap(lambda index: kinds[index])
    return _together(kind, ttl, _dead_letters(exchanges, queues))


def _lengths() -> st.SearchStrategy[Mapping[str, object]]:
    of_messages = st.sampled_from(LENGTHS).map(lambda length: {"x-max-length": length})
    return st.one_of(of_messages, of_messages, _own({"x-max-length-bytes": 0}))


def _dead_letters(
    exchanges: tuple[str, ...], queues: tuple[str, ...]
) -> st.SearchStrategy[Mapping[str, object]]:
    # A key without an exchange is refused, hence it comes only beside one.
    keys = _perhaps("x-dead-letter-routing-key", (*queues * 2, "k", *KEYS))
    exchange = st.sampled_from(exchanges).map(lambda name: {"x-dead-letter-exchange": name})
    to_queue = st.sampled_from(queues).map(
        lambda name: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}
    )
    return st.one_of(_together(exchange, keys), _together(exchange, keys), to_queue, _own({}))


def _own(arguments: Mapping[str, object]) -> st.SearchStrategy[Mapping[str, object]]:
    return st.just(arguments)


def _perhaps(name: str, values: Sequence[object]) -> st.SearchStrategy[Mapping[str, object]]:
    return st.one_of(_own({}), st.sampled_from(values).map(lambda value: {name: value}))


def _together(*parts: st.SearchStrategy[Mapping[str, object]]) -> st.SearchStrategy[Mapping[str, object]]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


def _alternate(exchanges: tuple[str, ...]) -> st.SearchStrategy[Mapping[str, object]]:
    some = st.sampled_from((*exchanges, "amq.fanout", "missing")).map(
        lambda name: {"alternate-exchange": name}
    )
    return st.one_of(st.just({}), st.just({}), some)


def _binding(
    sources: tuple[str, ...], queues: tuple[str, ...], exchanges: tuple[str, ...]
) -> st.SearchStrategy[Binding]:
    to_queue = st.tuples(st.just("queue"), st.sampled_from(queues))
    to_exchange = st.tuples(st.just("exchange"), st.sampled_from((*exchanges, "amq.topic", "amq.fanout")))
    return st.tuples(
        st.sampled_from(sources),
        st.one_of(to_queue, to_queue, to_queue, to_exchange),
        # What matches something must not be rare.
        st.one_of(st.sampled_from((*QUEUES, "#", "k")), st.sampled_from(PATTERNS)),
        st.sampled_from(
            (
                {},
                {},
                {},
                {},
                {},
                {"h": "1"},
                {"x-match": "any", "h": "1", "i": "1"},
                {"x-match": "all", "h": "2", "i": "1"},
                {"x-match": "any"},
                {"x-other": "1"},
            )
        ),
    ).map(
        lambda parts: Binding(
            VHOST,
            parts[0],
            parts[1][1],
            "queue" if parts[1][0] == "queue" else "exchange",
            parts[2],
            parts[3],
        )
    )


PATTERNS_OF_POLICIES = (
    ".*",
    "^q$",
    "a",
    "^a\\.",
    "b$",
    "^[qr]",
    "^(a|x)",
    "nothing",
    "",
    "\\.",
    "^a(?!\\.c)",
)


def _policy(index: int, release: tuple[int, int], exchanges: tuple[str, ...]) -> st.SearchStrategy[Policy]:
    apply_to = ["queues", "all", "exchanges"]
    if release >= (3, 12):
        apply_to += ["classic_queues", "quorum_queues", "streams"]
    keys: dict[str, st.SearchStrategy[object]] = {
        "dead-letter-exchange": st.sampled_from(exchanges),
        "dead-letter-routing-key": st.sampled_from(KEYS),
        "message-ttl": st.sampled_from(TTLS_MS),
        "dead-letter-strategy": st.sampled_from(("at-least-once", "at-most-once")),
        "overflow": st.sampled_from(("reject-publish", "drop-head", "reject-publish-dlx")),
        "delivery-limit": st.sampled_from(DELIVERY_LIMITS),
        "max-length": st.sampled_from(LENGTHS),
        "alternate-exchange": st.sampled_from(("x", "y", "amq.fanout", "missing")),
        "queue-mode": st.just("lazy"),
        "max-age": st.just("1h"),
    }
    if release < (4, 0):
        keys["ha-mode"] = st.just("all")
    one = st.sampled_from(sorted(keys)).flatmap(lambda key: keys[key].map(lambda value: {key: value}))
    dead_lettering = st.fixed_dictionaries(
        {"dead-letter-exchange": keys["dead-letter-exchange"]},
        optional={
            key: keys[key]
            for key in (
                "dead-letter-routing-key",
                "message-ttl",
                "dead-letter-strategy",
                "overflow",
                "delivery-limit",
            )
        },
    )
    mixed = st.lists(one, min_size=1, max_size=3).map(_merged)
    return st.builds(
        Policy,
        vhost=st.just(VHOST),
        name=st.just(f"p{index}"),
        pattern=st.sampled_from(PATTERNS_OF_POLICIES),
        definition=st.one_of(dead_lettering, mixed),
        apply_to=st.sampled_from(apply_to),
        # No two alike: which of them wins is not defined.
        priority=st.integers(-1, 1).map(lambda step: step * 10 + index),
    )


def _operator_policy(index: int) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        vhost=st.just(VHOST),
        name=st.just(f"o{index}"),
        pattern=st.sampled_from(PATTERNS_OF_POLICIES),
        definition=st.fixed_dictionaries(
            {},
            optional={
                "message-ttl": st.sampled_from(TTLS_MS),
                "delivery-limit": st.sampled_from(DELIVERY_LIMITS),
                "max-length": st.just(1),
            },
        ).filter(bool),
        apply_to=st.just("queues"),
        priority=st.integers(-1, 1).map(lambda step: step * 10 + index),
        operator=st.just(True),
    )


def _merged(parts: list[dict[str, object]]) -> dict[str, object]:
    return {key: value for part in parts for key, value in part.items()}
