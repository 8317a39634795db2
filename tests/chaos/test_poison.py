"""What a library below Celery cannot parse dies alone, and the worker comes back by itself.

The hook that keeps such messages from raising is taken out of these workers: the window of one after a
reconnect and the broker's delivery limit are what is left.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.unhooked_jobs import DELIVERY_LIMIT
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work
from topology.deaths import deaths
from topology.messages import Message, task_message
from topology.wire import HeaderEntry, Properties, RawProperties, properties, split

APP = "tests.support.unhooked_jobs"
GOOD = 12
PLAIN = properties(headers={"task": "t.fine", "id": "poison"}, content_type="application/json")
ODD_TIME = HeaderEntry(b"at", b"T" + (2**62).to_bytes(8, "big"))
POISONS = {
    "a timestamp of 2^62": PLAIN._replace(headers=(*(PLAIN.headers or ()), ODD_TIME)),
    "a message id that is not UTF-8": PLAIN._replace(message_id=b"\xff\xfe"),
}


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes, module=APP)


def start(work: Work, *, ready: bool = True, **settings: str) -> Process:
    return work.start("--without-mingle", concurrency=1, ready=ready, **settings)


def submit_around(work: Work, poison: Properties, *, ahead: int) -> list[str]:
    """`GOOD` jobs in one go, with the poison behind `ahead` of them; the jobs' ids."""
    messages = [task_message(f"good-{number}", "t.fine", {}) for number in range(GOOD)]
    messages.insert(ahead, Message(poison.encode(), b"[[],{},{}]"))
    with work.vhost.channel() as channel:
        channel.confirm_delivery()
        for message in messages:
            raw = cast(Any, RawProperties(message.properties))
            channel.basic_publish("", "work", message.body, raw, mandatory=True)
    return [f"good-{number}" for number in range(GOOD)]


def assert_died_alone(work: Work, good: list[str]) -> None:
    for job in good:
        work.until(job, "SUCCEEDED", 60)
    ((raw, _),) = work.until_letters(1, 60)
    (death,) = deaths(split(raw.raw))
    assert (death.queue, death.reason) == ("work", "delivery_limit")
    work.until_settled(60)
    assert work.letters() == []


# The first is an OSError and taken for a lost connection, the second is a UnicodeDecodeError.
@pytest.mark.parametrize(("name", "unexpected"), list(zip(POISONS, (False, True), strict=True)))
def test_poison_is_dead_at_the_delivery_limit_and_its_neighbours_run(
    work: Work, name: str, unexpected: bool
) -> None:
    worker = start(work)
    work.result(work.submit("t.fine"))  # from now on with the full window
    good = submit_around(work, POISONS[name], ahead=GOOD // 2)
    assert_died_alone(work, good)
    assert worker.exit_code is None
    assert 1 <= worker.log.count("Trying to re-establish the connection") <= DELIVERY_LIMIT + 1
    assert worker.log.count("action=loop_failed") == (DELIVERY_LIMIT + 1 if unexpected else 0)
    assert work.result(work.submit("t.fine")) == "fine"


def test_poison_that_ends_the_process_dies_alone_too(work: Work) -> None:
    """A supervisor starts the worker again."""
    start(work, TEST_POISON_KILLS="1")
    work.result(work.submit("t.fine"))
    good = submit_around(work, POISONS["a timestamp of 2^62"], ahead=GOOD // 2)
    for _ in range(DELIVERY_LIMIT + 1):
        worker = work.processes.started[-1]
        eventually(
            lambda worker=worker: worker.exit_code is not None or work.depth("work.dlq"),  # type: ignore[misc]
            60,
            "the poison has ended the worker, or is dead",
        )
        if worker.exit_code is None:
            break
        start(work, ready=False, TEST_POISON_KILLS="1")
    assert_died_alone(work, good)
