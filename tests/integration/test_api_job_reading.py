"""Jobs listed, waited for and followed, through real uvicorn processes, RabbitMQ and Postgres."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.event_stream import Events
from tests.support.stack import Stack
from tests.support.waiting import eventually, let_pass

TYPE = "payments.charge_order"
PAYLOAD = {"order_id": "o-1", "amount_cents": 1999, "currency": "EUR"}
# Of this test's database, whoever asked.
LOOKS = "select sum(xact_commit)::float8 from pg_stat_database where datname = current_database()"


def submitted(stack: Stack) -> str:
    job = stack.submit(TYPE, PAYLOAD, f"key-{time.monotonic_ns()}")
    stack.until(job, "QUEUED")
    return job


def change(stack: Stack, job: str, assignments: str) -> None:
    stack.database.execute(f"update redrive.jobs set {assignments} where id = $1", job)


def listed(stack: Stack, **query: Any) -> list[str]:
    """Ids over all pages."""
    found, cursor = [], None
    while True:
        page = stack.http.get("/jobs", params=query | ({"cursor": cursor} if cursor else {}))
        assert page.status_code == 200, page.text
        found += [job["id"] for job in page.json()["jobs"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            return found


def test_jobs_are_listed_by_each_filter_page_by_page(running: Stack) -> None:
    running.database.execute(
        "insert into redrive.jobs (id, type, queue, state, created_at, result) select 'j' || n,"
        " case when n % 2 = 0 then 'a' else 'b' end, case when n % 3 = 0 then 'x' else 'y' end,"
        " case when n % 5 = 0 then 'DEAD' else 'SUCCEEDED' end,"
        # Several jobs of each time, as in a batch.
        " timestamptz '2026-01-01Z' + n / 4 * interval '1 minute', '1' from generate_series(0, 59) n"
    )
    # Of one time, by their ids.
    newest = sorted(range(60), key=lambda n: (n // 4, f"j{n}"), reverse=True)

    def ids(*chosen: int) -> list[str]:
        return [f"j{n}" for n in newest if n in chosen]

    every = range(60)
    assert listed(running) == listed(running, limit=7) == ids(*every)
    assert listed(running, type="a", limit=7) == ids(*(n for n in every if n % 2 == 0))
    assert listed(running, queue="x", limit=7) == ids(*(n for n in every if n % 3 == 0))
    assert listed(running, state="DEAD", limit=5) == ids(*(n for n in every if n % 5 == 0))
    assert listed(running, type="a", queue="x", state="DEAD") == ids(0, 30)
    since, until = "2026-01-01T00:02:00Z", "2026-01-01T00:04:00+00:00"
    assert listed(running, since=since, until=until, limit=3) == ids(*range(8, 16))
    assert listed(running, type="nope") == []
    (first,) = running.http.get("/jobs", params={"limit": 1}).json()["jobs"]
    assert first.keys() == {
        "id", "type", "queue", "state", "generation", "attempt", "reason", "created_at", "started_at",
        "finished_at", "error", "letter_id",
    }  # fmt: skip
    for name, value in [
        ("state", "dead"), ("since", "yesterday"), ("until", "9999-12-31T23:59:59-01:00"), ("limit", "0"),
        ("limit", "1001"), ("cursor", "x"), ("cursor", "9" * 18 + ".a"), ("type", "a\x00"),
        ("cursor", "1.\x00"), ("type", ""), ("queue", "q" * 256),
    ]:  # fmt: skip
        answer = running.http.get("/jobs", params={name: value})
        assert (name, answer.status_code, answer.json()["errors"][0]["field"]) == (name, 422, name)


def test_a_job_with_a_slash_in_its_id_is_found_and_acted_on(running: Stack) -> None:
    ids = ("order/17", "a%2Fb", "/x/result", "é/?#")
    for number, id_ in enumerate(ids):
        running.database.execute(
            "insert into redrive.jobs (id, type, queue, state, result) values ($1, 't', 'q', 'QUEUED', $2)",
            id_,
            str(number).encode(),
        )
    for id_ in ids:
        url = f"/jobs/{quote(id_, safe='')}"
        assert running.http.get(url).json()["id"] == id_
        assert running.http.get(f"{url}/result").status_code == 409
        assert running.http.post(f"{url}/retry", json={}).status_code == 409
        ended = running.http.post(f"{url}/cancel", json={"note": "n"})
        assert (ended.status_code, ended.json()["state"]) == (200, "CANCELLED")
        # It has ended, so that the stream does.
        assert running.http.get(f"{url}/events").text.count("event: job") == 1
        entries = running.http.get("/audit", params={"target": id_}).json()["entries"]
        assert sorted(entry["operation"].rpartition("/")[2] for entry in entries) == ["cancel", "retry"]
    # Elsewhere it parts nothing either, and nothing is found.
    for path in ("/groups/a%2Fb", "/jobs/a/b%2F", "/jobs/%2F", "/queues/a%2Fb"):
        assert running.http.get(path).status_code == 404, path


def test_waiting_ends_with_the_job_or_with_the_time(running: Stack) -> None:
    job = submitted(running)
    begun = time.monotonic()
    waited = running.http.get(f"/jobs/{job}", params={"wait": "0.5"})
    assert (waited.status_code, waited.json()["state"]) == (200, "QUEUED")
    assert time.monotonic() - begun >= 0.5
    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(running.http.get, f"/jobs/{job}", params={"wait": "60"})
        change(running, job, "state = 'RETRYING', attempt = 2")
        change(running, job, "state = 'SUCCEEDED', result = '{\"a\": 1}', finished_at = now()")
        begun = time.monotonic()
        answer = told.result()
        assert time.monotonic() - begun < 30
    assert (answer.json()["state"], answer.json()["result"]) == ("SUCCEEDED", {"a": 1})
    assert running.http.get(f"/jobs/{job}", params={"wait": "60"}).json()["state"] == "SUCCEEDED"
    assert running.http.get("/jobs/nope", params={"wait": "60"}).status_code == 404
    for wait in ("-1", "61", "nan", "inf", "x"):
        assert running.http.get(f"/jobs/{job}", params={"wait": wait}).status_code == 422


def test_many_who_wait_cost_one_look_at_a_time(running: Stack) -> None:
    job = submitted(running)
    with ThreadPoolExecutor(60) as threads:
        url, key = f"{running.http.base_url}/jobs/{job}", running.http.headers["Authorization"]

        def wait() -> str:
            answer = httpx.get(url, params={"wait": "60"}, headers={"Authorization": key}, timeout=90)
            return str(answer.json()["state"])

        told = [threads.submit(wait) for _ in range(60)]
        connected = "select count(*) from pg_stat_activity where application_name = 'redrive-api'"
        try:
            before, begun = running.database.value(LOOKS), time.monotonic()
            # Each look is a transaction: sixty requests that look for themselves make hundreds a second.
            let_pass(5)
            looks = (running.database.value(LOOKS) - before) / (time.monotonic() - begun)
            assert looks < 60, "transactions a second"
            assert running.database.value(connected) < 20
        finally:
            change(running, job, "state = 'CANCELLED', finished_at = now()")
        assert [each.result() for each in told] == ["CANCELLED"] * 60


def follow(stack: Stack, job: str, last: str = "") -> Any:
    headers = {"Last-Event-ID": last} if last else {}
    return stack.http.stream("GET", f"/jobs/{job}/events", headers=headers, timeout=60)


def states(events: Events) -> list[str]:
    return [data["state"] for _, data in list(events.found)]


def test_a_job_is_followed_to_its_end_and_nothing_is_missed_after_a_cut(running: Stack) -> None:
    job = submitted(running)
    with follow(running, job) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = Events(answer)
        eventually(lambda: states(events) == ["QUEUED"], 20, "the state now")
        change(running, job, "progress = '{\"done\": 1}'")
        eventually(lambda: states(events) == ["QUEUED"] * 2, 20, "its progress")
        assert events.found[-1][1]["progress"] == {"done": 1}
        place = events.last_id
    with follow(running, job, place) as answer:
        events = Events(answer)
        change(running, job, "state = 'RETRYING', attempt = 2")
        eventually(lambda: states(events) == ["RETRYING"], 20, "what is new, and not what was told")
        place = events.last_id
    change(running, job, "state = 'SUCCEEDED', result = '5', finished_at = now()")
    with follow(running, job, place) as answer:
        events = Events(answer)
        eventually(lambda: events.ended, 20, "the answer ends with the job")
        assert states(events) == ["SUCCEEDED"]
        name, shown = events.found[-1]
        assert (name, shown) == ("job", running.job(job))
        place = events.last_id
    with follow(running, job, place) as answer:
        assert answer.status_code == 204
    assert running.http.get("/jobs/nope/events").status_code == 404


def test_following_outlives_the_database_and_ends_with_the_server(stack: Stack) -> None:
    stack.apply_topology()
    process = stack.start_api()
    job = submitted(stack)
    with (
        follow(stack, job) as answer,
        closing(HTTPConnection(stack.http.base_url.netloc.decode())) as waiting,
    ):
        events = Events(answer)
        eventually(lambda: states(events) == ["QUEUED"], 20, "the state now")
        assert stack.database.cut_connections() > 0
        change(stack, job, "state = 'RETRYING', attempt = 2")
        eventually(lambda: states(events) == ["QUEUED", "RETRYING"], 30, "the change after the cut")
        key = {"Authorization": stack.http.headers["Authorization"]}
        waiting.request("GET", f"/jobs/{job}?wait=60", headers=key)
        stack.job(job)  # by now the request before has been taken
        process.terminate()
        eventually(lambda: events.ended, 30, "the answer ends complete")
        assert json.loads(waiting.getresponse().read())["state"] == "RETRYING"
    assert "Application shutdown complete" in process.log


def test_a_result_of_a_megabyte_is_read_whole_wherever_it_is_shown(running: Stack) -> None:
    job = submitted(running)
    value = [{"n": number, "words": ["NaN", "\ud800", None, 1.5]} for number in range(20_000)]
    text = json.dumps(value).encode()
    running.database.execute(
        "update redrive.jobs set state = 'SUCCEEDED', result = $2 where id = $1", job, text
    )
    assert running.job(job)["result"] == value
    assert running.http.get(f"/jobs/{job}?wait=1").json()["result"] == value
    assert running.http.get(f"/jobs/{job}/result").content == text
    with running.http.stream("GET", f"/jobs/{job}/events") as answer:
        events = Events(answer)
        eventually(lambda: events.ended, 30, "the stream ends with the job")
    ((name, shown),) = events.found
    assert (name, shown["result"]) == ("job", value)
