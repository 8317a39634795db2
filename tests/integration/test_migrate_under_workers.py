"""Our API, relay and a former release's worker go on while their queue is migrated: jobs have one effect."""

from __future__ import annotations

import threading
from collections import Counter

from dev.thirdparty.client import ThirdPartyClient
from tests.support.former_catalogue import TOPOLOGY as FORMER
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.names import dlq

FAILING = range(0, 400, 10)  # their first call is answered 503: they come back by the ladder


class Submitter(threading.Thread):
    """Submits jobs one after the other, until it is told to end."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack, self._ending = stack, threading.Event()
        self.jobs: list[str] = []

    def run(self) -> None:
        while not self._ending.wait(0.1):
            number = len(self.jobs)
            payload = {"payment_id": f"p-{number}", "amount_cents": 100, "currency": "EUR"}
            self.jobs.append(self._stack.submit("payments.call_payment_api", payload, f"k-{number}"))

    def end(self) -> list[str]:
        self._ending.set()
        self.join(30)
        assert not self.is_alive()
        return self.jobs


def test_jobs_submitted_and_worked_throughout_have_one_effect_each(
    stack: Stack, third_party: ThirdPartyClient
) -> None:
    scale = float(stack.settings["REDRIVE_TIME_SCALE"])
    apply(AmqpAddress.parse(stack.vhost.amqp_url), compile_topology(FORMER, scale))
    for number in FAILING:
        third_party.fail("/payments", {"status": 503}, match={"payment_id": f"p-{number}"})
    stack.start_api()
    worker = stack.start_worker(REDRIVE_TOPOLOGY="tests.support.former_catalogue:TOPOLOGY")
    submitter = Submitter(stack)
    submitter.start()
    eventually(lambda: len(submitter.jobs) > 20, 30, "jobs are submitted")

    done = stack.command(
        "topology.cli:main", "migrate", "--yes", "--queue", "payments", "--quiet", "7", timeout=150
    )
    before = len(submitter.jobs)
    eventually(lambda: len(submitter.jobs) > before + 20, 30, "jobs go on being submitted")
    jobs = submitter.end()

    assert (done.returncode, done.stderr) == (0, "")
    states = "select state, count(*) from redrive.jobs group by state"

    def succeeded() -> bool:
        found = {row["state"]: row["count"] for row in stack.database.fetch(states)}
        assert found == {"SUCCEEDED": len(jobs)}, found
        return True

    eventually(succeeded, 90, "all jobs succeeded")
    paid = Counter(payment["payment_id"] for payment in third_party.payments())
    assert paid == Counter(f"p-{number}" for number in range(len(jobs)))
    assert worker.exit_code is None
    assert {stack.depth(dlq("payments")), stack.depth("redrive.unrouted.dlq")} == {0}
    found = stack.vhost.queue("payments")
    assert found is not None
    assert found["arguments"]["x-queue-type"] == "quorum"
