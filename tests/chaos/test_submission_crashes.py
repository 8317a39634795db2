"""The API is killed at every place where it waits between a submission and its confirmed publish.

A few of the places, by a seed; with REDRIVE_TEST_ALL_CRASHES=1 all of them (minutes). In the end a worker
runs the jobs that call back, of all rounds, and `dlq consume` tells of them.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crashing.orders import Nursery
from tests.support.crashing.rounds import crash_at_some
from tests.support.ports import free_port
from tests.support.receiver import Receiver, receiver
from tests.support.shared import Places
from tests.support.stack import Stack
from tests.support.stubs import start_third_party
from tests.support.waiting import eventually

SEED = 11
SAMPLE = 5
SAMPLE_OF_CALLBACKS = 2
# uvicorn ends, when all is done, by the signal that told it to.
ENDED = -signal.SIGTERM
TYPE = "payments.charge_order"
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
# So many that some are committed together.
TOGETHER = tuple(f"a{number}" for number in range(12))
# Of another queue, which is left alone until the end. Both ways of one job, and a batch.
CALLING = ("told", "later", "x")
CALLING_TYPE = "webhooks.handle_webhook"
SETTINGS = {"REDRIVE_CALLBACK_SECRET": "s", "REDRIVE_CALLBACK_ALLOW": "127.0.0.1"}
# A submission in all its parts.
ACCEPTED = """
select coalesce(k.key, '') as key, coalesce(j.state, '') as state, c.url is not null as calls_back,
       coalesce(j.calls_back, false) as marked, o.job_id is not null as unsent
from redrive.idempotency_keys k full join redrive.jobs j on j.id = k.job_id
full join redrive.job_callbacks c on c.job_id = j.id full join redrive.outbox o on o.job_id = j.id
"""
Answers = dict[str, str]


@dataclass
class Submissions:
    """Requests that come together, are cut off, and are sent again under the same keys to a successor."""

    stack: Stack
    nursery: Nursery
    port: int
    key: str
    hook: Receiver
    number: int = 0
    accepted: Answers = field(default_factory=dict)
    calling: set[str] = field(default_factory=set)

    def load(self) -> None:
        self.number += 1

    def crash(self, point: str = "", points: Path | None = None) -> int | None:
        """Submit until it dies, or has published all; the exit code, None while it lives."""
        self.accepted = {}
        self.pid = self.nursery.start(points=points, die_at=point)
        code: list[int | None] = [None]

        def over() -> bool:
            code[0] = self.nursery.exit_code(self.pid)
            return code[0] is not None or (self._submit() and self._outbox() == 0)

        eventually(over, 40, f"it dies at {point!r}, or has published all")
        if code[0] is None:
            code[0] = self.nursery.terminate(self.pid)
        self._check_whole()
        return code[0]

    def recover(self) -> None:
        """A successor takes the same requests again, and publishes all that was accepted."""
        before = dict(self.accepted)
        pid = self.nursery.start()
        eventually(self._submit, 40, "the successor has accepted all")
        eventually(lambda: self._outbox() == 0, 40, "it has published all")
        assert self.nursery.terminate(pid) == ENDED
        assert before.items() <= self.accepted.items(), "whoever had an answer gets the same one"
        self.calling |= {self.accepted[f"{self.number}-{name}"] for name in CALLING}
        self._check()

    def end(self) -> None:
        """The jobs that call back run, and each is told of once."""
        called = start_third_party(self.stack.processes)
        self.stack.start_worker(REDRIVE_THIRD_PARTY_URL=called.url)
        self.stack.start_consumer()
        database, count = self.stack.database, len(self.calling)
        ended = "select count(*) from redrive.callbacks where state = 'delivered' and job_state = 'SUCCEEDED'"
        eventually(lambda: database.value(ended) == count, 60, f"{count} callbacks are delivered")
        assert database.value("select count(*) from redrive.callbacks") == count
        told = Counter(json.loads(request.body)["job"]["id"] for request in self.hook.taken)
        assert told == Counter(self.calling)

    def _check_whole(self) -> None:
        """Of what the dead process accepted no part is missing, and nothing else of it is there."""
        for row in self.stack.database.fetch(ACCEPTED):
            _, _, name = row["key"].partition("-")
            assert row["state"] == ("PENDING" if row["unsent"] else "QUEUED"), row
            assert row["calls_back"] == row["marked"] == (name in CALLING), row

    def _check(self) -> None:
        database = self.stack.database
        mine = [f"{self.number}-{name}" for name in (*TOGETHER, *CALLING, "y")]
        assert sorted(self.accepted) == sorted(mine)
        rows = database.fetch(
            "select k.key, k.job_id, j.state from redrive.idempotency_keys k"
            " join redrive.jobs j on j.id = k.job_id where k.key = any ($1::text[])",
            mine,
        )
        assert {row["key"]: row["job_id"] for row in rows} == self.accepted
        jobs = "select count(*) from redrive.jobs"
        assert database.value(jobs) == len(mine) * self.number, "no job without a key"
        assert {row["state"] for row in rows} == {"QUEUED"}
        # What was published and not known to be is published again: the claim removes it.
        arrived = Counter(
            message["properties"]["message_id"] for message in self.stack.vhost.get("payments", 1_000)
        )
        assert arrived.keys() == set(self.accepted.values()) - self.calling
        told = "select count(*) from redrive.audit where submission and $1 = any (targets)"
        for job in self.accepted.values():
            assert database.value(told, job) == 1, "each is on record once"

    def _outbox(self) -> int:
        return int(self.stack.database.value("select count(*) from redrive.outbox"))

    def _submit(self) -> bool:
        """Whether all are accepted; what was answered is kept."""
        with ThreadPoolExecutor(len(TOGETHER) + 3) as threads:
            asked = [threads.submit(self._one, name, {}) for name in (*TOGETHER, "told")]
            asked.append(threads.submit(self._one, "later", {"delay_s": 0.1}))
            asked.append(threads.submit(self._batch))
            return all(each.result() for each in asked)

    def _job(self, name: str) -> dict[str, Any]:
        key = f"{self.number}-{name}"
        if name not in CALLING:
            return {"type": TYPE, "payload": CHARGE, "idempotency_key": key}
        event = {"event_id": key, "kind": "k", "data": {}}
        return {
            "type": CALLING_TYPE, "payload": event, "idempotency_key": key, "callback_url": self.hook.url,
        }  # fmt: skip

    def _one(self, name: str, more: dict[str, Any]) -> bool:
        job = self._job(name) | more
        answer = self._post("/jobs", job)
        if answer is not None:
            self.accepted[job["idempotency_key"]] = answer["id"]
        return answer is not None

    def _batch(self) -> bool:
        jobs = [self._job(name) for name in ("x", "y")]
        answer = self._post("/jobs/batch", {"jobs": jobs})
        if answer is not None:
            results = zip(jobs, answer["results"], strict=True)
            self.accepted |= {job["idempotency_key"]: each["id"] for job, each in results}
        return answer is not None

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            answer = httpx.post(f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers, timeout=30)
        except httpx.HTTPError:
            return None
        if answer.status_code == 503:  # it has not reached its database yet
            return None
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def submissions(places: Places, tmp_path: Path) -> Iterator[Submissions]:
    with places.fresh() as (vhost, database, processes), receiver() as hook:
        stack = Stack(vhost, database, processes, SETTINGS)
        stack.apply_topology()
        made = stack.command("api.keys_cli:main", "create", "shop", "--json")
        port = free_port()
        nursery = Nursery(tmp_path, stack.settings | {"PORT": str(port)}, "api")
        yield Submissions(stack, nursery, port, json.loads(made.stdout)["key"], hook)
        nursery.close()


@pytest.mark.timeout(1800)
def test_killed_at_any_wait_no_job_is_lost_doubled_left_unpublished_or_untold(
    submissions: Submissions, tmp_path: Path
) -> None:
    submissions.load()
    assert submissions.crash(points=tmp_path / "points") == ENDED
    submissions.recover()
    points = sorted(set((tmp_path / "points").read_text().splitlines()))
    files = {Path(point.split()[1].partition(":")[0]).name for point in points}
    assert {"jobs.py", "submissions.py", "batches.py", "relay.py", "outbox.py", "job_callbacks.py"} <= files
    of_callbacks = [point for point in points if "/job_callbacks.py:" in point]
    others = [point for point in points if point not in of_callbacks]
    crash_at_some(submissions, of_callbacks, sample=SAMPLE_OF_CALLBACKS, seed=SEED)
    crash_at_some(submissions, others, sample=SAMPLE, seed=SEED)
    submissions.end()
