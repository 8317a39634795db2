"""A job that works, one that works at the third try, one that waits as long as it is asked to."""

from __future__ import annotations

from itertools import pairwise

from dev.story.ladder_watch import LadderWatch, seen_between
from dev.story.stage import Stage
from dev.story.telling import expect
from topology.catalogue import TOPOLOGY

RETRY_AFTER_S = 3


def good_job(stage: Stage) -> None:
    stage.tell.step("A job that succeeds")
    payload = {"payment_id": "payment-1", "amount_cents": 1250, "currency": "EUR"}
    made = stage.submit("payments.call_payment_api", payload, "payment-1")
    expect(made.location == f"/jobs/{made.job_id}", "Location to be the job's", made.location)
    job = stage.until(made.job_id, "SUCCEEDED")
    requests = stage.third_party.requests("/payments")
    expect(len(requests) == 1, "one request at the third party", requests)
    expect(len(job["attempts"]) == 1, "one attempt", job["attempts"])
    stage.tell.seen(f"SUCCEEDED; GET /jobs/…/result: {stage.api.result(made.job_id)}")
    stage.tell.seen(f"the third party saw {requests[0]['method']} {requests[0]['path']} once")


def transient_failure(stage: Stage) -> None:
    stage.tell.step("The third party answers 503 twice, then works")
    payload = {"payment_id": "payment-2", "amount_cents": 250, "currency": "EUR"}
    stage.third_party.fail("/payments", {"status": 503}, {"status": 503}, match=payload)
    with LadderWatch(stage.stack.urls.amqp, TOPOLOGY.queue("payments")) as watch:
        made = stage.submit("payments.call_payment_api", payload, "payment-2")
        job = stage.until(made.job_id, "SUCCEEDED")
    expect(watch.problem is None, "the broker to be watched throughout", watch.problem)
    requests = [each for each in stage.third_party.requests("/payments") if each["body"] == payload]
    answers = [each["answered"] for each in requests]
    expect(answers == [503, 503, 201], "503, 503 and 201 at the third party", answers)
    for number, (before, after) in enumerate(pairwise(requests), 1):
        queues = seen_between(watch.sightings, before["at"], after["at"])
        expect(bool(queues), f"wait {number} in a retry queue", {"job": job, "sightings": watch.sightings})
        stage.tell.seen(
            f"try {number} got {before['answered']}; then waited {after['at'] - before['at']:.2f} s "
            f"in {' → '.join(queues)}"
        )
    outcomes = [each["outcome"] for each in job["attempts"]]
    expect(outcomes == ["retry", "retry", "succeeded"], "retry, retry, succeeded", outcomes)
    stage.tell.seen(f"try 3 got {answers[2]}: SUCCEEDED; attempts on record: {', '.join(outcomes)}")


def rate_limited(stage: Stage) -> None:
    stage.tell.step(f"The third party answers 429 with Retry-After: {RETRY_AFTER_S}")
    stage.third_party.fail("/inventory/sku-3", {"status": 429, "retry_after": RETRY_AFTER_S})
    made = stage.submit("inventory.sync_inventory", {"sku": "sku-3"}, "sku-3")
    stage.until(made.job_id, "SUCCEEDED")
    requests = stage.third_party.requests("/inventory/sku-3")
    answers = [each["answered"] for each in requests]
    expect(answers == [429, 200], "429 and 200 at the third party", answers)
    waited = requests[1]["at"] - requests[0]["at"]
    expect(waited >= RETRY_AFTER_S, f"no request for {RETRY_AFTER_S} s", f"one after {waited:.3f} s")
    stage.tell.seen(
        f"asked again {waited:.2f} s later, not before; SUCCEEDED: {stage.api.result(made.job_id)}"
    )


def same_key(stage: Stage) -> None:
    stage.tell.step("The same Idempotency-Key three times")
    payload = {"order_id": "order-4", "amount_cents": 4900, "currency": "EUR"}
    first = stage.submit("payments.charge_order", payload, "order-4")
    again = stage.submit("payments.charge_order", payload, "order-4")
    third = stage.submit("payments.charge_order", payload, "order-4", key_in_body=True)
    expect(
        {again.job_id, third.job_id} == {first.job_id}, "one job", (first.job_id, again.job_id, third.job_id)
    )
    replayed = (first.replayed, again.replayed, third.replayed)
    expect(replayed == (False, True, True), "Idempotent-Replayed on the second and third answer", replayed)
    stage.until(first.job_id, "SUCCEEDED")
    charges = [each for each in stage.third_party.charges() if each["body"].get("order_id") == "order-4"]
    expect(len(charges) == 1, "one charge at the third party", stage.third_party.charges())
    requests = stage.third_party.requests("/charges")
    expect(len(requests) == 1, "one request for it", requests)
    stage.tell.seen(f"one job, one request, one charge at the third party: {charges[0]['id']}")
