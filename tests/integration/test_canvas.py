"""Canvases on a real worker: what follows a job follows it once, and results are read from the jobs' rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import chain, chord, group

from tests.support.canvas import APP, Canvas
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.vhosts import Vhost

WAIT_S = 40


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Canvas]]:
    def make(vhost: Vhost, database: Database, processes: Processes) -> Canvas:
        canvas = Canvas.make(vhost, database, processes)
        canvas.start(app=APP)
        return canvas

    with places.shared(make) as shared:
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
