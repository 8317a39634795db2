"""What a frozen process holds in Postgres is given to another one, and it goes on itself once it can."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import httpx

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, plain
from tests.support.processes import Process, Processes
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

JOB = {
    "type": "payments.charge_order",
    "payload": {"order_id": "o", "amount_cents": 5, "currency": "EUR"},
    "idempotency_key": "k",
}
LOCK = 42
# A submission waits in its transaction: its key is written and not committed.
HOLD = (
    "create function hold_submission() returns trigger language plpgsql as"
    f" $$ begin perform pg_advisory_xact_lock_shared({LOCK}); return null; end $$",
    "create trigger hold_submission after insert on redrive.outbox"
    " for each statement execute function hold_submission()",
)
WAITS = f"select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = {LOCK}"


def quicker(database: Database) -> str:
    """Its URL, for a process with which Postgres has less patience than by default."""
    return f"{database.url}?idle_in_transaction_session_timeout=2s&idle_session_timeout=6s"


@contextmanager
def frozen(process: Process) -> Iterator[None]:
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


def submitted(client: httpx.Client) -> httpx.Response:
    return client.post("/jobs/batch", json={"jobs": [JOB]})


def accepted(client: httpx.Client) -> str:
    """The job's id."""
    answer = submitted(client)
    assert answer.status_code == 202
    return str(answer.json()["results"][0]["id"])


def test_another_api_process_takes_the_keys_that_a_frozen_one_holds(stack: Stack) -> None:
    for statement in HOLD:
        stack.database.execute(statement)
    process = stack.start_api(REDRIVE_DATABASE_URL=quicker(stack.database))
    first = stack.http
    first.timeout = httpx.Timeout(120)  # the frozen one answers when all is over
    with ThreadPoolExecutor(1) as thread, closing(first):
        with stack.database.locked(f"select pg_advisory_xact_lock({LOCK})"):
            cut_off = thread.submit(submitted, first)
            eventually(lambda: stack.database.value(WAITS), 30, "its keys are written and not committed")
            process.send(signal.SIGSTOP)
        with frozen(process):
            stack.api = None
            stack.start_api()
            stack.http.headers = first.headers  # a key is its caller's alone
            job = eventually(lambda: accepted(stack.http), 60, "another one takes them")
        assert cut_off.result(60).status_code == 503
        assert accepted(first) == job


def test_another_consumer_takes_the_queues_of_a_frozen_one(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    graveyard = Graveyard(vhost, database, processes)
    first = graveyard.start(REDRIVE_DATABASE_URL=quicker(database))
    with frozen(first):
        second = graveyard.start(ready=False)
        second.wait_for_log("draining orders.dlq", 60)
        graveyard.publish("orders.dlq", *(plain(message_id=str(number)) for number in range(3)))
        first.forget_log()
    first.wait_for_log("standing by for orders.dlq", 60)
    graveyard.until_stored(3)
