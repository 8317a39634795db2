"""A worker killed in the middle of a job: redelivered by the broker, finished by another, one effect."""

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

ORDER = {"order_id": "o-1", "amount_cents": 1250, "currency": "EUR"}


def test_a_job_whose_worker_is_killed_is_finished_by_another_with_one_effect(
    stack: Stack, third_party: ThirdPartyClient
) -> None:
    third_party.fail("/charges", {"delay": 30})
    stack.apply_topology()
    stack.start_api()
    doomed = stack.start_worker(concurrency=1)
    job_id = stack.submit("payments.charge_order", ORDER, "order o-1")
    stack.until(job_id, "RUNNING")
    eventually(lambda: third_party.requests("/charges"), 10, "the charge is under way")
    # Only what had begun counts as an attempt; that it has is on record a quarter of a second later.
    begun = "SELECT count(*) FROM redrive.jobs WHERE lease_cap IS NOT NULL"
    eventually(lambda: stack.database.value(begun) == 1, 10, "it is on record that the run began")

    doomed.kill_group()
    stack.start_worker(concurrency=1)
    done = stack.until(job_id, "SUCCEEDED", 60)

    assert [attempt["outcome"] for attempt in done["attempts"]] == ["lost", "succeeded"]
    first, second = done["attempts"]
    assert first["worker"] != second["worker"]
    assert stack.database.value("SELECT count(*) FROM redrive.sample_charges") == 1
    assert stack.database.value("SELECT count(*) FROM redrive.effects") == 1
    # Both calls carried one key, so the third party charged once.
    assert len({request["key"] for request in third_party.requests("/charges")}) == 1
    assert len(third_party.charges()) == 1
    eventually(lambda: set(stack.depths().values()) == {0}, 20, "nothing is left in any queue")
