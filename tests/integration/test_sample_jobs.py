"""The six sample jobs, run by the standard entry point `celery -A workers.app worker`."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.catalogue import TOPOLOGY
from topology.messages import task_message
from topology.wire import RawProperties

BUSY = {"status": 503}


class Jobs:
    """Submits straight to database and broker; the API has tests of its own."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def submit(self, type_: str, **payload: Any) -> str:
        job, queue = str(uuid.uuid4()), TOPOLOGY.job(type_).queue
        self.stack.database.execute(
            "insert into redrive.jobs (id, type, queue, state) values ($1, $2, $3, 'QUEUED')",
            job,
            type_,
            queue,
        )
        message = task_message(job, type_, TOPOLOGY.job(type_).payload(**payload).model_dump())
        self.stack.publish(queue, message.body, RawProperties(message.properties))
        return job

    def until(self, job: str, state: str = "SUCCEEDED") -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            (row,) = self.stack.database.fetch("select * from redrive.jobs where id = $1", job)
            assert row["state"] == state, row
            return row

        return eventually(reached, 40, f"{job} is {state}")

    def result(self, job: str) -> Any:
        return json.loads(self.until(job)["result"])


@pytest.fixture
def jobs(third_party: ThirdPartyClient, stack: Stack) -> Jobs:
    stack.apply_topology()
    stack.start_worker()
    return Jobs(stack)


def test_the_sample_jobs_do_what_they_say(jobs: Jobs, third_party: ThirdPartyClient) -> None:
    # One worker for all: each job has its own paths and keys.
    third_party.fail("/payments", BUSY, BUSY)
    paid = jobs.submit("payments.call_payment_api", payment_id="p1", amount_cents=5, currency="EUR")
    third_party.fail("/inventory/s1", {"status": 429, "retry_after": 10})
    stock = jobs.submit("inventory.sync_inventory", sku="s1")
    charges = [
        jobs.submit("payments.charge_order", order_id="o1", amount_cents=5, currency="EUR") for _ in range(3)
    ]
    third_party.fail("/webhooks/e1", BUSY)
    events = [jobs.submit("webhooks.handle_webhook", event_id="e1", kind="paid") for _ in range(2)]
    third_party.fail("/webhooks/e2", {"status": 400})
    doomed = jobs.submit("webhooks.handle_webhook", event_id="e2", kind="paid")
    httpx.put(f"{third_party.url}/files/r1.1.json", content=b"kept", trust_env=False, timeout=30)
    report = jobs.submit("reports.generate_report", report_id="r1", sections=3)
    mail = {"email_key": "m1", "to": "a@example.org", "subject": "s", "body": "b"}
    mails = [jobs.submit("emails.send_email", **mail)]
    jobs.until(mails[0])
    mails.append(jobs.submit("emails.send_email", **mail))

    assert jobs.result(paid) == {"id": "payment-1"}
    assert [each["answered"] for each in third_party.requests("/payments")] == [503, 503, 201]

    jobs.result(stock)
    attempts = jobs.stack.database.fetch(
        "select started_at, ended_at, delay_ms from redrive.attempts where job_id = $1 order by attempt",
        stock,
    )
    assert [attempt["delay_ms"] for attempt in attempts] == [10_000, None]
    assert (attempts[1]["started_at"] - attempts[0]["ended_at"]).total_seconds() >= 1.0  # scaled

    assert sorted(jobs.result(job)["charged"] for job in charges) == [False, False, True]
    assert jobs.stack.database.value("select count(*) from redrive.sample_charges") == 1
    assert {request["key"] for request in third_party.requests("/charges")} == {"charge:o1"}

    assert sorted(jobs.result(job)["handled"] for job in events) == [False, True]
    dead = jobs.until(doomed, "DEAD")
    assert dead["reason"] == "rejected"

    assert jobs.result(report) == {"url": f"{third_party.url}/files/r1.json", "written": 2}
    assert third_party.files()["r1.1.json"] == len(b"kept")
    progress = json.loads(jobs.until(report)["progress"])
    assert progress == {"state": "PROGRESS", "meta": {"sections": 3, "done": 3}}

    assert [jobs.result(job)["sent"] for job in mails] == [True, False]
    assert len(third_party.requests("/emails")) == 1
