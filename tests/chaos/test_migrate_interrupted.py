"""`topology migrate` killed, cut off and left without a broker: run again it goes on, and nothing is lost."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from dev.servers import NotControllable, Servers
from tests.support.migrating import OLD, QUORUM, declared, traffic
from tests.support.processes import Process, Processes, console_script
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.migrate.siphon import BATCH
from topology.migrate.steps import ALL
from topology.names import moving

WAITING = 1500
HOLDING = moving("jobs")


def start(
    vhost: Vhost, processes: Processes, topology: str, *arguments: str, amqp_url: str | None = None
) -> Process:
    settings = {
        "REDRIVE_AMQP_URL": amqp_url or vhost.amqp_url,
        "REDRIVE_MANAGEMENT_URL": vhost.management_url,
        "REDRIVE_TOPOLOGY": f"tests.support.migrating:{topology}",
    }
    command = console_script("topology.cli:main", "migrate", "--quiet", "7", "--yes", *arguments)
    return processes.start("migrate", command, settings)


def filled(vhost: Vhost) -> list[bytes]:
    """Messages that wait in the queue."""
    bodies = [b"waits-%d" % number for number in range(WAITING)]
    with vhost.channel() as channel:
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "jobs", body)
    eventually(lambda: vhost.depth("jobs") == WAITING, 20, "all wait")
    return bodies


def drained(vhost: Vhost) -> Counter[bytes]:
    """Everything that is in the queue, once a stopped consumer's messages are back."""
    taken: Counter[bytes] = Counter()
    with vhost.channel() as channel:
        while (got := channel.basic_get("jobs", auto_ack=True))[0] is not None:
            taken[bytes(got[2])] += 1
    return taken


def reached(vhost: Vhost, process: Process, moment: str) -> None:
    """Waits for a step to begin; with a `+`, for it to be half-way."""
    stage = moment.rstrip("+")
    process.wait_for_log(f"jobs: {stage}:", 60)
    if moment == "empty+":
        eventually(lambda: vhost.depth(HOLDING) > 0, 20, "some are moved", every_s=0.001)
    elif moment == "refill+":
        eventually(lambda: vhost.depth("jobs") > 0 or vhost.depth(HOLDING) < WAITING / 2, 20, "some are back")


@pytest.mark.parametrize("moment", [*ALL, "empty+", "refill+"])
def test_killed_at_any_step_it_goes_on_when_run_again(
    vhost: Vhost, processes: Processes, moment: str
) -> None:
    declared(vhost, OLD)
    waiting = filled(vhost)
    with traffic(vhost, "jobs", workers=1, work_s=0.02) as (publisher, workers):
        killed = start(vhost, processes, "QUORUM")
        reached(vhost, killed, moment)
        killed.kill()
        again = start(vhost, processes, "QUORUM")
        code = again.wait(120)
        sent = [*publisher.end(), *waiting]
        worked = workers[0].end()
    worked += drained(vhost)

    assert code == 0, again.log
    assert set(sent) - set(worked) == set()
    # Confirmed by the new home and not yet acknowledged to the old one when it was killed.
    assert sum(worked.values()) - len(set(worked)) <= BATCH
    found = vhost.queue("jobs")
    assert found is not None
    assert found["arguments"]["x-queue-type"] == "quorum"
    assert vhost.queue(HOLDING) is None


def test_interrupted_by_the_operator_it_says_that_it_can_go_on(vhost: Vhost, processes: Processes) -> None:
    declared(vhost, OLD)
    waiting = filled(vhost)
    process = start(vhost, processes, "QUORUM")
    process.wait_for_log("jobs: empty:")
    process.send(signal.SIGINT)

    assert process.wait(30) == 130
    assert "run topology migrate again" in process.log
    assert start(vhost, processes, "QUORUM").wait(90) == 0
    worked = drained(vhost)
    assert worked.keys() == set(waiting)
    assert sum(worked.values()) - len(waiting) <= BATCH


def test_a_cut_connection_in_the_middle_is_no_loss(
    vhost: Vhost, processes: Processes, proxy: Callable[..., TcpProxy]
) -> None:
    declared(vhost, OLD)
    waiting = filled(vhost)
    between = proxy(vhost.amqp_url)
    process = start(vhost, processes, "QUORUM", amqp_url=between.url)
    reached(vhost, process, "empty+")
    between.cut()

    assert process.wait(60) == 1
    assert "run topology migrate again" in process.log
    assert start(vhost, processes, "QUORUM").wait(90) == 0
    worked = drained(vhost)
    assert set(worked) == set(waiting)
    assert sum(worked.values()) <= WAITING + BATCH


def test_a_broker_that_is_killed_in_the_middle_is_no_loss(
    servers: Servers, vhost: Vhost, processes: Processes
) -> None:
    declared(vhost, QUORUM)
    waiting = filled(vhost)
    process = start(vhost, processes, "STRICT")
    reached(vhost, process, "empty+")
    try:
        servers.kill_broker()
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    ended = process.wait(90)
    servers.start_broker()

    assert ended == 1, process.log
    again = start(vhost, processes, "STRICT")
    assert again.wait(120) == 0, again.log
    worked = drained(vhost)
    assert set(worked) == set(waiting)
    assert sum(worked.values()) <= WAITING + BATCH
