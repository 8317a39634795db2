"""Canvases on a real worker: what follows a job follows it once, and results are read from the jobs' rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError
from celery.exceptions import TimeoutError as ResultTimeoutError
from kombu.utils.json import dumps

from tests.support.canvas import Canvas, shared_canvas
from tests.support.shared import Places, Shared

WAIT_S = 40


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Canvas]]:
    with shared_canvas(places) as shared:
        yield shared


@pytest.fixture
def canvas(shared: Shared[Canvas], request: pytest.FixtureRequest) -> Iterator[Canvas]:
    with shared.lent(request.node) as canvas:
        yield canvas


def test_each_shape_gives_what_celery_gives(canvas: Canvas) -> None:
    add, collect, app = canvas.task, canvas.task, canvas.client
    one = add("add", 1, 1).apply_async()
    parallel = group([add("add", n, n) for n in range(4)], app=app).apply_async()
    steps = chain(add("add", 1, 1), add("add", 1), add("add", 1), app=app).apply_async()
    joined = chord([add("add", n, n) for n in range(4)], collect("collect"), app=app).apply_async()
    of_chains = chord(
        [chain(add("add", n, 1), add("add", 10), app=app) for n in range(3)], collect("collect"), app=app
    ).apply_async()
    inside = chain(
        add("add", 1, 1), group([add("add", 1), add("add", 2)], app=app), collect("collect"),
        collect("collect"), app=app,
    ).apply_async()  # fmt: skip
    nested = chord(
        [chord([add("add", 1, 1), add("add", 2, 2)], collect("collect"), app=app), add("add", 3, 3)],
        chain(collect("collect"), collect("collect"), app=app),
        app=app,
    ).apply_async()
    to_a_group = chord([add("add", 5, 5)], group([collect("collect")] * 2, app=app), app=app).apply_async()

    assert one.get(timeout=WAIT_S) == 2
    assert parallel.get(timeout=WAIT_S) == [0, 2, 4, 6]
    assert parallel.join(timeout=WAIT_S) == [0, 2, 4, 6]
    assert steps.get(timeout=WAIT_S) == 4
    assert joined.get(timeout=WAIT_S) == [0, 2, 4, 6]
    assert of_chains.get(timeout=WAIT_S) == [11, 12, 13]
    assert inside.get(timeout=WAIT_S) == [3, 4]
    assert nested.get(timeout=WAIT_S) == [[2, 4], 6]
    assert to_a_group.get(timeout=WAIT_S) == [[10], [10]]
    canvas.until_quiet()
    assert all(job["attempt"] == 1 for job in canvas.jobs_of("add"))
    assert canvas.letters() == []


def test_a_result_tells_state_value_error_and_children(canvas: Canvas) -> None:
    result, open_path = canvas.client.AsyncResult, canvas.path("open")
    spawned = canvas.task("spawn").apply_async()
    failed = canvas.task("needs", canvas.path("never"), 1).apply_async()
    running = canvas.task("slow", 7, open_path).apply_async()

    child = spawned.get(timeout=WAIT_S)
    assert [str(each.id) for each in result(spawned.id).children] == [child]
    assert result(child).get(timeout=WAIT_S) == 3
    with pytest.raises(Exception, match="no never") as raised:
        failed.get(timeout=WAIT_S)
    assert type(raised.value).__name__ == "Broken"
    assert (result(failed.id).state, result(failed.id).ready()) == ("FAILURE", True)
    assert "Broken: no never" in str(result(failed.id).traceback)
    canvas.until_state(running.id, "STARTED")
    with pytest.raises(ResultTimeoutError):
        running.get(timeout=0.1)
    Path(open_path).touch()
    assert running.get(timeout=WAIT_S) == 7
    with pytest.raises(NotImplementedError):
        result(running.id).forget()
    assert (result("unheard-of").state, result("unheard-of").result) == ("PENDING", None)
    canvas.until_letters(1)


def test_a_custom_state_shows_while_the_job_runs(canvas: Canvas) -> None:
    open_path = canvas.path("shown")
    result = canvas.task("shows", {"done": 3}, open_path).apply_async()
    canvas.until_state(result.id, "HALFWAY")
    assert canvas.client.AsyncResult(result.id).info == {"done": 3}
    Path(open_path).touch()
    assert result.get(timeout=WAIT_S) == "shown"


def test_a_saved_group_is_restored(canvas: Canvas) -> None:
    sent = group([canvas.task("add", 1, n) for n in range(3)], app=canvas.client).apply_async()
    sent.save()
    again = canvas.client.GroupResult.restore(sent.id)
    assert again.get(timeout=WAIT_S) == [1, 2, 3]
    again.delete()
    assert canvas.client.GroupResult.restore(sent.id) is None


def test_waiting_asks_the_database_seldom(canvas: Canvas, monkeypatch: pytest.MonkeyPatch) -> None:
    open_path, asked = canvas.path("seldom"), 0
    backend = canvas.client.backend
    metas = backend.metas

    def counted(ids: Any) -> Any:
        nonlocal asked
        asked += 1
        return metas(ids)

    monkeypatch.setattr(backend, "metas", counted)
    waiting = group([canvas.task("slow", n, open_path) for n in range(2)], app=canvas.client).apply_async()
    with pytest.raises(ResultTimeoutError):
        waiting.get(timeout=2)
    # 20, 40, … 320 ms, then every half second, whatever the number of jobs.
    assert asked <= 10
    Path(open_path).touch()
    assert waiting.get(timeout=WAIT_S) == [0, 1]


ENDS = ("exception", "exhausted", "rejected", "soft_timeout", "hard_timeout", "memory", "worker_lost")


def test_each_bad_end_calls_its_errbacks_once(canvas: Canvas) -> None:
    noted = canvas.path("noted")
    sent = {}
    for how in ENDS:
        signature = canvas.task("bad", how)
        signature.link_error(canvas.task("errback"))
        signature.link_error(canvas.client.signature("c.noted", kwargs={"path": noted}))
        sent[signature.apply_async().id] = how
    for job, how in sent.items():
        assert canvas.until(job, "DEAD", 60)["reason"] == how
    told = canvas.until_jobs("errback", len(sent))
    canvas.until_quiet()
    assert sorted(json.loads(job["result"]) for job in told) == sorted(sent)
    lines = Path(noted).read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(sent)
    kinds = {sent[line.split()[0]]: line.split()[1] for line in lines}
    assert kinds == {
        "exception": "Broken",
        "exhausted": "Broken",
        "rejected": "Reject",
        "soft_timeout": "SoftTimeLimitExceeded",
        "hard_timeout": "TimeLimitExceeded",
        "memory": "MemoryError",
        "worker_lost": "WorkerLostError",
    }
    canvas.until_letters(len(sent))


def test_a_success_calls_links_and_no_errbacks(canvas: Canvas) -> None:
    signature = canvas.task("add", 1, 1)
    signature.link(canvas.task("collect"))
    signature.link(chain(canvas.task("add", 1), canvas.task("collect"), app=canvas.client))
    signature.link_error(canvas.task("errback"))
    assert signature.apply_async().get(timeout=WAIT_S) == 2
    canvas.until_jobs("collect", 2)
    canvas.until_quiet()
    assert sorted(json.loads(job["result"]) for job in canvas.jobs_of("collect")) == [2, 3]
    assert canvas.jobs_of("errback") == []


def test_the_errbacks_of_a_chords_body_are_told_once_of_a_dead_member(canvas: Canvas) -> None:
    body = canvas.task("collect")
    body.link_error(canvas.task("errback"))
    sent = chord(
        [canvas.task("add", 1, 1), canvas.task("bad", "exception"), canvas.task("bad", "rejected")],
        body,
        app=canvas.client,
    ).apply_async()
    with pytest.raises(ChordError, match=r"Dependency .* raised") as raised:
        canvas.client.AsyncResult(sent.id).get(timeout=WAIT_S)
    members = {result.id for result in sent.parent.results}
    assert any(member in str(raised.value) for member in members)
    (told,) = canvas.until_jobs("errback", 1)
    canvas.until_quiet()
    assert json.loads(told["result"]) == sent.id
    assert len(canvas.jobs_of("errback")) == 1
    assert canvas.jobs_of("collect") == []
    canvas.until_letters(2)


def test_a_dead_middle_of_a_chain_in_a_chord_fails_the_chord_and_what_is_around_it(canvas: Canvas) -> None:
    inner = chord(
        [chain(canvas.task("add", 1, 1), canvas.task("after", canvas.path("no"), 1), canvas.task("collect"),
               app=canvas.client), canvas.task("add", 2, 2)],
        canvas.task("collect"), app=canvas.client,
    )  # fmt: skip
    outer = chord([inner, canvas.task("add", 3, 3)], canvas.task("collect"), app=canvas.client).apply_async()
    with pytest.raises(ChordError):
        canvas.client.AsyncResult(outer.id).get(timeout=WAIT_S)
    canvas.until_quiet()
    assert canvas.jobs_of("collect") == []
    canvas.until_letters(1)


def test_a_member_adds_another_to_its_chord(canvas: Canvas) -> None:
    sent = chord(
        [canvas.task("adds", 1), canvas.task("add", 2, 2)], canvas.task("collect"), app=canvas.client
    )
    assert sent.apply_async().get(timeout=WAIT_S) == [1, 4, 2]


def test_a_task_that_would_be_replaced_is_dead_and_says_why(canvas: Canvas) -> None:
    sent = canvas.task("replaces").apply_async()
    assert "replace() is not supported" in canvas.until(sent.id, "DEAD")["error"]
    canvas.until_letters(1)


def test_a_member_that_is_dead_and_left_no_message_fails_its_chord(canvas: Canvas) -> None:
    body = canvas.task("collect").clone(task_id="body")
    body.link_error(canvas.task("errback"))
    canvas.database.execute(
        "insert into redrive.jobs (id, type, queue, state, reason, finished_at)"
        " values ('lost', 'c.add', 'work', 'DEAD', 'worker_lost', now() - interval '2 minutes')"
    )
    canvas.database.execute(
        "insert into redrive.chords (group_id, members, shape, body) values ('g', '{lost}', $1, $2)",
        b'["lost"]', dumps(body).encode(),
    )  # fmt: skip
    canvas.until_state("body", "FAILURE")
    canvas.until_jobs("errback", 1)
