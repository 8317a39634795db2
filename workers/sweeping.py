"""A job is never RUNNING for ever: one whose worker and message are both gone waits again.

Rare: a lost worker's message is delivered again, and the job is then taken over. But a queue may be purged or
lost, and a database restored.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from storage.claims import StatementError
from storage.lost_jobs import LostJob, NewMessage, give_up
from topology.errors import UnknownQueueError
from topology.headers import Attempt
from topology.messages import task_message
from topology.spec import Topology
from workers import republish

if TYPE_CHECKING:
    from storage.claims import Connection

logger = logging.getLogger(__name__)
# In leases, so ten minutes by default: a message is delivered again and a letter drained long before, and an
# outcome that went on with its message (workers/handing_over.py) gets through the queue.
SILENT_LEASES = 20


def message_again(job: LostJob, topology: Topology) -> NewMessage | None:
    """The message of the attempt that waits, as far as its payload is on record."""
    if job.payload is None:
        return None
    options = json.loads(job.retry_options) if job.retry_options else {}
    queue = options.get("queue") or job.queue
    try:
        topology.queue(queue)
        attempt, token = Attempt(job.generation, job.attempt), str(uuid4())
        message = task_message(job.id, job.type, json.loads(job.payload), attempt=attempt, token=token)
        arguments = job.retry_arguments or _arguments(job)
        if job.retries or arguments or options:
            message = republish.retried(
                message.properties, message.body, protocol=2, attempt=attempt, token=token, due_ms=None,
                retries=job.retries, arguments=arguments, options=options,
            )  # fmt: skip
    except (UnknownQueueError, ValueError, RecursionError) as error:
        logger.error("cannot be sent again: %s", error, extra={"action": "lost_unsendable", "job_id": job.id})
        return None
    return NewMessage(queue, message.properties, message.body, token)


def _arguments(job: LostJob) -> bytes | None:
    """Those of its replay, which may be others than its payload.

    Raises:
        ValueError: they are not in the form of a message made here (JSON, protocol 2, not compressed).
    """
    if job.replayed is not None:
        parts = json.loads(job.replayed)
        if not isinstance(parts, list) or len(parts) != 3:
            raise ValueError("its replay sent a body that is no [args, kwargs, embed]")
    return job.replayed


async def sweep(connection: Connection, topology: Topology, *, lease_s: float, crash_bound: int) -> None:
    """Look once, and tell of each job that was found.

    Raises:
        storage.errors.DatabaseAwayError: nothing was changed.
    """
    try:
        found = await give_up(
            connection,
            silent_s=SILENT_LEASES * lease_s,
            crash_bound=crash_bound,
            message=lambda job: message_again(job, topology),
        )
    except StatementError as error:
        logger.error("lost jobs cannot be looked for: %s", error, extra={"action": "sweep_refused"})
        return
    for job, sent in found:
        fields = {"action": "job_lost", "job_id": job.id, "task": job.type, "queue": job.queue}
        then = "sent again" if sent else "waits until its message comes, if it still exists"
        logger.warning("its worker and its message were lost: %s, %s", job.state, then, extra=fields)
