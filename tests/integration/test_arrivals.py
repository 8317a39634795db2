"""What an arriving message is worth, by its job's row: the design's table on a real worker and database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.processes import Process
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from tests.support.work import Work, shared_work
from tests.support.worker_jobs import QUEUE
from topology.headers import Attempt
from topology.messages import task_message
from topology.names import step
from topology.wire import RawProperties, split


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places) as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


FIRST, SECOND = Attempt(1, 1), Attempt(1, 2)
STEPS = [step("work", QUEUE.ladder, number) for number in range(QUEUE.ladder.steps)]


@dataclass(frozen=True)
class Row:
    """A job's row before its message arrives. `lease_s`: to the end of its lease, negative once expired."""

    state: str
    attempt: Attempt = FIRST
    lease_s: float | None = None
    begun: bool = True

    def put(self, work: Work, job: str) -> None:
        running = self.state == "RUNNING"
        claim = uuid4() if running else None
        work.database.execute(
            "insert into redrive.jobs (id, type, queue, state, generation, attempt, claim, worker,"
            " lease_until, lease_cap) values ($1, 't.mark', 'work', $2, $3, $4, $5, 'lost',"
            " now() + $6::float8 * interval '1 s', case when $7 then now() + interval '1 h' end)",
            job, self.state, self.attempt.generation, self.attempt.attempt, claim, self.lease_s,
            running and self.begun,
        )  # fmt: skip
        if running:
            work.database.execute(
                "insert into redrive.attempts (job_id, generation, attempt, claim, worker)"
                " values ($1, $2, $3, $4, 'lost')",
                job, self.attempt.generation, self.attempt.attempt, claim,
            )  # fmt: skip


def attempts(work: Work, job: str) -> list[tuple[str, str]]:
    return [
        (str(Attempt(row["generation"], row["attempt"])), row["outcome"])
        for row in work.database.fetch(
            "select * from redrive.attempts where job_id = $1 order by generation, attempt", job
        )
    ]


def runs(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def arrive(work: Work, row: Row | None, arrived: Attempt, path: Path) -> str:
    job = str(uuid4())
    if row is not None:
        row.put(work, job)
    work.send("t.mark", job, arrived, key=job, path=str(path))
    return job


# (what, row, the message's attempt, the attempts at the end)
THAT_RUN: list[tuple[str, Row | None, Attempt, list[tuple[str, str]]]] = [
    ("no row", None, FIRST, [("1.1", "succeeded")]),
    ("pending", Row("PENDING"), FIRST, [("1.1", "succeeded")]),
    ("queued", Row("QUEUED"), FIRST, [("1.1", "succeeded")]),
    ("retrying", Row("RETRYING", SECOND), SECOND, [("1.2", "succeeded")]),
    ("recorded, never published", Row("RETRYING", SECOND), FIRST, [("1.2", "succeeded")]),
    ("ahead of its row", Row("QUEUED"), Attempt(1, 3), [("1.3", "succeeded")]),
    ("a generation ahead", Row("RETRYING", SECOND), Attempt(2, 1), [("2.1", "succeeded")]),
    ("dead, a generation ahead", Row("DEAD", SECOND), Attempt(2, 1), [("2.1", "succeeded")]),
    ("lease expired", Row("RUNNING", lease_s=-1), FIRST, [("1.1", "lost"), ("1.2", "succeeded")]),
    ("lease live, then expired", Row("RUNNING", lease_s=2), FIRST, [("1.1", "lost"), ("1.2", "succeeded")]),
    ("lease expired, not begun", Row("RUNNING", lease_s=-1, begun=False), FIRST, [("1.1", "succeeded")]),
    (
        "lease expired, an older message",
        Row("RUNNING", SECOND, lease_s=-1),
        FIRST,
        [("1.2", "lost"), ("1.3", "succeeded")],
    ),
    (
        "lease expired, a generation ahead",
        Row("RUNNING", lease_s=-1),
        Attempt(2, 1),
        [("1.1", "lost"), ("2.1", "succeeded")],
    ),
]


@pytest.mark.parametrize(
    ("row", "arrived", "expected"), [case[1:] for case in THAT_RUN], ids=[case[0] for case in THAT_RUN]
)
def test_it_runs_once(
    work: Work, worker: Process, tmp_path: Path, row: Row | None, arrived: Attempt, expected: Any
) -> None:
    path = tmp_path / "runs"
    job = arrive(work, row, arrived, path)
    assert work.result(job) == "done"
    assert attempts(work, job) == expected
    assert runs(path) == 1
    assert work.letters() == []
    believed = arrived > row.attempt if row else False
    assert (f"action=claim_ahead job_id={job}" in worker.log) is believed
    if row is not None and (row.lease_s or 0) > 0:
        waited = work.attempts(job)[-1]["started_at"] - work.job(job)["created_at"]
        assert waited.total_seconds() >= 2, "the lease was respected"


# (what, row, the message's attempt)
DUPLICATES = [
    ("succeeded", Row("SUCCEEDED"), FIRST),
    ("succeeded, ahead", Row("SUCCEEDED"), Attempt(2, 1)),
    ("cancelled", Row("CANCELLED"), FIRST),
    ("of an older generation, waiting", Row("QUEUED", Attempt(2, 1)), Attempt(1, 5)),
    ("of an older generation, running", Row("RUNNING", Attempt(2, 1), lease_s=60), Attempt(1, 5)),
    ("of an older generation, lost", Row("RUNNING", Attempt(2, 1), lease_s=-1), Attempt(1, 5)),
    ("of an older generation, dead", Row("DEAD", Attempt(2, 1)), SECOND),
]


@pytest.mark.parametrize(
    ("row", "arrived"), [case[1:] for case in DUPLICATES], ids=[case[0] for case in DUPLICATES]
)
def test_it_is_acked_as_a_duplicate(
    work: Work, worker: Process, tmp_path: Path, row: Row, arrived: Attempt
) -> None:
    path = tmp_path / "runs"
    job = arrive(work, row, arrived, path)
    before = work.job(job)
    worker.wait_for_log(f"duplicate acked action=duplicate job_id={job}")
    assert work.job(job) == before
    assert (runs(path), work.letters()) == (0, [])


def expired(work: Work, row: Row, path: Path) -> str:
    """A message that comes after its `expires`."""
    job = str(uuid4())
    row.put(work, job)
    message = task_message(job, "t.mark", {"key": job, "path": str(path)})
    late = split(message.properties).with_header("expires", "2001-01-01T00:00:00+00:00")
    work.publish(message.body, RawProperties(late.encode()))
    return job


@pytest.mark.parametrize("state", ["SUCCEEDED", "CANCELLED"])
def test_an_expired_message_of_a_job_that_has_ended_is_a_duplicate(
    work: Work, worker: Process, tmp_path: Path, state: str
) -> None:
    job = expired(work, Row(state), tmp_path / "runs")
    worker.wait_for_log(f"duplicate acked action=duplicate job_id={job}")
    assert work.letters() == []


def test_an_expired_message_of_a_running_job_waits_for_its_end(
    work: Work, worker: Process, tmp_path: Path
) -> None:
    """It ran in time, and the broker delivered its message again when the connection was lost."""
    job = expired(work, Row("RUNNING", lease_s=4), tmp_path / "runs")
    eventually(lambda: sum(work.vhost.depths(STEPS).values()) == 1, 20, "it waits on the ladder")
    work.database.execute(
        "update redrive.jobs set state = 'SUCCEEDED', claim = null, lease_until = null where id = $1", job
    )
    worker.wait_for_log(f"duplicate acked action=duplicate job_id={job}")
    assert work.letters() == []


@pytest.mark.parametrize("row", [Row("QUEUED"), Row("RUNNING", lease_s=-1)], ids=["waiting", "lost"])
def test_an_expired_message_of_a_job_that_waits_is_its_letter(
    work: Work, worker: Process, tmp_path: Path, row: Row
) -> None:
    job = expired(work, row, tmp_path / "runs")
    ((properties, _),) = work.until_letters(1)
    assert properties.headers["id"] == job
    assert (work.job(job)["state"], runs(tmp_path / "runs")) == (row.state, 0)


def test_the_message_of_a_dead_job_is_its_letter(work: Work, worker: Process, tmp_path: Path) -> None:
    job = arrive(work, Row("DEAD", SECOND), SECOND, tmp_path / "runs")
    ((properties, _),) = work.until_letters(1)
    assert properties.headers["id"] == job
    assert (work.job(job)["state"], runs(tmp_path / "runs")) == ("DEAD", 0)


def test_a_live_lease_is_waited_for_on_the_ladder(work: Work, worker: Process, tmp_path: Path) -> None:
    job = arrive(work, Row("RUNNING", lease_s=60), FIRST, tmp_path / "runs")

    eventually(lambda: sum(work.vhost.depths(STEPS).values()) == 1, 20, "it waits in the broker")
    assert (work.depth("work"), runs(tmp_path / "runs")) == (0, 0)
    assert (work.job(job)["attempt"], work.job(job)["crashes"]) == (1, 0)


def test_an_effect_that_outlived_its_jobs_row_does_not_happen_again(
    work: Work, worker: Process, tmp_path: Path
) -> None:
    job = str(uuid4())
    Row("QUEUED").put(work, job)
    work.database.execute(
        "insert into redrive.effects (key, job_id, claim, result) values ($1, $1, $2, $3)",
        job, uuid4(), b'"first"',
    )  # fmt: skip
    work.send("t.mark", job, Attempt(1, 2), key=job, path=str(tmp_path / "runs"))
    assert work.result(job) == "again: first"
    assert work.database.value("select count(*) from redrive.sample_emails") == 0


@pytest.mark.parametrize(
    "row",
    [Row("QUEUED"), Row("RUNNING", lease_s=60), Row("RUNNING", lease_s=-1), Row("SUCCEEDED"), Row("DEAD")],
    ids=["waiting", "running", "lost", "succeeded", "dead"],
)
def test_a_message_of_another_task_is_dead_lettered_and_the_job_of_its_id_left_alone(
    work: Work, worker: Process, row: Row
) -> None:
    job = str(uuid4())
    row.put(work, job)
    before = work.job(job), attempts(work, job)
    work.send("t.add", job, Attempt(2, 1), x=1, y=1)
    ((properties, _),) = work.until_letters(1)
    assert split(properties.raw).get_header("task") == "t.add"
    assert (work.job(job), attempts(work, job)) == before
    assert f"action=refused job_id={job}" in worker.log


def test_two_programs_that_give_two_tasks_one_id_lose_neither(
    work: Work, worker: Process, tmp_path: Path
) -> None:
    job = str(uuid4())
    work.send("t.mark", job, key=job, path=str(tmp_path / "runs"))
    work.send("t.add", job, x=1, y=1)
    work.until_letters(1)
    work.until(job, "SUCCEEDED")
    assert len(attempts(work, job)) == 1
