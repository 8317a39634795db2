"""What a callback says."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from storage.callbacks import Callback
from storage.stored_json import stored
from storage.times import shown_time

EVENT = "job.ended"
# Bytes of a result as JSON, and characters of an error.
MAX_RESULT = 65_536
MAX_ERROR = 4_000


def body(callback: Callback, now: datetime) -> bytes:
    """The body of the POST: the end of the job as it was, also when it has been replayed since.

    A result of more than `MAX_RESULT` bytes is left out: `result_left_out` has its bytes, and
    `GET /jobs/{id}/result` the whole.
    """
    left_out = callback.result_size if callback.result is None else None
    said: dict[str, Any] = {
        "id": callback.id,
        "event": EVENT,
        "job": {
            "id": callback.job_id,
            "type": callback.type,
            "queue": callback.queue,
            "state": callback.job_state,
            "generation": callback.generation,
            "attempt": callback.attempt,
            "reason": callback.reason,
            "created_at": shown_time(callback.created_at),
            "finished_at": shown_time(callback.finished_at),
            "result": stored(callback.result),
            "error": None if callback.error is None else callback.error[:MAX_ERROR],
        },
        "result_left_out": left_out,
        "sent_at": shown_time(now),
    }
    return json.dumps(said, ensure_ascii=True, allow_nan=False).encode()
