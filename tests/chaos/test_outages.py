"""Servers away under load: afterwards every job is done, no attempt is burnt, nothing is dead-lettered.

The times are short; set REDRIVE_TEST_OUTAGE_S=60 and REDRIVE_TEST_RESTARTS=5 for a long look.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.servers import Servers
from tests.support.databases import Database, execute_as_admin
from tests.support.processes import Process, Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually, let_pass
from tests.support.work import Work

OUTAGE_S = float(os.environ.get("REDRIVE_TEST_OUTAGE_S", "8"))
RESTARTS = int(os.environ.get("REDRIVE_TEST_RESTARTS", "1"))
# Warnings and errors of one worker's main process in all tests here, the restarts aside.
MOST_LINES = 40


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


class Load:
    """Jobs in one worker of two pool processes, and what must hold of them at the end."""

    def __init__(self, work: Work, path: Path, count: int = 24, pool: str = "prefork") -> None:
        self.work, self.path = work, path
        self.worker = work.start("--pool", pool)
        work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
        self.marks = [work.submit("t.mark", key=f"k{n}", seconds=0.4, path=str(path)) for n in range(count)]
        self.flaky = [work.submit("t.flaky", fail=1) for _ in range(4)]
        self.coroutines = [work.submit("t.coroutine", key=f"async{n}") for n in range(4)]
        eventually(lambda: len(self.runs()) >= 2, 40, "jobs run")

    def runs(self) -> Counter[str]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def check(self, lines: int = MOST_LINES) -> None:
        work = self.work
        for job in (*self.marks, *self.flaky, *self.coroutines):
            work.until(job, "SUCCEEDED", 90)
        ends = Counter(
            (row["outcome"], row["reason"], row["attempt"])
            for row in work.database.fetch("select outcome, reason, attempt from redrive.attempts")
        )
        once = 1 + len(self.marks) + len(self.coroutines)
        assert ends == {
            ("succeeded", None, 1): once,
            ("retry", None, 1): len(self.flaky),
            ("succeeded", None, 2): len(self.flaky),
        }, "no attempt was burnt"
        assert work.database.value("select sum(crashes) from redrive.jobs") == 0
        effects = len(self.marks) + len(self.coroutines)
        assert work.database.value("select count(*) from redrive.sample_emails") == effects
        work.until_settled(60)
        assert work.letters() == []
        assert self.worker.exit_code is None
        assert len(loud(self.worker)) < lines

    def redelivered(self) -> int:
        found = (self.work.vhost.queue("work") or {}).get("message_stats", {})
        return int(found.get("redeliver", 0))


def loud(worker: Process) -> list[str]:
    lines = worker.log.splitlines()
    return [line for line in lines if " MainProcess " in line and (" WARNING " in line or " ERROR " in line)]


class Stoppable:
    """Servers that a test stops and starts."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._stopped: set[str] = set()

    def stop(self, *names: str) -> None:
        """`broker`, `database`."""
        for name in names:
            getattr(self._servers, f"stop_{name}")()
            self._stopped.add(name)

    def set_memory_limit(self, share: str) -> None:
        """Of the broker, as a share of the machine's; over it the alarm stops whoever publishes."""
        self._servers.rabbitmqctl("set_vm_memory_high_watermark", share)

    def start(self, *names: str) -> None:
        for name in names or sorted(self._stopped):
            getattr(self._servers, f"start_{name}")()
            self._stopped.discard(name)


@pytest.fixture
def stoppable(servers: Servers) -> Iterator[Stoppable]:
    """Whatever fails, the next test has its servers."""
    if servers.kind == "environment":
        pytest.skip("not run: servers that the environment names are not ours to stop")
    made = Stoppable(servers)
    yield made
    made.start()


# The database


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_postgres_is_stopped_under_load(work: Work, stoppable: Stoppable, tmp_path: Path, pool: str) -> None:
    load = Load(work, tmp_path / "runs", pool=pool)
    stoppable.stop("database")
    let_pass(OUTAGE_S)
    stoppable.start()
    load.check()
    assert load.redelivered() == 0


def write_only_with_leave(database: Database, allowed: bool) -> None:
    value = "off" if allowed else "on"
    execute_as_admin(
        database, f'alter database "{database.name}" set default_transaction_read_only = {value}'
    )
    database.cut_connections()


def test_postgres_is_read_only_for_a_while(work: Work, tmp_path: Path) -> None:
    load = Load(work, tmp_path / "runs")
    write_only_with_leave(work.database, False)
    load.worker.wait_for_log("it is read-only")
    let_pass(OUTAGE_S)
    write_only_with_leave(work.database, True)
    load.check()


def test_the_disk_of_postgres_is_full_for_a_while(work: Work, tmp_path: Path) -> None:
    load = Load(work, tmp_path / "runs")
    work.database.execute(
        "create function redrive.full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$"
    )
    work.database.execute(
        "create trigger full_disk before insert or update on redrive.jobs"
        " for each statement execute function redrive.full_disk()"
    )
    load.worker.wait_for_log("could not extend file")
    let_pass(OUTAGE_S)
    work.database.execute("drop trigger full_disk on redrive.jobs")
    load.check()


def test_postgres_has_no_connection_to_spare_for_a_while(work: Work, tmp_path: Path) -> None:
    name = f"few_{work.database.name}"
    execute_as_admin(work.database, f"create role \"{name}\" login password 'few' connection limit 1")
    try:
        work.database.execute(f'grant usage on schema redrive to "{name}"')
        work.database.execute(f'grant all on all tables in schema redrive to "{name}"')
        work.settings["REDRIVE_DATABASE_URL"] = work.database.url_of(name, "few")
        worker = work.start()  # its ledger has the only connection
        jobs = [work.submit("t.mark", key=f"k{n}") for n in range(4)]
        eventually(lambda: worker.log.count("too many connections") >= 4, 40, "the jobs get none")
        execute_as_admin(work.database, f'alter role "{name}" connection limit 10')
        for job in jobs:
            work.until(job, "SUCCEEDED", 60)
            (attempt,) = work.attempts(job)
            assert (attempt["outcome"], work.job(job)["crashes"]) == ("succeeded", 0)
        assert work.letters() == []
        worker.kill_group()
    finally:
        work.database.execute(f'drop owned by "{name}"')
        execute_as_admin(work.database, f'drop role "{name}"')


# The broker


@pytest.mark.timeout(300 + 90 * RESTARTS)
def test_the_broker_is_restarted_under_load_and_every_worker_consumes_again(
    work: Work, stoppable: Stoppable, tmp_path: Path
) -> None:
    load = Load(work, tmp_path / "runs", 24 * RESTARTS)
    workers = [load.worker, *(work.start(concurrency=1) for _ in range(2))]
    for number in range(RESTARTS):
        stoppable.stop("broker")
        let_pass(2)
        stoppable.start("broker")
        eventually(lambda: consumers(work) == len(workers), 60, f"all consume after restart {number + 1}")
    load.check(MOST_LINES * RESTARTS)
    assert set(load.runs().values()) == {1}, "what ran on is not run again"
    for worker in workers:
        assert worker.exit_code is None
        assert worker.log.count("Connected to amqp") <= 1 + 4 * RESTARTS, "no tight loop"
        assert len(loud(worker)) < MOST_LINES * RESTARTS


def test_both_are_away_at_once(work: Work, stoppable: Stoppable, tmp_path: Path) -> None:
    load = Load(work, tmp_path / "runs")
    other = work.start()  # takes nothing from the first when both are back
    stoppable.stop("database")
    stoppable.stop("broker")
    let_pass(max(OUTAGE_S - 4, 1))
    stoppable.start("broker")
    let_pass(3)
    stoppable.start("database")
    load.check()
    assert other.exit_code is None
    assert len(loud(other)) < MOST_LINES


def consumers(work: Work) -> int:
    try:
        return work.vhost.consumers("work")
    except Exception:  # noqa: BLE001 - the broker starts
        return -1


def test_a_long_job_whose_connections_are_all_closed_runs_once(work: Work, tmp_path: Path) -> None:
    path, gate = tmp_path / "runs", tmp_path / "gate"
    worker = work.start()
    work.result(work.submit("t.add", x=1, y=1))
    job = work.submit("t.mark", key="long", path=str(path), gate=str(gate))
    eventually(path.exists, 20, "it runs")
    closed: set[str] = set()

    def close_all() -> bool:
        """The consumer's, and the ledger's for publishing. The management API is up to 5 s late."""
        for opened in work.vhost.management.get(f"/api/vhosts/{work.vhost.vhost}/connections").json():
            work.vhost.management.delete(f"/api/connections/{opened['name']}")
            closed.add(opened["name"])
        return len(closed) >= 2

    eventually(close_all, 30, "all are closed", every_s=0.5)
    eventually(lambda: worker.log.count("Connected to amqp") > 1, 30, "it has connected again")
    assert work.job(job)["state"] == "RUNNING"
    gate.touch()
    assert work.result(job) == "done"
    work.until_settled(60)
    assert len(path.read_text().splitlines()) == 1
    assert work.database.value("select count(*) from redrive.sample_emails") == 1
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["succeeded"]
    assert work.letters() == []
    assert worker.exit_code is None


def test_a_memory_alarm_holds_retries_back_and_afterwards_all_is_done(
    work: Work, stoppable: Stoppable, tmp_path: Path
) -> None:
    worker, gate = work.start(), tmp_path / "gate"
    work.result(work.submit("t.add", x=1, y=1))
    retried = [work.submit("t.flaky_slow", fail=1, gate=str(gate)) for _ in range(4)]
    others = [work.submit("t.add", x=n, y=n) for n in range(6)]

    def alarm() -> bool:
        return any(node.get("mem_alarm") for node in work.vhost.management.get("/api/nodes").json())

    stoppable.set_memory_limit("0.000001")
    try:
        eventually(alarm, 60, "the alarm is raised", every_s=0.5)
        gate.touch()
        worker.wait_for_log("action=ladder_publish_failed", 60)
        worker.wait_for_log("waited for the broker's alarm", 60)
        assert "RETRYING" in {work.job(job)["state"] for job in retried}
    finally:
        stoppable.set_memory_limit("0.4")
    for job in others:  # some wait behind a prefetch window full of retries that are held back
        work.until(job, "SUCCEEDED", 90)
    for job in retried:
        work.until(job, "SUCCEEDED", 90)
        assert [attempt["outcome"] for attempt in work.attempts(job)] == ["retry", "succeeded"]
    work.until_settled(60)
    assert work.letters() == []
    assert len(loud(worker)) < MOST_LINES
    assert worker.exit_code is None
