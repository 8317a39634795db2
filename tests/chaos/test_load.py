"""1,000 jobs, a tenth of them with a passing failure, a fiftieth poisoned: every one accounted for.

The ledger is the test's own: what it submitted, what the third party saw, its own SQL and AMQP reads.
"""

import statistics
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

JOBS = 1_000
TRANSIENT = range(0, JOBS, 10)  # a tenth: the first answer is 503
POISONED = range(5, JOBS, 50)  # a fiftieth: every answer is 400


def test_a_thousand_jobs_are_all_accounted_for(
    stack: Stack, third_party: ThirdPartyClient, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in TRANSIENT:
        third_party.fail("/payments", {"status": 503}, match={"payment_id": f"p-{number}"})
    for number in POISONED:
        third_party.fail("/payments", {"status": 400}, then="repeat", match={"payment_id": f"p-{number}"})
    stack.apply_topology()
    stack.start_api()
    stack.start_worker()
    stack.start_consumer()

    def submit(number: int) -> str:
        payload = {"payment_id": f"p-{number}", "amount_cents": 100 + number, "currency": "EUR"}
        return stack.submit("payments.call_payment_api", payload, f"payment {number}")

    with ThreadPoolExecutor(8) as pool:
        submitted = dict(enumerate(pool.map(submit, range(JOBS))))
    assert len(set(submitted.values())) == JOBS

    finished = "SELECT count(*) AS n FROM redrive.jobs WHERE state IN ('SUCCEEDED', 'DEAD')"
    eventually(lambda: stack.database.value(finished) == JOBS, 200, "all jobs ended", every_s=0.5)
    stored = "SELECT count(*) AS n FROM redrive.dead_letters"
    eventually(lambda: stack.database.value(stored) >= len(POISONED), 30, "all letters stored", every_s=0.5)
    eventually(lambda: set(stack.depths().values()) == {0}, 30, "every queue is empty", every_s=0.5)

    states = {row["id"]: row["state"] for row in stack.database.fetch("SELECT id, state FROM redrive.jobs")}
    letters = [row["job_id"] for row in stack.database.fetch("SELECT job_id FROM redrive.dead_letters")]
    seen = Counter(request["body"]["payment_id"] for request in third_party.requests("/payments"))
    poisoned = {submitted[number] for number in POISONED}

    assert states == {job: "DEAD" if job in poisoned else "SUCCEEDED" for job in submitted.values()}
    assert sorted(letters) == sorted(poisoned)
    assert seen == {f"p-{number}": 2 if number in TRANSIENT else 1 for number in submitted}
    outbox = stack.database.value("SELECT count(*) FROM redrive.outbox")
    assert outbox == 0

    waits = stack.database.fetch(
        "SELECT extract(epoch FROM a.started_at - j.created_at)::float8 AS s FROM redrive.jobs j"
        " JOIN redrive.attempts a ON a.job_id = j.id AND a.attempt = 1 AND a.generation = 1"
    )
    cuts = statistics.quantiles([row["s"] for row in waits], n=100)
    with capsys.disabled():
        print(
            f"\n{JOBS} jobs: waiting time p50 {cuts[49]:.3f} s, p95 {cuts[94]:.3f} s, p99 {cuts[98]:.3f} s;"
            f" failure rate {len(letters) / JOBS:.1%} (poisoned: {len(poisoned) / JOBS:.1%})"
        )
