"""Small topologies by name, each with what a broker does with one message; tried on RabbitMQ 3.10 and 4.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.support.oracle.drive import Drive
from tests.support.oracle.topologies import VHOST, Example
from topology.lint.definitions import Arguments, Binding, Definitions, Exchange, Policy, Queue, VirtualHost

Release = tuple[int, int]
ANY: Release = (0, 0)
QUORUM: Arguments = {"x-queue-type": "quorum"}
AT_LEAST_ONCE: Arguments = {
    **QUORUM,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@dataclass(frozen=True)
class Known:
    """Attributes:
    rests: queue -> copies.
    kept: queue -> letters that it keeps because it cannot forward them.
    since, before: the RabbitMQ releases for which this holds.
    """

    name: str
    example: Example
    rests: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    since: Release = ANY
    before: Release = (99, 0)

    def holds_for(self, release: Release) -> bool:
        return self.since <= release < self.before


def to(exchange: str, key: str | None = None) -> dict[str, object]:
    """Dead-letter arguments."""
    arguments: dict[str, object] = {"x-dead-letter-exchange": exchange}
    return arguments if key is None else {**arguments, "x-dead-letter-routing-key": key}


def known(
    name: str,
    queues: Mapping[str, Arguments],
    way: Literal["rejected", "expired", "maxlen", "delivery_limit"],
    *,
    rests: Mapping[str, int] | None = None,
    kept: Mapping[str, int] | None = None,
    key: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    exchanges: Mapping[str, str | tuple[str, Arguments]] | None = None,
    bindings: Sequence[tuple[str, str, str] | tuple[str, str, str, Arguments]] = (),
    policies: Sequence[Policy] = (),
    since: Release = ANY,
    before: Release = (99, 0),
) -> Known:
    """The message leaves the first queue. A binding to a name that is no queue is one to an exchange."""
    made = {
        exchange: (kind, {}) if isinstance(kind, str) else kind
        for exchange, kind in (exchanges or {}).items()
    }
    definitions = Definitions(
        name,
        vhosts=(VirtualHost(VHOST),),
        queues=tuple(Queue(VHOST, queue, arguments=arguments) for queue, arguments in queues.items()),
        exchanges=tuple(
            Exchange(VHOST, exchange, kind, arguments=arguments)
            for exchange, (kind, arguments) in made.items()
        ),
        bindings=tuple(
            Binding(
                VHOST,
                source,
                destination,
                "queue" if destination in queues else "exchange",
                pattern,
                arguments[0] if arguments else {},
            )
            for source, destination, pattern, *arguments in bindings
        ),
        policies=tuple(policies),
    )
    first = next(iter(queues))
    drive = Drive(first, way, first if key is None else key, headers)
    return Known(name, Example(definitions, (drive,)), rests or {}, kept or {}, since, before)


def policy(
    definition: Arguments,
    pattern: str = "^work$",
    *,
    name: str = "p",
    priority: int = 0,
    apply_to: str = "queues",
    operator: bool = False,
) -> Policy:
    return Policy(VHOST, name, pattern, definition, apply_to, priority, operator)


DEAD = {"dead": 1}
KNOWN: tuple[Known, ...] = (
    # Routing
    known("the default exchange takes a letter to the queue of its key",
          {"work": to("", "dead"), "dead": {}}, "rejected", rests=DEAD),
    known("the default exchange drops a letter whose key names no queue",
          {"work": to("", "nobody"), "dead": {}}, "rejected"),
    known("a letter without a dead-letter key keeps the key it came with",
          {"work": to("dlx"), "dead": {}}, "rejected", key="a.b", rests=DEAD,
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "a.*")]),
    known("a missing dead-letter exchange drops the letter",
          {"work": to("missing"), "dead": {}}, "rejected"),
    known("wildcards in a direct exchange are literals",
          {"work": to("dlx", "a.b"), "dead": {}}, "rejected",
          exchanges={"dlx": "direct"}, bindings=[("dlx", "dead", "a.*"), ("dlx", "dead", "#")]),
    known("a star needs a word",
          {"work": to("dlx", "a"), "dead": {}}, "rejected",
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "a.*")]),
    known("a hash matches no word at all",
          {"work": to("dlx", "a"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "a.#")]),
    known("the empty key has no words: a star does not match it",
          {"work": to("dlx", ""), "dead": {}}, "rejected",
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "*")]),
    known("the empty key is matched by a hash",
          {"work": to("dlx", ""), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "#")]),
    known("a wildcard inside a word is a literal",
          {"work": to("dlx", "ab"), "dead": {}}, "rejected",
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "a*")]),
    known("a fanout exchange copies whatever the keys of its bindings",
          {"work": to("dlx"), "dead": {}, "copy": {}}, "rejected", rests={"dead": 1, "copy": 1},
          exchanges={"dlx": "fanout"}, bindings=[("dlx", "dead", "x"), ("dlx", "copy", "y")]),
    known("two bindings to one queue make one copy",
          {"work": to("dlx", "a.b"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "topic"}, bindings=[("dlx", "dead", "a.*"), ("dlx", "dead", "#")]),
    known("a headers binding without arguments matches everything",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "headers"}, bindings=[("dlx", "dead", "")]),
    known("a headers binding looks at the message",
          {"work": to("dlx"), "dead": {}, "other": {}}, "rejected", headers=(("h", "1"),), rests=DEAD,
          exchanges={"dlx": "headers"},
          bindings=[("dlx", "dead", "", {"h": "1"}), ("dlx", "other", "", {"h": "2"})]),
    known("a letter goes through exchanges bound to exchanges",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "fanout", "next": "direct"},
          bindings=[("dlx", "next", ""), ("next", "dead", "work")]),
    known("exchanges bound in a ring end",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "fanout", "next": "fanout"},
          bindings=[("dlx", "next", ""), ("next", "dlx", ""), ("next", "dead", "")]),
    # Alternate exchanges
    known("an alternate exchange takes what no binding matches",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": ("direct", {"alternate-exchange": "else"}), "else": "fanout"},
          bindings=[("else", "dead", "")]),
    known("an alternate exchange is not asked when a binding to an exchange matches that leads nowhere",
          {"work": to("dlx"), "dead": {}}, "rejected",
          exchanges={"dlx": ("direct", {"alternate-exchange": "else"}), "else": "fanout", "empty": "fanout"},
          bindings=[("dlx", "empty", "work"), ("else", "dead", "")]),
    known("a missing alternate exchange takes nothing",
          {"work": to("dlx"), "dead": {}}, "rejected",
          exchanges={"dlx": ("direct", {"alternate-exchange": "missing"})}),
    known("an alternate exchange by policy works",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "direct", "else": "fanout"}, bindings=[("else", "dead", "")],
          policies=[policy({"alternate-exchange": "else"}, "^dlx$", apply_to="exchanges")]),
    known("the alternate exchange in the arguments beats the one in a policy",
          {"work": to("dlx"), "dead": {}, "other": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": ("direct", {"alternate-exchange": "else"}), "else": "fanout", "not": "fanout"},
          bindings=[("else", "dead", ""), ("not", "other", "")],
          policies=[policy({"alternate-exchange": "not"}, "^dlx$", apply_to="exchanges")]),
    # Ways to leave
    known("what expires without a dead-letter exchange is gone",
          {"work": {"x-message-ttl": 5}, "dead": {}}, "expired"),
    known("a message's own expiration is cleared by its death",
          {"work": to("", "dead"), "dead": {}}, "expired", rests=DEAD),
    known("a classic queue with reject-publish-dlx dead-letters what it refuses",
          {"work": {"x-max-length": 1, "x-overflow": "reject-publish-dlx", **to("", "dead")}, "dead": {}},
          "maxlen", rests=DEAD),
    known("reject-publish refuses to the publisher, and dead-letters nothing",
          {"work": {"x-max-length": 1, "x-overflow": "reject-publish", **to("", "dead")}, "dead": {}},
          "maxlen"),
    known("a quorum queue takes reject-publish-dlx of a policy for drop-head",
          {"work": {**QUORUM, "x-max-length": 1, **to("", "dead")}, "dead": {}}, "maxlen", rests=DEAD,
          policies=[policy({"overflow": "reject-publish-dlx"})]),
    known("a letter that a full queue refuses is gone",
          {"work": to("", "dead"), "dead": {"x-max-length": 0, "x-overflow": "reject-publish"}}, "rejected"),
    known("the delivery limit dead-letters",
          {"work": {**QUORUM, "x-delivery-limit": 2, **to("", "dead")}, "dead": {}}, "delivery_limit",
          rests=DEAD),
    known("without a limit of its own a quorum queue has one of 20",
          {"work": {**QUORUM, **to("", "dead")}, "dead": {}}, "delivery_limit", rests=DEAD, since=(4, 0)),
    known("a delivery limit of -1 dead-letters at the first return",
          {"work": {**QUORUM, "x-delivery-limit": -1, **to("", "dead")}, "dead": {}}, "delivery_limit",
          rests=DEAD, before=(4, 0)),
    # Cycles
    known("what expires back into its queue is dropped",
          {"work": {"x-message-ttl": 5, **to("", "work")}}, "expired"),
    known("what expires around two queues is dropped when it is back",
          {"work": {"x-message-ttl": 5, **to("", "retry")}, "retry": {"x-message-ttl": 5, **to("", "work")}},
          "expired"),
    known("what is rejected comes back after its delay, for ever",
          {"work": to("", "retry"), "retry": {"x-message-ttl": 5, **to("", "work")}}, "rejected",
          rests={"work": 1}),
    known("what is rejected back into its queue rests there",
          {"work": to("", "work")}, "rejected", rests={"work": 1}),
    known("a loop of three delays ends though a rejection led into it",
          {"work": to("", "a"), "a": {"x-message-ttl": 5, **to("", "b")},
           "b": {"x-message-ttl": 5, **to("", "c")}, "c": {"x-message-ttl": 5, **to("", "a")}}, "rejected"),
    known("what meets its delivery limit does not come back through a delay",
          {"work": {**QUORUM, "x-delivery-limit": 1, **to("", "retry")},
           "retry": {"x-message-ttl": 5, **to("", "work")}}, "delivery_limit"),
    known("of a fanout only the copy that closes a cycle is dropped",
          {"work": {"x-message-ttl": 5, **to("amq.fanout")}, "dead": {}}, "expired", rests=DEAD,
          bindings=[("amq.fanout", "work", ""), ("amq.fanout", "dead", "")]),
    # At-least-once
    known("at-least-once forwards",
          {"work": {**AT_LEAST_ONCE, **to("", "dead")}, "dead": {}}, "rejected", rests=DEAD),
    known("at-least-once keeps a letter that no binding takes",
          {"work": {**AT_LEAST_ONCE, **to("", "nobody")}, "dead": {}}, "rejected", kept={"work": 1}),
    known("at-least-once keeps a letter whose dead-letter exchange is missing",
          {"work": {**AT_LEAST_ONCE, **to("missing")}, "dead": {}}, "expired", kept={"work": 1}),
    known("at-least-once keeps a letter that a full queue refuses",
          {"work": {**AT_LEAST_ONCE, **to("", "dead")},
           "dead": {"x-max-length": 0, "x-overflow": "reject-publish"}}, "rejected", kept={"work": 1}),
    known("at-least-once with drop-head forwards nothing twice and keeps nothing",
          {"work": {**AT_LEAST_ONCE, "x-overflow": "drop-head", **to("", "nobody")}, "dead": {}}, "rejected"),
    known("at-least-once keeps what would close a cycle",
          {"work": {**AT_LEAST_ONCE, "x-message-ttl": 5, **to("", "back")},
           "back": {**AT_LEAST_ONCE, "x-message-ttl": 5, **to("", "work")}}, "expired", kept={"back": 1}),
    known("at-least-once forgets a copy that would close a cycle when another goes on",
          {"work": {**AT_LEAST_ONCE, "x-message-ttl": 5, **to("amq.fanout")}, "dead": {}}, "expired",
          rests=DEAD, bindings=[("amq.fanout", "work", ""), ("amq.fanout", "dead", "")]),
    known("at-least-once keeps a letter of which one copy is refused, and forwards the other",
          {"work": {**AT_LEAST_ONCE, **to("amq.fanout")}, "dead": {},
           "full": {"x-max-length": 0, "x-overflow": "reject-publish"}}, "rejected",
          rests=DEAD, kept={"work": 1},
          bindings=[("amq.fanout", "full", ""), ("amq.fanout", "dead", "")]),
    known("at-least-once keeps a letter to its own queue when the letter itself fills that queue",
          {"work": {**AT_LEAST_ONCE, "x-max-length": 0, **to("", "work")}}, "rejected", kept={"work": 1}),
    known("at-least-once in a policy, its overflow in the arguments",
          {"work": {**QUORUM, "x-overflow": "reject-publish", **to("", "nobody")}}, "rejected",
          kept={"work": 1}, policies=[policy({"dead-letter-strategy": "at-least-once"})]),
    # Policies
    known("an argument's dead-letter exchange goes with a policy's key",
          {"work": to("dlx"), "dead": {}}, "rejected", rests=DEAD,
          exchanges={"dlx": "direct"}, bindings=[("dlx", "dead", "failed")],
          policies=[policy({"dead-letter-exchange": "other", "dead-letter-routing-key": "failed"})]),
    known("one policy applies, not two merged",
          {"work": {}, "dead": {}}, "rejected",
          policies=[policy({"max-length": 9}, name="high", priority=1),
                    policy({"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}, name="low")]),
    known("a policy with a key that a classic queue does not know is passed over whole",
          {"work": {}, "dead": {}}, "rejected",
          policies=[policy({"dead-letter-exchange": "", "dead-letter-routing-key": "dead",
                            "delivery-limit": 5})]),
    known("the next policy holds where one is passed over",
          {"work": {}, "dead": {}}, "rejected", rests=DEAD,
          policies=[policy({"dead-letter-exchange": "missing", "delivery-limit": 5}, name="high", priority=1),
                    policy({"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}, name="low")]),
    known("the shorter of two TTLs holds, of an operator policy too",
          {"work": {"x-message-ttl": 3_600_000, **to("", "dead")}, "dead": {}}, "expired", rests=DEAD,
          policies=[policy({"message-ttl": 5}, operator=True)]),
    known("an operator policy's delivery limit holds where it is smaller",
          {"work": {**QUORUM, "x-delivery-limit": 9, **to("", "dead")}, "dead": {}}, "delivery_limit",
          rests=DEAD, policies=[policy({"delivery-limit": 1}, operator=True)]),
    known("the overflow of the arguments beats a policy's on a classic queue",
          {"work": {"x-max-length": 1, "x-overflow": "drop-head", **to("", "dead")}, "dead": {}}, "maxlen",
          rests=DEAD, policies=[policy({"overflow": "reject-publish"})]),
    known("a policy's overflow beats the arguments' on a quorum queue",
          {"work": {**QUORUM, "x-max-length": 1, "x-overflow": "drop-head", **to("", "dead")}, "dead": {}},
          "maxlen", policies=[policy({"overflow": "reject-publish"})]),
)  # fmt: skip

# On 3.10 each death turns the list of those before it round, so that the rejection stays in front of the
# loop's own deaths and the loop has no end; later it ends after one turn.
LOOP_OF_TWO = known(
    "a loop of two delays that a rejection led into",
    {
        "work": to("", "a"),
        "a": {"x-message-ttl": 5, **to("", "b")},
        "b": {"x-message-ttl": 5, **to("", "a")},
    },
    "rejected",
)
