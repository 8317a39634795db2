"""`topology apply` and `check` against a real broker."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from tests.support.processes import clean_environment, console_script
from tests.support.vhosts import Vhost
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.names import dead_letter_queues
from topology.spec import Ladder, Topology, WorkQueue

SMALL = Topology((WorkQueue("jobs", Ladder(steps=3)),))
SAMPLE_QUEUES = 5 * (1 + 1 + 12) + 1


def topology(vhost: Vhost, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment({"REDRIVE_AMQP_URL": vhost.amqp_url} | settings)
    command = console_script("topology.cli:main", *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def queues(vhost: Vhost) -> dict[str, dict[str, object]]:
    found = vhost.management.get(f"/api/queues/{quote(vhost.vhost, safe='')}").raise_for_status().json()
    return {queue["name"]: queue["arguments"] for queue in found}


def test_apply_declares_everything_and_a_second_time_changes_nothing(vhost: Vhost) -> None:
    before = topology(vhost, "check")
    first, declared = topology(vhost, "apply"), queues(vhost)
    second, after = topology(vhost, "apply"), topology(vhost, "check")

    assert (before.returncode, first.returncode, second.returncode, after.returncode) == (3, 0, 0, 0)
    assert "queue payments.dlq: MISSING" in before.stderr
    assert len(declared) == SAMPLE_QUEUES
    assert queues(vhost) == declared
    assert "entities: OK" in after.stdout


def test_ten_processes_may_apply_at_once(vhost: Vhost) -> None:
    address = AmqpAddress.parse(vhost.amqp_url)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: apply(address, compile_topology(SMALL)), range(10)))

    assert set(queues(vhost)) == {
        "jobs", "jobs.retry.250ms", "jobs.retry.500ms", "jobs.retry.1s", *dead_letter_queues(SMALL)
    }  # fmt: skip


def test_another_time_scale_on_the_same_vhost_is_a_conflict_that_names_queue_and_argument(
    vhost: Vhost,
) -> None:
    topology(vhost, "apply")

    mixed = topology(vhost, "apply", REDRIVE_TIME_SCALE="0.5")

    assert mixed.returncode == 4
    assert "payments.retry.250ms" in mixed.stderr
    assert "x-message-ttl" in mixed.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"REDRIVE_AMQP_URL": "amqp://h//"}, "REDRIVE_AMQP_URL: "),
        ({"REDRIVE_TIME_SCALE": "2"}, "REDRIVE_TIME_SCALE: "),
        ({"REDRIVE_TOPOLOGY": "nowhere:TOPOLOGY"}, "REDRIVE_TOPOLOGY=nowhere:TOPOLOGY"),
        ({"REDRIVE_TOPOLOGY": "topology.names:UNROUTED"}, "is a str, no Topology"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_declared(
    vhost: Vhost, settings: dict[str, str], words: str
) -> None:
    refused = topology(vhost, "apply", **settings)

    assert refused.returncode == 2
    assert words in refused.stderr
    assert queues(vhost) == {}


def test_a_broker_that_is_away_is_waited_for_and_then_given_up(vhost: Vhost) -> None:
    away = topology(vhost, "apply", "--wait", "0.1", REDRIVE_AMQP_URL="amqp://127.0.0.1:1/x")

    assert away.returncode == 1
    assert "waiting for the broker: no connection to 127.0.0.1:1 vhost x" in away.stderr
