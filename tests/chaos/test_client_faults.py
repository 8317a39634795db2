"""The Python client while the API is killed, restarted, cut off or without its database, and under Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from api.client import Accepted, AsyncClient, Client, NewJob, OutcomeUnknown, Unavailable, Unreachable
from tests.support.ports import free_port
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually

MakeProxy = Callable[..., TcpProxy]
TYPE = "payments.charge_order"
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}


def key_of(stack: Stack) -> str:
    return str(stack.http.headers["Authorization"]).removeprefix("Bearer ")


def jobs(stack: Stack) -> int:
    return int(stack.database.value("select count(*) from redrive.jobs"))


def change(stack: Stack, job: str, assignments: str) -> None:
    stack.database.execute(f"update redrive.jobs set {assignments} where id = $1", job)


def test_killed_between_commit_and_answer_a_submission_makes_one_job(stack: Stack, proxy: MakeProxy) -> None:
    stack.api_port = free_port()
    process = stack.start_api()
    door = proxy(str(stack.http.base_url))

    def killed_at(answer: bytes, submit: Callable[[], Any]) -> Any:
        nonlocal process
        door.hold_from(answer)
        with ThreadPoolExecutor(1) as thread:
            told = thread.submit(submit)
            eventually(lambda: door.holds(answer), 30, "it is committed, and the answer on its way")
            process.kill()
            assert not told.done()
            door.refuse()
            process = stack.start_api()
            door.resume()
            return told.result(60)

    with Client(door.url, key_of(stack)) as client:
        job = killed_at(b" 202 Accepted", lambda: client.submit(TYPE, CHARGE))
        assert job.replayed
        assert jobs(stack) == 1
        many = [NewJob(TYPE, CHARGE) for _ in range(5)]
        results = killed_at(b'"accepted":5', lambda: client.submit_many(many))
        assert [each.replayed for each in results if isinstance(each, Accepted)] == [True] * 5
        assert jobs(stack) == 6
        # What must not be sent twice is not.
        change(stack, job.id, "state = 'DEAD', finished_at = now()")
        door.hold_from(b" 409 Conflict")
        with ThreadPoolExecutor(1) as thread:
            told = thread.submit(client.retry, job)
            eventually(lambda: door.holds(b" 409 Conflict"), 30, "it was asked")
            door.cut()
            with pytest.raises(OutcomeUnknown):
                told.result(60)


async def followed(url: str, key: str, job: str, told: list[str]) -> str:
    """By two at a time: what the events tell, and how the wait ended."""
    async with AsyncClient(url, key) as client:

        async def follow() -> None:
            async for each in client.events(job):
                told.append(each.state)  # noqa: PERF401  # as they come

        _, ended = await asyncio.gather(follow(), client.wait(job))
        return ended.state


def test_waiting_and_events_go_on_over_a_kill_and_over_a_restart(stack: Stack) -> None:
    stack.api_port = free_port()
    process = stack.start_api()
    url, key = str(stack.http.base_url), key_of(stack)
    with Client(url, key) as client, ThreadPoolExecutor(3) as threads:
        job = client.submit(TYPE, CHARGE, delay_s=3_600).id
        told, told_too = list[str](), list[str]()

        def follow() -> None:
            told.extend(each.state for each in client.events(job))

        following, waiting = threads.submit(follow), threads.submit(client.wait, job)
        both: Future[str] = threads.submit(lambda: asyncio.run(followed(url, key, job, told_too)))
        eventually(lambda: told == told_too == ["PENDING"], 30, "the first event came")
        process.kill()
        change(stack, job, "state = 'RETRYING', attempt = 2")
        process = stack.start_api()
        eventually(lambda: told == told_too == ["PENDING", "RETRYING"], 30, "events go on")
        process.terminate()
        change(stack, job, "state = 'SUCCEEDED', result = '7', finished_at = now()")
        assert [each.done() for each in (following, waiting, both)] == [False] * 3
        stack.start_api()
        following.result(60)
        assert (waiting.result(60).result(), both.result(60)) == (7, "SUCCEEDED")
        assert told == told_too == ["PENDING", "RETRYING", "SUCCEEDED"]


def test_cut_off_events_go_on_and_a_503_is_awaited(stack: Stack, proxy: MakeProxy) -> None:
    database = proxy(stack.database.url)
    process = stack.start_api(REDRIVE_DATABASE_URL=database.url)
    door = proxy(str(stack.http.base_url))
    with Client(door.url, key_of(stack)) as client, ThreadPoolExecutor(2) as threads:
        job = client.submit(TYPE, CHARGE, delay_s=3_600)
        events = client.events(job)
        assert next(events).state == "PENDING"
        following = threads.submit(next, events)
        door.cut()
        change(stack, job.id, "state = 'RETRYING', attempt = 2")
        assert following.result(60).state == "RETRYING"
        events.close()
        database.refuse()
        eventually(lambda: stack.http.get("/jobs").status_code == 503, 30, "the database is missed")
        with Client(door.url, key_of(stack), timeout_s=6.0) as hasty, pytest.raises(Unavailable) as raised:
            hasty.submit(TYPE, CHARGE, key="mine")
        assert (raised.value.kind, raised.value.retry_after_s) == ("database-away", 2.0)
        assert raised.value.idempotency_key == "mine"
        submitted = threads.submit(client.submit, TYPE, CHARGE, key="mine")
        assert not submitted.done()
        database.resume()
        assert submitted.result(60).state == "PENDING"
    assert process.exit_code is None
    assert jobs(stack) == 2


# Ctrl-C is heeded also where the tests run in the background of a shell, which ignores it there.
WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from api.client import Client
with Client(sys.argv[1], sys.argv[2]) as client:
    print("waiting", flush=True)
    {call}
"""


def test_ctrl_c_ends_a_wait_and_events_at_once(stack: Stack) -> None:
    stack.start_api()
    url, key = str(stack.http.base_url), key_of(stack)
    with Client(url, key) as client:
        job = client.submit(TYPE, CHARGE, delay_s=3_600)
    for call in ("client.wait(sys.argv[3])", "list(client.events(sys.argv[3]))"):
        argv = [sys.executable, "-c", WAITING.format(call=call), url, key, job.id]
        waiting = stack.processes.start("waiting", argv, {})
        waiting.wait_for_log("waiting")
        waiting.send(signal.SIGINT)
        assert waiting.wait(20) == -signal.SIGINT
        assert "KeyboardInterrupt" in waiting.log
        assert key not in waiting.log


def test_an_api_that_is_not_there_is_told_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    async def wait() -> None:
        async with AsyncClient(url, "key", timeout_s=0.5, request_timeout_s=0.5) as client:
            with pytest.raises(Unreachable):
                await client.wait("j", timeout_s=0.5)
            with pytest.raises(Unreachable):
                await anext(client.events("j"))

    asyncio.run(wait())
