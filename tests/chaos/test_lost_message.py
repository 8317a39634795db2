"""A worker is killed and its message is lost as well: the job does not say RUNNING for ever."""

from __future__ import annotations

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

ORDER = {"order_id": "o-1", "amount_cents": 1250, "currency": "EUR"}


def test_a_job_that_lost_its_worker_and_its_message_is_sent_again_with_one_effect(
    stack: Stack, third_party: ThirdPartyClient
) -> None:
    third_party.fail("/charges", {"delay": 30})
    stack.apply_topology()
    stack.start_api()
    doomed = stack.start_worker(concurrency=1)
    job_id = stack.submit("payments.charge_order", ORDER, "order o-1")
    begun = "SELECT count(*) FROM redrive.jobs WHERE lease_cap IS NOT NULL"
    eventually(lambda: stack.database.value(begun) == 1, 30, "it runs, and that is on record")
    eventually(lambda: third_party.requests("/charges"), 30, "it has met the delay: the next try does not")
    doomed.kill_group()
    eventually(lambda: stack.depth("payments") == 1, 30, "its message is back")
    with stack.vhost.channel() as channel:
        channel.queue_purge("payments")
    # A quarter of an hour passes.
    stack.database.execute(
        "UPDATE redrive.jobs SET lease_until = now() - interval '15 min',"
        " lease_cap = now() - interval '5 min'"
    )
    worker = stack.start_worker(concurrency=1)
    done = stack.until(job_id, "SUCCEEDED", 60)
    assert f"its worker and its message were lost: RETRYING, sent again action=job_lost job_id={job_id}" in (
        worker.log
    )
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["lost", "succeeded"]
    assert stack.database.value("SELECT count(*) FROM redrive.sample_charges") == 1
    assert len(third_party.charges()) == 1
    eventually(lambda: set(stack.depths().values()) == {0}, 20, "nothing is left in any queue")
