"""A client of the HTTP API, as any program of a user's would be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from dev.errors import DevError

FINAL = ("SUCCEEDED", "DEAD", "CANCELLED")


class Refused(DevError):
    """The API answered with a problem; the message has its status and its words."""


@dataclass(frozen=True)
class Submission:
    """The answer to POST /jobs."""

    job_id: str
    status: int
    location: str
    replayed: bool


class RedriveApi:
    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False
        )

    def close(self) -> None:
        self._http.close()

    def submit(
        self, type_: str, payload: Mapping[str, object], key: str, *, key_in_body: bool = False
    ) -> Submission:
        """POST /jobs with the idempotency key as a header, or in the body. Raises Refused."""
        body: dict[str, object] = {"type": type_, "payload": payload}
        headers = {} if key_in_body else {"Idempotency-Key": key}
        if key_in_body:
            body["idempotency_key"] = key
        answer = self._http.post("/jobs", json=body, headers=headers)
        if answer.status_code != httpx.codes.ACCEPTED:
            raise Refused(f"POST /jobs {type_}: HTTP {answer.status_code} {answer.text}")
        return Submission(
            answer.json()["id"],
            answer.status_code,
            answer.headers.get("Location", ""),
            answer.headers.get("Idempotent-Replayed") == "true",
        )

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._get(f"/jobs/{job_id}")
        return found

    def result(self, job_id: str) -> Any:
        return self._get(f"/jobs/{job_id}/result")

    def _get(self, path: str) -> Any:
        answer = self._http.get(path)
        if not answer.is_success:
            raise Refused(f"GET {path}: HTTP {answer.status_code} {answer.text}")
        return answer.json()
