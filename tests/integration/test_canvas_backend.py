"""An app that keeps a result backend of its own: results are where they were, chords are ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import chord

from tests.support.canvas import APP, Canvas, client_of
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

WAIT_S = 40


def test_chords_work_and_errbacks_are_told_over_a_backend_of_the_users(
    vhost: Vhost, database: Database, processes: Processes, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}"
    canvas = Canvas(vhost, database, processes)
    canvas.client = client_of(vhost, database, result_backend=url)
    canvas.start(app=APP, CANVAS_RESULT_BACKEND=url)
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
    canvas.client.pool.force_close_all()
    canvas.client.close()
