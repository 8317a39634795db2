"""Long jobs that show how far they are."""

from __future__ import annotations

import json
from typing import Any

from workers.app import app, third_party
from workers.jobs.thirdparty import RateLimitedError, TransientError
from workers.task import RedriveTask


@app.task(
    bind=True,
    name="reports.generate_report",
    autoretry_for=(TransientError, RateLimitedError),
    retry_backoff=True,
    retry_backoff_max=600,
    max_retries=5,
)
def generate_report(self: RedriveTask, report_id: str, sections: int = 3) -> dict[str, Any]:
    """Write a report to the file store, section by section; what an earlier attempt wrote is kept."""
    store = third_party()
    name = f"/files/{report_id}.json"
    if store.exists(name):
        return {"url": store.url(name), "written": 0}
    written = 0
    for section in range(1, sections + 1):
        self.stop_if_cancelled()
        part = f"/files/{report_id}.{section}.json"
        if not store.exists(part):
            store.put_file(part, json.dumps({"report": report_id, "section": section}).encode())
            written += 1
        self.update_state(state="PROGRESS", meta={"sections": sections, "done": section})
    store.put_file(name, json.dumps({"report": report_id, "sections": sections}).encode())
    return {"url": store.url(name), "written": written}
