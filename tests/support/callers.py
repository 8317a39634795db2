"""Jobs that end, and what becomes of their callbacks; `dlq consume` sends them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tests.support.graveyard import Graveyard
from tests.support.waiting import eventually

# Of receivers that never answer: a port that a receiver of the test before had is known to answer soon.
DEAF_HOST = "127.0.0.3"
SETTINGS = {
    "REDRIVE_CALLBACK_SECRET": "s",
    "REDRIVE_CALLBACK_ALLOW": f"127.0.0.1,{DEAF_HOST}",
    "REDRIVE_CALLBACK_TIMEOUT_S": "5",
}


class Caller(Graveyard):
    """No worker: jobs end by the test's own statements."""

    def waits(self, job: str, url: str, *, result: bytes | None = None, principal: str = "shop") -> None:
        """A job with a callback is there."""
        self.job(job, "QUEUED", calls_back=True, result=result, principal=principal)
        self.database.execute(
            "insert into redrive.job_callbacks values ($1, $2, $3, '{SUCCEEDED,DEAD,CANCELLED}')",
            job,
            url,
            urlsplit(url).netloc,
        )

    def end(
        self, job: str, url: str, *, state: str = "CANCELLED", result: bytes | None = None, tries: int = 0
    ) -> None:
        """One ends; the callback was tried so often before."""
        self.waits(job, url, result=result)
        self.database.execute(
            f"do $$ begin update redrive.jobs set state = '{state}' where id = '{job}';"
            f" update redrive.callbacks set tries = {tries} where job_id = '{job}'; end $$"
        )

    def callback(self, job: str) -> dict[str, Any]:
        return self.database.fetch("select * from redrive.callbacks where job_id = $1", job)[0]

    def until(self, job: str, **columns: Any) -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            found = self.callback(job)
            assert {name: found[name] for name in columns} == columns, found
            return found

        return eventually(reached, 30, f"the callback of {job} is {columns}")

    def again(self, job: str) -> None:
        """Its next try is due now."""
        self.database.execute("update redrive.callbacks set next_try_at = now() where job_id = $1", job)
