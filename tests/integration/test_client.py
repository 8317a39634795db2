"""The Python client against real processes of ours; the examples of its documents are run here."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from pydantic import BaseModel

from api.client import (
    Accepted,
    AsyncClient,
    Client,
    Forbidden,
    IdempotencyConflict,
    Invalid,
    Job,
    JobCancelled,
    JobDead,
    NewJob,
    NotAllowed,
    NotFound,
    RateLimited,
    Refused,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WaitTimeout,
)
from dev.loopback_http import Request, Response, port_of, serve
from tests.support import background
from tests.support.all_running import all_running
from tests.support.ports import free_port
from tests.support.shared import Places, Shared
from tests.support.stack import Stack

ROOT = Path(__file__).parents[2]
TYPE = "payments.charge_order"
T = TypeVar("T")


def charge(order: str) -> dict[str, Any]:
    return {"order_id": order, "amount_cents": 1999, "currency": "EUR"}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    with all_running(places) as shared:
        yield shared


def address(stack: Stack) -> tuple[str, str]:
    return str(stack.http.base_url), stack.http.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def client(running: Stack) -> Iterator[Client]:
    with Client(*address(running)) as client:
        yield client


def count(stack: Stack, table: str = "jobs") -> int:
    return int(stack.database.value(f"select count(*) from redrive.{table}"))


class Charge(BaseModel):
    order_id: str
    amount_cents: int
    currency: str = "EUR"


def test_a_job_is_submitted_followed_and_its_result_read(client: Client) -> None:
    job = client.submit(TYPE, Charge(order_id="o1", amount_cents=5), key="k1")
    assert (job.type, job.queue, job.state, job.replayed) == (TYPE, "payments", "PENDING", False)
    states = [told.state for told in client.events(job)]
    assert states[-1] == "SUCCEEDED"
    done = client.wait(job, timeout_s=60)
    assert (
        done.result() == client.result(job.id) == {"order_id": "o1", "charged": True, "reference": "charge-1"}
    )
    assert done.finished_at is not None
    assert done.created_at <= done.finished_at
    again = client.submit(TYPE, Charge(order_id="o1", amount_cents=5), key="k1")
    assert (again.id, again.replayed) == (job.id, True)
    assert [told.state for told in client.events(job)] == ["SUCCEEDED"]


def test_the_same_with_asyncio(running: Stack) -> None:
    async def use() -> tuple[Sequence[str], Any, list[str], list[bool]]:
        async with AsyncClient(*address(running)) as client:
            job = await client.submit(TYPE, charge("o1"), key="k1")
            states = [told.state async for told in client.events(job)]
            result = await client.result(job, timeout_s=60)
            assert (await client.get(job)).ended
            many = await client.submit_many(NewJob(TYPE, charge(f"m{n}")) for n in range(3))
            for each in many:
                assert isinstance(each, Accepted)
                await client.wait(each.id, timeout_s=60)
            later = await client.submit(TYPE, charge("o2"), delay_s=3600)
            cancelled = await client.cancel(later, "not wanted")
            assert cancelled.state == "CANCELLED"
            with pytest.raises(NotAllowed):
                await client.retry(later)
            listed = [each.id async for each in client.jobs(type=TYPE)]
            assert {job.id, later.id} <= set(listed)
            return states, result, listed, [isinstance(each, Accepted) for each in many]

    states, result, listed, accepted = asyncio.run(use())
    assert states[-1] == "SUCCEEDED"
    assert result["charged"] is True
    assert accepted == [True] * 3
    assert len(listed) == len(set(listed)) == 5


def test_options_and_lists_are_the_api_s(client: Client) -> None:
    before = datetime.now(UTC)
    late = client.submit(TYPE, charge("a"), not_before=before + timedelta(hours=1), priority=3)
    assert client.get(late).raw["priority"] == 3
    expired = client.submit(TYPE, charge("b"), expires=before - timedelta(hours=1))
    assert client.wait(expired, timeout_s=60).reason == "expired"
    assert [job.id for job in client.jobs(state="PENDING")] == [late.id]
    assert [job.id for job in client.jobs(queue="payments", since=before, until="0s")] == [
        expired.id,
        late.id,
    ]
    assert list(client.jobs(until=before)) == []
    with pytest.raises(ValueError, match="has no zone"):
        list(client.jobs(since=datetime(2026, 1, 1)))  # noqa: DTZ001


def test_pages_follow_each_other(running: Stack, client: Client) -> None:
    running.database.execute(
        "insert into redrive.jobs (id, type, queue, state) "
        "select 'j' || n, 't', 'q', 'SUCCEEDED' from generate_series(1, 1201) n"
    )
    assert len({job.id for job in client.jobs(type="t")}) == 1_201


def test_a_dead_job_says_why_and_runs_again(running: Stack, client: Client) -> None:
    party = running.third_party
    assert party is not None
    party.fail("/charges", {"status": 400})
    job = client.submit(TYPE, charge("o1"))
    with pytest.raises(JobDead, match="exception") as raised:
        client.result(job, timeout_s=60)
    assert raised.value.job is not None
    assert "PermanentError" in raised.value.job.error
    # At once: until its letter is stored, the API says when to come again.
    replay = client.retry(job, "the provider is back")
    assert replay.raw["note"] == "the provider is back"
    assert client.result(job, timeout_s=60)["order_id"] == "o1"  # of the run to come, not of the one before
    with pytest.raises(NotAllowed):
        client.retry(job)
    later = client.submit(TYPE, charge("o2"), delay_s=3_600)
    with pytest.raises(WaitTimeout) as late:
        client.wait(later, timeout_s=2)
    assert isinstance(late.value, TimeoutError)
    assert late.value.job is not None
    assert late.value.job.state == "PENDING"
    client.cancel(later)
    with pytest.raises(JobCancelled):
        client.result(later)


def test_refusals_have_types_and_fields(running: Stack, client: Client) -> None:
    with pytest.raises(Invalid) as raised:
        client.submit(TYPE, {"order_id": "o", "amount_cents": "5", "currency": "EUR"}, key="k")
    assert raised.value.errors[0].field == "payload.amount_cents"
    assert (raised.value.kind, raised.value.idempotency_key) == ("invalid", "k")
    client.submit(TYPE, charge("o"), key="k")
    with pytest.raises(IdempotencyConflict):
        client.submit(TYPE, charge("other"), key="k")
    with pytest.raises(Invalid, match="idempotency_key"):
        client.submit(TYPE, charge("o"), key="é\n")
    with pytest.raises(Invalid, match="not empty"):  # no key of its own instead, under which it runs twice
        client.submit(TYPE, charge("o"), key="")
    with pytest.raises(NotFound):
        client.get("a/../b")
    with pytest.raises(NotFound):
        next(client.events("nope"))
    with Client(address(running)[0], "rdk_unknown") as stranger, pytest.raises(Unauthorized):
        stranger.get("x")
    made = running.command("api.keys_cli:main", "create", "reader", "--scope", "read")
    with Client(address(running)[0], made.stdout.strip()) as reader, pytest.raises(Forbidden, match="submit"):
        reader.submit(TYPE, charge("o"))


def test_many_jobs_have_a_result_each_and_come_back_when_sent_again(running: Stack, client: Client) -> None:
    kind = "webhooks.handle_webhook"
    jobs = [NewJob(kind, {"event_id": f"e{n}", "kind": "k"}, delay_s=3_600) for n in range(1_100)]
    jobs[7] = NewJob(TYPE, {"order_id": "o"})
    jobs[8] = NewJob(TYPE, charge("\ud800"))
    jobs[9] = NewJob(TYPE, charge("x") | {"currency": "\x00"})
    results = client.submit_many(iter(jobs))
    assert [result.job for result in results] == jobs
    refused = [place for place, result in enumerate(results) if isinstance(result, Refused)]
    assert refused == [7, 8, 9]
    assert count(running) == 1_097
    again = client.submit_many(jobs)
    assert [each.replayed for each in again if isinstance(each, Accepted)] == [True] * 1_097
    assert count(running) == 1_097


@contextmanager
def answering(*answers: Response | None) -> Iterator[tuple[str, list[Request]]]:
    """A server that gives these answers, the last of them again and again; None drops the connection."""
    left, taken = list(answers), list[Request]()

    async def handle(request: Request) -> Response | None:
        taken.append(request)
        return left.pop(0) if len(left) > 1 else left[0]

    server = background.run(serve(handle, 0))
    try:
        yield f"http://127.0.0.1:{port_of(server)}/under", taken
    finally:
        background.run(_close(server))


async def _close(server: asyncio.Server) -> None:
    server.close()


TIME = "2026-01-31T12:00:00+00:00"
JOB = {
    "id": "j",
    "type": "t",
    "queue": "q",
    "state": "PENDING",
    "attempt": 1,
    "created_at": TIME,
} | dict.fromkeys(("started_at", "finished_at"))
LATER = {"Retry-After": "1"}


def both(
    use: Callable[[Client], T], use_async: Callable[[AsyncClient], Any], url: str, timeout_s: float = 60
) -> list[T]:
    """What the two clients make of the same."""

    async def run() -> T:
        async with AsyncClient(url, "key", timeout_s=timeout_s) as client:
            made: T = await use_async(client)
            return made

    with Client(url, "key", timeout_s=timeout_s) as client:
        return [use(client), asyncio.run(run())]


def test_a_submission_is_sent_again_after_each_passing_fault_with_one_key() -> None:
    faults = (
        Response(429, headers=LATER),
        Response(503, headers={"Retry-After": "0"}),
        Response(502, b"<html>"),
        None,
    )
    good = Response.of(JOB, 202)
    with answering(*faults, good, *faults, good) as (url, taken):
        jobs = both(lambda c: c.submit("t", {}), lambda c: c.submit("t", {}), url)
    assert [job.id for job in jobs] == ["j", "j"]
    assert [request.path for request in taken] == ["/under/jobs"] * 10
    keys = [dict(request.json())["idempotency_key"] for request in taken]  # type: ignore[call-overload]
    assert keys == [keys[0]] * 5 + [keys[5]] * 5
    assert keys[0] != keys[5]
    assert {request.headers["authorization"] for request in taken} == {"Bearer key"}


def test_what_lasts_is_raised_within_the_time() -> None:
    for answer, expected in (
        (Response(429, headers={"Retry-After": "60"}), RateLimited),
        (Response(503, b"busy"), Unavailable),
        (None, Unreachable),
        (Response(307, headers={"Location": "http://127.0.0.1:1/"}), UnexpectedAnswer),
        (Response(200, b"<html>"), UnexpectedAnswer),
    ):
        with answering(answer) as (url, taken):

            def fails(client: Client, expected: type[Exception] = expected) -> str | None:
                with pytest.raises(expected) as raised:
                    client.submit("t", {}, key="mine")
                return getattr(raised.value, "idempotency_key", None)

            async def fails_too(client: AsyncClient, expected: type[Exception] = expected) -> str | None:
                with pytest.raises(expected) as raised:
                    await client.submit("t", {}, key="mine")
                return getattr(raised.value, "idempotency_key", None)

            keys = both(fails, fails_too, url, timeout_s=2.0)
            assert taken
            if expected is not UnexpectedAnswer:
                assert keys == ["mine", "mine"]
    deaf = f"http://127.0.0.1:{free_port()}"
    with Client(deaf, "key", timeout_s=0.5) as client, pytest.raises(Unreachable, match="times"):
        client.get("j")


def test_a_key_s_rate_limit_is_kept_to(running: Stack) -> None:
    made = running.command("api.keys_cli:main", "create", "slow", "--rate", "2", "--burst", "1")
    url, key = address(running)[0], made.stdout.strip()
    headers = {"Authorization": f"Bearer {key}"}
    asked = [httpx.get(f"{url}/job-types", headers=headers, timeout=30) for _ in range(6)]
    assert {answer.status_code for answer in asked} == {200, 429}
    with Client(url, key) as client:
        jobs = [client.submit(TYPE, charge(f"r{number}"), delay_s=3_600) for number in range(4)]
    assert [job.replayed for job in jobs] == [False] * 4


def test_threads_may_share_a_client(running: Stack, client: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        jobs = list(threads.map(lambda n: client.submit(TYPE, charge(f"o{n}")), range(40)))
        ended = list(threads.map(lambda job: client.wait(job, timeout_s=60), jobs))
    assert [job.state for job in ended] == ["SUCCEEDED"] * 40


def blocks(document: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(code: str, stack: Stack, names: dict[str, Any] | None = None) -> str:
    """What it prints."""
    url, key = address(stack)
    code = code.replace("http://127.0.0.1:8000", url).replace("rdk_…", key)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "document", "exec"), {} if names is None else names)
    return said.getvalue()


def test_the_readme_s_example_does_what_it_says(running: Stack) -> None:
    (code,) = blocks("README.md")
    told = re.search(r"prints `(.*?)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert told is not None
    assert run(code, running).strip() == told[1]
    assert count(running) == 1


def test_every_example_of_the_client_s_page_runs(running: Stack) -> None:
    names: dict[str, Any] = {}
    for code in blocks("docs/client.md"):
        run(code, running, names)
    assert isinstance(names["job"], Job)
