"""Every bad end of an attempt: its reason in the job's row, in the attempt's and in the stored letter."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.support.ends import Case, End, Ends
from tests.support.processes import Process
from tests.support.shared import Places
from tests.support.waiting import eventually
from topology.messages import task_message
from topology.wire import RawProperties, properties, split
from workers.outcomes import MESSAGE_CHARACTERS, TRACEBACK_CHARACTERS

WRONG = "tests.support.ending_jobs.Wrong"
REJECT = "celery.exceptions.Reject"
ENCODE = "kombu.exceptions.EncodeError"
LOST = "billiard.exceptions.WorkerLostError"
HARD = "{hard}"  # a path, filled in by the test
OURS = "tests.support.ending_jobs"


def case(
    name: str, task: str, reason: str | None, exception: str | None = None, attempts: int = 1, **kwargs: Any
) -> Case:
    return Case(name, f"e.{task}", kwargs, reason, exception, attempts)


CASES = [
    case("exception", "raises", "exception", WRONG),
    case("retries exhausted", "exhausts", "exhausted", WRONG, 2),
    case("Reject, whatever autoretry_for", "rejects", "rejected", REJECT),
    case("Reject, whatever dont_autoretry_for", "rejects_overridden", "rejected", REJECT),
    case("Reject made and not raised", "returns_reject", "exception", ENCODE),
    case("soft limit", "soft", "soft_timeout", "billiard.exceptions.SoftTimeLimitExceeded"),
    case("hard limit", "hard", "hard_timeout", "billiard.exceptions.TimeLimitExceeded", 3, path=HARD),
    case("SIGKILL", "signal", "worker_lost", LOST, 3, number=int(signal.SIGKILL)),
    case("SIGTERM", "signal", "worker_lost", LOST, 3, number=int(signal.SIGTERM)),
    case("SIGABRT", "signal", "worker_lost", LOST, 3, number=int(signal.SIGABRT)),
    case("SIGSEGV", "segfault", "worker_lost", LOST, 3),
    case("os._exit(0)", "os_exit", "worker_lost", LOST, 3, code=0),
    case("os._exit(1)", "os_exit", "worker_lost", LOST, 3, code=1),
    case("SystemExit", "leaves", "exception", "SystemExit", how="exit"),
    case("KeyboardInterrupt", "leaves", "exception", "KeyboardInterrupt", how="interrupt"),
    case("GeneratorExit", "leaves", "exception", "GeneratorExit", how="generator"),
    case("a BaseException", "leaves", "exception", f"{OURS}.Outside", how="outside"),
    case("SystemExit in async def", "async_exit", "exception", "SystemExit"),
    case("MemoryError", "memory", "memory", "MemoryError", 3),
    case("more memory than there is", "allocates", "memory", "MemoryError", 3),
    case("result: an object", "returns", "exception", ENCODE, what="object"),
    case("result: NaN", "returns", "exception", ENCODE, what="nan"),
    case("result: itself inside", "returns", "exception", ENCODE, what="recursive"),
    case("result: 100 MB", "returns", "exception", ENCODE, what="huge"),
    case("result: a lone surrogate", "returns", None, what="surrogate"),
    case("cannot be pickled", "raises_odd", "exception", f"{OURS}.Unpicklable", what="unpicklable"),
    case("__str__ and __repr__ raise", "raises_odd", "exception", f"{OURS}.Mute", what="mute"),
    case("__str__ leaves", "raises_odd", "exception", f"{OURS}.Leaving", what="leaving"),
    case("text of 1 MB", "raises_odd", "exception", WRONG, what="long"),
    case("NUL and surrogates", "raises_odd", "exception", WRONG, what="nul"),
    case("cyclic causes", "raises_odd", "exception", WRONG, what="cycle"),
    case("RecursionError", "raises_odd", "exception", "RecursionError", what="deep"),
    case("traceback of 300 kB", "raises_odd", "exception", WRONG, what="long traceback"),
    case("before_start raises", "hooked", "exception", "RuntimeError", before_start="wrong"),
    case("__call__ raises", "hooked", "exception", "RuntimeError", call="wrong"),
    case("__call__ raises afterwards", "hooked", "exception", "RuntimeError", call_after="wrong"),
    case("__call__ leaves", "hooked", "exception", "SystemExit", call="exit"),
    case("on_failure raises", "hooked", "exception", WRONG, end="wrong", on_failure="wrong"),
    case("on_failure rejects", "hooked", "exception", WRONG, end="wrong", on_failure="reject"),
    case("on_failure has no memory", "hooked", "exception", WRONG, end="wrong", on_failure="memory"),
    case("on_failure leaves", "hooked", "exception", WRONG, end="wrong", on_failure="exit"),
    case("after_return raises", "hooked", "exception", WRONG, end="wrong", after_return="wrong"),
    case("after_return rejects", "hooked", "exception", WRONG, end="wrong", after_return="reject"),
    case("on_retry raises", "hooked_retry", "exhausted", WRONG, 2, on_retry="wrong"),
    case("on_success raises", "hooked", None, on_success="wrong"),
    case("after_return raises at success", "hooked", None, after_return="wrong"),
    case("on_success rejects", "hooked", "rejected", REJECT, on_success="reject"),
    case("handlers raise at failure", "heard", "exception", WRONG, end="wrong"),
    case("handlers raise at retry", "heard_retry", "exhausted", WRONG, 2),
    case("handlers raise at success", "heard", None),
    case("a handler leaves", "heard", "exception", "SystemExit", prerun="exit"),
    case("backend away: exception", "untold", "exception", WRONG, end="wrong"),
    case("backend away: retry", "untold", "exhausted", "KeyError", 2, end="retries"),
    case("backend away: Reject", "untold", "rejected", REJECT, end="rejects"),
    case("backend away: killed", "untold", "worker_lost", LOST, 3, end="killed"),
    case("backend away: success", "untold", None, end="fine"),
]
# Of a frame of 131,072 bytes: 8 are around it, 14 before the properties.
LARGEST_PROPERTIES = 131_072 - 8 - 14
CRASHES = {"hard_timeout", "worker_lost", "memory"}


@dataclass
class Ended:
    """All of `CASES`, run together on one worker."""

    ends: Ends
    worker: Process
    found: dict[str, End]
    between: int  # good jobs that succeeded while crashing ones went on


@pytest.fixture(scope="module")
def place(places: Places) -> Iterator[Ends]:
    with places.fresh() as (vhost, database, processes):
        yield Ends(vhost, database, processes)


@pytest.fixture(scope="module")
def worker(place: Ends) -> Process:
    place.start_consumer()
    return place.start(concurrency=3)


@pytest.fixture(scope="module")
def ended(place: Ends, worker: Process, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    path = tmp_path_factory.mktemp("ends") / "pids"
    ids = {}
    for each in CASES:
        kwargs: dict[str, Any] = {
            name: str(path) if value == HARD else value for name, value in each.kwargs.items()
        }
        ids[each.name] = place.submit(each.task, **kwargs)
    crashing = [ids[each.name] for each in CASES if each.reason in CRASHES]
    good: list[str] = []
    dead = "select count(*) from redrive.jobs where state = 'DEAD' and id = any($1)"
    fine = "select count(*) from redrive.jobs where state = 'SUCCEEDED' and id = any($1)"
    between = 0

    def crashed() -> bool:
        nonlocal between
        over = bool(place.database.value(dead, crashing) == len(crashing))
        if not over:
            between = place.database.value(fine, good)
            good.append(place.submit("e.fine"))
        return over

    eventually(crashed, 100, "the crashing jobs are dead", every_s=0.5)
    found = {name: place.until_ended(job_id) for name, job_id in ids.items()}
    for job_id in good:
        place.until(job_id, "SUCCEEDED")
    return Ended(place, worker, found, between)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_an_end_has_its_reason(ended: Ended, each: Case) -> None:
    end = ended.found[each.name]
    assert (end.job["state"], end.job["reason"]) == ("DEAD" if each.reason else "SUCCEEDED", each.reason)
    assert len(end.attempts) == each.attempts
    last = end.attempts[-1]
    crashed = each.reason in CRASHES
    outcome = "succeeded" if each.reason is None else "lost" if crashed else "failed"
    assert (last["outcome"], last["reason"], last["exception_type"]) == (outcome, each.reason, each.exception)
    for attempt in end.attempts:
        assert attempt["worker"].startswith("w")
        assert attempt["started_at"] <= attempt["ended_at"]
        if each.reason is not None:
            assert attempt["exception_type"]
            assert attempt["traceback"]
            assert len(attempt["message"] or "") <= MESSAGE_CHARACTERS
            assert len(attempt["traceback"]) <= TRACEBACK_CHARACTERS
    if each.reason is None:
        assert end.letters == []
    else:
        (letter,) = end.letters
        assert (letter["reason"], letter["exception_type"]) == (each.reason, each.exception)
        assert (letter["state"], letter["attempt"] or 1) == ("open", each.attempts)
        headers = split(letter["properties"]).headers or ()
        assert max(len(entry.value) for entry in headers) < 4_096, "no traceback travels in a header"


def test_the_worker_went_on(ended: Ended) -> None:
    assert ended.worker.exit_code is None
    assert ended.worker.log.count("ready.") == 1
    assert "Unrecoverable" not in ended.worker.log


def test_other_jobs_went_on_beside_the_crashing_ones(ended: Ended) -> None:
    assert ended.between >= 3


def test_a_process_over_its_hard_limit_is_gone_before_the_next_attempt(ended: Ended) -> None:
    path = json.loads(ended.found["hard limit"].letters[0]["body"])[1]["path"]
    noted = Path(path).read_text().split()
    assert len(noted) == 3
    assert not [note for note in noted if note.startswith("beside")]


def test_async_jobs_go_on_after_one_that_left(ended: Ended) -> None:
    jobs = [ended.ends.submit("e.async_fine") for _ in range(6)]
    for job in jobs:
        assert ended.ends.result(job) == "fine"


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def submit_with(ends: Ends, task: str, headers: dict[str, str], **kwargs: Any) -> str:
    """A job whose message has these headers too."""
    job = str(uuid.uuid4())
    ends.database.execute(
        "insert into redrive.jobs (id, type, queue, state) values ($1, $2, 'work', 'QUEUED')", job, task
    )
    message = task_message(job, task, kwargs)
    changed = split(message.properties)
    for name, value in headers.items():
        changed = changed.with_header(name, value)
    ends.publish(message.body, RawProperties(changed.encode()))
    return job


def reasons(end: End) -> tuple[str | None, list[str], list[str | None]]:
    """Of the job, of its letters, of its attempts."""
    return (
        end.job["reason"],
        [letter["reason"] for letter in end.letters],
        [attempt["reason"] for attempt in end.attempts],
    )


def test_a_job_that_expires_is_dead_lettered_wherever_it_waits(ended: Ended) -> None:
    ends = ended.ends
    on_arrival = submit_with(ends, "e.fine", {"expires": in_s(-1)})
    not_due = submit_with(ends, "e.fine", {"eta": in_s(1.5), "expires": in_s(1)})
    retried = submit_with(ends, "e.waits_past_its_expiry", {"expires": in_s(3.5)})
    assert reasons(ends.until_ended(on_arrival)) == ("expired", ["expired"], [])
    assert reasons(ends.until_ended(not_due)) == ("expired", ["expired"], [])
    assert reasons(ends.until_ended(retried)) == ("expired", ["expired"], [None])


def test_a_job_that_expires_while_all_processes_are_busy_is_dead_lettered(ended: Ended) -> None:
    ends = ended.ends
    busy = [ends.submit("e.fine", seconds=6.0) for _ in range(3)]
    eventually(lambda: all(ends.job(job)["state"] == "RUNNING" for job in busy), 20, "all are busy")
    job = submit_with(ends, "e.fine", {"expires": in_s(3)})
    assert reasons(ends.until_ended(job)) == ("expired", ["expired"], ["expired"])
    for other in busy:
        ends.until(other, "SUCCEEDED")


def revoke(ends: Ends, job_id: str, *, terminate: bool = False) -> None:
    app = Celery(broker=ends.vhost.amqp_url)
    with app.connection_for_write() as connection:
        app.control.revoke(job_id, connection=connection, terminate=terminate)


@pytest.mark.parametrize("task", ["e.fine", "e.untold"])  # of the second, the result backend is away
def test_a_job_that_was_revoked_does_not_run_and_is_dead_lettered(ended: Ended, task: str) -> None:
    ends, job = ended.ends, str(uuid.uuid4())
    revoke(ends, job)
    ended.worker.wait_for_log(f"Tasks flagged as revoked: {job}")
    ends.submit(task, job, end="fine") if task == "e.untold" else ends.submit(task, job)
    assert reasons(ends.until_ended(job)) == ("revoked", ["revoked"], ["revoked"])


def test_a_running_job_that_is_revoked_is_ended_and_dead_lettered(ended: Ended) -> None:
    ends = ended.ends
    job = ends.submit("e.fine", seconds=60.0)
    eventually(lambda: ends.job(job)["lease_cap"], 20, "it runs, and that is on record")
    revoke(ends, job, terminate=True)
    assert reasons(ends.until_ended(job)) == ("revoked", ["revoked"], ["revoked"])
    assert ends.result(ends.submit("e.fine")) == "fine"


@pytest.mark.parametrize(("task", "reason"), [("e.unknown", "unknown_task"), ("e.exhausts", "exception")])
def test_headers_that_just_fit_a_frame_harm_nobody(ended: Ended, task: str, reason: str) -> None:
    """With the broker's death headers they no longer do; with ours for a retry neither."""
    bare = properties(headers={"task": task, "id": task, "k": ""}, content_type="application/json")
    full = bare.with_header("k", "A" * (LARGEST_PROPERTIES - len(bare.encode())))
    ended.ends.publish(b"[[],{},{}]", RawProperties(full.encode()))
    stored = "select reason, octet_length(properties) as size from redrive.dead_letters where job_id = $1"
    (letter,) = eventually(lambda: ended.ends.database.fetch(stored, task), 30, "its letter is stored")
    assert letter["reason"] == reason
    assert letter["size"] > LARGEST_PROPERTIES
    assert ended.ends.result(ended.ends.submit("e.fine")) == "fine"


def test_a_worker_that_is_lost_with_a_job_dead_letters_it_at_the_bound(places: Places) -> None:
    with places.fresh() as (vhost, database, processes):
        ends = Ends(vhost, database, processes)
        ends.start_consumer()
        job = ends.submit("e.kills_the_worker")
        for losses in range(3):
            worker = ends.start(concurrency=1, ready=False)
            eventually(lambda worker=worker: worker.exit_code, 60, "the worker is lost")  # type: ignore[misc]
            assert ends.job(job)["crashes"] <= losses
        ends.start(concurrency=1)
        end = ends.until_ended(job)
        assert reasons(end) == ("worker_lost", ["worker_lost"], ["worker_lost"] * 3)
        assert ends.result(ends.submit("e.fine")) == "fine"
