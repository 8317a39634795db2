"""A job takes longer than the broker waits for an ack: the channel is closed (406), the job runs once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.servers import Servers
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work

TIMEOUT_MS = 5_000
SECONDS = 25.0


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def test_a_job_longer_than_the_consumer_timeout_runs_once(
    work: Work, servers: Servers, broker_release: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    if broker_release >= (4, 3):
        # The worker does not see it: without the management API it compares no policies.
        policy = {"pattern": "^work$", "definition": {"consumer-timeout": TIMEOUT_MS}, "apply-to": "queues"}
        work.vhost.management.put(f"/api/policies/{work.vhost.vhost}/short", json=policy).raise_for_status()
    elif servers.kind == "environment":
        pytest.skip("not run: the broker's own consumer timeout is set on servers that are ours alone")
    else:
        # Read when a channel opens, and looked at once a minute but for this.
        evaluate(servers, consumer_timeout=TIMEOUT_MS, channel_tick_interval=1_000)
    try:
        worker = work.start(REDRIVE_WORKER_LEASE_S="30", REDRIVE_WORKER_RENEW_S="10")
        work.result(work.submit("t.add", x=1, y=1))
        job = work.submit("t.mark", key="long", seconds=SECONDS, path=str(path))
        eventually(path.exists, 20, "it runs")
        if broker_release < (4, 3):
            worker.wait_for_log("PRECONDITION_FAILED", SECONDS)
        # Others are worked meanwhile.
        assert work.result(work.submit("t.add", x=2, y=2)) == 4
        assert work.job(job)["state"] == "RUNNING"
        work.until(job, "SUCCEEDED", SECONDS + 60)
        work.until_settled(90)
        assert len(path.read_text().splitlines()) == 1
        stats = (work.vhost.queue("work") or {})["message_stats"]
        assert stats.get("redeliver", 0) >= 1, "the broker did take the message back"
        assert [attempt["outcome"] for attempt in work.attempts(job)] == ["succeeded"]
        assert work.letters() == []
        assert worker.exit_code is None
    finally:
        if broker_release < (4, 3):
            evaluate(servers, consumer_timeout=1_800_000, channel_tick_interval=60_000)


def evaluate(servers: Servers, **variables: int) -> None:
    for name, value in variables.items():
        servers.rabbitmqctl("eval", f"application:set_env(rabbit, {name}, {value}).")
