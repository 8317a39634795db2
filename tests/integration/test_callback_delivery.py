"""Callbacks to receivers that fail, are deaf, gone, or not to be reached; `dlq consume` alone runs."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from urllib.parse import urlsplit

import pytest

from dev.loopback_http import Response
from tests.support.callers import DEAF_HOST, SETTINGS, Caller
from tests.support.databases import Database
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.receiver import Receiver
from tests.support.shared import Places, Shared
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Caller]]:
    def make(vhost: Vhost, database: Database, processes: Processes) -> Caller:
        made = Caller(vhost, database, processes, dict(SETTINGS))
        made.start()
        return made

    with places.shared(make) as shared:
        yield shared


@pytest.fixture
def caller(shared: Shared[Caller], request: pytest.FixtureRequest) -> Iterator[Caller]:
    with shared.lent(request.node) as lent:
        yield lent


def test_one_that_fails_is_tried_again_when_it_asks_for_it_under_the_same_id(
    caller: Caller, hook: Receiver
) -> None:
    hook.failing = [Response(503, headers={"Retry-After": "1000"}), Response(302, headers={"Location": "/"})]
    caller.end("j", f"{hook.url}?token=s3cret")
    caller.until("j", tries=1, state="pending")
    wait = "select extract(epoch from next_try_at - now())::float8 from redrive.callbacks"

    def put_off() -> bool:
        return 900 < float(caller.database.value(wait)) <= 1000

    eventually(put_off, 10, "it is put off as it was asked")
    caller.again("j")
    row = caller.until("j", tries=2, state="pending")
    eventually(lambda: len(json.loads(caller.callback("j")["answers"])) == 2, 10, "the redirect is recorded")
    assert 0 < float(caller.database.value(wait)) <= 12, "twice five seconds, a fifth more at most"
    caller.again("j")
    done = caller.until("j", tries=3, state="delivered")
    assert [each["status"] for each in json.loads(done["answers"])] == [503, 302, 200]
    ids = {request.headers["redrive-delivery"] for request in (*hook.failed, *hook.taken)}
    assert ids == {str(row["id"])}
    for process in caller.processes.started:
        assert "s3cret" not in process.log


def test_one_that_is_gone_or_not_to_be_reached_is_dead_at_once_and_says_why(
    caller: Caller, hook: Receiver
) -> None:
    hook.failing = [410]
    caller.end("gone", hook.url)
    gone = caller.until("gone", state="dead")
    assert (gone["why_dead"], gone["tries"]) == ("the receiver answered 410: gone", 1)
    with closing(socket.create_server(("127.0.0.2", 0))) as inside:
        caller.end("inside", f"http://127.0.0.2:{inside.getsockname()[1]}/s3cret")
        refused = caller.until("inside", state="dead")
        inside.settimeout(0.2)
        with pytest.raises(TimeoutError):
            inside.accept()
    assert "127.0.0.2 is loopback" in refused["why_dead"]
    caller.end("late", f"http://127.0.0.1:{free_port()}/", tries=31)
    late = caller.until("late", state="dead")
    assert late["why_dead"] == "not taken in 32 tries"
    assert "ConnectError" in json.loads(late["answers"])[-1]["error"]
    assert "s3cret" not in refused["answers"] + refused["why_dead"]


def test_a_dead_one_is_listed_and_sent_again_by_hand_and_who_did_it_is_on_record(
    caller: Caller, hook: Receiver
) -> None:
    hook.failing = [410, 410]
    caller.end("a", f"{hook.url}hook?token=s3cret")
    caller.end("b", hook.url)
    ids = [str(caller.until(job, state="dead")["id"]) for job in ("a", "b")]
    listed = caller.dlq_here("callbacks", "--state", "dead", "--job", "a", "--json")
    (shown,) = (json.loads(line) for line in listed.stdout.splitlines())
    assert (shown["id"], shown["url"], shown["answers"][0]["status"]) == (ids[0], f"{hook.url}…", 410)
    first = caller.dlq_here("callbacks", "--limit", "1", "--receiver", f"127.0.0.1:{hook.port}")
    cursor = first.stderr.split("--before ")[1].strip()
    rest = caller.dlq_here("callbacks", "--json", "--before", cursor)
    assert len(rest.stdout.splitlines()) == 1
    assert "the receiver answered 410: gone" in caller.dlq_here("callbacks").stdout

    assert caller.dlq_here("callbacks", "retry", *ids, typed="n").exit_code == 1
    assert caller.dlq_here("callbacks", "retry", "00000000-0000-0000-0000-000000000000").exit_code == 1
    assert caller.dlq_here("callbacks", "--before", "x").exit_code == 2
    assert [caller.callback(job)["state"] for job in ("a", "b")] == ["dead", "dead"]
    done = caller.dlq_here(
        "callbacks", "retry", *ids, "--yes", "--by", "ada", "--note", "it is back", "--json"
    )
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"retried": 2})
    for job in ("a", "b"):
        caller.until(job, state="delivered", tries=1, why_dead=None)
    assert {request.headers["redrive-delivery"] for request in hook.taken} == set(ids)
    listed = caller.dlq_here("callbacks", "--state", "delivered", "--job", "a", "--json")
    (retried,) = json.loads(listed.stdout)["retries"]
    assert (retried["by"], retried["note"]) == ("ada", "it is back")
    assert "s3cret" not in listed.output


def test_a_deaf_receiver_holds_up_no_other_and_letters_neither(caller: Caller, hook: Receiver) -> None:
    with closing(socket.create_server((DEAF_HOST, 0), backlog=100)) as deaf:
        url = f"http://{DEAF_HOST}:{deaf.getsockname()[1]}/"
        for number in range(12):
            caller.end(f"deaf-{number}", url)
        caller.end("quick", hook.url)
        caller.until("quick", state="delivered")
        trying = "select count(*) from redrive.callbacks where place = $1 and tries > 0"
        assert caller.database.value(trying, urlsplit(url).netloc) <= 8
        failed = "select count(*) from redrive.callbacks where answers::text like '%ReadTimeout%'"
        eventually(lambda: caller.database.value(failed) >= 4, 30, "the first four were not answered")


def test_a_flood_of_deaf_receivers_leaves_half_of_the_room_to_those_known_to_be_prompt(
    caller: Caller, hook: Receiver
) -> None:
    caller.end("first", hook.url)
    caller.until("first", state="delivered")
    with ExitStack() as stack:
        for number in range(40):
            deaf = stack.enter_context(closing(socket.create_server((DEAF_HOST, 0))))
            caller.waits(f"deaf-{number}", f"http://{DEAF_HOST}:{deaf.getsockname()[1]}/")
        caller.database.execute("update redrive.jobs set state = 'CANCELLED' where id like 'deaf-%'")
        under_way = "select count(*) from redrive.callbacks where jsonb_array_length(answers) < tries"
        sent = partial(caller.database.value, under_way)
        assert eventually(lambda: (count := sent()) >= 16 and count, 30, "some are on their way") == 16
        caller.end("quick", hook.url)
        caller.until("quick", state="delivered")
        assert sent() <= 16


FLOOD = """
with job as (
    insert into redrive.jobs (id, type, queue, state, calls_back, principal)
    select place, 't', 'q', 'QUEUED', true, 'flood' from unnest($1::text[]) as place returning id
)
insert into redrive.job_callbacks select id, 'http://' || id || '/', id, '{CANCELLED}' from job
"""


def test_a_new_receiver_waits_for_no_flood_of_unknown_ones_of_another_caller(
    caller: Caller, hook: Receiver
) -> None:
    with ExitStack() as stack:
        deaf = [stack.enter_context(closing(socket.create_server((DEAF_HOST, 0)))) for _ in range(120)]
        caller.database.execute(FLOOD, [f"{DEAF_HOST}:{each.getsockname()[1]}" for each in deaf])
        caller.database.execute("update redrive.jobs set state = 'CANCELLED'")
        under_way = "select count(*) from redrive.callbacks where jsonb_array_length(answers) < tries"
        eventually(lambda: caller.database.value(under_way) >= 16, 30, "the room of unknown ones is taken")
        caller.end("new", hook.url)
        caller.until("new", state="delivered")
        waiting = "select count(*) from redrive.callbacks where tries = 0"
        assert caller.database.value(waiting) > len(deaf) / 2, "it went before what came before it"


def test_without_postgres_in_the_middle_of_a_delivery_it_comes_again_under_the_same_id(
    caller: Caller, hook: Receiver
) -> None:
    cut: list[int] = []

    def cut_once(_: object) -> None:
        if not cut:
            cut.append(caller.database.cut_connections())

    hook.before = cut_once
    caller.end("j", hook.url)
    eventually(lambda: cut, 20, "it is on its way when Postgres goes")
    eventually(lambda: hook.taken, 20, "it was taken")
    eventually(lambda: "the database is there" in caller.processes.started[0].log, 30, "Postgres is back")
    caller.again("j")
    caller.until("j", state="delivered")
    assert len({request.headers["redrive-delivery"] for request in hook.taken}) == 1


def test_one_on_its_way_when_the_consumer_is_told_to_stop_is_recorded_and_not_sent_twice(
    caller: Caller, hook: Receiver
) -> None:
    answer = threading.Event()

    def hold(_: object) -> None:
        answer.wait(60)

    hook.before = hold
    caller.end("j", hook.url)
    caller.until("j", tries=1)
    process = caller.processes.started[0]
    process.send(signal.SIGTERM)
    process.wait_for_log("waiting for the callbacks on their way")
    answer.set()
    assert process.wait() == 0
    assert caller.callback("j")["state"] == "delivered"
    assert len(hook.taken) == 1


def test_without_a_secret_callbacks_stay_and_the_log_says_so(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    caller = Caller(vhost, database, processes)
    caller.end("j", "https://hooks.example/")
    process = caller.start()
    process.wait_for_log("callbacks are not sent: no REDRIVE_CALLBACK_SECRET")
    assert process.terminate() == 0
    assert (caller.callback("j")["state"], caller.callback("j")["tries"]) == ("pending", 0)


def test_one_that_cannot_be_written_ends_neither_others_nor_the_drain(caller: Caller, hook: Receiver) -> None:
    caller.end("broken", hook.url, state="SUCCEEDED", result=b"\xff{s3cret")
    caller.end("good", hook.url, state="SUCCEEDED", result=b"7")
    caller.until("good", state="delivered")
    assert json.loads(hook.taken[0].body)["job"]["result"] == 7
    broken = eventually(lambda: json.loads(caller.callback("broken")["answers"]), 20, "it is on record")
    assert "UnicodeDecodeError" in broken[0]["error"]
