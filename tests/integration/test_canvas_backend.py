"""An app that keeps a result backend of its own: results are where they were, chords are ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError
from celery import chord
from celery.exceptions import InvalidTaskError, NotRegistered, TaskRevokedError
from kombu.exceptions import DecodeError

from tests.support.canvas import APP, Canvas, client_of
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.wire import RawProperties, properties

WAIT_S = 40


@pytest.fixture
def canvas(vhost: Vhost, database: Database, processes: Processes, tmp_path: Path) -> Iterator[Canvas]:
    url = f"file://{tmp_path}"
    made = Canvas(vhost, database, processes)
    made.client = client_of(vhost, database, result_backend=url)
    made.start(app=APP, CANVAS_RESULT_BACKEND=url, REDRIVE_WORKER_CRASH_BOUND="2")
    yield made
    made.client.pool.force_close_all()
    made.client.close()


def test_chords_work_and_errbacks_are_told_over_a_backend_of_the_users(canvas: Canvas) -> None:
    body, path = canvas.task("collect"), canvas.path("repaired")
    body.link_error(canvas.task("errback"))
    one = chord([canvas.task("add", n, n) for n in range(3)], canvas.task("collect"), app=canvas.client)
    two = chord([canvas.task("add", 1, 1), canvas.task("needs", path, 1)], body, app=canvas.client)

    assert one.apply_async().get(timeout=WAIT_S) == [0, 2, 4]
    assert type(canvas.client.backend).__name__ == "FilesystemBackend"
    failed = two.apply_async()
    with pytest.raises(Exception, match="no repaired"):
        failed.parent.results[1].get(timeout=WAIT_S)
    canvas.until_jobs("errback", 1)
    # Told by the row, too: in the user's backend the body fails as Celery's chords fail it.
    eventually(lambda: canvas.client.AsyncResult(failed.id).state == "FAILURE", WAIT_S, "the body has failed")
    canvas.until_quiet()
    assert len(canvas.jobs_of("errback")) == 1


@pytest.mark.parametrize("how", ["hard_timeout", "worker_lost"])
def test_a_job_whose_process_was_lost_at_the_bound_has_failed_there_too(canvas: Canvas, how: str) -> None:
    """No task of its own told the backend: whoever waits would wait for ever."""
    sent = canvas.task("bad", how).apply_async()
    with pytest.raises(WorkerLostError, match="dead-lettered"):
        sent.get(timeout=WAIT_S)
    assert canvas.job(sent.id)["crashes"] == 2


def test_what_is_refused_before_it_runs_has_failed_there_too(canvas: Canvas) -> None:
    """Nobody waits for ever, whatever was wrong with the message."""

    def refused(job_id: str, body: bytes, **headers: object) -> None:
        bare = properties(headers={"id": job_id, **headers}, content_type="application/json")
        canvas.publish(body, RawProperties(bare.encode()))

    refused("unknown", b"[[],{},{}]", task="c.nobody")
    refused("malformed", b"[1]", task="c.add")
    refused("undecodable", b"{", task="c.add")
    late = canvas.task("add", 1, 1).apply_async(expires=-60)
    for job_id, error, words in (
        ("unknown", NotRegistered, "c.nobody"),
        ("malformed", InvalidTaskError, "body is not"),
        ("undecodable", DecodeError, "body is not the JSON"),
        (late.id, TaskRevokedError, "expired"),
    ):
        with pytest.raises(error, match=words):
            canvas.client.AsyncResult(job_id).get(timeout=WAIT_S)
