"""Normal, resend, fault: a job's way through the real processes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.stubs import start_third_party
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

ORDER = {"order_id": "o-1", "amount_cents": 1250, "currency": "EUR"}
PAYMENT = {"payment_id": "p-1", "amount_cents": 1250, "currency": "EUR"}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    def make(vhost: Vhost, database: Database, processes: Processes) -> Stack:
        party = start_third_party(processes)
        stack = Stack(vhost, database, processes, {"REDRIVE_THIRD_PARTY_URL": party.url}, third_party=party)
        stack.apply_topology()
        stack.start_api()
        stack.start_worker()
        return stack

    with places.shared(make) as shared:
        yield shared


@pytest.fixture
def third_party(running: Stack) -> ThirdPartyClient:
    assert running.third_party is not None
    return running.third_party


def test_a_job_is_worked_and_its_result_fetched(running: Stack, third_party: ThirdPartyClient) -> None:
    job_id = running.submit("payments.charge_order", ORDER, "order o-1")

    done = running.until(job_id, "SUCCEEDED")
    result = running.http.get(f"/jobs/{job_id}/result")

    # QUEUED is missing where the worker was quicker than the relay's own note of its publish.
    states = [entry["state"] for entry in done["history"] if entry["state"] != "QUEUED"]
    assert states == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["succeeded"]
    assert result.status_code == 200
    assert result.json() == done["result"]
    (charge,) = running.database.fetch("SELECT order_id, amount_cents, reference FROM redrive.sample_charges")
    assert (charge["order_id"], charge["amount_cents"]) == ("o-1", 1250)
    assert charge["reference"] in str(result.json())


@pytest.mark.parametrize("posts", [2, 50])
def test_posts_with_one_key_are_one_job_and_one_effect(
    running: Stack, third_party: ThirdPartyClient, posts: int
) -> None:
    body = {"type": "payments.charge_order", "payload": ORDER}
    headers = {"Idempotency-Key": "order o-1"}
    with ThreadPoolExecutor(posts) as pool:
        answers = list(
            pool.map(lambda _: running.http.post("/jobs", json=body, headers=headers), range(posts))
        )

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.headers.get("Idempotent-Replayed") == "true" for answer in answers) == posts - 1
    running.until(answers[0].json()["id"], "SUCCEEDED")
    assert running.database.value("SELECT count(*) FROM redrive.jobs") == 1
    assert running.database.value("SELECT count(*) FROM redrive.sample_charges") == 1
    assert len(third_party.requests("/charges")) == 1


def test_a_third_party_that_times_out_is_retried_on_the_ladder_until_it_works(
    running: Stack, third_party: ThirdPartyClient
) -> None:
    third_party.fail("/payments", {"timeout": 30}, {"status": 503})

    job_id = running.submit("payments.call_payment_api", PAYMENT, "payment p-1")
    done = running.until(job_id, "SUCCEEDED", 60)

    assert [attempt["outcome"] for attempt in done["attempts"]] == ["retry", "retry", "succeeded"]
    assert done["attempt"] == 3
    assert [entry["state"] for entry in done["history"]].count("RETRYING") == 2
    assert len(third_party.requests("/payments")) == 3
    # Each retry waited in the broker for as long as its attempt says, none in a worker's memory.
    rows = running.database.fetch(
        "SELECT a.delay_ms, extract(epoch FROM b.started_at - a.ended_at) * 1000 AS waited_ms"
        " FROM redrive.attempts a JOIN redrive.attempts b ON b.job_id = a.job_id"
        " AND b.attempt = a.attempt + 1"
        " ORDER BY a.attempt"
    )
    assert [row["waited_ms"] >= row["delay_ms"] * 0.1 - 2 for row in rows] == [True, True], rows


def test_an_answer_429_is_tried_again_not_before_the_time_it_asked_for(
    running: Stack, third_party: ThirdPartyClient
) -> None:
    third_party.fail("/inventory/sku-1", {"status": 429, "retry_after": 10})

    job_id = running.submit("inventory.sync_inventory", {"sku": "sku-1"}, "sku-1")
    running.until(job_id, "SUCCEEDED", 60)

    first, second = third_party.requests("/inventory/sku-1")
    assert second["at"] - first["at"] >= 10 * 0.1


def test_a_poisoned_job_is_dead_lettered_by_the_broker_stored_and_replayed(
    running: Stack, third_party: ThirdPartyClient
) -> None:
    running.start_consumer()
    third_party.fail("/payments", {"status": 400}, then="repeat")
    job_id = running.submit("payments.call_payment_api", PAYMENT, "payment p-1")
    running.until(job_id, "DEAD", 60)

    (letter,) = eventually(lambda: running.http.get("/dead-letters").json()["letters"], 20, "the letter")
    assert (letter["job_id"], letter["queue"], letter["state"]) == (job_id, "payments", "open")
    assert letter["reason"] == "exception"
    dossier = running.http.get(f"/dead-letters/{letter['id']}").json()
    assert dossier["deaths"][0]["reason"] == "rejected"
    assert "Traceback" in dossier["attempts"][-1]["traceback"]

    third_party.heal()
    replayed = running.dlq("replay", str(letter["id"]), "--json")

    assert replayed.returncode == 0, replayed.stderr + replayed.stdout
    done = running.job(job_id)
    assert done["state"] == "SUCCEEDED"
    assert running.http.get(f"/dead-letters/{letter['id']}").json()["state"] == "replayed"
    assert set(running.depths().values()) == {0}
