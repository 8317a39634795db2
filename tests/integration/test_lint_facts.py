"""What the linter takes for granted about declarations: the broker accepts and refuses the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.servers import Servers
from tests.support.vhosts import Vhost, fresh_vhost
from topology.lint.arguments import check_exchange, check_policy, check_queue
from topology.lint.broker import Broker
from topology.lint.definitions import Arguments, Definitions, Exchange, Policy, Queue, VirtualHost
from topology.lint.target import Target

NUMBERS: tuple[object, ...] = (0, 1, 5, -1, "5", 1.5, True, None, "", {}, [], 2**31, 2**40, 2**63)
WORDS: tuple[object, ...] = ("nonsense", 5, True, None, "")
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "x-message-ttl": (*NUMBERS, 2**32 - 1, 2**32),
    "x-expires": (*NUMBERS, 2**32 - 1, 2**32),
    "x-max-length": NUMBERS,
    "x-max-length-bytes": NUMBERS,
    "x-max-priority": (*NUMBERS, 255, 256),
    "x-delivery-limit": NUMBERS,
    "x-single-active-consumer": (True, False, "true", 1),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx", *WORDS),
    "x-dead-letter-exchange": ("x", *WORDS),
    "x-dead-letter-strategy": ("at-most-once", "at-least-once", *WORDS),
    "x-queue-mode": ("lazy", "default", *WORDS),
    "x-queue-version": (1, 2, 3, "2"),
    "x-queue-master-locator": ("client-local", "min-masters", "random", *WORDS),
    "x-queue-leader-locator": ("client-local", "balanced", *WORDS),
    "x-max-age": ("1h", "1Y", "5", "5x", "0s", "-1h", *WORDS),
    "x-max-in-memory-length": (0, 5, -1, "5"),
    "x-max-in-memory-bytes": (0, 5, -1, "5"),
    "x-quorum-initial-group-size": (0, 1, "1"),
    "x-initial-cluster-size": (0, 1, "1"),
    "x-stream-max-segment-size-bytes": (0, 1, 1000, -1, "5"),
    "x-stream-filter-size-bytes": (15, 16, 255, 256, "16"),
    "x-consumer-timeout": (0, 5, -1, "5"),
    "x-max-retries": (3,),
    "x-ha-policy": ("all",),
    "x-queue-type": ("classic", "quorum", "stream", *WORDS),
}
POLICY_ONLY: dict[str, tuple[object, ...]] = {
    "ha-mode": ("all", "nonsense"),
    "ha-sync-mode": ("automatic",),
    "alternate-exchange": ("x", 5),
    "queue-master-locator": ("min-masters",),
    "max-priority": (5,),
    "x-queue-type": ("quorum",),
    "x-message-ttl": (5,),
}
NEEDS_PLUGIN = ("x-delayed-message", "x-consistent-hash", "x-random")


@pytest.fixture(scope="module")
def place(servers: Servers) -> Iterator[Vhost]:
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as made:
        yield made


@pytest.fixture(scope="module")
def target(broker_release: tuple[int, int]) -> Target:
    return Target(*broker_release)


def accepted(place: Vhost, path: str, body: dict[str, Any]) -> bool:
    """Whether the broker takes it as it would take it from a definitions file; gone again afterwards."""
    answer: httpx.Response = place.management.put(path, json=body)
    assert answer.is_success or answer.status_code in (400, 500), answer.text
    if answer.is_success:
        deleted = place.management.delete(path)
        assert deleted.is_success or deleted.status_code == 404, "it may have expired by now"
    return answer.is_success


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("name", [*ARGUMENTS, "x-dead-letter-routing-key"])
def test_a_queue_argument_is_refused_where_the_linter_says_so(
    place: Vhost, target: Target, kind: Any, name: str
) -> None:
    values = ARGUMENTS.get(name, ("k", "", 5))
    said, seen = {}, {}
    for value in values:
        arguments: dict[str, object] = {"x-queue-type": kind, name: value}
        written = json.dumps(value)
        problems = check_queue(Queue(place.vhost, "q", arguments=arguments), _type(arguments), target)
        said[written] = not any(problem.refused for problem in problems)
        seen[written] = accepted(
            place, f"/api/queues/{place.vhost}/q", {"durable": True, "arguments": arguments}
        )
    assert said == seen


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"},
        {"x-dead-letter-strategy": "at-least-once", "x-dead-letter-exchange": "x", "x-overflow": "drop-head"},
        {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
        {"x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "x"},
        {"x-max-length": 5, "x-max-priority": 5},
    ],
    ids=str,
)
def test_arguments_together_are_refused_where_the_linter_says_so(
    place: Vhost, target: Target, kind: Any, arguments: dict[str, object]
) -> None:
    whole = {"x-queue-type": kind, **arguments}
    problems = check_queue(Queue(place.vhost, "q", arguments=whole), kind, target)
    seen = accepted(place, f"/api/queues/{place.vhost}/q", {"durable": True, "arguments": whole})
    assert (not any(problem.refused for problem in problems)) == seen


@pytest.mark.parametrize("operator", [False, True], ids=["policy", "operator policy"])
@pytest.mark.parametrize("key", [*(name.removeprefix("x-") for name in ARGUMENTS), *POLICY_ONLY])
def test_a_policy_is_refused_where_the_linter_says_so(
    place: Vhost, target: Target, key: str, operator: bool
) -> None:
    values = POLICY_ONLY.get(key) or ARGUMENTS["x-" + key]
    kind = "operator-policies" if operator else "policies"
    said, seen = {}, {}
    for value in values:
        policy = Policy(place.vhost, "p", "^nothing$", {key: value}, "queues", operator=operator)
        said[json.dumps(value)] = not any(problem.refused for problem in check_policy(policy, target))
        seen[json.dumps(value)] = accepted(
            place,
            f"/api/{kind}/{place.vhost}/p",
            {"pattern": policy.pattern, "definition": policy.definition, "apply-to": "queues", "priority": 0},
        )
    assert said == seen


@pytest.mark.parametrize(
    "apply_to", ["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams", "nonsense"]
)
def test_what_a_policy_may_apply_to_is_what_the_linter_says(
    place: Vhost, target: Target, apply_to: str
) -> None:
    policy = Policy(place.vhost, "p", "^nothing$", {"message-ttl": 5}, apply_to)
    body = {"pattern": policy.pattern, "definition": policy.definition, "apply-to": apply_to, "priority": 0}
    seen = accepted(place, f"/api/policies/{place.vhost}/p", body)
    assert (not any(problem.refused for problem in check_policy(policy, target))) == seen


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        *((kind, {}) for kind in ("direct", "fanout", "topic", "headers", "nonsense", "x-random")),
        ("x-delayed-message", {"x-delayed-type": "direct"}),
        ("x-consistent-hash", {}),
        ("direct", {"alternate-exchange": "x"}),
        ("direct", {"alternate-exchange": 5}),
        ("fanout", {"alternate-exchange": ""}),
        ("topic", {"x-unknown": 1}),
        ("direct", {"hash-header": "h"}),
    ],
    ids=str,
)
def test_an_exchange_is_refused_where_the_linter_says_so(
    place: Vhost, target: Target, kind: str, arguments: dict[str, object]
) -> None:
    seen = accepted(
        place, f"/api/exchanges/{place.vhost}/e", {"type": kind, "durable": True, "arguments": arguments}
    )
    problems = check_exchange(Exchange(place.vhost, "e", kind, arguments=arguments), target)
    if kind in NEEDS_PLUGIN and not seen:
        assert not any(problem.refused for problem in problems), "a plugin may be enabled elsewhere"
    else:
        assert (not any(problem.refused for problem in problems)) == seen


@pytest.mark.parametrize(
    ("durable", "auto_delete", "kind"),
    [
        (durable, auto_delete, kind)
        for durable in (True, False)
        for auto_delete in (True, False)
        for kind in ("classic", "quorum", "stream")
    ],
)
def test_only_replicated_queues_must_be_durable_and_not_auto_delete(
    place: Vhost, durable: bool, auto_delete: bool, kind: str
) -> None:
    """4.3 too takes transient classic queues: deprecated, but permitted by default."""
    refused = kind != "classic" and (auto_delete or not durable)
    body = {"durable": durable, "auto_delete": auto_delete, "arguments": {"x-queue-type": kind}}
    assert (not refused) == accepted(place, f"/api/queues/{place.vhost}/q", body)


@pytest.mark.parametrize("declared_by", ["client", "import"])
@pytest.mark.parametrize(
    "given", [{}, {"x-queue-type": "classic"}, {"x-queue-type": ""}], ids=["no type", "classic", "empty"]
)
def test_a_queue_has_the_type_that_the_linter_says(
    place: Vhost, target: Target, given: dict[str, object], declared_by: str
) -> None:
    """3.10 heeds the vhost's default when a client declares, and not in an import."""
    typed = f"{place.vhost}-typed"
    queue = {"vhost": typed, "name": "q", "durable": True, "auto_delete": False, "arguments": given}
    metadata = {"default_queue_type": "quorum", "description": "", "tags": []}
    imported: dict[str, object] = {"vhosts": [{"name": typed, "metadata": metadata}]}
    path = f"/api/queues/{typed}/q"
    try:
        if declared_by == "import":
            answer = place.management.post("/api/definitions", json={**imported, "queues": [queue]})
        else:
            place.management.post("/api/definitions", json=imported).raise_for_status()
            answer = place.management.put(path, json=queue)
        seen = place.management.get(path).json()["type"] if answer.is_success else None
    finally:
        place.management.delete(f"/api/vhosts/{typed}").raise_for_status()
    written = Queue(typed, "q", arguments=given)
    problems = check_queue(written, "classic", target)
    assert (not any(problem.refused for problem in problems)) == answer.is_success
    if seen is None:
        return
    broker = Broker(
        Definitions("imported", vhosts=(VirtualHost(typed, "quorum"),), queues=(written,)), target
    )
    said = broker.queue_settings(written).type.value
    if declared_by == "client" and not target.imports_default_queue_type and not given:
        assert (said, seen) == ("classic", "quorum")
    else:
        assert said == seen


PATTERNS = (
    *("a", "^a$", "^a\\.", "b$", "", ".*", "^a(?!\\.b)", "(?i)^A", "^.$", "\\Aa", "a{", "^[^.]+$", "^a|^b"),
    *(
        "a.b",
        "a\\.b",
        "^.{3}$",
        "é",
        "^\\w+$",
        "^\\W$",
        "[[:alpha:]]\\.[[:alpha:]]$",
        "^(?<x>a)",
        "^\\p{L}+$",
    ),
)
# Expressions that Python does not have.
UNDECIDED = ("[[:alpha:]]\\.[[:alpha:]]$", "^(?<x>a)", "^\\p{L}+$")
NAMES = ("a", "b", "A", "a.b", "a.b.c", "axb", "é", "-")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_policy_matches_the_names_that_the_linter_says(place: Vhost, target: Target, pattern: str) -> None:
    """The broker's own expressions are PCRE. Exchanges tell their policy at once, queues after seconds."""
    policy = Policy(place.vhost, "p", pattern, {"alternate-exchange": "x"}, "exchanges")
    path = f"/api/policies/{place.vhost}/p"
    body = {"pattern": pattern, "definition": policy.definition, "apply-to": "exchanges", "priority": 0}
    for name in NAMES:
        url = f"/api/exchanges/{place.vhost}/{quote(name)}"
        place.management.put(url, json={"type": "fanout"}).raise_for_status()
    place.management.put(path, json=body).raise_for_status()
    found = place.management.get(f"/api/exchanges/{place.vhost}").raise_for_status().json()
    place.management.delete(path).raise_for_status()
    exchanges = tuple(Exchange(place.vhost, name, "fanout") for name in NAMES)
    broker = Broker(Definitions("p", exchanges=exchanges, policies=(policy,)), target)
    if pattern in broker.bad_patterns:
        assert pattern in UNDECIDED
        return
    said = {one.name for one in exchanges if broker.exchange_settings(one).applied.policy}
    assert said == {one["name"] for one in found if one.get("policy") == "p"} & set(NAMES)


def _type(arguments: Arguments) -> Any:
    kind = arguments["x-queue-type"]
    return kind if kind in ("classic", "quorum", "stream") else "classic"
