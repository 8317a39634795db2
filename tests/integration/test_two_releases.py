"""API, worker and dead-letter consumer of this release on the schema of the one before, and of the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.thirdparty.client import ThirdPartyClient
from storage.migrate import migrations
from storage.schema import WORKS_FROM
from tests.support.databases import Database, migrate_to
from tests.support.processes import Processes
from tests.support.releases import NEXT, next_release
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.messages import task_message
from topology.wire import RawProperties, split

EXPANDS = """-- expand: hats
CREATE TABLE redrive.hats (job_id text PRIMARY KEY REFERENCES redrive.jobs (id) ON DELETE CASCADE);
ALTER TABLE redrive.jobs ADD COLUMN hat text NOT NULL DEFAULT 'none';
ALTER TABLE redrive.attempts ADD COLUMN hat text;
ALTER TABLE redrive.outbox ADD COLUMN hat text;
ALTER TABLE redrive.dead_letters ADD COLUMN hat text;
CREATE INDEX jobs_hat ON redrive.jobs (hat);
"""
CONTRACTS = f"-- contract: level {NEXT}\nDROP TABLE redrive.sample_emails;"


@pytest.fixture
def stack(
    vhost: Vhost, empty_database: Database, processes: Processes, third_party: ThirdPartyClient
) -> Iterator[Stack]:
    made = Stack(vhost, empty_database, processes, {"REDRIVE_THIRD_PARTY_URL": third_party.url})
    yield made
    made.close()


def start(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api()
    stack.start_worker()
    stack.start_consumer()


def live(stack: Stack, third_party: ThirdPartyClient, name: str) -> None:
    """A good job, one that is tried again, and one that dies, is drained, and succeeds when replayed."""
    payments = {word: {"payment_id": f"{name}-{word}", "amount_cents": 5, "currency": "EUR"}
                for word in ("good", "flaky", "bad")}  # fmt: skip
    third_party.fail("/payments", {"status": 503}, match={"payment_id": f"{name}-flaky"})
    third_party.fail("/payments", {"status": 400}, match={"payment_id": f"{name}-bad"})
    jobs = {
        word: stack.submit("payments.call_payment_api", payload, f"{name} {word}")
        for word, payload in payments.items()
    }
    stack.until(jobs["good"], "SUCCEEDED")
    stack.until(jobs["flaky"], "SUCCEEDED")
    stack.until(jobs["bad"], "DEAD")
    letter = "select count(*) from redrive.dead_letters where job_id = $1"
    eventually(lambda: stack.database.value(letter, jobs["bad"]) == 1, 30, "the letter is stored")
    (row,) = stack.database.fetch("select id from redrive.dead_letters where job_id = $1", jobs["bad"])
    replayed = stack.dlq("replay", str(row["id"]))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    stack.until(jobs["bad"], "SUCCEEDED")


def test_all_work_on_the_schema_of_the_previous_release_and_through_the_migration(
    stack: Stack, third_party: ThirdPartyClient
) -> None:
    migrate_to(stack.database.url, WORKS_FROM)
    start(stack)
    live(stack, third_party, "before")
    off = [migration.off_without for migration in migrations()[WORKS_FROM:] if migration.off_without]
    for process in stack.processes.started:
        if process.name in ("api", "worker", "consumer"):
            assert all(what in process.log for what in off), process.name
    done = stack.command("storage.cli:main", "migrate")
    assert done.returncode == 0, done.stderr
    live(stack, third_party, "after")
    assert all(process.exit_code is None for process in stack.processes.started)


def test_all_work_on_the_schema_of_the_next_release_and_with_its_messages(
    stack: Stack, third_party: ThirdPartyClient, tmp_path: Path
) -> None:
    newer = next_release(tmp_path, EXPANDS)
    done = stack.command("storage.cli:main", "migrate", timeout=90, **newer)
    assert f"schema: level {NEXT} at" in done.stdout, done.stderr
    start(stack)
    live(stack, third_party, "next")
    payment = {"payment_id": "future", "amount_cents": 5, "currency": "EUR"}
    message = task_message("from-the-next-release", "payments.call_payment_api", payment)
    properties = split(message.properties).with_header("redrive-hat", "bowler").encode()
    stack.publish("payments", message.body, RawProperties(properties))
    state = "select state from redrive.jobs where id = 'from-the-next-release'"
    eventually(lambda: stack.database.fetch(state) == [{"state": "SUCCEEDED"}], 30, "it has succeeded")


def test_a_schema_that_has_left_this_release_behind_is_refused_by_all(stack: Stack, tmp_path: Path) -> None:
    newer = next_release(tmp_path, CONTRACTS)
    assert stack.command("storage.cli:main", "migrate", timeout=90, **newer).returncode == 0
    stack.apply_topology()
    said = f"needs a release of level {NEXT} or newer, this one is of level {len(migrations())}"
    worker = stack.processes.start_module(
        "worker", "celery", "-A", "workers.app", "worker", "-l", "INFO", env=stack.settings
    )
    for command in ("storage.cli:main", "dlq_consumer.cli:main"):
        refused = stack.command(command, "check")
        assert refused.returncode == 1
        assert said in refused.stdout + refused.stderr
    worker.wait_for_log(said, 40)
    assert worker.terminate(30) == 0
