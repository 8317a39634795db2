"""Stock levels from a supplier that limits the rate."""

from __future__ import annotations

from typing import Any

from workers.app import app, third_party
from workers.jobs.thirdparty import RateLimitedError, TransientError
from workers.task import RedriveTask

FIRST_WAIT_S = 2


@app.task(bind=True, name="inventory.sync_inventory", max_retries=8)
def sync_inventory(self: RedriveTask, sku: str) -> dict[str, Any]:
    """Fetch one stock level; when told to slow down, come back exactly when allowed."""
    try:
        return third_party().get(f"/inventory/{sku}")
    except RateLimitedError as error:
        raise self.retry(exc=error, countdown=error.retry_after_s) from error
    except TransientError as error:
        raise self.retry(exc=error, countdown=FIRST_WAIT_S * 2**self.request.retries) from error
