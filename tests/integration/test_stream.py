"""`GET /stream` and `dlq tail` over real processes."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.support.event_stream import Events
from tests.support.letter_rows import prepare, store
from tests.support.memory import rss_bytes
from tests.support.processes import Process, console_script
from tests.support.stack import Stack
from tests.support.waiting import eventually


def letters(events: Events) -> list[int]:
    return [data["id"] for name, data in list(events.found) if name == "letter"]


@contextmanager
def streamed(stack: Stack, last: str = "", **query: str) -> Iterator[Events]:
    headers = {"Last-Event-ID": last} if last else {}
    with stack.http.stream("GET", "/stream", params=query, headers=headers, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = Events(answer)
        eventually(lambda: events.last_id != "", 20, "the stream tells its place")
        yield events


@pytest.fixture
def api(stack: Stack) -> tuple[Stack, Process]:
    prepare(stack.database)
    return stack, stack.start_api()


PLAN = "00000000-0000-0000-0000-000000000001"


def test_letters_and_replays_come_live_and_the_stream_goes_on_where_it_ended(
    api: tuple[Stack, Process],
) -> None:
    stack, process = api
    store(stack.database, 2, task="before")
    with streamed(stack) as events, streamed(stack, task="b") as some:
        store(stack.database, 1, task="a")
        store(stack.database, 1, task="b")
        eventually(lambda: letters(events) == [3, 4], 20, "both new letters")
        eventually(lambda: letters(some) == [4], 20, "the one that matches")
        shown = stack.http.get("/dead-letters/4").json()
        assert [(n, d["id"], d["headers"]) for n, d in some.found] == [("letter", 4, shown["headers"])]

        stack.database.execute(f"insert into redrive.replays (id, requested_by) values ('{PLAN}', 'me')")
        stack.database.execute(
            "insert into redrive.replay_items (token, replay_id, position, letter_id, target)"
            f" select id::text, '{PLAN}', id, id, 'q' from redrive.dead_letters"
        )
        stack.database.execute("update redrive.replay_items set state = 'published' where letter_id < 3")

        def progress() -> bool:
            plans = [data for name, data in list(events.found) if name == "replay"]
            assert plans
            assert (plans[-1]["id"], plans[-1]["letters"]) == (PLAN, 4)
            assert plans[-1]["states"] == {"staged": 2, "published": 2}
            return True

        eventually(progress, 20, "the replay's progress")
        place = events.last_id
    store(stack.database, 3, task="meanwhile")
    with streamed(stack, last=place) as events:
        eventually(lambda: letters(events) == [5, 6, 7], 20, "those of meanwhile")
        process.terminate()
        eventually(lambda: events.ended, 20, "the answer ends complete")
    assert "Application shutdown complete" in process.log
    assert "Cancel" not in process.log


def test_a_stream_outlives_its_database_and_wrong_places_are_refused(api: tuple[Stack, Process]) -> None:
    stack, _ = api
    refused = stack.http.get("/stream", headers={"Last-Event-ID": "x"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "Last-Event-ID")
    with streamed(stack) as events:
        assert stack.database.cut_connections() > 0
        store(stack.database, 1)
        eventually(lambda: letters(events) == [1], 30, "the letter after the cut")


def test_a_reader_that_does_not_read_holds_up_nobody_and_little_memory(api: tuple[Stack, Process]) -> None:
    stack, process = api
    url = urlsplit(str(stack.http.base_url))
    with socket.socket() as slow, streamed(stack) as events:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect((url.hostname, url.port))
        key = stack.http.headers["authorization"]
        slow.sendall(f"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n".encode())
        assert slow.recv(10)
        store(stack.database, 1)
        eventually(lambda: letters(events) == [1], 20, "the others go on")
        before = rss_bytes(process.pid)
        store(stack.database, 8_000, header="x" * 8_000)
        eventually(lambda: len(letters(events)) == 8_001, 60, "all letters for the reader that reads")
        # 64 MB went out to the one; the other was handed a page of 100 at most.
        assert rss_bytes(process.pid) - before < 40_000_000


def test_tail_prints_the_last_letters_and_then_each_new_one(stack: Stack) -> None:
    prepare(stack.database)
    store(stack.database, 3, task="a")
    tail = stack.processes.start(
        "tail", console_script("dlq_consumer.cli:main", "tail", "-n", "2", "--task", "a"), stack.settings
    )
    tail.wait_for_log("3 ")
    store(stack.database, 1, task="b")
    store(stack.database, 1, task="a")
    tail.wait_for_log("\n5 ")
    stack.database.cut_connections()
    store(stack.database, 1, task="a")
    tail.wait_for_log("\n6 ", 30)
    tail.send(signal.SIGINT)
    assert tail.wait() == 130
    rows = [line.split()[:3] for line in tail.log.splitlines() if line[0].isdigit()]
    assert rows == [[str(id_), "q", "exception"] for id_ in (2, 3, 5, 6)]
    assert "Traceback" not in tail.log
