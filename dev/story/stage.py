"""What each step of the story has at hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dev.sink.client import SinkClient
from dev.stack import Stack
from dev.story.client import FINAL, RedriveApi, Submission
from dev.story.telling import NotSeen, Teller
from dev.thirdparty.client import ThirdPartyClient
from dev.waiting import NotYet, wait_for

T = TypeVar("T")
_SECONDS = 45.0


@dataclass
class Stage:
    """`accepted`: every id that the API has answered 202 for. The story's own count starts from it."""

    stack: Stack
    api: RedriveApi
    third_party: ThirdPartyClient
    sink: SinkClient
    tell: Teller
    accepted: set[str] = field(default_factory=set)
    alerts_expected: set[int] = field(default_factory=set)  # letter ids
    poisoned_letter: int = 0
    poisoned_job: str = ""
    garbage_letter: int = 0

    def submit(
        self, type_: str, payload: Mapping[str, object], key: str, *, key_in_body: bool = False
    ) -> Submission:
        made = self.api.submit(type_, payload, key, key_in_body=key_in_body)
        self.accepted.add(made.job_id)
        where = "idempotency_key in the body" if key_in_body else "Idempotency-Key"
        again = ", Idempotent-Replayed: true" if made.replayed else ""
        self.tell.seen(f"POST /jobs {type_}, {where} {key!r}: {made.status}, job {made.job_id[:8]}{again}")
        return made

    def until(self, job_id: str, state: str) -> dict[str, Any]:
        """The job once it is in `state`. Raises NotSeen when it ends in another."""

        def ask() -> dict[str, Any]:
            job = self.api.job(job_id)
            if job["state"] == state:
                return job
            if job["state"] in FINAL:
                raise NotSeen(f"expected job {job_id} to become {state}; it is {json.dumps(job, indent=1)}")
            raise NotYet(f"{job['state']}, attempt {job['attempt']}")

        return self.wait(f"job {job_id[:8]} to be {state}", ask)

    def wait(self, what: str, ask: Callable[[], T], seconds: float = _SECONDS) -> T:
        return wait_for(
            what, ask, seconds=seconds, say=self.tell.progress, alive=self.stack.check_alive, every=0.05
        )

    def letters(self, *options: str) -> list[dict[str, Any]]:
        """What `dlq list --json` prints."""
        lines = self.stack.command("dlq", "list", "--json", *options).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def dossier(self, letter_id: int) -> dict[str, Any]:
        """What `dlq show --json` prints."""
        found: dict[str, Any] = json.loads(self.stack.command("dlq", "show", str(letter_id), "--json").stdout)
        return found
