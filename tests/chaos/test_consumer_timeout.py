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
SECONDS = 90.0


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


@pytest.mark.timeout(300)
def test_a_job_longer_than_the_consumer_timeout_runs_once(
    work: Work, servers: Servers, broker_release: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    if broker_release < (4, 3) and servers.kind == "environment":
        pytest.skip("not run: the broker's own consumer timeout cannot be set on a server that is not ours")
    # Set once it runs: a worker refuses to start with a time limit above it.
    worker = work.start(REDRIVE_WORKER_LEASE_S="30", REDRIVE_WORKER_RENEW_S="10")
    work.result(work.submit("t.add", x=1, y=1))
    if broker_release < (4, 3):
        servers.rabbitmqctl("eval", f"application:set_env(rabbit, consumer_timeout, {TIMEOUT_MS}).")
    else:
        policy = {"pattern": "^work$", "definition": {"consumer-timeout": TIMEOUT_MS}, "apply-to": "queues"}
        work.vhost.management.put(f"/api/policies/{work.vhost.vhost}/short", json=policy).raise_for_status()
    try:
        job = work.submit("t.mark", key="long", seconds=SECONDS, path=str(path))
        eventually(path.exists, 20, "it runs")
        if broker_release < (4, 3):
            worker.wait_for_log("PRECONDITION_FAILED", 85)  # the broker looks once a minute
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
            servers.rabbitmqctl("eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
