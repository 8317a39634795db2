"""What a large submission costs is paid beside the event loop."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from api.body import INLINE_BYTES
from api.routes import jobs
from api.submission import Submission, new_job
from storage.api_keys import Principal
from storage.jobs import NewJob
from tests.unit.test_api_doors import application


@pytest.mark.anyio
async def test_the_message_of_a_large_submission_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made_by: list[threading.Thread] = []

    async def may_submit(_: Any) -> Principal:
        return Principal("shop", frozenset({"submit"}))

    def noted(asked: Submission, principal: str) -> NewJob:
        made_by.append(threading.current_thread())
        return new_job(asked, principal)

    monkeypatch.setattr(jobs, "may_submit", may_submit)
    monkeypatch.setattr(jobs, "new_job", noted)
    transport = httpx.ASGITransport(application())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for size in (1, INLINE_BYTES):
            payload = {"event_id": "e", "kind": "k", "data": {"text": "x" * size}}
            body = {"type": "webhooks.handle_webhook", "payload": payload, "idempotency_key": "k"}
            answer = await client.post("/jobs", json=body)
            assert answer.status_code == 503, answer.text  # there is no database
    here = threading.current_thread()
    assert [thread is here for thread in made_by] == [True, False]
