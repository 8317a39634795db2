"""`topology plan` against a real broker: through its management API, and over AMQP alone."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.support.planned import SMALL, TALLER, bound, exported, planned, policy, topology, user
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import Entities, Queue, compile_topology
from topology.ladder import routing_key
from topology.names import step
from topology.plan.compare import COMPARED
from topology.plan.probe import (
    IMPOSSIBLE,
    IMPOSSIBLE_EXCHANGE_ARGUMENT,
    IMPOSSIBLE_QUEUE_ARGUMENT,
    probe,
)
from topology.spec import Topology

ENTITIES = compile_topology(SMALL)
both_ways = pytest.mark.parametrize("management", [True, False], ids=["management", "amqp"])


def applied(vhost: Vhost) -> None:
    apply(AmqpAddress.parse(vhost.amqp_url), ENTITIES)


def of(plan: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    return [change for change in plan["changes"] if change["kind"] in kinds]


@both_ways
def test_an_empty_vhost_lacks_everything_and_looking_makes_nothing(vhost: Vhost, management: bool) -> None:
    before = exported(vhost)

    done = topology(vhost, "plan", management=management)

    assert done.returncode == 3
    assert "create queue jobs.dlq\n" in done.stdout
    assert "Run: topology apply" in done.stderr
    assert exported(vhost) == before


@both_ways
def test_after_apply_there_is_nothing_to_do(vhost: Vhost, management: bool) -> None:
    applied(vhost)
    before = exported(vhost)

    done = topology(vhost, "plan", management=management)

    assert done.returncode == 0, done.stdout
    assert "plan: nothing to do" in done.stdout
    assert exported(vhost) == before


def test_without_the_management_api_it_says_what_it_did_not_see(vhost: Vhost) -> None:
    applied(vhost)
    with vhost.channel() as channel:
        channel.queue_unbind("jobs.dlq", "jobs.dlx", "jobs")

    unseen, seen = planned(vhost, management=False), planned(vhost)

    assert unseen["changes"] == []
    assert unseen["not_seen"][0] == f"{len(ENTITIES.bindings)} bindings: only the management API tells them"
    assert [change["name"] for change in of(seen, "create")] == ["jobs.dlx → jobs.dlq (jobs)"]
    assert seen["not_seen"] == []


@dataclass(frozen=True)
class Redeclared:
    """Somebody declared an entity of ours in another way."""

    entity: str
    name: str
    declare: Callable[[Any], object]
    says: tuple[str, ...]
    before: tuple[int, int] = (99, 0)


STEP = "jobs.retry.250ms"
DECLARED = {queue.name: dict(queue.arguments) for queue in ENTITIES.queues}
CASES = {
    "ttl 30,000 where 60,000 is wanted": Redeclared(
        "queue",
        STEP,
        lambda channel: channel.queue_declare(
            "jobs.retry.250ms",
            durable=True,
            arguments=DECLARED["jobs.retry.250ms"] | {"x-message-ttl": 30_000},
        ),
        ("x-message-ttl: 30,000 -> 250",),
    ),
    "a ttl too many": Redeclared(
        "queue",
        "jobs",
        lambda channel: channel.queue_declare(
            "jobs", durable=True, arguments=DECLARED["jobs"] | {"x-message-ttl": 30_000, "x-max-length": 9}
        ),
        ("x-message-ttl: 30,000 -> none", "x-max-length: 9 -> none"),
    ),
    "a bare dead-letter queue": Redeclared(
        "queue",
        "jobs.dlq",
        lambda channel: channel.queue_declare("jobs.dlq", durable=True),
        ("x-queue-type: classic -> quorum", "x-delivery-limit: none -> 2,000,000,000"),
    ),
    "classic where quorum is wanted": Redeclared(
        "queue",
        "jobs",
        lambda channel: channel.queue_declare(
            "jobs", durable=True, arguments={"x-queue-type": "classic", "x-dead-letter-exchange": "jobs.dlx"}
        ),
        (
            "x-queue-type: classic -> quorum",
            "x-delivery-limit: none -> 20",
            "x-dead-letter-strategy: none -> at-least-once",
            "x-dead-letter-routing-key: none -> jobs",
            "x-overflow: none -> reject-publish",
        ),
    ),
    "a direct exchange that is a topic": Redeclared(
        "exchange",
        "jobs.dlx",
        lambda channel: channel.exchange_declare("jobs.dlx", "topic", durable=True),
        ("type: topic -> direct", "alternate-exchange: none -> redrive.unrouted"),
    ),
    "an internal exchange that does not last": Redeclared(
        "exchange",
        "jobs.due",
        lambda channel: channel.exchange_declare("jobs.due", "topic", internal=True),
        ("durable: false -> true", "internal: true -> false"),
    ),
    "a transient queue": Redeclared(
        "queue",
        "jobs.dlq",
        lambda channel: channel.queue_declare("jobs.dlq", durable=False),
        ("durable: false -> true", "x-queue-type: classic -> quorum"),
        before=(4, 3),
    ),
}


@both_ways
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_declared_in_another_way_is_a_conflict_and_nothing_is_touched(
    vhost: Vhost, broker_release: tuple[int, int], case: Redeclared, management: bool
) -> None:
    if broker_release >= case.before:
        pytest.skip("this broker refuses such a queue")
    with vhost.channel() as channel:
        case.declare(channel)
    if case.entity == "queue":
        vhost.publish(case.name, b"kept")
    before = exported(vhost)

    plan = topology(vhost, "plan", management=management)
    apply = topology(vhost, "apply", management=management)

    assert (plan.returncode, apply.returncode) == (4, 4), plan.stderr + apply.stderr
    for text in (plan.stdout, apply.stderr):
        block = text[text.index(f"CONFLICT {case.entity} {case.name}") :]
        for line in case.says:
            assert f"\n    {line}\n" in block, text
    assert "topology migrate" in plan.stderr
    assert "topology migrate" in apply.stderr
    assert exported(vhost) == before, "a conflict changes nothing, missing entities included"
    if case.entity == "queue":
        assert vhost.depth(case.name) == 1


@both_ways
def test_every_conflict_is_told_not_only_the_first(vhost: Vhost, management: bool) -> None:
    with vhost.channel() as channel:
        channel.queue_declare("jobs.dlq", durable=True)
        channel.queue_declare("jobs", durable=True)

    refused = topology(vhost, "apply", management=management)

    assert refused.returncode == 4
    assert "2 conflicts" in refused.stderr
    assert "CONFLICT queue jobs.dlq" in refused.stderr
    assert "CONFLICT queue jobs\n" in refused.stderr


@both_ways
def test_another_time_scale_is_guessed(vhost: Vhost, management: bool) -> None:
    applied(vhost)

    mixed = topology(vhost, "plan", management=management, REDRIVE_TIME_SCALE="0.5")
    refused = topology(vhost, "apply", management=management, REDRIVE_TIME_SCALE="0.5")

    assert (mixed.returncode, refused.returncode) == (4, 4)
    assert "jobs.retry.250ms: declared with another REDRIVE_TIME_SCALE?" in mixed.stdout
    assert "x-message-ttl: 250 -> 125" in refused.stderr


@both_ways
def test_a_queue_that_another_connection_holds_exclusively_is_a_conflict(
    vhost: Vhost, management: bool
) -> None:
    with vhost.channel() as channel:
        channel.queue_declare("jobs", exclusive=True)
        plan = planned(vhost, management=management)

    (conflict,) = of(plan, "conflict")
    assert conflict["name"] == "jobs"
    assert {"argument": "exclusive", "have": True, "want": False} in conflict["differences"]


VALUES: dict[str, object] = {
    "x-dead-letter-exchange": "a",
    "x-dead-letter-routing-key": "b",
    "x-dead-letter-strategy": "at-least-once",
    "x-delivery-limit": 3,
    "x-expires": 10**8,
    "x-max-in-memory-bytes": 5,
    "x-max-in-memory-length": 5,
    "x-max-length": 5,
    "x-max-length-bytes": 5,
    "x-max-priority": 5,
    "x-message-ttl": 5000,
    "x-overflow": "reject-publish",
    "x-queue-leader-locator": "client-local",
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-quorum-initial-group-size": 1,
    "x-single-active-consumer": True,
}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_over_amqp_alone_each_argument_is_told_and_no_queue_is_made(vhost: Vhost, kind: str) -> None:
    """Also one that nobody wants, and one that is wanted and not there."""
    assert COMPARED - VALUES.keys() == {"x-queue-type", "x-queue-master-locator"}, (
        "the latter is refused by 4.3"
    )
    address, base = AmqpAddress.parse(vhost.amqp_url), {"x-queue-type": kind, "x-dead-letter-exchange": "a"}
    accepted = {}
    for argument, value in VALUES.items():
        with connection(address, "test") as opened:
            try:
                opened.channel().queue_declare(argument, durable=True, arguments=base | {argument: value})
            except ChannelClosedByBroker:
                continue  # not of this type
        accepted[argument] = value
    assert len(accepted) > 8
    before = exported(vhost)

    bare = Entities((), tuple(Queue(name, base) for name in (*accepted, "missing")), ())  # type: ignore[arg-type]
    have = probe(address, bare)

    assert {name: queue.arguments for name, queue in have.queues.items()} == {
        argument: base | {argument: value} for argument, value in accepted.items()
    }
    assert have.unseen == frozenset()
    assert exported(vhost) == before


def test_the_declares_that_ask_for_arguments_make_nothing_where_the_entity_has_gone(vhost: Vhost) -> None:
    """As when somebody deletes it between the passive declare and this one."""
    before = exported(vhost)
    address = AmqpAddress.parse(vhost.amqp_url)
    wanted = [*ENTITIES.queues, Queue("classic", {"x-queue-type": "classic"})]
    with connection(address, "test") as opened:
        for queue in wanted:
            arguments = {**queue.arguments, IMPOSSIBLE_QUEUE_ARGUMENT: IMPOSSIBLE}
            with pytest.raises(ChannelClosedByBroker, match=r"406.*invalid arg"):
                opened.channel().queue_declare(queue.name, durable=True, arguments=arguments)
        for exchange in ENTITIES.exchanges:
            arguments = {IMPOSSIBLE_EXCHANGE_ARGUMENT: IMPOSSIBLE}
            with pytest.raises(ChannelClosedByBroker, match=r"406.*invalid type"):
                opened.channel().exchange_declare(
                    exchange.name, exchange.type, durable=True, arguments=arguments
                )
    assert exported(vhost) == before


def test_over_amqp_alone_what_the_user_may_not_configure_is_not_seen(vhost: Vhost) -> None:
    applied(vhost)
    with user(vhost, tags="", configure="^jobs$") as limited:
        plan = planned(limited, management=False)

    assert plan["changes"] == []
    assert any(words.startswith("jobs.dlq: its arguments") for words in plan["not_seen"])
    assert not any(words.startswith("jobs: ") for words in plan["not_seen"])


def test_a_policy_of_somebody_else_that_limits_our_queues_is_a_warning(vhost: Vhost) -> None:
    applied(vhost)
    policy(vhost, "limits", pattern="^jobs", definition={"max-length": 1000})
    policy(vhost, "old", pattern=".*", definition={"message-ttl": 9000}, operator=True)

    plan = planned(vhost)

    assert plan["exit_code"] == 0
    warnings = {change["name"]: change for change in of(plan, "warning")}
    assert warnings["limits"]["differences"] == [{"argument": "max-length", "have": 1000, "want": None}]
    assert "jobs" in warnings["limits"]["note"]
    assert warnings["old"]["note"].startswith("an operator's; holds on ")
    assert warnings["old"]["differences"] == [{"argument": "message-ttl", "have": 9000, "want": None}]


def test_a_policy_that_takes_the_place_of_ours_is_a_warning(vhost: Vhost) -> None:
    assert topology(vhost, "apply", of="TTL_30").returncode == 0
    policy(vhost, "first", pattern="^jobs$", priority=50, definition={"max-length": 1000})

    plan = planned(vhost, of="TTL_30")

    (warning,) = of(plan, "warning")
    assert (warning["name"], warning["note"]) == ("first", "in place of redrive.jobs; holds on jobs")
    assert {"argument": "message-ttl", "have": None, "want": 30_000} in warning["differences"]


def test_bindings_of_others_are_told_and_no_reason_to_act(vhost: Vhost) -> None:
    applied(vhost)
    with vhost.channel() as channel:
        channel.queue_declare("audit", durable=True)
        channel.exchange_declare("events", "topic", durable=True)
    bound(vhost, "jobs.dlx", "audit", "jobs")
    bound(vhost, "events", "jobs", "job.#")
    bound(vhost, "events", "audit", "#")

    plan = planned(vhost)

    assert plan["exit_code"] == 0
    assert [(change["name"], change["note"]) for change in of(plan, "extra")] == [
        ("events → jobs (job.#)", "messages that others publish arrive here"),
        ("jobs.dlx → audit (jobs)", "gets a copy of dead letters"),
    ]


def test_queues_of_a_former_topology_are_left_over_with_what_they_hold(vhost: Vhost) -> None:
    for former in ("SLOWER", "OTHER", "TTL_30"):
        assert topology(vhost, "apply", of=former).returncode == 0
    vhost.publish("other", b"kept")
    assert topology(vhost, "apply").returncode == 0
    with vhost.channel() as channel:
        channel.queue_declare("somebodys.retry.5s", durable=True)
        channel.queue_declare("somebodys.dlq", durable=True)

    def note() -> str:  # its count is seconds old
        return "".join(each["note"] for each in of(planned(vhost), "left over") if each["name"] == "other")

    eventually(lambda: note() == "nothing here deletes it; it holds 1 message", 15, "the message is counted")
    plan = planned(vhost)

    left = {(change["entity"], change["name"]) for change in of(plan, "left over")}
    assert left == {
        ("queue", "jobs.retry.300ms"), ("queue", "jobs.retry.600ms"),
        ("exchange", "jobs.retry.300ms"), ("exchange", "jobs.retry.600ms"),
        ("queue", "other"), ("queue", "other.dlq"),
        ("queue", "other.retry.250ms"), ("queue", "other.retry.500ms"),
        ("exchange", "other.dlx"), ("exchange", "other.due"),
        ("exchange", "other.retry.250ms"), ("exchange", "other.retry.500ms"),
        ("policy", "redrive.jobs"), ("binding", "jobs.due → jobs (2x300.*.*.jobs)"),
    }  # fmt: skip
    (warning,) = of(plan, "warning")
    assert warning["name"] == "redrive.jobs"
    assert warning["differences"] == [{"argument": "message-ttl", "have": 30_000, "want": None}]
    assert plan["exit_code"] == 0


def test_another_number_of_ladder_steps_is_applied_and_no_retry_is_lost_or_copied(vhost: Vhost) -> None:
    """Also one that waits on the old ladder meanwhile. The old bindings stay."""
    applied(vhost)
    send_on(vhost, SMALL, {"old": 3})
    done = topology(vhost, "apply", of="TALLER")
    send_on(vhost, TALLER, {str(ticks): ticks for ticks in range(1, 8)})

    assert done.returncode == 0, done.stderr
    everything = sorted(["old", *map(str, range(1, 8))])
    eventually(lambda: vhost.depth("jobs") >= len(everything), 20, "all retries are back")
    waiting = [queue.name for queue in compile_topology(TALLER).queues if ".retry." in queue.name]
    eventually(lambda: not any(vhost.depths(waiting).values()), 20, "no retry waits")
    arrived = [base64.b64decode(each["payload"]).decode() for each in vhost.get("jobs", 99)]
    assert sorted(arrived) == everything
    plan = planned(vhost, of="TALLER")
    assert {change["kind"] for change in plan["changes"]} == {"left over"}
    assert {change["entity"] for change in plan["changes"]} == {"binding"}


def send_on(vhost: Vhost, of: Topology, ticks: dict[str, int]) -> None:
    """Messages to the top of the ladder of `jobs`, to come back after so many ticks."""
    ladder = of.queues[0].ladder
    with vhost.channel() as channel:
        channel.confirm_delivery()
        for body, count in ticks.items():
            key = routing_key(count, ladder, "jobs")
            channel.basic_publish(step("jobs", ladder, ladder.steps - 1), key, body.encode(), mandatory=True)


@pytest.mark.parametrize("command", ["plan", "check"])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"REDRIVE_MANAGEMENT_URL": "http://guest:guest@127.0.0.1:1"},
            "nothing answers at http://127.0.0.1:1",
        ),
        ({"REDRIVE_MANAGEMENT_URL": ""}, "REDRIVE_MANAGEMENT_URL"),
        ({"REDRIVE_AMQP_URL": "amqp://127.0.0.1:1/there-is-none"}, "has no vhost 'there-is-none'"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    vhost: Vhost, command: str, settings: dict[str, Any], words: str
) -> None:
    done = topology(vhost, command, **settings)

    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_over_amqp_alone_a_broker_that_is_away_or_refuses_is_said_so(vhost: Vhost) -> None:
    away = topology(vhost, "plan", management=False, REDRIVE_AMQP_URL="amqp://127.0.0.1:1/x")
    parts = vhost.amqp_url.split("@")[1]
    refused = topology(vhost, "plan", management=False, REDRIVE_AMQP_URL=f"amqp://nobody:x@{parts}")

    assert (away.returncode, refused.returncode) == (1, 1)
    assert "no connection to 127.0.0.1:1" in away.stderr
    assert "does not let user 'nobody' in" in refused.stderr


def test_check_has_a_line_for_each_thing(vhost: Vhost) -> None:
    before = topology(vhost, "check")
    applied(vhost)
    after = topology(vhost, "check")
    with vhost.channel() as channel:
        channel.queue_delete("jobs.dlq")
        channel.queue_declare("jobs.dlq", durable=True)
    conflict = topology(vhost, "check")

    assert (before.returncode, after.returncode, conflict.returncode) == (3, 0, 4)
    assert "queue jobs.dlq: MISSING" in before.stderr
    assert "Run: topology apply" in before.stderr
    assert [line.split(": ")[1].split()[0] for line in after.stdout.splitlines()] == ["OK", "OK", "OK"]
    assert (
        "queue jobs.dlq: CONFLICT (x-delivery-limit: none -> 2,000,000,000; x-queue-type: " in conflict.stderr
    )


def test_check_fails_where_a_policy_changes_a_queue_and_plan_warns_of_it(vhost: Vhost) -> None:
    applied(vhost)
    policy(vhost, "caps", pattern=r"\.dlq$", definition={"max-length": 5})
    policy(vhost, "harmless", operator=True, pattern="", definition={"delivery-limit": 2_000_000_000})
    check, plan = topology(vhost, "check"), topology(vhost, "plan")

    assert (check.returncode, plan.returncode) == (4, 0)
    assert "policy caps: CHANGES QUEUES OF OURS (max-length: 5 -> none; holds on " in check.stderr
    assert check.stderr.endswith("Narrow the patterns of caps\n")
    assert "entities: OK" not in check.stdout
