"""What a worker finds wrong with its queues on a real broker: through the management API, and without it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.planned import OTHER, SMALL, TTL_30, TTL_60, policy, user
from tests.support.ports import free_port
from tests.support.vhosts import Vhost
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.plan.fitness import Fitness, fitness_of
from topology.settings import TopologySettings
from topology.spec import Topology

ARGUMENTS: dict[str, object] = {
    "queue_type": "quorum", "dead_letter_exchange": "jobs.dlx", "dead_letter_routing_key": "jobs",
    "dead_letter_strategy": "at-least-once", "overflow": "reject-publish", "delivery_limit": 20,
}  # fmt: skip
BOTH = Topology((*SMALL.queues, *OTHER.queues))
both_ways = pytest.mark.parametrize("management", [True, False], ids=["management", "amqp"])


@pytest.fixture
def applied(vhost: Vhost) -> Vhost:
    """A vhost with the queue `jobs` and all that hangs on it."""
    apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(SMALL))
    return vhost


def found(
    vhost: Vhost, topology: Topology = SMALL, *names: str, management: str | bool = True
) -> Fitness:  # fmt: skip
    url = vhost.management_url if management is True else management or None
    settings = TopologySettings(
        _env_file=None,  # type: ignore[call-arg]
        amqp_url=SecretStr(vhost.amqp_url),
        management_url=SecretStr(url) if url else None,
    )
    return fitness_of(settings, topology, names or ("jobs",))


def again(vhost: Vhost, queue: str, **arguments: object) -> None:
    """Somebody deletes a queue and declares it otherwise."""
    with vhost.channel() as channel:
        channel.queue_delete(queue)
        given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        channel.queue_declare(queue, durable=True, arguments=given)


@both_ways
def test_queues_as_applied_are_fit(applied: Vhost, management: bool) -> None:
    assert found(applied, management=management).wrong == ()


@both_ways
def test_the_bare_queue_that_plain_celery_makes_is_told_with_its_missing_dead_letter_exchange(
    applied: Vhost, management: bool
) -> None:
    again(applied, "jobs")
    said = "; ".join(found(applied, management=management).wrong)
    assert "queue 'jobs' is another one: " in said
    assert "x-dead-letter-exchange: none -> jobs.dlx" in said
    assert "x-queue-type: classic -> quorum" in said
    assert "; run: topology plan" in said


@both_ways
def test_a_queue_with_another_argument_alone_is_told(applied: Vhost, management: bool) -> None:
    again(applied, "jobs", **ARGUMENTS | {"dead_letter_exchange": "elsewhere"})
    said = [each for each in found(applied, management=management).wrong if "queue 'jobs'" in each]
    assert said == [
        "queue 'jobs' is another one: x-dead-letter-exchange: elsewhere -> jobs.dlx; run: topology plan"
    ]


@both_ways
def test_a_work_queue_with_another_argument_that_loses_nothing_is_said_and_consumed(
    applied: Vhost, management: bool
) -> None:
    """A worker of the release before starts again after `topology migrate`, one of the next before it."""
    again(applied, "jobs", **ARGUMENTS | {"delivery_limit": 5})
    fit = found(applied, management=management)
    assert [each for each in fit.wrong if "queue 'jobs'" in each] == []
    assert "queue 'jobs' is another one: x-delivery-limit: 5 -> 20; run: topology plan" in fit.noted


@both_ways
@pytest.mark.parametrize("queue", ["jobs", "jobs.dlq", "redrive.unrouted.dlq"])
def test_a_missing_queue_is_told(applied: Vhost, management: bool, queue: str) -> None:
    with applied.channel() as channel:
        channel.queue_delete(queue)
    (said,) = found(applied, management=management).wrong
    assert said.startswith(f"queue '{queue}'")
    assert said.endswith(" not on the broker; run: topology apply")


@both_ways
def test_a_missing_dead_letter_exchange_is_told(applied: Vhost, management: bool) -> None:
    with applied.channel() as channel:
        channel.exchange_delete("jobs.dlx")
    (said,) = found(applied, management=management).wrong
    assert said.startswith("exchange 'jobs.dlx'")
    assert said.endswith(" not on the broker; run: topology apply")


def test_a_dead_letter_queue_that_is_not_bound_is_told(applied: Vhost) -> None:
    with applied.channel() as channel:
        channel.queue_unbind("jobs.dlq", "jobs.dlx", "jobs")
    assert found(applied).wrong == (
        "binding 'jobs.dlx → jobs.dlq (jobs)' is not on the broker; run: topology apply",
    )
    assert any("bindings: only the management API" in each for each in found(applied, management=False).noted)


@pytest.mark.parametrize("operator", [False, True], ids=["policy", "operator policy"])
def test_a_policy_that_overrides_is_told(applied: Vhost, operator: bool) -> None:
    body: dict[str, Any] = {"pattern": "^jobs$", "definition": {"max-length": 100}, "apply-to": "queues"}
    policy(applied, "short", operator=operator, priority=1, **body)
    (said,) = found(applied).wrong
    assert said.startswith("policy 'short' changes what the topology says: max-length: 100 -> none")
    assert said.endswith("run: topology plan")


def test_a_policy_of_ours_that_is_not_set_is_told(applied: Vhost) -> None:
    (said,) = found(applied, TTL_30).wrong
    assert said.startswith("policy 'redrive.jobs' is not as in the topology: ")
    assert said.endswith("run: topology apply")


def test_a_consumer_timeout_below_the_time_limit_is_told(
    applied: Vhost, broker_release: tuple[int, int]
) -> None:
    if broker_release < (3, 12):
        assert any("does not know it" in each for each in found(applied, TTL_60).noted)
        return
    body: dict[str, Any] = {
        "pattern": "^jobs$",
        "definition": {"consumer-timeout": 900_000},
        "apply-to": "queues",
    }
    policy(applied, "hasty", priority=1, **body)
    (said,) = found(applied).wrong
    assert said.startswith(
        "policy 'hasty' sets a consumer timeout of 900 s, not above the 900 s of queue 'jobs'"
    )
    body["definition"] = {"consumer-timeout": 901_000}
    policy(applied, "hasty", priority=1, **body)
    assert found(applied).wrong == ()


def test_only_the_queues_that_are_consumed_matter(applied: Vhost) -> None:
    assert found(applied, BOTH, "jobs").wrong == ()
    (said,) = found(applied, BOTH, "other").wrong
    assert said.startswith("queue 'other.dlq', queue 'other', queue 'other.retry.250ms' and ")
    assert said.endswith(" more are not on the broker; run: topology apply")


def test_a_management_api_that_is_away_is_said_and_amqp_asked(applied: Vhost) -> None:
    away = f"http://guest:guest@127.0.0.1:{free_port()}"
    fit = found(applied, management=away)
    assert fit.wrong == ()
    assert fit.noted[0].startswith("the management API gave no answer: ")
    again(applied, "jobs")
    assert "queue 'jobs' is another one" in found(applied, management=away).wrong[0]


def test_a_user_who_may_not_configure_is_told_what_was_not_seen(applied: Vhost) -> None:
    with user(applied, "", configure="^$") as seen:
        fit = found(seen, management=False)
    assert fit.wrong == ()
    assert any(each.startswith("not seen: jobs: its arguments") for each in fit.noted)


def test_looking_makes_nothing(vhost: Vhost) -> None:
    (said,) = found(vhost, management=False).wrong
    assert said.startswith("queue 'redrive.unrouted.dlq', queue 'jobs.dlq', queue 'jobs' and 3 more are not")
    with vhost.channel() as channel, pytest.raises(Exception, match="NOT_FOUND"):
        channel.queue_declare("jobs", passive=True)
