"""A replay takes a canvas up where it stopped; deaths that no worker saw are told by their letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import chain, chord
from celery.exceptions import ChordError, TaskError, TaskRevokedError

from tests.support.canvas import Canvas, shared_canvas
from tests.support.shared import Places, Shared
from topology.wire import RawProperties, properties

WAIT_S = 40


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Canvas]]:
    with shared_canvas(places, consumer=True) as shared:
        yield shared


@pytest.fixture
def canvas(shared: Shared[Canvas], request: pytest.FixtureRequest) -> Iterator[Canvas]:
    with shared.lent(request.node) as canvas:
        yield canvas


def test_a_replayed_member_completes_its_chord_once(canvas: Canvas) -> None:
    path, body = canvas.path("member"), canvas.task("collect")
    body.link_error(canvas.task("errback"))
    dead = canvas.task("needs", path, 3).clone(task_id="dead-member")
    sent = chord([canvas.task("add", 1, 1), dead, canvas.task("add", 2, 2)], body, app=canvas.client)
    result = sent.apply_async()

    with pytest.raises(ChordError, match=r"Dependency dead-member raised .*no member"):
        canvas.client.AsyncResult(result.id).get(timeout=WAIT_S)
    canvas.until_jobs("errback", 1)
    Path(path).touch()
    canvas.replay("dead-member")

    assert canvas.client.AsyncResult(result.id).get(timeout=WAIT_S) == [2, 3, 4]
    canvas.until_quiet()
    assert [job["id"] for job in canvas.jobs_of("collect")] == [result.id]
    assert len(canvas.jobs_of("errback")) == 1
    assert canvas.job("dead-member")["generation"] == 2


def test_a_member_that_dies_twice_calls_the_errback_once_and_its_own_each_time(canvas: Canvas) -> None:
    path, body = canvas.path("twice"), canvas.task("collect")
    body.link_error(canvas.task("errback"))
    dead = canvas.task("needs", path, 3).clone(task_id="dies-twice")
    dead.link_error(canvas.task("collect"))
    chord([canvas.task("add", 1, 1), dead], body, app=canvas.client).apply_async()
    canvas.until_jobs("errback", 1)
    canvas.until_jobs("collect", 1)
    assert canvas.dlq("replay", str(canvas.letter("dies-twice"))).returncode == 1
    canvas.until_jobs("collect", 2)
    canvas.until_quiet()
    assert [json.loads(job["result"]) for job in canvas.jobs_of("collect")] == ["dies-twice"] * 2
    assert len(canvas.jobs_of("errback")) == 1


def test_the_rest_of_a_chain_runs_once_after_the_replay_of_its_dead_middle(canvas: Canvas) -> None:
    path = canvas.path("middle")
    middle = canvas.task("after", path, "b").clone(task_id="middle")
    result = chain(canvas.task("add", 1, 1), middle, canvas.task("collect"), app=canvas.client).apply_async()

    with pytest.raises(Exception, match="no middle"):
        canvas.client.AsyncResult(result.id).get(timeout=WAIT_S)
    assert canvas.jobs_of("collect") == []
    Path(path).touch()
    canvas.replay("middle")

    assert canvas.client.AsyncResult(result.id).get(timeout=WAIT_S) == [2, "b"]
    canvas.until_quiet()
    assert [job["id"] for job in canvas.jobs_of("collect")] == [result.id]


def test_a_chord_of_chains_goes_on_through_the_replay_of_a_dead_link(canvas: Canvas) -> None:
    path = canvas.path("link")
    header = [
        chain(canvas.task("add", 1, 1), canvas.task("add", 1), app=canvas.client),
        chain(
            canvas.task("add", 2, 2), canvas.task("after", path, 5).clone(task_id="link"),
            canvas.task("collect"), app=canvas.client,
        ),
    ]  # fmt: skip
    result = chord(
        header, chain(canvas.task("collect"), canvas.task("collect"), app=canvas.client), app=canvas.client
    ).apply_async()
    with pytest.raises(ChordError):
        canvas.client.AsyncResult(result.id).get(timeout=WAIT_S)
    Path(path).touch()
    canvas.replay("link")
    assert canvas.client.AsyncResult(result.id).get(timeout=WAIT_S) == [3, [4, 5]]
    canvas.until_quiet()
    assert len(canvas.jobs_of("collect")) == 3


UNSEEN = ("unknown_task", "expired", "undecodable")


@pytest.mark.parametrize("how", UNSEEN)
def test_a_member_that_the_guard_refuses_fails_its_chord(canvas: Canvas, how: str) -> None:
    """No worker ran it: its letter tells, and the row of its job may not exist."""
    body = canvas.task("collect")
    body.link_error(canvas.task("errback"))
    member = canvas.task("add", 1, 2).clone(task_id=f"refused-{how}")
    errback = canvas.task("errback")
    if how == "unknown_task":
        member = canvas.client.signature("c.unheard_of", task_id=f"refused-{how}")
    elif how == "expired":
        member.set(expires=datetime.now(UTC) - timedelta(hours=1))
    else:
        member.set(queue="work", serializer="json")
    if how != "undecodable":  # a message that cannot be read has no errbacks
        member.link_error(errback)
    result = chord([canvas.task("add", 1, 1), member], body, app=canvas.client)
    if how == "undecodable":
        with canvas.spoiled(f"refused-{how}"):
            sent = result.apply_async()
    else:
        sent = result.apply_async()

    with pytest.raises(ChordError, match=f"Dependency refused-{how} raised"):
        canvas.client.AsyncResult(sent.id).get(timeout=WAIT_S)
    canvas.until_jobs("errback", 1 if how == "undecodable" else 2)
    canvas.until_quiet()
    told = sorted(json.loads(job["result"]) for job in canvas.jobs_of("errback"))
    assert told == sorted([sent.id] if how == "undecodable" else [sent.id, f"refused-{how}"])
    assert canvas.jobs_of("collect") == []


@pytest.mark.parametrize(("how", "error"), [("expired", TaskRevokedError), ("unknown_task", TaskError)])
def test_a_job_that_no_worker_accepted_has_failed_once_its_letter_is_stored(
    canvas: Canvas, how: str, error: type[Exception]
) -> None:
    if how == "expired":
        sent = canvas.task("add", 1, 2).apply_async(expires=datetime.now(UTC) - timedelta(hours=1))
    else:
        sent = canvas.client.send_task("c.unheard_of")

    with pytest.raises(error):
        sent.get(timeout=WAIT_S)
    assert canvas.state(sent.id) == "FAILURE"


def test_a_letter_with_a_strange_canvas_is_let_go(canvas: Canvas) -> None:
    strange = b'[[], {}, {"errbacks": [1, null], "chain": [[]], "chord": 3}]'
    headers: dict[str, object] = {"task": "c.unheard_of", "id": "strange", "group": "g\x00"}
    raw = properties(headers=headers, content_type="application/json", content_encoding="utf-8").encode()
    canvas.publish(strange, RawProperties(raw))
    canvas.until_jobs("redrive.died", 1, "DEAD")
    canvas.until_quiet()
    assert canvas.task("add", 1, 1).apply_async().get(timeout=WAIT_S) == 2
