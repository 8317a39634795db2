"""The API is killed at every place where it waits between a submission and its confirmed publish.

A few of the places, by a seed; with REDRIVE_TEST_ALL_CRASHES=1 all of them (minutes).
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
from tests.support.shared import Places
from tests.support.stack import Stack
from tests.support.waiting import eventually

SEED = 11
SAMPLE = 5
# uvicorn ends, when all is done, by the signal that told it to.
ENDED = -signal.SIGTERM
TYPE = "payments.charge_order"
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
# So many that some are committed together.
TOGETHER = tuple(f"a{number}" for number in range(12))
Answers = dict[str, str]


@dataclass
class Submissions:
    """Requests that come together, are cut off, and are sent again under the same keys to a successor."""

    stack: Stack
    nursery: Nursery
    port: int
    key: str
    number: int = 0
    accepted: Answers = field(default_factory=dict)

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
        return code[0]

    def recover(self) -> None:
        """A successor takes the same requests again, and publishes all that was accepted."""
        before = dict(self.accepted)
        pid = self.nursery.start()
        eventually(self._submit, 40, "the successor has accepted all")
        eventually(lambda: self._outbox() == 0, 40, "it has published all")
        assert self.nursery.terminate(pid) == ENDED
        assert before.items() <= self.accepted.items(), "whoever had an answer gets the same one"
        self._check()

    def _check(self) -> None:
        database = self.stack.database
        mine = [f"{self.number}-{name}" for name in (*TOGETHER, "later", "x", "y")]
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
        assert arrived.keys() == set(self.accepted.values())
        told = "select count(*) from redrive.audit where submission and $1 = any (targets)"
        for job in self.accepted.values():
            assert database.value(told, job) == 1, "each is on record once"

    def _outbox(self) -> int:
        return int(self.stack.database.value("select count(*) from redrive.outbox"))

    def _submit(self) -> bool:
        """Whether all are accepted; what was answered is kept."""
        with ThreadPoolExecutor(len(TOGETHER) + 2) as threads:
            asked = [threads.submit(self._one, name, {}) for name in TOGETHER]
            asked.append(threads.submit(self._one, "later", {"delay_s": 0.1}))
            asked.append(threads.submit(self._batch))
            return all(each.result() for each in asked)

    def _one(self, name: str, more: dict[str, Any]) -> bool:
        key = f"{self.number}-{name}"
        answer = self._post("/jobs", {"type": TYPE, "payload": CHARGE, "idempotency_key": key} | more)
        if answer is not None:
            self.accepted[key] = answer["id"]
        return answer is not None

    def _batch(self) -> bool:
        keys = [f"{self.number}-{name}" for name in ("x", "y")]
        jobs = [{"type": TYPE, "payload": CHARGE, "idempotency_key": key} for key in keys]
        answer = self._post("/jobs/batch", {"jobs": jobs})
        if answer is not None:
            self.accepted |= {key: each["id"] for key, each in zip(keys, answer["results"], strict=True)}
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
    with places.fresh() as (vhost, database, processes):
        stack = Stack(vhost, database, processes)
        stack.apply_topology()
        made = stack.command("api.keys_cli:main", "create", "shop", "--json")
        port = free_port()
        nursery = Nursery(tmp_path, stack.settings | {"PORT": str(port)}, "api")
        yield Submissions(stack, nursery, port, json.loads(made.stdout)["key"])
        nursery.close()


@pytest.mark.timeout(1800)
def test_killed_at_any_wait_no_job_is_lost_doubled_or_left_unpublished(
    submissions: Submissions, tmp_path: Path
) -> None:
    submissions.load()
    assert submissions.crash(points=tmp_path / "points") == ENDED
    submissions.recover()
    points = sorted(set((tmp_path / "points").read_text().splitlines()))
    files = {Path(point.split()[1].partition(":")[0]).name for point in points}
    assert {"jobs.py", "submissions.py", "batches.py", "relay.py", "outbox.py"} <= files, files
    crash_at_some(submissions, points, sample=SAMPLE, seed=SEED)
